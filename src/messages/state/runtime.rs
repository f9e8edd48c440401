//! The channels that the runtime writes in the state of a run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use crate::messages::Json;

use super::fields::Fields;
use super::schema::METRICS;
use super::{ChannelValue, Schema, State, Tree};

/// The channel with the agent that had control before.
pub(super) const CONTEXT: &str = "context";

/// The figures of a run when a turn was admitted. The turn sees them as the channel [`Schema::METRICS`], which only the runtime
/// writes (SEMANTICS 6).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunFigures {
    /// Tokens that were spent: `tokens_used`.
    pub(crate) tokens_used: u64,
    /// From the submission to the event that admitted the turn: `time_elapsed`, in seconds.
    pub(crate) time_elapsed: Duration,
    /// Attempts that were repeated: `retry_count`.
    pub(crate) retry_count: u32,
    /// How often each tool was used: `tools_used`; `None` if none was. Stored beside the figures, which had it not at first.
    #[serde(skip)]
    pub(crate) tools_used: Option<Arc<ToolUses>>,
}

/// How often each tool was used. Both bounds are part of how journals replay, so they do not change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ToolUses(BTreeMap<Arc<str>, u32>);

impl ToolUses {
    /// The most names that are counted: programs make them up, and each later turn has them all.
    const MAX: usize = 64;
    /// The longest name that is counted, in bytes.
    const MAX_NAME: usize = 128;

    /// Counts a use.
    pub(crate) fn count(&mut self, name: &Arc<str>) {
        let has_room = self.0.len() < Self::MAX && name.len() <= Self::MAX_NAME;
        if let Some(uses) = self.0.get_mut(name) {
            *uses = uses.saturating_add(1);
        } else if has_room {
            self.0.insert(Arc::clone(name), 1);
        }
    }

    fn tree(&self) -> Tree {
        let uses = self.0.iter().map(|(name, uses)| (Arc::clone(name), Tree::Leaf(Json::from(*uses))));
        Tree::Object(uses.collect())
    }
}

impl RunFigures {
    fn channel(&self) -> ChannelValue {
        let Self { tokens_used, time_elapsed, retry_count, tools_used } = self;
        let number = |number: Option<Number>| Tree::Leaf(Json::from(number.map_or(Value::Null, Value::Number)));
        let fields = [
            ("tokens_used", number(Some((*tokens_used).into()))),
            ("time_elapsed", number(Number::from_f64(time_elapsed.as_secs_f64()))),
            ("retry_count", number(Some((*retry_count).into()))),
        ];
        // A run without uses of tools has no such field: turns of earlier versions saw none.
        let tools = tools_used.iter().map(|tools| ("tools_used", tools.tree()));
        let fields = fields.into_iter().chain(tools).map(|(name, figure)| (name.into(), figure));
        ChannelValue::Tree(Tree::Object(fields.collect()))
    }

    /// The figures as turns see them.
    pub(crate) fn to_json(&self) -> Json {
        Json::from(super::channel_value(&self.channel()))
    }
}

impl Schema {
    /// Whether turns see [`Schema::METRICS`]: in every open schema, and in a strict one that declares it.
    #[must_use]
    pub fn shows_metrics(&self) -> bool {
        !self.is_strict() || self.declares(METRICS)
    }

    /// Whether turns see `previous_agent`: where `context` is declared, as every swarm has it.
    #[must_use]
    pub fn shows_previous_agent(&self) -> bool {
        self.declares(CONTEXT)
    }
}

impl State {
    /// These channels, and those of the runtime: the agent that had control before, as `previous_agent` of the channel `context`,
    /// and the figures of the run, as `metrics`. They are in no update, so they are in no join and no hash.
    #[must_use]
    pub(crate) fn with_runtime(&self, previous_agent: Option<&str>, figures: Option<&RunFigures>) -> Self {
        let mut seen = self.clone();
        if let Some(agent) = previous_agent {
            let fields = match seen.channels.get(CONTEXT) {
                None => Some(Fields::default()),
                Some(ChannelValue::Tree(Tree::Object(fields))) => Some(fields.clone()),
                // The channel was overwritten with a value that is no object.
                Some(
                    ChannelValue::Tree(Tree::Leaf(_) | Tree::List(_)) | ChannelValue::Value(_) | ChannelValue::List(_),
                )
                | Some(ChannelValue::Sum(_)) => None,
            };
            if let Some(mut fields) = fields {
                fields.insert("previous_agent".into(), Tree::Leaf(Json::from(agent)));
                seen.channels.insert(CONTEXT.into(), ChannelValue::Tree(Tree::Object(fields)));
            }
        }
        if let Some(figures) = figures {
            seen.channels.insert(METRICS.into(), figures.channel());
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::messages::Command;
    use crate::messages::state::StateRules;

    fn state(update: Command) -> State {
        let mut state = State::default();
        state.apply(&update.update, &StateRules::default()).unwrap();
        state
    }

    #[test]
    fn the_runtime_adds_to_what_is_there_and_changes_nothing_else() {
        let written = state(Command::update("context", json!({ "previous_agent": "forged", "completed": true })));
        let seen = written.with_runtime(Some("lead"), None);
        assert_eq!(seen.to_json(), json!({ "context": { "previous_agent": "lead", "completed": true } }));
        assert_eq!(written.to_json()["context"]["previous_agent"], "forged");
        let odd = state(Command::new().overwrite("context", "a text"));
        assert_eq!(odd.with_runtime(Some("lead"), None).to_json(), json!({ "context": "a text" }));
        assert_eq!(written.with_runtime(None, None), written);
        let figures = RunFigures { tokens_used: 12, ..RunFigures::default() };
        let metrics = json!({ "tokens_used": 12, "time_elapsed": 0.0, "retry_count": 0 });
        assert_eq!(figures.to_json(), metrics);
        assert_eq!(State::default().with_runtime(None, Some(&figures)).to_json(), json!({ "metrics": metrics }));
    }

    #[test]
    fn uses_of_tools_are_counted_by_name_within_bounds() {
        let mut tools = ToolUses::default();
        let name = |number: usize| Arc::from(format!("tool-{number}"));
        tools.count(&"x".repeat(ToolUses::MAX_NAME + 1).into());
        (0..ToolUses::MAX + 1).chain([0]).for_each(|number| tools.count(&name(number)));
        let shown = RunFigures { tools_used: Some(Arc::new(tools)), ..RunFigures::default() }.to_json();
        let shown = shown.value()["tools_used"].as_object().unwrap().clone();
        assert_eq!((shown.len(), &shown["tool-0"], &shown["tool-1"]), (ToolUses::MAX, &json!(2), &json!(1)));
        assert!(!shown.contains_key(&*name(ToolUses::MAX)), "it is one too many");
    }

    #[test]
    fn a_strict_schema_shows_only_what_it_declares() {
        let shown = |schema: &Schema| (schema.shows_metrics(), schema.shows_previous_agent());
        assert_eq!(shown(&Schema::swarm()), (true, true));
        assert_eq!(shown(&Schema::open()), (true, false));
        assert_eq!(shown(&Schema::strict()), (false, false));
        let declared = Schema::strict().channel(METRICS, crate::messages::Reducer::merge());
        assert_eq!(shown(&declared), (true, false));
    }
}
