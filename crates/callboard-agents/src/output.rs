//! Answers that are values: JSON that meets a schema. Pure.

use std::fmt;
use std::sync::Arc;

use callboard::messages::Json;
use callboard_documents::schema::{self, Validator};
use serde_json::Value;

/// What the answer of an agent must look like: a compiled schema. A cheap clone.
///
/// ```
/// use callboard_agents::OutputSchema;
/// use serde_json::json;
/// let schema = OutputSchema::new(json!({ "type": "object", "required": ["title"] }))?;
/// assert_eq!(schema.read("```json\n{ \"title\": \"Leaves\" }\n```")?, json!({ "title": "Leaves" }));
/// assert_eq!(schema.read("{}").unwrap_err(), "does not meet its schema: \"title\" is a required property");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone)]
pub struct OutputSchema {
    schema: Json,
    validator: Arc<Validator>,
}

impl OutputSchema {
    /// Compiles a JSON Schema that answers have to meet.
    ///
    /// # Errors
    /// Why the schema cannot be used, in words: it is none, its patterns or references are out of bounds, or lead outside it.
    pub fn new(schema: impl Into<Json>) -> Result<Self, String> {
        let schema = schema.into();
        let validator = Arc::new(schema::ready(schema.value())?);
        Ok(Self { schema, validator })
    }

    /// Returns the JSON Schema that answers have to meet, as it was given.
    #[must_use]
    pub fn schema(&self) -> &Json {
        &self.schema
    }

    /// Returns the value that a text says: JSON, also as the one fenced block of the text. A text that is no JSON is
    /// taken for a string if the schema takes that one.
    ///
    /// # Errors
    /// What is wrong with it, as it goes on after "the answer".
    pub fn read(&self, text: &str) -> Result<Json, String> {
        let text = unfenced(text);
        let (value, error) = match serde_json::from_str::<Value>(text) {
            Ok(value) => (value, None),
            Err(error) => (Value::from(text), Some(error)),
        };
        let value = Json::from(value);
        if value.is_too_deep() {
            return Err(format!("is nested more than {} levels deep", Json::MAX_DEPTH));
        }
        match (schema::check(&self.validator, value.value()), error) {
            (Ok(()), _) => Ok(value),
            (Err(_), Some(error)) => Err(format!("is not JSON: {error}")),
            (Err(problem), None) => Err(format!("does not meet its schema{problem}")),
        }
    }

    /// The instruction about the answer for a model.
    pub(super) fn instruction(&self) -> String {
        format!(
            "Your last answer is read by a program. It is one JSON value that meets this JSON Schema, with nothing before or \
             after it:\n{}",
            self.schema
        )
    }
}

/// The content of the only fenced block of a text, or the text.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let mut parts = text.split("```");
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(_), Some(block), Some(_), None) => {
            // The first line names the language.
            block.split_once('\n').map_or(block, |(_, inside)| inside).trim()
        }
        _ => text,
    }
}

impl PartialEq for OutputSchema {
    fn eq(&self, other: &Self) -> bool {
        self.schema == other.schema
    }
}

impl fmt::Debug for OutputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OutputSchema").field(&self.schema).finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::json;

    use super::*;

    fn classes() -> OutputSchema {
        OutputSchema::new(json!({ "enum": ["simple", "complex"] })).unwrap()
    }

    #[test]
    fn a_value_is_found_in_what_models_write_around_it() {
        for text in ["\"simple\"", " simple\n", "```json\n\"simple\"\n```", "Here it is:\n```\nsimple\n```\nDone."] {
            assert_eq!(classes().read(text), Ok("simple".into()), "{text}");
        }
        let object = OutputSchema::new(json!({ "type": "object" })).unwrap();
        assert_eq!(object.read("{\"a\": \"``\"}"), Ok(json!({ "a": "``" }).into()));
    }

    #[test]
    fn what_does_not_fit_is_reported_as_it_continues_after_the_answer() {
        assert!(classes().read("hard").unwrap_err().starts_with("is not JSON: "));
        assert!(classes().read("\"hard\"").unwrap_err().starts_with("does not meet its schema: "));
        assert!(classes().read("```a```b```").unwrap_err().starts_with("is not JSON: "));
        let deep = format!("{}1{}", "[".repeat(Json::MAX_DEPTH + 1), "]".repeat(Json::MAX_DEPTH + 1));
        assert!(OutputSchema::new(true).unwrap().read(&deep).unwrap_err().contains("levels deep"));
    }

    #[test]
    fn a_schema_that_is_none_is_refused() {
        OutputSchema::new(json!({ "type": "objekt" })).unwrap_err();
        OutputSchema::new(json!({ "$ref": "https://example.com/schema" })).unwrap_err();
    }
}
