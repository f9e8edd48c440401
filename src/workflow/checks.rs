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

/// The most schemas that one schema comes to when each `$ref` is put in the place where it stands.
const MAX_UNFOLDED: usize = 10_000;

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
                Err(format!("its references come to more than {MAX_UNFOLDED} schemas, or lead to no path in it"))
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
    known: BTreeMap<&'a str, usize>,
}

impl<'a> Unfolding<'a> {
    fn of(whole: &'a Value) -> usize {
        Unfolding { whole, known: BTreeMap::new() }.size(whole)
    }

    fn size(&mut self, schema: &'a Value) -> usize {
        match schema {
            Value::Object(fields) => {
                let targets =
                    ["$ref", "$dynamicRef", "$recursiveRef"].map(|key| fields.get(key).and_then(Value::as_str));
                let followed =
                    targets.into_iter().flatten().fold(0, |size, target| self.followed(target).saturating_add(size));
                // What stands ready to be referred to counts where it is.
                let parts = fields.iter().filter(|(key, _)| !["$defs", "definitions"].contains(&key.as_str()));
                parts.fold(1 + followed, |size, (_, part)| size.saturating_add(self.size(part)))
            }
            Value::Array(items) => items.iter().fold(0, |size, item| usize::saturating_add(size, self.size(item))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        }
    }

    fn followed(&mut self, target: &'a str) -> usize {
        if let Some(size) = self.known.get(target) {
            return *size;
        }
        // Nothing else is fetched; what leads to a name in it could lead anywhere.
        let Some(pointer) = target.strip_prefix('#') else { return 0 };
        let Some(found) = self.whole.pointer(pointer) else { return usize::MAX };
        self.known.insert(target, 1);
        let size = self.size(found);
        self.known.insert(target, size);
        size
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
