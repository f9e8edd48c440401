//! What boards keep for each other: letters, the agents that they host, and the project that the store belongs to.

use std::sync::Arc;

use foldhash::HashSet;
use futures::TryStreamExt;

use crate::messages::{BoardAgent, BoardInfo};
use crate::storage::{Expected, Key, KeyPrefix, Put, StorageError};

use super::Journal;

/// Where letters are, below it by the id of the receiver and the reference.
pub(super) const MAIL: &str = "mail";

impl Journal {
    /// The key of a letter to a board.
    pub(crate) fn letter(board: &str, reference: &str) -> Key {
        Key::new([MAIL, board, reference])
    }

    /// The keys of the letters to a board.
    pub(crate) fn mailbox(board: &str) -> KeyPrefix {
        Key::new([MAIL, board]).children()
    }

    /// Deletes the letters to a board that is gone, which nobody reads any more.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn discard_mail(&self, board: &str) -> Result<(), StorageError> {
        let letters = self.entries(Self::mailbox(board));
        letters.try_for_each(|(key, entry)| self.delete_read(key, Some(entry.revision))).await
    }

    /// Deletes the letters to boards that have no session any more: replies that came after their mail was discarded. Where a session cannot be
    /// read, whose board is not known, nothing is deleted.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn discard_mail_to_nobody(&self) -> Result<(), StorageError> {
        let letters = self.entries(Key::new([MAIL]).children());
        let letters: Vec<_> = letters.map_ok(|(key, entry)| (key, entry.revision)).try_collect().await?;
        if letters.is_empty() {
            return Ok(());
        }
        // Looked at last: a board has its session before anybody writes to it.
        let sessions = self.storage.sessions().await?;
        let boards: Option<HashSet<Arc<str>>> =
            sessions.iter().map(|session| Some(BoardInfo::read(&session.about)?.id)).collect();
        let Some(boards) = boards else { return Ok(()) };
        for (key, revision) in letters {
            if key.segments().get(1).is_none_or(|board| !boards.contains(board.as_str())) {
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
        for board in ["here", "gone"] {
            let letter = Put::new(Journal::letter(board, "1"), b"x"[..].into());
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
