//! Who works off an inbox: the step that an input causes is short and awaits nothing, so whoever hands the input in does
//! it on the spot instead of waking the actor for it, unless somebody is at it already ("flat combining").
//!
//! The actor owns the rest: it opens the desk when its life begins and closes it when that ends, is woken by those who do
//! not do the work themselves, and fails with what goes wrong at the desk, whoever was there.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use parking_lot::MutexGuard;
use ractor::{ActorProcessingErr, ActorRef};
use tokio::runtime::Handle;

use crate::env::{Env, Fault, happen};
use crate::supervision::runs::shard::supervisor::{RunShard, Wake};

use super::{ShardMessage, ShardQueue};

/// How often in a row somebody who hands something in looks after what others have handed in meanwhile. Then the actor
/// goes on with it, so that nobody serves others for ever.
const ROUNDS: usize = 4;

/// A desk at which somebody may work.
pub(in crate::supervision::runs) struct Open {
    pub(in crate::supervision::runs) shard: Box<RunShard>,
    /// Where the work spawns what takes time, whoever does it.
    pub(in crate::supervision::runs) runtime: Handle,
}

/// A panic, or the error of a fault point.
pub(super) type Failure = thread::Result<ActorProcessingErr>;

/// Something that was handed in. Dropped, it wakes the actor.
#[must_use = "dropping it wakes the run supervisor, which `work` does without"]
pub struct EnqueueGuard<'a> {
    queue: &'a ShardQueue,
    /// Otherwise whoever handed in the first one sees to this one too.
    is_first: bool,
}

impl EnqueueGuard<'_> {
    /// Does the work here and now, unless somebody is at it, who then goes on with this. Never blocks. Runs no code of
    /// users but reducers, policies, stores and recorders; hold no lock that they could want.
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
    /// Hands something in and wakes the actor. Never blocks and never loses it.
    pub fn push(&self, input: ShardMessage) {
        drop(self.enqueue(input));
    }

    /// Hands something in; what is returned decides who does the work. Never blocks and never loses it.
    pub fn enqueue(&self, input: ShardMessage) -> EnqueueGuard<'_> {
        let mut waiting = self.waiting.lock();
        waiting.push_back(input);
        EnqueueGuard { queue: self, is_first: waiting.len() == 1 }
    }

    /// Works off what waits, unless somebody is at it.
    ///
    /// No input is stranded. Whoever finds the desk taken has handed in before, and whoever has it looks at the inbox
    /// again after giving it back. One of these two comes second at the lock of `waiting`: the one at the desk, who then
    /// finds the input, or the one who handed in, who then finds the desk given back. An input that finds no desk is found
    /// by the actor, which looks when its next life begins. Whoever leaves while something waits has woken the actor.
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
                // Nothing is done until the actor has failed with it and reads its runs back.
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

    /// Wakes the actor. One that is down looks at what waits when its next life begins.
    fn wake(&self) {
        self.actor.tell(Wake);
    }

    /// Passes a fault point of the desk: its actor may be killed there, and the work goes on.
    ///
    /// # Errors
    /// At a fault point only.
    ///
    /// # Panics
    /// When the plan says so.
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

    /// Takes the desk for a new life of the actor. Nobody works while it is held.
    pub(in crate::supervision::runs) fn begin(&self, actor: ActorRef<Wake>) -> MutexGuard<'_, Option<Open>> {
        let open = self.open.lock();
        self.actor.attach(actor);
        // What an earlier life did not live to fail with.
        *self.failure.lock() = None;
        open
    }

    /// Ends the work of one life of the actor, if it has not ended already.
    pub(in crate::supervision::runs) fn close(&self, life: u64) {
        self.open.lock().take_if(|open| open.shard.life == life);
    }

    /// Has the actor fail with what has gone wrong at its desk.
    ///
    /// # Errors
    /// At a fault point only.
    ///
    /// # Panics
    /// If the work has.
    pub(in crate::supervision::runs) fn fail_if_broken(&self) -> Result<(), ActorProcessingErr> {
        let failure = self.failure.lock().take();
        match failure {
            None => Ok(()),
            Some(Ok(error)) => Err(error),
            Some(Err(panic)) => resume_unwind(panic),
        }
    }
}
