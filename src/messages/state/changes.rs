//! The differences between two states, place by place.

use std::fmt;
use std::sync::Arc;

use callboard_text::{cut, visible};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::messages::Json;

use super::fields::Fields;
use super::list::List;
use super::{ChannelValue, State, Tree, channel_value, list_value, tree_value};

/// A place where two states differ, as [`StateChange::between`] finds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateChange {
    /// The channel, then the keys inside it; none if a whole state is not an object.
    pub place: Vec<String>,
    /// How the states differ there.
    pub difference: Difference,
}

/// How the values of two states differ at one place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Difference {
    /// Only the second state has the place, with this value.
    Added(Json),
    /// Only the first state has the place, with this value.
    Removed(Json),
    /// The second has the list of the first, and these after it.
    Appended(Vec<Json>),
    /// Both states have the place, with different values.
    Replaced {
        /// The value in the first state.
        before: Json,
        /// The value in the second state.
        after: Json,
    },
}

impl StateChange {
    /// Where two states differ, each as one object of channels, in the order of the places. Objects are compared key by key.
    ///
    /// ```
    /// use callboard::messages::StateChange;
    /// use serde_json::json;
    /// let (before, after) = (json!({ "messages": ["a"], "plan": { "step": 1 } }), json!({ "messages": ["a", "b"], "plan": { "step": 2 } }));
    /// let shown: Vec<String> = StateChange::between(&before.into(), &after.into()).iter().map(ToString::to_string).collect();
    /// assert_eq!(shown, [r#"messages: + "b""#, "plan.step: 1 → 2"]);
    /// ```
    #[must_use]
    pub fn between(before: &Json, after: &Json) -> Vec<Self> {
        let mut found = Vec::new();
        compare(before.value(), after.value(), &mut Vec::new(), &mut found);
        found
    }
}

/// As [`StateChange::between`] of what both are as JSON.
pub(super) fn changes_of_channels(before: &State, after: &State) -> Vec<StateChange> {
    let (mut found, place) = (Vec::new(), &mut Vec::new());
    for (name, before, after) in both(&before.channels, &after.channels) {
        place.push(name.to_string());
        match (before, after) {
            (Some(ChannelValue::List(before)), Some(ChannelValue::List(after))) => {
                compare_lists(before, after, place, &mut found)
            }
            (Some(ChannelValue::Tree(before)), Some(ChannelValue::Tree(after))) => {
                compare_trees(before, after, place, &mut found)
            }
            (Some(before), Some(after)) => compare(&channel_value(before), &channel_value(after), place, &mut found),
            (Some(before), None) => found.push(at(place, Difference::Removed(channel_value(before).into()))),
            (None, Some(after)) => found.push(at(place, Difference::Added(channel_value(after).into()))),
            (None, None) => {}
        }
        place.pop();
    }
    found
}

/// What two maps have under each key of one of them, in order.
fn both<'a, T>(before: &'a Fields<T>, after: &'a Fields<T>) -> Vec<(&'a str, Option<&'a T>, Option<&'a T>)> {
    let mut keys: Vec<&Arc<str>> = before.names().chain(after.names()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter().map(|key| (&**key, before.get(key), after.get(key))).collect()
}

fn compare_trees(before: &Tree, after: &Tree, place: &mut Vec<String>, found: &mut Vec<StateChange>) {
    match (before, after) {
        (Tree::Object(before), Tree::Object(after)) => {
            for (key, before, after) in both(before, after) {
                place.push(key.to_owned());
                match (before, after) {
                    (Some(before), Some(after)) => compare_trees(before, after, place, found),
                    (Some(before), None) => found.push(at(place, Difference::Removed(tree_value(before).into()))),
                    (None, Some(after)) => found.push(at(place, Difference::Added(tree_value(after).into()))),
                    (None, None) => {}
                }
                place.pop();
            }
        }
        (Tree::List(before), Tree::List(after)) => compare_lists(before, after, place, found),
        (Tree::Leaf(before), Tree::Leaf(after)) if before == after => {}
        (before, after) => compare(&tree_value(before), &tree_value(after), place, found),
    }
}

fn compare_lists(before: &List, after: &List, place: &mut Vec<String>, found: &mut Vec<StateChange>) {
    if !after.iter().take(before.len()).eq(before.iter()) {
        compare(&list_value(before), &list_value(after), place, found);
    } else if after.len() > before.len() {
        found.push(at(place, Difference::Appended(after.iter_from(before.len()).cloned().collect())));
    }
}

fn compare(before: &Value, after: &Value, place: &mut Vec<String>, found: &mut Vec<StateChange>) {
    let difference = match (before, after) {
        (before, after) if before == after => return,
        (Value::Object(before), Value::Object(after)) => {
            let mut keys: Vec<&String> = before.keys().chain(after.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                place.push(key.clone());
                match (before.get(key), after.get(key)) {
                    (Some(before), Some(after)) => compare(before, after, place, found),
                    (Some(before), None) => found.push(at(place, Difference::Removed(Json::from(before.clone())))),
                    (None, Some(after)) => found.push(at(place, Difference::Added(Json::from(after.clone())))),
                    (None, None) => {}
                }
                place.pop();
            }
            return;
        }
        (Value::Array(before), Value::Array(after)) if after.starts_with(before) => {
            Difference::Appended(after[before.len()..].iter().cloned().map(Json::from).collect())
        }
        (before, after) => {
            Difference::Replaced { before: Json::from(before.clone()), after: Json::from(after.clone()) }
        }
    };
    found.push(at(place, difference));
}

fn at(place: &[String], difference: Difference) -> StateChange {
    StateChange { place: place.to_vec(), difference }
}

/// One line, fit for a terminal; long values are cut.
impl fmt::Display for StateChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |json: &Json| cut(&json.to_string());
        let place: Vec<String> = self.place.iter().map(|key| visible(key)).collect();
        write!(f, "{}: ", place.join("."))?;
        match &self.difference {
            Difference::Added(value) => write!(f, "= {}", shown(value)),
            Difference::Removed(value) => write!(f, "gone, was {}", shown(value)),
            Difference::Appended(values) => {
                let values: Vec<String> = values.iter().map(shown).collect();
                write!(f, "+ {}", values.join(", "))
            }
            Difference::Replaced { before, after } => write!(f, "{} → {}", shown(before), shown(after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::messages::Command;
    use crate::messages::state::{FinalState, StateRules};

    fn shown(before: Value, after: Value) -> Vec<String> {
        StateChange::between(&before.into(), &after.into()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_change_names_its_place_and_what_happened_there() {
        let before = json!({ "a": { "b": 1, "c": 1 }, "list": [1], "other": [1, 2], "same": null });
        let after = json!({ "a": { "b": 2, "d": null }, "list": [1, { "x": 2 }], "other": [1], "same": null });
        assert_eq!(
            shown(before, after),
            ["a.b: 1 → 2", "a.c: gone, was 1", "a.d: = null", r#"list: + {"x":2}"#, "other: [1,2] → [1]"]
        );
    }

    #[test]
    fn what_a_change_shows_is_one_line_without_hidden_characters() {
        let shown = shown(json!({}), json!({ "a\u{202e}\n": "b\u{1b}[31m" }));
        assert_eq!(shown, [r#"a\u{202e}\u{a}: = "b\u001b[31m""#]);
    }

    fn state_after(writes: &[(&str, Value, bool)]) -> FinalState {
        let mut state = State::default();
        for (channel, value, overwrites) in writes {
            let command = Command::new();
            let command = if *overwrites {
                command.overwrite(channel, value.clone())
            } else {
                command.with(channel, value.clone())
            };
            state.apply(&command.update, &StateRules::default()).unwrap();
        }
        state.into()
    }

    proptest! {
        #[test]
        fn states_are_compared_as_their_json_would_be(
            writes in prop::collection::vec((
                prop::sample::select(vec!["messages", "context", "artifacts", "plan"]),
                prop::sample::select(vec![
                    json!(1), json!(null), json!([1, 2]), json!({ "a": 1 }), json!({ "a": { "b": [1] }, "c": null }),
                    json!({ "artifacts_created": ["x"] }), json!({ "artifacts_created": 7, "a": { "b": [2] } }),
                ]),
                any::<bool>(),
            ), 0..10),
            first in 0..10_usize,
            second in 0..10_usize,
        ) {
            let [before, after] = [first, second].map(|writes_made| state_after(&writes[..writes_made.min(writes.len())]));
            prop_assert_eq!(before.changes(&after), StateChange::between(&before, &after));
        }
    }
}
