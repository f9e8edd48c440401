//! Ownership of runs. A board works in a session of the store, whose lease it renews, and the note of each of its open runs has the
//! board's id: so a new run costs no claim. A board whose lease has run out is ended by the first other one that finds it, and from
//! then on the store refuses everything that it writes. Its runs are taken over by changing their notes.

use std::collections::BTreeSet;
use std::sync::Arc;

use foldhash::{HashMap, HashSet};
use parking_lot::Mutex;

use crate::messages::{AgentName, BoardInfo, RunId};
use crate::storage::{Journal, SessionId, SessionInfo, StorageError};
use crate::supervision::runs::rules::errors::LoadError;

/// What a board knows of its runs' owners. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct Ownership {
    journal: Journal,
    /// The id of this board, and its session.
    board: Arc<str>,
    session: SessionId,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Boards that have ended, and cannot come back: ids are not used again.
    gone: Mutex<HashSet<Arc<str>>>,
    /// Runs of boards that are gone which this one leaves to others, with the agents that it lacks.
    unplaced: Mutex<HashMap<RunId, BTreeSet<AgentName>>>,
}

impl Ownership {
    /// What the board `board` knows, which works in `session`; its id is unique also among earlier processes.
    #[must_use]
    pub(crate) fn new(journal: Journal, board: Arc<str>, session: SessionId) -> Self {
        Self { journal, board, session, shared: Arc::default() }
    }

    /// The board's id.
    #[must_use]
    pub(crate) fn board(&self) -> &Arc<str> {
        &self.board
    }

    /// The board's session.
    #[must_use]
    pub(crate) fn session(&self) -> SessionId {
        self.session
    }

    /// Waits until nothing that an earlier owner of a run writes can come any more, so that the run may be read and taken.
    ///
    /// # Errors
    /// [`LoadError::Held`] when its board is alive; what the store reports.
    pub(in crate::supervision::runs) async fn check_is_free(&self, run: RunId) -> Result<(), LoadError> {
        match self.journal.owner_of(run).await? {
            Some((owner, _)) => self.check_is_gone(&owner).await,
            None => Ok(()),
        }
    }

    async fn check_is_gone(&self, owner: &Arc<str>) -> Result<(), LoadError> {
        if *owner == self.board || self.shared.gone.lock().contains(owner) {
            return Ok(());
        }
        if let Some(left) = self.journal.lease_of(owner).await? {
            return Err(LoadError::Held { owner: Arc::clone(owner), left });
        }
        self.shared.gone.lock().insert(Arc::clone(owner));
        Ok(())
    }

    /// Makes a run this board's, unless it is that of another board that lives.
    ///
    /// # Errors
    /// As [`Ownership::check_is_free`].
    pub(in crate::supervision::runs) async fn take(&self, run: RunId) -> Result<(), LoadError> {
        loop {
            let taken = match self.journal.owner_of(run).await? {
                Some((owner, _)) if *owner == *self.board => Ok(()),
                Some((owner, revision)) => {
                    self.check_is_gone(&owner).await?;
                    self.journal.take_note(run, &self.board, revision).await
                }
                None => self.journal.mark_open(run, &self.board).await,
            };
            match taken {
                // Another board was faster.
                Err(StorageError::WrongRevision { .. }) => {}
                taken => {
                    self.shared.unplaced.lock().remove(&run);
                    return Ok(taken?);
                }
            }
        }
    }

    /// Whether the run was left to others before.
    pub(in crate::supervision::runs) fn was_left(&self, run: RunId) -> bool {
        self.shared.unplaced.lock().contains_key(&run)
    }

    /// Notes that this board leaves a run to boards that have these agents.
    pub(in crate::supervision::runs) fn leave(&self, run: RunId, agents: BTreeSet<AgentName>) {
        self.shared.unplaced.lock().insert(run, agents);
    }

    /// The open runs whose boards are gone, the oldest first, without those that wait for agents which `reaches` does not know. Ends the
    /// sessions whose leases have run out, and forgets those that have no runs left.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn find_left(&self, reaches: impl Fn(&AgentName) -> bool) -> Result<Vec<RunId>, StorageError> {
        let gone = self.end_expired().await?;
        if gone.is_empty() {
            return Ok(Vec::new());
        }
        let notes = self.journal.open_notes().await?;
        for (id, board) in &gone {
            if !notes.iter().any(|(_, owner)| owner == board) {
                self.journal.discard_mail(board).await?;
                self.journal.storage().forget_session(*id).await?;
            }
        }
        let gone: HashSet<&Arc<str>> = gone.iter().map(|(_, board)| board).collect();
        let unplaced = self.shared.unplaced.lock();
        let is_left = |run: &RunId| unplaced.get(run).is_none_or(|agents| agents.iter().all(&reaches));
        let left = notes.iter().filter(|(run, owner)| gone.contains(owner) && is_left(run));
        Ok(left.map(|(run, _)| *run).collect())
    }

    /// The open runs that no living board owns, the oldest first.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn find_unowned(&self) -> Result<Vec<RunId>, StorageError> {
        self.end_expired().await?;
        let sessions = self.journal.storage().sessions().await?;
        let living = sessions.iter().filter(|session| !session.left.is_zero());
        let living: HashSet<_> = living.filter_map(|session| Some(BoardInfo::read(&session.about)?.id)).collect();
        let notes = self.journal.open_notes().await?;
        Ok(notes.into_iter().filter(|(_, owner)| !living.contains(owner)).map(|(run, _)| run).collect())
    }

    /// Ends the sessions of other boards whose leases have run out; all that have ended and were not forgotten.
    async fn end_expired(&self) -> Result<Vec<(SessionId, Arc<str>)>, StorageError> {
        let mut gone = Vec::new();
        let storage = self.journal.storage();
        for SessionInfo { id, about, left, .. } in storage.sessions().await? {
            if id == self.session || !left.is_zero() {
                continue;
            }
            match storage.end_session(id, true).await {
                Ok(()) => {}
                // It was renewed meanwhile.
                Err(StorageError::SessionLives { .. }) => continue,
                Err(error) => return Err(error),
            }
            let board = BoardInfo::read(&about).unwrap_or_default().id;
            if self.shared.gone.lock().insert(Arc::clone(&board)) {
                tracing::warn!(parent: None, session = id.0, board = &*board, "a board is gone; its runs are taken over");
            }
            gone.push((id, board));
        }
        Ok(gone)
    }
}
