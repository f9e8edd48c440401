//! The composition root: a builder, and the handle of a running board.

mod builder;
mod classifier;
mod dead_letters;
mod handle;
mod run_handle;

pub use builder::{BuildError, Builder, Unfinished};
pub use dead_letters::LetterError;
pub use handle::{AgentError, AskError, Callboard, Load};
pub use run_handle::{RunError, RunHandle};
