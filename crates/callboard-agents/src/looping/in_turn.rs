//! The host of a loop in a turn of a board: its results are journaled.

use std::sync::Arc;
use std::time::Duration;

use callboard::actors::{DelegationError, Reservation, Turn, TurnError};
use callboard::messages::{AgentEvent, Authority, Command, Cost, Handoffs, Json, Refusal};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::tool::{Asker, ToolScope};

use super::context::{Answered, Reply};
use super::host::{Asked, Host, Outside, Permission};

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

    fn ask_model<'a>(
        &'a self,
        work: BoxFuture<'a, Result<Reply, TurnError>>,
    ) -> BoxFuture<'a, Result<Reply, TurnError>> {
        self.0.step("model", work).boxed()
    }

    fn use_tool<'a>(
        &'a self,
        name: &'a str,
        work: BoxFuture<'a, Result<Answered, TurnError>>,
    ) -> BoxFuture<'a, Result<Answered, TurnError>> {
        self.0.use_tool(name, work).boxed()
    }

    fn effect<'a>(
        &'a self,
        effect: Outside<'a>,
        work: BoxFuture<'a, Result<Json, TurnError>>,
    ) -> BoxFuture<'a, Result<Option<Json>, TurnError>> {
        let Outside { action, on_unknown, before, reconcile } = effect;
        let outside = self.0.effect(&action.action).target(&action.target).arguments(&action.arguments).of_tool();
        let outside = match on_unknown {
            Some(on_unknown) => outside.on_unknown(on_unknown),
            None => outside,
        };
        outside.noting(before).reconcile(reconcile).run_or_report(work).boxed()
    }

    fn ask(&self, _: &Arc<str>, question: Json) -> BoxFuture<'_, Result<Json, TurnError>> {
        self.0.people().ask(question).boxed()
    }

    fn approve(&self, _: &Arc<str>, asked: Asked) -> BoxFuture<'_, Result<Permission, TurnError>> {
        let Asked { action, each_time, rationale } = asked;
        let people = self.0.people().because(rationale);
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

    fn reserve(&self, tokens: u64, cost: Option<Cost>) -> BoxFuture<'_, Result<Option<Reservation>, TurnError>> {
        self.0.reserve_priced(tokens, cost).map(|reserved| reserved.map(Some)).boxed()
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
        ToolScope {
            key: self.key(name),
            context: Some(self.0.context().clone()),
            turn: Some(self.0.for_programs()),
            variables: None,
            trace_parent: Some(self.0.trace_parent()),
            asker: Some(Asker { agent: self.0.agent().clone(), turn: self.0.id(), is_tainted: self.0.is_tainted() }),
        }
    }

    fn is_tainted(&self) -> bool {
        self.0.is_tainted()
    }

    fn taint(&self, source: &str) {
        self.0.taint(source);
    }

    fn handoffs(&self) -> Handoffs {
        self.0.task().handoffs
    }

    fn check_handoff(&self, command: &Command) -> BoxFuture<'_, Result<Option<Refusal>, TurnError>> {
        self.0.check_handoff(command).boxed()
    }

    fn handed_over(&self) -> Json {
        // The previous agent is passed separately, and models do not need the run's figures.
        let state = self.0.written().to_json();
        let previous = self.0.previous_agent();
        serde_json::json!({ "previous_agent": previous, "state": state }).into()
    }
}
