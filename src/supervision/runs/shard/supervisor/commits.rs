//! Commits: at most one of a run is in flight, and its acknowledgement releases the effects and replies that wait for it.

use std::iter::{from_fn, once};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;

use crate::env::{Mutant, Now};
use crate::messages::{AgentName, Authority, Durability, PlacedTurn, RunId};
use crate::storage::{Journal, Sequence, StorageError};
use crate::supervision::answer_of;
use crate::supervision::runs::rules::rare::Rare;
use crate::supervision::runs::rules::run::{Bounds, Branch, Effect, OpenTurn, Phase};
use crate::supervision::runs::shard::ahead::{Ahead, InFlight};
use crate::supervision::runs::shard::beginning::Beginning;
use crate::supervision::runs::shard::dispatch::{ReadyExtras, ReadyTurn, TurnSink};
use crate::supervision::runs::shard::live::{LiveRun, OnCommit};
use crate::supervision::runs::shard::queue::{RunMessage, ShardMessage};
use crate::supervision::runs::shard::timers::Timer;

use super::messages::apply;
use super::ready_or_spawned::spawn_unless_ready;
use super::recovery::Loading;
use super::refusals::refuse;
use super::shard::{JOURNALED, RunShard};

impl RunShard {
    /// Appends applied events to the journal; effects of an append that is acknowledged at once are performed at once.
    pub(super) fn flush(&mut self, run: RunId, now: Now) {
        let Some(mut live) = self.runs.remove(&run) else { return };
        while let Some(result) = self.append(&mut live) {
            match self.committed(live, result, now) {
                Some(open) => live = open,
                None => return,
            }
        }
        if live.in_flight.is_some() {
            self.begin_ahead(&mut live, now);
        }
        self.runs.insert(run, live);
    }

    /// Begins a commit; `None` if there is nothing to commit, or it is not acknowledged at once.
    fn append(&self, live: &mut LiveRun) -> Option<Result<Sequence, StorageError>> {
        if live.in_flight.is_some() || (live.events.is_empty() && live.on_commit.is_empty()) {
            return None;
        }
        if live.events.is_empty() {
            return Some(Ok(live.last));
        }
        let run = live.run.id();
        live.has_notice = false;
        let asked = std::mem::replace(&mut live.events_durability, Durability::Memory);
        let durability = if Mutant::WriteUnsynced.is_injected() { Durability::Memory } else { asked };
        let riders = self.shared.notes_of_next_record(live, durability);
        live.in_flight =
            Some(InFlight { events: live.events.len() as u32, actions: live.on_commit.len() as u32, looked_at: 0 });
        let record = Journal::record_of(&live.events);
        live.journaled += record.len();
        let mut append = self.shared.journal.append_record((&live.stream, live.last), record, durability, riders);
        let early = Mutant::AcknowledgeEarly.is_injected().then_some(Ok(live.last + 1));
        let result = (&mut append).now_or_never().or(early);
        if result.is_none() {
            let (queue, life) = (Arc::clone(&self.shared.queue), self.life);
            tokio::spawn(async move {
                // Errors and panics are handled by reading the run back from the journal.
                let result = answer_of(append).await;
                queue.enqueue(ShardMessage::Committed { run, life, result }).drain();
            });
        }
        result
    }

    /// Performs what the commit releases and processes the messages that waited for it. `None` if the run leaves memory.
    pub(super) fn committed(
        &mut self,
        mut live: Box<LiveRun>,
        result: Result<Sequence, StorageError>,
        now: Now,
    ) -> Option<Box<LiveRun>> {
        let in_flight = live.in_flight.take();
        match result {
            Ok(last) => live.last = last,
            Err(error) => {
                self.not_committed(live, &error);
                return None;
            }
        }
        // No fault plan injects an error here.
        let _ = self.shared.queue.shard_point(&self.shared.env, JOURNALED);
        // Without an append there were no events, and all actions are due.
        let (committed, actions) = match in_flight {
            Some(InFlight { events, actions, .. }) => (events as usize, actions as usize),
            None => (0, live.on_commit.len()),
        };
        let mut sequence = live.run.sequence() - live.events.len() as u64;
        // What was applied ahead of this commit stays for the next one.
        let is_ahead = live.events.len() > committed;
        let (later_events, later_actions) = match is_ahead {
            true => (live.events.split_off(committed), live.on_commit.split_off(actions)),
            false => Default::default(),
        };
        let mut events = std::mem::replace(&mut live.events, later_events);
        let mut on_commit = std::mem::replace(&mut live.on_commit, later_actions);
        let has_ended = !is_ahead && live.run.result().is_some();
        if has_ended {
            // Callers that are notified of the end find the permit already released.
            self.shared.roster.release_permit(live.run.id());
        }
        for at in 0..committed {
            sequence += 1;
            self.shared.dispatch.journaled(&live.run, sequence, &events[at..], &mut live.inboxes);
        }
        events.clear();
        if on_commit.windows(2).any(|two| two.iter().all(|action| started_by(action).is_some())) {
            self.perform_with_rows(&mut live, on_commit.drain(..), now);
        } else {
            on_commit.drain(..).for_each(|released| self.perform(&mut live, released, now));
        }
        self.buffers.recycle(events, std::mem::take(&mut live.effects), on_commit);
        if has_ended {
            self.ended(live);
            return None;
        }
        if live.cadence.count(committed, &live.run) && !is_ahead {
            self.keep_snapshot(&mut live);
        }
        let context = self.shared.decision_context(now);
        while let Some(next) = live.waiting.front()
            && !live.waits_for_notice(next)
            && let Some(message) = live.waiting.pop_front()
        {
            apply(&mut live, message, &context);
        }
        Some(live)
    }

    /// Stores a snapshot, so that a start reads less, and trims the journal of a run in memory.
    fn keep_snapshot(&self, live: &mut LiveRun) {
        let run = live.run.id();
        let kept = self.shared.journal.keep_snapshot(run, live.cadence.take(live.last, &live.run));
        let trim = live.trim_to(self.shared.memory_turns).map(|up_to| self.shared.journal.trim(run, up_to));
        let work = async move {
            kept.await?;
            match trim {
                Some(trim) => trim.await,
                None => Ok(()),
            }
        };
        spawn_unless_ready(work.boxed(), move |done: Result<(), StorageError>| {
            if let Err(error) = done {
                tracing::warn!(parent: None, %run, %error, "no snapshot was kept; the journal has everything");
            }
        });
    }

    fn ended(&mut self, mut live: Box<LiveRun>) {
        let run = live.run.id();
        // First: a caller that has the result finds the status of the end, and the run among those that have ended.
        self.shared.dispatch.ended(&live.run, &mut live.inboxes);
        if live.is_end_noted {
            self.shared.complete_end(&live.run, live.durability);
        } else {
            let size = live.memory_size();
            self.shared.note_end(&live.run, live.durability, (live.is_noted_open, size), live.inboxes);
        }
        self.shared.roster.remove(run);
        if let Some(result) = live.run.result() {
            live.results.answer(result);
            for message in std::mem::take(&mut live.waiting) {
                match message {
                    RunMessage::Result { reply } => drop(reply.send(Arc::clone(result))),
                    message => refuse(run, message),
                }
            }
        }
        let Self { timers, runs, loading, .. } = self;
        timers.tidy(|run| runs.contains_key(&run) || loading.contains_key(&run));
    }

    /// Handles a failed commit: none of its events counts. A submission is refused; any other run is read back from the journal.
    fn not_committed(&mut self, mut live: Box<LiveRun>, error: &StorageError) {
        let run = live.run.id();
        let is_new = live.last == 0;
        let is_there = matches!(error, StorageError::WrongSequence { .. });
        for dropped in std::mem::take(&mut live.on_commit) {
            match dropped {
                // The caller chose the id of a run that exists: that run is the answer.
                OnCommit::Accepted(ack) if is_there => self.shared.accept_if_there(run, ack),
                OnCommit::Accepted(ack) => drop(ack.send(Err(error.clone().into()))),
                OnCommit::Answered(ack) => drop(ack.send(Err(error.clone().into()))),
                OnCommit::Overwritten(ack) => drop(ack.send(Err(error.clone().into()))),
                OnCommit::Effect(_)
                | OnCommit::Begun(_)
                | OnCommit::Redispatch(_)
                | OnCommit::CloseTurn { .. }
                | OnCommit::WasOpen(..)
                | OnCommit::Recovered(_)
                | OnCommit::Written(_)
                | OnCommit::Reply(..) => {}
            }
        }
        self.shared.facts.lock().forget_run(run);
        if matches!(error, StorageError::Stopped { .. }) {
            (self.shared.on_storage_error)(error);
            live.waiting.into_iter().for_each(|message| refuse(run, message));
        } else if is_new && !error.is_transient() {
            self.shared.roster.remove(run);
            live.waiting.into_iter().for_each(|message| refuse(run, message));
        } else {
            tracing::error!(parent: None, %run, %error, "a commit failed; the run is read back");
            // It is not known whether a submission was journaled: it is read as a run that another process left.
            let is_shared = is_new && live.durability != Durability::Memory;
            if is_shared {
                self.shared.roster.doubt(run);
            }
            self.load(run, Loading { new_process: is_shared, to_end: false }, None);
            let later = self.loading.entry(run).or_default();
            // A record that is too large would be refused again each time.
            let fail =
                matches!(error, StorageError::TooLarge { .. }).then(|| RunMessage::Fail { error: error.to_string() });
            later.extend(fail.into_iter().chain(live.waiting).map(|message| ShardMessage::Run { run, message }));
        }
    }

    /// Performs actions in order. Of turns that start in a row, each agent's are dispatched together.
    fn perform_with_rows(&mut self, live: &mut LiveRun, released: impl Iterator<Item = OnCommit>, now: Now) {
        let mut released = released.peekable();
        while let Some(action) = released.next() {
            match started_by(&action) {
                Some(first) => {
                    let others = from_fn(|| released.next_if(|next| started_by(next).is_some()));
                    let others = others.filter_map(|action| started_by(&action));
                    self.start_row(live, once(first).chain(others), now);
                }
                None => self.perform(live, action, now),
            }
        }
    }

    fn perform(&mut self, live: &mut LiveRun, released: OnCommit, now: Now) {
        let shared = &self.shared;
        match released {
            OnCommit::Accepted(ack) => drop(ack.send(Ok(live.run.id()))),
            OnCommit::Answered(ack) => drop(ack.send(Ok(()))),
            OnCommit::Overwritten(ack) => drop(ack.send(Ok(()))),
            OnCommit::WasOpen(ack, was_open) => drop(ack.send(was_open)),
            OnCommit::Begun(ahead) => ahead.journaled(),
            OnCommit::Recovered(barrier) => drop(barrier),
            OnCommit::Written(is_written) => is_written.store(true, Ordering::Release),
            OnCommit::Reply(waiter, reply) => drop(waiter.send(reply)),
            OnCommit::CloseTurn { turn, agent, waiter, signal, abort } => {
                let id = live.run.turn_id(turn);
                let waiter = waiter.as_ref().map(|(waiter, agent)| (live.run.turn_id(*waiter), agent));
                shared.facts.lock().close(id, &agent, waiter, signal, now.monotonic);
                if !live.waiters.is_empty() {
                    live.waiters.retain(|request, _| request.turn != turn);
                }
                if abort {
                    shared.dispatch.abort(id, &agent);
                }
            }
            OnCommit::Redispatch(turn) => match live.run.turn(turn) {
                // The outcome was enqueued before, if it was not lost, so it is processed first.
                Some(under_way) if shared.dispatch.has_reported(live.run.turn_id(turn), &under_way.agent) => {
                    shared.queue.push(ShardMessage::Redispatch { turn: live.run.turn_id(turn) });
                }
                Some(_) | None => self.redispatch(live, turn, now),
            },
            OnCommit::Effect(effect) => match effect {
                Effect::Start(turn) => self.start_when_admitted(live, turn, now),
                Effect::Retry(turn, at) => {
                    self.timers.add(now.monotonic + at.since(now.wall), Timer::Retry(live.run.id(), turn, at));
                }
                // Those that the end of the run has closed are cancelled before the note is removed that it is open.
                Effect::CancelElsewhere(turn) => {
                    let left = PlacedTurn::run_of(live.run.turn_id(turn));
                    if !live.run.left_elsewhere().any(|run| run == left) {
                        tokio::spawn(shared.dispatch.cancel_elsewhere(left));
                    }
                }
                Effect::ArmDeadline { request, at } => {
                    let timer = Timer::RequestDeadline(live.run.id(), request);
                    self.timers.add(now.monotonic + at.since(now.wall), timer);
                }
                Effect::Reply(request) => live.reply(request),
                Effect::Answered(answered) => shared.dispatch.answered(&live.run, &answered, &mut live.inboxes),
                Effect::RequestApproval(request) => {
                    let request = live.run.request_id(request);
                    if let Some(envelope) = live.run.open_approvals().find(|envelope| envelope.request == request) {
                        shared.dispatch.request_approval(envelope);
                    }
                }
                Effect::WithdrawApproval(approval) => shared.dispatch.withdraw_approval(approval),
                Effect::EnterConversation => self.look_and_wait(live, 0, now),
                Effect::Interrupted(_) => shared.dispatch.interrupted(&live.run),
                // `Close` became `OnCommit::CloseTurn` when its event was applied, and the end is handled by `ended`.
                Effect::Close { .. } | Effect::Ended => {}
            },
        }
    }

    /// Dispatches a turn of a run that was read back, unless its outcome waits.
    pub(super) fn redispatch(&self, live: &mut LiveRun, number: u32, now: Now) {
        if live.run.waits_for_conversation() {
            return;
        }
        let is_outcome = |message: &RunMessage| matches!(message, RunMessage::Outcome { turn, .. } if *turn == number);
        if !live.waiting.iter().any(is_outcome) {
            self.start(live, number, now);
        }
    }

    /// Dispatches a turn, once its agent's breaker admits it. Turns of a plan wait for an open breaker, and so does the first
    /// one of a run that waited in its conversation; any other was admitted with the event that began it.
    pub(super) fn start_when_admitted(&mut self, live: &mut LiveRun, number: u32, now: Now) {
        if let Some((turn, branch)) = self.admitted(live, number, now) {
            self.dispatch(live, (number, turn), (branch, None), now);
        }
    }

    /// As [`start_when_admitted`](Self::start_when_admitted), for several turns. Those of one agent in a row are dispatched together.
    fn start_row(&mut self, live: &LiveRun, numbers: impl Iterator<Item = u32>, now: Now) {
        let mut starting = Starting::of(live, now);
        let mut row = Vec::new();
        for number in numbers {
            let Some((turn, branch)) = self.admitted(live, number, now) else { continue };
            #[allow(clippy::borrowed_box, reason = "the elements of the row are boxes")]
            let agent = row.last().map(|last: &Box<ReadyTurn>| &last.agent);
            if row.len() >= MOST_IN_A_ROW || agent.is_some_and(|agent| *agent != turn.agent) {
                self.shared.dispatch.start_row(std::mem::take(&mut row));
            }
            row.extend(self.ready(&mut starting, (number, turn), (branch, None)));
        }
        if !row.is_empty() {
            self.shared.dispatch.start_row(row);
        }
    }

    /// A turn that may be dispatched now, and its branch; one whose agent's breaker does not admit it is looked at again later.
    fn admitted<'a>(&mut self, live: &'a LiveRun, number: u32, now: Now) -> Option<(&'a OpenTurn, &'a Branch)> {
        if live.run.waits_for_conversation() {
            return None;
        }
        let turn = live.run.turn(number)?;
        let branch = live.run.branch_of(turn);
        match self.admit(live, (number, turn), branch, now) {
            Ok(()) => Some((turn, branch)),
            Err(retry_after) => {
                self.timers.add(now.monotonic + retry_after, Timer::Start(live.run.id(), number));
                None
            }
        }
    }

    /// Asks the breaker of a turn's agent, unless the turn was admitted with its event; the error is how long to wait.
    fn admit(
        &self,
        live: &LiveRun,
        (number, turn): (u32, &OpenTurn),
        branch: &Branch,
        now: Now,
    ) -> Result<(), Duration> {
        let is_first_of_conversation = number == 1 && live.run.conversation().is_some();
        if !is_first_of_conversation && !branch.is_planned() {
            return Ok(());
        }
        self.shared.facts.lock().readmit(live.run.turn_id(number), turn.agent(), now.monotonic)
    }

    /// Dispatches those turns that may begin although the commit that starts them is in flight, or still to come.
    fn begin_ahead(&self, live: &mut LiveRun, now: Now) {
        let last = live.on_commit.len();
        let Some(in_flight) = &mut live.in_flight else { return };
        for at in std::mem::replace(&mut in_flight.looked_at, last as u32) as usize..last {
            let OnCommit::Effect(Effect::Start(number)) = live.on_commit[at] else { continue };
            let Some(turn) = live.run.turn(number).filter(|turn| *turn.phase() == Phase::Leased) else { continue };
            let branch = live.run.branch_of(turn);
            if live.run.waits_for_conversation()
                || !self.shared.dispatch.acts_through_steps(&turn.agent)
                || self.admit(live, (number, turn), branch, now).is_err()
            {
                continue;
            }
            let ahead = Ahead::new(live.run.turn_id(number), turn.agent.clone(), Arc::clone(&self.shared.dispatch));
            self.dispatch(live, (number, turn), (branch, Some(ahead.beginning())), now);
            live.on_commit[at] = OnCommit::Begun(ahead);
        }
    }

    /// Dispatches a turn.
    pub(super) fn start(&self, live: &LiveRun, number: u32, now: Now) {
        if let Some(turn) = live.run.turn(number) {
            self.dispatch(live, (number, turn), (live.run.branch_of(turn), None), now);
        }
    }

    /// Dispatches a leased turn; `beginning` is set if it begins ahead of its commit.
    fn dispatch(
        &self,
        live: &LiveRun,
        turn: (u32, &OpenTurn),
        (branch, beginning): (&Branch, Option<&Arc<Beginning>>),
        now: Now,
    ) {
        if let Some(ready) = self.ready(&mut Starting::of(live, now), turn, (branch, beginning)) {
            self.shared.dispatch.start(ready);
        }
    }

    /// A leased turn as it is dispatched.
    fn ready<'a>(
        &self,
        starting: &mut Starting<'a>,
        (number, turn): (u32, &'a OpenTurn),
        (branch, beginning): (&Branch, Option<&Arc<Beginning>>),
    ) -> Option<Box<ReadyTurn>> {
        if *turn.phase() != Phase::Leased {
            return None;
        }
        let live = starting.live;
        let own = match starting.own {
            Some((agent, own)) if *agent == turn.agent => own,
            Some(_) | None => live.run.own_authority(&turn.agent, &*self.shared.dispatch),
        };
        starting.own = Some((&turn.agent, own));
        let Bounds { authority, deadline } = live.run.bounds_of(branch, own, &*self.shared.dispatch);
        let ready = Box::new(ReadyTurn {
            id: live.run.turn_id(number),
            attempt: turn.attempt,
            agent: turn.agent.clone(),
            is_for_another_board: live.run.is_for_another_board(turn),
            input: turn.input.clone(),
            view: branch.view.clone(),
            figures: turn.figures().cloned(),
            shows_previous_agent: starting.shows_previous_agent,
            chain: branch.chain.clone(),
            previous_agent: branch.previous_agent.clone(),
            authority,
            is_tainted: turn.is_tainted(),
            is_run_tainted: live.run.is_tainted(),
            metrics: live.run.metrics(),
            submission: Arc::clone(live.run.submission()),
            records: Rare::copied(turn.records()),
            durability: live.durability,
            is_recovered: live.is_recovered,
            ready_at: starting.now.monotonic.as_nanos() as u64,
            sink: TurnSink::new(Arc::clone(&self.shared.queue), beginning.cloned()),
            extras: Rare::of(ReadyExtras {
                node: live.run.node_of_branch(branch),
                timeout: live.run.rules_of_branch(branch).and_then(|rules| rules.timeout),
                answers: branch.extras.brief.answers.clone(),
                reference: live.run.reference_of(turn).cloned(),
                deadline,
                made: turn.made.clone(),
                conversation: live.run.conversation_of(turn).cloned(),
            }),
        });
        Some(ready.seen_from_there())
    }
}

/// The most turns of an agent that are dispatched together, for which the scheduler is locked.
const MOST_IN_A_ROW: usize = 64;

/// The turn that an action starts.
fn started_by(action: &OnCommit) -> Option<u32> {
    if let OnCommit::Effect(Effect::Start(turn)) = action { Some(*turn) } else { None }
}

/// What turns that start at once have in common.
struct Starting<'a> {
    live: &'a LiveRun,
    now: Now,
    shows_previous_agent: bool,
    /// The last one's agent, and the authority of that by itself.
    own: Option<(&'a AgentName, Authority)>,
}

impl<'a> Starting<'a> {
    fn of(live: &'a LiveRun, now: Now) -> Self {
        Self { live, now, shows_previous_agent: live.run.shows_previous_agent(), own: None }
    }
}
