//! A supervised actor runtime for systems of agents, on ractor and tokio.
//!
//! A **board** ([`Callboard`]) runs **agents** ([`Agent`]): closures or types that take a [`Turn`] and return a
//! [`Command`](messages::Command). A **run** is one task worked on by as many agents as it takes: control passes by
//! **handoff** (the command's `goto`) and by **delegation** (`turn.delegate`, which waits for an answer). Everything that
//! happens in a run is journaled before it counts.
//!
//! ```
//! use callboard::prelude::*;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let board = Callboard::builder()
//!     .agent("greeter", |turn: Turn| async move { Ok(Command::output(format!("hello, {}", turn.input::<String>()?))) })
//!     .start()
//!     .await?;
//! let run = board.submit(Task::new("world")).await?;
//! assert_eq!(run.result().await?.output, serde_json::json!("hello, world"));
//! board.shutdown().await;
//! # Ok::<(), callboard::Error>(()) }).unwrap();
//! ```
//!
//! The rooms of the crate:
//! - [`messages`]: the vocabulary, plain data: tasks, commands, state, limits, refusals, events.
//! - [`actors`]: agents and what they are given, approvals, the shared context, events to watch.
//! - [`runtime`]: the builder, and the handles of a board and its runs.
//! - [`supervision::tree`]: OTP supervision, also for your own actors; [`supervision::runs`]: what can be read of a run.
//! - [`workflow`]: plans for runs, as graphs, written in TOML, in one line of text, or in Rust.
//! - [`storage`]: the [`Storage`](storage::Storage) trait and the stores behind it.
//! - [`mod@env`]: clock, random numbers and ids, to be replaced in tests.
//! - `testing`, with the feature of that name: simulations, scripted agents, probes, and the suites for storage backends and for channels.
//!
//! # What it promises, and what it leaves to you
//!
//! - **What is acknowledged is journaled**, at the durability that was asked for: by default on disk, where the store is one.
//!   An actor that panics or is restarted loses nothing of it, and after a process was killed, the next start continues its
//!   runs. [`Durability::Buffered`](messages::Durability) may lose the last 100 ms, and `Memory` what the process held.
//! - **A turn begins at least once, and its command takes effect at most once.** A turn that was open when the process died is
//!   begun again under the same id; steps that had finished answer from the journal.
//! - **Effects outside have a class.** One that is `once` is never repeated by itself: if its result was lost, a person is asked.
//!   `idempotent` ones happen at least once; that the outside recognizes their key is up to you.
//! - **Coordination is code.** Limits, budgets, approvals, and whether a handoff may go ahead are checked without a model.
//!   What an agent does in its own code is not: it runs in your process, with your process's permissions.
//! - **Supervision is OTP's.** Agents are rebuilt by their factory after a panic, so keep nothing in an agent's value that must
//!   last. A store that fails a sync stops the board; restarting the process is yours.
//! - **The store on disk belongs to one process at a time.** It trusts its disk to keep what was synced, and keeps no copy:
//!   [`Transfer`](storage::Transfer) exports and copies.
//!
//! "SEMANTICS n" in the documentation of an item is section n of `docs/semantics.md` in the repository, which has the exact rules.
//! `docs/reliability.md` has what was tried, how often, and what it cannot show.
//!
//! Agents that think with a language model, their tools, programs in any language and the tools of MCP servers are in
//! [`callboard-agents`](https://docs.rs/callboard-agents).
//!
//! Features: `sled` (the embedded disk store), `workflow-text` (workflows in TOML and in one line of text) and `schemas` (JSON
//! Schemas of a workflow's channels) are on by default; `metrics` (figures for a recorder of that facade) and `testing` (the test
//! kit) are not.
//!
//! # Guides
//!
//! In the folder `docs` of the repository, as a book by `mdbook build docs`: `embed.md` (a board in your program), `workflows.md`,
//! `together.md` (pipelines, reviews, peers), `conversations.md`, `outside-effects.md`, `test-trees.md` and `testing.md`, `operate.md`
//! (what to watch, and what to do), `glossary.md` (the terms). `ARCHITECTURE.md` is the map of the code.

pub mod actors;
pub mod env;
mod error;
#[cfg(doctest)]
mod guides;
pub mod messages;
pub mod runtime;
pub mod storage;
pub mod supervision;
pub mod workflow;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use actors::{Agent, AgentSpec, Terminal, Turn, TurnError};
pub use error::Error;
pub use runtime::{Builder, Callboard, RunHandle};
pub use supervision::runs::rules::errors::{AnswerError, OverwriteError, SubmitError};
pub use supervision::runs::rules::fork::ForkError;

/// What a first program, and each of the small examples, needs. It has no `Error`, so that it hides nothing of the standard
/// library.
pub mod prelude {
    pub use crate::actors::approvals::TerminalChannel;
    pub use crate::actors::{Agent, AgentSpec, StreamMode, Terminal, Turn, TurnError, Watched};
    pub use crate::messages::{
        Action, AgentName, Command, Complexity, Consent, Decision, Durability, Handoffs, Json, Limits, Outcome,
        Pending, Reducer, Response, Resume, RunEvent, RunId, Task, Usage,
    };
    pub use crate::runtime::{Callboard, RunHandle};
    #[cfg(feature = "sled")]
    pub use crate::storage::Sled;
    pub use crate::storage::{Memory, Storage};
    pub use crate::workflow::{Node, Workflow};
}
