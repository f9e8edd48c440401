//! One store on disk for several processes of a user.
//!
//! [`SharedStore`] is a [`Storage`](callboard::storage::Storage) whose files one process has open, and which the others use through
//! that process. Each has its own board and works on its own runs; all see the runs, conversations and context of all. When
//! the process that has the files open ends, or is killed, another one opens them.

mod asking;
mod handshake;
mod holder;
mod locks;
mod opening;
mod request;
mod serving;
mod session_files;
mod sockets;
mod store;
mod thread;
mod wire;

pub use store::SharedStore;

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
