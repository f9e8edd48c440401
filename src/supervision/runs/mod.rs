//! Run supervision: the pure rules of runs (`rules`), and the machinery that carries them out (`shard`).

pub mod rules;
pub mod shard;

pub(crate) use rules::once;
pub use rules::{
    breaker, budget, decide, facts, follow, fork, guard, interrupts, node_states, reopen, replay, retry, run, snapshot,
    wait_for,
};
pub(crate) use shard::conversing;
pub use shard::{claims, dispatch, queue, roster, supervisor};
