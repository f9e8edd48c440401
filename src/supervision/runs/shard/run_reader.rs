//! Reads the runs that other boards have left. Those that are wanted while others are read are read together, so that many cost few calls
//! of the store.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use foldhash::HashMap;
use futures::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

use crate::messages::RunId;
use crate::messages::state::StateRules;
use crate::storage::{Journal, Noted, StorageError};
use crate::supervision::answer_of;
use crate::supervision::runs::rules::errors::LoadError;
use crate::supervision::runs::rules::snapshot::{self, Parts};

use super::ownership::Ownership;

/// The most runs that are taken over at the same time, and that are read at once.
const PAGE: usize = 500;

/// The reader of a board, for all of its shards. A cheap clone.
#[derive(Clone)]
pub(crate) struct RunReader(Arc<Shared>);

struct Shared {
    journal: Journal,
    rules: StateRules,
    ownership: Ownership,
    permits: Semaphore,
    /// At most as many as there are permits.
    wanted: Mutex<Wanted>,
}

#[derive(Default)]
struct Wanted {
    runs: Vec<(RunId, oneshot::Sender<Result<FreeRun, LoadError>>)>,
    /// A task reads, and looks for more before it ends.
    is_reading: bool,
}

/// A run that no other board works on.
pub(in crate::supervision::runs) struct FreeRun {
    /// Its note, as it was before its journal was read.
    pub(in crate::supervision::runs) noted: Option<Noted>,
    pub(in crate::supervision::runs) parts: Parts,
}

impl RunReader {
    #[must_use]
    pub(crate) fn new(journal: Journal, rules: StateRules, ownership: Ownership) -> Self {
        let (permits, wanted) = (Semaphore::new(PAGE), Mutex::default());
        Self(Arc::new(Shared { journal, rules, ownership, permits, wanted }))
    }

    /// Waits until fewer than the most runs are being taken over. A run is read and taken while the permit is held.
    pub(in crate::supervision::runs) async fn permit(&self) -> Option<SemaphorePermit<'_>> {
        self.0.permits.acquire().await.ok()
    }

    /// Reads a run.
    ///
    /// # Errors
    /// [`LoadError::Held`] and [`LoadError::NewerFormat`]; what the store reports.
    pub(in crate::supervision::runs) async fn read(&self, run: RunId) -> Result<FreeRun, LoadError> {
        let (sender, read) = oneshot::channel();
        let begins = {
            let mut wanted = self.0.wanted.lock();
            wanted.runs.push((run, sender));
            !std::mem::replace(&mut wanted.is_reading, true)
        };
        if begins {
            let reader = Arc::clone(&self.0);
            tokio::spawn(async move { reader.read_wanted().await });
        }
        let gone = || StorageError::Unavailable { detail: "the reader of runs has ended".to_owned() };
        read.await.unwrap_or_else(|_| Err(gone().into()))
    }
}

impl Shared {
    /// Reads what is wanted, until nothing is.
    async fn read_wanted(&self) {
        loop {
            let page = {
                let mut wanted = self.wanted.lock();
                wanted.is_reading = !wanted.runs.is_empty();
                std::mem::take(&mut wanted.runs)
            };
            if page.is_empty() {
                return;
            }
            let (runs, senders): (Vec<RunId>, Vec<_>) = page.into_iter().unzip();
            let read = self.read_each(&runs).await;
            senders.into_iter().zip(read).for_each(|(sender, read)| drop(sender.send(read)));
        }
    }

    /// Reads several runs together, and one by one if that panics: the panic is of one of them, and holds up no other.
    async fn read_each(&self, runs: &[RunId]) -> Vec<Result<FreeRun, LoadError>> {
        match AssertUnwindSafe(self.read_page(runs)).catch_unwind().await {
            Ok(Ok(read)) => read,
            Ok(Err(error)) => runs.iter().map(|_| Err(error.clone().into())).collect(),
            Err(_) => {
                let mut each = Vec::with_capacity(runs.len());
                for run in runs {
                    match answer_of(self.read_page(std::slice::from_ref(run))).await {
                        Ok(read) => each.extend(read),
                        Err(error) => each.push(Err(error.into())),
                    }
                }
                each
            }
        }
    }

    /// First the notes, then the runs whose boards are gone: nothing is added to these any more.
    async fn read_page(&self, runs: &[RunId]) -> Result<Vec<Result<FreeRun, LoadError>>, StorageError> {
        let mut boards = HashMap::default();
        let mut checked = Vec::with_capacity(runs.len());
        for noted in self.journal.notes_of(runs).await? {
            checked.push(match noted {
                Ok(noted) => self.ownership.check_is_free(noted.as_ref(), &mut boards).await.map(|()| noted),
                Err(error) => Err(error.into()),
            });
        }
        let free: Vec<RunId> =
            runs.iter().zip(&checked).filter(|(_, checked)| checked.is_ok()).map(|(run, _)| *run).collect();
        let mut read = snapshot::read_many(&self.journal, &free, &self.rules).await?.into_iter();
        let missing = || StorageError::Unavailable { detail: "the store has left out a run".to_owned() };
        let run = |checked: Result<Option<Noted>, LoadError>| {
            let noted = checked?;
            Ok(FreeRun { noted, parts: read.next().unwrap_or_else(|| Err(missing()))? })
        };
        Ok(checked.into_iter().map(run).collect())
    }
}
