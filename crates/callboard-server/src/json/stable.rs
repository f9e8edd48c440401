//! Serializes values to the JSON of docs/json-output.md, whatever the types of the library are called.
//!
//! Names are in snake case and end with their unit. An enum is an object whose `kind` is its variant, with the variant's fields beside
//! it. Times are RFC 3339 in UTC, durations milliseconds, costs US dollars.

use std::fmt::Display;

use serde::ser::{
    Error as _, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use serde_json::{Error, Map, Number, Value};

use callboard::messages::{Authority, Cost, Timestamp};

/// Returns the value as JSON; null if it has no such form, as a map whose keys are not text.
#[must_use]
pub fn stable(value: &(impl Serialize + ?Sized)) -> Value {
    value.serialize(Stable).unwrap_or_default()
}

/// Returns the time as text: `2026-01-01T00:00:00.000Z`.
#[must_use]
pub fn time(at: Timestamp) -> Value {
    at.to_string().into()
}

/// How the value of a field is converted.
#[derive(Clone, Copy)]
enum Unit {
    /// Not converted.
    Plain,
    /// Milliseconds since 1970, which become RFC 3339.
    Time,
    /// Billionths of a dollar, which become dollars.
    Dollars,
    /// Bits, which become words.
    Effects,
    /// Bytes, which become hexadecimal digits.
    Digest,
}

/// The name of a field in JSON, and how its value is converted. `owner` is the type or the variant that has the field.
fn field(owner: &str, name: &'static str) -> (&'static str, Unit) {
    match (owner, name) {
        (
            _,
            "at" | "retry_at" | "expires_at" | "asked_at" | "begun_at" | "closed_at" | "remind_at" | "escalates_at"
            | "until",
        ) => (name, Unit::Time),
        ("Usage", "cost") => ("cost_usd", Unit::Dollars),
        (_, "authority" | "grant") => (name, Unit::Effects),
        ("Intent", "arguments") => ("arguments_sha256", Unit::Digest),
        ("Escalation", "after") => ("after_ms", Unit::Plain),
        (_, "elapsed") => ("elapsed_ms", Unit::Plain),
        (_, "deadline") => ("deadline_ms", Unit::Plain),
        (_, "retry_after") => ("retry_after_ms", Unit::Plain),
        ("RunMetrics", "overrun") => ("overrun_tokens", Unit::Plain),
        ("RunMetrics", "tokens_spent") => ("spent_tokens", Unit::Plain),
        ("TokenBudget", "budget") => ("budget_tokens", Unit::Plain),
        ("TokenBudget", "spent") => ("spent_tokens", Unit::Plain),
        ("TokenBudget", "unsettled") => ("unsettled_tokens", Unit::Plain),
        ("TokenBudget", "reserved") => ("reserved_tokens", Unit::Plain),
        ("TokenBudget", "asked") => ("asked_tokens", Unit::Plain),
        ("CostBudget", "budget") => ("budget_usd", Unit::Dollars),
        ("CostBudget", "spent") => ("spent_usd", Unit::Dollars),
        ("CostBudget", "unsettled") => ("unsettled_usd", Unit::Dollars),
        ("CostBudget", "reserved") => ("reserved_usd", Unit::Dollars),
        ("CostBudget", "asked") => ("asked_usd", Unit::Dollars),
        _ => (name, Unit::Plain),
    }
}

fn in_unit(unit: Unit, value: Value) -> Value {
    match (unit, value.as_u64(), &value) {
        (Unit::Time, Some(millis), _) => time(Timestamp::from_millis(millis)),
        (Unit::Dollars, Some(billionths), _) => Cost(billionths).dollars().into(),
        (Unit::Effects, Some(_), _) => {
            let authority: Authority = serde_json::from_value(value).unwrap_or_default();
            authority.effects().map(|effect| stable(&effect)).collect()
        }
        (Unit::Digest, _, Value::Array(bytes)) => {
            bytes.iter().filter_map(Value::as_u64).map(|byte| format!("{byte:02x}")).collect::<String>().into()
        }
        (Unit::Plain | Unit::Time | Unit::Dollars | Unit::Effects | Unit::Digest, _, _) => value,
    }
}

/// The field that holds the only value of a variant.
fn payload(of: &str, variant: &str) -> &'static str {
    match (of, variant) {
        ("RunEvent", "Submitted") => "submission",
        ("Verdict", "Admitted") => "agents",
        ("Verdict" | "Outcome", "Refused") | ("Result", "Err") => "refusal",
        ("Verdict", "Parked") => "approval",
        ("Result", "Ok") | ("Goto", "Agent") => "agent",
        ("Goto", "Many") => "sends",
        ("ContextStrategy", "Channels") => "channels",
        ("Resolution", "Done") => "result",
        ("Difference", "appended") => "values",
        ("Reducer", "Custom") => "name",
        _ => "value",
    }
}

/// The field that holds all fields of a variant, if they are not beside its kind.
fn nested(of: &str, variant: &str) -> Option<&'static str> {
    (of == "Reducer" && variant == "Merge").then_some("rules")
}

/// Whether variants without values are objects too; those of other enums are strings.
fn has_values(of: &str) -> bool {
    ["ContextStrategy", "Goto", "Outcome", "Reducer", "Refusal", "Resolution", "RunEvent", "Terms", "Verdict"]
        .contains(&of)
}

/// `TurnEnded` as `turn_ended`.
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

fn kind(of: &str, variant: &str) -> Value {
    match (of, variant) {
        // The documented names.
        ("FailureKind", "Panic") => "crash".into(),
        _ => snake_case(variant).into(),
    }
}

struct Stable;

/// A list that is being serialized.
struct List(Vec<Value>);

/// An object that is being serialized.
struct Object {
    owner: &'static str,
    fields: Map<String, Value>,
    /// The key of a map whose value is serialized next.
    key: Option<String>,
    /// The kind of a variant whose fields are in a field of this name.
    nested: Option<(Value, &'static str)>,
}

impl Object {
    fn of(owner: &'static str) -> Self {
        Self { owner, fields: Map::new(), key: None, nested: None }
    }

    fn variant(of: &'static str, variant: &'static str) -> Self {
        let mut object = Self::of(variant);
        if let Some(name) = nested(of, variant) {
            object.nested = Some((kind(of, variant), name));
            return object;
        }
        object.fields.insert("kind".to_owned(), kind(of, variant));
        object
    }

    fn put(&mut self, name: &'static str, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        let (name, unit) = field(self.owner, name);
        self.fields.insert(name.to_owned(), in_unit(unit, value.serialize(Stable)?));
        Ok(())
    }

    fn end(self) -> Value {
        // The form in which serde serializes a duration.
        if let ("Duration", Some(secs), Some(nanos)) = (
            self.owner,
            self.fields.get("secs").and_then(Value::as_u64),
            self.fields.get("nanos").and_then(Value::as_u64),
        ) {
            return secs.saturating_mul(1_000).saturating_add(nanos / 1_000_000).into();
        }
        match self.nested {
            Some((kind, name)) => serde_json::json!({ "kind": kind, name: self.fields }),
            None => Value::Object(self.fields),
        }
    }
}

macro_rules! plain {
    ($($name:ident: $type:ty),*) => {
        $(fn $name(self, value: $type) -> Result<Value, Error> { Ok(value.into()) })*
    };
}

impl Serializer for Stable {
    type Ok = Value;
    type Error = Error;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeTupleStruct = List;
    type SerializeTupleVariant = Object;
    type SerializeMap = Object;
    type SerializeStruct = Object;
    type SerializeStructVariant = Object;

    plain! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_str: &str
    }

    fn serialize_f32(self, value: f32) -> Result<Value, Error> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<Value, Error> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn serialize_char(self, value: char) -> Result<Value, Error> {
        Ok(value.to_string().into())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<Value, Error> {
        Ok(value.into())
    }

    fn serialize_none(self) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, Error> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Value, Error> {
        Ok(Value::Null)
    }

    fn serialize_unit_variant(self, of: &'static str, _: u32, variant: &'static str) -> Result<Value, Error> {
        Ok(if has_values(of) { Object::variant(of, variant).end() } else { kind(of, variant) })
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<Value, Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        of: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, Error> {
        let mut object = Object::variant(of, variant);
        object.put(payload(of, variant), value)?;
        Ok(object.end())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<List, Error> {
        Ok(List(Vec::new()))
    }

    fn serialize_tuple(self, _: usize) -> Result<List, Error> {
        Ok(List(Vec::new()))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<List, Error> {
        Ok(List(Vec::new()))
    }

    fn serialize_tuple_variant(
        self,
        of: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Object, Error> {
        let mut object = Object::variant(of, variant);
        object.fields.insert("values".to_owned(), Value::Array(Vec::new()));
        Ok(object)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Object, Error> {
        Ok(Object::of(""))
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Object, Error> {
        Ok(Object::of(name))
    }

    fn serialize_struct_variant(
        self,
        of: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Object, Error> {
        Ok(Object::variant(of, variant))
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<Value, Error> {
        Ok(value.to_string().into())
    }
}

impl List {
    fn add(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        self.0.push(value.serialize(Stable)?);
        Ok(())
    }
}

impl SerializeSeq for List {
    type Ok = Value;
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.add(value)
    }

    fn end(self) -> Result<Value, Error> {
        Ok(self.0.into())
    }
}

impl SerializeTuple for List {
    type Ok = Value;
    type Error = Error;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.add(value)
    }

    fn end(self) -> Result<Value, Error> {
        Ok(self.0.into())
    }
}

impl SerializeTupleStruct for List {
    type Ok = Value;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.add(value)
    }

    fn end(self) -> Result<Value, Error> {
        Ok(self.0.into())
    }
}

impl SerializeTupleVariant for Object {
    type Ok = Value;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let value = value.serialize(Stable)?;
        if let Some(Value::Array(values)) = self.fields.get_mut("values") {
            values.push(value);
        }
        Ok(())
    }

    fn end(self) -> Result<Value, Error> {
        Ok(Object::end(self))
    }
}

impl SerializeMap for Object {
    type Ok = Value;
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.key = Some(match key.serialize(Stable)? {
            Value::String(key) => key,
            key @ Value::Number(_) => key.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                return Err(Error::custom("a key is no text"));
            }
        });
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        let key = self.key.take().unwrap_or_default();
        self.fields.insert(key, value.serialize(Stable)?);
        Ok(())
    }

    fn end(self) -> Result<Value, Error> {
        Ok(Value::Object(self.fields))
    }
}

impl SerializeStruct for Object {
    type Ok = Value;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        self.put(name, value)
    }

    fn end(self) -> Result<Value, Error> {
        Ok(Object::end(self))
    }
}

impl SerializeStructVariant for Object {
    type Ok = Value;
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        self.put(name, value)
    }

    fn end(self) -> Result<Value, Error> {
        Ok(Object::end(self))
    }
}
