//! The arguments of the loop's tools.

use callboard::messages::{Command, ConversationStrategy, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Arguments of [`MetaTool::AskUser`](super::MetaTool::AskUser).
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AskUser {
    /// The question, with all that is needed to answer it.
    pub(crate) question: String,
    /// Answers to choose from, if it is a choice.
    #[serde(default)]
    pub(crate) choices: Vec<String>,
}

/// Arguments of [`MetaTool::Task`](super::MetaTool::Task).
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Task {
    /// The agent: its name, or a role or capability.
    pub(crate) agent: String,
    /// What to do, in words.
    pub(crate) task: String,
    /// Values to work on, beside the words.
    #[serde(default)]
    pub(crate) input: Option<Value>,
    /// What it receives of this conversation; by default what your own settings choose.
    #[serde(default)]
    #[schemars(with = "Option<StrategySchema>")]
    pub(crate) context: Option<ConversationStrategy>,
}

/// What models read of [`ConversationStrategy`].
#[allow(dead_code, reason = "the schema of `ConversationStrategy`, which has none of its own")]
#[derive(JsonSchema)]
#[schemars(rename = "ConversationStrategy", rename_all = "snake_case")]
enum StrategySchema {
    /// Nothing: the task has all that it needs.
    None,
    /// A summary of it, which another agent makes.
    Summary,
    /// Those passages that have words of the task.
    Filtered,
    /// All of it; of what is too long, the newest part.
    Full,
}

/// Arguments of [`MetaTool::HandoffToAgent`](super::MetaTool::HandoffToAgent).
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HandoffToAgent {
    /// The agent: its name, or a role or capability.
    pub(crate) agent_name: String,
    /// What it is to do, in words.
    pub(crate) task: String,
    /// What it needs to know, by name.
    #[serde(default)]
    pub(crate) context: Map<String, Value>,
}

/// Arguments of [`MetaTool::AcceptHandoff`](super::MetaTool::AcceptHandoff).
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AcceptHandoff {}

/// Arguments of [`MetaTool::ToolSearch`](super::MetaTool::ToolSearch).
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolSearch {
    /// Words to look for.
    pub(crate) query: String,
}

impl HandoffToAgent {
    /// The command that passes control on.
    pub(crate) fn command(self) -> Command {
        let mut context = self.context;
        context.insert("task_description".to_owned(), Value::from(self.task.as_str()));
        Command::output(self.task).with("context", Json::from(Value::Object(context))).goto(&self.agent_name)
    }
}

/// Arguments of [`MetaTool::AgentCreate`](super::MetaTool::AgentCreate), of `AgentUpdate` and of `AgentKeep`: an agent that another
/// one wants to make, to change or to keep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Draft {
    /// What you and the others call it by.
    pub(crate) name: String,
    /// What it is for, in a sentence.
    pub(crate) description: String,
    /// The instructions in its prompt: plain text, in which nothing is replaced.
    pub(crate) instructions: String,
    /// What it may do: `build`, `plan`, `explore` or `general`; left out, the same as you.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<String>,
    /// Those of your tools that it may use; left out, all of them but those that make agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tools: Option<Vec<String>>,
    /// How often its model is asked for one task, at most; left out, as often as yours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_iterations: Option<u32>,
    /// The most tokens for one task; left out, as many as you have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tokens: Option<u64>,
    /// The namespaces of the shared context that it may use, of those that you may, beside your memory; left out, all of
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) namespaces: Option<Vec<String>>,
}
