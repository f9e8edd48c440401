//! What a loop asks of whoever runs it: a turn of a board, or nobody but its caller.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use callboard::actors::{DelegationError, Reservation, Turn, TurnError};
use callboard::env::Env;
use callboard::messages::{
    Action, AgentEvent, Authority, Command, Handoffs, Intent, Json, OnUnknown, Reconciled, Refusal,
};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::tool::ToolScope;

/// Runs a loop. Whatever takes an ordinal of a turn takes it when it is called, and not when it is polled: so repeated attempts
/// find what is recorded, however answers come in.
pub(super) trait Host: Send + Sync {
    fn show(&self, event: AgentEvent);

    /// Does something once, if what was done is kept.
    fn step<'a>(
        &'a self,
        name: &'a str,
        work: BoxFuture<'a, Result<Json, TurnError>>,
    ) -> BoxFuture<'a, Result<Json, TurnError>>;

    /// Does something that must not be repeated by itself; `None` if it may have been done, and the model is to be told so.
    fn effect<'a>(
        &'a self,
        effect: Outside<'a>,
        work: BoxFuture<'a, Result<Json, TurnError>>,
    ) -> BoxFuture<'a, Result<Option<Json>, TurnError>>;

    fn ask(&self, call: &Arc<str>, question: Json) -> BoxFuture<'_, Result<Json, TurnError>>;

    /// Has people consent; `each_time` says that what they have decided for a whole run does not count.
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

    fn scope(&self, name: &str) -> ToolScope;

    /// Whether what is done here is done for strangers, or with what they wrote.
    fn is_marked(&self) -> bool;

    fn mark(&self, source: &str);

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

/// What people said.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Permission {
    /// This may be done.
    Granted(Action),
    Denied {
        reason: Arc<str>,
    },
}

/// A turn of a board.
pub(super) struct InTurn<'t>(pub(super) &'t Turn);

impl Host for InTurn<'_> {
    fn show(&self, event: AgentEvent) {
        self.0.show(event);
    }

    fn step<'a>(
        &'a self,
        name: &'a str,
        work: BoxFuture<'a, Result<Json, TurnError>>,
    ) -> BoxFuture<'a, Result<Json, TurnError>> {
        self.0.step(name, work).boxed()
    }

    fn effect<'a>(
        &'a self,
        effect: Outside<'a>,
        work: BoxFuture<'a, Result<Json, TurnError>>,
    ) -> BoxFuture<'a, Result<Option<Json>, TurnError>> {
        let Outside { action, on_unknown, before, reconcile } = effect;
        let outside = self.0.effect(&action.action).target(&action.target).arguments(&action.arguments);
        let outside = match on_unknown {
            Some(on_unknown) => outside.on_unknown(on_unknown),
            None => outside,
        };
        outside.noting(before).reconcile(reconcile).run_or_report(work).boxed()
    }

    fn ask(&self, _: &Arc<str>, question: Json) -> BoxFuture<'_, Result<Json, TurnError>> {
        self.0.people().ask(question).boxed()
    }

    fn approve(&self, _: &Arc<str>, action: Action, each_time: bool) -> BoxFuture<'_, Result<Permission, TurnError>> {
        let asked = if each_time {
            self.0.people().approve_each_time(action).boxed()
        } else {
            self.0.people().approve(action).boxed()
        };
        async move {
            match asked.await {
                Ok(action) => Ok(Permission::Granted(action)),
                Err(error) => match error.refusal() {
                    Some(Refusal::Denied { reason, .. }) => Ok(Permission::Denied { reason: reason.as_str().into() }),
                    Some(refusal @ Refusal::ApprovalExpired { .. }) => {
                        Ok(Permission::Denied { reason: refusal.to_string().into() })
                    }
                    Some(_) | None => Err(error),
                },
            }
        }
        .boxed()
    }

    fn delegate(
        &self,
        to: &str,
        task: &str,
        input: Option<Json>,
    ) -> BoxFuture<'_, Result<Result<Json, String>, TurnError>> {
        let delegation = self.0.delegate(to, task);
        let delegation = match input {
            Some(input) => delegation.input(input),
            None => delegation,
        };
        async move {
            match delegation.await {
                Ok(answer) => Ok(Ok(answer)),
                Err(DelegationError::Turn(error)) => Err(error),
                Err(error) => Ok(Err(error.to_string())),
            }
        }
        .boxed()
    }

    fn now(&self) -> Option<Duration> {
        Some(self.0.now())
    }

    fn reserve(&self, tokens: u64) -> BoxFuture<'_, Result<Option<Reservation>, TurnError>> {
        self.0.reserve(tokens).map(|reserved| reserved.map(Some)).boxed()
    }

    fn make_agent(
        &self,
        name: &str,
        draft: Json,
        is_change: bool,
    ) -> BoxFuture<'_, Result<Result<(), String>, TurnError>> {
        let made = if is_change {
            self.0.agents().change(name, draft).boxed()
        } else {
            self.0.agents().make(name, draft).boxed()
        };
        async move {
            match made.await {
                Ok(_) => Ok(Ok(())),
                Err(error) => match error.refusal() {
                    Some(refusal @ Refusal::AgentNotMade { .. }) => Ok(Err(refusal.to_string())),
                    Some(_) | None => Err(error),
                },
            }
        }
        .boxed()
    }

    fn keep_agent(&self, name: &str, draft: Json) -> BoxFuture<'_, Result<Result<(), String>, TurnError>> {
        let kept = self.0.agents().keep(name, draft);
        async move {
            match kept.await {
                Ok(_) => Ok(Ok(())),
                Err(error) => match error.refusal() {
                    Some(
                        refusal @ (Refusal::AgentNotMade { .. }
                        | Refusal::Denied { .. }
                        | Refusal::ApprovalExpired { .. }),
                    ) => Ok(Err(refusal.to_string())),
                    Some(_) | None => Err(error),
                },
            }
        }
        .boxed()
    }

    fn authority(&self) -> Authority {
        self.0.authority()
    }

    fn key(&self, name: &str) -> Arc<str> {
        format!("{}/{name}", self.0.id()).into()
    }

    fn scope(&self, name: &str) -> ToolScope {
        ToolScope { key: self.key(name), context: Some(self.0.context().clone()) }
    }

    fn is_marked(&self) -> bool {
        self.0.is_marked()
    }

    fn mark(&self, source: &str) {
        self.0.mark(source);
    }

    fn handoffs(&self) -> Handoffs {
        self.0.task().handoffs
    }

    fn check_handoff(&self, command: &Command) -> BoxFuture<'_, Result<Option<Refusal>, TurnError>> {
        self.0.check_handoff(command).boxed()
    }

    fn handed_over(&self) -> Json {
        // Who had control before is said beside it, and figures are of no use to a model.
        let state = self.0.written().to_json();
        let previous = self.0.previous_agent();
        serde_json::json!({ "previous_agent": previous, "state": state }).into()
    }
}

/// Nobody but the caller: what the loop does comes out of it as a stream, and who holds its handle decides and answers.
#[derive(Clone)]
pub(super) struct Alone {
    desk: Arc<Desk>,
    /// Tells its uses of tools from those of other loops.
    id: Uuid,
}

#[derive(Default)]
pub(super) struct Desk {
    pub(super) shown: Mutex<VecDeque<AgentEvent>>,
    pub(super) permissions: Mutex<BTreeMap<Arc<str>, Asked>>,
    pub(super) questions: Mutex<BTreeMap<Arc<str>, oneshot::Sender<Json>>>,
}

/// What people are asked about, and where what they say goes.
type Asked = (Action, oneshot::Sender<Permission>);

impl Alone {
    pub(super) fn new() -> Self {
        Self { desk: Arc::default(), id: Env::system().id() }
    }

    pub(super) fn desk(&self) -> &Arc<Desk> {
        &self.desk
    }
}

impl Host for Alone {
    fn show(&self, event: AgentEvent) {
        self.desk.shown.lock().push_back(event);
    }

    fn step<'a>(
        &'a self,
        _: &'a str,
        work: BoxFuture<'a, Result<Json, TurnError>>,
    ) -> BoxFuture<'a, Result<Json, TurnError>> {
        work
    }

    fn effect<'a>(
        &'a self,
        _: Outside<'a>,
        work: BoxFuture<'a, Result<Json, TurnError>>,
    ) -> BoxFuture<'a, Result<Option<Json>, TurnError>> {
        work.map(|done| done.map(Some)).boxed()
    }

    fn ask(&self, call: &Arc<str>, _: Json) -> BoxFuture<'_, Result<Json, TurnError>> {
        let (sender, answer) = oneshot::channel();
        self.desk.questions.lock().insert(Arc::clone(call), sender);
        answered(answer).boxed()
    }

    fn approve(&self, call: &Arc<str>, action: Action, _: bool) -> BoxFuture<'_, Result<Permission, TurnError>> {
        let (sender, decision) = oneshot::channel();
        self.desk.permissions.lock().insert(Arc::clone(call), (action, sender));
        answered(decision).boxed()
    }

    fn delegate(&self, _: &str, _: &str, _: Option<Json>) -> BoxFuture<'_, Result<Result<Json, String>, TurnError>> {
        ready(Ok(Err("there is no board here, so there are no other agents".to_owned()))).boxed()
    }

    fn now(&self) -> Option<Duration> {
        None
    }

    fn reserve(&self, _: u64) -> BoxFuture<'_, Result<Option<Reservation>, TurnError>> {
        ready(Ok(None)).boxed()
    }

    fn make_agent(&self, _: &str, _: Json, _: bool) -> BoxFuture<'_, Result<Result<(), String>, TurnError>> {
        ready(Ok(Err("there is no board here, so there are no other agents".to_owned()))).boxed()
    }

    fn keep_agent(&self, _: &str, _: Json) -> BoxFuture<'_, Result<Result<(), String>, TurnError>> {
        ready(Ok(Err("there is no board here, so there are no other agents".to_owned()))).boxed()
    }

    fn authority(&self) -> Authority {
        Authority::ALL
    }

    fn key(&self, name: &str) -> Arc<str> {
        format!("{}/{name}", self.id).into()
    }

    fn scope(&self, name: &str) -> ToolScope {
        ToolScope { key: self.key(name), context: None }
    }

    fn is_marked(&self) -> bool {
        false
    }

    fn mark(&self, _: &str) {}

    fn handoffs(&self) -> Handoffs {
        Handoffs::Strict
    }

    fn check_handoff(&self, _: &Command) -> BoxFuture<'_, Result<Option<Refusal>, TurnError>> {
        ready(Ok(None)).boxed()
    }

    fn handed_over(&self) -> Json {
        Json::null()
    }
}

fn answered<T>(answer: oneshot::Receiver<T>) -> impl Future<Output = Result<T, TurnError>> {
    // The sender is held as long as the loop is.
    answer.map(|answer| answer.map_err(|_| TurnError::transient("nobody can answer any more")))
}
