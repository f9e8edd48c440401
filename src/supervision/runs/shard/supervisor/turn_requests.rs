//! Requests of turns to their runs: each is answered from the turn's records, or becomes events.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::env::Mutant;
use crate::messages::{Consent, RunEvent, Verdict};
use crate::supervision::runs::rules::budget::Share;
use crate::supervision::runs::rules::decide::{self, DecisionContext};
use crate::supervision::runs::rules::expiry;
use crate::supervision::runs::rules::once::{self, Decided};
use crate::supervision::runs::rules::requests::{Attempt, RequestKey, Settled, TurnReply, TurnRequest};
use crate::supervision::runs::rules::run::{Effect, Once, Record};
use crate::supervision::runs::shard::live::{LiveRun, OnCommit};
use crate::supervision::runs::shard::queue::WithRecord;

/// Answers a request of an open turn, or absorbs the event on which its answer depends.
pub(super) fn on_request(
    live: &mut LiveRun,
    key: RequestKey,
    attempt: Attempt,
    is_tainted: bool,
    (request, with_share): (TurnRequest, Option<WithRecord<Share>>),
    reply: Option<oneshot::Sender<TurnReply>>,
    context: &DecisionContext<'_>,
) {
    let RequestKey { turn: number, ordinal } = key;
    let at = context.now.wall;
    if let TurnRequest::Settle(Settled { usage, model, is_of_run }) = request {
        // A call may report after its turn has ended.
        live.absorb(RunEvent::Settled { turn: number, ordinal, usage, at: Some(at), model, is_of_run });
        live.on_commit.extend(reply.map(|reply| OnCommit::Reply(reply, TurnReply::Done)));
        return;
    }
    let Some(turn) = live.run.turn(number).filter(|turn| turn.attempt == attempt) else {
        // What has closed the turn may not be journaled yet.
        live.on_commit.extend(reply.map(|reply| OnCommit::Reply(reply, TurnReply::Gone)));
        return;
    };
    match request {
        TurnRequest::Settle(_) => {}
        TurnRequest::Notice(text) => live.absorb(RunEvent::Noticed { turn: number, text, at }),
        TurnRequest::Summary(text) => live.absorb(RunEvent::Summarized { turn: number, text, at }),
        TurnRequest::Taint(source) => live.absorb(RunEvent::Tainted { turn: number, source, at }),
        TurnRequest::Reserve { tokens, cost, charged, of_agent, continues, is_share } => {
            if let Some((ordinal, share)) = is_share.then(|| live.run.share_left(number)).flatten() {
                let answer = TurnReply::Shared { number: ordinal, is_new: false, share };
                live.on_commit.extend(reply.map(|reply| OnCommit::Reply(reply, answer)));
                return;
            }
            if let Some(ordinal) =
                live.run.budget().left_by_attempt_before(number, tokens).filter(|_| continues && !is_share)
            {
                live.on_commit.extend(reply.map(|reply| OnCommit::Reply(reply, TurnReply::TakenOver(ordinal))));
                return;
            }
            let ordinal = live.run.budget().next_reservation();
            let sub_budget = live.run.branch_of(turn).extras.brief.sub_budget;
            let budget = live.run.budget();
            let share = if is_share { live.run.share_for(turn) } else { Share { tokens, cost } };
            let Share { tokens, cost } = share;
            let answer = budget.check_call(sub_budget, tokens, cost);
            let answer = answer.and_then(|()| budget.check_agent(turn.agent(), of_agent, tokens, cost));
            let verdict = match &answer {
                Ok(()) => Verdict::Admitted(Vec::new()),
                Err(refusal) => Verdict::Refused(refusal.clone()),
            };
            let at = Some(at);
            live.absorb(RunEvent::Reserved { turn: number, ordinal, tokens, verdict, at, cost, charged, is_share });
            if answer.is_ok()
                && let Some(rider) = with_share.and_then(|with_share| (with_share.0)(&share))
            {
                live.riders.get_or_insert_default().push(rider);
            }
            let answer = match answer {
                Ok(()) if is_share => TurnReply::Shared { number: ordinal, is_new: true, share },
                answer => TurnReply::Reserved(answer.map(|()| ordinal).map_err(Box::new)),
            };
            live.on_commit.extend(reply.map(|reply| OnCommit::Reply(reply, answer)));
        }
        TurnRequest::Status { waits } => {
            let mut status = turn.record(ordinal).and_then(Record::delegated);
            if let Some(open) = status.as_mut().filter(|open| waits && open.is_detached && open.answer.is_none()) {
                let (request, workers) = (live.run.request_id(key), live.run.workers_on(key));
                let noted = context.facts.lock().note_late_wait(request, turn.agent(), workers);
                open.answer = noted.err().map(|refusal| Arc::new(Err(refusal)));
            }
            // What is recorded and not committed yet may still be lost.
            live.on_commit.extend(reply.map(|reply| OnCommit::Reply(reply, TurnReply::Status(status.map(Box::new)))));
        }
        TurnRequest::EndWait => {
            if turn.record(ordinal).and_then(Record::delegated).is_some_and(|delegated| delegated.is_detached) {
                context.facts.lock().end_late_wait(live.run.request_id(key), turn.agent());
            }
        }
        request => {
            let is_forgotten = matches!(request, TurnRequest::Delegate(_)) && Mutant::DelegateTwice.is_injected();
            let record = turn.record(ordinal).filter(|_| !is_forgotten);
            let facts = once::Facts {
                at,
                nonce: context.random,
                expires_at: at + expiry::time_for(&live.run.submission().task, &Consent::Ask, context.approval_ttl),
                on_unknown: context.on_unknown,
            };
            match once::decide(key, record, &request, facts) {
                Some(Decided::Changed(difference)) => {
                    if let Some(reply) = reply {
                        let _ = reply.send(TurnReply::Changed(difference));
                    }
                    return;
                }
                Some(Decided::Recorded) => {}
                Some(Decided::Event(event)) => {
                    live.absorb(event);
                }
                None => match record.map(|record| matches_record(record, &request)) {
                    Some(Err(difference)) => {
                        if let Some(reply) = reply {
                            let _ = reply.send(TurnReply::Changed(difference));
                        }
                        return;
                    }
                    Some(Ok(())) if !matches!(request, TurnRequest::FinishStep { .. } | TurnRequest::FailStep(..)) => {}
                    Some(Ok(())) | None => ask(live, key, is_tainted, request, context),
                },
            }
            if let Some(reply) = reply {
                live.waiters.insert(key, reply);
                let is_committed = live.events.is_empty();
                match live.recorded_reply(key) {
                    Some(_) if is_committed => live.reply(key),
                    Some(_) => live.on_commit.push(OnCommit::Effect(Effect::Reply(key))),
                    None => {}
                }
            }
        }
    }
}

/// Decides about a request that is not recorded yet.
fn ask(live: &mut LiveRun, key: RequestKey, is_tainted: bool, request: TurnRequest, context: &DecisionContext<'_>) {
    let RequestKey { turn: number, ordinal } = key;
    let at = context.now.wall;
    let Some(turn) = live.run.turn(number) else { return };
    match request {
        TurnRequest::StartStep(name) => {
            live.absorb(RunEvent::StepStarted { turn: number, ordinal, name, at: Some(at) })
        }
        TurnRequest::FinishStep { name, value, is_tool } => {
            let (turn, at) = (number, Some(at));
            live.absorb(RunEvent::StepFinished { turn, ordinal, name, value, is_tainted, at, is_tool });
        }
        TurnRequest::FailStep(name, failure) => {
            live.absorb(RunEvent::StepFailed { turn: number, ordinal, name, failure, is_tainted, at: Some(at) });
        }
        TurnRequest::Delegate(order) => {
            let event = decide::on_delegation(&live.run, turn, key, order, context);
            live.absorb(event);
        }
        TurnRequest::Ask { question, ttl } => {
            let (turn, nonce) = (number, context.random);
            live.absorb(match ttl {
                None => RunEvent::Asked { turn, ordinal, question, nonce, at },
                Some(ttl) => RunEvent::AskedUntil { turn, ordinal, question, nonce, expires_at: at + ttl, at },
            });
        }
        TurnRequest::Approve { action, each_time, rationale } => {
            let events = decide::on_approval(&live.run, turn, key, action, (each_time, rationale), context);
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
        | TurnRequest::Status { .. }
        | TurnRequest::EndWait
        | TurnRequest::Taint(_)
        | TurnRequest::Notice(_)
        | TurnRequest::Summary(_) => {}
    }
}

/// Whether a repeated request is the one that is recorded under its ordinal.
fn matches_record(record: &Record, request: &TurnRequest) -> Result<(), String> {
    let (is_same, was) = match (record, request) {
        (
            Record::StepStarted { name } | Record::Step { name, .. } | Record::StepFailed { name, .. },
            TurnRequest::StartStep(again)
            | TurnRequest::FinishStep { name: again, .. }
            | TurnRequest::FailStep(again, _),
        ) => (name == again, format!("step {name:?}")),
        (
            Record::Once(Once { intent, .. }),
            TurnRequest::StartStep(again)
            | TurnRequest::FinishStep { name: again, .. }
            | TurnRequest::FailStep(again, _),
        ) => (intent.name == *again, format!("step {:?}", intent.name)),
        (Record::Delegation { order, .. }, TurnRequest::Delegate(again)) => {
            (**order == *again, format!("a delegation to {:?}", order.to))
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
