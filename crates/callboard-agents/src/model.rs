//! What an agent needs of a language model: one call, answered as a stream.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use callboard::messages::{Cost, Message, ToolCall, TraceParent, Usage};
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

use super::prices::Prices;
use super::tool::ToolSpec;

/// A language model: something that is given a conversation and says how it goes on.
///
/// ```
/// use callboard::messages::Usage;
/// use callboard_agents::{Model, ModelAnswer, ModelEvent, ModelRequest, ModelStream, StopReason};
/// use futures::StreamExt;
///
/// /// Says how many messages there are.
/// struct Counter;
///
/// impl Model for Counter {
///     fn name(&self) -> &str { "counter" }
///
///     fn call(&self, request: ModelRequest) -> ModelStream {
///         let text = format!("{} so far", request.messages.len());
///         let usage = Usage::of(10, 3);
///         let answer = ModelAnswer::new(self.name(), StopReason::Finished, usage);
///         let events = [ModelEvent::Text(text.into()), ModelEvent::Ended(answer)];
///         futures::stream::iter(events.map(Ok)).boxed()
///     }
/// }
/// ```
pub trait Model: Any + Send + Sync + 'static {
    /// What the model is called, in events and errors.
    fn name(&self) -> &str;

    /// Asks. Nothing is sent before the stream is polled, and the call is given up when it is dropped. The last event of a
    /// call that went well is [`ModelEvent::Ended`]; an error ends the stream.
    fn call(&self, request: ModelRequest) -> ModelStream;

    /// What its calls cost at most, for a million tokens: of several models that may answer, the highest prices. `None` if a price is not
    /// known (the default); a run whose money is limited then refuses to ask it.
    fn prices(&self) -> Option<Prices> {
        None
    }

    /// What is missing for its calls, such as a key; `None` if nothing is known to be (the default). Whoever starts agents reports it.
    fn lacks(&self) -> Option<String> {
        None
    }

    /// Whether the other one asks the same model at the same place in the same way (false). What is known of it and its
    /// connections go on with a catalog that is read again ([`Models::after`](super::Models::after)).
    fn is_same(&self, other: &dyn Model) -> bool {
        let _ = other;
        false
    }

    /// Whether it is asked at the same server, with the key of the same variable, as the other one: a catalog that is read again may
    /// have it then also where permissions are kept ([`AgentFolder::keep_permissions`](super::AgentFolder::keep_permissions)). By
    /// default, models of one type are.
    fn has_server_of(&self, other: &dyn Model) -> bool {
        Any::type_id(self) == Any::type_id(other)
    }
}

/// The answer to a [`ModelRequest`], piece by piece: [`ModelEvent::Ended`] is its last event, unless it ends with an
/// error.
pub type ModelStream = BoxStream<'static, Result<ModelEvent, ModelError>>;

/// One request to a model, as [`Model::call`] takes it.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The system prompt, which may be empty.
    pub system: Arc<str>,
    /// The conversation so far; shared with whoever asks.
    pub messages: Arc<Vec<Message>>,
    /// The tools that it may call, those of the loop itself included.
    pub tools: Vec<Arc<ToolSpec>>,
    /// The most tokens that it may write in its answer.
    pub max_tokens: u32,
    /// The same for all tries of one call: providers that know of it answer a repetition from their memory.
    pub idempotency_key: Arc<str>,
    /// The span of the call, for its provider; there is none unless another program has begun a trace.
    pub trace_parent: Option<TraceParent>,
}

impl ModelRequest {
    /// Returns how many tokens the request has, as an estimate: a token for every three bytes, which is more than
    /// English takes and about what code does. The provider's figures are the truth.
    #[must_use]
    pub fn estimated_tokens(&self) -> u64 {
        self.estimated_tokens_with(self.messages.iter().map(size_of).sum())
    }

    /// As [`ModelRequest::estimated_tokens`], with the size of its messages ([`size_of`]).
    pub(crate) fn estimated_tokens_with(&self, messages: usize) -> u64 {
        let tools: usize = self.tools.iter().map(|tool| tool.size()).sum();
        estimated_tokens(self.system.len() + messages + tools)
    }
}

/// What a message counts for in an estimate, in bytes.
pub(crate) fn size_of(message: &Message) -> usize {
    message.size() + 16
}

/// The estimated tokens of a text of so many bytes, as for [`ModelRequest::estimated_tokens`].
pub(crate) const fn estimated_tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(3)
}

/// An event of a [`ModelStream`].
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// The next part of the text.
    Text(Arc<str>),
    /// Some of what it thinks, of models that show it.
    Reasoning(Arc<str>),
    /// A call of a tool, with all of its arguments.
    ToolCall(ToolCall),
    /// A model was not reached, or broke off before it had said anything; another is asked, or the same again.
    Failed {
        /// The name of the model that failed.
        model: Arc<str>,
        /// Why it was not reached, or broke off.
        error: ModelError,
        /// The name of the model that is asked next; the same name if that model is asked again.
        next: Arc<str>,
    },
    /// The answer is complete, and no event follows.
    Ended(ModelAnswer),
}

/// Why a model ended its answer, as its provider reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model has ended the answer by itself.
    Finished,
    /// It waits for the results of its calls. An answer without a call counts as finished.
    ToolCalls,
    /// Its answer was cut at the most tokens that it may write. The loop fails, unless the answer has calls.
    Length,
    /// The provider withheld the rest. The loop fails, unless the answer has calls.
    Filtered,
    /// Something else, in the provider's words.
    Other(Arc<str>),
}

/// What is known of an answer that is complete: which model gave it, why it ended, and what it took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelAnswer {
    /// The name of the model that has answered; a catalog sets it to the name of its entry.
    pub model: Arc<str>,
    /// Why the answer ended: one that was cut or withheld does not count as the answer of an agent.
    pub stop: StopReason,
    /// What it took, as the provider has it.
    pub usage: Usage,
    /// The provider did not say what it took: the usage is an estimate.
    pub is_estimate: bool,
    /// What it cost, if the model's prices are known.
    pub cost: Option<Cost>,
}

impl ModelAnswer {
    /// Creates the end of an answer whose usage the provider has reported, and whose prices are not known.
    #[must_use]
    pub fn new(model: &str, stop: StopReason, usage: Usage) -> Self {
        Self { model: model.into(), stop, usage, is_estimate: false, cost: None }
    }
}

/// The most bytes of one answer: a longer one is cut off.
pub(super) const MAX_REPLY: usize = 4 << 20;

/// The most calls in one answer.
pub(super) const MAX_CALLS: usize = 64;

/// Why a call did not go well. The kind says what may be done about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelError {
    /// What failed. A catalog decides by it whether the model is asked again, or the next one.
    pub kind: ModelErrorKind,
    /// What went wrong, in words.
    pub text: Cow<'static, str>,
    /// The provider counts no tokens for the call: as the kind says, or, when several models were asked, as the last one did. The
    /// others were reported as they failed ([`ModelEvent::Failed`]).
    pub is_free: bool,
}

/// How a call failed. It determines whether the same model may be asked again, whether tokens are counted for the call,
/// and whether the turn may go better later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelErrorKind {
    /// The provider was not reached: nothing was sent, and nothing is owed.
    NotSent,
    /// The provider wants less of us; after this time it may be asked again, if it said when. Nothing is owed.
    RateLimited(Option<Duration>),
    /// The provider has a fault of its own, before it had said anything.
    Unavailable,
    /// It broke off after it had begun. What it had said is paid for.
    CutOff,
    /// It answered with something that cannot be understood.
    Malformed,
    /// The provider refuses the request: asking again is of no use.
    Rejected,
    /// There is no key for the provider, or it takes ours no more. A person has to act: it is never asked again by itself.
    Unauthorised,
    /// The provider wants payment first, or the quota of our account is used up. A person has to act, as above.
    Unpaid,
}

impl ModelErrorKind {
    /// Returns whether the same model may be asked the same again at once or soon: nothing was said yet.
    #[must_use]
    pub const fn is_worth_another_try(self) -> bool {
        match self {
            Self::NotSent | Self::RateLimited(_) | Self::Unavailable => true,
            Self::CutOff | Self::Malformed | Self::Rejected | Self::Unauthorised | Self::Unpaid => false,
        }
    }

    /// Returns whether it is known that the provider counts no tokens for the call.
    #[must_use]
    pub const fn is_free(self) -> bool {
        match self {
            Self::NotSent | Self::RateLimited(_) | Self::Rejected | Self::Unauthorised | Self::Unpaid => true,
            Self::Unavailable | Self::CutOff | Self::Malformed => false,
        }
    }

    /// Returns whether the turn may go better when it is tried again later.
    #[must_use]
    pub const fn is_transient(self) -> bool {
        match self {
            Self::NotSent | Self::RateLimited(_) | Self::Unavailable | Self::CutOff | Self::Malformed => true,
            Self::Rejected | Self::Unauthorised | Self::Unpaid => false,
        }
    }

    /// Returns whether a person has to act before the provider answers: its key or its payment is wrong. A turn that fails of this
    /// waits, and its run needs attention.
    #[must_use]
    pub const fn needs_person(self) -> bool {
        match self {
            Self::Unauthorised | Self::Unpaid => true,
            Self::NotSent
            | Self::RateLimited(_)
            | Self::Unavailable
            | Self::CutOff
            | Self::Malformed
            | Self::Rejected => false,
        }
    }
}

impl ModelError {
    /// Creates an error whose [`ModelError::is_free`] is as the kind says.
    pub fn new(kind: ModelErrorKind, text: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, text: text.into(), is_free: kind.is_free() }
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ModelError {}
