//! Messages for a run in memory: each becomes events, or is answered at once.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::messages::{
    ApprovalId, Decision, EXPIRY, FailureKind, Json, Outcome, Pending, PendingId, QuestionId, Resolution, RunEvent,
    Timestamp,
};
use crate::supervision::panic_text;
use crate::supervision::runs::rules::decide::{self, DecisionContext};
use crate::supervision::runs::rules::errors::{AnswerError, OverwriteError};
use crate::supervision::runs::rules::requests::{Attempt, RequestKey, TurnOutcome, TurnRequest};
use crate::supervision::runs::rules::run::{Once, OnceState, QuestionState, Record, Run};
use crate::supervision::runs::shard::live::{LiveRun, OnCommit};
use crate::supervision::runs::shard::queue::RunMessage;

use super::turn_requests::on_request;

/// Applies a message to its run: decides, and keeps the events for the next commit.
pub(super) fn apply(live: &mut LiveRun, message: RunMessage, context: &DecisionContext<'_>) {
    let before = live.events.len();
    decide_on(live, message, context);
    for event in &live.events[before..] {
        let waiting = live.run.waits_for_people_after(event);
        if !waiting.is_empty() {
            let mut facts = context.facts.lock();
            waiting.into_iter().for_each(|turn| facts.suspend(live.run.turn_id(turn)));
        }
    }
}

/// The approvals, questions and interrupts of the run, without what has expired, even if no event reports the expiry yet.
pub(super) fn pending(run: &Run, now: Timestamp) -> Vec<Pending> {
    let mut pending = run.pending();
    pending.retain(|open| !open.is_expired(now));
    pending
}

fn decide_on(live: &mut LiveRun, message: RunMessage, context: &DecisionContext<'_>) {
    match message {
        RunMessage::Outcome { turn, attempt, is_tainted, outcome, beginning: _ } => {
            taint(live, turn, attempt, is_tainted, context);
            on_outcome(live, turn, attempt, outcome, context);
        }
        RunMessage::Request { key, attempt, is_tainted, request, reply, with_share, beginning: _ } => {
            if !matches!(request, TurnRequest::Taint(_)) {
                taint(live, key.turn, attempt, is_tainted, context);
            }
            on_request(live, key, attempt, is_tainted, (request, with_share), reply, context);
        }
        RunMessage::Answer { asked, nonce, answer, by, ack } => {
            on_answer(live, asked, nonce, (answer, by), ack, context.now.wall);
        }
        RunMessage::Resume { turn, resume, by, ack } => {
            let turn = live.run.turn_id(turn);
            // Reducers are users' code.
            let decided = catch_unwind(AssertUnwindSafe(|| live.run.resumed(turn, resume, by, context.now.wall)));
            match decided.unwrap_or_else(|panic| Err(AnswerError::Panicked(panic_text(&*panic)))) {
                Ok(event) => {
                    live.absorb(event);
                    live.on_commit.push(OnCommit::Answered(ack));
                }
                Err(error) => drop(ack.send(Err(error))),
            }
        }
        RunMessage::Decide { asked, approval, decision } => on_decision(live, asked, approval, decision, context),
        RunMessage::Cancel { reason, ack } => {
            // The run may have ended in the same batch.
            let is_stopped = live.run.result().is_none();
            if is_stopped {
                live.absorb(RunEvent::Stopped { outcome: Outcome::Cancelled { reason }, at: context.now.wall });
            }
            live.on_commit.push(OnCommit::WasOpen(ack, is_stopped));
        }
        RunMessage::Refer { reference, ack } => {
            let is_open = live.run.result().is_none();
            if is_open {
                live.absorb(RunEvent::ReferenceChanged { reference, at: context.now.wall });
            }
            live.on_commit.push(OnCommit::WasOpen(ack, is_open));
        }
        RunMessage::Expired { request: None } => live.absorb(decide::on_deadline(context)),
        RunMessage::Expired { request: Some(request) } => on_request_deadline(live, request, context.now.wall),
        RunMessage::Fail { error } => {
            live.absorb(RunEvent::Stopped { outcome: Outcome::Failed { error }, at: context.now.wall });
        }
        RunMessage::RestartTurn { turn, ack } => {
            if live.run.turns_that_need_attention().any(|(stuck, _)| stuck.number == turn) {
                live.absorb(RunEvent::TurnRestarted { turn, at: context.now.wall });
                live.on_commit.push(OnCommit::Answered(ack));
            } else {
                drop(ack.send(Err(AnswerError::NotOpen(PendingId::Attention(live.run.turn_id(turn))))));
            }
        }
        RunMessage::Result { reply } => live.results.push(reply),
        RunMessage::Pending { reply } => drop(reply.send(pending(&live.run, context.now.wall))),
        RunMessage::Overwrite { ack, .. } => drop(ack.send(Err(OverwriteError::NotEnded))),
        RunMessage::ConversationRead { read } => {
            if live.run.waits_for_conversation() {
                live.absorb(*read);
            }
        }
    }
}

/// A person answers a question, or states the unknown outcome of an effect.
fn on_answer(
    live: &mut LiveRun,
    asked: RequestKey,
    nonce: u64,
    (answer, by): (Json, Arc<str>),
    ack: oneshot::Sender<Result<(), AnswerError>>,
    at: Timestamp,
) {
    let RequestKey { turn, ordinal } = asked;
    let question = QuestionId { request: live.run.request_id(asked), nonce };
    match live.run.record(asked) {
        Some(
            Record::Question { nonce: asked, answer: None, .. }
            | Record::TimedQuestion { nonce: asked, state: QuestionState::Open, .. },
        ) if *asked == nonce => {
            live.absorb(RunEvent::Answered { turn, ordinal, answer, by, at });
            live.on_commit.push(OnCommit::Answered(ack));
        }
        Some(Record::TimedQuestion { nonce: asked, expires_at, state: QuestionState::Expired, .. })
            if *asked == nonce =>
        {
            drop(ack.send(Err(AnswerError::Expired { id: question.into(), at: *expires_at })));
        }
        Some(Record::Question { nonce: asked, .. } | Record::TimedQuestion { nonce: asked, .. }) if *asked == nonce => {
            drop(ack.send(Err(AnswerError::Answered(question))));
        }
        Some(Record::Once(Once { state: OnceState::Asked(asked), .. })) if asked.nonce == nonce => {
            match Resolution::of_answer(&answer) {
                Some(resolution) => {
                    live.absorb(RunEvent::OutcomeResolved { turn, ordinal, resolution, by, at });
                    live.on_commit.push(OnCommit::Answered(ack));
                }
                None => drop(ack.send(Err(AnswerError::NotAnOutcome(question)))),
            }
        }
        _ => drop(ack.send(Err(AnswerError::NotOpen(question.into())))),
    }
}

/// An approval was decided; nothing happens if it is not open.
fn on_decision(
    live: &mut LiveRun,
    asked: RequestKey,
    approval: ApprovalId,
    decision: Decision,
    context: &DecisionContext<'_>,
) {
    let request = live.run.request_id(asked);
    let open = live.run.open_approvals().find(|envelope| envelope.request == request && envelope.id() == approval);
    let Some(envelope) = open.cloned() else { return };
    if envelope.is_handoff() {
        if let Some(event) = decide::on_parked_decision(&live.run, &envelope, decision, context) {
            live.absorb(event);
        }
    } else {
        for event in decide::on_decision(&envelope, decision, context) {
            live.absorb(event);
        }
    }
}

/// The deadline of a delegation or question has passed; nothing happens if it has its answer, or is due later.
fn on_request_deadline(live: &mut LiveRun, expired: RequestKey, at: Timestamp) {
    let RequestKey { turn, ordinal } = expired;
    let is_due = |(request, due)| request == expired && due <= at;
    if live.run.delegation_deadlines().any(is_due) {
        live.absorb(RunEvent::DelegationExpired { turn, ordinal, at });
    } else if live.run.question_deadlines().any(is_due) {
        live.absorb(match live.run.record(expired) {
            Some(Record::TimedQuestion { .. }) => RunEvent::QuestionExpired { turn, ordinal, at },
            _ => {
                let (resolution, by) = (Resolution::GiveUp, EXPIRY.into());
                RunEvent::OutcomeResolved { turn, ordinal, resolution, by, at }
            }
        });
    }
}

/// Records a turn's taint before its outcome or request: an earlier record may be lost with a commit.
fn taint(live: &mut LiveRun, turn: u32, attempt: Attempt, is_tainted: bool, context: &DecisionContext<'_>) {
    let is_news = is_tainted && !live.run.is_tainted();
    if is_news && live.run.turn(turn).is_some_and(|open| open.attempt == attempt) {
        live.absorb(RunEvent::Tainted { turn, source: "what the turn has read".into(), at: context.now.wall });
    }
}

fn on_outcome(live: &mut LiveRun, turn: u32, attempt: Attempt, outcome: TurnOutcome, context: &DecisionContext<'_>) {
    // Reducers are users' code: one that panics ends its run and nothing else.
    let decided = catch_unwind(AssertUnwindSafe(|| decide::on_outcome(&live.run, turn, attempt, outcome, context)));
    match decided {
        Ok(Some((event, worked_out))) => {
            if let RunEvent::AttemptFailed { failure, .. } | RunEvent::TurnFailed { failure, .. } = &event
                && failure.kind == FailureKind::InvalidCommand
            {
                tracing::warn!(parent: None, run = %live.run.id(), turn, %failure, "command refused");
            }
            for text in decide::likely_misspellings(&live.run, &event) {
                tracing::warn!(run = %live.run.id(), turn, text);
                live.absorb(RunEvent::Noticed { turn, text: text.into(), at: context.now.wall });
            }
            live.absorb_with(event, worked_out);
        }
        Ok(None) => {}
        Err(panic) => {
            let error = format!("a reducer panicked: {}", panic_text(&*panic));
            live.absorb(RunEvent::Stopped { outcome: Outcome::Failed { error }, at: context.now.wall });
        }
    }
}
