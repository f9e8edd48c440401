//! Values of one key: texts, words, numbers, times, lists, JSON.

use std::time::Duration;

use ::toml::Spanned;
use ::toml::de::{DeInteger, DeValue};
use callboard_text::{cut, did_you_mean, nearest, quoted};
use serde_json::{Map, Number, Value};

use super::fields::Field;
use crate::{Defect, Found, Place, Placed};

/// A value of TOML with its range of bytes in the text.
pub type Item<'t> = Spanned<DeValue<'t>>;

/// Returns the defect of an item that has another type than it should. `name` is what it is called, in words.
pub fn mismatch(name: &str, expected: &str, item: &Item<'_>) -> Defect {
    Defect::new(&Some(item.span()), format!("{name} must be {expected}, not {}", kind(item.get_ref())))
}

/// As [`mismatch`], with the value of a number or text that has the right type, but says nothing that is known.
pub fn misfit(key: &str, expected: &str, item: &Item<'_>) -> Defect {
    let value = match item.get_ref() {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => cut(&number.to_string()),
        other @ (DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_)) => kind(other).to_owned(),
    };
    Defect::new(&Some(item.span()), format!("`{key}` must be {expected}, not {value}"))
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a datetime",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

fn place(item: &Item<'_>) -> Place {
    Some(item.span())
}

/// Returns a text with its place; `None`, and a defect, if it is something else.
pub fn text((key, item): Field<'_>, found: &mut Found) -> Option<Placed<String>> {
    let text = string(&format!("`{key}`"), "a string", item, found)?;
    Some(Placed::at(text.to_owned(), item.span()))
}

/// Returns the text of an item; `None`, and a defect, if it is something else. `name` and `expected` are for the
/// defect.
pub fn string<'t>(name: &str, expected: &str, item: &'t Item<'t>, found: &mut Found) -> Option<&'t str> {
    let text = item.get_ref().as_str();
    if text.is_none() {
        found.add(mismatch(name, expected, item));
    }
    text
}

/// Returns what the word stands for among `words`; `None`, and a defect, if it is none of them.
pub fn word<T: Clone>((key, item): Field<'_>, words: &[(&str, T)], found: &mut Found) -> Option<T> {
    let text = item.get_ref().as_str();
    let meant = words.iter().find(|(word, _)| text == Some(word));
    if meant.is_none() {
        let mut defect = misfit(key, &one_of(words.iter().map(|(word, _)| *word)), item);
        let likely =
            text.filter(|_| words.len() > 1).and_then(|text| nearest(text, words.iter().map(|(word, _)| *word)));
        defect.problem.push_str(&did_you_mean(likely.as_deref()));
        found.add(defect);
    }
    meant.map(|(_, meaning)| meaning.clone())
}

/// `"a", "b" or "c"`.
fn one_of<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let mut quoted: Vec<_> = words.map(|word| format!("\"{word}\"")).collect();
    let last = quoted.pop().unwrap_or_default();
    if quoted.is_empty() { last } else { format!("{} or {last}", quoted.join(", ")) }
}

/// Returns whether the key is set to `true`; `None`, and a defect, if it is set to something else than `true` or `false`.
pub fn boolean((key, item): Field<'_>, found: &mut Found) -> Option<bool> {
    let boolean = item.get_ref().as_bool();
    if boolean.is_none() {
        found.add(misfit(key, "true or false", item));
    }
    boolean
}

/// Returns a whole number from 1 to `u32::MAX` with its place; `None`, and a defect, if it is something else.
pub fn count((key, item): Field<'_>, found: &mut Found) -> Option<Placed<u32>> {
    let number = item.get_ref().as_integer().and_then(integer).and_then(|number| u32::try_from(number).ok());
    let number = number.filter(|number| *number > 0);
    if number.is_none() {
        found.add(misfit(key, &format!("a whole number from 1 to {}", u32::MAX), item));
    }
    number.map(|number| Placed::at(number, item.span()))
}

fn integer(number: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Returns a time above zero, written as a text such as `30s` or as an integer of seconds; `None`, and a defect, if it
/// is something else.
pub fn duration((key, item): Field<'_>, found: &mut Found) -> Option<Placed<Duration>> {
    let millis = match item.get_ref() {
        DeValue::String(text) => millis(text),
        DeValue::Integer(number) => {
            integer(number).and_then(|number| u64::try_from(number).ok()).and_then(|number| number.checked_mul(1_000))
        }
        DeValue::Float(_) | DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    };
    let millis = millis.filter(|millis| *millis > 0);
    if millis.is_none() {
        let defect = misfit(key, "a time above zero, as \"30s\"", item);
        found.add(
            defect.advise("write a whole number with its unit (ms, s, m, h or d) in quotes, or an integer of seconds"),
        );
    }
    millis.map(|millis| Placed::at(Duration::from_millis(millis), item.span()))
}

fn millis(text: &str) -> Option<u64> {
    let unit_start = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit_start);
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// Returns the items of an array; none, and a defect, if it is something else. `advice` says how to write one.
pub fn list<'t>((key, item): Field<'t>, advice: &str, found: &mut Found) -> &'t [Item<'t>] {
    let items = item.get_ref().as_array();
    if items.is_none() {
        found.add(mismatch(&format!("`{key}`"), "an array", item).advise(advice));
    }
    items.map(AsRef::as_ref).unwrap_or_default()
}

/// Returns the value as JSON. It nests no deeper than the text, see `scan::MAX_LEVELS`.
pub fn json(item: &Item<'_>, found: &mut Found) -> Option<Value> {
    match item.get_ref() {
        DeValue::String(text) => Some(Value::String(text.clone().into_owned())),
        DeValue::Boolean(boolean) => Some(Value::Bool(*boolean)),
        DeValue::Integer(number) => {
            let value = integer(number);
            if value.is_none() {
                let problem = format!("{} is beyond the integers of 64 bits", cut(&number.to_string()));
                found.add(Defect::new(&place(item), problem).advise("write it as a string"));
            }
            value.map(Value::from)
        }
        DeValue::Float(number) => {
            let value = number.as_str().parse().ok().and_then(Number::from_f64);
            if value.is_none() {
                let problem = format!("JSON has no number {}", cut(number.as_str()));
                found.add(Defect::new(&place(item), problem).advise("write it as a string, or a finite number"));
            }
            value.map(Value::Number)
        }
        DeValue::Datetime(_) => {
            found.add(Defect::new(&place(item), "JSON has no datetimes").advise("write it as a string, in quotes"));
            None
        }
        // Every element is checked, also after a defect.
        DeValue::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| json(item, found)).collect();
            items.into_iter().collect::<Option<Vec<_>>>().map(Value::Array)
        }
        DeValue::Table(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|(key, item)| Some((key.get_ref().clone().into_owned(), json(item, found)?)))
                .collect();
            fields.into_iter().collect::<Option<Map<_, _>>>().map(Value::Object)
        }
    }
}

/// As [`json`], with the place of the whole.
pub fn placed_json(item: &Item<'_>, found: &mut Found) -> Option<Placed<Value>> {
    Some(Placed::at(json(item, found)?, item.span()))
}
