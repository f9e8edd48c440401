//! The host of a loop in a turn of a board: its results are journaled.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callboard::actors::{DelegationError, Reservation, Turn, TurnError};
use callboard::messages::{AgentEvent, Authority, Command, Cost, Handoffs, Json, Refusal, TraceParent};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::tool::{Asker, ToolScope};

use super::context::{Answered, Reply};
use super::host::{Asked, Host, Outside, Permission};

/// A turn of a board.
pub(super) struct InTurn<'t> {
    turn: &'t Turn,
    /// The turn's id, which is needed for each request and each use of a tool.
    id: OnceLock<Box<str>>,
    /// Needed for each use of a tool. Boxed, because an agent has room for it while it waits for its model.
    trace_parent: OnceLock<Box<TraceParent>>,
}

impl<'t> InTurn<'t> {
    pub(super) fn new(turn: &'t Turn) -> Self {
        Self { turn, id: OnceLock::new(), trace_parent: OnceLock::new() }
    }

    fn id(&self) -> &str {
        self.id.get_or_init(|| self.turn.id().to_string().into())
    }

    fn trace_parent(&self) -> &TraceParent {
        self.trace_parent.get_or_init(|| Box::new(self.turn.trace_parent()))
    }
}

impl Host for InTurn<'_> {
    fn show(&self, event: AgentEvent) {
        self.turn.show(event);
    }

    fn step<'a>(
        &'a self,
        name: &'a str,
        work: BoxFuture<'a, Result<Json, TurnError>>,
    ) -> BoxFuture<'a, Result<Json, TurnError>> {
        self.turn.step(name, work).boxed()
    }

    fn ask_model<'a>(
        &'a self,
        work: BoxFuture<'a, Result<Reply, TurnError>>,
    ) -> BoxFuture<'a, Result<Reply, TurnError>> {
        self.turn.step("model", work).boxed()
    }

    fn use_tool<'a>(
        &'a self,
        name: &'a str,
        work: BoxFuture<'a, Result<Answered, TurnError>>,
    ) -> BoxFuture<'a, Result<Answered, TurnError>> {
        self.turn.use_tool(name, work).boxed()
    }

    fn effect<'a>(
        &'a self,
        effect: Outside<'a>,
        work: BoxFuture<'a, Result<Json, TurnError>>,
    ) -> BoxFuture<'a, Result<Option<Json>, TurnError>> {
        let Outside { action, on_unknown, before, reconcile } = effect;
        let outside = self.turn.effect(&action.action).target(&action.target).arguments(&action.arguments).of_tool();
        let outside = match on_unknown {
            Some(on_unknown) => outside.on_unknown(on_unknown),
            None => outside,
        };
        outside.noting(before).reconcile(reconcile).run_or_report(work).boxed()
    }

    fn ask(&self, _: &Arc<str>, question: Json) -> BoxFuture<'_, Result<Json, TurnError>> {
        self.turn.people().ask(question).boxed()
    }

    fn approve(&self, _: &Arc<str>, asked: Asked) -> BoxFuture<'_, Result<Permission, TurnError>> {
        let Asked { action, each_time, rationale } = asked;
        let people = self.turn.people().because(rationale);
        let asked = if each_time { people.approve_each_time(action).boxed() } else { people.approve(action).boxed() };
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
        let delegation = self.turn.delegate(to, task);
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
        Some(self.turn.now())
    }

    fn reserve(&self, tokens: u64, cost: Option<Cost>) -> BoxFuture<'_, Result<Option<Reservation>, TurnError>> {
        self.turn.reserve_priced(tokens, cost).map(|reserved| reserved.map(Some)).boxed()
    }

    fn make_agent(
        &self,
        name: &str,
        draft: Json,
        is_change: bool,
    ) -> BoxFuture<'_, Result<Result<(), String>, TurnError>> {
        let made = if is_change {
            self.turn.agents().change(name, draft).boxed()
        } else {
            self.turn.agents().make(name, draft).boxed()
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
        let kept = self.turn.agents().keep(name, draft);
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
        self.turn.authority()
    }

    fn key(&self, name: &str) -> Arc<str> {
        [self.id(), "/", name].concat().into()
    }

    fn scope(&self, name: &str) -> ToolScope {
        ToolScope {
            key: self.key(name),
            context: Some(self.turn.context().clone()),
            turn: Some(self.turn.for_programs()),
            variables: None,
            trace_parent: Some(self.trace_parent().clone()),
            asker: Some(Asker {
                agent: self.turn.agent().clone(),
                turn: self.turn.id(),
                is_tainted: self.turn.is_tainted(),
            }),
        }
    }

    fn is_tainted(&self) -> bool {
        self.turn.is_tainted()
    }

    fn taint(&self, source: &str) {
        self.turn.taint(source);
    }

    fn handoffs(&self) -> Handoffs {
        self.turn.task().handoffs
    }

    fn check_handoff(&self, command: &Command) -> BoxFuture<'_, Result<Option<Refusal>, TurnError>> {
        self.turn.check_handoff(command).boxed()
    }

    fn handed_over(&self) -> Json {
        // The previous agent is passed separately, and models do not need the run's figures.
        let state = self.turn.written().to_json();
        let previous = self.turn.previous_agent();
        serde_json::json!({ "previous_agent": previous, "state": state }).into()
    }
}
