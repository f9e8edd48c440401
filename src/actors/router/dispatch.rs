//! Carries out the effects of run supervisors.

use std::iter::once;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::actors::turn::StopReason;
use crate::messages::{AgentName, ApprovalId, Envelope, Json, RunEvent, RunId, TurnId};
use crate::storage::StorageError;
use crate::supervision::runs::dispatch::{Dispatch, Inboxes, ReadyTurn};
use crate::supervision::runs::rules::directory::AgentDirectory as _;
use crate::supervision::runs::run::{Answered, Run};

use super::ledger::Placed;
use super::outbox::Entry;
use super::{Router, derive};

impl Dispatch for Router {
    fn start(&self, mut turn: Box<ReadyTurn>) {
        self.add_kept_drafts(&mut turn);
        match self.env.fault_at("turn.dispatch", turn.agent.as_str()) {
            None => self.scheduler.enqueue(once(turn)),
            Some(fault) => {
                self.delayed.lock().insert(turn.id);
                let (scheduler, delayed) = (Arc::clone(&self.scheduler), Arc::clone(&self.delayed));
                fault.deliver(turn, move |turn| {
                    if delayed.lock().contains(&turn.id) {
                        scheduler.enqueue(once(turn));
                    }
                });
            }
        }
    }

    fn start_row(&self, mut turns: Vec<Box<ReadyTurn>>) {
        // Each turn passes its own fault point.
        if self.env.has_faults() {
            return turns.into_iter().for_each(|turn| self.start(turn));
        }
        turns.iter_mut().for_each(|turn| self.add_kept_drafts(turn));
        self.scheduler.enqueue(turns);
    }

    fn abort(&self, turn: TurnId, agent: &AgentName) {
        self.delayed.lock().remove(&turn);
        self.scheduler.stop_turn(turn, agent, StopReason::Cancelled);
    }

    fn has_reported(&self, turn: TurnId, agent: &AgentName) -> bool {
        self.scheduler.has_reported(turn, agent)
    }

    fn abort_all_but(&self, run: RunId, open: &[TurnId]) {
        let is_over = |turn: &TurnId| turn.run == run && !open.contains(turn);
        self.delayed.lock().retain(|turn| !is_over(turn));
        self.scheduler.stop_turns(is_over);
    }

    fn request_approval(&self, envelope: &Envelope) {
        self.decider.request(envelope);
        let _ = self.asked.send(envelope.request.turn.run);
    }

    fn withdraw_approval(&self, approval: ApprovalId) {
        self.decider.withdraw(approval);
    }

    fn interrupted(&self, run: &Run) {
        let _ = self.asked.send(run.id());
    }

    fn journaled(&self, run: &Run, sequence: u64, events: &[RunEvent], inboxes: &mut Inboxes) {
        let Some(event) = events.first() else { return };
        self.counters.count(run, event);
        if may_ask(event) {
            // There may be no receiver.
            let _ = self.asked.send(run.id());
        }
        let plan = run.submission().task.plan.as_deref();
        self.hub.publish((run.id(), plan), sequence, event, || agent_of(run, events));
        derive::of_event(run, sequence, event).for_each(|placed| self.put_in_outbox(placed, inboxes));
        if let RunEvent::Overwritten { .. } = event {
            self.outbox.add(Entry::Continued(run.id()));
        }
    }

    fn last_inboxes(&self, run: &Run, events: &[RunEvent], inboxes: &mut Inboxes) {
        let of_events = events.iter().flat_map(|event| derive::of_event(run, 0, event));
        of_events.chain(derive::of_end(run)).for_each(|placed| inboxes.add(placed.message.owner()));
    }

    fn answered(&self, run: &Run, answered: &Answered, inboxes: &mut Inboxes) {
        self.put_in_outbox(derive::of_answer(run, answered, |name| self.named(name)), inboxes);
    }

    fn ended(&self, run: &Run, inboxes: &mut Inboxes) {
        derive::of_end(run).into_iter().for_each(|placed| self.put_in_outbox(placed, inboxes));
        self.counters.ended(run);
        self.hub.ended(run.id());
    }

    fn cancel_elsewhere(&self, run: RunId) -> BoxFuture<'static, bool> {
        self.scheduler.cancel_elsewhere(run)
    }

    fn inboxes_of(&self, run: RunId) -> BoxFuture<'static, Result<Vec<AgentName>, StorageError>> {
        let (journal, rules) = (self.journal.clone(), self.rules.clone());
        async move { derive::inboxes_of(&journal, run, &rules).await }.boxed()
    }
}

/// Whether a run may begin to wait for a person with this event. Approvals and nodes are reported apart.
fn may_ask(event: &RunEvent) -> bool {
    matches!(
        event,
        RunEvent::Asked { .. }
            | RunEvent::AskedUntil { .. }
            | RunEvent::OutcomeUnknown { .. }
            | RunEvent::NeedsAttention { .. }
            | RunEvent::Recovered { .. }
    )
}

/// The agent of the turn that the first of these events is about. The run may have closed the turn with one of the others.
fn agent_of<'a>(run: &'a Run, events: &'a [RunEvent]) -> Option<&'a AgentName> {
    let event = events.first()?;
    if let RunEvent::Submitted(submission) = event {
        return Some(&submission.agent);
    }
    let number = event.turn()?;
    let ended = events.iter().find_map(|event| match event {
        RunEvent::TurnEnded { turn, agent, .. } | RunEvent::TurnFailed { turn, agent, .. } if *turn == number => {
            Some(agent)
        }
        _ => None,
    });
    ended.or_else(|| run.agent_of(number))
}

impl Router {
    /// A run knows its own dynamic agents; kept ones are known to the board.
    fn add_kept_drafts(&self, turn: &mut ReadyTurn) {
        if turn.extras.made.as_deref().is_some_and(<[Json]>::is_empty)
            && let Some(kept) = self.kept(&turn.agent)
        {
            turn.extras.made = Some(kept.drafts.into());
        }
    }

    /// A message of a delegation; a planned fault may lose, repeat or delay it.
    fn put_in_outbox(&self, message: Placed, inboxes: &mut Inboxes) {
        inboxes.add(message.message.owner());
        match self.env.fault_at("inbox.dispatch", message.message.owner().as_str()) {
            None => self.outbox.add(Entry::Message(message)),
            Some(fault) => {
                let outbox = Arc::clone(&self.outbox);
                fault.deliver(message, move |message| outbox.add(Entry::Message(message)));
            }
        }
    }
}
