//! The rules of reducers and joins against a reference model that keeps plain JSON values and lists of places.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;
use crate::messages::{RunId, TurnId};
use crate::testing::rules::{Seen, play};

const CHANNELS: [&str; 8] = ["last", "list", "merge", "grows", "keeps", "sum", "max", "unknown"];

fn rules(is_strict: bool) -> StateRules {
    let schema = if is_strict { Schema::strict() } else { Schema::open() };
    let schema = schema
        .channel("last", Reducer::LastValue)
        .channel("list", Reducer::Append)
        .channel("merge", Reducer::merge())
        .channel("grows", Reducer::Merge { appending: vec!["g".into()], null_keeps: false })
        .channel("keeps", Reducer::Merge { appending: Vec::new(), null_keeps: true })
        .channel("sum", Reducer::Sum)
        .channel("max", Reducer::Custom("max".into()));
    let larger = |held: &Json, write: &Json| match write.as_i64() {
        Some(number) => Ok(Json::from(held.as_i64().unwrap_or(number).max(number))),
        None => Err("not a number".to_owned()),
    };
    StateRules::new(schema).reducer("max", larger)
}

#[derive(Clone, Debug)]
struct Written {
    channel: &'static str,
    value: Value,
    overwrites: bool,
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        2 => Just(Value::Null),
        4 => (0_i64..5).prop_map(Value::from),
        1 => Just(json!("x")),
        1 => prop::collection::vec(0_i64..5, 0..3).prop_map(Value::from),
    ];
    let key = || prop::sample::select(vec!["a", "b", "g"]);
    let inner = prop::collection::btree_map(key(), leaf.clone(), 0..3).prop_map(object);
    let inner = prop_oneof![2 => leaf.clone(), 1 => inner];
    let outer = prop::collection::btree_map(key(), inner, 0..3).prop_map(object);
    prop_oneof![1 => leaf, 2 => outer]
}

fn object(fields: BTreeMap<&str, Value>) -> Value {
    Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn numbers() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => (-9_i64..9).prop_map(Value::from),
        1 => Just(json!(0.5)),
        1 => prop::sample::select(vec![json!(i64::MAX), json!(i64::MIN), json!(u64::MAX), json!(f64::MAX)]),
    ]
}

/// Mostly values that the channel accepts.
fn writes(channels: &'static [&'static str]) -> impl Strategy<Value = Vec<Written>> {
    let write = prop::sample::select(channels).prop_flat_map(|channel| {
        let value = match channel {
            "sum" | "max" => prop_oneof![15 => numbers(), 1 => values()].boxed(),
            _ => values().boxed(),
        };
        let overwrites = prop::bool::weighted(0.1);
        (value, overwrites).prop_map(move |(value, overwrites)| Written { channel, value, overwrites })
    });
    prop::collection::vec(write, 1..3)
}

fn update(writes: &[Written]) -> Update {
    let mut update = Update::default();
    for Written { channel, value, overwrites } in writes {
        update.push(channel, Json::from(value.clone()), *overwrites);
    }
    update
}

// ---------------------------------------------------------------------------------------------------------------- model

type Model = Map<String, Value>;

/// The value of the channel after a write; `None` if it does not accept the write.
fn reduced(held: Option<Value>, write: &Written, is_strict: bool) -> Option<Value> {
    let held = held.filter(|_| !write.overwrites);
    let value = write.value.clone();
    Some(match write.channel {
        "last" => value,
        "unknown" if !is_strict => value,
        "unknown" => return None,
        "list" => joined(held, value),
        "merge" | "grows" | "keeps" => {
            let Value::Object(fields) = value else { return Some(value) };
            let mut object = match held {
                Some(Value::Object(object)) => object,
                _ => Map::new(),
            };
            for (key, field) in fields {
                let before = object.get(&key).cloned();
                let after = match (write.channel, &*key) {
                    ("grows", "g") => joined(before, field),
                    ("keeps", _) if field.is_null() => before.unwrap_or(Value::Null),
                    _ => merged(before, field),
                };
                object.insert(key, after);
            }
            Value::Object(object)
        }
        "sum" => {
            let more = value.as_number()?.clone();
            let Some(sum) = held else { return Some(value) };
            let whole = (sum.as_i64()?, more.as_i64()?);
            Value::from(i64::try_from(i128::from(whole.0) + i128::from(whole.1)).ok()?)
        }
        "max" if write.overwrites => value,
        "max" => {
            let number = value.as_i64()?;
            Value::from(held.and_then(|held| held.as_i64()).map_or(number, |held| held.max(number)))
        }
        other => panic!("{other}"),
    })
}

/// Sums of fractions are compared with a tolerance.
fn sum_of_fractions(held: &Value, more: &Value) -> Option<Value> {
    let sum = held.as_f64()? + more.as_f64()?;
    sum.is_finite().then(|| json!(sum))
}

fn joined(held: Option<Value>, value: Value) -> Value {
    let mut items = held.and_then(|held| held.as_array().cloned()).unwrap_or_default();
    match value {
        Value::Array(more) => items.extend(more),
        item => items.push(item),
    }
    Value::Array(items)
}

/// Objects merge; anything else replaces.
fn merged(held: Option<Value>, value: Value) -> Value {
    let Value::Object(fields) = value else { return value };
    let mut object = match held {
        Some(Value::Object(object)) => object,
        _ => Map::new(),
    };
    for (key, field) in fields {
        let before = object.remove(&key);
        object.insert(key, merged(before, field));
    }
    Value::Object(object)
}

fn write(model: &mut Model, write: &Written, is_strict: bool) -> Result<(), ()> {
    let held = model.get(write.channel).cloned();
    let after = match (write.channel, &held) {
        ("sum", Some(sum)) if !write.overwrites => {
            reduced(held.clone(), write, is_strict).or_else(|| sum_of_fractions(sum, &write.value))
        }
        _ => reduced(held, write, is_strict),
    };
    model.insert(write.channel.to_owned(), after.ok_or(())?);
    Ok(())
}

/// A position in a channel that a write touches.
struct Touch {
    place: Vec<String>,
    /// It is replaced with everything below it; otherwise its value stays, and becomes an object or is extended.
    replaces: bool,
}

fn touches(write: &Written) -> Vec<Touch> {
    let place = vec![write.channel.to_owned()];
    match (write.channel, &write.value) {
        ("list" | "sum" | "max", _) => Vec::new(),
        ("merge" | "grows" | "keeps", value) => {
            let mut found = Vec::new();
            below(write.channel, place, value, &mut found);
            found
        }
        _ => vec![Touch { place, replaces: true }],
    }
}

fn below(channel: &str, place: Vec<String>, value: &Value, found: &mut Vec<Touch>) {
    let Value::Object(fields) = value else { return found.push(Touch { place, replaces: true }) };
    for (key, field) in fields {
        let deeper = [place.clone(), vec![key.clone()]].concat();
        match (channel, &**key) {
            ("grows", "g") if place.len() == 1 => found.push(Touch { place: deeper, replaces: false }),
            // The present value stays.
            ("keeps", _) if place.len() == 1 && field.is_null() => {}
            _ => below(channel, deeper, field, found),
        }
    }
    found.push(Touch { place, replaces: false });
}

/// The positions at which two concurrent writes conflict.
fn meetings(one: &Written, other: &Written) -> Vec<String> {
    if one.channel != other.channel || one.overwrites != other.overwrites {
        return Vec::new();
    }
    if one.overwrites {
        return vec![one.channel.to_owned()];
    }
    let mut met = Vec::new();
    for one in touches(one) {
        for other in touches(other) {
            let one_contains = one.replaces && other.place.starts_with(&one.place);
            let other_contains = other.replaces && one.place.starts_with(&other.place);
            if one_contains || other_contains {
                met.extend([one.place.join("."), other.place.join(".")]);
            }
        }
    }
    met
}

/// A writer, sequential or concurrent to others: from its request to its answer.
#[derive(Clone, Debug)]
struct Writer {
    asked: u32,
    lasts: u32,
    updates: Vec<Vec<Written>>,
}

fn writers() -> impl Strategy<Value = Vec<Writer>> {
    const JOINED: &[&str] = &["last", "list", "list", "merge", "merge", "grows", "keeps", "unknown"];
    let writer = (0_u32..3, 1_u32..4, prop::collection::vec(writes(JOINED), 1..3));
    let writer = writer.prop_map(|(asked, lasts, updates)| Writer { asked, lasts, updates });
    prop::collection::vec(writer, 1..5).prop_map(|mut writers| {
        // Listed in the order of their requests.
        let mut asked = 0;
        for writer in &mut writers {
            asked += writer.asked;
            writer.asked = asked;
        }
        writers
    })
}

fn are_beside(one: &Writer, other: &Writer) -> bool {
    let (first, second) = if one.asked <= other.asked { (one, other) } else { (other, one) };
    first.asked + first.lasts > second.asked
}

/// The joined state, or every position at which writers conflict, with their numbers.
fn join_by_model(base: &Model, writers: &[Writer]) -> Result<Model, Vec<(String, usize, usize)>> {
    let mut conflicts = Vec::new();
    for (second, later) in writers.iter().enumerate() {
        for (first, earlier) in writers[..second].iter().enumerate().filter(|(_, earlier)| are_beside(earlier, later)) {
            for one in earlier.updates.iter().flatten() {
                let met = later.updates.iter().flatten().flat_map(|other| meetings(one, other));
                conflicts.extend(met.map(|place| (place, first, second)));
            }
        }
    }
    if !conflicts.is_empty() {
        return Err(conflicts);
    }
    let mut model = base.clone();
    for (number, writer) in writers.iter().enumerate() {
        for one in writer.updates.iter().flatten() {
            let wins = |other: &Written| other.overwrites && other.channel == one.channel;
            let is_lost = !one.overwrites
                && writers.iter().enumerate().any(|(other, beside)| {
                    other != number && are_beside(beside, writer) && beside.updates.iter().flatten().any(wins)
                });
            if !is_lost {
                write(&mut model, one, false).unwrap();
            }
        }
    }
    Ok(model)
}

// ----------------------------------------------------------------------------------------------------------------- both

fn apply_both(
    (state, model): (&mut State, &mut Model),
    writes: &[Written],
    is_strict: bool,
    seen: &mut Seen,
) -> Result<(), TestCaseError> {
    let before = state.clone();
    let mut after = model.clone();
    let expected = writes.iter().try_for_each(|one| write(&mut after, one, is_strict));
    let applied = state.apply(&update(writes), &rules(is_strict));
    prop_assert_eq!(applied.is_ok(), expected.is_ok(), "{:?}: {:?}", writes, applied);
    if let Some(checked) = State::check(&update(writes), &rules(is_strict)) {
        seen.insert(if checked.is_ok() { "accepted by any state" } else { "refused by every state" });
        prop_assert_eq!(checked, applied);
    }
    if expected.is_ok() {
        *model = after;
    } else {
        prop_assert_eq!(&*state, &before, "refused, and changed all the same");
        seen.insert(if writes.len() > 1 { "refused whole" } else { "refused" });
    }
    if writes.iter().any(|write| write.overwrites) {
        seen.insert("overwritten");
    }
    prop_assert_eq!(state.to_json(), Value::Object(model.clone()));
    Ok(())
}

#[test]
fn writes_are_reduced_and_joined_as_plain_values_are() {
    let branches = [
        "refused",
        "refused whole",
        "overwritten",
        "accepted by any state",
        "refused by every state",
        "a sum that is not whole",
        "joined side by side",
        "conflict",
        "an overwrite won over writes beside it",
        "one after another",
    ];
    let cases = (prop::bool::weighted(0.2), prop::collection::vec(writes(&CHANNELS), 1..5), writers());
    play("reducer", &branches, cases, |(is_strict, updates, writers), seen| {
        let (mut state, mut model) = (State::default(), Model::new());
        for writes in &updates {
            apply_both((&mut state, &mut model), writes, is_strict, seen)?;
        }
        if model.get("sum").is_some_and(Value::is_f64) {
            seen.insert("a sum that is not whole");
        }
        for channel in CHANNELS {
            prop_assert_eq!(state.get(channel).map(Json::into_value), model.get(channel).cloned());
        }
        // Whether the model's map is sorted depends on how `serde_json` was built.
        let known: BTreeSet<_> = model.keys().collect();
        prop_assert_eq!(state.channels().collect::<Vec<_>>(), known.into_iter().collect::<Vec<_>>());
        let stored = serde_json::to_string(&state).unwrap();
        prop_assert_eq!(&serde_json::from_str::<State>(&stored).unwrap(), &state);

        let turn = |number: usize| TurnId { run: RunId(uuid::Uuid::nil()), number: number as u32 };
        let deltas: Vec<Vec<Delta>> = writers
            .iter()
            .enumerate()
            .map(|(number, writer)| {
                let delta = |writes: &Vec<Written>| Delta { turn: turn(number), update: update(writes).into() };
                writer.updates.iter().map(delta).collect()
            })
            .collect();
        let beside = |a: usize, b: usize| are_beside(&writers[a], &writers[b]);
        let any_beside = (1..writers.len()).any(|b| (0..b).any(|a| beside(a, b)));
        let joined = join(&state, &deltas, beside, &rules(false));
        match (joined, join_by_model(&model, &writers)) {
            (Ok(joined), Ok(expected)) => {
                prop_assert_eq!(joined.to_json(), Value::Object(expected));
                seen.insert(if any_beside { "joined side by side" } else { "one after another" });
                let overwrites = |writer: &Writer| writer.updates.iter().flatten().any(|write| write.overwrites);
                if any_beside && writers.iter().any(overwrites) {
                    seen.insert("an overwrite won over writes beside it");
                }
            }
            (Err(StateError::ConcurrentWrite { place, turns }), Err(conflicts)) => {
                let named = (place, turns.0.number as usize, turns.1.number as usize);
                prop_assert!(conflicts.contains(&named), "{named:?} is none of {conflicts:?}");
                seen.insert("conflict");
            }
            (joined, expected) => {
                return Err(TestCaseError::fail(format!("{:?} instead of {expected:?}", joined.map(|s| s.to_json()))));
            }
        }
        Ok(())
    });
}
