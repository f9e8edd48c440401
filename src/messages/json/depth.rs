//! Checks the nesting of a value without following it deeper than allowed: converting it to JSON first would overflow the stack.

use std::fmt;

use serde::Serialize;
use serde::ser::{
    self, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple, SerializeTupleStruct,
    SerializeTupleVariant, Serializer,
};

/// Whether the JSON of a value nests deeper than `levels`. A value that has no JSON at all is not too deep.
pub(super) fn exceeds<T: Serialize + ?Sized>(value: &T, levels: usize) -> bool {
    matches!(value.serialize(Depth(levels)), Err(Stop::TooDeep))
}

/// The remaining levels.
#[derive(Clone, Copy)]
struct Depth(usize);

#[derive(Debug)]
enum Stop {
    TooDeep,
    /// The value's own error, which the conversion to JSON reports.
    Other,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stopped")
    }
}

impl std::error::Error for Stop {}

impl ser::Error for Stop {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Other
    }
}

impl Depth {
    fn below(self) -> Result<Self, Stop> {
        self.0.checked_sub(1).map(Self).ok_or(Stop::TooDeep)
    }
}

macro_rules! scalars {
    ($($method:ident: $scalar:ty),* $(,)?) => {
        $(fn $method(self, _: $scalar) -> Result<(), Stop> {
            Ok(())
        })*
    };
}

impl Serializer for Depth {
    type Ok = ();
    type Error = Stop;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    scalars! {
        serialize_bool: bool, serialize_char: char, serialize_str: &str, serialize_bytes: &[u8],
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128,
        serialize_f32: f32, serialize_f64: f64, serialize_unit_struct: &'static str,
    }

    fn serialize_none(self) -> Result<(), Stop> {
        Ok(())
    }

    fn serialize_unit(self) -> Result<(), Stop> {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), Stop> {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Stop> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Stop> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Stop> {
        value.serialize(self.below()?)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Stop> {
        self.below()
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Stop> {
        self.below()
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Stop> {
        self.below()
    }

    fn serialize_tuple_variant(self, _: &'static str, _: u32, _: &'static str, _: usize) -> Result<Self, Stop> {
        self.below()?.below()
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, Stop> {
        self.below()
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Stop> {
        self.below()
    }

    fn serialize_struct_variant(self, _: &'static str, _: u32, _: &'static str, _: usize) -> Result<Self, Stop> {
        self.below()?.below()
    }
}

/// What is inside a list or an object.
macro_rules! inside {
    ($($kind:ident: $method:ident($($key:ty)?)),* $(,)?) => {
        $(impl $kind for Depth {
            type Ok = ();
            type Error = Stop;

            fn $method<T: Serialize + ?Sized>(&mut self, $(_: $key,)? value: &T) -> Result<(), Stop> {
                value.serialize(*self)
            }

            fn end(self) -> Result<(), Stop> {
                Ok(())
            }
        })*
    };
}

inside! {
    SerializeSeq: serialize_element(),
    SerializeTuple: serialize_element(),
    SerializeTupleStruct: serialize_field(),
    SerializeTupleVariant: serialize_field(),
    SerializeStruct: serialize_field(&'static str),
    SerializeStructVariant: serialize_field(&'static str),
}

impl SerializeMap for Depth {
    type Ok = ();
    type Error = Stop;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, _: &T) -> Result<(), Stop> {
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Stop> {
        value.serialize(*self)
    }

    fn end(self) -> Result<(), Stop> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Json;
    use super::*;
    use serde_json::{Value, json};

    #[derive(Serialize)]
    enum Shape {
        Unit,
        New(Vec<u8>),
        Pair(u8, u8),
        Named { inner: Option<Box<Shape>> },
    }

    #[test]
    fn it_agrees_with_the_json_that_is_made_of_the_value() {
        let named = |inner| Shape::Named { inner: Some(Box::new(inner)) };
        let shapes = [Shape::Unit, Shape::New(vec![1]), Shape::Pair(1, 2), named(named(Shape::Pair(1, 2)))];
        for shape in &shapes {
            let depth = depth_of(&serde_json::to_value(shape).unwrap());
            assert!(!exceeds(shape, depth) && (depth == 0 || exceeds(shape, depth - 1)), "{depth}");
        }
    }

    fn depth_of(value: &Value) -> usize {
        match value {
            Value::Array(items) => 1 + items.iter().map(depth_of).max().unwrap_or(0),
            Value::Object(fields) => 1 + fields.values().map(depth_of).max().unwrap_or(0),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        }
    }

    #[test]
    fn what_is_far_too_deep_is_found_out_before_the_stack_ends() {
        let mut deep = json!(1);
        for _ in 0..100_000 {
            deep = Value::Array(vec![deep]);
        }
        assert!(Json::of(&deep).unwrap_err().to_string().contains("levels"));
        // Dropped iteratively, because dropping it recursively would overflow the stack.
        while let Value::Array(mut items) = deep {
            deep = items.pop().unwrap_or_default();
        }
    }
}
