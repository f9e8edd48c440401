//! The host of a loop without a board: nothing is journaled, and there are no other agents.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use callboard::actors::{Reservation, TurnError};
use callboard::env::Env;
use callboard::messages::{Action, AgentEvent, Authority, Command, Cost, Handoffs, Json, Refusal};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::tool::ToolScope;

use super::context::{Answered, Reply};
use super::host::{Asked, Host, Outside, Permission};

/// A loop without a board: its events are a stream, and the holder of its handle decides and answers.
#[derive(Clone)]
pub(super) struct Alone {
    pending: Arc<Pending>,
    /// Distinguishes its uses of tools from those of other loops.
    id: Uuid,
}

/// Events that the caller has not read, and the decisions and answers for which the loop waits, by call.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) shown: Mutex<VecDeque<AgentEvent>>,
    pub(super) permissions: Mutex<BTreeMap<Arc<str>, PendingRequest>>,
    pub(super) questions: Mutex<BTreeMap<Arc<str>, oneshot::Sender<Json>>>,
}

impl Pending {
    /// Ends the waits for decisions and answers.
    pub(super) fn close(&self) {
        self.permissions.lock().clear();
        self.questions.lock().clear();
    }
}

/// A request to people, and the channel for their answer.
type PendingRequest = (Action, oneshot::Sender<Permission>);

impl Alone {
    pub(super) fn new() -> Self {
        Self { pending: Arc::default(), id: Env::system().id() }
    }

    pub(super) fn pending(&self) -> &Arc<Pending> {
        &self.pending
    }
}

impl Host for Alone {
    fn show(&self, event: AgentEvent) {
        self.pending.shown.lock().push_back(event);
    }

    fn step<'a>(
        &'a self,
        _: &'a str,
        work: BoxFuture<'a, Result<Json, TurnError>>,
    ) -> BoxFuture<'a, Result<Json, TurnError>> {
        work
    }

    fn ask_model<'a>(
        &'a self,
        work: BoxFuture<'a, Result<Reply, TurnError>>,
    ) -> BoxFuture<'a, Result<Reply, TurnError>> {
        work
    }

    fn use_tool<'a>(
        &'a self,
        _: &'a str,
        work: BoxFuture<'a, Result<Answered, TurnError>>,
    ) -> BoxFuture<'a, Result<Answered, TurnError>> {
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
        self.pending.questions.lock().insert(Arc::clone(call), sender);
        answered(answer).boxed()
    }

    fn approve(&self, call: &Arc<str>, asked: Asked) -> BoxFuture<'_, Result<Permission, TurnError>> {
        let (sender, decision) = oneshot::channel();
        self.pending.permissions.lock().insert(Arc::clone(call), (asked.action, sender));
        answered(decision).boxed()
    }

    fn delegate(&self, _: &str, _: &str, _: Option<Json>) -> BoxFuture<'_, Result<Result<Json, String>, TurnError>> {
        ready(Ok(Err("there is no board here, so there are no other agents".to_owned()))).boxed()
    }

    fn now(&self) -> Option<Duration> {
        None
    }

    fn reserve(&self, _: u64, _: Option<Cost>) -> BoxFuture<'_, Result<Option<Reservation>, TurnError>> {
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
        ToolScope { key: self.key(name), context: None, turn: None, variables: None, trace_parent: None, asker: None }
    }

    fn is_tainted(&self) -> bool {
        false
    }

    fn taint(&self, _: &str) {}

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
    // The sender is kept as long as the loop.
    answer.map(|answer| answer.map_err(|_| TurnError::transient("nobody can answer any more")))
}
