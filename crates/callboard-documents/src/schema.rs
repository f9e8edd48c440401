//! Compiles JSON Schemas from untrusted sources within bounds.

use std::collections::BTreeMap;

use callboard_text::cut;
use jsonschema::PatternOptions;
pub use jsonschema::Validator;
use jsonschema::error::ValidationErrorKind;
use serde_json::Value;

/// The types that a schema may name.
const TYPES: &str = "array, boolean, integer, null, number, object, string";

/// The memory limit of one pattern, in bytes.
const PATTERN: usize = 256 << 10;

/// The most patterns of schemas that are compiled together.
pub const MAX_PATTERNS: usize = 256;

/// The most schemas that one schema contains once each `$ref` is replaced by its target, and their deepest nesting.
const MAX_UNFOLDED: usize = 10_000;
const MAX_DEPTH: usize = 128;

/// Makes a schema ready. Patterns take time that is linear in the text, and nothing is fetched: a reference that leads
/// outside is an error.
///
/// # Errors
/// Why it cannot be used, in words.
pub fn ready(schema: &Value) -> Result<Validator, String> {
    if patterns_in(schema) > MAX_PATTERNS {
        return Err(format!("it has more than {MAX_PATTERNS} patterns"));
    }
    if Unfolding::of(schema) > MAX_UNFOLDED {
        return Err(format!(
            "its references come to more than {MAX_UNFOLDED} schemas, or {MAX_DEPTH} levels, or lead to no path in it"
        ));
    }
    let patterns = PatternOptions::regex().size_limit(PATTERN).dfa_size_limit(PATTERN);
    let built = jsonschema::options().with_pattern_options(patterns).build(schema);
    built.map_err(|error| match cut(&error.to_string()) {
        problem if problem.contains("registry") => {
            "it refers to something outside itself, and nothing is fetched".to_owned()
        }
        problem => {
            let place = error.instance_path().to_string();
            match error.kind() {
                ValidationErrorKind::AnyOf { .. } if place.ends_with("/type") => {
                    format!("{} is no type; the types are {TYPES}", cut(&error.instance().to_string()))
                }
                ValidationErrorKind::Format { .. } if place.ends_with("/pattern") => {
                    format!("{} is no regular expression", cut(&error.instance().to_string()))
                }
                _ if place.is_empty() => format!("it is no JSON Schema: {problem}"),
                _ => format!("it is no JSON Schema at {}: {problem}", cut(&place)),
            }
        }
    })
}

/// Checks whether a value meets a schema.
///
/// # Errors
/// The first place where it does not, and why, as it goes on after "does not meet its schema".
pub fn check(validator: &Validator, value: &Value) -> Result<(), String> {
    validator.validate(value).map_err(|error| {
        let place = error.instance_path().to_string();
        let place = if place.is_empty() { String::new() } else { format!(" at {}", cut(&place)) };
        format!("{place}: {}", cut(&error.to_string()))
    })
}

/// Counts the regular expressions of a schema: each `pattern`, and each key of `patternProperties`.
#[must_use]
pub fn patterns_in(schema: &Value) -> usize {
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

/// The number of schemas when each `$ref` within the schema is followed; a recursive one is followed once.
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

    /// The sum of two parts of a schema.
    fn and(self, other: Self) -> Self {
        Self { schemas: self.schemas.saturating_add(other.schemas), levels: self.levels.max(other.levels) }
    }
}

impl<'a> Unfolding<'a> {
    fn of(whole: &'a Value) -> usize {
        Unfolding { whole, known: BTreeMap::new() }.size(whole, 0).schemas
    }

    /// The number of schemas in one that lies `above` levels deep.
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
                // Definitions count where they are referenced.
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
        // Other documents are not fetched; a reference by name could lead anywhere.
        let Some(pointer) = target.strip_prefix('#') else { return Unfolded::default() };
        let Some(found) = self.whole.pointer(pointer) else { return Unfolded::ENDLESS };
        self.known.insert(target, Unfolded { schemas: 1, levels: 0 });
        let size = self.size(found, above);
        self.known.insert(target, size);
        size
    }
}
