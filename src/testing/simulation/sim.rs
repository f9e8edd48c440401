//! What a simulated test holds in its hand.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use callboard_text::{did_you_mean, nearest};
use futures::FutureExt as _;
use tokio::sync::broadcast::error::RecvError;

use crate::env::Env;
use crate::messages::Envelope;
use crate::runtime::{Builder, Callboard, Load};
use crate::storage::Storage;
use crate::supervision::answer_of;
use crate::supervision::tree::TreeNode;

use super::disk::{Disk, Mounted};
use super::effects::Effects;
use super::faults::FaultPlan;
use super::trace::Weight;
use super::world::World;

/// A simulated world with one node. A cheap clone; clones are the same world.
#[derive(Clone)]
pub struct Sim {
    pub(super) world: Arc<World>,
    pub(super) disk: Arc<Disk>,
    env: Env,
    effects: Effects,
}

impl Sim {
    pub(super) fn new(seed: u64) -> Self {
        let world = Arc::new(World::new(seed));
        let disk = Arc::new(Disk::new(Arc::clone(&world)));
        let faults: Arc<World> = Arc::clone(&world);
        let env = Env::new(world.clock.clone(), seed).with_faults(faults).without_threads();
        let effects = Effects::new(Arc::clone(&world), Arc::clone(&disk));
        Self { world, disk, env, effects }
    }

    /// Describes a board in this world, on the simulated disk. Boards that are started side by side share it.
    pub fn board(&self) -> Builder {
        let sim = self.clone();
        Callboard::builder()
            .env(self.env.clone())
            .storage(Mounted(Arc::clone(&self.disk)))
            .observed_by(move |board| sim.observe(board))
    }

    /// The simulated disk itself, for what is not a board.
    #[must_use]
    pub fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(Mounted(Arc::clone(&self.disk)))
    }

    /// The world's clock, random numbers and ids, for what a test needs of them.
    #[must_use]
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Returns the fault plan of this world, to add faults to it.
    pub fn faults(&self) -> FaultPlan {
        FaultPlan { world: Arc::clone(&self.world) }
    }

    /// A service outside the node that agents cause effects in.
    #[must_use]
    pub fn effects(&self) -> Effects {
        self.effects.clone()
    }

    /// Adds a line to the trace of the seed. The trace is shown when the seed fails, and has to be the same when the
    /// seed runs again.
    pub fn note(&self, text: &str) {
        self.world.note(Weight::Shown, text.to_owned());
    }

    /// A number below `bound` that follows from the seed, for tests that vary with it.
    ///
    /// # Panics
    /// When `bound` is 0.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        self.world.below(bound)
    }

    /// How much virtual time the simulation may take (1 h) before it counts as stalled. An approval takes a day to
    /// expire.
    pub fn time_limit(&self, limit: Duration) {
        *self.world.limit.lock() = limit;
        self.world.waker.wake();
    }

    /// Sets the date of the node's machine ahead by so many milliseconds, or back if they are negative, as a correction of
    /// its clock does. Time continues as it was: nothing waits for longer, or shorter.
    pub fn correct_date(&self, millis: i64) {
        self.note(&format!("the date is corrected by {millis} ms"));
        self.world.clock.correct_date(millis);
    }

    /// Works until the node crashes; `None` if it did. The work is dropped then, with the boards that it held, and the test
    /// continues in the node's next life: the disk has what was synced, and chance decides about the rest.
    pub async fn until_crash<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let life = self.world.life();
        let _awaiting = self.world.await_crash();
        let mut work: Option<Pin<Box<_>>> = Some(Box::pin(work));
        poll_fn(|context| {
            if self.world.life() != life {
                work = None;
                return Poll::Ready(None);
            }
            match &mut work {
                // Its result after the crash is lost.
                Some(work) if !self.world.has_crashed() => match work.as_mut().poll(context) {
                    Poll::Ready(value) if !self.world.has_crashed() => Poll::Ready(Some(value)),
                    Poll::Ready(_) | Poll::Pending => Poll::Pending,
                },
                Some(_) | None => Poll::Pending,
            }
        })
        .await
    }

    /// Crashes the node now, and continues in its next life.
    pub async fn crash(&self) {
        self.world.crash("the test's wish");
        self.until_crash(std::future::pending::<()>()).await;
    }

    /// How often an agent's value, or a child of that name of a board's tree, was brought back in this life of the node.
    ///
    /// # Panics
    /// When it is another number, or there is no such child.
    pub async fn assert_restarted(&self, name: &str, times: u64) {
        let (mut restarts, mut names) = (None, BTreeSet::new());
        for board in self.boards() {
            // A board that has ended has no tree; another may have one.
            if let Ok(tree) = board.tree().await {
                count_restarts(&tree, name, &mut restarts, &mut names);
            }
        }
        assert!(!names.is_empty(), "there is no board whose restarts could be read; read them before it is shut down");
        let Some(restarts) = restarts else {
            let near = nearest(name, names.iter().map(String::as_str));
            panic!("there is no {name} in this life of the node{}", did_you_mean(near.as_deref()));
        };
        assert_eq!(restarts, times, "restarts of {name}");
    }

    /// No effect happened under the key of another one, and none again after its step was journaled.
    ///
    /// # Panics
    /// When one did.
    pub fn assert_effects_at_most_once_per_key(&self) {
        let wrongs = self.effects.wrongs();
        assert!(wrongs.is_empty(), "{}", wrongs.join("\n"));
    }

    /// The approvals that people can decide on a board, by expiry. The board receives no message for it, as it does for
    /// [`PeopleHandle::pending`](crate::runtime::PeopleHandle::pending): so it passes no fault point.
    #[must_use]
    pub fn open_approvals(&self, board: &Callboard) -> Vec<Envelope> {
        board.people().approvals()
    }

    /// Nothing is under way and nothing is held: no turn, run, permit, wait, open approval or unfinished run. What is just
    /// ending, or is found after a crash, may take ten minutes of virtual time.
    ///
    /// # Panics
    /// When something is, or there is no board to check, as after a crash.
    pub async fn assert_nothing_left(&self) {
        let boards = self.boards();
        assert!(!boards.is_empty(), "there is no board to check; start one, it resumes what it finds");
        for board in boards {
            let mut left = String::new();
            for _ in 0..600 {
                left = left_on(&board).await;
                if left.is_empty() {
                    break;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            assert!(left.is_empty(), "something is left: {left}");
        }
    }

    fn boards(&self) -> Vec<Callboard> {
        self.world.boards.lock().clone()
    }

    fn observe(&self, board: &Callboard) {
        self.world.boards.lock().push(board.clone());
        let (world, mut events) = (Arc::clone(&self.world), board.tree_events());
        tokio::spawn(async move {
            loop {
                match events.recv().await {
                    Ok(event) => world.note(Weight::Shown, event.to_string()),
                    Err(RecvError::Lagged(missed)) => world.note(Weight::Shown, format!("{missed} events of the tree")),
                    Err(RecvError::Closed) => return,
                }
            }
        });
    }
}

/// Adds the restarts of the children of this name, and all names.
fn count_restarts(node: &TreeNode, name: &str, restarts: &mut Option<u64>, names: &mut BTreeSet<String>) {
    if node.name == name {
        *restarts = Some(restarts.unwrap_or(0) + node.restarts);
    }
    names.insert(node.name.clone());
    node.children.iter().for_each(|child| count_restarts(child, name, restarts, names));
}

/// What a board has under way or holds; nothing if it is empty.
async fn left_on(board: &Callboard) -> String {
    let mut load = board.load();
    if board.ended().now_or_never().is_some() {
        // What was not over is in the store, for the next start.
        let Load { turns_at_work, free_permits, pool, .. } = load;
        load = Load {
            runs: 0,
            ready_turns: 0,
            turns_at_work,
            waiting_turns: 0,
            free_permits,
            pool,
            open_approvals: 0,
            waits: 0,
        };
    }
    if !load.is_idle() {
        let open = board.people().approvals();
        let asked = open
            .iter()
            .map(|envelope| format!("; {} of {} asks: {}", envelope.request, envelope.agent, envelope.action));
        return format!("{load:?}{}", asked.collect::<String>());
    }
    match answer_of(board.unfinished_runs()).await {
        Ok(runs) if runs.is_empty() => String::new(),
        Ok(runs) => {
            let runs: Vec<_> = runs.iter().map(|run| run.id().to_string()).collect();
            format!("unfinished runs {}", runs.join(", "))
        }
        Err(error) => format!("unfinished runs are not known: {error}"),
    }
}
