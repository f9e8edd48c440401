//! What a dormant agent has beside its queue, and what is left of it while it sleeps.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::actors::agent::Source;
use crate::messages::AgentName;

use super::phase::Phase;
use super::status::{AgentSnapshot, AgentStatus};

/// A dormant agent that sleeps.
pub(super) struct Asleep {
    pub(super) name: AgentName,
    pub(super) source: Arc<Source>,
    /// The number of its values so far.
    pub(super) generation: u64,
    /// `None` of an agent that never failed.
    pub(super) history: Option<Box<History>>,
}

/// What is counted of an agent for as long as the board runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct History {
    /// How many turns were evicted because they ignored their stop.
    pub(super) stuck: u64,
    /// How often the value was rebuilt.
    pub(super) restarts: u64,
    /// The reason of the last rebuild.
    pub(super) last_error: Option<String>,
}

impl Asleep {
    pub(super) fn snapshot(&self) -> AgentSnapshot {
        let History { stuck, restarts, last_error } = self.history.as_deref().cloned().unwrap_or_default();
        let (name, generation, status) = (self.name.clone(), self.generation, AgentStatus::Dormant);
        AgentSnapshot { name, generation, status, ready: 0, busy: 0, waiting: 0, stuck, restarts, last_error }
    }
}

/// What a dormant agent has beside its queue.
pub(super) struct Rest {
    pub(super) source: Arc<Source>,
    pub(super) phase: Phase,
    /// Something has needed it since it was last looked at.
    pub(super) was_used: bool,
    /// It is in the list of those that are looked at.
    pub(super) is_watched: bool,
    /// How often its actor could not be started, in a row.
    pub(super) failed_starts: u32,
    /// When its value was rebuilt last, or its actor restarted: it does not sleep while its restart window counts that.
    pub(super) restarted_at: Option<Duration>,
    /// Those who wait until its actor was started, or is given up.
    pub(super) awaited: Vec<oneshot::Sender<()>>,
}

impl Rest {
    pub(super) fn new(source: Arc<Source>) -> Self {
        let phase = Phase::Asleep;
        Self {
            source,
            phase,
            was_used: false,
            is_watched: false,
            failed_starts: 0,
            restarted_at: None,
            awaited: Vec::new(),
        }
    }

    /// Its value was rebuilt, or its actor restarted.
    pub(super) fn note_restart(&mut self, now: Duration) {
        self.restarted_at = Some(now);
    }
}
