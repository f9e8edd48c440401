//! How an agent is run, and what it announces of itself: the parts of an [`AgentSpec`](super::AgentSpec).

use std::sync::Arc;
use std::time::Duration;

use crate::actors::turn::TurnSettings;
use crate::messages::{Authority, OnUnknown};

/// How an agent is run.
#[derive(Clone, Debug)]
pub(crate) struct AgentConfig {
    /// How many turns and typed requests run at once.
    pub(crate) slots: usize,
    /// Its turns release their slots while they wait.
    pub(crate) is_reentrant: bool,
    /// Its turns run on threads of their own.
    pub(crate) is_blocking: bool,
    /// How long a turn may run, without the time in which it waits.
    pub(crate) timeout: Duration,
    /// The context namespaces that it was granted; without a list, that of its run.
    pub(crate) namespaces: Option<Arc<[Arc<str>]>>,
    /// What it may cause.
    pub(crate) authority: Authority,
    /// What follows when the outcome of an effect is unknown; without it, as the board is configured.
    pub(crate) on_unknown: Option<OnUnknown>,
    /// How long its questions to people wait; without it, for ever.
    pub(crate) question_ttl: Option<Duration>,
    /// Dynamic agents that it makes may be kept after their run.
    pub(crate) keeps_agents: bool,
}

impl AgentConfig {
    /// What of it its turns need.
    pub(in crate::actors) fn turn_settings(&self) -> TurnSettings {
        TurnSettings {
            namespaces: self.namespaces.clone(),
            on_unknown: self.on_unknown,
            question_ttl: self.question_ttl,
            keeps_agents: self.keeps_agents,
        }
    }
}

/// How often the value may be rebuilt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RestartWindow {
    /// So many times within the window; at the next one the agent counts as failed.
    pub(crate) max: u32,
    /// The length of the window.
    pub(crate) within: Duration,
}

/// What an agent announces of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Description {
    pub(crate) role: Option<Arc<str>>,
    pub(crate) capabilities: Vec<Arc<str>>,
    pub(crate) projects: Vec<Arc<str>>,
}
