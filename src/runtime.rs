//! The composition root: a builder, and the handle of a running board.

mod builder;
mod classifier;
mod handle;
mod run_handle;

pub use builder::{BuildError, Builder};
pub use handle::{AgentError, AskError, Callboard, Load};
pub use run_handle::{RunError, RunHandle};
