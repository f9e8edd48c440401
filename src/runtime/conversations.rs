//! Conversations, which several runs of an agent or a workflow share.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::messages::state::StateRules;
use crate::messages::{ConversationId, Durability, Message, RunId, Timestamp};
use crate::storage::{Copying, Journal, Storage, StorageError, Taken, Ticket};
use crate::supervision::runs::conversing::ConversationQueue;

use super::handle::Callboard;

/// The conversations of a board's store (SEMANTICS 15); see [`Callboard::conversations`].
///
/// ```
/// use callboard::messages::{ConversationId, Message};
/// use callboard::prelude::*;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let board = Callboard::builder().agent("host", |_: Turn| async { Ok(Command::output("Hello!")) }).start().await?;
/// let ann = ConversationId::new("ann")?;
/// board.submit(Task::new("Good morning.").conversation(&ann)).await?.result().await?;
/// let conversations = board.conversations();
/// let runs = conversations.read(&ann).await?;
/// assert_eq!(runs[0].messages[0], Message::user("Good morning."));
/// conversations.delete(&ann).await?;
/// assert!(conversations.read(&ann).await?.is_empty());
/// # board.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone)]
pub struct ConversationsHandle {
    queue: ConversationQueue,
    durability: Durability,
}

/// A summary of a conversation, returned by [`ConversationsHandle::info`] and [`ConversationsHandle::list`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationInfo {
    /// The id of the conversation, by which tasks join it
    /// ([`Task::conversation`](crate::messages::Task::conversation)).
    pub id: ConversationId,
    /// The agent or workflow that it belongs to.
    pub owner: Arc<str>,
    /// How many runs were submitted to the conversation, ended or not; a copy has those that were copied.
    pub runs: usize,
    /// How many of `runs` have not ended: the one that works, and those that wait for it.
    pub open_runs: usize,
    /// How many messages the ended runs have left; open runs have left none yet.
    pub messages: u64,
    /// When its first run was submitted.
    pub begun_at: Timestamp,
    /// When its last run was submitted or ended.
    pub last_at: Timestamp,
}

/// One run of a conversation, returned by [`ConversationsHandle::read`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationRun {
    /// The id of the run, for [`Callboard::run`].
    pub run: RunId,
    /// When the run was submitted and got its position in the conversation.
    pub submitted_at: Timestamp,
    /// When the run ended; `None` while it works or waits for the runs before it.
    pub ended_at: Option<Timestamp>,
    /// Why it did not finish, if it has ended and did not.
    pub failure: Option<Arc<str>>,
    /// The messages that the run has left, its task and its answer; empty until the run has ended.
    pub messages: Vec<Message>,
}

/// Why a conversation was not deleted or forked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConversationError {
    /// The conversation to copy does not exist. [`ConversationsHandle::delete`] returns `false` for one that does not
    /// exist.
    #[error("there is no conversation {0}")]
    Unknown(ConversationId),
    /// A run of the conversation has not ended: any run when it is deleted, or one of those to copy when it is forked.
    #[error(
        "run {run} of conversation {conversation} has not ended: cancel it or wait for it, and delete or copy the conversation then"
    )]
    RunIsOpen {
        /// The conversation that was to be deleted or copied.
        conversation: ConversationId,
        /// The first of its runs that has not ended.
        run: RunId,
    },
    /// The run is none of its, or has not ended.
    #[error("conversation {conversation} has no ended run {run}")]
    NoRun {
        /// The conversation that was to be copied.
        conversation: ConversationId,
        /// The run up to which the conversation was to be copied.
        run: RunId,
    },
    /// The conversation that the copy was to become is there.
    #[error("there is a conversation {0} already; choose another id for the copy")]
    Exists(ConversationId),
    /// The store reported an error while the conversation was read, deleted or copied.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Callboard {
    /// Returns a handle to list, read, delete and copy the conversations in the board's store.
    #[must_use]
    pub fn conversations(&self) -> ConversationsHandle {
        ConversationsHandle { queue: self.board.conversations.clone(), durability: self.board.durability }
    }
}

impl ConversationsHandle {
    /// The conversations in a store that no board has to work on. `rules` are those of runs that bring none: what a run has
    /// left whose end a crash has kept from being stored is read with them.
    #[must_use]
    pub fn in_store(storage: Arc<dyn Storage>, rules: StateRules) -> Self {
        let durability = storage.default_durability();
        Self { queue: ConversationQueue::new(Journal::new(storage), rules), durability }
    }

    /// All conversations, by id.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn list(&self) -> Result<Vec<ConversationInfo>, StorageError> {
        let queue = &self.queue;
        let mut infos = Vec::new();
        for (id, _) in queue.store().all().await?.conversations {
            infos.extend(info(&id, &queue.settled(&id).await?));
        }
        Ok(infos)
    }

    /// A conversation in short, if there is one.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn info(&self, conversation: &ConversationId) -> Result<Option<ConversationInfo>, StorageError> {
        Ok(info(conversation, &self.queue.settled(conversation).await?))
    }

    /// The runs of a conversation with what they have left, in order; none if there is no such conversation. A run that has
    /// not ended has left nothing yet.
    ///
    /// # Errors
    /// What the store reports.
    pub async fn read(&self, conversation: &ConversationId) -> Result<Vec<ConversationRun>, StorageError> {
        let queue = &self.queue;
        let mut runs = Vec::new();
        for Taken { number, ticket, .. } in queue.settled(conversation).await? {
            let Ticket { run, taken_at, end, .. } = ticket;
            let messages = match end {
                Some(_) => queue.store().messages(conversation, number).await?,
                None => None,
            };
            let (ended_at, failure) = end.map(|end| (end.at, end.failure)).unzip();
            runs.push(ConversationRun {
                run,
                submitted_at: taken_at,
                ended_at,
                failure: failure.flatten(),
                messages: messages.and_then(|messages| messages.parse().ok()).unwrap_or_default(),
            });
        }
        Ok(runs)
    }

    /// Deletes a conversation with all its messages. Its runs stay, with what they have read in their journals. `false` if
    /// there was none.
    ///
    /// # Errors
    /// A run of it has not ended, or what the store reports. The conversation is there whole or not at all; deleting again
    /// removes what a crash has left in the store.
    pub async fn delete(&self, conversation: &ConversationId) -> Result<bool, ConversationError> {
        let queue = &self.queue;
        loop {
            let tickets = queue.settled(conversation).await?;
            check_ended(conversation, &tickets)?;
            if queue.store().delete(conversation, &tickets).await? {
                return Ok(true);
            }
            if tickets.is_empty() {
                return Ok(false);
            }
        }
    }

    /// Copies a conversation up to a run that has ended, that one included, under a new id.
    ///
    /// ```
    /// use callboard::messages::ConversationId;
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("counter", |turn: Turn| async move { Ok(Command::output(turn.conversation()?.len())) })
    ///     .start()
    ///     .await?;
    /// let (ann, other) = (ConversationId::new("ann")?, ConversationId::new("ann, another way")?);
    /// let first = board.submit(Task::new("one").conversation(&ann)).await?;
    /// board.submit(Task::new("two").conversation(&ann)).await?.result().await?;
    /// board.conversations().fork(&ann, first.id(), &other).await?;
    /// let run = board.submit(Task::new("two, another way").conversation(&other)).await?;
    /// assert_eq!(run.result().await?.output, 2, "what came after the first run is not in the copy");
    /// # board.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// See [`ConversationError`]. The copy is there whole or not at all; forking again is safe.
    pub async fn fork(
        &self,
        conversation: &ConversationId,
        up_to: RunId,
        copy: &ConversationId,
    ) -> Result<(), ConversationError> {
        let Self { queue, durability } = self;
        loop {
            let mut tickets = queue.settled(conversation).await?;
            if tickets.is_empty() {
                return Err(ConversationError::Unknown(conversation.clone()));
            }
            let last = tickets.iter().position(|taken| taken.ticket.run == up_to && taken.ticket.end.is_some());
            let no_run = || ConversationError::NoRun { conversation: conversation.clone(), run: up_to };
            tickets.truncate(last.ok_or_else(no_run)? + 1);
            check_ended(conversation, &tickets)?;
            match queue.store().copy((conversation, &tickets), copy, *durability).await? {
                Copying::Copied => return Ok(()),
                Copying::Exists => return Err(ConversationError::Exists(copy.clone())),
                Copying::SourceChanged => {}
            }
        }
    }
}

/// Checks all runs: a waiting run may be cancelled before the earlier ones have ended, so any of them may be open.
fn check_ended(conversation: &ConversationId, tickets: &[Taken]) -> Result<(), ConversationError> {
    match tickets.iter().find(|taken| taken.ticket.end.is_none()) {
        Some(open) => Err(ConversationError::RunIsOpen { conversation: conversation.clone(), run: open.ticket.run }),
        None => Ok(()),
    }
}

fn info(id: &ConversationId, tickets: &[Taken]) -> Option<ConversationInfo> {
    let first = &tickets.first()?.ticket;
    let ends = || tickets.iter().filter_map(|taken| taken.ticket.end.as_ref());
    let times = tickets.iter().map(|taken| taken.ticket.taken_at).chain(ends().map(|end| end.at));
    Some(ConversationInfo {
        id: id.clone(),
        owner: Arc::clone(&first.owner),
        runs: tickets.len(),
        open_runs: tickets.len() - ends().count(),
        messages: ends().map(|end| u64::from(end.messages)).sum(),
        begun_at: first.taken_at,
        last_at: times.max()?,
    })
}

impl fmt::Debug for ConversationsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConversationsHandle").finish_non_exhaustive()
    }
}
