//! The composition root: a builder, and the handle of a running board.

mod agents;
mod asking;
mod builder;
mod classifier;
mod conversations;
mod dead_letters;
#[cfg(test)]
mod figures;
mod forking;
mod handle;
mod people;
mod run_handle;
mod settings;
mod starting;
mod watching;
mod workflow_agents;
mod workflows;

pub use agents::{AgentError, AgentsHandle};
pub use asking::AskError;
pub use builder::{BuildError, Builder};
pub use conversations::{ConversationError, ConversationInfo, ConversationRun, ConversationsHandle};
pub use dead_letters::DeadLettersHandle;
pub use handle::Callboard;
pub use people::PeopleHandle;
pub use run_handle::{RunError, RunHandle};
pub use settings::{Capacity, Retention, Timings, Unfinished};
pub use watching::Load;
pub use workflows::{WorkflowStoreError, Workflows};
