//! The message queue of a run supervisor, and the rule of which thread drains it. It is outside the actor, so messages survive a
//! restart.
//!
//! Draining it ("flat combining"): the step that a message causes is short and awaits nothing, so the thread that
//! enqueues the message performs it on the spot instead of waking the actor. If another thread holds the shard's lock, that
//! one drains the queue before it releases the lock.
//!
//! Why the caller does the owner's work: with an actor that is woken for each message, a chain of three handoffs takes 1.16
//! times the processor time, 1,000 chains at once 1.58 times, and a delegation 1.16 times (medians of 42 pairs of alternating
//! runs on two cores). docs/performance.md ("The caller's thread") has the figures and how to repeat them.
//!
//! The actor owns the rest: it opens the shard when its life begins and closes it when that ends, is woken by senders that
//! do not drain themselves, and fails with what goes wrong while the queue is drained, on whichever thread.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
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
    /// Messages enqueued and not yet taken by the lock holder, in order of arrival, and the actor that is woken for them.
    waiting: Mailbox<Wake, VecDeque<ShardMessage>>,
    /// How many of them their senders have left, at most: who enqueues one after these alone is the first. Changed under the lock of `waiting`.
    left: AtomicUsize,
    /// The shard: the lock holder drains the queue. Set when a life of the actor begins; `None` while the actor is down.
    open: Mutex<Option<Open>>,
    /// The failure that stopped the last drain: set by the lock holder with `open` set to `None`, taken by the actor, which fails
    /// with it.
    failure: Mutex<Option<Failure>>,
}

/// The most drains in a row by one sender. Then it wakes the actor, so that no sender works for others endlessly.
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
    /// The runtime on which a drain spawns longer work, on whichever thread it runs.
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

    /// Leaves the message for the next drain, which the caller sees to itself, soon: until then, nobody is woken for it. Who enqueues
    /// another one does not rely on that.
    pub(crate) fn leave(mut self) {
        let waiting = self.queue.waiting.lock();
        let left = self.queue.left.fetch_add(1, Ordering::Relaxed) + 1;
        // One that came meanwhile relies on the first one.
        self.is_first &= waiting.len() > left;
        drop(waiting);
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
        let mut waiting = self.waiting.lock();
        self.left.store(0, Ordering::Relaxed);
        let messages = std::mem::replace(&mut *waiting, buffer);
        drop(waiting);
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
        EnqueueGuard { queue: self, is_first: waiting.len() <= 1 + self.left.load(Ordering::Relaxed) }
    }

    /// Drains the queue, unless another thread holds the shard.
    ///
    /// No message is stranded. A sender that finds the lock taken has enqueued before, and the lock holder looks at the queue
    /// again after it has released the lock. One of the two takes the lock of `waiting` second: the lock holder, which then
    /// finds the message, or the sender, which then finds the shard free. A message that finds no shard is found by the actor,
    /// which drains the queue when its next life begins. A thread that leaves while messages wait has woken the actor. The lock is
    /// also held while a life begins, which drains the queue next, and while one ends ([`close`](Self::close)).
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
        self.waiting.wake(Wake);
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
                self.waiting.kill();
                Ok(())
            }
            Some(fault) => happen(fault),
        }
    }

    /// Locks the shard for a new life of the actor. No thread drains the queue while the guard is held.
    pub(in crate::supervision::runs) fn begin(&self, actor: ActorRef<Wake>) -> MutexGuard<'_, Option<Open>> {
        let open = self.open.lock();
        self.waiting.attach(actor);
        // An earlier life was killed before it could fail with it.
        *self.failure.lock() = None;
        open
    }

    /// Closes the shard of one life of the actor, if it is open.
    pub(in crate::supervision::runs) fn close(&self, life: u64) {
        let is_closed = self.open.lock().take_if(|open| open.shard.life() == life).is_some();
        // A life that ends late: senders may have found the lock taken, with the shard of the next one.
        if !is_closed && !self.is_empty() {
            self.wake();
        }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ractor::Actor;
    use tokio::sync::mpsc;
    use uuid::Uuid;

    use crate::messages::RunId;

    use super::*;

    /// Counts its wake-ups, as the actor of the queue.
    struct Woken;

    impl Actor for Woken {
        type Msg = Wake;
        type State = mpsc::UnboundedSender<()>;
        type Arguments = mpsc::UnboundedSender<()>;

        async fn pre_start(
            &self,
            _: ActorRef<Wake>,
            woken: mpsc::UnboundedSender<()>,
        ) -> Result<Self::State, ActorProcessingErr> {
            Ok(woken)
        }

        async fn handle(
            &self,
            _: ActorRef<Wake>,
            _: Wake,
            woken: &mut mpsc::UnboundedSender<()>,
        ) -> Result<(), ActorProcessingErr> {
            Ok(woken.send(())?)
        }
    }

    /// Processes a message, given its number.
    type Process = Box<dyn FnMut(&Arc<ShardQueue>, u128) -> Result<(), ActorProcessingErr> + Send>;

    /// A shard whose messages are numbers.
    struct Numbers {
        queue: Arc<ShardQueue>,
        processed: Arc<Mutex<Vec<u128>>>,
        life: u64,
        process: Process,
    }

    impl Drain for Numbers {
        fn drain(&mut self) -> Result<(), ActorProcessingErr> {
            let queue = Arc::clone(&self.queue);
            for message in queue.take(VecDeque::new()) {
                let ShardMessage::LookAtConversation { run } = message else { panic!("not a number: {message:?}") };
                self.processed.lock().push(run.0.as_u128());
                (self.process)(&self.queue, run.0.as_u128())?;
            }
            Ok(())
        }

        fn life(&self) -> u64 {
            self.life
        }
    }

    fn number(number: u128) -> ShardMessage {
        ShardMessage::LookAtConversation { run: RunId(Uuid::from_u128(number)) }
    }

    struct Stage {
        queue: Arc<ShardQueue>,
        processed: Arc<Mutex<Vec<u128>>>,
        actor: ActorRef<Wake>,
        woken: mpsc::UnboundedReceiver<()>,
    }

    impl Stage {
        async fn new() -> Self {
            let (sender, woken) = mpsc::unbounded_channel();
            let (actor, _) = Actor::spawn(None, Woken, sender).await.unwrap();
            Self { queue: Arc::default(), processed: Arc::default(), actor, woken }
        }

        /// Begins a life of the actor, in which messages are processed so.
        fn open(
            &self,
            life: u64,
            process: impl FnMut(&Arc<ShardQueue>, u128) -> Result<(), ActorProcessingErr> + Send + 'static,
        ) {
            let (queue, processed) = (Arc::clone(&self.queue), Arc::clone(&self.processed));
            let shard = Box::new(Numbers { queue, processed, life, process: Box::new(process) });
            *self.queue.begin(self.actor.clone()) = Some(Open { shard, runtime: Handle::current() });
        }

        fn processed(&self) -> Vec<u128> {
            std::mem::take(&mut *self.processed.lock())
        }

        fn waiting(&self) -> Vec<String> {
            self.queue.waiting.lock().iter().map(|message| format!("{message:?}")).collect()
        }

        /// The number of wake-ups until now. The actor receives no more after this.
        async fn wake_ups(mut self) -> usize {
            self.actor.drain_and_wait(None).await.unwrap();
            let mut count = 0;
            while self.woken.try_recv().is_ok() {
                count += 1;
            }
            count
        }
    }

    #[tokio::test]
    async fn the_sender_that_drains_processes_the_message_and_wakes_no_thread() {
        let stage = Stage::new().await;
        let me = thread::current().id();
        stage.open(1, move |_, _| {
            assert_eq!(thread::current().id(), me);
            Ok(())
        });
        stage.queue.enqueue(number(1)).drain();
        stage.queue.enqueue(number(2)).drain();
        assert_eq!(stage.processed(), [1, 2]);
        assert_eq!(stage.wake_ups().await, 0);
    }

    #[tokio::test]
    async fn senders_that_do_not_drain_wake_the_actor_once_for_all_that_waits() {
        let stage = Stage::new().await;
        stage.open(1, |_, _| Ok(()));
        (1..=3).for_each(|message| stage.queue.push(number(message)));
        assert_eq!((stage.processed(), stage.queue.len()), (vec![], 3));
        stage.queue.drain();
        assert_eq!(stage.processed(), [1, 2, 3], "in the order of arrival");
        stage.queue.push(number(4));
        assert_eq!(stage.wake_ups().await, 2, "one for the first three, and one for the fourth");
    }

    #[tokio::test]
    async fn messages_that_are_left_wake_nobody_and_no_other_sender_relies_on_them() {
        let stage = Stage::new().await;
        stage.open(1, |_, _| Ok(()));
        stage.queue.enqueue(number(1)).leave();
        let late = stage.queue.enqueue(number(2));
        stage.queue.push(number(3));
        assert_eq!(stage.woken.len(), 0, "it relies on the one before it");
        late.leave();
        stage.queue.drain();
        assert_eq!(stage.processed(), [1, 2, 3]);
        stage.queue.enqueue(number(4)).leave();
        stage.queue.push(number(5));
        assert_eq!(stage.wake_ups().await, 2, "one for the third, and one for the fifth");
    }

    #[tokio::test]
    async fn the_lock_holder_processes_what_arrives_from_other_threads_meanwhile() {
        let stage = Stage::new().await;
        stage.open(1, |queue, message| {
            if message == 1 {
                // The other thread finds the lock taken, and does not wait for it.
                let queue = Arc::clone(queue);
                thread::spawn(move || queue.enqueue(number(2)).drain()).join().unwrap();
            }
            Ok(())
        });
        stage.queue.enqueue(number(1)).drain();
        assert_eq!((stage.processed(), stage.queue.is_empty()), (vec![1, 2], true));
        assert_eq!(stage.wake_ups().await, 0);
    }

    #[tokio::test]
    async fn a_sender_drains_a_few_times_in_a_row_and_leaves_the_rest_to_the_actor() {
        let stage = Stage::new().await;
        stage.open(1, |queue, message| {
            queue.enqueue(number(message + 1)).drain();
            Ok(())
        });
        stage.queue.enqueue(number(1)).drain();
        assert_eq!((stage.processed().len(), stage.queue.len()), (ROUNDS, 1));
        assert_eq!(stage.wake_ups().await, 1);
    }

    #[tokio::test]
    async fn messages_wait_while_the_actor_is_down_and_are_put_after_those_of_the_next_life() {
        let stage = Stage::new().await;
        stage.queue.enqueue(number(3)).drain();
        stage.queue.put_first([number(1), number(2)].into_iter());
        assert_eq!(stage.processed(), []);
        stage.open(1, |_, _| Ok(()));
        stage.queue.drain();
        assert_eq!(stage.processed(), [1, 2, 3]);
    }

    #[tokio::test]
    async fn a_drain_that_fails_closes_the_shard_and_the_actor_fails_with_it() {
        let stage = Stage::new().await;
        stage.open(1, |_, message| if message == 1 { Err("out of luck".into()) } else { Ok(()) });
        stage.queue.push(number(1));
        stage.queue.push(number(2));
        stage.queue.drain();
        stage.queue.enqueue(number(3)).drain();
        assert_eq!(stage.processed(), [1], "nothing is processed until the actor begins its next life");
        assert_eq!(stage.waiting().len(), 2, "only the message that failed is lost: {:?}", stage.waiting());
        assert_eq!(stage.queue.fail_if_broken().unwrap_err().to_string(), "out of luck");
        assert!(stage.queue.fail_if_broken().is_ok(), "once");
        stage.open(2, |_, _| Ok(()));
        stage.queue.drain();
        assert_eq!(stage.processed(), [2, 3]);
        assert_eq!(stage.wake_ups().await, 2, "for the first message, and for the failure");
    }

    #[tokio::test]
    async fn a_panic_of_a_drain_is_the_actors_and_not_the_senders() {
        let stage = Stage::new().await;
        stage.open(1, |_, _| panic!("a bug"));
        stage.queue.enqueue(number(1)).drain();
        let resumed = catch_unwind(AssertUnwindSafe(|| stage.queue.fail_if_broken())).unwrap_err();
        assert_eq!(resumed.downcast_ref::<&str>(), Some(&"a bug"));
        // A life that was killed before it could fail leaves its failure to nobody.
        stage.open(2, |_, _| panic!("another bug"));
        stage.queue.enqueue(number(2)).drain();
        stage.open(3, |_, _| Ok(()));
        assert!(stage.queue.fail_if_broken().is_ok());
    }

    #[tokio::test]
    async fn a_life_that_ends_late_does_not_close_the_shard_of_the_next_one() {
        let stage = Stage::new().await;
        stage.open(2, |_, _| Ok(()));
        stage.queue.close(1);
        stage.queue.enqueue(number(1)).drain();
        assert_eq!(stage.processed(), [1]);
        stage.queue.close(2);
        stage.queue.enqueue(number(2)).drain();
        assert_eq!((stage.processed(), stage.queue.len()), (vec![], 1));
    }

    /// A shard to which a message is sent while it is asked for its life, which is 2.
    struct SentTo(Arc<ShardQueue>);

    impl Drain for SentTo {
        fn drain(&mut self) -> Result<(), ActorProcessingErr> {
            panic!("the sender has found the lock taken");
        }

        fn life(&self) -> u64 {
            let queue = Arc::clone(&self.0);
            thread::spawn(move || queue.enqueue(number(1)).drain()).join().unwrap();
            2
        }
    }

    #[tokio::test]
    async fn a_message_that_is_sent_while_a_life_ends_late_is_not_stranded() {
        let stage = Stage::new().await;
        let shard = Box::new(SentTo(Arc::clone(&stage.queue)));
        *stage.queue.begin(stage.actor.clone()) = Some(Open { shard, runtime: Handle::current() });
        stage.queue.close(1);
        assert_eq!((stage.queue.len(), stage.wake_ups().await), (1, 1));
    }
}
