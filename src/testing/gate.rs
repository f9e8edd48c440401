//! A gate that a test opens.

use std::fmt;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::watch;

/// How long a thread waits at a gate by the machine's clock; a test that forgets to open it fails then.
const PATIENCE: Duration = Duration::from_secs(30);

/// Holds up threads of scripted agents until the test opens it; it stays open then. A cheap clone; clones are the same
/// gate.
#[derive(Clone)]
pub struct Gate {
    shared: Arc<Shared>,
}

struct Shared {
    /// The thread that made the gate: the test's.
    maker: ThreadId,
    is_open: Mutex<bool>,
    opened: Condvar,
    is_reached: watch::Sender<bool>,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// Creates a closed gate. The calling thread counts as the test's own: on a runtime of one thread,
    /// [`Script::block`](super::Script::block) panics on that thread and does not block it.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                maker: thread::current().id(),
                is_open: Mutex::new(false),
                opened: Condvar::new(),
                is_reached: watch::Sender::new(false),
            }),
        }
    }

    /// Opens the gate for all who wait at it, and all who come later.
    pub fn open(&self) {
        *self.shared.is_open.lock() = true;
        self.shared.opened.notify_all();
    }

    /// Waits until a thread has come to the gate.
    pub async fn reached(&self) {
        let mut is_reached = self.shared.is_reached.subscribe();
        is_reached.wait_for(|is_reached| *is_reached).await.expect("the gate itself holds the sender");
    }

    /// Blocks this thread until the gate is open.
    ///
    /// # Errors
    /// This thread cannot be blocked, or was blocked too long.
    pub(super) fn block(&self) -> Result<(), String> {
        self.check_thread()?;
        self.shared.is_reached.send_replace(true);
        let mut is_open = self.shared.is_open.lock();
        let timed_out = self.shared.opened.wait_while_for(&mut is_open, |is_open| !*is_open, PATIENCE).timed_out();
        if timed_out { Err(format!("its gate was not opened for {PATIENCE:?}")) } else { Ok(()) }
    }

    /// On a runtime of one thread nothing can open a closed gate once that thread waits at it.
    fn check_thread(&self) -> Result<(), String> {
        let has_one_thread = Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::CurrentThread);
        if !has_one_thread || thread::current().id() != self.shared.maker || *self.shared.is_open.lock() {
            return Ok(());
        }
        Err("it would block the thread that the test itself runs on: a simulation has one thread, and so has a test on \
             a runtime of one thread; outside a simulation, give the agent threads of its own with AgentSpec::blocking"
            .to_owned())
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("is_open", &*self.shared.is_open.lock()).finish_non_exhaustive()
    }
}
