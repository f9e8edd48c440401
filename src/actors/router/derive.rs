//! Derives the messages of delegations from a run's events, as they are journaled or later from the journal.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::messages::state::StateRules;
use crate::messages::{
    AgentName, Json, Order, Outcome, Refusal, RequestId, RunEvent, RunId, Status, Submission, Timestamp, Verdict,
};
use crate::storage::{Journal, StorageError};
use crate::supervision::panic_text;
use crate::supervision::runs::run::{Answered, Effect, Run};
use crate::supervision::runs::snapshot::{Past, past};

use super::ledger::{InboxMessage, Placed};

/// The messages of one event, the `sequence`-th of its run.
pub(super) fn of_event(run: &Run, sequence: u64, event: &RunEvent) -> impl Iterator<Item = Placed> {
    let (at, sequence, messages) = match event {
        RunEvent::Submitted(submission) => (submission.at, 1, of_submission(submission)),
        RunEvent::Delegated { turn, ordinal, order, verdict, at } => {
            let request = RequestId { turn: run.turn_id(*turn), ordinal: *ordinal };
            (*at, sequence, requested(run, request, order, verdict, *at))
        }
        RunEvent::Noticed { turn, text, at } => (*at, sequence, [noticed(run, *turn, text, *at), None]),
        _ => (Timestamp::default(), sequence, NONE),
    };
    messages.into_iter().flatten().map(move |message| Placed { at, sequence, message })
}

/// An event has at most two messages.
type Messages = [Option<InboxMessage>; 2];

const NONE: Messages = [None, None];

/// The messages of a task that was delegated from outside.
fn of_submission(submission: &Submission) -> Messages {
    let Some(from_agent) = submission.requester() else { return NONE };
    let Submission { run, trace, task, agent, at, .. } = submission;
    let request_id = RequestId::of_run(*run);
    let request = InboxMessage::Request {
        request_id,
        from_agent: from_agent.clone(),
        to_agent: agent.clone(),
        trace_id: *trace,
        body: Arc::clone(&task.body),
        input: task.input.clone().unwrap_or_else(|| Json::from(&*task.body)),
        reference: task.reference.clone(),
    };
    let ack = InboxMessage::Status {
        request_id,
        from_agent: agent.clone(),
        to_agent: from_agent.clone(),
        status: Status::Ack,
        detail: Arc::default(),
        body: Json::null(),
        at: *at,
    };
    [Some(request), Some(ack)]
}

/// The message about the end of a run that was delegated from outside.
pub(super) fn of_end(run: &Run) -> Option<Placed> {
    let submission = run.submission();
    let (result, to_agent) = (run.result()?, submission.requester()?.clone());
    let (status, detail) = ended(&result.outcome);
    let at = run.last_at();
    let message = InboxMessage::Status {
        request_id: RequestId::of_run(run.id()),
        from_agent: submission.agent.clone(),
        to_agent,
        status,
        detail,
        body: result.output.clone(),
        at,
    };
    Some(Placed { at, sequence: run.sequence(), message })
}

/// The status and the detail of a delegation with this outcome.
fn ended(outcome: &Outcome) -> (Status, Arc<str>) {
    match outcome {
        Outcome::Finished => (Status::Complete, Arc::default()),
        outcome => (Status::Fail, outcome.to_string().into()),
    }
}

/// A delegation was admitted, or refused.
fn requested(run: &Run, request_id: RequestId, order: &Order, verdict: &Verdict, at: Timestamp) -> Messages {
    let Some(asker) = run.turn(request_id.turn.number).map(|turn| turn.agent()) else { return NONE };
    let update = |status, from_agent: &AgentName, detail| InboxMessage::Status {
        request_id,
        from_agent: from_agent.clone(),
        to_agent: asker.clone(),
        status,
        detail,
        body: Json::null(),
        at,
    };
    match verdict {
        Verdict::Admitted(agents) => {
            let Some(to_agent) = agents.first() else { return NONE };
            let request = InboxMessage::Request {
                request_id,
                from_agent: asker.clone(),
                to_agent: to_agent.clone(),
                trace_id: run.submission().trace,
                body: Arc::clone(&order.body),
                input: order.input.clone(),
                reference: order.reference.clone(),
            };
            [Some(request), Some(update(Status::Ack, to_agent, Arc::default()))]
        }
        Verdict::Refused(refusal) => [Some(update(Status::Fail, asker, refusal.to_string().into())), None],
        Verdict::Nothing | Verdict::Parked(_) => NONE,
    }
}

/// A turn reports progress; who delegated to it gets a notice.
fn noticed(run: &Run, turn: u32, text: &Arc<str>, at: Timestamp) -> Option<InboxMessage> {
    let turn = run.turn(turn)?;
    let (request_id, asker) = match run.delegation_of(turn) {
        Some(asked) => asked,
        None => (RequestId::of_run(run.id()), run.submission().requester()?),
    };
    Some(InboxMessage::Status {
        request_id,
        from_agent: turn.agent().clone(),
        to_agent: asker.clone(),
        status: Status::Notice,
        detail: Arc::clone(text),
        body: Json::null(),
        at,
    })
}

/// The message about an answered delegation. `named` resolves a name that an agent wrote.
pub(super) fn of_answer(run: &Run, answered: &Answered, named: impl Fn(&str) -> Option<AgentName>) -> Placed {
    let Answered { request, asker, to, answer, at, sequence } = answered;
    let (status, detail) = ended(&answer.outcome);
    let message = InboxMessage::Status {
        request_id: run.request_id(*request),
        from_agent: named(to).unwrap_or_else(|| asker.clone()),
        to_agent: asker.clone(),
        status,
        detail,
        body: answer.output.clone(),
        at: *at,
    };
    Placed { at: *at, sequence: *sequence, message }
}

/// A selection of a run's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All of them.
    All,
    /// Without those that a fork has copied from another run, which has them in its own journal.
    Own,
}

/// All messages about a run's delegations, from its journal, in the order of the events.
///
/// # Errors
/// What the store reports. A run whose fold panics is reported as corrupt.
pub(super) async fn of_run(
    journal: &Journal,
    run: RunId,
    rules: &StateRules,
    wanted: Wanted,
    named: impl Fn(&str) -> Option<AgentName>,
) -> Result<Vec<Placed>, StorageError> {
    let corrupt = |panic: Box<dyn std::any::Any + Send>| {
        let detail = format!("its replay panicked: {}", panic_text(&*panic));
        StorageError::Corrupt { key: Journal::stream(run), detail }
    };
    // Reading the run begins the first turn of its plan.
    let Some(past) = past(journal, run, rules).await? else { return Ok(Vec::new()) };
    catch_unwind(AssertUnwindSafe(|| replayed(past, wanted, named))).map_err(corrupt)
}

/// The inboxes that have messages of a run.
///
/// # Errors
/// As [`of_run`].
pub(super) async fn inboxes_of(
    journal: &Journal,
    run: RunId,
    rules: &StateRules,
) -> Result<Vec<AgentName>, StorageError> {
    let messages = of_run(journal, run, rules, Wanted::Own, |name| AgentName::new(name).ok()).await?;
    Ok(owners(&messages))
}

/// The inboxes that messages are for.
pub(super) fn owners(messages: &[Placed]) -> Vec<AgentName> {
    let owners: BTreeSet<&AgentName> = messages.iter().map(|placed| placed.message.owner()).collect();
    owners.into_iter().cloned().collect()
}

fn replayed(past: Past, wanted: Wanted, named: impl Fn(&str) -> Option<AgentName>) -> Vec<Placed> {
    let Past { mut run, events, in_first } = past;
    let submitted = RunEvent::Submitted(Arc::clone(run.submission()));
    let mut messages: Vec<Placed> = of_event(&run, 1, &submitted).collect();
    let mut unreached = Vec::new();
    for (number, event) in events.iter().enumerate() {
        let effects = run.step(event);
        if wanted == Wanted::Own && number < in_first {
            continue;
        }
        messages.extend(of_event(&run, run.sequence(), event));
        for effect in &effects {
            if let Effect::Answered(answered) = effect {
                unreached
                    .extend(offline(&answered.answer.outcome).map(|agent| (run.request_id(answered.request), agent)));
                messages.push(of_answer(&run, answered, &named));
            }
            if let Effect::Ended = effect {
                let outcome = run.result().map(|result| &result.outcome);
                unreached.extend(outcome.and_then(offline).map(|agent| (RequestId::of_run(run.id()), agent)));
                messages.extend(of_end(&run));
            }
        }
    }
    if !unreached.is_empty() {
        let noticed: BTreeSet<RequestId> = messages.iter().filter_map(noticed_of).collect();
        unreached.retain(|(request, _)| !noticed.contains(request));
        let is_unreached = |placed: &Placed| {
            let by = placed.acknowledged_by().cloned();
            by.is_some_and(|by| unreached.contains(&(placed.message.request_id(), by)))
        };
        messages.retain(|placed| !is_unreached(placed));
    }
    messages
}

/// The agent that was away until its turn was refused: it has not acknowledged it.
fn offline(outcome: &Outcome) -> Option<AgentName> {
    match outcome {
        Outcome::Refused(Refusal::Unavailable { agent, .. }) => Some(agent.clone()),
        _ => None,
    }
}

fn noticed_of(placed: &Placed) -> Option<RequestId> {
    match &placed.message {
        InboxMessage::Status { status: Status::Notice, request_id, .. } => Some(*request_id),
        InboxMessage::Status { .. } | InboxMessage::Request { .. } => None,
    }
}
