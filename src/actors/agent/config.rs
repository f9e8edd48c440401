//! The configuration and the description of an agent: the parts of an [`AgentSpec`](super::AgentSpec).

use std::sync::Arc;
use std::time::Duration;

use crate::actors::turn::TurnSettings;
use crate::messages::Authority;

/// The configuration of an agent.
#[derive(Clone, Debug)]
pub(crate) struct AgentConfig {
    /// How many turns and typed requests run at once.
    pub(crate) slots: usize,
    /// Its turns release their slots while they wait.
    pub(crate) is_reentrant: bool,
    /// Its turns run on threads of their own.
    pub(crate) is_blocking: bool,
    /// It acts outside only through its run.
    pub(crate) acts_through_steps: bool,
    /// How long a turn may run, without the time in which it waits.
    pub(crate) timeout: Duration,
    /// Its authority.
    pub(crate) authority: Authority,
    /// What its turns need, which they share.
    pub(in crate::actors) of_turns: Arc<TurnSettings>,
}

impl AgentConfig {
    /// The time to live of its questions to people; unlimited if unset.
    #[cfg(test)]
    pub(crate) fn question_ttl(&self) -> Option<Duration> {
        self.of_turns.question_ttl
    }
}

/// The restart window of the agent's value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RestartWindow {
    /// The most rebuilds within the window; one more, and the agent fails.
    pub(crate) max: u32,
    /// The length of the window.
    pub(crate) within: Duration,
}

/// The description of an agent that is announced on the board.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Description {
    pub(crate) role: Option<Arc<str>>,
    pub(crate) capabilities: Vec<Arc<str>>,
    pub(crate) projects: Vec<Arc<str>>,
}
