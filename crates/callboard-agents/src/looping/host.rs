//! The interface of a loop to its host: a turn of a board, or a caller without a board.

use std::sync::Arc;
use std::time::Duration;

use callboard::actors::{Reservation, TurnError};
use callboard::messages::{
    Action, AgentEvent, Authority, Command, Cost, Handoffs, Intent, Json, OnUnknown, Rationale, Reconciled, Refusal,
};
use futures::future::BoxFuture;

use crate::tool::ToolScope;

use super::context::{Answered, Reply};

/// Runs a loop. Methods that use an ordinal of a turn take it when they are called, not when their futures are polled: so
/// repeated attempts find the records, in whatever order answers arrive.
pub(super) trait Host: Send + Sync {
    /// Shows an event to the observers of the loop.
    fn show(&self, event: AgentEvent);

    /// Does work once, and records its result.
    fn step<'a>(
        &'a self,
        name: &'a str,
        work: BoxFuture<'a, Result<Json, TurnError>>,
    ) -> BoxFuture<'a, Result<Json, TurnError>>;

    /// As [`Host::step`], of a request to the model.
    fn ask_model<'a>(
        &'a self,
        work: BoxFuture<'a, Result<Reply, TurnError>>,
    ) -> BoxFuture<'a, Result<Reply, TurnError>>;

    /// As [`Host::step`], of the use of a tool.
    fn use_tool<'a>(
        &'a self,
        name: &'a str,
        work: BoxFuture<'a, Result<Answered, TurnError>>,
    ) -> BoxFuture<'a, Result<Answered, TurnError>>;

    /// Carries out the effect of a tool that must not be repeated by itself; `None` if it may have happened, which the model is then
    /// informed about.
    fn effect<'a>(
        &'a self,
        effect: Outside<'a>,
        work: BoxFuture<'a, Result<Json, TurnError>>,
    ) -> BoxFuture<'a, Result<Option<Json>, TurnError>>;

    /// Asks people a question, and waits for the answer.
    fn ask(&self, call: &Arc<str>, question: Json) -> BoxFuture<'_, Result<Json, TurnError>>;

    /// Asks people for consent.
    fn approve(&self, call: &Arc<str>, asked: Asked) -> BoxFuture<'_, Result<Permission, TurnError>>;

    /// Delegates a task. `Err` within is an answer for the model.
    fn delegate(
        &self,
        to: &str,
        task: &str,
        input: Option<Json>,
    ) -> BoxFuture<'_, Result<Result<Json, String>, TurnError>>;

    /// The reading of the board's clock; `None` without a board, where tools have no breakers.
    fn now(&self) -> Option<Duration>;

    /// Reserves tokens for one call of a model, and what it may cost, if that is known; `None` without a board.
    fn reserve(&self, tokens: u64, cost: Option<Cost>) -> BoxFuture<'_, Result<Option<Reservation>, TurnError>>;

    /// Creates an agent, or changes one. `Err` within is an answer for the model.
    fn make_agent(
        &self,
        name: &str,
        draft: Json,
        is_change: bool,
    ) -> BoxFuture<'_, Result<Result<(), String>, TurnError>>;

    /// Keeps an agent, if people approve. `Err` within is an answer for the model.
    fn keep_agent(&self, name: &str, draft: Json) -> BoxFuture<'_, Result<Result<(), String>, TurnError>>;

    /// The authority of the loop.
    fn authority(&self) -> Authority;

    /// The idempotency key for this name: the same for all tries.
    fn key(&self, name: &str) -> Arc<str>;

    /// The scope that a tool receives for the use of this name, which is the next request.
    fn scope(&self, name: &str) -> ToolScope;

    /// Whether the loop is tainted: its input, or content that it has read, is untrusted.
    fn is_tainted(&self) -> bool;

    /// Taints the run: it has read untrusted content from `source`.
    fn taint(&self, source: &str);

    /// Whether handoffs are allowed, and what an agent does otherwise.
    fn handoffs(&self) -> Handoffs;

    /// The refusal of a handoff, if it would be refused.
    fn check_handoff(&self, command: &Command) -> BoxFuture<'_, Result<Option<Refusal>, TurnError>>;

    /// The state and the name of the agent that had control before.
    fn handed_over(&self) -> Json;
}

/// An effect that must not be repeated by itself.
pub(super) struct Outside<'a> {
    pub(super) action: Action,
    pub(super) on_unknown: Option<OnUnknown>,
    pub(super) before: BoxFuture<'a, Json>,
    /// Finds out the outcome of an earlier execution.
    pub(super) reconcile: Box<dyn FnOnce(Intent) -> BoxFuture<'a, Result<Reconciled, TurnError>> + Send + 'a>,
}

/// What people are asked about a use of a tool.
pub(super) struct Asked {
    pub(super) action: Action,
    /// Decisions for the whole run do not count.
    pub(super) each_time: bool,
    pub(super) rationale: Rationale,
}

/// The decision of people about a use of a tool.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Permission {
    /// The action may be carried out.
    Granted(Action),
    Denied {
        reason: Arc<str>,
    },
}
