//! The vocabulary: plain, serialisable data that every room shares. No tokio, no ractor.
//!
//! - Work: [`Task`], its [`Limits`] and [`Handoffs`]; the [`Submission`] that a run begins with; its [`Plan`], if it has one;
//!   [`Outcome`] and [`RunResult`].
//! - What a turn returns: [`Command`], with [`Goto`], [`SendTo`], [`Scope`] and [`Update`].
//! - The state of a run: [`State`], [`Schema`], [`Reducer`], [`StateRules`]; differences of states ([`StateChange`]).
//! - Journals: [`RunEvent`], with the [`Verdict`] of the guard, [`Refusal`], [`Failure`] and [`DeadLetter`]; [`Flow`] draws one.
//! - Delegations: [`Order`], [`Chain`], [`Status`], [`Answer`].
//! - People: [`Pending`], with [`Envelope`], [`Question`] and [`Interrupt`]; [`Response`], [`Decision`] and [`Votes`], [`Consent`] and
//!   [`Deciders`], [`Groups`].
//! - Effects outside: [`Effect`], [`Authority`], [`EffectClass`], [`Intent`], [`OnUnknown`].
//! - Models and conversations: [`Message`], [`ToolCall`], [`AgentEvent`], [`Usage`], [`Cost`].
//! - Names and ids: [`AgentName`], [`ConversationId`], [`RunId`], [`TurnId`], [`RequestId`], [`TraceId`].
//! - Values: [`Json`], [`Timestamp`], [`Durability`]; [`visible()`] for text of untrusted origin.

mod agent_name;
mod approval;
mod authority;
mod board;
mod causes;
mod chain;
mod command;
mod context;
mod conversation;
mod conversation_id;
mod dead_letter;
mod delegation;
mod durability;
mod ended_run;
mod event;
mod event_text;
mod failure;
mod flow;
mod ids;
mod json;
mod kept;
mod limits;
mod open_failure;
mod outcome;
mod outside;
mod pending;
mod placed;
mod plan;
mod presence;
mod question;
mod refusal;
mod remark;
pub(crate) mod state;
mod task;
mod time;
mod trace_parent;
mod usage;
mod verdict;
mod wait;

pub use agent_name::AgentName;
pub(crate) use agent_name::MAX_AGENT_NAME;
pub use approval::{
    Action, ActionKind, ApprovalId, Consent, Deciders, Decision, Envelope, Escalation, Groups, Rationale, Terms, Vote,
    Votes,
};
pub(crate) use approval::{Barred, EXPIRY, HANDOFF_ORDINAL, POLICY};
pub use authority::{Authority, Effect};
pub(crate) use board::write_agents;
pub use board::{BoardAgent, BoardEntry, BoardInfo};
pub use callboard_text::{NameError, visible, visible_lines};
pub use causes::{OverLimit, Unacknowledged};
pub use chain::{Chain, ChainStep};
pub use command::{Command, Goto, Scope, SendTo, Update, Write};
pub use context::{ContextEntry, Origin};
pub use conversation::{AgentEvent, ConversationStrategy, Cost, LoopEnd, Message, ToolCall};
pub use conversation_id::ConversationId;
pub use dead_letter::DeadLetter;
pub use delegation::{Answer, ContextStrategy, EarlierAnswer, LateAnswer, Order, Status};
pub use durability::Durability;
pub use ended_run::EndedRun;
pub(crate) use event::Beside;
pub use event::RunEvent;
pub use failure::{Failure, FailureKind};
pub use flow::Flow;
pub use ids::{RequestId, RunId, TraceId, TurnId};
pub use json::Json;
pub(crate) use json::{MAX_JSON_DEPTH, write_integer};
pub use kept::KeptAgent;
pub(crate) use limits::AgentLimit;
pub use limits::{Backoff, Complexity, Limits, PerDay, PerRun};
pub use open_failure::OpenFailure;
pub use outcome::{Alone, Outcome, RunMetrics, RunResult};
pub use outside::{AskedOutcome, EffectClass, Intent, OnUnknown, Reconciled, Resolution};
pub use pending::{Interrupt, Pending, PendingId, Response, Resume};
pub use placed::PlacedTurn;
pub(crate) use plan::MAX_PLAN_DEPTH;
pub use plan::Plan;
pub(crate) use plan::{Block, Condition, Edge, JoinPolicy, On, PlanNode, Until, Work};
pub use presence::Presence;
pub use question::{Question, QuestionId};
pub use refusal::Refusal;
#[cfg(test)]
pub(crate) use remark::{MAX_PERSON, MAX_REASON};
pub(crate) use remark::{check_person, check_reason, check_reference};
pub use state::{Difference, FinalState, Reducer, Schema, State, StateChange, StateError, StateRules};
pub use task::{Handoffs, Submission, Task};
pub use time::Timestamp;
pub use trace_parent::TraceParent;
pub use usage::Usage;
pub use verdict::Verdict;
pub use wait::Wait;
