//! The messages between an agent, its model and its tools, and the events that watchers receive.

use std::fmt;
use std::iter::Sum;
use std::ops::AddAssign;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Action, Json, Usage};

/// One message of a conversation with a model. The system prompt is not one of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// What is asked of the model.
    User {
        /// The words.
        text: Arc<str>,
    },
    /// An answer of the model.
    Assistant {
        /// Its words; empty if it only called tools.
        text: Arc<str>,
        /// The tools that it called.
        calls: Vec<ToolCall>,
    },
    /// What a tool answered.
    Tool {
        /// The call that it answers.
        call: Arc<str>,
        /// The tool.
        name: Arc<str>,
        /// The answer.
        text: Arc<str>,
        /// The tool failed; the answer has the reason.
        is_error: bool,
    },
}

impl Message {
    /// The text of a person, or of an agent in that role.
    #[must_use]
    pub fn user(text: impl Into<Arc<str>>) -> Self {
        Self::User { text: text.into() }
    }

    /// The size of its texts and arguments in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::User { text } => text.len(),
            Self::Assistant { text, calls } => text.len() + calls.iter().map(ToolCall::size).sum::<usize>(),
            Self::Tool { text, .. } => text.len(),
        }
    }
}

/// A model wants a tool to be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Unique among the calls of a conversation.
    pub id: Arc<str>,
    /// The tool.
    pub name: Arc<str>,
    /// What it is used with; text if the model did not write JSON.
    pub arguments: Json,
    /// What some providers want to be given back with the call, unread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<Arc<str>>,
}

impl ToolCall {
    /// A call.
    #[must_use]
    pub fn new(id: &str, name: &str, arguments: impl Into<Json>) -> Self {
        Self { id: id.into(), name: name.into(), arguments: arguments.into(), signatures: Vec::new() }
    }

    /// The size of its name and arguments in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.name.len() + self.arguments.size()
    }
}

/// Money, in billionths of a US dollar: what one token costs is a whole number of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cost(pub u64);

impl Cost {
    /// What a number of tokens costs at a price for a million of them.
    #[must_use]
    pub fn of(tokens: u64, dollars_per_million: f64) -> Self {
        // A dollar per million tokens is a thousand billionths each. The cast saturates.
        Self((tokens as f64 * dollars_per_million * 1_000.0).round() as u64)
    }

    /// In US dollars.
    #[must_use]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

/// `$1.50`, `$0.0123`, and `$0.00002`: cents from a dollar on, four decimals from a tenth of a cent on, and two significant digits
/// below that.
impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DECIMALS: u32 = 9;
        let decimals = match self.0 {
            0 => return f.write_str("$0"),
            1_000_000_000.. => return write!(f, "${:.2}", self.dollars()),
            1_000_000.. => return write!(f, "${:.4}", self.dollars()),
            small => (DECIMALS + 1).saturating_sub(small.ilog10()).min(DECIMALS),
        };
        let shown = format!("{:.*}", decimals as usize, self.dollars());
        write!(f, "${}", shown.trim_end_matches('0'))
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, more: Self) {
        self.0 = self.0.saturating_add(more.0);
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), |sum, cost| Self(sum.0.saturating_add(cost.0)))
    }
}

/// What an agent that is given a task sees of the conversation of the agent that gives it. What a delegated turn sees of the
/// *state* of its run is another matter, and [`ContextStrategy`](super::ContextStrategy) decides that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationStrategy {
    /// Nothing: the task has all that it needs.
    #[default]
    None,
    /// A summary of it, which another agent makes.
    Summary,
    /// Those passages that have words of the task.
    Filtered,
    /// All of it; of what is too long, the newest part.
    Full,
}

impl ConversationStrategy {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::Summary, Self::Filtered, Self::Full];

    /// As files and models write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Summary => "summary",
            Self::Filtered => "filtered",
            Self::Full => "full",
        }
    }
}

/// Its name.
impl fmt::Display for ConversationStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What an agent does while its turn runs. It is sent to current watchers, and not stored: what matters of it is in
/// the journal, as steps, questions, approvals and delegations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum AgentEvent {
    /// It asks its model, for the `iteration`th time, from 1.
    Iteration {
        /// Which time.
        iteration: u32,
    },
    /// A piece of the model's answer.
    Text {
        /// The piece.
        text: Arc<str>,
    },
    /// A piece of what the model thinks, of models that show it.
    Reasoning {
        /// The piece.
        text: Arc<str>,
    },
    /// The model was not reached, or broke off; another is asked, or the same again.
    ModelFailed {
        /// The model.
        model: Arc<str>,
        /// The model's error.
        error: Arc<str>,
        /// The one that is asked next.
        next: Arc<str>,
    },
    /// What an answer took.
    Usage {
        /// The model.
        model: Arc<str>,
        /// Its tokens, as the provider has them.
        usage: Usage,
        /// The provider has not reported it, and this is an estimate.
        is_estimate: bool,
        /// What they cost, if the model's prices are known.
        cost: Option<Cost>,
    },
    /// The model wants a tool to be used.
    ToolCalled {
        /// The call.
        call: ToolCall,
    },
    /// The tool has answered.
    ToolAnswered {
        /// The call.
        call: Arc<str>,
        /// The tool.
        name: Arc<str>,
        /// The answer, as the model sees it.
        text: Arc<str>,
        /// It could not do it.
        is_error: bool,
    },
    /// People are asked whether a tool may be used.
    PermissionAsked {
        /// The call.
        call: Arc<str>,
        /// What would be done.
        action: Action,
    },
    /// They have decided.
    PermissionDecided {
        /// The call.
        call: Arc<str>,
        /// Whether it may.
        is_granted: bool,
        /// Why not.
        reason: Arc<str>,
    },
    /// People are asked a question.
    QuestionAsked {
        /// The call.
        call: Arc<str>,
        /// The question.
        question: Json,
    },
    /// They have answered.
    QuestionAnswered {
        /// The call.
        call: Arc<str>,
        /// The answer.
        answer: Json,
    },
    /// Its answer is not what it must be, and the model is asked again.
    AnswerRefused {
        /// What is wrong with it, to follow the words "the answer".
        problem: Arc<str>,
    },
    /// An agent that is given a task receives part of the conversation.
    ContextGiven {
        /// The agent, as it was asked for.
        to: Arc<str>,
        /// What it was to receive.
        strategy: ConversationStrategy,
        /// How many tokens it receives, beside the task, as an estimate.
        tokens: u64,
        /// How many messages it receives, or passages of some; a summary is one.
        passages: u32,
        /// How many there are besides.
        left_out: u32,
        /// How many tokens were read and written for the summary, as an estimate: what it took is reported by the turn of the agent
        /// that made it. One summary serves all tasks of one answer.
        summary_tokens: u64,
        /// Why there is no summary.
        problem: Option<Arc<str>>,
    },
    /// The older part of the conversation was summed up.
    Compacted {
        /// How many messages there is a summary of now.
        messages: u32,
        /// How many tokens the next request would have had, as an estimate.
        tokens_before: u64,
        /// How many it has.
        tokens_after: u64,
    },
    /// The conversation is too long and stays as it is, because no summary could be made.
    NotCompacted {
        /// Why there is no summary.
        why: Arc<str>,
    },
    /// Control passes to another agent.
    Handoff {
        /// Who gets it.
        to: Arc<str>,
    },
    /// It is done.
    Ended {
        /// Why the agent stopped asking its model.
        end: LoopEnd,
    },
}

/// Why an agent stopped asking its model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopEnd {
    /// The model has answered without calling a tool.
    Answered,
    /// It handed control on.
    HandedOff,
    /// It was asked as often as it may be, and has not answered.
    IterationLimit,
    /// It was cancelled.
    Cancelled,
    /// Something went wrong; in words.
    Failed(Arc<str>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_however_small_is_shown_in_digits_that_count() {
        let shown =
            [0, 1, 20_000, 23_456, 999_600, 1_000_000, 12_300_000, 999_960_000, 1_500_000_000, 1_234_000_000_000]
                .map(|billionths| Cost(billionths).to_string());
        let expected = [
            "$0",
            "$0.000000001",
            "$0.00002",
            "$0.000023",
            "$0.001",
            "$0.0010",
            "$0.0123",
            "$1.0000",
            "$1.50",
            "$1234.00",
        ];
        assert_eq!(shown, expected);
    }
}
