//! What the store notes about a run that has ended.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};

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

/// How many turns that a run has left at other boards are cancelled at once.
const CANCELLED_AT_ONCE: usize = 64;

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

/// Cancels at other boards; each is `false` if the board cannot do it, or ends before.
type Cancels = Vec<BoxFuture<'static, bool>>;

/// Cancels what turns of an ended run have left at other boards, and removes the note that the run is open. If that cannot be done, the next
/// board does it that finds the note.
fn mark_ended(journal: Journal, run: RunId, cancels: Cancels) -> StorageFuture<()> {
    if cancels.is_empty() {
        return journal.mark_ended(run);
    }
    async move {
        // A person may have the run continue meanwhile, which writes the note anew.
        let Some(noted) = journal.note_of(run).await? else { return Ok(()) };
        let cancels = stream::iter(cancels).buffer_unordered(CANCELLED_AT_ONCE);
        if cancels.fold(true, async |all, is_done| all && is_done).await {
            journal.mark_ended_at(run, noted.revision).await?;
        }
        Ok(())
    }
    .boxed()
}

impl ShardContext {
    /// What is written with the next record of a run: what others asked to have written with it; that it is open, with the first record that is not in memory only; failures
    /// that wait for a person; and with the last record what lists and inboxes have of the run, and that it is open no more. The end
    /// of a run that was read back is noted after it ([`ShardContext::note_end`]): its inboxes have to be read.
    pub(super) fn notes_of_next_record(&self, live: &mut LiveRun, durability: Durability) -> Vec<Rider> {
        let id = live.run.id();
        let mut notes = live.riders.take().map(|riders| *riders).unwrap_or_default();
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
        let (leave, cancels) = (self.leave_conversation(run, durability), self.cancels_elsewhere(run));
        let (journal, run) = (self.journal.clone(), run.id());
        let work = async move {
            if let Some(leave) = leave {
                leave.await;
            }
            mark_ended(journal, run, cancels).await
        };
        spawn_unless_ready(work.boxed(), |_| {});
    }

    /// What cancels the runs that turns of an ended run have left at other boards.
    fn cancels_elsewhere(&self, run: &Run) -> Cancels {
        run.left_elsewhere().map(|left| self.dispatch.cancel_elsewhere(left)).collect()
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
    /// `size` is that of a journal in memory; `None` if it has to be read.
    pub(super) fn note_end(
        self: &Arc<Self>,
        run: &Run,
        durability: Durability,
        (is_noted_open, size): (bool, Option<usize>),
        inboxes: Inboxes,
    ) {
        let Some(listing) = listing_of(run) else { return };
        self.note_failures_again(run.id(), conflict(run).into_iter().collect());
        let leave = self.leave_conversation(run, durability);
        let cancels = self.cancels_elsewhere(run);
        let cancels = if is_noted_open {
            Some(cancels)
        } else {
            // No note says that something is left to do: a run in memory ends with its board.
            cancels.into_iter().for_each(|cancel| drop(tokio::spawn(cancel)));
            None
        };
        let (shared, run, at) = (Arc::clone(self), run.id(), run.last_at());
        let work = match (leave, inboxes, size) {
            (None, Inboxes(Some(inboxes)), Some(size)) => {
                shared.write_end((run, at), cancels, (listing, size), inboxes)
            }
            (leave, Inboxes(inboxes), size) => {
                let work = async move {
                    if let Some(leave) = leave {
                        leave.await;
                    }
                    let inboxes = match inboxes {
                        Some(inboxes) => inboxes,
                        None => shared.inboxes_of(run).await?,
                    };
                    let size = match size {
                        Some(size) => size,
                        // Without its size it still counts as a run.
                        None if cancels.is_none() => answer_of(shared.journal.bytes_of(run)).await.unwrap_or(0),
                        None => 0,
                    };
                    shared.write_end((run, at), cancels, (listing, size), inboxes).await
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

    /// Issues the writes in their order: the note that the run is open, if it has one, is removed at last.
    fn write_end(
        &self,
        (run, at): (RunId, Timestamp),
        cancels: Option<Cancels>,
        (listing, size): (Listing, usize),
        inboxes: Vec<AgentName>,
    ) -> StorageFuture<()> {
        if let Some(cancels) = cancels {
            let (listed, ended) = (self.journal.list(run, &listing), self.journal.note_ended(run, at, &inboxes));
            let marked = mark_ended(self.journal.clone(), run, cancels);
            return async move { listed.await.and(ended.await).and(marked.await) }.boxed();
        }
        let noted = (!inboxes.is_empty()).then(|| self.journal.note_inboxes(run, at, &inboxes));
        let inboxes = (!inboxes.is_empty()).then(|| Box::new((at, inboxes)));
        let mut writes = Vec::from_iter(noted);
        for (run, MemoryRun { inboxes, .. }) in self.memory_runs.add(run, MemoryRun { listing, size, inboxes }) {
            writes.extend(inboxes.map(|inboxes| self.journal.forget_inboxes(run, inboxes.0, &inboxes.1)));
            writes.push(match self.is_shared {
                true => self.journal.forget_memory_run(self.ownership.board(), run),
                false => self.journal.forget(run),
            });
        }
        match writes.pop() {
            None => ready(Ok(())).boxed(),
            Some(only) if writes.is_empty() => only,
            Some(last) => {
                writes.push(last);
                async move { futures::future::try_join_all(writes).await.map(|_| ()) }.boxed()
            }
        }
    }
}
