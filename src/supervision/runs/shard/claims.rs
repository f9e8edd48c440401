//! Ownership of runs. A board claims its own name and renews that claim, and the note of each of its runs holds the name: so
//! a new run costs no claim, and a board that starts later leaves the runs of a board that is alive alone. A run is claimed
//! by itself only while its ownership is transferred, which raises its fence.

use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;

use crate::messages::RunId;
use crate::storage::{Fence, Journal, Storage, StorageError};
use crate::supervision::answer_of;

/// The time after which an unrenewed claim expires.
const CLAIM_SECS: u64 = 60;

/// The interval at which a board renews its claim: two attempts may fail before it is lost.
pub(crate) const RENEW_EVERY: Duration = Duration::from_secs(20);

/// A board's claims. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct Claims {
    storage: Arc<dyn Storage>,
    journal: Journal,
    owner: Arc<str>,
    /// Takeovers in progress, by run: concurrent callers share one.
    taking: Arc<Mutex<HashMap<RunId, Taking>>>,
}

type Taking = Shared<BoxFuture<'static, Result<Fence, StorageError>>>;

impl Claims {
    /// The claims of the board named `owner`; the name is unique, also among earlier processes.
    #[must_use]
    pub(crate) fn new(storage: Arc<dyn Storage>, journal: Journal, owner: &str) -> Self {
        Self { storage, journal, owner: owner.into(), taking: Arc::default() }
    }

    /// The board's name.
    #[must_use]
    pub(crate) fn owner(&self) -> &Arc<str> {
        &self.owner
    }

    /// Claims the board's name.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn hold(&self) -> Result<Fence, StorageError> {
        self.storage.claim(&Journal::board(&self.owner), &self.owner, CLAIM_SECS).await
    }

    /// Renews that claim. A lost claim is acquired again: runs that other boards took over meanwhile are fenced.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn renew(&self, fence: Fence) -> Result<Fence, StorageError> {
        match self.storage.renew(&Journal::board(&self.owner), fence, CLAIM_SECS).await {
            Ok(()) => Ok(fence),
            Err(StorageError::Fenced { .. }) => self.hold().await,
            Err(error) => Err(error),
        }
    }

    /// Releases the claim when the board ends: others may take its runs at once.
    pub(crate) async fn release(&self, fence: Fence) {
        // An unreleased claim expires by itself.
        let _ = self.storage.release(&Journal::board(&self.owner), fence).await;
    }

    /// Takes a run over from its board, if that is gone. What that board still writes is refused from now on. Callers that
    /// ask during a takeover get the same fence: a second, later one would lock out the run's own writes.
    ///
    /// # Errors
    /// [`StorageError::Held`] when its board is alive, or another board is taking it over; what the store reports.
    pub(in crate::supervision::runs) fn take_over(
        &self,
        run: RunId,
    ) -> impl Future<Output = Result<Fence, StorageError>> + use<> {
        let taking = Arc::downgrade(&self.taking);
        let begin = || {
            let claims = Self { taking: Arc::default(), ..self.clone() };
            let taken = async move {
                let taken = answer_of(claims.take(run)).await;
                if let Some(taking) = taking.upgrade() {
                    taking.lock().remove(&run);
                }
                taken
            };
            taken.boxed().shared()
        };
        self.taking.lock().entry(run).or_insert_with(begin).clone()
    }

    async fn take(&self, run: RunId) -> Result<Fence, StorageError> {
        while let Some((owner, revision)) =
            self.journal.owner_of(run).await?.filter(|(owner, _)| **owner != *self.owner)
        {
            let board = Journal::board(&owner);
            let fence = self.storage.claim(&board, &self.owner, CLAIM_SECS).await?;
            // Another run supervisor may have claimed it again and released it.
            let _ = self.storage.release(&board, fence).await;
            match self.journal.take_note(run, &self.owner, revision).await {
                // Another board was faster, and is alive.
                Err(StorageError::WrongRevision { .. }) => {}
                taken => {
                    taken?;
                    break;
                }
            }
        }
        let stream = Journal::stream(run);
        let fence = self.storage.claim(&stream, &self.owner, CLAIM_SECS).await?;
        self.journal.mark_open(run, &self.owner).await?;
        self.storage.release(&stream, fence).await?;
        Ok(fence)
    }
}
