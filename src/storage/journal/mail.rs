//! What boards keep for each other: letters, and the agents that they host.

use crate::messages::{BoardAgent, Durability};
use crate::storage::{Delete, Key, KeyPrefix, StorageError};

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
