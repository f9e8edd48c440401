//! Messages for a run: each becomes events, or is answered at once.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::sync::oneshot;

use crate::env::Mutant;
use crate::messages::{
    Consent, EXPIRY, FailureKind, Intent, Outcome, Pending, PendingId, QuestionId, RequestId, Resolution, RunEvent,
    RunId, Timestamp, TurnId, Verdict,
};
use crate::supervision::panic_text;
use crate::supervision::runs::rules::decide::{self, DecisionContext};
use crate::supervision::runs::rules::errors::{AnswerError, OverwriteError};
use crate::supervision::runs::rules::expiry;
use crate::supervision::runs::rules::once::{self, Decided};
use crate::supervision::runs::rules::requests::TurnOutcome;
use crate::supervision::runs::rules::requests::{TurnReply, TurnRequest};
use crate::supervision::runs::rules::run::{Effect, Once, OnceState, QuestionState, Record, Run};
use crate::supervision::runs::shard::live::{Held, LiveRun};
use crate::supervision::runs::shard::queue::{RunMessage, ShardMessage};

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

fn decide_on(live: &mut LiveRun, message: RunMessage, context: &DecisionContext<'_>) {
    match message {
        RunMessage::Outcome { turn, attempt, is_tainted, outcome } => {
            taint(live, turn, attempt, is_tainted, context);
            on_outcome(live, turn, attempt, outcome, context);
        }
        RunMessage::Request { turn, ordinal, attempt, is_tainted, request, reply } => {
            if !matches!(request, TurnRequest::Taint(_)) {
                taint(live, turn, attempt, is_tainted, context);
            }
            on_request(live, (turn, ordinal), attempt, is_tainted, request, reply, context);
        }
        RunMessage::Answer { turn, ordinal, nonce, answer, by, ack } => {
            let question = QuestionId { request: RequestId { turn: live.run.turn_id(turn), ordinal }, nonce };
            let at = context.now.wall;
            let record = live.run.turn(turn).and_then(|turn| turn.record(ordinal));
            match record {
                Some(
                    Record::Question { nonce: asked, answer: None, .. }
                    | Record::TimedQuestion { nonce: asked, state: QuestionState::Open, .. },
                ) if *asked == nonce => {
                    live.absorb(RunEvent::Answered { turn, ordinal, answer, by, at });
                    live.held.push(Held::Answered(ack));
                }
                Some(Record::TimedQuestion { nonce: asked, expires_at, state: QuestionState::Expired, .. })
                    if *asked == nonce =>
                {
                    drop(ack.send(Err(AnswerError::Expired { id: question.into(), at: *expires_at })));
                }
                Some(Record::Question { nonce: asked, .. } | Record::TimedQuestion { nonce: asked, .. })
                    if *asked == nonce =>
                {
                    drop(ack.send(Err(AnswerError::Answered(question))));
                }
                Some(Record::Once(Once { state: OnceState::Asked(asked), .. })) if asked.nonce == nonce => {
                    match Resolution::of_answer(&answer) {
                        Some(resolution) => {
                            live.absorb(RunEvent::OutcomeResolved { turn, ordinal, resolution, by, at });
                            live.held.push(Held::Answered(ack));
                        }
                        None => drop(ack.send(Err(AnswerError::NotAnOutcome(question)))),
                    }
                }
                _ => drop(ack.send(Err(AnswerError::NotOpen(question.into())))),
            }
        }
        RunMessage::Resume { turn, resume, by, ack } => {
            let turn = live.run.turn_id(turn);
            // Reducers are users' code.
            let decided = catch_unwind(AssertUnwindSafe(|| live.run.resumed(turn, resume, by, context.now.wall)));
            match decided.unwrap_or_else(|panic| Err(AnswerError::Panicked(panic_text(&*panic)))) {
                Ok(event) => {
                    live.absorb(event);
                    live.held.push(Held::Answered(ack));
                }
                Err(error) => drop(ack.send(Err(error))),
            }
        }
        RunMessage::Decide { turn, ordinal, approval, decision } => {
            let request = RequestId { turn: live.run.turn_id(turn), ordinal };
            let open =
                live.run.open_approvals().find(|envelope| envelope.request == request && envelope.id() == approval);
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
        RunMessage::Cancel { reason, ack } => {
            // The run may have ended in the same batch.
            let is_stopped = live.run.result().is_none();
            if is_stopped {
                live.absorb(RunEvent::Stopped { outcome: Outcome::Cancelled { reason }, at: context.now.wall });
            }
            live.held.push(Held::Cancelled(ack, is_stopped));
        }
        RunMessage::Expired { request: None } => live.absorb(decide::on_deadline(context)),
        RunMessage::Expired { request: Some((turn, ordinal)) } => {
            let at = context.now.wall;
            let is_due = |(asker, request, due)| (asker, request) == (turn, ordinal) && due <= at;
            if live.run.delegation_deadlines().any(is_due) {
                live.absorb(RunEvent::DelegationExpired { turn, ordinal, at });
            } else if live.run.question_deadlines().any(is_due) {
                let record = live.run.turn(turn).and_then(|open| open.record(ordinal));
                live.absorb(match record {
                    Some(Record::TimedQuestion { .. }) => RunEvent::QuestionExpired { turn, ordinal, at },
                    _ => {
                        let (resolution, by) = (Resolution::GiveUp, EXPIRY.into());
                        RunEvent::OutcomeResolved { turn, ordinal, resolution, by, at }
                    }
                });
            }
        }
        RunMessage::Fail { error } => {
            live.absorb(RunEvent::Stopped { outcome: Outcome::Failed { error }, at: context.now.wall });
        }
        RunMessage::Restart { turn, ack } => {
            if live.run.turns_that_need_attention().any(|(stuck, _)| stuck.number == turn) {
                live.absorb(RunEvent::TurnRestarted { turn, at: context.now.wall });
                live.held.push(Held::Answered(ack));
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

/// Records a turn's taint before its outcome or request: an earlier record may be lost with a commit.
fn taint(live: &mut LiveRun, turn: u32, attempt: u32, is_tainted: bool, context: &DecisionContext<'_>) {
    let is_news = is_tainted && !live.run.is_tainted();
    if is_news && live.run.turn(turn).is_some_and(|open| open.attempt == attempt) {
        live.absorb(RunEvent::Tainted { turn, source: "what the turn has read".into(), at: context.now.wall });
    }
}

fn on_outcome(live: &mut LiveRun, turn: u32, attempt: u32, outcome: TurnOutcome, context: &DecisionContext<'_>) {
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

fn on_request(
    live: &mut LiveRun,
    (number, ordinal): (u32, u32),
    attempt: u32,
    is_tainted: bool,
    request: TurnRequest,
    reply: Option<oneshot::Sender<TurnReply>>,
    context: &DecisionContext<'_>,
) {
    let at = context.now.wall;
    if let TurnRequest::Settle(usage) = request {
        // A call may report after its turn has ended.
        live.absorb(RunEvent::Settled { turn: number, ordinal, usage, at: Some(at) });
        live.held.extend(reply.map(|reply| Held::Reply(reply, TurnReply::Done)));
        return;
    }
    let Some(turn) = live.run.turn(number).filter(|turn| turn.attempt == attempt) else {
        reply.map(|reply| reply.send(TurnReply::Gone));
        return;
    };
    match request {
        TurnRequest::Settle(_) => {}
        TurnRequest::Notice(text) => live.absorb(RunEvent::Noticed { turn: number, text, at }),
        TurnRequest::Taint(source) => live.absorb(RunEvent::Tainted { turn: number, source, at }),
        TurnRequest::Reserve { tokens, goes_on } => {
            if let Some(ordinal) = live.run.budget().left_by_attempt_before(number, tokens).filter(|_| goes_on) {
                live.held.extend(reply.map(|reply| Held::Reply(reply, TurnReply::TakenOver(ordinal))));
                return;
            }
            let ordinal = live.run.budget().next_reservation();
            let answer = live.run.budget().check(live.run.branch_of(turn).brief.sub_budget, tokens);
            let verdict = match &answer {
                Ok(()) => Verdict::Admitted(Vec::new()),
                Err(refusal) => Verdict::Refused(refusal.clone()),
            };
            live.absorb(RunEvent::Reserved { turn: number, ordinal, tokens, verdict, at: Some(at) });
            let answer = TurnReply::Reserved(answer.map(|()| ordinal));
            live.held.extend(reply.map(|reply| Held::Reply(reply, answer)));
        }
        request => {
            let is_forgotten = matches!(request, TurnRequest::Delegate(_)) && Mutant::DelegateTwice.is_injected();
            let record = turn.record(ordinal).filter(|_| !is_forgotten);
            let facts = once::Facts {
                at,
                nonce: context.random,
                expires_at: at + expiry::time_for(&live.run.submission().task, Consent::Ask, context.approval_ttl),
                on_unknown: context.on_unknown,
            };
            match once::decide((number, ordinal), record, &request, facts) {
                Some(Decided::Changed(difference)) => {
                    reply.map(|reply| reply.send(TurnReply::Changed(difference)));
                    return;
                }
                Some(Decided::Recorded) => {}
                Some(Decided::Event(event)) => {
                    live.absorb(event);
                }
                None => match record.map(|record| matches_record(record, &request)) {
                    Some(Err(difference)) => {
                        reply.map(|reply| reply.send(TurnReply::Changed(difference)));
                        return;
                    }
                    Some(Ok(())) if !matches!(request, TurnRequest::FinishStep(..) | TurnRequest::FailStep(..)) => {}
                    Some(Ok(())) | None => ask(live, (number, ordinal), is_tainted, request, context),
                },
            }
            if let Some(reply) = reply {
                live.waiters.insert((number, ordinal), reply);
                let is_committed = live.events.is_empty();
                match live.recorded_reply(number, ordinal) {
                    Some(_) if is_committed => live.reply(number, ordinal),
                    Some(_) => live.held.push(Held::Effect(Effect::Reply { turn: number, ordinal })),
                    None => {}
                }
            }
        }
    }
}

/// Decides about a request that is not recorded yet.
fn ask(
    live: &mut LiveRun,
    (number, ordinal): (u32, u32),
    is_tainted: bool,
    request: TurnRequest,
    context: &DecisionContext<'_>,
) {
    let at = context.now.wall;
    let Some(turn) = live.run.turn(number) else { return };
    match request {
        TurnRequest::StartStep(name) => {
            live.absorb(RunEvent::StepStarted { turn: number, ordinal, name, at: Some(at) })
        }
        TurnRequest::FinishStep(name, value) => {
            live.absorb(RunEvent::StepFinished { turn: number, ordinal, name, value, is_tainted, at: Some(at) });
        }
        TurnRequest::FailStep(name, failure) => {
            live.absorb(RunEvent::StepFailed { turn: number, ordinal, name, failure, is_tainted, at: Some(at) });
        }
        TurnRequest::Delegate(order) => {
            let event = decide::on_delegation(&live.run, number, turn, ordinal, order, context);
            live.absorb(event);
        }
        TurnRequest::Ask { question, ttl } => {
            let (turn, nonce) = (number, context.random);
            live.absorb(match ttl {
                None => RunEvent::Asked { turn, ordinal, question, nonce, at },
                Some(ttl) => RunEvent::AskedUntil { turn, ordinal, question, nonce, expires_at: at + ttl, at },
            });
        }
        TurnRequest::Approve { action, each_time } => {
            let events = decide::on_approval(&live.run, (number, turn), ordinal, action, each_time, context);
            for event in events {
                live.absorb(event);
            }
        }
        TurnRequest::MakeAgent { name, draft, is_change } => {
            let (made, authority) = decide::on_make(&live.run, turn, &name, &draft, is_change, context);
            live.absorb(RunEvent::AgentMade { turn: number, ordinal, name, draft, is_change, authority, made, at });
        }
        TurnRequest::CheckHandoff(command) => {
            let refusal = decide::on_handoff_check(&live.run, number, turn, &command, context);
            let to = command.goto.targets().cloned().collect();
            live.absorb(RunEvent::HandoffChecked { turn: number, ordinal, to, refusal, at });
        }
        TurnRequest::Intend { .. }
        | TurnRequest::Resolve { .. }
        | TurnRequest::Reserve { .. }
        | TurnRequest::Settle(_)
        | TurnRequest::Taint(_)
        | TurnRequest::Notice(_) => {}
    }
}

/// Whether a repeated request is the one that is recorded under its ordinal.
fn matches_record(record: &Record, request: &TurnRequest) -> Result<(), String> {
    let (is_same, was) = match (record, request) {
        (
            Record::StepStarted { name }
            | Record::Step { name, .. }
            | Record::StepFailed { name, .. }
            | Record::Once(Once { intent: Intent { name, .. }, .. }),
            TurnRequest::StartStep(again) | TurnRequest::FinishStep(again, _) | TurnRequest::FailStep(again, _),
        ) => (name == again, format!("step {name:?}")),
        (Record::Delegation { order, .. }, TurnRequest::Delegate(again)) => {
            (order == again, format!("a delegation to {:?}", order.to))
        }
        (
            Record::Question { question, .. } | Record::TimedQuestion { question, .. },
            TurnRequest::Ask { question: again, .. },
        ) => (question == again, format!("the question {question}")),
        (Record::Approval { envelope, asked, .. }, TurnRequest::Approve { action: again, .. }) => {
            let asked = asked.as_deref().unwrap_or(&envelope.action);
            (asked == again || Mutant::RunUnapproved.is_injected(), format!("consent to {asked}"))
        }
        (
            Record::Made { name, draft, is_change, .. },
            TurnRequest::MakeAgent { name: again, draft: other, is_change: changes },
        ) => ((name, draft, is_change) == (again, other, changes), format!("the agent {name:?}")),
        (Record::HandoffCheck { to, .. }, TurnRequest::CheckHandoff(again)) => {
            (to.iter().eq(again.goto.targets()), format!("whether control may go to {}", to.join(", ")))
        }
        (record, _) => (false, format!("{record:?}").chars().take(80).collect()),
    };
    if is_same { Ok(()) } else { Err(format!("an earlier attempt asked for {was} in this place")) }
}

/// What the run waits for people with, without what has expired, even if no event reports the expiry yet.
pub(super) fn pending(run: &Run, now: Timestamp) -> Vec<Pending> {
    let mut pending = run.pending();
    pending.retain(|open| !open.is_expired(now));
    pending
}

/// Answers a message for a run that is not in memory: it has ended, or never existed.
pub(super) fn refuse(run: RunId, message: RunMessage) {
    let id = |number| TurnId { run, number };
    match message {
        RunMessage::Request { turn, request, reply, .. } => {
            if let TurnRequest::Settle(usage) = request {
                tracing::warn!(parent: None, turn = %id(turn), ?usage, "a call has reported after its run had ended; its reservation stays counted as spent");
            }
            reply.map(|reply| reply.send(TurnReply::Gone));
        }
        RunMessage::Answer { turn, ordinal, nonce, ack, .. } => {
            let question = QuestionId { request: RequestId { turn: id(turn), ordinal }, nonce };
            drop(ack.send(Err(AnswerError::NotOpen(question.into()))));
        }
        RunMessage::Cancel { ack, .. } => drop(ack.send(false)),
        RunMessage::Restart { turn, ack } => drop(ack.send(Err(AnswerError::NotOpen(PendingId::Attention(id(turn)))))),
        RunMessage::Pending { reply } => drop(reply.send(Vec::new())),
        RunMessage::Resume { turn, ack, .. } => drop(ack.send(Err(AnswerError::NotOpen(PendingId::Node(id(turn)))))),
        RunMessage::Overwrite { ack, .. } => drop(ack.send(Err(OverwriteError::NotEnded))),
        // A dropped reply means that the run is not in memory.
        RunMessage::Result { .. }
        | RunMessage::Outcome { .. }
        | RunMessage::Decide { .. }
        | RunMessage::Fail { .. }
        | RunMessage::Expired { .. }
        | RunMessage::ConversationRead { .. } => {}
    }
}

/// Answers a message that was kept for a run which cannot be read. A dropped submission is sent again by its caller.
pub(super) fn refuse_kept(message: ShardMessage) {
    match message {
        ShardMessage::Run { run, message } => refuse(run, message),
        ShardMessage::Submit { .. }
        | ShardMessage::Adopt { .. }
        | ShardMessage::Loaded { .. }
        | ShardMessage::Reopened { .. }
        | ShardMessage::Committed { .. }
        | ShardMessage::Begin { .. }
        | ShardMessage::LookAtConversation { .. }
        | ShardMessage::Pending { .. }
        | ShardMessage::Tick => {}
    }
}
