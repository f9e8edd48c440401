//! Ownership of runs. A board works in a session of the store, whose lease it renews, and the note of each of its open runs has the
//! board's id: so a new run costs no claim. A board whose lease has run out is ended by the first other one that finds it, and from
//! then on the store refuses everything that it writes. Its runs are taken over by changing their notes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foldhash::{HashMap, HashSet};
use parking_lot::Mutex;

use crate::messages::{AgentName, BoardInfo, RunId};
use crate::storage::{self, Journal, Losses, Noted, OpenNote, SessionId, SessionInfo, StorageError};
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
    /// Boards that have ended, and cannot come back: ids are not used again. One whose lease ran out has its name here.
    gone: Mutex<HashMap<Arc<str>, Option<Arc<str>>>>,
    /// The runs of each session that has ended, with the boards in their notes, from one look at all notes after its end: later there are
    /// only fewer.
    left: Mutex<BTreeMap<SessionId, BTreeMap<RunId, Arc<str>>>>,
    /// The board is being shut down.
    is_leaving: AtomicBool,
    /// Runs of boards that are gone which this one leaves to others, with the agents that it lacks; none if it cannot read them.
    unplaced: Mutex<HashMap<RunId, BTreeSet<AgentName>>>,
}

/// A session that has ended, and the id of its board; `None` if what the board said cannot be read.
type Gone = (SessionId, Option<Arc<str>>);

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

    /// The board is about to be shut down: what becomes of its runs is no loss of a board.
    pub(crate) fn begin_leaving(&self) {
        self.shared.is_leaving.store(true, Ordering::Relaxed);
    }

    /// Whether the board is being shut down.
    pub(crate) fn is_leaving(&self) -> bool {
        self.shared.is_leaving.load(Ordering::Relaxed)
    }

    /// The note of a run, once nothing that an earlier owner writes can come any more: the run may be read and taken.
    ///
    /// # Errors
    /// [`LoadError::Held`] when its board is alive, [`LoadError::NewerFormat`] when this one cannot read it; what the store reports.
    async fn note_of_free(&self, run: RunId) -> Result<Option<Noted>, LoadError> {
        let noted = self.journal.note_of(run).await?;
        self.check_is_free(noted.as_ref(), &mut HashMap::default()).await?;
        Ok(noted)
    }

    /// As [`Ownership::note_of_free`], of a note that was read. `boards` has how long the leases of those last that were asked for
    /// before.
    pub(in crate::supervision::runs) async fn check_is_free(
        &self,
        noted: Option<&Noted>,
        boards: &mut HashMap<Arc<str>, Option<Duration>>,
    ) -> Result<(), LoadError> {
        let Some(OpenNote { owner, format, given_to, .. }) = noted.map(|noted| &noted.note) else { return Ok(()) };
        let left = match boards.get(owner) {
            _ if given_to.as_ref() == Some(&self.board) => None,
            Some(left) => *left,
            None => *boards.entry(Arc::clone(owner)).or_insert(self.lease_of(owner).await?),
        };
        match left {
            Some(left) => Err(LoadError::Held { owner: Arc::clone(owner), left }),
            None if *format > storage::newest_format() => Err(LoadError::NewerFormat { format: *format }),
            None => Ok(()),
        }
    }

    /// How long the lease of another board lasts; `None` once it has ended.
    async fn lease_of(&self, owner: &Arc<str>) -> Result<Option<Duration>, StorageError> {
        if *owner == self.board || self.shared.gone.lock().contains_key(owner) {
            return Ok(None);
        }
        let mut lost = None;
        for (session, info) in self.journal.sessions_of(owner).await? {
            match self.journal.storage().end_session(session.id, true).await {
                Ok(()) => lost = info.and_then(|info| lost_of(&session, &info)),
                Err(StorageError::SessionLives { left }) => return Ok(Some(left)),
                Err(error) => return Err(error),
            }
        }
        self.shared.gone.lock().entry(Arc::clone(owner)).or_insert(lost);
        Ok(None)
    }

    /// The losses of a run whose note was read, if this board takes it over: its last record is `last`, and `is_at_work` is whether
    /// a turn was under way.
    pub(in crate::supervision::runs) fn losses(&self, noted: Option<&Noted>, last: u64, is_at_work: bool) -> Losses {
        let Some(OpenNote { owner, losses, .. }) = noted.map(|noted| &noted.note) else { return Losses::default() };
        if *owner == self.board {
            return losses.clone();
        }
        // Where one process has the store, its boards end with it: that is a restart in one place, which the turns count.
        let counts = is_at_work && self.journal.storage().is_shared();
        let lost = self.shared.gone.lock().get(owner).cloned().flatten();
        losses.and(lost.filter(|_| counts), last)
    }

    /// Makes a free run this board's; `false` if another board was faster.
    ///
    /// # Errors
    /// What the store reports.
    pub(in crate::supervision::runs) async fn take(
        &self,
        run: RunId,
        noted: Option<&Noted>,
        losses: Losses,
    ) -> Result<bool, StorageError> {
        if noted.is_none_or(|noted| noted.note.owner != self.board) {
            let note = OpenNote::new(&self.board, losses);
            match self.journal.take_note(run, &note, noted.map(|noted| noted.revision)).await {
                Err(StorageError::WrongRevision { .. }) => return Ok(false),
                taken => taken?,
            }
        }
        self.forget_left(run);
        Ok(true)
    }

    /// Lets another board take over a run that this one has ended its work on.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn give(&self, run: RunId, to: &Arc<str>) -> Result<(), StorageError> {
        let Some(Noted { note, revision }) = self.journal.note_of(run).await? else { return Ok(()) };
        let note = OpenNote { given_to: Some(Arc::clone(to)), ..note };
        self.journal.take_note(run, &note, Some(revision)).await
    }

    /// Makes a run that continues after its end this board's, unless it is that of another board that lives. A note is written anew, also one
    /// of this board, which may be about to remove it.
    ///
    /// # Errors
    /// As [`Ownership::note_of_free`].
    pub(in crate::supervision::runs) async fn take_ended(&self, run: RunId) -> Result<(), LoadError> {
        loop {
            let noted = self.note_of_free(run).await?;
            let note = OpenNote::new(&self.board, Losses::default());
            match self.journal.take_note(run, &note, noted.map(|noted| noted.revision)).await {
                Err(StorageError::WrongRevision { .. }) => {}
                taken => {
                    taken?;
                    self.forget_left(run);
                    return Ok(());
                }
            }
        }
    }

    /// Whether the run was left to others before.
    pub(crate) fn was_left(&self, run: RunId) -> bool {
        self.shared.unplaced.lock().contains_key(&run)
    }

    /// Notes that this board leaves a run to boards that have these agents; without agents, to those that read its records.
    pub(in crate::supervision::runs) fn leave(&self, run: RunId, agents: BTreeSet<AgentName>) {
        self.shared.unplaced.lock().insert(run, agents);
    }

    /// Notes that a run is left to nobody: a board works on it, or it cannot be read.
    pub(in crate::supervision::runs) fn forget_left(&self, run: RunId) {
        self.shared.unplaced.lock().remove(&run);
    }

    /// Passes on the open runs that boards have left which are gone, the oldest first: those of a board that is found to be gone, and
    /// those that have waited for agents which `reaches` knows now. Ends the sessions whose leases have run out, and forgets those that
    /// have no runs left. Reads all notes only after a board has ended; otherwise one note for each session with runs.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn find_left(
        &self,
        reaches: impl Fn(&AgentName) -> bool,
        offer: impl Fn(RunId),
    ) -> Result<(), StorageError> {
        let gone = self.end_expired().await?;
        self.shared.left.lock().retain(|session, _| gone.iter().any(|(id, _)| id == session));
        let is_new = |(session, _): &&Gone| !self.shared.left.lock().contains_key(session);
        let new: Vec<&Gone> = gone.iter().filter(is_new).collect();
        if !new.is_empty() {
            self.read_left(&new, &offer).await?;
        }
        for gone in &gone {
            self.forget_if_empty(gone).await?;
        }
        let is_placed = |agents: &BTreeSet<AgentName>| !agents.is_empty() && agents.iter().all(&reaches);
        let mut placed: Vec<RunId> = {
            let unplaced = self.shared.unplaced.lock();
            unplaced.iter().filter(|(_, agents)| is_placed(agents)).map(|(run, _)| *run).collect()
        };
        placed.sort_unstable();
        placed.into_iter().for_each(offer);
        Ok(())
    }

    /// Finds the runs of sessions that have ended, and offers them. Of one that cannot be read, these are the runs of all boards that are
    /// not on the store.
    async fn read_left(&self, sessions: &[&Gone], offer: impl Fn(RunId)) -> Result<(), StorageError> {
        let notes = self.journal.open_notes().await?;
        let named = |(id, board): &&Gone| Some((Arc::clone(board.as_ref()?), *id));
        let boards: HashMap<Arc<str>, SessionId> = sessions.iter().filter_map(named).collect();
        let unread = sessions.iter().find(|(_, board)| board.is_none()).map(|(id, _)| *id);
        let there: HashSet<Arc<str>> = match unread {
            // After the notes: what has begun meanwhile is on the store.
            Some(_) => self.journal.boards().await?.into_iter().map(|board| board.info.id).collect(),
            None => HashSet::default(),
        };
        let mut left: BTreeMap<_, BTreeMap<_, _>> = sessions.iter().map(|(id, _)| (*id, BTreeMap::new())).collect();
        for (run, owner) in notes {
            let session = boards.get(&owner).copied().or(unread.filter(|_| !there.contains(&owner)));
            if let Some(session) = session {
                left.entry(session).or_default().insert(run, owner);
                offer(run);
            }
        }
        self.shared.left.lock().extend(left);
        Ok(())
    }

    /// Forgets a session whose runs have all ended or were taken over.
    async fn forget_if_empty(&self, (session, board): &Gone) -> Result<(), StorageError> {
        let first = || {
            let left = self.shared.left.lock();
            left.get(session)?.first_key_value().map(|(run, owner)| (*run, Arc::clone(owner)))
        };
        while let Some((run, owner)) = first() {
            if self.journal.note_of(run).await?.is_some_and(|noted| noted.note.owner == owner) {
                return Ok(());
            }
            if let Some(runs) = self.shared.left.lock().get_mut(session) {
                runs.remove(&run);
            }
            self.forget_left(run);
        }
        // Letters to a board that cannot be read expire, and what it had in memory alone stays.
        if let Some(board) = board {
            self.journal.discard_mail(board).await?;
            self.journal.discard_memory_runs(board).await?;
        }
        self.journal.storage().forget_session(*session).await
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
    async fn end_expired(&self) -> Result<Vec<Gone>, StorageError> {
        let mut gone = Vec::new();
        let storage = self.journal.storage();
        for session in storage.sessions().await? {
            if session.id == self.session || !session.left.is_zero() {
                continue;
            }
            match storage.end_session(session.id, true).await {
                Ok(()) => {}
                // It was renewed meanwhile.
                Err(StorageError::SessionLives { .. }) => continue,
                Err(error) => return Err(error),
            }
            let info = BoardInfo::read(&session.about);
            let is_new = match &info {
                Some(info) => {
                    let lost = lost_of(&session, info);
                    self.shared.gone.lock().insert(Arc::clone(&info.id), lost).is_none()
                }
                None => !self.shared.left.lock().contains_key(&session.id),
            };
            let board = info.map(|info| info.id);
            if is_new {
                let (session, board) = (session.id.0, board.as_deref().unwrap_or("unknown"));
                tracing::warn!(parent: None, session, board, "a board is gone; its runs are taken over");
            }
            gone.push((session.id, board));
        }
        Ok(gone)
    }
}

/// The name of a board whose session has ended, if it was not shut down.
fn lost_of(session: &SessionInfo, info: &BoardInfo) -> Option<Arc<str>> {
    (!info.is_leaving).then(|| Arc::clone(&session.name))
}
