//! The message queue of a run supervisor, and who drains it. It lives outside the actor, so messages survive its restart.
//!
//! Draining it ("flat combining"): the step that a message causes is short and awaits nothing, so the thread that
//! enqueues the message performs it on the spot instead of waking the actor. If another thread holds the shard's lock, that
//! one drains the queue before it releases the lock.
//!
//! The actor owns the rest: it opens the shard when its life begins and closes it when that ends, is woken by senders that
//! do not drain themselves, and fails with what goes wrong while the queue is drained, on whichever thread.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use parking_lot::{Mutex, MutexGuard};
use ractor::{ActorProcessingErr, ActorRef};
use tokio::runtime::Handle;

use crate::env::{Env, Fault, happen};
use crate::supervision::Mailbox;

use super::message::ShardMessage;

/// The queue of one run supervisor, and the lock of its shard. Shared by everything that sends to it.
#[derive(Default)]
pub(crate) struct ShardQueue {
    /// Enqueued and not yet taken by the lock holder, in order of arrival.
    waiting: Mutex<VecDeque<ShardMessage>>,
    /// The shard: whoever holds the lock drains the queue. Set when a life of the actor begins; `None` while the actor is down.
    open: Mutex<Option<Open>>,
    /// Why the last drain stopped: set by the lock holder with `open` set to `None`, taken by the actor, which fails with it.
    failure: Mutex<Option<Failure>>,
    /// The actor in its current life, or its last one while it is down; receives [`Wake`].
    actor: Mailbox<Wake>,
}

/// How often in a row one sender drains the queue. Then it wakes the actor, so that no sender works for others without end.
const ROUNDS: usize = 4;

/// Processes the messages of a queue. A run shard implements it.
pub(in crate::supervision::runs) trait Drain: Send {
    /// Processes all waiting messages. Short, and awaits nothing.
    ///
    /// # Errors
    /// At a fault point only.
    fn drain(&mut self) -> Result<(), ActorProcessingErr>;

    /// The life of the actor that it belongs to.
    fn life(&self) -> u64;
}

/// The one message of a run supervisor's actor: its queue has messages, or a drain has failed.
#[derive(Debug)]
pub(crate) struct Wake;

/// A shard that may be worked on: its actor is up.
pub(in crate::supervision::runs) struct Open {
    pub(in crate::supervision::runs) shard: Box<dyn Drain>,
    /// Where a drain spawns what takes time, on whichever thread it runs.
    pub(in crate::supervision::runs) runtime: Handle,
}

/// A panic, or the error of a fault point.
type Failure = thread::Result<ActorProcessingErr>;

/// A message that was enqueued. Dropped, it wakes the actor.
#[must_use = "dropping it wakes the run supervisor, which `drain` does without"]
pub(crate) struct EnqueueGuard<'a> {
    queue: &'a ShardQueue,
    /// The queue was empty. Otherwise the sender of the first message sees to this one too.
    is_first: bool,
}

impl EnqueueGuard<'_> {
    /// Drains the queue on this thread, unless another one holds the shard; that one drains it before it releases the lock,
    /// so the message is processed there. Never blocks. Runs no code of users but reducers, policies, stores and recorders;
    /// hold no lock that they could take.
    pub(crate) fn drain(mut self) {
        self.is_first = false;
        self.queue.drain();
    }
}

impl Drop for EnqueueGuard<'_> {
    fn drop(&mut self) {
        if self.is_first {
            self.queue.wake();
        }
    }
}

impl ShardQueue {
    /// Takes all waiting messages. Later ones are collected in `buffer`, which is empty.
    pub(crate) fn take(&self, buffer: VecDeque<ShardMessage>) -> Batch<'_> {
        let messages = std::mem::replace(&mut *self.waiting.lock(), buffer);
        Batch { messages, queue: self }
    }

    /// Puts messages before all that wait. Wakes nobody: the caller drains the queue next.
    pub(in crate::supervision::runs) fn put_first(&self, messages: impl Iterator<Item = ShardMessage>) {
        let mut waiting = self.waiting.lock();
        let later = std::mem::take(&mut *waiting);
        waiting.extend(messages.chain(later));
    }

    /// The number of waiting messages.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Whether no message waits.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    /// Enqueues a message and wakes the actor. Never blocks and never loses it.
    pub(crate) fn push(&self, message: ShardMessage) {
        drop(self.enqueue(message));
    }

    /// Enqueues a message; the guard decides whether this thread or the actor processes it. Never blocks and never loses it.
    pub(crate) fn enqueue(&self, message: ShardMessage) -> EnqueueGuard<'_> {
        let mut waiting = self.waiting.lock();
        waiting.push_back(message);
        EnqueueGuard { queue: self, is_first: waiting.len() == 1 }
    }

    /// Drains the queue, unless another thread holds the shard.
    ///
    /// No message is stranded. A sender that finds the lock taken has enqueued before, and the lock holder looks at the queue
    /// again after it has released the lock. One of the two takes the lock of `waiting` second: the lock holder, which then
    /// finds the message, or the sender, which then finds the shard free. A message that finds no shard is found by the actor,
    /// which drains the queue when its next life begins. A thread that leaves while messages wait has woken the actor.
    pub(in crate::supervision::runs) fn drain(&self) {
        for _ in 0..ROUNDS {
            let Some(mut open) = self.open.try_lock() else { return };
            let Some(Open { shard, runtime }) = &mut *open else { return };
            let drained = {
                let _spawns_here = runtime.enter();
                catch_unwind(AssertUnwindSafe(|| shard.drain()))
            };
            let failure = match drained {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(Ok(error)),
                Err(panic) => Some(Err(panic)),
            };
            if failure.is_some() {
                // No message is processed until the actor has failed with it and reads its runs back.
                *open = None;
                *self.failure.lock() = failure;
                break;
            }
            drop(open);
            if self.is_empty() {
                return;
            }
        }
        self.wake();
    }

    /// Wakes the actor. One that is down drains the queue when its next life begins.
    fn wake(&self) {
        self.actor.wake(Wake);
    }

    /// Passes a fault point of the shard: its actor may be killed there, and the drain continues.
    ///
    /// # Errors
    /// At a fault point only.
    ///
    /// # Panics
    /// When the fault plan has this point panic.
    pub(in crate::supervision::runs) fn shard_point(&self, env: &Env, point: &'static str) -> Result<(), String> {
        match env.fault_at(point, "") {
            None => Ok(()),
            Some(Fault::Kill) => {
                self.actor.kill();
                Ok(())
            }
            Some(fault) => happen(fault),
        }
    }

    /// Locks the shard for a new life of the actor. No thread drains the queue while the guard is held.
    pub(in crate::supervision::runs) fn begin(&self, actor: ActorRef<Wake>) -> MutexGuard<'_, Option<Open>> {
        let open = self.open.lock();
        self.actor.attach(actor);
        // An earlier life was killed before it could fail with it.
        *self.failure.lock() = None;
        open
    }

    /// Closes the shard of one life of the actor, if it is open.
    pub(in crate::supervision::runs) fn close(&self, life: u64) {
        self.open.lock().take_if(|open| open.shard.life() == life);
    }

    /// Has the actor fail with what stopped a drain.
    ///
    /// # Errors
    /// At a fault point only.
    ///
    /// # Panics
    /// If the drain did.
    pub(in crate::supervision::runs) fn fail_if_broken(&self) -> Result<(), ActorProcessingErr> {
        let failure = self.failure.lock().take();
        match failure {
            None => Ok(()),
            Some(Ok(error)) => Err(error),
            Some(Err(panic)) => resume_unwind(panic),
        }
    }
}

impl fmt::Debug for ShardQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardQueue").field("waiting", &self.len()).finish_non_exhaustive()
    }
}

/// Messages taken from a queue. Dropped, it puts the rest back in front: a panic loses only the message that caused it.
pub(crate) struct Batch<'a> {
    messages: VecDeque<ShardMessage>,
    queue: &'a ShardQueue,
}

impl Batch<'_> {
    /// The emptied buffer, for reuse; one of more than `KEPT` messages is freed.
    pub(in crate::supervision::runs) fn into_buffer(mut self) -> VecDeque<ShardMessage> {
        const KEPT: usize = 256;
        let is_kept = self.messages.is_empty() && self.messages.capacity() <= KEPT;
        if is_kept { std::mem::take(&mut self.messages) } else { VecDeque::new() }
    }
}

impl Iterator for Batch<'_> {
    type Item = ShardMessage;

    fn next(&mut self) -> Option<ShardMessage> {
        self.messages.pop_front()
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if !self.messages.is_empty() {
            self.queue.put_first(std::mem::take(&mut self.messages).into_iter());
        }
    }
}
