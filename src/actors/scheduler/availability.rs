//! The availability of an agent for turns.

use std::sync::Arc;
use std::time::Duration;

use crate::actors::agent::AgentValue;

use super::status::AgentStatus;

/// Whether an agent takes turns, and its value. A value's `Drop` is users' code, so values are dropped without the scheduler's
/// lock.
pub(super) enum Availability {
    /// Its value is being built or rebuilt; its turns wait.
    Starting,
    /// It has neither a value nor an actor, until work comes.
    Dormant,
    /// Its value takes turns.
    Running(Arc<dyn AgentValue>),
    /// It was rebuilt too often, the last time because of this error. Its turns fail.
    Failed(String),
    /// It was stopped. Turns that have not begun wait a while until it is started again.
    Stopped {
        /// The clock's reading when it was stopped.
        since: Duration,
    },
    /// The board has ended, and its value was dropped with it.
    Ended,
}

impl Availability {
    /// The value, while the agent takes turns.
    pub(super) fn value(&self) -> Option<&Arc<dyn AgentValue>> {
        match self {
            Self::Running(value) => Some(value),
            Self::Starting | Self::Dormant | Self::Failed(_) | Self::Stopped { .. } | Self::Ended => None,
        }
    }

    /// When it was stopped, if it was.
    pub(super) fn stopped_since(&self) -> Option<Duration> {
        match self {
            Self::Stopped { since } => Some(*since),
            Self::Starting | Self::Dormant | Self::Running(_) | Self::Failed(_) | Self::Ended => None,
        }
    }

    /// The status that is reported. An agent keeps its last status when its board ends.
    pub(super) fn status(&self) -> AgentStatus {
        match self {
            Self::Starting => AgentStatus::Starting,
            Self::Dormant => AgentStatus::Dormant,
            Self::Running(_) | Self::Ended => AgentStatus::Running,
            Self::Failed(error) => AgentStatus::Failed(error.clone()),
            Self::Stopped { .. } => AgentStatus::Stopped,
        }
    }
}
