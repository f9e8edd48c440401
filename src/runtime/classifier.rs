//! Who says how much a task may need when the task itself does not (SEMANTICS 2).

use std::fmt;
use std::sync::Arc;

use crate::messages::{Complexity, Task};

/// Chooses the class of tasks that name no limits.
#[derive(Clone, Default)]
pub(super) enum Classifier {
    /// Every task is complex.
    #[default]
    None,
    /// Looks at the task.
    Function(Arc<dyn Fn(&Task) -> Complexity + Send + Sync>),
    /// A typed agent that answers a [`Task`] with a [`Complexity`].
    Agent(Arc<str>),
}

impl fmt::Debug for Classifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Function(_) => f.write_str("Function"),
            Self::Agent(agent) => f.debug_tuple("Agent").field(agent).finish(),
        }
    }
}
