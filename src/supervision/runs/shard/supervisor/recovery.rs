//! Reading runs back: after a crash of their supervisor, after a failed commit, or from another process.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use tokio::sync::oneshot;

use crate::env::Now;
use crate::messages::{AgentName, Durability, RequestId, RunEvent, RunId, TurnId, Unacknowledged, visible};
use crate::storage::{Losses, StorageError};
use crate::supervision::panic_text;
use crate::supervision::runs::rules::errors::{LoadError, SubmitError};
use crate::supervision::runs::rules::run::{Effect, Phase, Run};
use crate::supervision::runs::rules::snapshot::{self, Loaded, Parts};
use crate::supervision::runs::shard::dispatch::Inboxes;
use crate::supervision::runs::shard::live::{LiveRun, OnCommit};
use crate::supervision::runs::shard::queue::{ReadBack, RecoveryBarrier, ShardMessage};
use crate::supervision::runs::shard::run_reader::FreeRun;
use crate::supervision::runs::shard::timers::Timer;

use super::context::ShardContext;
use super::ready_or_spawned::spawn_unless_ready;
use super::shard::RunShard;

/// How many runs of workflows are looked for at once.
const READ_AT_ONCE: usize = 64;

/// How a run is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loading {
    /// Whether another process left it.
    pub(super) new_process: bool,
    /// Whether it is only to be ended, which needs none of its agents.
    pub(super) to_end: bool,
}

impl RunShard {
    /// Reads a run; messages for it wait in `loading` until then.
    pub(super) fn load(
        &mut self,
        run: RunId,
        Loading { new_process, to_end }: Loading,
        recovery: Option<RecoveryBarrier>,
    ) {
        self.loading.entry(run).or_default();
        let (shared, life) = (Arc::clone(&self.shared), self.life);
        shared.roster.enrol(run);
        tokio::spawn(async move {
            let read = async {
                if new_process {
                    shared.take_over(run, to_end).await
                } else {
                    let parts = snapshot::read(&shared.journal, run, &shared.rules).await?;
                    Ok(ReadBack::of(replayed(parts)?))
                }
            };
            let loaded = match AssertUnwindSafe(read).catch_unwind().await {
                Ok(loaded) => loaded,
                Err(panic) => Err(StorageError::Unavailable { detail: panic_text(&*panic) }.into()),
            };
            shared.queue.enqueue(ShardMessage::Loaded { run, life, new_process, recovery, loaded }).drain();
        });
    }

    /// Takes a run that was read into memory, or quarantines one that could not be read.
    pub(super) fn loaded(
        &mut self,
        run: RunId,
        (new_process, recovery): (bool, Option<RecoveryBarrier>),
        loaded: Result<ReadBack, LoadError>,
        now: Now,
    ) {
        let ReadBack { read, lost, in_workflows } = match loaded {
            Ok(read_back) => read_back,
            // The board ends, and the run is its heir's.
            Err(LoadError::Storage(error @ StorageError::Stopped { .. })) => {
                (self.shared.on_storage_error)(&error);
                return self.shared.roster.remove(run);
            }
            Err(error) => return self.quarantine(run, &error.to_string()),
        };
        let Loaded { run: fold, last, failures } = *read;
        let Some(fold) = fold else {
            // Noted as open, but never journaled: its submission was not acknowledged.
            return self.forget(run);
        };
        // It may have been read again by a person's wish.
        self.shared.quarantine.lock().remove(&run);
        self.shared.note_failures_again(run, failures);
        // Reservations and waits of an earlier life of this actor.
        self.shared.facts.lock().forget_run(run);
        if !new_process {
            let open: Vec<TurnId> = fold.open_turns().map(|turn| fold.turn_id(turn)).collect();
            self.shared.dispatch.abort_all_but(run, &open);
        }
        let durability = fold.submission().task.durability.unwrap_or(self.shared.durability);
        if fold.result().is_some() {
            let mut inboxes = Inboxes(None);
            self.shared.dispatch.ended(&fold, &mut inboxes);
            self.runs.remove(&run);
            self.shared.roster.remove(run);
            let is_noted_open = new_process || durability != Durability::Memory;
            return self.shared.note_end(&fold, durability, (is_noted_open, None), inboxes);
        }
        self.arm_deadline(&fold, now);
        let mut live = Box::new(LiveRun::new(fold, last, durability));
        // If it was not taken over, the failed commit may have been the one with the note.
        (live.is_noted_open, live.is_recovered) = (new_process, true);
        live.absorb(RunEvent::Recovered { at: now.wall, new_process });
        let is_executed = live.run.turns_at_work(now.wall).any(|turn| !in_workflows.contains(&turn));
        let poison = (lost.len() >= Losses::MAX && is_executed).then(|| poison(&lost));
        if let Some(why) = &poison {
            tracing::error!(parent: None, %run, why = &**why, "the run is not executed again until a person has looked at it");
        }
        let open: Vec<u32> = live.run.open_turns().collect();
        for number in open {
            let Some(turn) = live.run.turn(number) else { continue };
            let waiter = live.run.waiter_of(turn.branch);
            self.shared.facts.lock().note_wait(live.run.turn_id(number), &turn.agent, waiter);
            let attention = |why| RunEvent::NeedsAttention { turn: number, has_changed: false, why, at: now.wall };
            match (turn.phase(), &poison) {
                (Phase::Leased | Phase::Backoff { .. }, Some(why)) => live.absorb(attention(Arc::clone(why))),
                (Phase::Leased, None)
                    if new_process
                        && turn.recoveries >= self.shared.max_recoveries
                        && !in_workflows.contains(&number) =>
                {
                    let why = format!("it was under way at {} starts in a row", turn.recoveries);
                    live.absorb(attention(why.into()));
                }
                (Phase::Leased, None) => live.on_commit.push(OnCommit::Redispatch(number)),
                (Phase::Backoff { until }, None) => {
                    live.on_commit.push(OnCommit::Effect(Effect::Retry(number, *until)));
                }
                (Phase::NeedsAttention { .. } | Phase::Interrupted, _) => {}
            }
        }
        let deadlines = live.run.delegation_deadlines().chain(live.run.question_deadlines());
        for (request, at) in deadlines.collect::<Vec<_>>() {
            live.on_commit.push(OnCommit::Effect(Effect::ArmDeadline { request, at }));
        }
        let approvals: Vec<RequestId> = live.run.open_approvals().map(|envelope| envelope.request).collect();
        for request in approvals {
            let effect = Effect::RequestApproval(request.into());
            live.on_commit.push(OnCommit::Effect(effect));
        }
        if live.run.waits_for_conversation() {
            live.on_commit.push(OnCommit::Effect(Effect::EnterConversation));
        }
        live.on_commit.extend(recovery.map(OnCommit::Recovered));
        self.shared.roster.resume(run, new_process);
        self.runs.insert(run, live);
    }

    /// Arms the deadline of a run that was read back.
    pub(super) fn arm_deadline(&mut self, run: &Run, now: Now) {
        let submission = run.submission();
        if let Some(deadline) = submission.task.deadline.map(|deadline| submission.at + deadline) {
            self.timers.add(now.monotonic + deadline.since(now.wall), Timer::Deadline(run.id()));
        }
    }

    fn quarantine(&self, run: RunId, why: &str) {
        tracing::error!(parent: None, %run, why, "run is quarantined; other runs continue");
        self.shared.quarantine.lock().insert(run, why.to_owned());
        self.shared.ownership.forget_left(run);
        self.shared.roster.remove(run);
    }

    /// Removes a run that was never journaled.
    fn forget(&mut self, run: RunId) {
        self.runs.remove(&run);
        self.shared.roster.remove(run);
        spawn_unless_ready(self.shared.journal.mark_ended(run), |_| {});
    }
}

/// Why a run is not executed again after boards have ended with it.
fn poison(lost: &[Arc<str>]) -> Arc<str> {
    let names: Vec<String> = lost.iter().map(|name| visible(&name.chars().take(64).collect::<String>())).collect();
    let names = names.join(", ");
    let text = format!(
        "poison run: the boards {names} ended while they worked on it, one after the other, and it got no further. Find out what \
         ended them; then restart its turns, or cancel it"
    );
    text.into()
}

/// A reducer that panics would panic again: it is not retried.
fn replayed(parts: Parts) -> Result<Loaded, LoadError> {
    catch_unwind(AssertUnwindSafe(|| parts.replay())).map_err(|panic| LoadError::Panicked(panic_text(&*panic)))
}

impl ShardContext {
    /// Reads a run that no other board works on, and makes it this board's.
    async fn take_over(&self, run: RunId, to_end: bool) -> Result<ReadBack, LoadError> {
        let _permit = self.reader.permit().await;
        loop {
            let FreeRun { noted, parts } = self.reader.read(run).await?;
            let loaded = replayed(parts)?;
            if !to_end {
                self.check_hosts(&loaded)?;
            }
            let now = self.env.now().wall;
            let at_work: Vec<u32> = loaded.run.iter().flat_map(|run| run.turns_at_work(now)).collect();
            let has_losses = noted.as_ref().is_some_and(|noted| !noted.note.losses.boards.is_empty());
            let in_workflows = match &loaded.run {
                Some(run) if has_losses || self.is_held_up(run, &at_work) => self.in_workflows(run, &at_work).await?,
                Some(_) | None => BTreeSet::new(),
            };
            let only_waits = !at_work.is_empty() && in_workflows.len() == at_work.len();
            let losses = match only_waits {
                // It did so before as well, as it has got no further since.
                true => Losses::default(),
                false => self.ownership.losses(noted.as_ref(), loaded.last, !at_work.is_empty()),
            };
            let lost = losses.boards.clone();
            // If another board was faster, the run may have got further.
            if self.ownership.take(run, noted.as_ref(), losses).await? {
                return Ok(ReadBack { lost, in_workflows, ..ReadBack::of(loaded) });
            }
        }
    }

    /// Whether one of these turns would need attention after this start.
    fn is_held_up(&self, run: &Run, turns: &[u32]) -> bool {
        let recoveries = turns.iter().filter_map(|turn| run.turn(*turn)).map(|turn| turn.recoveries);
        recoveries.max().is_some_and(|most| most.saturating_add(1) >= self.max_recoveries)
    }

    /// Those of these turns that have begun the run of a workflow: it is executed, and not they.
    async fn in_workflows(&self, run: &Run, turns: &[u32]) -> Result<BTreeSet<u32>, StorageError> {
        let look = |turn: u32| {
            let (journal, child) = (self.journal.clone(), run.turn_id(turn).workflow_run());
            async move { Ok(journal.has(child).await?.then_some(turn)) }.boxed()
        };
        let looks: Vec<BoxFuture<'_, Result<_, StorageError>>> = turns.iter().copied().map(look).collect();
        let begun: Vec<Option<u32>> = stream::iter(looks).buffer_unordered(READ_AT_ONCE).try_collect().await?;
        Ok(begun.into_iter().flatten().collect())
    }

    /// Leaves a run to other boards that has open turns of agents which this one does not have. If it reaches all of them, at boards that live,
    /// it takes the run the next time, unless a board that has them was first.
    fn check_hosts(&self, loaded: &Loaded) -> Result<(), LoadError> {
        let Some(run) = loaded.run.as_ref().filter(|run| run.result().is_none()) else { return Ok(()) };
        let turns = run.open_turns().filter_map(|number| run.turn(number));
        let lacking: Vec<_> = turns.filter(|turn| !self.dispatch.hosts(&turn.agent)).collect();
        // Where no other process has a board, agents that nobody has are waited for here.
        if !self.is_shared && !lacking.iter().any(|turn| self.dispatch.reaches(&turn.agent)) {
            return Ok(());
        }
        let is_reached = lacking.iter().all(|turn| !turn.has_requests() && self.dispatch.reaches_now(&turn.agent));
        let may_take = is_reached && self.ownership.was_left(run.id());
        let agents: BTreeSet<AgentName> = lacking.into_iter().map(|turn| turn.agent.clone()).collect();
        if agents.is_empty() || may_take { Ok(()) } else { Err(LoadError::NotHosted { agents }) }
    }

    /// Acknowledges a submission whose run exists already, here or on another board.
    pub(super) fn accept_if_there(self: &Arc<Self>, run: RunId, ack: oneshot::Sender<Result<RunId, SubmitError>>) {
        let shared = Arc::clone(self);
        let look = async move { shared.journal.has(run).await };
        spawn_unless_ready(look.boxed(), move |there| {
            let _ = ack.send(match there {
                Ok(true) => Ok(run),
                Ok(false) => Err(Unacknowledged::Submission.into()),
                Err(error) => Err(error.into()),
            });
        });
    }
}
