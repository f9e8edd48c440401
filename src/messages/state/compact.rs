//! Writes of one branch, joined to fewer with the same effect.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::messages::{Json, Update, Write};

use super::{Delta, Reducer, StateRules};

/// Combines the writes of one writer over several turns, so that a loop does not hold every value that it ever wrote: the last
/// write to a last-value channel is kept, sums are added up, and objects of merge channels are merged. Applied to any state, the
/// result has the same effect as all the writes. Writes to lists and to custom channels are kept.
pub(crate) fn compact(deltas: &mut Vec<Delta>, rules: &StateRules) {
    let mut kept: Vec<(usize, Write)> = Vec::new();
    // The index of the last write to each channel, if a later one may be combined with it.
    let mut last: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    for (position, delta) in deltas.iter().enumerate() {
        for write in delta.update.writes() {
            let earlier = last.get(&write.channel).copied();
            let together = earlier.and_then(|earlier| both(&kept[earlier].1, write, rules));
            match (earlier, together) {
                (Some(earlier), Some(together)) => kept[earlier] = (position, together),
                (Some(_) | None, _) => {
                    last.insert(Arc::clone(&write.channel), kept.len());
                    kept.push((position, write.clone()));
                }
            }
        }
    }
    // Channels are independent, so only the order of writes to one channel counts; a combined write has the position of its last
    // part.
    kept.sort_by_key(|(position, _)| *position);
    let mut compacted: Vec<(usize, Update)> = Vec::new();
    for (position, write) in kept {
        match compacted.last_mut().filter(|(last, _)| *last == position) {
            Some((_, update)) => update.push_write(write),
            None => {
                let mut update = Update::default();
                update.push_write(write);
                compacted.push((position, update));
            }
        }
    }
    let turn = |position: usize| deltas[position].turn;
    let compacted =
        compacted.into_iter().map(|(position, update)| Delta { turn: turn(position), update: update.into() });
    *deltas = compacted.collect();
}

/// One write with the effect of both in succession; `None` if there is none, or it would be copied too often.
fn both(first: &Write, second: &Write, rules: &StateRules) -> Option<Write> {
    if second.overwrite {
        return Some(second.clone());
    }
    let value = match rules.schema.reducer(&first.channel).ok()? {
        Reducer::LastValue => second.value.clone(),
        Reducer::Sum => match (first.value.value(), second.value.value()) {
            (Value::Number(first), Value::Number(second)) => Json::from(Value::Number(super::added(first, second)?)),
            (_, _) => return None,
        },
        Reducer::Merge { appending, null_keeps: false } if appending.is_empty() => {
            Json::from(merged_writes(first.value.value(), second.value.value())?)
        }
        Reducer::Merge { .. } | Reducer::Append | Reducer::Custom(_) => return None,
    };
    Some(Write { channel: Arc::clone(&first.channel), value, overwrite: first.overwrite })
}

/// `None` if an object follows another kind of value: earlier fields must not reappear.
fn merged_writes(first: &Value, second: &Value) -> Option<Value> {
    match (first, second) {
        (Value::Object(first), Value::Object(second)) => {
            let mut merged = first.clone();
            for (key, field) in second {
                let field = match first.get(key) {
                    Some(before) => merged_writes(before, field)?,
                    None => field.clone(),
                };
                merged.insert(key.clone(), field);
            }
            Some(Value::Object(merged))
        }
        (_, Value::Object(_)) => None,
        (_, second) => Some(second.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::state::State;
    use crate::messages::{Command, RunId, Schema, TurnId};
    use proptest::prelude::*;
    use serde_json::json;

    fn rules() -> StateRules {
        let schema = Schema::open()
            .channel("list", Reducer::Append)
            .channel("sum", Reducer::Sum)
            .channel("tree", Reducer::merge())
            .channel("kept", Reducer::Merge { appending: vec!["log".into()], null_keeps: true });
        StateRules::new(schema)
    }

    fn deltas(writes: &[(&'static str, Value, bool)]) -> Vec<Delta> {
        let delta = |(number, (channel, value, overwrite)): (u32, &(&'static str, Value, bool))| {
            let command = Command::new();
            let command = if *overwrite {
                command.overwrite(channel, value.clone())
            } else {
                command.with(channel, value.clone())
            };
            Delta { turn: TurnId { run: RunId(uuid::Uuid::nil()), number }, update: command.update.into() }
        };
        (1..).zip(writes).map(delta).collect()
    }

    #[test]
    fn a_long_loop_holds_one_write_of_each_channel_that_does_not_grow() {
        let mut written: Vec<Delta> = Vec::new();
        for turn in 0..1_000 {
            written.extend(deltas(&[
                ("last", json!(turn), false),
                ("sum", json!(1), false),
                ("tree", json!({ "a": turn }), false),
            ]));
            compact(&mut written, &rules());
        }
        assert!(written.len() <= 3, "{written:?}");
        let mut state = State::default();
        written.iter().for_each(|delta| state.apply(&delta.update, &rules()).unwrap());
        assert_eq!(state.to_json(), json!({ "last": 999, "sum": 1_000, "tree": { "a": 999 } }));
    }

    proptest! {
        /// The definition of compaction.
        #[test]
        fn what_is_left_does_what_all_of_it_did(
            writes in prop::collection::vec(
                (
                    prop::sample::select(vec!["last", "list", "sum", "tree", "kept"]),
                    prop::sample::select(vec![
                        json!(1), json!(2), json!({ "a": 1 }), json!({ "a": { "b": 2 } }), json!({ "a": { "c": null } }),
                        json!({ "log": [1] }), json!([3]), json!({ "a": null }),
                    ]),
                    prop::bool::weighted(0.1),
                ), 0..12),
            before in 0..12_usize,
        ) {
            let writes: Vec<_> = writes.into_iter().filter(|(channel, value, _)| *channel != "sum" || value.is_number()).collect();
            let before = before.min(writes.len());
            let mut base = State::default();
            for delta in deltas(&writes[..before]) {
                base.apply(&delta.update, &rules()).unwrap();
            }
            let (mut all, mut left) = (base.clone(), base);
            let mut rest = deltas(&writes[before..]);
            for delta in &rest {
                all.apply(&delta.update, &rules()).unwrap();
            }
            compact(&mut rest, &rules());
            for delta in &rest {
                left.apply(&delta.update, &rules()).unwrap();
            }
            prop_assert_eq!(left.to_json(), all.to_json());
        }
    }
}
