//! JSON values as they are stored and passed between turns.

mod depth;
mod text;

use std::cell::RefCell;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use text::Fields;
pub(crate) use text::write_integer;

/// A JSON value that is cheap to clone. JSON formats hold it as it is; binary formats hold it as text, because a
/// binary format that does not describe itself could not read it back.
///
/// ```
/// use callboard::messages::Json;
/// use serde_json::json;
/// let json = Json::from(json!({ "score": 72, "by": "ann" }));
/// assert_eq!(json["score"], 72);
/// assert_eq!(json["by"].as_str(), Some("ann"));
/// assert_eq!(json, json!({ "score": 72, "by": "ann" }));
/// assert_eq!(Json::from("yes"), "yes");
/// let answers = [json, Json::from(3)].into_iter().collect::<Json>();
/// assert_eq!(answers.into_value(), json!([{ "score": 72, "by": "ann" }, 3]));
/// ```
///
/// It reads like a [`serde_json::Value`], and what takes an `impl Into<Json>` takes one too. Back to one leads
/// [`Json::into_value`]: since anything that becomes a value becomes a `Json` by `into`, there can be no `into` back.
#[derive(Clone, PartialEq, Eq)]
pub struct Json(
    /// `None` is null, and null is nothing else: all turns make nulls, and would count the references to one on all cores.
    Option<Arc<Value>>,
);

static NULL: Value = Value::Null;

/// Bytes of scratch space that a thread keeps between values.
const KEPT_SCRATCH: usize = 4 << 10;

/// How deep a JSON value may nest: what the parser of stored text reads back.
pub(crate) const MAX_JSON_DEPTH: usize = 120;

impl Json {
    /// How deep a value may nest: what the parser of stored text reads back.
    pub const MAX_DEPTH: usize = MAX_JSON_DEPTH;

    /// Returns `null`, without an allocation.
    #[must_use]
    pub const fn null() -> Self {
        Self(None)
    }

    /// Converts any serialisable value.
    ///
    /// # Errors
    /// When the value has no JSON form, such as a map whose keys are not strings, or nests deeper than
    /// [`Json::MAX_DEPTH`].
    pub fn of(value: impl Serialize) -> Result<Self, serde_json::Error> {
        if depth::exceeds(&value, MAX_JSON_DEPTH) {
            return Err(serde::ser::Error::custom(format!("it is nested deeper than {MAX_JSON_DEPTH} levels")));
        }
        serde_json::to_value(value).map(Self::from)
    }

    /// Reads it as a typed value.
    ///
    /// # Errors
    /// When the shape does not fit; the text has the place.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        T::deserialize(self.value())
    }

    /// Borrows the value; a `Json` also dereferences to it.
    #[must_use]
    pub fn value(&self) -> &Value {
        self.0.as_deref().unwrap_or(&NULL)
    }

    /// The value itself, copied only if others hold it too.
    #[must_use]
    pub fn into_value(self) -> Value {
        self.0.map_or(Value::Null, Arc::unwrap_or_clone)
    }

    /// The same value as one that others share, without a copy.
    #[must_use]
    pub fn from_shared(value: Arc<Value>) -> Self {
        Self((!value.is_null()).then_some(value))
    }

    /// Returns the value behind its reference count, without a copy; [`Json::from_shared`] takes it back.
    #[must_use]
    pub fn into_shared(self) -> Arc<Value> {
        self.0.unwrap_or_default()
    }

    /// Whether it nests deeper than [`Json::MAX_DEPTH`].
    #[must_use]
    pub fn is_too_deep(&self) -> bool {
        fn exceeds(value: &Value, depth: usize) -> bool {
            match value {
                Value::Array(items) => depth == 0 || items.iter().any(|item| exceeds(item, depth - 1)),
                Value::Object(fields) => depth == 0 || fields.values().any(|field| exceeds(field, depth - 1)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
            }
        }
        exceeds(self.value(), MAX_JSON_DEPTH)
    }

    /// Its size in bytes as text, give or take escapes and separators. Costs no allocation.
    #[must_use]
    pub fn size(&self) -> usize {
        fn size(value: &Value) -> usize {
            match value {
                Value::Array(items) => items.iter().map(|item| size(item) + 1).sum::<usize>() + 1,
                Value::Object(fields) => {
                    fields.iter().map(|(key, field)| key.len() + size(field) + 4).sum::<usize>() + 1
                }
                Value::String(text) => text.len() + 2,
                Value::Number(_) => 8,
                Value::Null | Value::Bool(_) => 4,
            }
        }
        size(self.value())
    }

    /// Canonical bytes: no white space, keys sorted at every level whatever order the map keeps them in.
    #[must_use]
    pub fn canonical(&self) -> Vec<u8> {
        let mut text = String::with_capacity(128);
        self.write_canonical(&mut text);
        text.into_bytes()
    }

    fn serialize_as_text<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::with_scratch(|text| {
            text::write(self.value(), Fields::AsTheyAre, text);
            serializer.serialize_str(text)
        })
    }

    /// Lends an empty text of this thread, which is used again.
    pub(crate) fn with_scratch<T>(use_text: impl FnOnce(&mut String) -> T) -> T {
        thread_local! {
            static SCRATCH: RefCell<String> = const { RefCell::new(String::new()) };
        }
        // Taken out, not borrowed: a serializer that serializes another value in between finds an empty scratch.
        let mut text = SCRATCH.take();
        text.clear();
        let result = use_text(&mut text);
        if text.capacity() <= KEPT_SCRATCH {
            // `set` would make a value of the cell's type first.
            SCRATCH.with_borrow_mut(|scratch| *scratch = text);
        }
        result
    }

    /// Its text, if that is long and the JSON form of it is itself between quotes.
    pub(crate) fn as_long_plain_text(&self) -> Option<&str> {
        self.value().as_str().filter(|text| text.len() > KEPT_SCRATCH && text::is_plain(text))
    }

    /// Appends the canonical text.
    pub(crate) fn write_canonical(&self, text: &mut String) {
        text::write(self.value(), Fields::Sorted, text);
    }
}

impl Default for Json {
    fn default() -> Self {
        Self::null()
    }
}

impl<T: Into<Value>> From<T> for Json {
    fn from(value: T) -> Self {
        let value = value.into();
        Self((!value.is_null()).then(|| Arc::new(value)))
    }
}

impl Deref for Json {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.value()
    }
}

/// Collects the values into a JSON array. A value that others hold too is copied.
impl FromIterator<Json> for Json {
    fn from_iter<I: IntoIterator<Item = Self>>(items: I) -> Self {
        Self::from(items.into_iter().map(Self::into_value).collect::<Value>())
    }
}

impl PartialEq<Json> for Value {
    fn eq(&self, other: &Json) -> bool {
        self == other.value()
    }
}

macro_rules! compares_with {
    ($($other:ty),*) => {$(
        impl PartialEq<$other> for Json {
            fn eq(&self, other: &$other) -> bool {
                *self.value() == *other
            }
        }
    )*};
}

compares_with!(Value, str, &str, String, bool, i32, i64, u32, u64, usize, f64);

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.value(), f)
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.value(), f)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            self.value().serialize(serializer)
        } else {
            self.serialize_as_text(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            Value::deserialize(deserializer).map(Self::from)
        } else {
            let text = String::deserialize(deserializer)?;
            serde_json::from_str::<Value>(&text).map(Self::from).map_err(serde::de::Error::custom)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn canonical_bytes_sort_keys_at_every_level() {
        let mut fields = serde_json::Map::new();
        fields.insert("b".into(), json!([{ "z": 1, "a": null }]));
        fields.insert("a".into(), json!("ä\n"));
        assert_eq!(Json::from(Value::Object(fields)).canonical(), r#"{"a":"ä\n","b":[{"a":null,"z":1}]}"#.as_bytes());
    }

    #[test]
    fn null_is_one_value_however_it_was_made() {
        let made = [
            Json::null(),
            Json::default(),
            Json::from(Value::Null),
            Json::of(()).unwrap(),
            Json::from_shared(Arc::new(Value::Null)),
            Json::from_shared(Json::null().into_shared()),
            serde_json::from_str("null").unwrap(),
        ];
        for json in made {
            assert_eq!((&json, json.value()), (&Json::null(), &Value::Null));
            assert_eq!(json, Value::Null);
            assert_eq!(json.to_string(), "null");
            assert_eq!(json.into_value(), Value::Null);
        }
        assert_ne!(Json::from(false), Json::null());
    }

    #[test]
    fn what_is_too_deep_is_what_stored_text_could_not_be_read_back_from() {
        let nested = |depth| (0..depth).fold(json!(1), |inner, _| json!([inner]));
        assert!(!Json::from(nested(MAX_JSON_DEPTH)).is_too_deep());
        assert!(Json::from(nested(MAX_JSON_DEPTH + 1)).is_too_deep());
        assert!(serde_json::from_str::<Value>(&nested(MAX_JSON_DEPTH).to_string()).is_ok());
    }
}
