//! JSON as compact text, as `serde_json` writes it, into a buffer that is used again. Most strings need no escapes and are
//! copied whole.

use std::fmt::Write;

use serde_json::Value;

/// The order in which the fields of objects are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fields {
    /// As the map holds them; whether that is sorted depends on how `serde_json` was built.
    AsTheyAre,
    /// By key.
    Sorted,
}

/// Appends the text of `value`.
pub(super) fn write(value: &Value, order: Fields, text: &mut String) {
    match value {
        Value::Object(fields) => {
            text.push('{');
            let mut first = true;
            let mut write_field = |key: &str, field: &Value| {
                if !std::mem::take(&mut first) {
                    text.push(',');
                }
                write_string(key, text);
                text.push(':');
                write(field, order, text);
            };
            if order == Fields::AsTheyAre || fields.keys().is_sorted() {
                fields.iter().for_each(|(key, field)| write_field(key, field));
            } else {
                let mut sorted: Vec<_> = fields.iter().collect();
                sorted.sort_unstable_by_key(|(key, _)| *key);
                sorted.into_iter().for_each(|(key, field)| write_field(key, field));
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    text.push(',');
                }
                write(item, order, text);
            }
            text.push(']');
        }
        Value::String(string) => write_string(string, text),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => write_integer(number, text),
            (None, Some(number)) => {
                text.push('-');
                write_integer(number.unsigned_abs(), text);
            }
            (None, None) => write!(text, "{number}").expect("a string takes any text"),
        },
        Value::Bool(true) => text.push_str("true"),
        Value::Bool(false) => text.push_str("false"),
        Value::Null => text.push_str("null"),
    }
}

/// Appends a number, without the formatting machinery, which takes several times as long. Most numbers have few digits.
pub(crate) fn write_integer(number: u64, text: &mut String) {
    if number >= 10 {
        write_integer(number / 10, text);
    }
    text.push(char::from(b'0' + (number % 10) as u8));
}

/// Whether a string has no escapes. No early exit, so that many bytes are compared at once.
pub(super) fn is_plain(string: &str) -> bool {
    string.bytes().fold(true, |plain, byte| plain & (byte >= b' ' && byte != b'"' && byte != b'\\'))
}

fn write_string(string: &str, text: &mut String) {
    if is_plain(string) {
        text.push('"');
        text.push_str(string);
        text.push('"');
    } else {
        text.push_str(&serde_json::to_string(string).expect("a string has a JSON form"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(|b| json!(b)),
            any::<i64>().prop_map(|n| json!(n)),
            any::<u64>().prop_map(|n| json!(n)),
            any::<f64>().prop_map(|n| json!(n)),
            "\\PC{0,8}|[\"\\\\\u{0}-\u{20}a\u{7f}\u{2028}é]{0,8}".prop_map(|text| json!(text)),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::hash_map("[a\"\n]{0,3}", inner, 0..4).prop_map(|fields| json!(fields)),
            ]
        })
    }

    proptest! {
        #[test]
        fn text_is_what_serde_json_writes(value in values()) {
            let mut text = String::from("before");
            write(&value, Fields::AsTheyAre, &mut text);
            prop_assert_eq!(text, format!("before{value}"));
        }
    }
}
