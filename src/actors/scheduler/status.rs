//! The state of an agent that the scheduler reports.

use crate::messages::AgentName;

/// The status of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AgentStatus {
    /// Its value is being built; its turns wait.
    Starting,
    /// It is dormant, and sleeps: it has no actor until work comes.
    Dormant,
    /// It takes turns.
    Running,
    /// It was rebuilt too often; it refuses until it is restarted by hand.
    Failed(String),
    /// It was stopped; turns that have begun finish, and others wait a while until it is started again.
    Stopped,
}

/// The load of an agent; the least load sorts first, a stopped agent last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AgentLoad {
    /// It was stopped: its work waits until it is started again.
    pub(crate) is_offline: bool,
    /// Ready turns, and turns and typed requests that hold a slot.
    pub(crate) turns: usize,
}

/// An agent at one moment.
#[derive(Clone, Debug)]
pub(crate) struct AgentSnapshot {
    pub(crate) name: AgentName,
    /// The number of its values so far.
    pub(crate) generation: u64,
    pub(crate) status: AgentStatus,
    /// Turns that have not begun.
    pub(crate) ready: usize,
    /// Turns and typed requests that hold a slot.
    pub(crate) busy: usize,
    /// Turns that have begun and hold no slot.
    pub(crate) waiting: usize,
    /// How many turns were evicted because they ignored their stop.
    pub(crate) stuck: u64,
    /// How often its value was rebuilt.
    pub(crate) restarts: u64,
    /// The reason of the last rebuild.
    pub(crate) last_error: Option<String>,
}
