//! The message queue of a run supervisor.

mod combining;
mod message;

pub(in crate::supervision::runs) use combining::{Drain, Open};
pub(crate) use combining::{EnqueueGuard, ShardQueue, Wake};
pub(crate) use message::{RecoveryBarrier, Reopened, RunMessage, ShardMessage};
