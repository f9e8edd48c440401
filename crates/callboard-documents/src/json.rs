//! JSON in which an object has each key once. `serde_json` keeps the last value of a repeated key and drops the others without a
//! word.

use std::fmt;

use callboard_text::quoted;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Value};

/// Why [`parse`] refuses a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonError {
    /// It is not JSON: the position, and what is wrong there.
    Syntax(String),
    /// An object, at whatever depth, has a key twice: the position of the second one, and the key.
    Repeated(String),
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(problem) | Self::Repeated(problem) => f.write_str(problem),
        }
    }
}

impl std::error::Error for JsonError {}

/// Parses one value, as `serde_json` does, but refuses an object that has a key twice.
///
/// # Errors
/// With the column in bytes, and with the line if the text has several.
///
/// ```
/// use callboard_documents::json;
/// assert_eq!(json::parse(b"[1]").unwrap()[0], 1);
/// let error = json::parse(br#"{"a": 1, "a": 2}"#).unwrap_err();
/// assert_eq!(error.to_string(), "column 12: the key \"a\" is repeated; keep one of them");
/// ```
pub fn parse(text: &[u8]) -> Result<Value, JsonError> {
    serde_json::from_slice(text).map(|NoRepeats(value)| value).map_err(|error| {
        let (line, column, whole) = (error.line(), error.column(), error.to_string());
        let what = whole.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&whole);
        let place = if text.trim_ascii_end().contains(&b'\n') { format!("line {line}, ") } else { String::new() };
        let problem = format!("{place}column {column}: {what}");
        match error.classify() {
            // Any value deserializes, so the only such error is a repeated key.
            Category::Data => JsonError::Repeated(problem),
            Category::Syntax | Category::Eof | Category::Io => JsonError::Syntax(problem),
        }
    })
}

/// A value without repeated keys.
struct NoRepeats(Value);

impl<'de> Deserialize<'de> for NoRepeats {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NoRepeatsVisitor)
    }
}

struct NoRepeatsVisitor;

impl<'de> Visitor<'de> for NoRepeatsVisitor {
    type Value = NoRepeats;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<NoRepeats, E> {
        Ok(NoRepeats(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<NoRepeats, E> {
        Ok(NoRepeats(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<NoRepeats, E> {
        Ok(NoRepeats(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<NoRepeats, E> {
        Ok(NoRepeats(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<NoRepeats, E> {
        Ok(NoRepeats(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<NoRepeats, E> {
        Ok(NoRepeats(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<NoRepeats, A::Error> {
        let mut list = Vec::new();
        while let Some(NoRepeats(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(NoRepeats(list.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<NoRepeats, A::Error> {
        let mut object = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("the key {} is repeated; keep one of them", quoted(&key))));
            }
            let NoRepeats(value) = fields.next_value()?;
            object.insert(key, value);
        }
        Ok(NoRepeats(object.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_read_as_by_others() {
        for text in [
            "null",
            "true",
            "-1",
            "18446744073709551615",
            "0.1",
            "1e3",
            "\"a\\n\"",
            "[1, [2], {}]",
            "{\"a\": {\"a\": 1}}",
        ] {
            assert_eq!(parse(text.as_bytes()).ok(), serde_json::from_str(text).ok(), "{text}");
        }
    }

    #[test]
    fn a_repeated_key_is_an_error_at_any_depth() {
        let repeated = |text: &str| match parse(text.as_bytes()) {
            Err(JsonError::Repeated(problem)) => problem,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(repeated("{\"a\": 1, \"a\": 1}"), "column 12: the key \"a\" is repeated; keep one of them");
        let deep = repeated("[{\"b\": {\n\"a\\u001b\": 1,\n\"a\\u001b\": 2}}]");
        assert_eq!(deep, "line 3, column 9: the key \"a\\u{1b}\" is repeated; keep one of them");
    }

    #[test]
    fn a_syntax_error_has_its_place() {
        let problem = |text: &str| parse(text.as_bytes()).err();
        assert_eq!(problem("{\"a\": 1"), Some(JsonError::Syntax("column 7: EOF while parsing an object".to_owned())));
        assert_eq!(problem("[1,\n2,]"), Some(JsonError::Syntax("line 2, column 3: trailing comma".to_owned())));
    }
}
