//! Letters on their way: questions that wait for their replies, and those of others that are being answered.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use foldhash::{HashMap, HashSet};
use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::actors::metrics::count_refused_letter;
use crate::messages::Durability;
use crate::storage::{Delete, Entry, Journal, Key, Put, StorageError, codec};
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

#[derive(Default)]
pub(super) struct Exchange {
    /// The callers that wait for replies.
    waiting: Mutex<HashMap<Uuid, oneshot::Sender<Reply>>>,
    /// The questions of others that are being answered. They outlive the actor, which may read their letters again.
    in_hand: Mutex<HashSet<Uuid>>,
}

/// Why there is no reply. What was asked for may have been done.
#[derive(Debug)]
pub(crate) enum Unreached {
    /// The other board is gone.
    Gone,
    /// The letter could not be written.
    Storage(StorageError),
}

/// A caller that waits for a reply.
struct Waiting<'a> {
    exchange: &'a Exchange,
    reference: Uuid,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.exchange.waiting.lock().remove(&self.reference);
    }
}

impl Boards {
    /// Asks another board, and waits for its reply.
    ///
    /// # Errors
    /// See [`Unreached`].
    pub(crate) async fn ask(&self, board: &str, ask: Ask) -> Result<Reply, Unreached> {
        if let Some(detail) = self.apart(board) {
            return Err(Unreached::Storage(StorageError::Unavailable { detail }));
        }
        let reference = self.env.id();
        let (sender, mut reply) = oneshot::channel();
        self.exchange.waiting.lock().insert(reference, sender);
        let _waiting = Waiting { exchange: &self.exchange, reference };
        self.send(board, reference, Content::Ask(Box::new(ask))).await.map_err(Unreached::Storage)?;
        loop {
            tokio::select! {
                biased;
                // The sender is removed by this caller alone.
                Ok(reply) = &mut reply => return Ok(reply),
                () = tokio::time::sleep(LOOK_EVERY) => {
                    if !self.lives(board) {
                        return Err(Unreached::Gone);
                    }
                }
            }
        }
    }

    async fn send(&self, board: &str, reference: Uuid, content: Content) -> Result<(), StorageError> {
        let letter = Letter { from: Arc::clone(&self.id), content };
        let key = Journal::letter(board, reference.as_simple().encode_lower(&mut Uuid::encode_buffer()));
        let value = codec::encode_shared(&letter);
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
        let reference = key.segments().last().and_then(|name| Uuid::try_parse(name).ok());
        let letter = codec::decode::<Letter>(&entry.value).map_err(|error| error.to_string());
        match letter.and_then(|letter| Ok((letter, reference.ok_or("its key has no reference")?))) {
            Ok((Letter { content: Content::Reply(reply), .. }, reference)) => {
                if let Some(waiting) = self.exchange.waiting.lock().remove(&reference) {
                    let _ = waiting.send(*reply);
                }
                tokio::spawn(async move { boards.discard(key, entry).await });
            }
            Ok((Letter { from, content: Content::Ask(ask) }, reference)) => {
                let is_full = {
                    let mut in_hand = self.exchange.in_hand.lock();
                    let is_full = in_hand.len() >= MOST_IN_HAND;
                    if !in_hand.insert(reference) {
                        return;
                    }
                    is_full
                };
                tokio::spawn(async move {
                    let answered = async {
                        let reply = match is_full {
                            true => {
                                count_refused_letter("overloaded");
                                Reply::Failed("the board has too many questions of other boards".to_owned())
                            }
                            false => boards.answer(&from, *ask).await,
                        };
                        boards.reply(&from, reference, reply).await;
                    };
                    // In hand until its letter is gone as well, so that it is not read again.
                    tokio::join!(boards.discard(key, entry), answered);
                    boards.exchange.in_hand.lock().remove(&reference);
                });
            }
            Err(error) => {
                count_refused_letter("unreadable");
                tracing::warn!(%key, error, "a letter of another board cannot be read, and is refused");
                tokio::spawn(async move { boards.discard(key, entry).await });
            }
        }
    }

    /// Writes a reply; one that the store does not take now is written again for as long as the other board may wait for it.
    async fn reply(&self, to: &str, reference: Uuid, reply: Reply) {
        let (reply, mut tries) = (Content::Reply(Box::new(reply)), 0);
        while let Err(error) = self.send(to, reference, reply.clone()).await {
            tracing::warn!(board = to, %error, "a reply to another board could not be written");
            tries += 1;
            // A board that has just begun may not be known yet.
            if !error.is_transient() || (tries > REPLY_TRIES && !self.lives(to)) {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Has the board do what is asked. A fault may have it do that again, or late.
    async fn answer(&self, from: &str, ask: Ask) -> Reply {
        let Some(host) = self.host.get() else { return Reply::Failed("the board starts".to_owned()) };
        let answered = async {
            let times = self.env.message_point("mail.take", from).await?;
            for _ in 1..times {
                host.answer(ask.clone()).await;
            }
            Ok(host.answer(ask).await)
        };
        let answered = AssertUnwindSafe(answered).catch_unwind().await;
        answered.unwrap_or_else(|panic| Err(panic_text(&*panic))).unwrap_or_else(Reply::Failed)
    }

    /// Deletes a letter. One that stays is read again, or expires.
    async fn discard(&self, key: Key, entry: Entry) {
        let delete = Delete::new(key, entry.revision, Durability::Memory);
        let _ = answer_of(self.journal.storage().delete_if_revision(delete)).await;
    }
}
