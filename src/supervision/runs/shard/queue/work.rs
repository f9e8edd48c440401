//! Draining a queue ("flat combining"): the step that a message causes is short and awaits nothing, so the thread that
//! enqueues the message performs it on the spot instead of waking the actor. If another thread holds the shard's lock, that
//! one drains the queue before it releases the lock.
//!
//! The actor owns the rest: it opens the shard when its life begins and closes it when that ends, is woken by senders that
//! do not drain themselves, and fails with what goes wrong while the queue is drained, on whichever thread.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use parking_lot::MutexGuard;
use ractor::{ActorProcessingErr, ActorRef};
use tokio::runtime::Handle;

use crate::env::{Env, Fault, happen};
use crate::supervision::runs::shard::supervisor::{RunShard, Wake};

use super::{ShardMessage, ShardQueue};

/// How often in a row one sender drains the queue. Then it wakes the actor, so that no sender works for others without end.
const ROUNDS: usize = 4;

/// A shard that may be worked on: its actor is up.
pub(in crate::supervision::runs) struct Open {
    pub(in crate::supervision::runs) shard: Box<RunShard>,
    /// Where a drain spawns what takes time, on whichever thread it runs.
    pub(in crate::supervision::runs) runtime: Handle,
}

/// A panic, or the error of a fault point.
pub(super) type Failure = thread::Result<ActorProcessingErr>;

/// A message that was enqueued. Dropped, it wakes the actor.
#[must_use = "dropping it wakes the run supervisor, which `work` does without"]
pub struct EnqueueGuard<'a> {
    queue: &'a ShardQueue,
    /// The queue was empty. Otherwise the sender of the first message sees to this one too.
    is_first: bool,
}

impl EnqueueGuard<'_> {
    /// Drains the queue on this thread, unless another one holds the shard; that one drains it before it releases the lock,
    /// so the message is processed there. Never blocks. Runs no code of users but reducers, policies, stores and recorders;
    /// hold no lock that they could take.
    pub fn work(mut self) {
        self.is_first = false;
        self.queue.work();
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
    /// Enqueues a message and wakes the actor. Never blocks and never loses it.
    pub fn push(&self, input: ShardMessage) {
        drop(self.enqueue(input));
    }

    /// Enqueues a message; the guard decides whether this thread or the actor processes it. Never blocks and never loses it.
    pub fn enqueue(&self, input: ShardMessage) -> EnqueueGuard<'_> {
        let mut waiting = self.waiting.lock();
        waiting.push_back(input);
        EnqueueGuard { queue: self, is_first: waiting.len() == 1 }
    }

    /// Drains the queue, unless another thread holds the shard.
    ///
    /// No message is stranded. A sender that finds the lock taken has enqueued before, and the lock holder looks at the queue
    /// again after it has released the lock. One of the two takes the lock of `waiting` second: the lock holder, which then
    /// finds the message, or the sender, which then finds the shard free. A message that finds no shard is found by the actor,
    /// which drains the queue when its next life begins. A thread that leaves while messages wait has woken the actor.
    pub(in crate::supervision::runs) fn work(&self) {
        for _ in 0..ROUNDS {
            let Some(mut open) = self.open.try_lock() else { return };
            let Some(Open { shard, runtime }) = &mut *open else { return };
            let worked = {
                let _spawns_here = runtime.enter();
                catch_unwind(AssertUnwindSafe(|| shard.work()))
            };
            let failure = match worked {
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
        self.actor.tell(Wake);
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
        self.open.lock().take_if(|open| open.shard.life == life);
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
