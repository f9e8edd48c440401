//! The process that has the store open: its calls, and those that it makes for other processes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use callboard::env::Clock;
use callboard::storage::{Append, Fence, Key, SessionId, Sled, Storage as _, StorageError, StorageFuture};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::request::{Answer, Claim, Done, Earlier, Request};

/// How long after the store was opened the claims of processes that live are awaited: boards renew theirs every 20 s.
const RENEWED_WITHIN: Duration = Duration::from_secs(60);
/// When to ask again for a claim that a process holds which has not renewed it since the store was opened.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The open store.
pub(crate) struct Holder {
    pub(crate) sled: Sled,
    clock: Arc<dyn Clock>,
    /// When the store was opened, by the monotonic clock.
    opened_at: Duration,
    /// The claims of this and other processes since then, in force or expired.
    claimed: Mutex<HashMap<Key, Fence>>,
}

impl Holder {
    pub(crate) fn new(sled: Sled, clock: Arc<dyn Clock>) -> Self {
        let opened_at = clock.now().monotonic;
        Self { sled, clock, opened_at, claimed: Mutex::default() }
    }

    /// Claims a stream. Of the earlier owner it counts whether its process lives: a claim ends with the process that made it, and
    /// outlasts the process that had the store open.
    pub(crate) fn claim(self: &Arc<Self>, claim: Claim) -> StorageFuture<Fence> {
        let Claim { stream, owner, ttl_secs, earlier } = claim;
        let now = self.clock.now();
        let is_known = self.claimed.lock().contains_key(&stream);
        // Opening the store has voided the claims, and their owners are about to claim again.
        let is_renewed_soon = now.monotonic - self.opened_at < RENEWED_WITHIN;
        let is_gone = earlier == Earlier::Gone {};
        if let Earlier::Lives { owner } = earlier
            && !is_known
            && is_renewed_soon
        {
            let held = StorageError::Held { stream, owner, until: now.wall + ASK_AGAIN };
            return std::future::ready(Err(held)).boxed();
        }
        let (holder, first) = (Arc::clone(self), self.sled.claim(&stream, &owner, ttl_secs));
        async move {
            let mut claimed = first.await;
            if let (Err(StorageError::Held { .. }), true) = (&claimed, is_gone) {
                let fence = holder.claimed.lock().remove(&stream);
                if let Some(fence) = fence {
                    // Its process has ended. Refused if another claim was faster.
                    let _ = holder.sled.release(&stream, fence).await;
                    claimed = holder.sled.claim(&stream, &owner, ttl_secs).await;
                }
            }
            let fence = claimed?;
            holder.claimed.lock().insert(stream, fence);
            Ok(fence)
        }
        .boxed()
    }

    pub(crate) fn release(&self, stream: &Key, fence: Fence) -> StorageFuture<()> {
        let mut claimed = self.claimed.lock();
        if claimed.get(stream) == Some(&fence) {
            claimed.remove(stream);
        }
        self.sled.release(stream, fence)
    }

    /// Issues a call of another process. Watches are not calls: see `watches`.
    pub(crate) fn perform(self: &Arc<Self>, request: Request) -> BoxFuture<'static, Result<Answer, StorageError>> {
        let sled = &self.sled;
        let done = |call: StorageFuture<()>| call.map(|done| done.map(|()| Answer::Done {})).boxed();
        let number = |call: StorageFuture<u64>| call.map(|done| done.map(|number| Answer::Number { number })).boxed();
        match request {
            Request::Append { append } => number(sled.append(append)),
            Request::Read { stream, from, limit } => {
                let read = sled.read(&stream, from, limit);
                read.map(|read| read.map(|records| Answer::Records { records })).boxed()
            }
            Request::Streams { prefix } => {
                sled.streams(&prefix).map(|read| read.map(|keys| Answer::Keys { keys })).boxed()
            }
            Request::Purge { stream, up_to } => done(sled.purge(&stream, up_to)),
            Request::Get { key } => sled.get(&key).map(|read| read.map(|entry| Answer::Entry { entry })).boxed(),
            Request::Put { put } => number(sled.put_if_revision(put)),
            Request::Delete { delete } => done(sled.delete_if_revision(delete)),
            Request::Scan { prefix, after, limit } => {
                let read = sled.scan(&prefix, after.as_ref(), limit);
                read.map(|read| read.map(|entries| Answer::Entries { entries })).boxed()
            }
            Request::Claim { claim } => {
                self.claim(claim).map(|fence| fence.map(|Fence(number)| Answer::Number { number })).boxed()
            }
            Request::Renew { stream, fence, ttl_secs } => done(sled.renew(&stream, fence, ttl_secs)),
            Request::Release { stream, fence } => done(self.release(&stream, fence)),
            Request::BeginSession { new } => {
                let begun = sled.begin_session(new);
                begun.map(|begun| begun.map(|SessionId(number)| Answer::Number { number })).boxed()
            }
            Request::RenewSession { id, about } => done(sled.renew_session(id, about)),
            Request::EndSession { id, only_if_expired } => done(sled.end_session(id, only_if_expired)),
            Request::Sessions {} => {
                sled.sessions().map(|read| read.map(|sessions| Answer::Sessions { sessions })).boxed()
            }
            Request::ForgetSession { id } => done(sled.forget_session(id)),
            Request::Watch { .. } | Request::NextChange { .. } | Request::Unwatch { .. } => {
                let detail = "a watch ended with the process that had the store open".to_owned();
                std::future::ready(Err(StorageError::Unavailable { detail })).boxed()
            }
        }
    }

    /// Issues a call again that the process which had the store open before may have carried out.
    pub(crate) fn repeat(self: &Arc<Self>, request: Request) -> BoxFuture<'static, Result<Answer, StorageError>> {
        let (holder, second) = (Arc::clone(self), self.perform(request.clone()));
        async move {
            let refusal = match second.await {
                Ok(answer) => return Ok(answer),
                Err(refusal) => refusal,
            };
            match (request.done_before(&refusal), &request) {
                (Done::Yes, _) => Ok(Answer::Done {}),
                (Done::IfRecord { sequence }, Request::Append { append }) if holder.has(append, sequence).await? => {
                    Ok(Answer::Number { number: sequence })
                }
                (Done::Unknown, _) => Err(StorageError::Unavailable {
                    detail: "the process that had the store open ended before it answered".to_owned(),
                }),
                (Done::No | Done::IfRecord { .. }, _) => Err(refusal),
            }
        }
        .boxed()
    }

    async fn has(&self, append: &Append, sequence: u64) -> Result<bool, StorageError> {
        let records = self.sled.read(&append.stream, sequence, 1).await?;
        Ok(records.first().is_some_and(|record| record.sequence == sequence && record.payload == append.payload))
    }
}
