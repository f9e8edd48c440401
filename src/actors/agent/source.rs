//! What a board needs to build an agent, or many agents that are alike.

use std::fmt;
use std::sync::Arc;

use super::{AgentConfig, Description, Factory, Mode, RestartWindow};

/// An agent's description without its name. Agents that are alike share one.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) factory: Factory,
    pub(crate) window: RestartWindow,
    pub(crate) config: Arc<AgentConfig>,
    pub(crate) description: Arc<Description>,
    pub(crate) mode: Mode,
    pub(crate) has_effects: bool,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("description", &self.description).finish_non_exhaustive()
    }
}
