//! Parses JSON that a person gives. A key that an object has twice is an error: one of its values would be lost.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;
use serde_json::{Map, Value};

/// Why a text is not used.
#[derive(Debug, PartialEq)]
pub(crate) enum Problem {
    /// It is not JSON.
    Syntax(String),
    /// An object has a key twice.
    Repeated(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(problem) | Self::Repeated(problem) => f.write_str(problem),
        }
    }
}

/// Parses the text.
///
/// # Errors
/// With the line and the column.
pub(crate) fn parse(text: &str) -> Result<Value, Problem> {
    serde_json::from_str(text).map(|Strict(value)| value).map_err(|error| {
        let (line, column, whole) = (error.line(), error.column(), error.to_string());
        let what = whole.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&whole);
        let place = if text.trim_end().contains('\n') { format!("line {line}, ") } else { String::new() };
        let problem = format!("{place}column {column}: {what}");
        match error.classify() {
            // Any value is taken, so that this is the error of a repeated key.
            Category::Data => Problem::Repeated(problem),
            Category::Syntax | Category::Eof | Category::Io => Problem::Syntax(problem),
        }
    })
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Strict;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Strict, E> {
        Ok(Strict(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Strict, E> {
        Ok(Strict(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Strict, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Strict(list.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Strict, A::Error> {
        let mut object = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(format!("the key {key:?} is repeated; keep one of them")));
            }
            let Strict(value) = fields.next_value()?;
            object.insert(key, value);
        }
        Ok(Strict(object.into()))
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
            assert_eq!(parse(text).ok(), serde_json::from_str(text).ok(), "{text}");
        }
    }

    #[test]
    fn a_repeated_key_is_an_error_at_any_depth() {
        let repeated = |text| match parse(text) {
            Err(Problem::Repeated(problem)) => problem,
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(repeated("{\"a\": 1, \"a\": 1}"), "column 12: the key \"a\" is repeated; keep one of them");
        let deep = repeated("[{\"b\": {\n\"a\\u001b\": 1,\n\"a\\u001b\": 2}}]");
        assert_eq!(deep, "line 3, column 9: the key \"a\\u{1b}\" is repeated; keep one of them");
    }

    #[test]
    fn a_syntax_error_has_its_place() {
        let problem = |text| parse(text).err();
        assert_eq!(problem("{\"a\": 1"), Some(Problem::Syntax("column 7: EOF while parsing an object".to_owned())));
        assert_eq!(problem("[1,\n2,]"), Some(Problem::Syntax("line 2, column 3: trailing comma".to_owned())));
    }
}
