//! The state that a chain hands on, and what each of its agents does with it.

use serde_json::{Map, Value};

#[derive(Debug, kameo::Reply)]
pub(crate) struct State {
    pub(crate) task: String,
    pub(crate) artifacts: Map<String, Value>,
    pub(crate) output: String,
}

impl State {
    pub(crate) fn begin() -> Self {
        Self { task: "the design".into(), artifacts: Map::new(), output: String::new() }
    }

    pub(crate) fn finished(&self) {
        assert_eq!((self.output.as_str(), self.artifacts.len()), ("done", 3));
    }

    fn with(mut self, name: &str, value: String, output: &str) -> Self {
        self.artifacts.insert(name.into(), value.into());
        self.output = output.into();
        self
    }
}

pub(crate) type Step = fn(State) -> State;

/// The agents of the chain, in their order.
pub(crate) const CHAIN: [Step; 3] = [
    |state| {
        let notes = format!("notes on {}", state.task);
        state.with("notes", notes, "72 of 100")
    },
    |state| state.with("text", "text.md".into(), "88 of 100"),
    |state| state.with("final", "final.md".into(), "done"),
];
