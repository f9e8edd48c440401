//! JSON Schemas of channels: what a channel holds after a write of a node must meet them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use crate::messages::visible::{cut, quoted};
use crate::messages::{Json, Plan, State};

use super::template::Fault;

/// The memory of one pattern, in bytes, and the most patterns of a workflow.
const PATTERN: usize = 256 << 10;
const MAX_PATTERNS: usize = 256;

/// The most schemas that one schema comes to when each `$ref` is put in the place where it stands, and how deep they may lie.
const MAX_UNFOLDED: usize = 10_000;
const MAX_DEPTH: usize = 128;

/// The schemas of a plan's channels, made ready.
#[derive(Default)]
pub(crate) struct Checks(BTreeMap<Arc<str>, Validator>);

impl Checks {
    /// Makes the schemas of a plan ready; those that cannot be are told with their channels.
    pub(super) fn of(plan: &Plan) -> (Self, Vec<(Arc<str>, Fault)>) {
        let (mut checks, mut faults) = (BTreeMap::new(), Vec::new());
        let mut patterns = 0;
        for (channel, schema) in &plan.checks {
            patterns += patterns_in(schema.value());
            let built = if patterns > MAX_PATTERNS {
                Err(format!("the schemas of the channels have more than {MAX_PATTERNS} patterns"))
            } else if Unfolding::of(schema.value()) > MAX_UNFOLDED {
                Err(format!(
                    "its references come to more than {MAX_UNFOLDED} schemas, or {MAX_DEPTH} levels, or lead to no path in it"
                ))
            } else {
                // Patterns take time that is linear in the text, and nothing is fetched.
                let patterns = PatternOptions::regex().size_limit(PATTERN).dfa_size_limit(PATTERN);
                let built = jsonschema::options().with_pattern_options(patterns).build(schema.value());
                built.map_err(|error| cut(&error.to_string()))
            };
            match built {
                Ok(validator) => drop(checks.insert(Arc::clone(channel), validator)),
                Err(problem) => {
                    let problem = format!("the schema of {} cannot be used: {problem}", quoted(channel));
                    faults.push((Arc::clone(channel), Fault::new(problem)));
                }
            }
        }
        (Self(checks), faults)
    }

    /// Looks at the channels that were written.
    ///
    /// # Errors
    /// What a channel holds now does not meet its schema.
    pub(crate) fn check<'a>(&self, state: &State, written: impl Iterator<Item = &'a str>) -> Result<(), String> {
        for channel in written {
            let Some(validator) = self.0.get(channel) else { continue };
            let held = state.get(channel).unwrap_or_default();
            if let Err(error) = validator.validate(Json::value(&held)) {
                let place = error.instance_path().to_string();
                let place = if place.is_empty() { String::new() } else { format!(" at {}", cut(&place)) };
                let problem = cut(&error.to_string());
                return Err(format!("channel {} does not meet its schema{place}: {problem}", quoted(channel)));
            }
        }
        Ok(())
    }
}

fn patterns_in(schema: &Value) -> usize {
    match schema {
        Value::Object(fields) => {
            let own = |(key, field): (&String, &Value)| match (key.as_str(), field) {
                ("pattern", Value::String(_)) => 1,
                ("patternProperties", Value::Object(patterns)) => patterns.len() + patterns_in(field),
                _ => patterns_in(field),
            };
            fields.iter().map(own).sum()
        }
        Value::Array(items) => items.iter().map(patterns_in).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// How many schemas there are when each `$ref` within the schema is followed; one that leads back to itself is followed once.
struct Unfolding<'a> {
    whole: &'a Value,
    known: BTreeMap<&'a str, Unfolded>,
}

#[derive(Clone, Copy, Default)]
struct Unfolded {
    schemas: usize,
    levels: usize,
}

impl Unfolded {
    const ENDLESS: Self = Self { schemas: usize::MAX, levels: usize::MAX };

    /// Both beside each other.
    fn and(self, other: Self) -> Self {
        Self { schemas: self.schemas.saturating_add(other.schemas), levels: self.levels.max(other.levels) }
    }
}

impl<'a> Unfolding<'a> {
    fn of(whole: &'a Value) -> usize {
        Unfolding { whole, known: BTreeMap::new() }.size(whole, 0).schemas
    }

    /// What a schema comes to that lies `above` levels deep.
    fn size(&mut self, schema: &'a Value, above: usize) -> Unfolded {
        if above > MAX_DEPTH {
            return Unfolded::ENDLESS;
        }
        let mut all = Unfolded::default();
        match schema {
            Value::Object(fields) => {
                for target in ["$ref", "$dynamicRef", "$recursiveRef"] {
                    if let Some(target) = fields.get(target).and_then(Value::as_str) {
                        all = all.and(self.followed(target, above + 1));
                    }
                }
                // What stands ready to be referred to counts where it is.
                for (_, part) in fields.iter().filter(|(key, _)| !["$defs", "definitions"].contains(&key.as_str())) {
                    all = all.and(self.size(part, above + 1));
                }
                all.schemas = all.schemas.saturating_add(1);
            }
            Value::Array(items) => {
                for item in items {
                    all = all.and(self.size(item, above + 1));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return all,
        }
        all.levels = all.levels.saturating_add(1);
        all
    }

    fn followed(&mut self, target: &'a str, above: usize) -> Unfolded {
        if let Some(known) = self.known.get(target) {
            return if above.saturating_add(known.levels) > MAX_DEPTH { Unfolded::ENDLESS } else { *known };
        }
        // Nothing else is fetched; what leads to a name in it could lead anywhere.
        let Some(pointer) = target.strip_prefix('#') else { return Unfolded::default() };
        let Some(found) = self.whole.pointer(pointer) else { return Unfolded::ENDLESS };
        self.known.insert(target, Unfolded { schemas: 1, levels: 0 });
        let size = self.size(found, above);
        self.known.insert(target, size);
        size
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
