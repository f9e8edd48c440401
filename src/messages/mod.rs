//! The vocabulary: plain, serialisable data that every room shares. No tokio, no ractor.

mod agent_name;
mod approval;
mod authority;
mod causes;
mod chain;
mod command;
mod context;
mod conversation;
mod conversation_id;
mod delegation;
mod durability;
mod event;
mod event_text;
mod flow;
mod ids;
mod json;
mod kept;
mod limits;
mod outcome;
mod outside;
mod pending;
mod plan;
mod presence;
mod refusal;
mod remark;
pub mod state;
mod task;
mod time;
mod usage;
mod wait;

pub use agent_name::AgentName;
pub(crate) use agent_name::MAX_AGENT_NAME;
pub use approval::{Action, ActionKind, ApprovalId, Consent, Decision, Envelope, Terms};
pub(crate) use approval::{EXPIRY, HANDOFF_ORDINAL, POLICY};
pub use authority::{Authority, Effect};
pub use callboard_text::{NameError, NameProblem, Unfit, visible, visible_lines};
pub use causes::{TooDeep, Unacknowledged};
pub use chain::{Chain, Step};
pub use command::{Command, Goto, Scope, Send, Update, Write};
pub use context::{ContextEntry, Origin};
pub use conversation::{AgentEvent, ConversationStrategy, Cost, LoopEnd, Message, Shown, StopReason, ToolCall};
pub use conversation_id::ConversationId;
pub use delegation::{Answer, DelegationRequest, Status, StatusUpdate};
pub use durability::Durability;
pub(crate) use event::handoff_action;
pub use event::{
    ContextStrategy, DeadLetter, DelegationReply, EarlierAnswer, Failure, FailureKind, LateAnswer, Order, Published,
    Question, QuestionId, RunEvent, Verdict,
};
pub use flow::Flow;
pub use ids::{RequestId, RunId, TraceId, TurnId};
pub use json::Json;
pub(crate) use json::MAX_JSON_DEPTH;
pub use kept::KeptAgent;
pub use limits::{Backoff, Complexity, Limits};
pub use outcome::{Alone, Outcome, RunMetrics, RunResult};
pub use outside::{AskedOutcome, EffectClass, Intent, OnUnknown, Reconciled, Resolution};
pub use pending::{Interrupt, Pending, PendingId, Response, Resume};
pub(crate) use plan::MAX_PLAN_DEPTH;
pub use plan::{Block, Condition, Edge, JoinPolicy, On, Plan, PlanNode, Until, Work};
pub use presence::{Announcement, Presence};
pub use refusal::Refusal;
pub use remark::TooLong;
#[cfg(test)]
pub(crate) use remark::{MAX_PERSON, MAX_REASON};
pub(crate) use remark::{check_person, check_reason};
pub use state::{Reducer, Schema, State};
pub use task::{Handoffs, Submission, Task};
pub use time::Timestamp;
pub use usage::Usage;
pub use wait::Wait;
