//! Run supervision: the pure rules of runs (`rules`), and the machinery that carries them out (`shard`).
//!
//! Public is what can be read of a run and of its journal: its state ([`Run`]), what happens to its turns ([`Follower`]), every
//! step of it and the differences between two runs ([`Replay`], [`Diff`]); what a person changes about a run ([`Fork`]); and
//! the circuit breaker ([`Breaker`]), for what agents call.

pub(crate) mod rules;
pub(crate) mod shard;

pub(crate) use rules::{breaker, decide, facts, follow, fork, once, reopen, run, snapshot, wait_for};
pub(crate) use shard::{conversing, dispatch, ownership, queue, roster, run_reader, supervisor};

pub use rules::breaker::{Breaker, BreakerPolicy, BreakerState, BreakerStatus, BreakerTicket, Signal};
pub use rules::follow::{Follower, TurnEvent, TurnStatus};
pub use rules::fork::Fork;
pub use rules::replay::{
    Aspect, Cause, Deed, Diff, Moment, Replay, ReplayError, ReplayStep, TurnDifference, TurnEnd, TurnStory,
};
pub use rules::run::Run;
