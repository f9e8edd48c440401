//! Conversations: the messages of runs that belong together, apart from their journals (SEMANTICS 15).
//!
//! A run takes a ticket, a small value whose number is its position in the conversation. Its messages are another value,
//! written before the ticket records the run's end: so a crash between the two leaves an open ticket, and the next run or
//! reader ends it from the run's journal. Numbers are assigned by revisioned writes: two runs never have the same, and one run
//! has one ticket however often it enters.
//!
//! A conversation exists as long as its first value does: one write of that value copies or deletes a whole conversation. A
//! copy first writes [`First::Unfinished`] and the messages, and then all tickets at once ([`First::Copied`]); a deletion
//! first writes [`First::Unfinished`]. What a crash leaves behind is the remainder of a conversation: readers do not see it,
//! and the next user of the id removes it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::messages::{ConversationId, Durability, Json, RunId, Timestamp};

use super::codec::{self, CodecError, Stored};
use super::{Delete, Entry, Expected, Key, KeyPrefix, Put, Revision, Storage, StorageError};

/// The position of one run in a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ticket {
    /// The run.
    pub(crate) run: RunId,
    /// The agent or workflow that the conversation belongs to.
    pub(crate) owner: Arc<str>,
    /// When it was taken.
    pub(crate) taken_at: Timestamp,
    /// How the run ended, once its messages are stored.
    pub(crate) end: Option<TicketEnd>,
}

/// How a run of a conversation ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TicketEnd {
    /// When the run ended.
    pub(crate) at: Timestamp,
    /// Why the run did not finish, if it did not: its messages are kept all the same.
    pub(crate) failure: Option<Arc<str>>,
    /// Its messages come from untrusted input, in part or in whole.
    pub(crate) is_tainted: bool,
    /// How many messages it left.
    pub(crate) messages: u32,
    /// Their size in bytes.
    pub(crate) bytes: u64,
}

impl Stored for Ticket {
    const SCHEMA: u16 = 8;
    const VERSION: u16 = 1;
    const NAME: &'static str = "conversation-ticket";
}

/// The messages of one run, an array.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct StoredMessages {
    messages: Json,
}

impl Stored for StoredMessages {
    const SCHEMA: u16 = 9;
    const VERSION: u16 = 1;
    const NAME: &'static str = "conversation-messages";
}

/// The first value of a conversation where it is no ticket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum First {
    /// The conversation does not exist: it is being copied or deleted, or a crash has interrupted that.
    Unfinished,
    /// The tickets of a copy, from number 1 on.
    Copied(Vec<Ticket>),
}

impl Stored for First {
    const SCHEMA: u16 = 11;
    const VERSION: u16 = 1;
    const NAME: &'static str = "conversation-first";
}

/// All conversations of a store.
#[derive(Debug, Default)]
pub(crate) struct AllConversations {
    /// The conversations with their tickets in order, by id.
    pub(crate) conversations: Vec<(ConversationId, Vec<Taken>)>,
    /// Remainders without a conversation: a copy or a deletion is under way, or was interrupted.
    pub(crate) unfinished: BTreeSet<ConversationId>,
}

/// The outcome of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copying {
    /// The copy exists.
    Copied,
    /// There is a conversation of that id; nothing is left of the copy.
    Exists,
    /// What was to be copied has changed since it was read; nothing is left of the copy.
    SourceChanged,
}

/// A conversation as it was read.
#[derive(Debug, Default)]
struct Conversation {
    tickets: Vec<Taken>,
    /// It does not exist, and a remainder of it does.
    has_remainder: bool,
}

/// A ticket as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Its position, from 1.
    pub(crate) number: u64,
    /// The stored value.
    pub(crate) ticket: Ticket,
    revision: Revision,
}

/// How many tickets are read at once.
const PAGE: usize = 256;

/// How many values are read at once to be removed; messages may be long.
const REMOVED_AT_ONCE: usize = 16;

/// The number of the first ticket.
const FIRST: u64 = 1;

const TICKET: &str = "conversation";
const MESSAGES: &str = "conversation-messages";

/// The conversations in a store. A cheap clone.
#[derive(Clone)]
pub(crate) struct Conversations {
    storage: Arc<dyn Storage>,
}

impl Conversations {
    /// The conversations in this store.
    pub(crate) fn new(storage: Arc<dyn Storage>) -> Self {
        Self { storage }
    }

    /// The tickets of a conversation, in order; none if it does not exist.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn tickets(&self, conversation: &ConversationId) -> Result<Vec<Taken>, StorageError> {
        Ok(self.find(conversation).await?.tickets)
    }

    async fn find(&self, conversation: &ConversationId) -> Result<Conversation, StorageError> {
        let found = self.scan(&Key::new([TICKET, conversation.as_str()]).children()).await?;
        Ok(found.into_iter().next().map(|(_, found)| found).unwrap_or_default())
    }

    /// All conversations, by id.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn all(&self) -> Result<AllConversations, StorageError> {
        let mut all = AllConversations::default();
        for (id, found) in self.scan(&Key::new([TICKET]).children()).await? {
            if found.has_remainder {
                all.unfinished.insert(id);
            } else {
                all.conversations.push((id, found.tickets));
            }
        }
        Ok(all)
    }

    async fn scan(&self, prefix: &KeyPrefix) -> Result<Vec<(ConversationId, Conversation)>, StorageError> {
        let mut conversations: Vec<(ConversationId, Conversation)> = Vec::new();
        let mut after: Option<Key> = None;
        loop {
            let page = self.storage.scan(prefix, after.as_ref(), PAGE).await?;
            for (key, entry) in &page {
                let segments = key.segments();
                let conversation = segments.get(1).and_then(|id| ConversationId::new(id).ok());
                let number = segments.get(2).and_then(|number| number.parse().ok());
                let (Some(conversation), Some(number)) = (conversation, number) else { continue };
                if conversations.last().is_none_or(|(last, _)| *last != conversation) {
                    conversations
                        .push((conversation, Conversation { tickets: Vec::new(), has_remainder: number != FIRST }));
                }
                if let Some((_, found)) = conversations.last_mut().filter(|(_, found)| !found.has_remainder) {
                    found.add(number, entry).map_err(|error| corrupt(key, &error))?;
                }
            }
            match page.last() {
                Some((key, _)) if page.len() == PAGE => after = Some(key.clone()),
                _ => return Ok(conversations),
            }
        }
    }

    /// Gives a run the next ticket of a conversation, unless it has one; returns all tickets, its own among them.
    ///
    /// # Errors
    /// What the store reports. Entering again is safe.
    pub(crate) async fn enter(
        &self,
        conversation: &ConversationId,
        ticket: &Ticket,
        durability: Durability,
    ) -> Result<Vec<Taken>, StorageError> {
        loop {
            let mut tickets = self.cleared(conversation).await?;
            if tickets.iter().any(|taken| taken.ticket.run == ticket.run) {
                return Ok(tickets);
            }
            let number = tickets.last().map_or(FIRST, |last| last.number + 1);
            let key = key_of(TICKET, conversation, number);
            // If another run was first, its ticket is there now.
            let Some(revision) = self.put_if(key.clone(), ticket, Expected::Absent, durability).await? else {
                continue;
            };
            if self.is_begun_by(conversation, tickets.first().map_or(ticket.run, |first| first.ticket.run)).await? {
                tickets.push(Taken { number, ticket: ticket.clone(), revision });
                return Ok(tickets);
            }
            // The conversation was deleted meanwhile; this ticket follows its last one.
            self.remove(&key, revision).await?;
        }
    }

    /// Whether a conversation exists, and this run is its first.
    async fn is_begun_by(&self, conversation: &ConversationId, run: RunId) -> Result<bool, StorageError> {
        let key = key_of(TICKET, conversation, FIRST);
        let Some(entry) = self.storage.get(&key).await? else { return Ok(false) };
        let mut found = Conversation::default();
        found.add(FIRST, &entry).map_err(|error| corrupt(&key, &error))?;
        Ok(found.tickets.first().is_some_and(|first| first.ticket.run == run))
    }

    /// The tickets of a conversation, after the remainder of an earlier one was removed.
    async fn cleared(&self, conversation: &ConversationId) -> Result<Vec<Taken>, StorageError> {
        loop {
            let found = self.find(conversation).await?;
            if !found.has_remainder {
                return Ok(found.tickets);
            }
            self.clear(conversation).await?;
        }
    }

    /// Stores the messages of a run that has ended, and how it ended. `false` if the ticket was changed or deleted since it
    /// was read: then nothing is stored by this call.
    ///
    /// # Errors
    /// What the store reports. Storing again is safe.
    pub(crate) async fn store(
        &self,
        conversation: &ConversationId,
        taken: &Taken,
        (end, messages): (TicketEnd, Json),
        durability: Durability,
    ) -> Result<bool, StorageError> {
        let ticket = Ticket { end: Some(end), ..taken.ticket.clone() };
        let messages_key = key_of(MESSAGES, conversation, taken.number);
        let stored = self.put(messages_key.clone(), &StoredMessages { messages }, Expected::Any, durability).await?;
        let key = key_of(TICKET, conversation, taken.number);
        if self.put_if(key, &ticket, Expected::Revision(taken.revision), durability).await?.is_some() {
            return Ok(true);
        }
        let tickets = self.tickets(conversation).await?;
        if !tickets.iter().any(|now| (now.number, now.ticket.run) == (taken.number, ticket.run)) {
            self.remove(&messages_key, stored).await?;
        }
        Ok(false)
    }

    /// The messages of a run; none if it has left none yet.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn messages(
        &self,
        conversation: &ConversationId,
        number: u64,
    ) -> Result<Option<Json>, StorageError> {
        let key = key_of(MESSAGES, conversation, number);
        let Some(entry) = self.storage.get(&key).await? else { return Ok(None) };
        match codec::decode::<StoredMessages>(&entry.value) {
            Ok(stored) => Ok(Some(stored.messages)),
            Err(error) => Err(corrupt(&key, &error)),
        }
    }

    /// Deletes a conversation with these tickets, or a remainder if there are none. `false` if it has others now, and if
    /// nothing of it exists.
    ///
    /// # Errors
    /// What the store reports. From the first write of this call the conversation is gone; deleting again removes what is
    /// left.
    pub(crate) async fn delete(&self, conversation: &ConversationId, tickets: &[Taken]) -> Result<bool, StorageError> {
        let key = key_of(TICKET, conversation, FIRST);
        let durability = self.storage.default_durability();
        if let Some(first) = tickets.first() {
            let Some(before) = self.storage.get(&key).await?.filter(|entry| entry.revision == first.revision) else {
                return Ok(false);
            };
            let expected = Expected::Revision(first.revision);
            let Some(marker) = self.put_if(key.clone(), &First::Unfinished, expected, durability).await? else {
                return Ok(false);
            };
            let next = key_of(TICKET, conversation, tickets.last().unwrap_or(first).number + 1);
            if self.storage.get(&next).await?.is_some() {
                // A run has entered just now: it keeps its ticket.
                let (value, expected) = (before.value, Expected::Revision(marker));
                let put = Put { expected, durability, ..Put::new(key, value) };
                return match self.storage.put_if_revision(put).await {
                    Ok(_) | Err(StorageError::WrongRevision { .. }) => Ok(false),
                    Err(error) => Err(error),
                };
            }
        } else if !self.find(conversation).await?.has_remainder {
            return Ok(false);
        }
        self.clear(conversation).await?;
        Ok(true)
    }

    /// Removes a remainder, its marker last. Its own marker replaces the one that it finds, so that a copy under way can no
    /// longer complete: what is read while its own marker stands is the remainder.
    async fn clear(&self, conversation: &ConversationId) -> Result<(), StorageError> {
        let first = key_of(TICKET, conversation, FIRST);
        let expected = match self.storage.get(&first).await? {
            Some(entry) if matches!(codec::decode(&entry.value), Ok(First::Unfinished)) => {
                Expected::Revision(entry.revision)
            }
            Some(_) => return Ok(()),
            None => Expected::Absent,
        };
        let durability = self.storage.default_durability();
        let Some(marker) = self.put_if(first.clone(), &First::Unfinished, expected, durability).await? else {
            return Ok(());
        };
        for kind in [MESSAGES, TICKET] {
            let prefix = Key::new([kind, conversation.as_str()]).children();
            let mut after: Option<Key> = None;
            loop {
                let page = self.storage.scan(&prefix, after.as_ref(), REMOVED_AT_ONCE).await?;
                if self.storage.get(&first).await?.is_none_or(|entry| entry.revision != marker) {
                    return Ok(());
                }
                for (key, entry) in page.iter().filter(|(key, _)| *key != first) {
                    self.remove(key, entry.revision).await?;
                }
                match page.last() {
                    Some((key, _)) if page.len() == REMOVED_AT_ONCE => after = Some(key.clone()),
                    _ => break,
                }
            }
        }
        self.remove(&first, marker).await
    }

    /// Writes the first tickets of a conversation with their messages as a new one, all at once.
    ///
    /// # Errors
    /// What the store reports. Then there is no such conversation, and copying again is safe.
    pub(crate) async fn copy(
        &self,
        (conversation, tickets): (&ConversationId, &[Taken]),
        copy: &ConversationId,
        durability: Durability,
    ) -> Result<Copying, StorageError> {
        while self.cleared(copy).await?.is_empty() {
            let first = key_of(TICKET, copy, FIRST);
            let marker = self.put_if(first.clone(), &First::Unfinished, Expected::Absent, durability).await?;
            let Some(marker) = marker else { continue };
            let mut copied = Vec::with_capacity(tickets.len());
            let copying = self.copy_behind((first, marker), (conversation, tickets), (copy, &mut copied), durability);
            if copying.await? {
                return Ok(Copying::Copied);
            }
            for (key, revision) in copied {
                self.remove(&key, revision).await?;
            }
            if !self.tickets(conversation).await?.starts_with(tickets) {
                return Ok(Copying::SourceChanged);
            }
        }
        Ok(Copying::Exists)
    }

    /// Writes the messages of a copy, and then its tickets in place of its marker; `false` if the marker is gone.
    async fn copy_behind(
        &self,
        (first, marker): (Key, Revision),
        (conversation, tickets): (&ConversationId, &[Taken]),
        (copy, copied): (&ConversationId, &mut Vec<(Key, Revision)>),
        durability: Durability,
    ) -> Result<bool, StorageError> {
        for taken in tickets {
            let messages = self.messages(conversation, taken.number).await?.unwrap_or_default();
            let key = key_of(MESSAGES, copy, taken.number);
            match self.put_if(key.clone(), &StoredMessages { messages }, Expected::Absent, durability).await? {
                Some(revision) => copied.push((key, revision)),
                // The marker was removed, and another copy or conversation has begun.
                None => return Ok(false),
            }
        }
        // Messages that were read after a deletion had begun may be missing.
        if !self.tickets(conversation).await?.starts_with(tickets) {
            self.remove(&first, marker).await?;
            return Ok(false);
        }
        let whole = First::Copied(tickets.iter().map(|taken| taken.ticket.clone()).collect());
        Ok(self.put_if(first, &whole, Expected::Revision(marker), durability).await?.is_some())
    }

    async fn put(
        &self,
        key: Key,
        value: &impl Stored,
        expected: Expected,
        durability: Durability,
    ) -> Result<Revision, StorageError> {
        let value = codec::encode(value).into();
        self.storage.put_if_revision(Put { expected, durability, ..Put::new(key, value) }).await
    }

    /// Writes a value if its revision is as expected; `None` if it is not.
    async fn put_if(
        &self,
        key: Key,
        value: &impl Stored,
        expected: Expected,
        durability: Durability,
    ) -> Result<Option<Revision>, StorageError> {
        match self.put(key, value, expected, durability).await {
            Err(StorageError::WrongRevision { .. }) => Ok(None),
            put => put.map(Some),
        }
    }

    /// Removes a value, unless it has changed.
    async fn remove(&self, key: &Key, revision: Revision) -> Result<(), StorageError> {
        match self
            .storage
            .delete_if_revision(Delete::new(key.clone(), revision, self.storage.default_durability()))
            .await
        {
            Err(StorageError::WrongRevision { .. }) => Ok(()),
            removed => removed,
        }
    }
}

impl Conversation {
    /// Adds the value of a number.
    fn add(&mut self, number: u64, entry: &Entry) -> Result<(), CodecError> {
        let revision = entry.revision;
        let ticket = match codec::decode(&entry.value) {
            Err(CodecError::WrongSchema { .. }) if number == FIRST => match codec::decode(&entry.value)? {
                First::Unfinished => {
                    self.has_remainder = true;
                    return Ok(());
                }
                First::Copied(tickets) => {
                    let numbered = tickets.into_iter().zip(FIRST..);
                    self.tickets.extend(numbered.map(|(ticket, number)| Taken { number, ticket, revision }));
                    return Ok(());
                }
            },
            ticket => ticket?,
        };
        self.tickets.push(Taken { number, ticket, revision });
        Ok(())
    }
}

impl fmt::Debug for Conversations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversations").finish_non_exhaustive()
    }
}

fn corrupt(key: &Key, error: &CodecError) -> StorageError {
    StorageError::Corrupt { key: key.clone(), detail: error.to_string() }
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
        TicketEnd { at, failure: Some("failed: no answer".into()), is_tainted: true, messages: 1, bytes: 5 }
    }

    #[test]
    fn the_bytes_of_a_conversation_are_golden() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
        crate::testing::golden::check(folder, &Ticket { end: Some(end()), ..ticket(7) });
        let messages = json!([{ "role": "user", "text": "hello" }]).into();
        crate::testing::golden::check(folder, &StoredMessages { messages });
        crate::testing::golden::check(folder, &First::Copied(vec![Ticket { end: Some(end()), ..ticket(7) }]));
    }

    #[tokio::test]
    async fn a_run_has_one_ticket_however_often_it_enters_and_two_runs_never_the_same() {
        let store = Conversations::new(Arc::new(Memory::default()));
        let id = ConversationId::new("ann").unwrap();
        let (one, other) = (ticket(1), ticket(2));
        let enter = |ticket: Ticket| {
            let (store, id) = (store.clone(), id.clone());
            async move { store.enter(&id, &ticket, Durability::Memory).await.unwrap() }
        };
        let together = [enter(one.clone()), enter(other.clone()), enter(one.clone()), enter(other.clone())];
        futures::future::join_all(together).await;
        let taken: Vec<_> =
            store.tickets(&id).await.unwrap().into_iter().map(|taken| (taken.number, taken.ticket)).collect();
        assert_eq!(taken, [(1, one), (2, other)]);
    }

    #[tokio::test]
    async fn messages_of_a_ticket_that_was_deleted_meanwhile_are_not_kept() {
        let store = Conversations::new(Arc::new(Memory::default()));
        let id = ConversationId::new("ann").unwrap();
        let taken = store.enter(&id, &ticket(1), Durability::Memory).await.unwrap().remove(0);
        assert!(store.delete(&id, std::slice::from_ref(&taken)).await.unwrap());
        let messages: Json = json!([]).into();
        assert!(!store.store(&id, &taken, (end(), messages), Durability::Memory).await.unwrap());
        assert_eq!((store.tickets(&id).await.unwrap(), store.messages(&id, 1).await.unwrap()), (Vec::new(), None));
    }
}
