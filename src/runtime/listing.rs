//! Which runs there are.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::messages::{EndedRun, RunId, Timestamp};
use crate::storage::{Listing, StorageError};
use crate::supervision::runs::snapshot::load;

use super::handle::{Board, Callboard};
use super::run_handle::RunHandle;

impl Callboard {
    /// All runs that the store knows, oldest first. It takes as long as there are runs: [`Callboard::ended_runs`] returns pages.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn runs(&self) -> Result<Vec<RunHandle>, StorageError> {
        Ok(self.board.journal.runs().await?.into_iter().map(|run| self.run(run)).collect())
    }

    /// The runs that are not finished, of all boards on the store, without those whose journals are in memory only.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn unfinished_runs(&self) -> Result<Vec<RunHandle>, StorageError> {
        Ok(self.board.journal.open_runs().await?.into_iter().map(|run| self.run(run)).collect())
    }

    /// The runs that this board works on, also those whose journals are in memory only. One that was not acknowledged yet, has
    /// ended just now, or was left to another board may be among them.
    #[must_use]
    pub fn runs_at_work(&self) -> Vec<RunHandle> {
        self.board.rosters.iter().flat_map(|roster| roster.runs()).map(|(run, _)| self.run(run)).collect()
    }

    /// The runs that have ended, those that were submitted last first: at most `limit`, after the run with this time and id. A
    /// page costs the same however many runs the store has; the first of a store that was written by an earlier version reads
    /// all of its runs once. A run that was deleted meanwhile may be listed.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder().agent("coder", |_: Turn| async { Ok(Command::output("done")) }).start().await?;
    /// let run = board.submit(Task::new("x")).await?;
    /// run.result().await?;
    /// let page = board.ended_runs(None, 50).await?;
    /// assert_eq!((page[0].run, &*page[0].outcome), (run.id(), "finished"));
    /// let last = page.last().map(|ended| (ended.submitted_at, ended.run));
    /// assert!(board.ended_runs(last, 50).await?.is_empty());
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// What the store reports.
    pub async fn ended_runs(
        &self,
        after: Option<(Timestamp, RunId)>,
        limit: usize,
    ) -> Result<Vec<EndedRun>, StorageError> {
        self.board.listing.get_or_try_init(|| self.board.complete_list()).await?;
        let mut page = self.board.journal.listed(after, limit).await?;
        page.extend(self.board.memory_runs.iter().flat_map(|runs| runs.page(after, limit)));
        page.sort_by_key(|ended| (Reverse(ended.submitted_at), ended.run));
        // A list that was completed just now may have runs in memory as well.
        page.dedup_by_key(|ended| ended.run);
        page.truncate(limit);
        Ok(page)
    }
}

impl Board {
    /// Completes the list of a store that was written without it. Reads all runs that have ended, once for the store.
    async fn complete_list(&self) -> Result<(), StorageError> {
        if self.journal.has_all_listed().await? {
            return Ok(());
        }
        let open: BTreeSet<RunId> = self.journal.open_runs().await?.into_iter().collect();
        for run in self.journal.runs().await?.into_iter().filter(|run| !open.contains(run)) {
            let fold = match load(&self.journal, run, &self.rules).await {
                Ok(loaded) => loaded.run,
                Err(error @ StorageError::Corrupt { .. }) => {
                    tracing::warn!(%run, %error, "the run cannot be read, and is not listed");
                    continue;
                }
                Err(error) => return Err(error),
            };
            let Some((fold, outcome)) = fold.as_ref().and_then(|fold| Some((fold, fold.result()?.outcome.name())))
            else {
                continue;
            };
            let submission = fold.submission();
            let listing = Listing { submitted_at: submission.at, agent: submission.agent.clone(), outcome };
            self.journal.list(run, &listing).await?;
        }
        self.journal.note_all_listed().await
    }
}
