//! Letters on their way: questions that wait for their replies, and those of others that are being answered.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use foldhash::{HashMap, HashSet};
use futures::FutureExt;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::actors::metrics::count_refused_letter;
use crate::messages::Durability;
use crate::storage::{Delete, Entry, Journal, Key, Put, Revision, Rider, StorageError, codec};
use crate::supervision::{answer_of, panic_text};

use super::Boards;
use super::letter::{Ask, Content, Letter, Reply};

/// A letter that nobody has read for so long, in seconds, is gone.
const KEPT: u64 = 24 * 3600;

/// Questions of others that are answered at once; more are refused.
const MOST_IN_HAND: usize = 65_536;

/// How often a caller that waits for a reply looks whether the other board lives.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often a reply is written again to a board that is not known.
const REPLY_TRIES: u32 = 20;

const PAGE: usize = 256;

/// How long a letter that was read waits for others, to be deleted with them.
const READ_FOR: Duration = Duration::from_millis(500);

/// A longer letter, in bytes, is not written with a record, so that no record is refused for it.
const MOST_WITH_A_RECORD: usize = 1024 * 1024;

#[derive(Default)]
pub(super) struct Exchange {
    /// The callers that wait for replies.
    waiting: Mutex<HashMap<Uuid, oneshot::Sender<Reply>>>,
    /// The questions of others that are being answered. They outlive the actor, which may read their letters again.
    in_hand: Mutex<HashSet<Uuid>>,
    /// Letters that were read, and are to be deleted, with the reference of a question.
    read: Mutex<Vec<(Key, Revision, Option<Uuid>)>>,
}

/// Why there is no reply. What was asked for may have been done.
#[derive(Debug)]
pub(crate) enum Unreached {
    /// The other board is gone.
    Gone,
    /// The letter could not be written.
    Storage(StorageError),
}

/// A question to another board, whose caller waits for the reply.
pub(crate) struct Question {
    boards: Arc<Boards>,
    board: Arc<str>,
    reference: Uuid,
    reply: oneshot::Receiver<Reply>,
}

impl Drop for Question {
    fn drop(&mut self) {
        self.boards.exchange.waiting.lock().remove(&self.reference);
    }
}

impl Question {
    /// The address of the question, for a letter that is written with a record.
    pub(crate) fn address(&self) -> Address {
        Address { from: Arc::clone(&self.boards.id), to: Arc::clone(&self.board), reference: self.reference }
    }

    /// Writes the question.
    ///
    /// # Errors
    /// What the store reports, and [`StorageError::Unavailable`] for a board that cannot be asked.
    pub(crate) async fn send(&self, ask: Ask) -> Result<(), StorageError> {
        if let Some(detail) = self.boards.apart(&self.board) {
            return Err(StorageError::Unavailable { detail });
        }
        self.boards.send(&self.address(), Content::Ask(Box::new(ask))).await
    }

    /// Waits for the reply.
    ///
    /// # Errors
    /// [`Unreached::Gone`].
    pub(crate) async fn reply(mut self) -> Result<Reply, Unreached> {
        loop {
            tokio::select! {
                biased;
                // The sender is removed by this caller alone.
                Ok(reply) = &mut self.reply => return Ok(reply),
                () = tokio::time::sleep(LOOK_EVERY) => {
                    if !self.boards.lives(&self.board) {
                        return Err(Unreached::Gone);
                    }
                }
            }
        }
    }
}

/// Where a letter goes, and what it refers to.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    from: Arc<str>,
    to: Arc<str>,
    reference: Uuid,
}

impl Address {
    /// A question that is written with a record; `None` if it is too large for that.
    pub(crate) fn question(&self, ask: Ask) -> Option<Rider> {
        self.rider(Content::Ask(Box::new(ask)))
    }

    /// A reply that is written with a record; `None` if it is too large for that.
    pub(crate) fn reply(&self, reply: Reply) -> Option<Rider> {
        self.rider(Content::Reply(Box::new(reply)))
    }

    fn rider(&self, content: Content) -> Option<Rider> {
        let (key, value) = self.letter(content);
        (value.len() <= MOST_WITH_A_RECORD).then_some(Rider::Put { key, value, ttl_secs: Some(KEPT) })
    }

    fn letter(&self, content: Content) -> (Key, Arc<[u8]>) {
        let letter = Letter { from: Arc::clone(&self.from), content };
        let reference = &mut Uuid::encode_buffer();
        (Journal::letter(&self.to, self.reference.as_simple().encode_lower(reference)), codec::encode_shared(&letter))
    }
}

impl Boards {
    /// Begins to ask another board: its reply is waited for from here on.
    pub(crate) fn question(self: &Arc<Self>, board: &Arc<str>) -> Question {
        let reference = self.env.id();
        let (sender, reply) = oneshot::channel();
        self.exchange.waiting.lock().insert(reference, sender);
        Question { boards: Arc::clone(self), board: Arc::clone(board), reference, reply }
    }

    /// Asks another board, and waits for its reply.
    ///
    /// # Errors
    /// See [`Unreached`].
    pub(crate) async fn ask(self: &Arc<Self>, board: &Arc<str>, ask: Ask) -> Result<Reply, Unreached> {
        let question = self.question(board);
        question.send(ask).await.map_err(Unreached::Storage)?;
        question.reply().await
    }

    async fn send(&self, address: &Address, content: Content) -> Result<(), StorageError> {
        let (key, value) = address.letter(content);
        let put = Put { ttl_secs: Some(KEPT), durability: Durability::Memory, ..Put::new(key, value) };
        answer_of(self.journal.storage().put_if_revision(put)).await.map(|_| ())
    }

    /// Takes all letters that are there.
    ///
    /// # Errors
    /// What the store reports.
    pub(super) async fn collect(self: &Arc<Self>) -> Result<(), StorageError> {
        let (mailbox, mut after) = (Journal::mailbox(&self.id), None);
        loop {
            let page = self.journal.storage().scan(&mailbox, after.as_ref(), PAGE).await?;
            let is_last = page.len() < PAGE;
            after = page.last().map(|(key, _)| key.clone());
            for (key, entry) in page {
                self.receive(key, entry);
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Takes a letter: a reply goes to who waits for it, and a question is answered. One that cannot be read is discarded.
    pub(super) fn receive(self: &Arc<Self>, key: Key, entry: Entry) {
        let boards = Arc::clone(self);
        let Some((_, reference)) = self.journal.addressed(&key) else { return };
        match codec::decode::<Letter>(&entry.value) {
            Ok(Letter { content: Content::Reply(reply), .. }) => {
                if let Some(waiting) = self.exchange.waiting.lock().remove(&reference) {
                    let _ = waiting.send(*reply);
                }
                self.discard(key, entry.revision, None);
            }
            Ok(Letter { from, content: Content::Ask(ask) }) => {
                let is_full = {
                    let mut in_hand = self.exchange.in_hand.lock();
                    let is_full = in_hand.len() >= MOST_IN_HAND;
                    if !in_hand.insert(reference) {
                        return;
                    }
                    is_full
                };
                let address = Address { from: Arc::clone(&self.id), to: from, reference };
                tokio::spawn(async move {
                    let reply = match is_full {
                        true => {
                            count_refused_letter("overloaded");
                            Some(Reply::Failed("the board has too many questions of other boards".to_owned()))
                        }
                        false => boards.answer(&address, *ask).await,
                    };
                    if let Some(reply) = reply {
                        boards.reply(&address, reply).await;
                    }
                    // In hand until its letter is gone as well, so that it is not read again.
                    boards.discard(key, entry.revision, Some(reference));
                });
            }
            Err(error) => {
                count_refused_letter("unreadable");
                tracing::warn!(%key, %error, "a letter of another board cannot be read, and is refused");
                self.discard(key, entry.revision, None);
            }
        }
    }

    /// Writes a reply; one that the store does not take now is written again for as long as the other board may wait for it.
    async fn reply(&self, address: &Address, reply: Reply) {
        let (mut reply, mut tries) = (Content::Reply(Box::new(reply)), 0);
        while let Err(error) = self.send(address, reply.clone()).await {
            tracing::warn!(board = &*address.to, %error, "a reply to another board could not be written");
            tries += 1;
            if matches!(error, StorageError::TooLarge { .. }) && tries == 1 {
                reply = Content::Reply(Box::new(Reply::Failed(error.to_string())));
                continue;
            }
            // A board that has just begun may not be known yet.
            if !error.is_transient() || (tries > REPLY_TRIES && !self.lives(&address.to)) {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Has the board do what is asked; `None` if the reply is written already. A fault may have it do that again, or late.
    async fn answer(&self, address: &Address, ask: Ask) -> Option<Reply> {
        let Some(host) = self.host.get() else { return Some(Reply::Failed("the board starts".to_owned())) };
        let answered = async {
            let times = self.env.message_point("mail.take", &address.to).await?;
            for _ in 1..times {
                host.answer(ask.clone(), address.clone()).await;
            }
            Ok(host.answer(ask, address.clone()).await)
        };
        let answered = AssertUnwindSafe(answered).catch_unwind().await;
        answered.unwrap_or_else(|panic| Err(panic_text(&*panic))).unwrap_or_else(|error| Some(Reply::Failed(error)))
    }

    /// Has a letter deleted that was read. That waits for others, because the writes of what was asked for are in a hurry.
    fn discard(&self, key: Key, revision: Revision, question: Option<Uuid>) {
        let mut read = self.exchange.read.lock();
        read.push((key, revision, question));
        if read.len() == 1 || read.len() == PAGE {
            self.has_read.notify_one();
        }
    }

    /// Deletes letters that were read, some at a time. One that stays is read again, or expires.
    pub(super) async fn discard_read(&self) {
        loop {
            while self.exchange.read.lock().is_empty() {
                self.has_read.notified().await;
            }
            let is_full = async {
                while self.exchange.read.lock().len() < PAGE {
                    self.has_read.notified().await;
                }
            };
            let _ = tokio::time::timeout(READ_FOR, is_full).await;
            let read = self.exchange.read.lock().clone();
            let storage = self.journal.storage();
            let deletes = read.iter().map(|(key, revision, _)| {
                answer_of(storage.delete_if_revision(Delete::new(key.clone(), *revision, Durability::Memory)))
            });
            join_all(deletes).await;
            self.exchange.read.lock().drain(..read.len());
            let mut in_hand = self.exchange.in_hand.lock();
            for question in read.iter().filter_map(|(_, _, question)| question.as_ref()) {
                in_hand.remove(question);
            }
        }
    }
}
