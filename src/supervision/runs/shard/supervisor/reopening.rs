//! Runs that ended because of concurrent writes, and continue with a person's overwrite.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures::FutureExt;
use tokio::sync::oneshot;

use crate::env::Now;
use crate::messages::{Durability, OpenFailure, RunId, Update};
use crate::supervision::panic_text;
use crate::supervision::runs::rules::errors::OverwriteError;
use crate::supervision::runs::rules::reopen::Conflicted;
use crate::supervision::runs::rules::run::Effect;
use crate::supervision::runs::rules::snapshot;
use crate::supervision::runs::shard::live::{LiveRun, OnCommit};
use crate::supervision::runs::shard::queue::{Reopened, ShardMessage};

use super::memory_runs::MemoryRun;
use super::ready_or_spawned::spawn_unless_ready;
use super::shard::RunShard;

impl RunShard {
    /// Reads a run that has ended; messages for it wait in `loading` until then.
    pub(super) fn reopen(
        &mut self,
        run: RunId,
        update: Update,
        by: Arc<str>,
        ack: oneshot::Sender<Result<(), OverwriteError>>,
    ) {
        self.loading.entry(run).or_default();
        let (shared, life) = (Arc::clone(&self.shared), self.life);
        tokio::spawn(async move {
            let read = async {
                let parts = snapshot::read(&shared.journal, run, &shared.rules).await?;
                let base = parts.base.ok_or(OverwriteError::Unknown)?;
                let conflicted = Conflicted::find(&base, parts.tail)?;
                match conflicted.durability().unwrap_or(shared.durability) {
                    // No other process can have it.
                    Durability::Memory => {}
                    Durability::Buffered | Durability::Sync => shared.ownership.take_ended(run).await?,
                }
                Ok((conflicted, parts.last))
            };
            let read = AssertUnwindSafe(read).catch_unwind().await;
            let read = read.unwrap_or_else(|panic| Err(OverwriteError::CannotGoOn(panic_text(&*panic))));
            let reopened = Box::new(Reopened { read, update, by, ack });
            shared.queue.enqueue(ShardMessage::Reopened { run, life, reopened }).drain();
        });
    }

    /// Takes the run back into memory and applies the event that ended it once more, after the overwrite.
    pub(super) fn reopened(&mut self, run: RunId, reopened: Reopened, now: Now) -> Option<RunId> {
        let Reopened { read, update, by, ack } = reopened;
        let begun = read.and_then(|(conflicted, last)| {
            let context = self.shared.decision_context(now);
            let decided = catch_unwind(AssertUnwindSafe(|| conflicted.overwrite(update, by, &context)));
            let event = decided.unwrap_or_else(|panic| Err(OverwriteError::CannotGoOn(panic_text(&*panic))));
            if event.is_err() {
                // The run stays ended.
                spawn_unless_ready(self.shared.journal.mark_ended(run), |_| {});
            }
            let Conflicted { run, ender, failure } = conflicted;
            let durability = run.submission().task.durability.unwrap_or(self.shared.durability);
            let mut live = Box::new(LiveRun::new(run, last, durability));
            live.is_noted_open = durability != Durability::Memory;
            live.absorb(event?);
            let effects = live.run.step(&ender);
            // The turns that it closed were closed then.
            let is_of_closed = |effect: &Effect| matches!(effect, Effect::Close { .. } | Effect::CancelElsewhere(_));
            let remaining = effects.into_iter().filter(|effect| !is_of_closed(effect));
            live.on_commit.extend(remaining.map(OnCommit::Effect));
            Ok((live, failure))
        });
        match begun {
            Err(error) => drop(ack.send(Err(error))),
            Ok((mut live, OpenFailure { at: ended_at, turn, .. })) => {
                live.on_commit.push(OnCommit::Overwritten(ack));
                let submitted_at = live.run.submission().at;
                match self.shared.memory_runs.remove(run, submitted_at) {
                    Some(MemoryRun { inboxes: Some(inboxes), .. }) => {
                        spawn_unless_ready(self.shared.journal.forget_inboxes(run, inboxes.0, &inboxes.1), |_| {});
                    }
                    Some(MemoryRun { inboxes: None, .. }) => {}
                    None => spawn_unless_ready(self.shared.journal.unlist(run, submitted_at), |_| {}),
                }
                spawn_unless_ready(self.shared.journal.settle_failure(ended_at, turn), |_| {});
                if live.is_noted_open {
                    spawn_unless_ready(self.shared.journal.note_reopened(run, ended_at), |_| {});
                }
                self.shared.roster.resume(run, true);
                self.arm_deadline(&live.run, now);
                self.runs.insert(run, live);
            }
        }
        for message in self.loading.remove(&run).unwrap_or_default() {
            self.process(message, now);
        }
        Some(run)
    }
}
