//! Records what happens in a supervision tree.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use callboard_text::{did_you_mean, nearest};
use parking_lot::Mutex;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use crate::messages::visible;
use crate::supervision::tree::{TreeEvent, TreeEventKind};

use super::log::Log;

/// Records the events of a supervision tree: a board's, or one of your own.
///
/// ```
/// use callboard::prelude::*;
/// use callboard::testing::TreeRecorder;
/// use callboard::supervision::tree::TreeEventKind;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), callboard::Error> {
/// let board = Callboard::builder().start().await?;
/// let recorder = TreeRecorder::new(board.tree_events());
/// board.agents().spawn(AgentSpec::new("coder", |_: Turn| async { Ok(Command::output("done")) })).await?;
/// board.agents().stop("coder").await?;
///
/// let is_stopped = |kind: &TreeEventKind| matches!(kind, TreeEventKind::Stopped);
/// recorder.expect("callboard/agents/coder", is_stopped, Duration::from_secs(1)).await;
/// assert_eq!(
///     recorder.picture(),
///     "callboard/agents/coder gen 1: started\n\
///      callboard/agents/coder gen 1: stopped",
/// );
/// # Ok(()) }
/// ```
pub struct TreeRecorder {
    record: Arc<Record>,
    /// How far each path has been expected: the number of the record's entries looked at.
    expected: Mutex<HashMap<String, usize>>,
}

struct Record {
    events: Mutex<Receiver<TreeEvent>>,
    log: Log<TreeEvent>,
    /// Events that came faster than they could be recorded.
    missed: AtomicU64,
}

impl TreeRecorder {
    /// Records from now on: `TreeRecorder::new(board.tree_events())`, or `TreeRecorder::new(supervisor.subscribe())`.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn new(events: Receiver<TreeEvent>) -> Self {
        let mut bell = events.resubscribe();
        let record = Arc::new(Record { events: Mutex::new(events), log: Log::default(), missed: AtomicU64::new(0) });
        let follower = Arc::downgrade(&record);
        tokio::spawn(async move {
            // One that lags is of no matter here: it is the record's own receiver that must not.
            while !matches!(bell.recv().await, Err(RecvError::Closed)) {
                let Some(record) = follower.upgrade() else { return };
                record.catch_up();
            }
        });
        Self { record, expected: Mutex::default() }
    }

    /// What has happened, in order.
    ///
    /// # Panics
    /// When more than 1024 events came before the recorder's task had its turn: it has missed some.
    #[must_use]
    pub fn events(&self) -> Vec<TreeEvent> {
        self.catch_up();
        self.record.log.read(<[TreeEvent]>::to_vec)
    }

    /// Waits for an event at this path that fits, past ones included. Each call for a path continues after the event that
    /// the call before it found, so two restarts are expected by two calls.
    ///
    /// # Panics
    /// When none comes in time, and as [`TreeRecorder::events`].
    #[track_caller]
    pub fn expect<'a>(
        &'a self,
        path: &'a str,
        mut fits: impl FnMut(&TreeEventKind) -> bool + Send + 'a,
        within: Duration,
    ) -> impl Future<Output = TreeEvent> + Send + 'a {
        let caller = Location::caller();
        async move {
            self.catch_up();
            let from = self.expected.lock().get(path).copied().unwrap_or_default();
            let find = |events: &mut Vec<TreeEvent>| {
                let is_it = |event: &TreeEvent| *event.path == *path && fits(&event.kind);
                let index = from + events.iter().skip(from).position(is_it)?;
                Some((index, events[index].clone()))
            };
            match self.record.log.wait(within, find).await {
                Some((index, event)) => {
                    self.expected.lock().insert(path.to_owned(), index + 1);
                    event
                }
                None => panic!("{caller}: {}", self.missing(path, from, within)),
            }
        }
    }

    /// The events as text, a line each: path, generation, what happened. No times, not even those of planned waits,
    /// part of which is random: good for snapshots such as `insta`'s.
    #[must_use]
    pub fn picture(&self) -> String {
        self.events().iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn catch_up(&self) {
        self.record.catch_up();
        let missed = self.record.missed.load(Ordering::Relaxed);
        assert!(missed == 0, "the recorder has missed {missed} events: they came faster than it could take them");
    }

    fn missing(&self, path: &str, from: usize, within: Duration) -> String {
        let events = self.events();
        let mut text = format!("expected an event at {path:?} that fits within {within:?}");
        if events.iter().all(|event| *event.path != *path) {
            let near = nearest(path, events.iter().map(|event| &*event.path));
            let _ = write!(text, "; nothing happened there{}", did_you_mean(near.as_deref()));
        }
        text.push_str(if events.is_empty() { "; nothing was recorded" } else { "; this was recorded:" });
        for (index, event) in events.iter().enumerate() {
            let remark = if *event.path == *path && index < from { "  (expected before)" } else { "" };
            let _ = write!(text, "\n    {}{remark}", line(event));
        }
        text
    }
}

impl Record {
    fn catch_up(&self) {
        let mut events = self.events.lock();
        loop {
            match events.try_recv() {
                Ok(event) => self.log.push(event),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
                Err(TryRecvError::Lagged(missed)) => drop(self.missed.fetch_add(missed, Ordering::Relaxed)),
            }
        }
    }
}

fn line(event: &TreeEvent) -> String {
    match event.kind {
        TreeEventKind::RestartScheduled { after } if !after.is_zero() => {
            format!("{} gen {}: restarts after a wait", visible(&event.path), event.generation)
        }
        TreeEventKind::Started
        | TreeEventKind::StartFailed { .. }
        | TreeEventKind::Exited { .. }
        | TreeEventKind::RestartScheduled { .. }
        | TreeEventKind::Restarted
        | TreeEventKind::Stopped
        | TreeEventKind::Killed
        | TreeEventKind::KilledAfterTimeout
        | TreeEventKind::LeftBehind
        | TreeEventKind::Failed { .. }
        | TreeEventKind::Escalated { .. } => event.to_string(),
    }
}
