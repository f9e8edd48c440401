//! The requests of a process during its turn, and their results.

use callboard::actors::{ContextAccess, ContextError, DelegationError, Reservation, Turn, TurnError};
use callboard::messages::{FailureKind, Intent, Json, OnUnknown};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use super::protocol::{Delegate, Entry, Id, Unmet};

/// The result of a request.
pub(super) enum Reply {
    Value(Json),
    Reserved(Reservation),
    Unmet {
        kind: Unmet,
        error: TurnError,
        output: Option<Json>,
    },
    /// The process has carried out its step, so it knows the result.
    Known,
    /// The turn cannot continue.
    Fatal(TurnError),
}

impl Reply {
    pub(super) fn of(answer: Result<Json, TurnError>) -> Self {
        answer.map_or_else(Self::failed, Self::Value)
    }

    /// The reply about an error: a refusal is sent to the process, any other error ends the turn.
    pub(super) fn failed(error: TurnError) -> Self {
        if !error.kind().is_refusal() {
            return Self::Fatal(error);
        }
        let kind = if error.kind() == FailureKind::Denied { Unmet::Denied } else { Unmet::Refused };
        Self::Unmet { kind, error, output: None }
    }
}

/// A step that the process carries out, once it may begin.
pub(super) async fn step(
    turn: Turn,
    name: String,
    once: Option<(Intent, Option<OnUnknown>)>,
    is_tool: bool,
    id: Id,
    begun: mpsc::Sender<(Id, oneshot::Sender<Json>)>,
) -> Reply {
    let mut has_begun = false;
    let work = async {
        has_begun = true;
        let (done, value) = oneshot::channel();
        // The channel has capacity for all open requests.
        let _ = begun.send((id, done)).await;
        match value.await {
            Ok(value) => Ok::<_, TurnError>(value),
            // The turn has ended, which is not a result of the step.
            Err(_) => std::future::pending().await,
        }
    };
    let done: Result<Option<Json>, TurnError> = match once {
        None if is_tool => turn.use_tool(&name, work).await.map(Some),
        None => turn.step(&name, work).await.map(Some),
        Some((intent, on_unknown)) => {
            let effect = turn.effect_of(intent);
            let effect = if is_tool { effect.of_tool() } else { effect };
            let effect = match on_unknown {
                Some(on_unknown) => effect.on_unknown(on_unknown),
                None => effect,
            };
            effect.run_or_report(work).await
        }
    };
    match done {
        Ok(_) if has_begun => Reply::Known,
        Ok(Some(value)) => Reply::Value(value),
        Ok(None) => {
            let error = TurnError::transient("it may have been done, and its result is not known");
            Reply::Unmet { kind: Unmet::OutcomeUnknown, error, output: None }
        }
        Err(error) => Reply::Fatal(error),
    }
}

pub(super) async fn delegated(turn: Turn, delegate: Delegate) -> Reply {
    let Delegate { to, body, input, tokens, deadline, sees, reference, is_detached } = delegate;
    let mut delegation = turn.delegate(&to, &body).sees(sees);
    if let Some(input) = input {
        delegation = delegation.input(input);
    }
    if let Some(tokens) = tokens {
        delegation = delegation.tokens(tokens);
    }
    if let Some(deadline) = deadline {
        delegation = delegation.deadline(deadline);
    }
    if let Some(reference) = reference {
        delegation = delegation.reference(&reference);
    }
    let answer = if is_detached {
        delegation.detach().await.map(|request| request.to_string().into())
    } else {
        delegation.await
    };
    match answer {
        Ok(answer) => Reply::Value(answer),
        Err(error) => {
            let DelegationError::NotFinished { output, .. } = &error else { return Reply::failed(error.into()) };
            let output = Some(output.clone());
            Reply::Unmet { kind: Unmet::NotFinished, error: error.into(), output }
        }
    }
}

pub(super) async fn of_context(context: &ContextAccess, entry: Entry) -> Reply {
    match asked_of_context(context, entry).await {
        Ok(value) => Reply::Value(value),
        Err(error) => Reply::Unmet { kind: Unmet::Context, error: error.into(), output: None },
    }
}

async fn asked_of_context(context: &ContextAccess, entry: Entry) -> Result<Json, ContextError> {
    let within = |namespace: Option<String>| namespace.unwrap_or_else(|| context.memory());
    let value = match entry {
        Entry::Get { namespace, key } => json!(context.get(&within(namespace), &key).await?),
        Entry::Set { namespace, key, value, ttl, expected } => {
            let namespace = within(namespace);
            json!(match expected {
                Some(expected) => context.compare_and_set(&namespace, &key, expected, &value, ttl).await?,
                None => context.set(&namespace, &key, &value, ttl).await?,
            })
        }
        Entry::Query { namespace, prefix: Some(prefix), limit } => {
            json!(context.query_by_prefix(&within(namespace), &prefix, limit).await?)
        }
        Entry::Query { namespace, prefix: None, limit } => json!(context.query(&within(namespace), limit).await?),
        Entry::Search { namespaces, limit } => {
            let namespaces: Vec<&str> = namespaces.iter().map(String::as_str).collect();
            json!(context.search(&namespaces, limit).await?)
        }
        Entry::Touch { namespace, key, ttl } => json!(context.touch(&within(namespace), &key, ttl).await?),
        Entry::Delete { namespace, key } => json!(context.delete(&within(namespace), &key).await?),
    };
    Ok(value.into())
}
