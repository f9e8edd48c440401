//! The message queue of a run supervisor.

mod flat_combining;
mod message;

pub(in crate::supervision::runs) use flat_combining::{Drain, Open};
pub(crate) use flat_combining::{EnqueueGuard, ShardQueue, Wake};
pub(crate) use message::{
    AtEnd, HandingOver, ReadBack, RecoveryBarrier, Reopened, RunMessage, ShardMessage, WithRecord,
};
