//! Sees from outside when a simulation loops without end: virtual time stands still then, so nothing inside would.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use super::world::World;

/// After this many looks at a world in which nothing has happened between them it counts as stuck.
const PATIENCE: u32 = 60;

/// The seed that runs, and its world.
type Watching = Arc<Mutex<Option<(u64, Weak<World>)>>>;

/// Watches one world after the other from a thread of its own.
pub(super) struct Watchdog {
    watched: Watching,
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
            let mut last = None;
            let mut looks = 0;
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let world = watches.lock().as_ref().and_then(|(seed, world)| Some((*seed, world.upgrade()?)));
                let Some((seed, world)) = world else { continue };
                let now = Some((Arc::as_ptr(&world) as usize, world.progress()));
                looks = if now == last { looks + 1 } else { 0 };
                last = now;
                if looks == PATIENCE {
                    let text = format!(
                        "nothing has happened for {:?} of real time: an agent or the test goes round in circles, or blocks \
                         the thread",
                        pause * PATIENCE
                    );
                    // Where the thread is blocked this is all that anybody hears.
                    eprintln!("seed {seed}: {text}");
                    world.violate(&text);
                }
            }
        };
        Self { watched, stop: Some(stop), thread: Some(std::thread::spawn(watch)) }
    }

    /// Watches a world until what is returned is dropped.
    pub(super) fn watch(&self, seed: u64, world: &Arc<World>) -> impl Drop {
        *self.watched.lock() = Some((seed, Arc::downgrade(world)));
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
