//! What boards keep for each other: letters, the agents that they host, and the project that the store belongs to.

use std::future::ready;
use std::sync::Arc;

use foldhash::HashSet;
use futures::TryStreamExt;
use uuid::Uuid;

use crate::messages::{BoardAgent, BoardInfo};
use crate::storage::{Entry, Expected, Key, KeyPrefix, Put, StorageError};

use super::Journal;
use super::skipped::NO_LETTER;

/// Where letters are, below it by the id of the receiver and the reference.
pub(super) const MAIL: &str = "mail";

/// The id of the receiver and the reference in the key of a letter.
pub(super) fn letter_of(key: &Key) -> Option<(Arc<str>, Uuid)> {
    let [_, board, reference] = <[String; 3]>::try_from(key.segments()).ok()?;
    Some((board.into(), Uuid::try_parse(&reference).ok()?))
}

impl Journal {
    /// The key of a letter to a board.
    pub(crate) fn letter(board: &str, reference: &str) -> Key {
        Key::new([MAIL, board, reference])
    }

    /// The keys of the letters to a board.
    pub(crate) fn mailbox(board: &str) -> KeyPrefix {
        Key::new([MAIL, board]).children()
    }

    /// The receiver and the reference of a letter. A row among the letters that has none is left out, and reported once.
    pub(crate) fn addressed(&self, key: &Key) -> Option<(Arc<str>, Uuid)> {
        let addressed = letter_of(key);
        if addressed.is_none() {
            self.skipped.report(key, NO_LETTER);
        }
        addressed
    }

    /// Deletes the letters to a board that is gone, which nobody reads any more.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn discard_mail(&self, board: &str) -> Result<(), StorageError> {
        let rows = self.entries(Self::mailbox(board));
        let letters = rows.try_filter(|(key, _)| ready(self.addressed(key).is_some()));
        letters.try_for_each(|(key, entry)| self.delete_read(key, Some(entry.revision))).await
    }

    /// Deletes the letters to boards that have no session any more: replies that came after their mail was discarded. Where a session cannot be
    /// read, whose board is not known, nothing is deleted.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn discard_mail_to_nobody(&self) -> Result<(), StorageError> {
        let rows = self.entries(Key::new([MAIL]).children());
        let letter =
            async |(key, entry): (Key, Entry)| Ok(self.addressed(&key).map(|(board, _)| (board, key, entry.revision)));
        let letters: Vec<_> = rows.try_filter_map(letter).try_collect().await?;
        if letters.is_empty() {
            return Ok(());
        }
        // Looked at last: a board has its session before anybody writes to it.
        let sessions = self.storage.sessions().await?;
        let boards: Option<HashSet<Arc<str>>> =
            sessions.iter().map(|session| Some(BoardInfo::read(&session.about)?.id)).collect();
        let Some(boards) = boards else { return Ok(()) };
        for (board, key, revision) in letters {
            if !boards.contains(&board) {
                self.delete_read(key, Some(revision)).await?;
            }
        }
        Ok(())
    }
}

/// Where agents are that boards have made known to each other, by name.
const KNOWN: &str = "agents";

impl Journal {
    /// Keeps what is known of an agent, for boards that start while no board hosts it.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn remember_agent(&self, agent: &BoardAgent) -> Result<(), StorageError> {
        let (key, value) = (Key::new([KNOWN, agent.name.as_str()]), serde_json::to_vec(agent).unwrap_or_default());
        self.note(key, value.into()).await
    }

    /// The agents that boards have made known to each other.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn known_agents(&self) -> Result<Vec<BoardAgent>, StorageError> {
        let known = self.entries(Key::new([KNOWN]).children());
        known.try_filter_map(async |(_, entry)| Ok(serde_json::from_slice(&entry.value).ok())).try_collect().await
    }
}

/// Where the name of the project is that the store belongs to.
const PROJECT: &str = "project";

impl Journal {
    /// The project that the store belongs to, if a board has named one ([`Builder::project`](crate::Builder::project)).
    ///
    /// # Errors
    /// What the store reports.
    pub async fn project(&self) -> Result<Option<Arc<str>>, StorageError> {
        let entry = self.storage.get(&Key::new([PROJECT])).await?;
        Ok(entry.map(|entry| String::from_utf8_lossy(&entry.value).into()))
    }

    /// The project that the store belongs to: this one, if it belonged to none.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn claim_for(&self, project: &str) -> Result<Arc<str>, StorageError> {
        loop {
            if let Some(of_store) = self.project().await? {
                return Ok(of_store);
            }
            let put = Put { expected: Expected::Absent, ..Put::new(Key::new([PROJECT]), project.as_bytes().into()) };
            match self.storage.put_if_revision(put).await {
                Ok(_) => return Ok(project.into()),
                // Another board was faster.
                Err(StorageError::WrongRevision { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::storage::{Memory, NewSession, SessionId, Storage as _};

    async fn begin(store: &Memory, name: &str, about: &[u8]) -> SessionId {
        let new = NewSession { name: name.into(), about: about.into(), lease: Duration::from_secs(15) };
        store.begin_session(new).await.unwrap()
    }

    #[tokio::test]
    async fn letters_to_boards_without_a_session_are_deleted_unless_a_session_cannot_be_read() {
        let store = Arc::new(Memory::default());
        let journal = Journal::new(Arc::clone(&store) as _);
        let here = BoardInfo { id: "here".into(), ..BoardInfo::default() };
        begin(&store, "a", &here.to_bytes()).await;
        let odd = begin(&store, "odd", b"as nobody reads it").await;
        let reference = Uuid::from_u128(1).as_simple().to_string();
        for board in ["here", "gone"] {
            let letter = Put::new(Journal::letter(board, &reference), b"x"[..].into());
            store.put_if_revision(letter).await.unwrap();
        }
        let left = async || {
            journal.discard_mail_to_nobody().await.unwrap();
            let letters = store.scan(&Key::new([MAIL]).children(), None, 9).await.unwrap();
            letters.into_iter().map(|(key, _)| key.segments()[1].clone()).collect::<Vec<_>>()
        };
        assert_eq!(left().await, ["gone", "here"]);
        store.end_session(odd, false).await.unwrap();
        store.forget_session(odd).await.unwrap();
        assert_eq!(left().await, ["here"]);
    }
}
