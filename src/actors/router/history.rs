//! Messages of delegations from the journals of their runs: read when an inbox is first opened, the runs that ended last first,
//! and only as far back as that inbox needs.

use std::collections::BTreeMap;

use crate::messages::{RequestId, RunId, Timestamp};
use crate::storage::{Journal, StorageError};

use super::Router;
use super::derive::{Wanted, of_run};
use super::ledger::DelegationStatus;

/// The runs whose journals have not been read for messages yet, with the time of their end, the latest last. Runs that are open,
/// or whose note of the end was lost, come last.
#[derive(Debug)]
pub(super) struct UnreadRuns(Vec<(Timestamp, RunId)>);

impl UnreadRuns {
    async fn list(journal: &Journal) -> Result<Self, StorageError> {
        let ends: BTreeMap<RunId, Timestamp> =
            journal.ended_runs().await?.into_iter().map(|(at, run)| (run, at)).collect();
        let runs = journal.runs().await?;
        let end = |run| (ends.get(&run).copied().unwrap_or(Timestamp::from_millis(u64::MAX)), run);
        let mut unread: Vec<_> = runs.into_iter().map(end).collect();
        unread.sort_unstable();
        Ok(Self(unread))
    }
}

impl Router {
    /// Adds the messages of an agent's inbox from the journals. Each run is read at most once, for all inboxes together.
    ///
    /// # Errors
    /// What the store reports; the next call continues where this one stopped. A run that cannot be read is left out.
    pub(super) async fn recall(&self, agent: &str) -> Result<(), StorageError> {
        let mut unread = self.unread.lock().await;
        let UnreadRuns(runs) = match &mut *unread {
            Some(unread) => unread,
            none => none.insert(UnreadRuns::list(&self.journal).await?),
        };
        self.drain_outbox();
        while let Some((ended, run)) = runs.last().copied() {
            if self.ledger.lock().is_full_since(agent, ended) {
                break;
            }
            match of_run(&self.journal, run, &self.rules, Wanted::Own, |name| self.named(name)).await {
                Ok(messages) => {
                    let mut ledger = self.ledger.lock();
                    messages.into_iter().for_each(|placed| ledger.enter(placed));
                }
                Err(error @ StorageError::Corrupt { .. }) => {
                    tracing::warn!(parent: None, %run, %error, "the run cannot be read; its messages are in no inbox");
                }
                Err(error) => return Err(error),
            }
            runs.pop();
        }
        Ok(())
    }

    /// The status of a delegation that is in no inbox, from its run's journal.
    pub(super) async fn recalled(&self, request: RequestId) -> Result<Option<DelegationStatus>, StorageError> {
        let run = request.turn.run;
        let messages = of_run(&self.journal, run, &self.rules, Wanted::All, |name| self.named(name)).await?;
        Ok(self.limits.last_of(request, &messages, self.env.now().wall))
    }
}
