//! The messages between an agent, its model and its tools, and the events that watchers receive.

use std::fmt;
use std::iter::Sum;
use std::ops::AddAssign;
use std::str::FromStr;
use std::sync::Arc;

use callboard_text::quoted;
use serde::{Deserialize, Serialize};

use super::{Action, Json, Usage};

/// One message of a conversation with a model. The system prompt is not one of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum Message {
    /// A message to the model, from a person or from an agent in that role.
    User {
        /// The text, as the model reads it.
        text: Arc<str>,
    },
    /// An answer of the model: text, calls of tools, or both.
    Assistant {
        /// Its words; empty if it only called tools.
        text: Arc<str>,
        /// The tools that the model called, in its order; empty if it called none.
        calls: Vec<ToolCall>,
    },
    /// The answer to one call of an earlier [`Message::Assistant`].
    Tool {
        /// The [`ToolCall::id`] of the call.
        call: Arc<str>,
        /// The name of the tool that was called.
        name: Arc<str>,
        /// The answer as text.
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

/// One request of a model that a tool be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Unique among the calls of a conversation.
    pub id: Arc<str>,
    /// The name of the tool.
    pub name: Arc<str>,
    /// What it is used with; text if the model did not write JSON.
    pub arguments: Json,
    /// What some providers want to be given back with the call, unread.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<Arc<str>>,
}

impl ToolCall {
    /// Creates a call without signatures.
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
    /// What a number of tokens costs at a price for a million of them. A price counts to the millionth of a dollar.
    #[must_use]
    pub fn of(tokens: u64, dollars_per_million: f64) -> Self {
        // A millionth of a dollar per million tokens is a thousandth of a billionth each. The casts saturate.
        let thousandths = u128::from(tokens) * u128::from((dollars_per_million * 1e6).round() as u64);
        Self(u64::try_from((thousandths + 500) / 1_000).unwrap_or(u64::MAX))
    }

    /// Returns the exact amount in US dollars, as it is written among [`Limits`](super::Limits): `2.50`, `0.000000001`.
    #[must_use]
    pub fn decimal(self) -> String {
        let text = format!("{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        let least = text.len() - 7;
        let shown = text.trim_end_matches('0').len().max(least);
        text[..shown].to_owned()
    }

    /// Returns the cost in US dollars.
    #[must_use]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl FromStr for Cost {
    type Err = String;

    /// Reads US dollars: digits, and after a point up to nine more.
    fn from_str(text: &str) -> Result<Self, String> {
        let (dollars, billionths) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        let read = || {
            let dollars: u64 = dollars.parse().ok()?;
            let billionths: u64 = format!("{billionths:0<9}").parse().ok()?;
            dollars.checked_mul(1_000_000_000)?.checked_add(billionths)
        };
        let is_amount = is_number(dollars) && is_number(billionths) && billionths.len() <= 9;
        is_amount
            .then(read)
            .flatten()
            .map(Self)
            .ok_or_else(|| format!("{} is no amount of US dollars: write one as in \"2.50\"", quoted(text)))
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
    /// All strategies, from the default to the one that shows everything.
    pub const ALL: [Self; 4] = [Self::None, Self::Summary, Self::Filtered, Self::Full];

    /// Returns the name that definition files and models use, such as `summary`.
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

/// Writes [`ConversationStrategy::name`].
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
        /// The number of this request in the turn, from 1.
        iteration: u32,
    },
    /// A piece of the model's answer. The pieces of one answer arrive in order.
    Text {
        /// The text of the piece, which continues the pieces before it.
        text: Arc<str>,
    },
    /// A piece of what the model thinks, of models that show it.
    Reasoning {
        /// The text of the piece, which continues the pieces before it.
        text: Arc<str>,
    },
    /// The model was not reached, or broke off; another is asked, or the same again.
    ModelFailed {
        /// The name of the model that failed.
        model: Arc<str>,
        /// The error of that model, as text.
        error: Arc<str>,
        /// The name of the model that is asked next; the same name if the same model is asked again.
        next: Arc<str>,
    },
    /// The tokens that one answer of the model used, and their cost.
    Usage {
        /// The name of the model that answered.
        model: Arc<str>,
        /// The tokens of this answer, as the provider reports them or as an estimate.
        usage: Usage,
        /// The provider has not reported it, and this is an estimate.
        is_estimate: bool,
        /// What they cost, if the model's prices are known.
        cost: Option<Cost>,
    },
    /// The model has called a tool. The use of the tool may still be refused, or wait for people.
    ToolCalled {
        /// The call; later events about it have its [`ToolCall::id`].
        call: ToolCall,
        /// The agent has no tool of this name: the model has made it up.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_unknown: bool,
    },
    /// A call has its answer: from the tool, or the reason why the tool was not used.
    ToolAnswered {
        /// The [`ToolCall::id`] of the call.
        call: Arc<str>,
        /// The name of the tool that was called.
        name: Arc<str>,
        /// The answer, as the model sees it.
        text: Arc<str>,
        /// Whether the call failed; `text` then has the reason.
        is_error: bool,
    },
    /// The loop asks for permission to use a tool: the policy decides at once, or people do.
    PermissionAsked {
        /// The [`ToolCall::id`] of the call that waits for the decision.
        call: Arc<str>,
        /// The action that people decide on. They may grant it with other arguments.
        action: Action,
    },
    /// The use of the tool is granted or denied: by people, by the approval policy, or by expiry.
    PermissionDecided {
        /// The [`ToolCall::id`] of the call that was decided on.
        call: Arc<str>,
        /// Whether the tool may be used; if not, the model receives an error as the tool's answer.
        is_granted: bool,
        /// The reason of a denial; empty if the use is granted or nobody gave a reason.
        reason: Arc<str>,
    },
    /// People are asked a question of the model.
    QuestionAsked {
        /// The [`ToolCall::id`] of the call that asks.
        call: Arc<str>,
        /// The question as text, or an object with `question` and `choices`.
        question: Json,
    },
    /// A person has answered. A question that expires has no such event.
    QuestionAnswered {
        /// The [`ToolCall::id`] of the call that asked.
        call: Arc<str>,
        /// The answer as the person gave it; the model receives it as text.
        answer: Json,
    },
    /// Its answer is not what it must be, and the model is asked again.
    AnswerRefused {
        /// What is wrong with it, to follow the words "the answer".
        problem: Arc<str>,
    },
    /// An agent that is given a task receives part of the conversation.
    ContextGiven {
        /// The agent that is given the task, by the name, role or capability that the model wrote.
        to: Arc<str>,
        /// Which part of the conversation the agent was to receive.
        strategy: ConversationStrategy,
        /// How many tokens it receives, beside the task, as an estimate.
        tokens: u64,
        /// How many messages it receives, or passages of some; a summary is one.
        passages: u32,
        /// How many messages or passages the agent does not receive.
        left_out: u32,
        /// How many tokens were read and written for the summary, as an estimate: what it took is reported by the turn of the agent
        /// that made it. One summary serves all tasks of one answer.
        summary_tokens: u64,
        /// Why no summary could be made; `None` if one was made, or the strategy needs none.
        problem: Option<Arc<str>>,
    },
    /// The older part of the conversation was summed up.
    Compacted {
        /// How many messages there is a summary of now.
        messages: u32,
        /// How many tokens the next request would have had, as an estimate.
        tokens_before: u64,
        /// How many tokens the next request has after the compaction, as an estimate.
        tokens_after: u64,
    },
    /// The conversation is too long and stays as it is, because no summary could be made.
    NotCompacted {
        /// Why no summary could be made, such as the error of the agent that was asked for one.
        why: Arc<str>,
    },
    /// The model hands control to another agent, and the loop ends. The guard may still refuse the handoff.
    Handoff {
        /// The agent that receives control, as the model named it.
        to: Arc<str>,
    },
    /// The agent has stopped asking its model. This event is the last one of a loop.
    Ended {
        /// Why the agent stopped asking its model.
        end: LoopEnd,
    },
}

/// Why an agent stopped asking its model; [`AgentEvent::Ended`] reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopEnd {
    /// The model has answered without calling a tool.
    Answered,
    /// The model handed control to another agent.
    HandedOff,
    /// The model was asked as often as it may be, and has not answered.
    IterationLimit,
    /// The loop ran without a board and was cancelled.
    Cancelled,
    /// The loop failed, with the error as text.
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
