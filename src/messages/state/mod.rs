//! A run's state: channels, each with a reducer (SEMANTICS 6).
//!
//! Channels are persistent structures: a clone is a pointer, so every branch and every turn holds its own view, and the
//! cost of a write does not depend on how much was written before.

mod changes;
mod compact;
mod fields;
mod finished;
mod join;
mod list;
mod rules;
mod runtime;
mod schema;
mod stored;

use std::sync::Arc;

use callboard_text::{cut, did_you_mean, quoted, typo_of, visible};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

pub use changes::{Difference, StateChange};
pub(crate) use compact::compact;
pub use finished::FinalState;
pub(crate) use join::{Delta, Writes, join, overwrite};
pub use rules::StateRules;
pub(crate) use runtime::{RunFigures, ToolUses};
pub(crate) use schema::METRICS;
pub use schema::{Reducer, Schema};

use self::fields::Fields;
use self::list::List;
use super::command::Write;
use super::{Json, TurnId, Update};

/// The values of a run's channels as one turn sees them. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    channels: Fields<ChannelValue>,
}

#[derive(Clone, Debug, PartialEq)]
enum ChannelValue {
    Value(Json),
    List(List),
    Tree(Tree),
    Sum(Number),
}

#[derive(Clone, Debug, PartialEq)]
enum Tree {
    Leaf(Json),
    List(List),
    Object(Fields<Tree>),
}

/// Why an update cannot be applied to a state, or why concurrent writes cannot be joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The schema is strict and does not know the channel.
    #[error("unknown channel {}{}", quoted(channel), did_you_mean(nearest.as_deref()))]
    UnknownChannel {
        /// The name of the channel, as the update has it.
        channel: String,
        /// The most similar declared channel; `None` if none is similar.
        nearest: Option<String>,
    },
    /// The schema is open, and the name is not fit for a channel.
    #[error("{problem}")]
    BadName {
        /// The name, and what is wrong with it.
        problem: String,
    },
    /// The update writes [`Schema::METRICS`], which only the runtime writes.
    #[error("channel {} is written by the runtime only", quoted(channel))]
    ReadOnly {
        /// The name of the channel.
        channel: String,
    },
    /// The reducer cannot take this value, or the value is nested too deeply.
    #[error("channel {} cannot take {}: {}", quoted(channel), visible(value), visible(problem))]
    BadValue {
        /// The channel that was to be written.
        channel: String,
        /// The value as JSON text, cut after 80 characters.
        value: String,
        /// What is wrong with the value; for a custom reducer, the error that it returned.
        problem: String,
    },
    /// Two turns, neither of which came before the other, wrote the same channel or leaf.
    #[error(
        "concurrent writes to {}: turn {} and turn {} ran side by side; let one of them write it, or, if the run ended with this, resume it with an overwrite",
        cut(place), turns.0.number, turns.1.number
    )]
    ConcurrentWrite {
        /// The channel, and the path of the leaf inside it if it is a merge channel.
        place: String,
        /// The two turns whose writes meet.
        turns: (TurnId, TurnId),
    },
}

impl State {
    /// Returns a state of these channels alone; those that hold nothing are left out.
    #[must_use]
    pub fn only(&self, channels: &[Arc<str>]) -> Self {
        let kept = channels.iter().filter_map(|name| Some((Arc::clone(name), self.channels.get(name)?.clone())));
        Self { channels: kept.collect() }
    }

    /// The channels that an update would be the first to write and whose names are likely misspellings of one that the schema
    /// declares or that is held, each with that one. An open schema takes them, so nothing else reports a typo.
    pub fn typos<'a>(&'a self, update: &'a Update, schema: &'a Schema) -> impl Iterator<Item = (&'a str, &'a str)> {
        let is_known = |channel: &str| schema.declares(channel) || self.channels.contains(channel);
        let new = update.writes().iter().map(|write| &*write.channel).filter(move |channel| !is_known(channel));
        new.filter_map(|channel| {
            let known = schema.declared().chain(self.channels.names().map(AsRef::as_ref));
            Some((channel, typo_of(channel, known)?))
        })
    }

    /// Applies the writes of an update in order: all of them, or none and an error.
    ///
    /// ```
    /// use callboard::messages::{Command, State, StateRules};
    /// use serde_json::json;
    /// let mut state = State::default();
    /// let update = Command::update("artifacts", json!({ "notes": "a.md" })).with("messages", "hello").update;
    /// state.apply(&update, &StateRules::default())?;
    /// assert_eq!(state.to_json(), json!({ "artifacts": { "notes": "a.md" }, "messages": ["hello"] }));
    /// # Ok::<(), callboard::messages::StateError>(())
    /// ```
    ///
    /// # Errors
    /// An unknown or read-only channel, or a value that a reducer cannot take.
    ///
    /// # Panics
    /// When a custom reducer does.
    pub fn apply(&mut self, update: &Update, rules: &StateRules) -> Result<(), StateError> {
        let mut changed = self.clone();
        changed.apply_in_place(update.writes(), &mut Reducers::of(rules))?;
        *self = changed;
        Ok(())
    }

    /// As [`State::apply`], but unshared parts are changed in place: a list that grows write by write is not copied in parts each
    /// time. After an error the state is invalid.
    fn apply_in_place<'a>(
        &mut self,
        writes: impl IntoIterator<Item = &'a Write>,
        reducers: &mut Reducers<'a, '_>,
    ) -> Result<(), StateError> {
        for write in writes {
            let (reducer, rules) = (reducers.of_channel(&write.channel)?, reducers.rules);
            match self.channels.get_mut(&write.channel) {
                Some(channel) => {
                    let before = std::mem::replace(channel, ChannelValue::Value(Json::null()));
                    *channel = reduce(reducer, (!write.overwrite).then_some(before), write, rules)?;
                }
                None => self.channels.insert(Arc::clone(&write.channel), reduce(reducer, None, write, rules)?),
            }
        }
        Ok(())
    }

    /// Checks that an update can be applied to a state, whatever the state holds. `None` if that depends on what it holds.
    pub(crate) fn check(update: &Update, rules: &StateRules) -> Option<Result<(), StateError>> {
        for write in update.writes() {
            let reducer = match rules.schema.reducer(&write.channel) {
                Ok(reducer) => reducer,
                Err(error) => return Some(Err(error)),
            };
            match reducer {
                Reducer::LastValue | Reducer::Append | Reducer::Merge { .. } => {}
                Reducer::Sum | Reducer::Custom(_) => return None,
            }
            if let Err(error) = check_depth(write) {
                return Some(Err(error));
            }
        }
        Some(Ok(()))
    }

    /// The value of a channel, or `None` if it was not written yet.
    #[must_use]
    pub fn get(&self, channel: &str) -> Option<Json> {
        self.channels.get(channel).map(|channel| match channel {
            ChannelValue::Value(value) => value.clone(),
            channel => Json::from(channel_value(channel)),
        })
    }

    /// The size of what its channels hold in bytes as text, give or take escapes and separators.
    pub(crate) fn size(&self) -> usize {
        let size = |(name, channel): (&Arc<str>, &ChannelValue)| {
            name.len()
                + match channel {
                    ChannelValue::Value(value) => value.size(),
                    ChannelValue::List(items) => size_of_list(items),
                    ChannelValue::Tree(tree) => size_of_tree(tree),
                    ChannelValue::Sum(_) => 8,
                }
        };
        self.channels.iter().map(size).sum()
    }

    /// The names of the channels that hold something, sorted.
    pub fn channels(&self) -> impl Iterator<Item = &str> {
        self.channels.names().map(AsRef::as_ref)
    }

    /// Returns all channels that hold something as one JSON object, by their names.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let fields = self.channels.iter().map(|(name, channel)| (String::from(&**name), channel_value(channel)));
        Json::from(Value::Object(fields.collect()))
    }
}

/// The reducers of writes in a row. Of those to one channel, the first looks it up.
struct Reducers<'w, 'r> {
    rules: &'r StateRules,
    last: Option<(&'w str, &'r Reducer)>,
}

impl<'w, 'r> Reducers<'w, 'r> {
    fn of(rules: &'r StateRules) -> Self {
        Self { rules, last: None }
    }

    fn of_channel(&mut self, channel: &'w str) -> Result<&'r Reducer, StateError> {
        if let Some((last, reducer)) = self.last
            && last == channel
        {
            return Ok(reducer);
        }
        let reducer = self.rules.schema.reducer(channel)?;
        self.last = Some((channel, reducer));
        Ok(reducer)
    }
}

fn reduce(
    reducer: &Reducer,
    before: Option<ChannelValue>,
    write: &Write,
    rules: &StateRules,
) -> Result<ChannelValue, StateError> {
    let refuse = |problem: &str| bad_value(write, problem);
    check_depth(write)?;
    Ok(match reducer {
        Reducer::LastValue => ChannelValue::Value(write.value.clone()),
        Reducer::Append => match before {
            Some(ChannelValue::List(items)) => ChannelValue::List(appended(items, &write.value)),
            _ => ChannelValue::List(appended(List::default(), &write.value)),
        },
        Reducer::Merge { appending, null_keeps } => {
            let before = match before {
                Some(ChannelValue::Tree(tree)) => tree,
                _ => Tree::Leaf(Json::null()),
            };
            ChannelValue::Tree(merged(before, &write.value, Some((appending.as_slice(), *null_keeps))))
        }
        Reducer::Sum => {
            let Value::Number(more) = write.value.value() else { return Err(refuse("it adds numbers only")) };
            ChannelValue::Sum(match before {
                Some(ChannelValue::Sum(sum)) => {
                    added(&sum, more).ok_or_else(|| refuse("the sum would not be finite"))?
                }
                _ => more.clone(),
            })
        }
        Reducer::Custom(_) if write.overwrite => ChannelValue::Value(write.value.clone()),
        Reducer::Custom(name) => {
            let reduce = rules.reducers.get(name).ok_or_else(|| refuse(&format!("no reducer is named {name:?}")))?;
            let held = match before {
                Some(ChannelValue::Value(value)) => value,
                _ => Json::null(),
            };
            ChannelValue::Value(reduce(&held, &write.value).map_err(|problem| refuse(&problem))?)
        }
    })
}

fn check_depth(write: &Write) -> Result<(), StateError> {
    if write.value.is_too_deep() { Err(bad_value(write, "it is nested too deeply")) } else { Ok(()) }
}

fn bad_value(write: &Write, problem: &str) -> StateError {
    StateError::BadValue {
        channel: write.channel.to_string(),
        value: write.value.to_string().chars().take(80).collect(),
        problem: problem.to_owned(),
    }
}

fn appended(mut items: List, value: &Json) -> List {
    match value.value() {
        Value::Array(more) => more.iter().for_each(|item| items.push(Json::from(item.clone()))),
        _ => items.push(value.clone()),
    }
    items
}

/// `rules` are the keys whose lists grow, and whether a null keeps what is there; they hold at the top level of a channel only.
fn merged(before: Tree, value: &Value, rules: Option<(&[Arc<str>], bool)>) -> Tree {
    let Value::Object(fields) = value else { return Tree::Leaf(Json::from(value.clone())) };
    let mut object = match before {
        Tree::Object(object) => object,
        Tree::Leaf(_) | Tree::List(_) => Fields::default(),
    };
    for (key, field) in fields {
        let held = object.get_mut(key);
        if field.is_null() && held.is_some() && matches!(rules, Some((_, true))) {
            continue;
        }
        let grows = rules.is_some_and(|(growing, _)| growing.iter().any(|appending| **appending == **key));
        let merge = |before| if grows { grown(before, field) } else { merged(before, field, None) };
        match held {
            // Taken out, so that what only this state has is changed in place.
            Some(held) => *held = merge(std::mem::replace(held, Tree::Leaf(Json::null()))),
            None => object.insert(key.as_str().into(), merge(Tree::Leaf(Json::null()))),
        }
    }
    Tree::Object(object)
}

fn grown(before: Tree, value: &Value) -> Tree {
    let items = match before {
        Tree::List(items) => items,
        Tree::Leaf(_) | Tree::Object(_) => List::default(),
    };
    Tree::List(appended(items, &Json::from(value.clone())))
}

fn added(sum: &Number, more: &Number) -> Option<Number> {
    let whole = sum.as_i64().zip(more.as_i64()).and_then(|(a, b)| a.checked_add(b)).map(Number::from);
    whole.or_else(|| Number::from_f64(sum.as_f64()? + more.as_f64()?))
}

fn channel_value(channel: &ChannelValue) -> Value {
    match channel {
        ChannelValue::Value(value) => value.value().clone(),
        ChannelValue::List(items) => list_value(items),
        ChannelValue::Tree(tree) => tree_value(tree),
        ChannelValue::Sum(sum) => Value::Number(sum.clone()),
    }
}

fn size_of_list(items: &List) -> usize {
    items.iter().map(|item| item.size() + 1).sum()
}

fn size_of_tree(tree: &Tree) -> usize {
    match tree {
        Tree::Leaf(value) => value.size(),
        Tree::List(items) => size_of_list(items),
        Tree::Object(object) => object.iter().map(|(key, field)| key.len() + size_of_tree(field) + 4).sum(),
    }
}

fn list_value(items: &List) -> Value {
    Value::Array(items.iter().map(|item| item.value().clone()).collect())
}

fn tree_value(tree: &Tree) -> Value {
    match tree {
        Tree::Leaf(value) => value.value().clone(),
        Tree::List(items) => list_value(items),
        Tree::Object(object) => {
            Value::Object(object.iter().map(|(key, field)| (String::from(&**key), tree_value(field))).collect())
        }
    }
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::Command;
    use serde_json::json;

    fn state_after(commands: &[Command], rules: &StateRules) -> Result<Json, StateError> {
        let mut state = State::default();
        for command in commands {
            state.apply(&command.update, rules)?;
        }
        let stored = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<State>(&stored).unwrap(), state);
        Ok(state.to_json())
    }

    #[test]
    fn swarm_channels_merge_append_and_keep() {
        let commands = [
            Command::update(
                "context",
                json!({ "previous_agent": "a", "artifacts_created": ["x.md"], "completed": false }),
            )
            .with("artifacts", json!({ "ResearchPack": "p.md", "Plan": null }))
            .with("reason", "first"),
            Command::update("context", json!({ "artifacts_created": ["y.md"], "completed": true }))
                .with("artifacts", json!({ "ResearchPack": null, "Plan": "plan.md" }))
                .with("messages", json!(["one", "two"]))
                .with("messages", "three")
                .with("reason", "second"),
        ];
        assert_eq!(
            state_after(&commands, &StateRules::default()).unwrap(),
            json!({
                "context": { "previous_agent": "a", "artifacts_created": ["x.md", "y.md"], "completed": true },
                "artifacts": { "ResearchPack": "p.md", "Plan": "plan.md" },
                "messages": ["one", "two", "three"],
                "reason": "second",
            })
        );
    }

    #[test]
    fn merge_replaces_arrays_scalars_and_null_and_recurses_into_objects() {
        let rules = StateRules::new(Schema::open().channel("m", Reducer::merge()));
        let commands = [
            Command::update("m", json!({ "a": { "b": 1, "c": [1, 2] }, "d": 1 })),
            Command::update("m", json!({ "a": { "c": [3], "e": null }, "d": { "f": 1 } })),
        ];
        let state = state_after(&commands, &rules).unwrap();
        assert_eq!(state, json!({ "m": { "a": { "b": 1, "c": [3], "e": null }, "d": { "f": 1 } } }));
    }

    #[test]
    fn sums_stay_whole_until_they_overflow() {
        let rules = StateRules::new(Schema::open().channel("n", Reducer::Sum));
        let sum = |numbers: &[Value]| {
            state_after(&numbers.iter().map(|n| Command::update("n", n.clone())).collect::<Vec<_>>(), &rules)
        };
        assert_eq!(sum(&[json!(1), json!(2)]).unwrap(), json!({ "n": 3 }));
        assert_eq!(sum(&[json!(1), json!(0.5)]).unwrap(), json!({ "n": 1.5 }));
        assert_eq!(sum(&[json!(i64::MAX), json!(1)]).unwrap(), json!({ "n": i64::MAX as f64 + 1.0 }));
        assert!(matches!(sum(&[json!("x")]), Err(StateError::BadValue { .. })));
    }

    #[test]
    fn an_update_applies_whole_or_not_at_all() {
        let rules = StateRules::new(Schema::strict().channel("votes", Reducer::Sum));
        let mut state = State::default();
        let refused = state.apply(&Command::update("votes", 1).with("vote", 1).update, &rules);
        assert_eq!(refused.unwrap_err().to_string(), r#"unknown channel "vote"; did you mean "votes"?"#);
        assert_eq!(state, State::default());
        let refused = state.apply(&Command::update(METRICS, json!({ "tokens_used": 0 })).update, &rules);
        assert!(matches!(refused, Err(StateError::ReadOnly { .. })));
    }

    #[test]
    fn a_choice_of_channels_holds_these_alone() {
        let mut state = State::default();
        let update = Command::update("a", 1).with("b", 2).with("c", 3).update;
        state.apply(&update, &StateRules::default()).unwrap();
        assert_eq!(state.only(&["b".into(), "c".into(), "d".into()]).to_json(), json!({ "b": 2, "c": 3 }));
    }

    #[test]
    fn a_new_channel_that_looks_like_a_known_one_is_a_likely_typo() {
        let mut state = State::default();
        let schema = Schema::open().channel("verdict", Reducer::LastValue).channel("verdicts", Reducer::Append);
        let typos = |state: &State, update: &Update| -> Vec<(String, String)> {
            state.typos(update, &schema).map(|(new, known)| (new.to_owned(), known.to_owned())).collect()
        };
        let update = Command::update("verdikt", 1).with("verdict", 2).with("verdicts", json!([4])).with("reasoning", 3);
        let update = update.update;
        assert_eq!(typos(&state, &update), [("verdikt".to_owned(), "verdict".to_owned())], "both others are declared");
        state.apply(&update, &StateRules::default()).unwrap();
        assert_eq!(typos(&state, &update), [], "it is known now");
        let update = Command::update("reasonin", 1).update;
        assert_eq!(typos(&state, &update), [("reasonin".to_owned(), "reasoning".to_owned())]);
    }

    #[test]
    fn custom_reducers_are_found_by_name() {
        let rules = StateRules::new(Schema::open().channel("best", Reducer::Custom("max".into())))
            .reducer("max", |held, write| Ok(if held.as_i64() > write.as_i64() { held } else { write }.clone()));
        assert_eq!(format!("{:?}", rules.reducers), r#"{"max"}"#);
        let commands = [3, 9, 4].map(|score| Command::update("best", score));
        assert_eq!(state_after(&commands, &rules).unwrap(), json!({ "best": 9 }));
    }
}
