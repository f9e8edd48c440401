//! One use of a tool: as a step that may be repeated, or as an effect that must not be.

use callboard::actors::TurnError;
use callboard::messages::{Action, EffectClass, Intent, Json, Reconciled, ToolCall};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;

use crate::meta::MetaTool;
use crate::tool::{Entry, ToolError, ToolFailure, ToolOutput, ToolScope, ToolSpec};

use super::AgentLoop;
use super::context::{Answered, LoopContext};
use super::host::{Host, Outside};
use super::text::{cut, words};

impl AgentLoop {
    pub(super) fn use_tool<'a>(
        &'a self,
        host: &'a dyn Host,
        context: &Mutex<LoopContext>,
        position: usize,
        call: &ToolCall,
        action: Action,
    ) -> BoxFuture<'a, Result<Answered, TurnError>> {
        let Some(entry) = self.settings.tools.get(&call.name) else {
            return ready(Ok(Answered::error("the tool is gone"))).boxed();
        };
        // Those of the call were checked when it was judged; people may have changed them.
        if action.arguments != call.arguments
            && let Err(error) = entry.check(&action.arguments)
        {
            return ready(Ok(Answered::error(error.0))).boxed();
        }
        let scope = host.scope(&format!("tool-{}-{position}", context.lock().iteration));
        // What a command delegates is a use of `Task`.
        let may_delegate = self.meta_there(host).any(|(tool, _)| *tool == MetaTool::Task);
        let turn = scope.turn.filter(|_| may_delegate);
        let scope = ToolScope { turn, variables: self.settings.grant.variables(), ..scope };
        let (arguments, in_scope) = (action.arguments.clone(), scope.clone());
        let work = async move { tainted(entry, used(host, entry, arguments, in_scope).await) };
        let may_repeat = self.settings.idempotent.contains(&entry.spec.name);
        if may_repeat || entry.class(&action.arguments) != EffectClass::Once {
            return host.use_tool(&entry.spec.name, work.map(Ok).boxed());
        }
        let arguments = action.arguments.clone();
        let before = entry.tool.before(arguments.clone()).boxed();
        let reconcile = move |intent: Intent| async move {
            let found = entry.tool.reconcile(intent, arguments, scope).await;
            Ok(match found.map_err(|error| TurnError::transient(error.0))? {
                Reconciled::Done(output) => Reconciled::Done(kept(&tainted(entry, answered(&entry.spec, output)))?),
                Reconciled::NotDone => Reconciled::NotDone,
                Reconciled::Unknown => Reconciled::Unknown,
            })
        };
        let (on_unknown, reconcile) = (entry.spec.on_unknown, Box::new(|intent| reconcile(intent).boxed()));
        let work = work.map(|answered| kept(&answered)).boxed();
        let done = host.effect(Outside { action, on_unknown, before, reconcile }, work);
        let name = &entry.spec.name;
        async move {
            Ok(match done.await? {
                // A result that a person gives is text or any other value.
                Some(value) => value.parse().unwrap_or_else(|_| Answered::of(words(value.value()))),
                None => Answered::error(format!(
                    "{name} may have run: the work stopped before its result was known; look before you use it again"
                )),
            })
        }
        .boxed()
    }
}

/// An answer, which is untrusted if all of the tool's are.
fn tainted(entry: &Entry, answered: Answered) -> Answered {
    Answered { is_untrusted: answered.is_untrusted || entry.spec.is_untrusted, ..answered }
}

/// An answer in the form that is journaled.
fn kept(answered: &Answered) -> Result<Json, TurnError> {
    Json::of(answered).map_err(|error| TurnError::terminal(error.to_string()))
}

fn answered(spec: &ToolSpec, ToolOutput { text, is_untrusted }: ToolOutput) -> Answered {
    Answered { text: cut(text, spec.max_output).into(), is_error: false, is_untrusted }
}

/// Uses a tool, unless its breaker is open because it repeatedly did not answer in time.
async fn used(host: &dyn Host, entry: &Entry, arguments: Json, scope: ToolScope) -> Answered {
    let ToolSpec { name, timeout, max_output, .. } = &*entry.spec;
    let admitted = match host.now().map(|now| entry.gate.admit(now)).transpose() {
        Ok(admitted) => admitted,
        Err(wait) => {
            let wait = wait.as_secs_f64().ceil();
            return Answered::error(format!(
                "{name} has not answered in time again and again: it may be used again in {wait} s"
            ));
        }
    };
    let answer = tokio::time::timeout(*timeout, entry.tool.call(arguments, scope)).await;
    if let (Some(admitted), Some(now)) = (admitted, host.now()) {
        let has_answered = matches!(answer, Ok(Ok(_) | Err(ToolFailure::Told(_))));
        admitted.end(has_answered, now);
    }
    match answer {
        Ok(Ok(output)) => answered(&entry.spec, output),
        Ok(Err(ToolFailure::Told(ToolError(text)) | ToolFailure::Silent(ToolError(text)))) => {
            Answered::error(cut(text, *max_output))
        }
        Err(_) => Answered::error(format!("{name} took longer than {timeout:?}")),
    }
}
