//! What the store notes about a run that has ended.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};

use crate::messages::{AgentName, Durability, OpenFailure, RunId, Submission, Timestamp};
use crate::storage::{Journal, Listing, Rider, StorageError, StorageFuture};
use crate::supervision::answer_of;
use crate::supervision::runs::rules::failures::{conflict, failed_turns};
use crate::supervision::runs::rules::run::{Effect, Run};
use crate::supervision::runs::shard::dispatch::Inboxes;
use crate::supervision::runs::shard::live::{LiveRun, OnCommit};
use crate::supervision::runs::shard::queue::AtEnd;

use super::context::ShardContext;
use super::memory_runs::MemoryRun;
use super::ready_or_spawned::spawn_unless_ready;

/// What lists have of a run; `None` if it has not ended.
fn listing_of(run: &Run) -> Option<Listing> {
    let Submission { at: submitted_at, agent, .. } = &**run.submission();
    let outcome = run.result()?.outcome.name();
    Some(Listing { submitted_at: *submitted_at, agent: agent.clone(), outcome })
}

/// Whether a run that has ended leaves what is done after its last record: turns at other boards to cancel, messages of a conversation, or
/// a conflict, which is listed unless a person has decided about it. The note that it is open stays until then.
fn leaves_more(run: &Run) -> bool {
    run.conversation().is_some() || run.conflict().is_some() || run.left_elsewhere().next().is_some()
}

async fn is_done(rest: Option<BoxFuture<'static, bool>>) -> bool {
    match rest {
        Some(rest) => rest.await,
        None => true,
    }
}

impl ShardContext {
    /// What is written with the next record of a run: what others asked to have written with it; that it is open, with the first record that is not in memory only; failures
    /// that wait for a person; and with the last record what lists and inboxes have of the run, and that it is open no more. The end
    /// of a run that was read back is noted after it ([`ShardContext::note_end`]): its inboxes have to be read.
    pub(super) fn notes_of_next_record(&self, live: &mut LiveRun, durability: Durability) -> Vec<Rider> {
        let id = live.run.id();
        let mut notes = std::mem::take(&mut live.riders);
        if let Some(result) = live.run.result()
            && let Some(AtEnd { write, is_written }) = live.at_end.take().map(|at_end| *at_end)
            && let Some(rider) = (write.0)(result)
        {
            notes.push(rider);
            live.on_commit.push(OnCommit::Written(is_written));
        }
        if !live.is_noted_open && durability != Durability::Memory {
            live.is_noted_open = true;
            notes.push(Journal::open_note(id, self.ownership.board()));
        } else if !live.is_noted_open && live.last == 0 && self.is_shared {
            notes.push(Journal::memory_note(self.ownership.board(), id));
        }
        notes.extend(failed_turns(live.run.submission(), &live.events).map(|failure| Journal::failure_note(&failure)));
        let LiveRun { run, events, on_commit, inboxes, .. } = live;
        let Some(listing) = listing_of(run).filter(|_| live.is_noted_open) else { return notes };
        self.dispatch.last_inboxes(run, events, inboxes);
        for released in &*on_commit {
            if let OnCommit::Effect(Effect::Answered(answered)) = released {
                inboxes.add(&answered.asker);
            }
        }
        let Inboxes(Some(inboxes)) = inboxes else { return notes };
        live.is_end_noted = true;
        notes.extend(Journal::end_notes(id, run.last_at(), &listing, inboxes));
        if !leaves_more(run) {
            notes.push(Journal::no_open_note(id));
        }
        notes
    }

    /// Does what follows the last record of a run whose end was noted with it.
    pub(super) fn complete_end(&self, run: &Run, durability: Durability) {
        if !leaves_more(run) {
            return;
        }
        self.note_failures_again(run.id(), conflict(run).into_iter().collect());
        let (rest, journal, run) = (self.rest_of_end(run, durability), self.journal.clone(), run.id());
        let work = async move { if is_done(rest).await { journal.mark_ended(run).await } else { Ok(()) } };
        spawn_unless_ready(work.boxed(), |_| {});
    }

    /// Stores the messages of an ended run, and cancels its turns at other boards. `false` if the board ends first: then the next one does
    /// it that finds the note of the run. `None` if there is nothing to do.
    fn rest_of_end(&self, run: &Run, durability: Durability) -> Option<BoxFuture<'static, bool>> {
        let leave = self.leave_conversation(run, durability);
        let cancelled: Vec<_> = run.left_elsewhere().map(|left| self.dispatch.cancel_elsewhere(left)).collect();
        if leave.is_none() && cancelled.is_empty() {
            return None;
        }
        let rest = async move {
            if let Some(leave) = leave {
                leave.await;
            }
            join_all(cancelled).await.into_iter().all(|is_done| is_done)
        };
        Some(rest.boxed())
    }

    /// Lists failures whose notes a crash may have lost, but for those that were decided about.
    pub(super) fn note_failures_again(&self, run: RunId, mut failures: Vec<OpenFailure>) {
        if failures.is_empty() {
            return;
        }
        let journal = self.journal.clone();
        let noted = async move {
            let decided = answer_of(journal.letter_notes(run)).await?;
            failures.retain(|failure| !decided.contains_key(&failure.turn.number));
            futures::future::try_join_all(failures.iter().map(|failure| journal.note_failure(failure))).await
        };
        spawn_unless_ready(noted.boxed(), |_: Result<_, StorageError>| {});
    }

    /// Stores what an ended run leaves in its conversation, in the list of runs and in the index of inboxes, cancels its turns at other
    /// boards, and then removes its open note: a start that finds the note of an ended run does the rest. A run whose journal is in
    /// memory only is listed in memory.
    pub(super) fn note_end(self: &Arc<Self>, run: &Run, durability: Durability, is_noted_open: bool, inboxes: Inboxes) {
        let Some(listing) = listing_of(run) else { return };
        self.note_failures_again(run.id(), conflict(run).into_iter().collect());
        let rest = self.rest_of_end(run, durability);
        let (shared, run, at) = (Arc::clone(self), run.id(), run.last_at());
        let work = match (rest, inboxes) {
            (None, Inboxes(Some(inboxes))) => shared.write_end(run, at, is_noted_open, listing, inboxes, true),
            (rest, Inboxes(inboxes)) => {
                let work = async move {
                    let is_done = is_done(rest).await;
                    let inboxes = match inboxes {
                        Some(inboxes) => inboxes,
                        None => shared.inboxes_of(run).await?,
                    };
                    shared.write_end(run, at, is_noted_open, listing, inboxes, is_done).await
                };
                work.boxed()
            }
        };
        // A lost note costs a read at the next start, or disk space; nothing else.
        spawn_unless_ready(work, |_| {});
    }

    /// The inboxes that have messages of a run that was read back. While the store does not answer it is asked again.
    async fn inboxes_of(&self, run: RunId) -> Result<Vec<AgentName>, StorageError> {
        loop {
            match answer_of(self.dispatch.inboxes_of(run)).await {
                // It is in no inbox.
                Err(StorageError::Corrupt { .. }) => return Ok(Vec::new()),
                Err(error) if error.is_transient() => tokio::time::sleep(Duration::from_secs(1)).await,
                inboxes => return inboxes,
            }
        }
    }

    /// Issues the writes in their order; the note that the run is open is removed if everything is done.
    fn write_end(
        &self,
        run: RunId,
        at: Timestamp,
        is_noted_open: bool,
        listing: Listing,
        inboxes: Vec<AgentName>,
        is_done: bool,
    ) -> StorageFuture<()> {
        if is_noted_open {
            let (listed, ended) = (self.journal.list(run, &listing), self.journal.note_ended(run, at, &inboxes));
            let open = is_done.then(|| self.journal.mark_ended(run));
            let open = async move { if let Some(open) = open { open.await } else { Ok(()) } };
            return async move { listed.await.and(ended.await).and(open.await) }.boxed();
        }
        let noted = (!inboxes.is_empty()).then(|| self.journal.note_inboxes(run, at, &inboxes));
        let inboxes = (!inboxes.is_empty()).then(|| Box::new((at, inboxes)));
        let oldest = self.memory_runs.add(run, MemoryRun { listing, inboxes });
        let mut writes = Vec::from_iter(noted);
        if let Some((run, MemoryRun { inboxes, .. })) = oldest {
            writes.extend(inboxes.map(|inboxes| self.journal.forget_inboxes(run, inboxes.0, &inboxes.1)));
            writes.push(match self.is_shared {
                true => self.journal.forget_memory_run(self.ownership.board(), run),
                false => self.journal.forget(run),
            });
        }
        if writes.is_empty() {
            return ready(Ok(())).boxed();
        }
        async move { futures::future::try_join_all(writes).await.map(|_| ()) }.boxed()
    }
}
