//! What boards keep for each other: letters, the agents that they host, and the project that the store belongs to.

use std::sync::Arc;

use crate::messages::{BoardAgent, Durability};
use crate::storage::{Delete, Expected, Key, KeyPrefix, Put, StorageError};

use super::{Journal, PAGE};

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
        let mut after = None;
        loop {
            let page = self.storage.scan(&Self::mailbox(board), after.as_ref(), PAGE).await?;
            after = page.last().map(|(key, _)| key.clone());
            let is_last = page.len() < PAGE;
            for (key, entry) in page {
                match self.storage.delete_if_revision(Delete::new(key, entry.revision, Durability::Memory)).await {
                    // Another board was faster.
                    Ok(()) | Err(StorageError::WrongRevision { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            if is_last {
                return Ok(());
            }
        }
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
        let (prefix, mut after, mut known) = (Key::new([KNOWN]).children(), None, Vec::new());
        loop {
            let page = self.storage.scan(&prefix, after.as_ref(), PAGE).await?;
            after = page.last().map(|(key, _)| key.clone());
            known.extend(page.iter().filter_map(|(_, entry)| serde_json::from_slice(&entry.value).ok()));
            if page.len() < PAGE {
                return Ok(known);
            }
        }
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
