//! The interface of a loop to its host: a turn of a board, or a caller without a board.

use std::sync::Arc;
use std::time::Duration;

use callboard::actors::{Reservation, TurnError};
use callboard::messages::{
    Action, AgentEvent, Authority, Command, Handoffs, Intent, Json, OnUnknown, Reconciled, Refusal,
};
use futures::future::BoxFuture;

use crate::tool::ToolScope;

/// Runs a loop. Whatever takes an ordinal of a turn takes it when it is called, and not when it is polled: so repeated attempts
/// find what is recorded, however answers come in.
pub(super) trait Host: Send + Sync {
    /// Shows an event to those who watch the loop.
    fn show(&self, event: AgentEvent);

    /// Does something once, if what was done is kept.
    fn step<'a>(
        &'a self,
        name: &'a str,
        work: BoxFuture<'a, Result<Json, TurnError>>,
    ) -> BoxFuture<'a, Result<Json, TurnError>>;

    /// Does something that must not be repeated by itself; `None` if it may have been done, and the model is to receive that.
    fn effect<'a>(
        &'a self,
        effect: Outside<'a>,
        work: BoxFuture<'a, Result<Json, TurnError>>,
    ) -> BoxFuture<'a, Result<Option<Json>, TurnError>>;

    /// Asks people a question, and waits for their answer.
    fn ask(&self, call: &Arc<str>, question: Json) -> BoxFuture<'_, Result<Json, TurnError>>;

    /// Has people consent; `each_time` ignores decisions for the whole run.
    fn approve(&self, call: &Arc<str>, action: Action, each_time: bool)
    -> BoxFuture<'_, Result<Permission, TurnError>>;

    /// Has another agent do something. `Err` within is an answer for the model.
    fn delegate(
        &self,
        to: &str,
        task: &str,
        input: Option<Json>,
    ) -> BoxFuture<'_, Result<Result<Json, String>, TurnError>>;

    /// The reading of the board's clock; nothing without a board, where no tool is left alone.
    fn now(&self) -> Option<Duration>;

    /// Sets tokens aside for one call of a model; nothing without a board.
    fn reserve(&self, tokens: u64) -> BoxFuture<'_, Result<Option<Reservation>, TurnError>>;

    /// Makes an agent, or changes one. `Err` within is an answer for the model.
    fn make_agent(
        &self,
        name: &str,
        draft: Json,
        is_change: bool,
    ) -> BoxFuture<'_, Result<Result<(), String>, TurnError>>;

    /// Keeps an agent, if people approve. `Err` within is an answer for the model.
    fn keep_agent(&self, name: &str, draft: Json) -> BoxFuture<'_, Result<Result<(), String>, TurnError>>;

    /// What may be caused here.
    fn authority(&self) -> Authority;

    /// The same for all tries of what has this name here.
    fn key(&self, name: &str) -> Arc<str>;

    /// What a tool learns of the use that has this name here.
    fn scope(&self, name: &str) -> ToolScope;

    /// Whether what is done here is tainted: its input, or what it has read, is untrusted.
    fn is_tainted(&self) -> bool;

    /// Taints the run: it has read what `source` brought from outside.
    fn taint(&self, source: &str);

    /// Whether control may be passed on here at all, and what an agent does that cannot.
    fn handoffs(&self) -> Handoffs;

    /// Why control may not go, if it may not.
    fn check_handoff(&self, command: &Command) -> BoxFuture<'_, Result<Option<Refusal>, TurnError>>;

    /// What the one who had control before has left.
    fn handed_over(&self) -> Json;
}

/// What must not be repeated by itself.
pub(super) struct Outside<'a> {
    pub(super) action: Action,
    pub(super) on_unknown: Option<OnUnknown>,
    pub(super) before: BoxFuture<'a, Json>,
    /// Finds out what came of it earlier.
    pub(super) reconcile: Box<dyn FnOnce(Intent) -> BoxFuture<'a, Result<Reconciled, TurnError>> + Send + 'a>,
}

/// What people have decided about a use of a tool.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Permission {
    /// This may be done.
    Granted(Action),
    Denied {
        reason: Arc<str>,
    },
}
