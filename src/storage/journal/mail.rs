//! What boards keep for each other: letters, the agents that they host, and the project that the store belongs to.

use std::sync::Arc;

use futures::TryStreamExt;

use crate::messages::BoardAgent;
use crate::storage::{Expected, Key, KeyPrefix, Put, StorageError};

use super::Journal;

/// Where letters are, below it by the id of the receiver and the reference.
const MAIL: &str = "mail";

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
