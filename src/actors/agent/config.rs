//! The configuration and the description of an agent: the parts of an [`AgentSpec`](super::AgentSpec).

use std::sync::Arc;
use std::time::Duration;

use crate::actors::turn::TurnSettings;
use crate::messages::{AgentLimit, Authority, OnUnknown, PerDay};

/// The configuration of an agent.
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
    /// Its authority.
    pub(crate) authority: Authority,
    /// The rule for effects with an unknown outcome; the board's if unset.
    pub(crate) on_unknown: Option<OnUnknown>,
    /// The time to live of its questions to people; unlimited if unset.
    pub(crate) question_ttl: Option<Duration>,
    /// Dynamic agents that it creates may be kept after their run.
    pub(crate) keeps_agents: bool,
    /// What it may use in a day.
    pub(crate) per_day: PerDay,
    /// What it may use in a run.
    pub(crate) per_run: AgentLimit,
}

impl AgentConfig {
    /// The part of the configuration that its turns need.
    pub(in crate::actors) fn turn_settings(&self) -> TurnSettings {
        TurnSettings {
            namespaces: self.namespaces.clone(),
            on_unknown: self.on_unknown,
            question_ttl: self.question_ttl,
            keeps_agents: self.keeps_agents,
            per_day: self.per_day,
            per_run: self.per_run,
        }
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
