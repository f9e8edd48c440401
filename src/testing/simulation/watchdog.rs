//! Sees from outside when a simulation loops without end: virtual time stands still then, so nothing inside would.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use super::world::World;

/// After this many looks at a world in which nothing has happened between them it counts as stuck.
const PATIENCE: u32 = 60;

/// The world that runs.
struct Running {
    seed: u64,
    /// The number of the world among those that were watched. Its address would not do: the next world may be at the same one.
    number: u64,
    world: Weak<World>,
}

type Watching = Arc<Mutex<Option<Running>>>;

/// Counts the looks at a world since something happened in it.
#[derive(Default)]
struct Looks {
    /// The number and the progress of the world at the last look.
    last: Option<(u64, usize)>,
    count: u32,
}

impl Looks {
    /// Whether the world counts as stuck with this look, for the first time.
    fn is_stuck(&mut self, number: u64, progress: usize) -> bool {
        let now = Some((number, progress));
        self.count = if now == self.last { self.count + 1 } else { 0 };
        self.last = now;
        self.count == PATIENCE
    }
}

/// Watches one world after the other from a thread of its own.
pub(super) struct Watchdog {
    watched: Watching,
    /// How many worlds were watched.
    worlds: AtomicU64,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Looks again after each `pause` of real time.
    pub(super) fn start(pause: Duration) -> Self {
        let watched = Watching::default();
        let (stop, stopped) = mpsc::channel();
        let watches = Arc::clone(&watched);
        let watch = move || {
            let mut looks = Looks::default();
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let running = watches.lock().as_ref().and_then(|it| Some((it.seed, it.number, it.world.upgrade()?)));
                let Some((seed, number, world)) = running else { continue };
                if looks.is_stuck(number, world.progress()) {
                    let text = format!(
                        "nothing has happened for {:?} of real time: an agent or the test goes round in circles, or blocks \
                         the thread",
                        pause * PATIENCE
                    );
                    // If the thread is blocked, this is the only report.
                    eprintln!("seed {seed}: {text}");
                    world.violate(&text);
                }
            }
        };
        Self { watched, worlds: AtomicU64::new(0), stop: Some(stop), thread: Some(std::thread::spawn(watch)) }
    }

    /// Watches a world until what is returned is dropped.
    pub(super) fn watch(&self, seed: u64, world: &Arc<World>) -> impl Drop {
        let number = self.worlds.fetch_add(1, Ordering::Relaxed);
        *self.watched.lock() = Some(Running { seed, number, world: Arc::downgrade(world) });
        Watched(Arc::clone(&self.watched))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().map(JoinHandle::join);
    }
}

struct Watched(Watching);

impl Drop for Watched {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_is_stuck_once_and_the_next_one_begins_from_zero() {
        let mut looks = Looks::default();
        let stuck_at = |looks: &mut Looks, number| (0..200).filter(|_| looks.is_stuck(number, 7)).count();
        assert!((0..PATIENCE).all(|_| !looks.is_stuck(0, 7)), "the first look sees what there is");
        assert!(looks.is_stuck(0, 7));
        assert_eq!(stuck_at(&mut looks, 0), 0);
        assert_eq!(stuck_at(&mut looks, 1), 1, "another world, with the same progress");
        assert!(!looks.is_stuck(1, 8), "something has happened");
    }
}
