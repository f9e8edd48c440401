//! Conversations: what runs have left that belong together, apart from their journals (SEMANTICS 15).
//!
//! A run takes a ticket, a small value whose number is its place in the conversation. Its messages are another value, written
//! before the ticket says that the run has ended: so a crash between the two leaves an open ticket, and whoever comes next
//! ends it from the run's journal. Numbers are given out by revisioned writes: two runs never have the same, and one run
//! has one ticket however often it is entered.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::messages::{ConversationId, Durability, Json, RunId, Timestamp};

use super::codec::{self, Stored};
use super::{Expected, Key, KeyPrefix, Put, Revision, Storage, StorageError};

/// The place of one run in a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// The run.
    pub run: RunId,
    /// The agent or workflow that the conversation belongs to.
    pub owner: Arc<str>,
    /// When it was taken.
    pub taken_at: Timestamp,
    /// How the run ended, once its messages are stored.
    pub end: Option<TicketEnd>,
}

/// How a run of a conversation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketEnd {
    /// When.
    pub at: Timestamp,
    /// Why the run did not finish, if it did not: its messages are kept all the same.
    pub failure: Option<Arc<str>>,
    /// Its messages come from untrusted input, in part or in whole.
    pub is_marked: bool,
    /// How many messages it left.
    pub messages: u32,
    /// Their size in bytes.
    pub bytes: u64,
}

impl Stored for Ticket {
    const SCHEMA: u16 = 8;
    const VERSION: u16 = 1;
    const NAME: &'static str = "conversation-ticket";
}

/// The messages of one run, an array.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Said {
    messages: Json,
}

impl Stored for Said {
    const SCHEMA: u16 = 9;
    const VERSION: u16 = 1;
    const NAME: &'static str = "conversation-messages";
}

/// A ticket as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its place, from 1.
    pub number: u64,
    /// What it says.
    pub ticket: Ticket,
    revision: Revision,
}

/// How many values are read at once.
const PAGE: usize = 256;

const TICKET: &str = "conversation";
const SAID: &str = "conversation-messages";

/// The conversations in a store. A cheap clone.
#[derive(Clone)]
pub struct Conversations {
    storage: Arc<dyn Storage>,
}

impl Conversations {
    /// The conversations in this store.
    #[must_use]
    pub fn new(storage: Arc<dyn Storage>) -> Self {
        Self { storage }
    }

    /// The tickets of a conversation, in order; none if nobody knows it.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn tickets(&self, conversation: &ConversationId) -> Result<Vec<Taken>, StorageError> {
        let tickets = self.scan(&Key::new([TICKET, conversation.as_str()]).children()).await?;
        Ok(tickets.into_iter().map(|(_, taken)| taken).collect())
    }

    /// The tickets of all conversations, each in its order.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn all(&self) -> Result<Vec<(ConversationId, Taken)>, StorageError> {
        self.scan(&Key::new([TICKET]).children()).await
    }

    async fn scan(&self, prefix: &KeyPrefix) -> Result<Vec<(ConversationId, Taken)>, StorageError> {
        let mut tickets = Vec::new();
        let mut after: Option<Key> = None;
        loop {
            let page = self.storage.scan(prefix, after.as_ref(), PAGE).await?;
            for (key, entry) in &page {
                let ticket = codec::decode(&entry.value)
                    .map_err(|error| StorageError::Corrupt { key: key.clone(), detail: error.to_string() })?;
                let segments = key.segments();
                let conversation = segments.get(1).and_then(|id| ConversationId::new(id).ok());
                let number = segments.get(2).and_then(|number| number.parse().ok());
                let (Some(conversation), Some(number)) = (conversation, number) else { continue };
                tickets.push((conversation, Taken { number, ticket, revision: entry.revision }));
            }
            match page.last() {
                Some((key, _)) if page.len() == PAGE => after = Some(key.clone()),
                _ => return Ok(tickets),
            }
        }
    }

    /// Gives a run the next place in a conversation, unless it has one; returns all tickets, its own among them.
    ///
    /// # Errors
    /// What the store reports. Entering again is safe.
    pub async fn enter(
        &self,
        conversation: &ConversationId,
        ticket: &Ticket,
        durability: Durability,
    ) -> Result<Vec<Taken>, StorageError> {
        loop {
            let mut tickets = self.tickets(conversation).await?;
            if tickets.iter().any(|taken| taken.ticket.run == ticket.run) {
                return Ok(tickets);
            }
            let number = tickets.last().map_or(1, |last| last.number + 1);
            match self.put(key_of(TICKET, conversation, number), ticket, Expected::Absent, durability).await {
                Ok(revision) => {
                    tickets.push(Taken { number, ticket: ticket.clone(), revision });
                    return Ok(tickets);
                }
                // Another run was quicker.
                Err(StorageError::WrongRevision { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Stores the messages of a run that has ended, and how it ended. `false` if the ticket was changed or deleted since it
    /// was read: then nothing is stored by this call.
    ///
    /// # Errors
    /// What the store reports. Storing again is safe.
    pub async fn store(
        &self,
        conversation: &ConversationId,
        taken: &Taken,
        (end, messages): (TicketEnd, Json),
        durability: Durability,
    ) -> Result<bool, StorageError> {
        let ticket = Ticket { end: Some(end), ..taken.ticket.clone() };
        let said = key_of(SAID, conversation, taken.number);
        self.put(said.clone(), &Said { messages }, Expected::Any, durability).await?;
        let key = key_of(TICKET, conversation, taken.number);
        match self.put(key, &ticket, Expected::Revision(taken.revision), durability).await {
            Ok(_) => Ok(true),
            Err(StorageError::WrongRevision { actual: Some(_), .. }) => Ok(false),
            Err(StorageError::WrongRevision { actual: None, .. }) => {
                self.remove(&said).await?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// The messages of a run; none if it has left none yet.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn messages(&self, conversation: &ConversationId, number: u64) -> Result<Option<Json>, StorageError> {
        let key = key_of(SAID, conversation, number);
        let Some(entry) = self.storage.get(&key).await? else { return Ok(None) };
        match codec::decode::<Said>(&entry.value) {
            Ok(said) => Ok(Some(said.messages)),
            Err(error) => Err(StorageError::Corrupt { key, detail: error.to_string() }),
        }
    }

    /// Deletes one run's place and messages.
    ///
    /// # Errors
    /// What the store reports. Deleting again is safe.
    pub async fn delete(&self, conversation: &ConversationId, number: u64) -> Result<(), StorageError> {
        self.remove(&key_of(TICKET, conversation, number)).await?;
        self.remove(&key_of(SAID, conversation, number)).await
    }

    /// Writes a ticket with its messages to a place of another conversation, which nobody has.
    ///
    /// # Errors
    /// [`StorageError::WrongRevision`] when somebody has it; what the store reports.
    pub async fn copy(
        &self,
        conversation: &ConversationId,
        (number, ticket): (u64, &Ticket),
        messages: Json,
        durability: Durability,
    ) -> Result<(), StorageError> {
        self.put(key_of(SAID, conversation, number), &Said { messages }, Expected::Absent, durability).await?;
        self.put(key_of(TICKET, conversation, number), ticket, Expected::Absent, durability).await?;
        Ok(())
    }

    async fn put(
        &self,
        key: Key,
        value: &impl Stored,
        expected: Expected,
        durability: Durability,
    ) -> Result<Revision, StorageError> {
        let value = codec::encode(value).into();
        self.storage.put_if_revision(Put { key, value, expected, ttl_secs: None, durability }).await
    }

    async fn remove(&self, key: &Key) -> Result<(), StorageError> {
        while let Some(entry) = self.storage.get(key).await? {
            match self.storage.delete_if_revision(key, entry.revision, self.storage.default_durability()).await {
                Err(StorageError::WrongRevision { .. }) => {}
                done => return done,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Conversations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversations").finish_non_exhaustive()
    }
}

fn key_of(kind: &str, conversation: &ConversationId, number: u64) -> Key {
    Key::new([kind, conversation.as_str(), &*format!("{number:020}")])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::storage::Memory;

    fn ticket(run: u128) -> Ticket {
        let at = Timestamp::from_millis(1_767_225_600_000);
        Ticket { run: RunId(Uuid::from_u128(run)), owner: "guide".into(), taken_at: at, end: None }
    }

    fn end() -> TicketEnd {
        let at = Timestamp::from_millis(1_767_225_601_000);
        TicketEnd { at, failure: Some("failed: no answer".into()), is_marked: true, messages: 1, bytes: 5 }
    }

    #[test]
    fn the_bytes_of_a_conversation_are_golden() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
        crate::testing::golden::check(folder, &Ticket { end: Some(end()), ..ticket(7) });
        let messages = json!([{ "role": "user", "text": "hello" }]).into();
        crate::testing::golden::check(folder, &Said { messages });
    }

    #[tokio::test]
    async fn a_run_has_one_place_however_often_it_enters_and_two_runs_never_the_same() {
        let store = Conversations::new(Arc::new(Memory::default()));
        let id = ConversationId::new("ann").unwrap();
        let (one, other) = (ticket(1), ticket(2));
        let enter = |ticket: Ticket| {
            let (store, id) = (store.clone(), id.clone());
            async move { store.enter(&id, &ticket, Durability::Memory).await.unwrap() }
        };
        let together = [enter(one.clone()), enter(other.clone()), enter(one.clone()), enter(other.clone())];
        futures::future::join_all(together).await;
        let places: Vec<_> =
            store.tickets(&id).await.unwrap().into_iter().map(|taken| (taken.number, taken.ticket)).collect();
        assert_eq!(places, [(1, one), (2, other)]);
    }

    #[tokio::test]
    async fn messages_of_a_place_that_was_deleted_meanwhile_are_not_kept() {
        let store = Conversations::new(Arc::new(Memory::default()));
        let id = ConversationId::new("ann").unwrap();
        let taken = store.enter(&id, &ticket(1), Durability::Memory).await.unwrap().remove(0);
        store.delete(&id, 1).await.unwrap();
        let messages: Json = json!([]).into();
        assert!(!store.store(&id, &taken, (end(), messages), Durability::Memory).await.unwrap());
        assert_eq!((store.tickets(&id).await.unwrap(), store.messages(&id, 1).await.unwrap()), (Vec::new(), None));
    }
}
