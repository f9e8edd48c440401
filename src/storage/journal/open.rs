//! The notes of open runs: which board works on a run, in which format its records are, and which boards ended while they worked on
//! it. A note is written with a run's first record and removed with its last one or after it, so that a start finds every unfinished
//! run without reading the finished ones.

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use serde::{Deserialize, Serialize};

use crate::env::later_build;
use crate::messages::{BoardEntry, BoardInfo, Durability, RunEvent, RunId};
use crate::storage::{Entry, Expected, Key, Revision, Rider, Sequence, SessionInfo, StorageError, StorageFuture};

use super::skipped::NO_RUN;
use super::{Journal, OPEN, run_of};

/// The newest format of records that this build reads, and the one in which it writes: with one format, every board reads that.
pub(crate) fn newest_format() -> u32 {
    first_format() + later_build::forms_ahead()
}

/// What the note of an open run says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenNote {
    /// The id of the board that works on the run.
    pub(crate) owner: Arc<str>,
    /// The format of the run's records. Only boards that read it take the run over.
    pub(crate) format: u32,
    /// The boards that ended while they worked on the run.
    pub(crate) losses: Losses,
    /// The id of a board that may take the run over while its owner lives.
    pub(crate) given_to: Option<Arc<str>>,
}

/// A note, with the revision at which it was read.
#[derive(Clone, Debug)]
pub(crate) struct Noted {
    pub(crate) note: OpenNote,
    pub(crate) revision: Revision,
}

impl Noted {
    fn of(entry: Entry) -> Self {
        Self { note: OpenNote::of_bytes(&entry.value), revision: entry.revision }
    }
}

/// The boards whose leases ran out while they worked on a run, one after the other, without a new record of the run in between.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    /// Their names, at most [`Losses::MAX`]: the last ones.
    pub(crate) boards: Vec<Arc<str>>,
    /// The last record of the run when it was taken over.
    last: Sequence,
}

impl Losses {
    /// After so many the run is not executed again until a person has looked at it.
    pub(crate) const MAX: usize = 3;

    /// The losses of a run that is taken over when its last record is `last`; `lost` is the board that has left it, if its lease ran
    /// out.
    #[must_use]
    pub(crate) fn and(&self, lost: Option<Arc<str>>, last: Sequence) -> Self {
        // A board that got no further has written one record: that it has taken the run over.
        let is_further = last > self.last.saturating_add(1);
        let mut boards = if is_further { Vec::new() } else { self.boards.clone() };
        boards.extend(lost);
        boards.drain(..boards.len().saturating_sub(Self::MAX));
        Self { boards, last }
    }
}

/// What follows a line break after the owner in a note, if there is anything to say. No id of a board has a line break.
#[derive(Serialize, Deserialize)]
struct More {
    #[serde(default = "first_format", skip_serializing_if = "is_first_format")]
    format: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lost: Vec<Arc<str>>,
    #[serde(default)]
    last: Sequence,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given_to: Option<Arc<str>>,
}

fn first_format() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_first_format(format: &u32) -> bool {
    *format == first_format()
}

impl OpenNote {
    /// The note of a run that a board of this build has begun, or takes over.
    #[must_use]
    pub(crate) fn new(owner: &str, losses: Losses) -> Self {
        Self { owner: owner.into(), format: newest_format(), losses, given_to: None }
    }

    fn to_bytes(&self) -> Arc<[u8]> {
        let Self { owner, format, losses: Losses { boards, last }, given_to } = self;
        if *format == first_format() && boards.is_empty() && given_to.is_none() {
            return Arc::from(owner.as_bytes());
        }
        let more = More { format: *format, lost: boards.clone(), last: *last, given_to: given_to.clone() };
        let more = serde_json::to_string(&more).unwrap_or_default();
        Arc::from(format!("{owner}\n{more}").into_bytes())
    }

    /// Whether a board of this build, or of another one, has written this as a note.
    pub(super) fn is_readable(value: &[u8]) -> bool {
        match std::str::from_utf8(value).map(|text| text.split_once('\n')) {
            Ok(Some((_, more))) => serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(more).is_ok(),
            Ok(None) => true,
            Err(_) => false,
        }
    }

    fn of_bytes(value: &[u8]) -> Self {
        let text = String::from_utf8_lossy(value);
        let Some((owner, more)) = text.split_once('\n') else {
            return Self { format: first_format(), ..Self::new(&text, Losses::default()) };
        };
        let (format, losses, given_to) = match serde_json::from_str(more) {
            Ok(More { format, lost, last, given_to }) => (format, Losses { boards: lost, last }, given_to),
            // A later build wrote it.
            Err(_) => (u32::MAX, Losses::default(), None),
        };
        Self { owner: owner.into(), format, losses, given_to }
    }
}

/// The run of a note: its key is the one under which the note of the run is found.
pub(super) fn run_of_note(key: &Key) -> Option<RunId> {
    run_of(key).filter(|run| *key == Journal::key_of(OPEN, *run))
}

impl Journal {
    /// Writes the first record of a run, with the note of [`Journal::mark_open`]: a board that starts on the store takes the run
    /// over, unless a board of the name `owner` works.
    ///
    /// # Errors
    /// [`StorageError::WrongSequence`] if the run has records already; what the store reports.
    pub fn begin(
        &self,
        run: RunId,
        owner: &str,
        events: &[RunEvent],
        durability: Durability,
    ) -> StorageFuture<Sequence> {
        self.append_with((&Self::stream(run), 0), events, durability, vec![Self::open_note(run, owner)])
    }

    /// The note of [`Journal::mark_open`], to be written with the first record of a run.
    pub(crate) fn open_note(run: RunId, owner: &str) -> Rider {
        let value = OpenNote::new(owner, Losses::default()).to_bytes();
        Rider::put(Self::key_of(OPEN, run), value)
    }

    /// The removal of the note of [`Journal::mark_open`] with the last record of a run.
    pub(crate) fn no_open_note(run: RunId) -> Rider {
        Rider::Delete { key: Self::key_of(OPEN, run) }
    }

    /// Notes that a run is unfinished, and which board works on it. A note too many does no harm.
    pub fn mark_open(&self, run: RunId, owner: &str) -> StorageFuture<()> {
        self.note(Self::key_of(OPEN, run), OpenNote::new(owner, Losses::default()).to_bytes())
    }

    /// Removes the note of [`Journal::mark_open`].
    pub(crate) fn mark_ended(&self, run: RunId) -> StorageFuture<()> {
        self.delete(Self::key_of(OPEN, run))
    }

    /// Removes the note of a run, unless it was written anew.
    ///
    /// # Errors
    /// What the store reports; not that there is another note.
    pub(crate) async fn mark_ended_at(&self, run: RunId, revision: Revision) -> Result<(), StorageError> {
        match self.delete_read(Self::key_of(OPEN, run), Some(revision)).await {
            Err(StorageError::WrongRevision { .. }) => Ok(()),
            deleted => deleted,
        }
    }

    /// The note of an open run.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn note_of(&self, run: RunId) -> Result<Option<Noted>, StorageError> {
        Ok(self.storage.get(&Self::key_of(OPEN, run)).await?.map(Noted::of))
    }

    /// The board in the note of an open run.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn owner_of(&self, run: RunId) -> Result<Option<Arc<str>>, StorageError> {
        Ok(self.note_of(run).await?.map(|noted| noted.note.owner))
    }

    /// The notes of several runs, in their order.
    ///
    /// # Errors
    /// What the store reports of the call; each note has its own errors.
    pub(crate) async fn notes_of(
        &self,
        runs: &[RunId],
    ) -> Result<Vec<Result<Option<Noted>, StorageError>>, StorageError> {
        let keys: Vec<Key> = runs.iter().map(|run| Self::key_of(OPEN, *run)).collect();
        let entries = self.storage.get_many(&keys).await?.into_iter();
        Ok(entries.map(|entry| entry.map(|entry| entry.map(Noted::of))).collect())
    }

    /// Writes the note of an open run in place of the one that was read, or where none was.
    ///
    /// # Errors
    /// [`StorageError::WrongRevision`] when another write was first; what the store reports.
    pub(crate) async fn take_note(
        &self,
        run: RunId,
        note: &OpenNote,
        before: Option<Revision>,
    ) -> Result<(), StorageError> {
        let expected = before.map_or(Expected::Absent, Expected::Revision);
        self.write_note(Self::key_of(OPEN, run), note.to_bytes(), expected).await.map(|_| ())
    }

    /// The runs that have a note.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn open_runs(&self) -> Result<Vec<RunId>, StorageError> {
        Ok(self.open_notes().await?.into_iter().map(|(run, _)| run).collect())
    }

    /// The runs that have a note, with the boards that are in the notes. A row whose key names no run is left out, and reported once.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn open_notes(&self) -> Result<Vec<(RunId, Arc<str>)>, StorageError> {
        let note = async |(key, entry): (Key, Entry)| {
            let Some(run) = run_of_note(&key) else {
                self.skipped.report(&key, NO_RUN);
                return Ok(None);
            };
            Ok(Some((run, OpenNote::of_bytes(&entry.value).owner)))
        };
        self.entries(Key::new([OPEN]).children()).try_filter_map(note).try_collect().await
    }

    /// The board that works on a run: `None` if the run has ended or was never journaled, or if the board's lease has run out. It is a
    /// look alone: a board whose lease has run out may renew it, as long as no other one has ended its session.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn board_of(&self, run: RunId) -> Result<Option<Arc<str>>, StorageError> {
        let Some(owner) = self.owner_of(run).await? else { return Ok(None) };
        let sessions = self.sessions_of(&owner).await?;
        Ok(sessions.iter().any(|(session, _)| !session.left.is_zero()).then_some(owner))
    }

    /// As [`Journal::board_of`], but with `None` also nothing that an earlier board of the run writes can come any more: a board whose
    /// lease had run out was ended.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn board_or_free(&self, run: RunId) -> Result<Option<Arc<str>>, StorageError> {
        let Some(owner) = self.owner_of(run).await? else { return Ok(None) };
        Ok(self.lease_of(&owner).await?.map(|_| owner))
    }

    /// The boards on the store that live, and those that are gone and have left runs, by the numbers of their sessions.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn boards(&self) -> Result<Vec<BoardEntry>, StorageError> {
        let entry = |session: SessionInfo| BoardEntry {
            name: session.name,
            session: session.id.0,
            left: session.left,
            info: BoardInfo::read(&session.about).unwrap_or_default(),
        };
        Ok(self.storage.sessions().await?.into_iter().map(entry).collect())
    }

    /// As [`Journal::boards`]; of those that are gone, [`BoardInfo::runs`] is how many runs they have left. Reads all notes, if some are gone.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn boards_with_left(&self) -> Result<Vec<BoardEntry>, StorageError> {
        let mut boards = self.boards().await?;
        let is_gone = |board: &BoardEntry| board.left.is_zero();
        if boards.iter().any(is_gone) {
            let notes = self.open_notes().await?;
            for board in boards.iter_mut().filter(|board| is_gone(board)) {
                board.info.runs = notes.iter().filter(|(_, owner)| *owner == board.info.id).count();
            }
        }
        Ok(boards)
    }

    /// The session of the board of this id, unless that was forgotten; if there is none, those that say what this build cannot read, of
    /// which each may be that of any board.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn sessions_of(&self, board: &str) -> Result<Vec<(SessionInfo, Option<BoardInfo>)>, StorageError> {
        let mut unread = Vec::new();
        for session in self.storage.sessions().await? {
            match BoardInfo::read(&session.about) {
                Some(info) if *info.id == *board => return Ok(vec![(session, Some(info))]),
                Some(_) => {}
                None => unread.push((session, None)),
            }
        }
        Ok(unread)
    }

    /// How long the lease of the board of this id lasts; `None` once nothing that it writes can come any more: its lease had run out,
    /// and it was ended.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn lease_of(&self, board: &str) -> Result<Option<Duration>, StorageError> {
        for (session, _) in self.sessions_of(board).await? {
            match self.storage.end_session(session.id, true).await {
                Ok(()) => {}
                Err(StorageError::SessionLives { left }) => return Ok(Some(left)),
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::storage::Memory;

    fn names(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    #[test]
    fn a_note_without_losses_is_the_owner_alone_as_in_the_first_stores() {
        let note = OpenNote::new("board", Losses::default());
        assert_eq!(*note.to_bytes(), *b"board");
        assert_eq!(OpenNote::of_bytes(b"board"), note);
    }

    #[test]
    fn a_note_reads_back_its_losses_and_one_that_a_later_build_wrote_is_of_a_newer_format() {
        let losses = Losses::default().and(Some("a".into()), 5).and(Some("b".into()), 6);
        let note = OpenNote::new("board", losses);
        assert_eq!(&*note.to_bytes(), b"board\n{\"lost\":[\"a\",\"b\"],\"last\":6}".as_slice());
        assert_eq!(OpenNote::of_bytes(&note.to_bytes()), note);
        let newer = |more: &str| OpenNote::of_bytes(format!("board\n{more}").as_bytes());
        assert_eq!((newer("{\"format\":2,\"x\":1}").format, newer("other").format), (2, u32::MAX));
        assert_eq!(&*newer("other").owner, "board");
    }

    #[test]
    fn losses_count_in_a_row_until_the_run_has_a_record_beside_those_of_take_overs() {
        let first = Losses::default().and(Some("a".into()), 5);
        assert_eq!(first.and(Some("b".into()), 6).boards, names(&["a", "b"]));
        assert_eq!(first.and(Some("b".into()), 5).boards, names(&["a", "b"]), "the heir ended before its first record");
        assert_eq!(
            first.and(None, 6).and(Some("b".into()), 7).boards,
            names(&["a", "b"]),
            "a handover changes nothing"
        );
        assert_eq!(first.and(Some("b".into()), 7).boards, names(&["b"]), "it has got further");
        let many = first.and(Some("b".into()), 6).and(Some("c".into()), 7).and(Some("d".into()), 8);
        assert_eq!(many.boards, names(&["b", "c", "d"]));
    }

    #[tokio::test]
    async fn a_note_that_was_written_anew_is_not_removed_with_the_earlier_one() {
        let (journal, run) = (Journal::new(Arc::new(Memory::default())), RunId(Uuid::from_u128(7)));
        let note = OpenNote::new("board", Losses::default());
        journal.take_note(run, &note, None).await.unwrap();
        let earlier = journal.note_of(run).await.unwrap().unwrap().revision;
        journal.take_note(run, &note, Some(earlier)).await.unwrap();
        journal.mark_ended_at(run, earlier).await.unwrap();
        let noted = journal.note_of(run).await.unwrap().unwrap();
        journal.mark_ended_at(run, noted.revision).await.unwrap();
        assert!(journal.note_of(run).await.unwrap().is_none());
        journal.mark_ended_at(run, noted.revision).await.unwrap();
    }

    use proptest::prelude::*;

    proptest! {
        /// Each heir is what it has written after it took the run over, in records, and whether its end was a loss of the run.
        #[test]
        fn only_losses_since_the_last_record_of_the_run_itself_count(heirs in proptest::collection::vec((0_u64..4, any::<bool>()), 0..12)) {
            let (mut losses, mut last) = (Losses::default().and(None, 1), 1);
            let mut in_a_row: Vec<Arc<str>> = Vec::new();
            for (at, (records, is_loss)) in heirs.into_iter().enumerate() {
                last += records;
                // The first of them is that of the take-over.
                if records > 1 {
                    in_a_row.clear();
                }
                let lost: Option<Arc<str>> = is_loss.then(|| Arc::from(at.to_string()));
                in_a_row.extend(lost.clone());
                losses = losses.and(lost, last);
                let newest = &in_a_row[in_a_row.len().saturating_sub(Losses::MAX)..];
                prop_assert_eq!(&*losses.boards, newest);
            }
        }
    }
}
