//! The message queue of a run supervisor.

mod combining;
mod message;

pub(in crate::supervision::runs) use combining::{Drain, Open};
pub use combining::{EnqueueGuard, ShardQueue, Wake};
pub use message::{RecoveryBarrier, Reopened, RunMessage, ShardMessage};
