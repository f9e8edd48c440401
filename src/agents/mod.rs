//! Kinds of agent that the library brings along.

#[cfg(all(unix, feature = "process"))]
mod process;

#[cfg(all(unix, feature = "process"))]
pub use process::ProcessAgent;
