//! Conversations: the messages that a run stores, those that the next one reads, and when that one may start (SEMANTICS 15).
//!
//! A run that enters a conversation takes a ticket and waits until every run with an earlier one has ended. Its end is
//! journaled first, and its messages are stored after that; after a crash in between, the first reader of the open ticket
//! stores them from the journal. Both write the same, so it may be done by either, and more than once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::messages::state::StateRules;
use crate::messages::{ConversationId, Durability, Json, RunEvent, RunId, Timestamp};
use crate::storage::{AllConversations, Conversations, Journal, StorageError, Taken, Ticket, TicketEnd};
use crate::supervision::runs::rules::conversation::{as_read, end_of, json, lost, newest};
use crate::supervision::runs::rules::run::Run;
use crate::supervision::runs::rules::snapshot::load;

use super::queue::{ShardMessage, ShardQueue};

/// The result of looking at a conversation.
#[derive(Debug)]
pub(in crate::supervision::runs) enum ConversationCheck {
    /// The run may start; the event holds what it reads.
    Read(Box<RunEvent>),
    /// Another run comes first. The queue receives [`ShardMessage::LookAtConversation`] when that one has ended on this board.
    Waits,
    /// The conversation belongs to another agent or workflow.
    Foreign(Arc<str>),
}

/// The conversations of a board's store. A cheap clone.
#[derive(Clone)]
pub(crate) struct ConversationQueue {
    store: Conversations,
    journal: Journal,
    rules: StateRules,
    /// Runs that wait, by the run whose end they wait for. Kept in memory: a run of another board is polled.
    waiters: Arc<Mutex<Waiters>>,
    /// Conversations whose last deletion was incomplete.
    unfinished: Arc<Mutex<BTreeSet<ConversationId>>>,
}

/// The runs that wait for the end of another, with the queues of their shards.
type Waiters = BTreeMap<RunId, Vec<(RunId, Weak<ShardQueue>)>>;

impl ConversationQueue {
    /// The conversations of the store that the journals are in.
    #[must_use]
    pub(crate) fn new(journal: Journal, rules: StateRules) -> Self {
        let store = Conversations::new(Arc::clone(journal.storage()));
        Self { store, journal, rules, waiters: Arc::default(), unfinished: Arc::default() }
    }

    /// The tickets and messages themselves.
    #[must_use]
    pub(crate) fn store(&self) -> &Conversations {
        &self.store
    }

    /// The agent or workflow that a conversation belongs to, if there is one.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn owner(&self, conversation: &ConversationId) -> Result<Option<Arc<str>>, StorageError> {
        Ok(self.store.tickets(conversation).await?.into_iter().next().map(|first| first.ticket.owner))
    }

    /// Takes a ticket for a run that is journaled, unless it has one.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn enter(
        &self,
        conversation: &ConversationId,
        (run, owner, at): (RunId, Arc<str>, Timestamp),
        durability: Durability,
    ) -> Result<Vec<Taken>, StorageError> {
        self.store.enter(conversation, &Ticket { run, owner, taken_at: at, end: None }, durability).await
    }

    /// The tickets of a conversation, those of runs that have ended with their ends: what a crash has kept from being stored
    /// is stored now.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn settled(&self, conversation: &ConversationId) -> Result<Vec<Taken>, StorageError> {
        let tickets = self.store.tickets(conversation).await?;
        let mut has_changed = false;
        for taken in tickets.iter().filter(|taken| taken.ticket.end.is_none()) {
            has_changed |= self.settle_ticket(conversation, taken.clone()).await?.ticket.end.is_some();
        }
        if has_changed { self.store.tickets(conversation).await } else { Ok(tickets) }
    }

    /// Deletes the conversations whose last run was submitted and ended before a time, and the remains of interrupted deletions
    /// and copies: only those that were there at the last call too, since others may be in progress.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn forget_before(&self, time: Timestamp) -> Result<(), StorageError> {
        let AllConversations { conversations, unfinished } = self.store.all().await?;
        let before = std::mem::replace(&mut *self.unfinished.lock(), unfinished.clone());
        for id in unfinished.intersection(&before) {
            self.store.delete(id, &[]).await?;
        }
        let is_old = |taken: &Taken| taken.ticket.end.as_ref().map_or(taken.ticket.taken_at, |end| end.at) < time;
        for (id, tickets) in conversations {
            if !tickets.iter().all(is_old) {
                continue;
            }
            let tickets = self.settled(&id).await?;
            // An unfinished run keeps the conversation, however old its submission, and so does a newer run.
            let is_over = |taken: &Taken| taken.ticket.end.is_some() && is_old(taken);
            if tickets.iter().all(is_over) {
                self.store.delete(&id, &tickets).await?;
            }
        }
        Ok(())
    }

    /// Ends the ticket of a run that has ended by its journal, or has no journal.
    async fn settle_ticket(&self, conversation: &ConversationId, mut taken: Taken) -> Result<Taken, StorageError> {
        let run = taken.ticket.run;
        let (end, durability) = match load(&self.journal, run, &self.rules).await {
            Ok(loaded) => match loaded.run {
                Some(run) => match end_of(&run) {
                    Some(end) => (end, run.submission().task.durability),
                    None => return Ok(taken),
                },
                None => (lost(taken.ticket.taken_at, "its journal was deleted before it had ended"), None),
            },
            Err(error @ StorageError::Corrupt { .. }) => (lost(taken.ticket.taken_at, &error.to_string()), None),
            Err(error) => return Err(error),
        };
        let durability = durability.unwrap_or_else(|| self.journal.storage().default_durability());
        // If another writer was quicker, it has stored the same.
        self.store.store(conversation, &taken, end.clone(), durability).await?;
        taken.ticket.end = Some(end.0);
        Ok(taken)
    }

    /// Stores the messages of an ended run, and wakes the runs that wait for it.
    ///
    /// # Errors
    /// What the store reports; then the next run or reader stores it from the journal.
    pub(in crate::supervision::runs) async fn leave(
        &self,
        conversation: &ConversationId,
        left: Left,
        durability: Durability,
    ) -> Result<(), StorageError> {
        let Left { run, owner, at, end } = left;
        let stored = async {
            let mut tickets = self.enter(conversation, (run, owner, at), durability).await?;
            loop {
                // A missing ticket was deleted meanwhile, and its messages with it.
                let Some(taken) = tickets.iter().find(|taken| taken.ticket.run == run) else { return Ok(()) };
                let is_there = taken.ticket.end.as_ref() == Some(&end.0);
                if is_there || self.store.store(conversation, taken, end.clone(), durability).await? {
                    return Ok(());
                }
                tickets = self.store.tickets(conversation).await?;
            }
        };
        let stored = stored.await;
        self.wake(run);
        stored
    }

    /// Has the runs that wait for this one look at the conversation again.
    fn wake(&self, run: RunId) {
        let waiting = self.waiters.lock().remove(&run).unwrap_or_default();
        for (run, queue) in waiting {
            if let Some(queue) = queue.upgrade() {
                queue.push(ShardMessage::LookAtConversation { run });
            }
        }
    }

    /// Takes a ticket for a run that has none, and looks whether it may start.
    pub(in crate::supervision::runs) async fn look(
        &self,
        conversation: &ConversationId,
        (run, owner, at): (RunId, Arc<str>, Timestamp),
        durability: Durability,
        (queue, now): (&Arc<ShardQueue>, Timestamp),
    ) -> Result<ConversationCheck, StorageError> {
        let mut tickets = self.enter(conversation, (run, Arc::clone(&owner), at), durability).await?;
        let own = tickets.iter().position(|taken| taken.ticket.run == run).unwrap_or(tickets.len());
        if let Some(first) = tickets.first().filter(|first| first.ticket.owner != owner) {
            return Ok(ConversationCheck::Foreign(Arc::clone(&first.ticket.owner)));
        }
        tickets.truncate(own);
        for taken in tickets.iter_mut().rev().filter(|taken| taken.ticket.end.is_none()) {
            // Registered before the ticket is read, so that an end in between wakes the run.
            self.waiters.lock().entry(taken.ticket.run).or_default().push((run, Arc::downgrade(queue)));
            *taken = self.settle_ticket(conversation, taken.clone()).await?;
            if taken.ticket.end.is_none() {
                return Ok(ConversationCheck::Waits);
            }
            self.forget_waiter(taken.ticket.run, run);
        }
        let first_read = tickets.len() - newest(&tickets);
        let mut messages = Vec::new();
        let mut is_tainted = false;
        for Taken { number, ticket, .. } in &tickets[first_read..] {
            let Some(end) = &ticket.end else { continue };
            let left = self.store.messages(conversation, *number).await?;
            messages.extend(as_read(left.and_then(|left| left.parse().ok()).unwrap_or_default(), end));
            is_tainted |= end.is_tainted;
        }
        let count = |runs: usize| u32::try_from(runs).unwrap_or(u32::MAX);
        Ok(ConversationCheck::Read(Box::new(RunEvent::ConversationRead {
            messages: json(&messages),
            runs: count(tickets.len() - first_read),
            left_out: count(first_read),
            is_tainted,
            at: now,
        })))
    }

    fn forget_waiter(&self, awaited: RunId, run: RunId) {
        let mut waiters = self.waiters.lock();
        if let Some(waiting) = waiters.get_mut(&awaited) {
            waiting.retain(|(waiter, _)| *waiter != run);
            if waiting.is_empty() {
                waiters.remove(&awaited);
            }
        }
    }
}

impl fmt::Debug for ConversationQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConversationQueue").finish_non_exhaustive()
    }
}

/// The messages of an ended run for its conversation.
#[derive(Debug)]
pub(in crate::supervision::runs) struct Left {
    run: RunId,
    owner: Arc<str>,
    at: Timestamp,
    end: (TicketEnd, Json),
}

impl Left {
    /// The end of a run in a conversation; `None` if it is in none, or has not ended.
    pub(in crate::supervision::runs) fn of(run: &Run) -> Option<(ConversationId, Self)> {
        let conversation = run.conversation()?.clone();
        let end = end_of(run)?;
        Some((conversation, Self { run: run.id(), owner: run.owner(), at: run.submission().at, end }))
    }
}
