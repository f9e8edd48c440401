//! The actors: agents and the scheduler of their turns, the delegation router, the context store, the approval gateway.
//!
//! Each of these rooms imports only those above it in the list:
//!
//! 1. `events`, `kept_agents`, `metrics`, `periodic`, `shard_queues`, `taint`: what the others share.
//! 2. `context`, [`approvals`]: services with an actor of their own.
//! 3. `turn`: what an agent is given.
//! 4. `agent`: what an agent is.
//! 5. `scheduler`: runs the turns of all agents.
//! 6. `router`: resolves targets, and is what run supervisors dispatch through.
//! 7. `agent_actor`, `storage_actor`, `gauges`: the actors that act on these.

mod agent;
mod agent_actor;
pub mod approvals;
pub(crate) mod context;
pub(crate) mod events;
mod gauges;
#[cfg(feature = "metrics")]
mod instruments;
#[cfg(not(feature = "metrics"))]
#[path = "instruments/absent.rs"]
mod instruments;
mod kept_agents;
pub(crate) mod metrics;
mod periodic;
mod router;
mod scheduler;
mod shard_queues;
mod storage_actor;
mod taint;
mod turn;

pub use agent::{Agent, AgentSpec, IntoAgent, Mode};
pub use context::{ContextAccess, ContextChange, ContextError, ContextStore};
pub use events::{StreamMode, Watched};
pub use router::{DelegationStatus, InboxMessage, PolicyQuestion};
pub use turn::{
    Delegation, DelegationError, OutsideEffect, Reservation, Settlement, Terminal, Turn, TurnAgents, TurnError,
    TurnPeople,
};

pub(crate) use agent::AgentMsg;
pub(crate) use agent_actor::{AgentActor, Arguments as AgentArguments};
pub(crate) use gauges::{GaugeSources, Gauges};
pub(crate) use router::{ApprovalPolicy, HostedAgent, LedgerLimits, Router, RouterActor, RouterParts};
pub(crate) use scheduler::{AgentSnapshot, AgentStatus, Scheduler, SchedulerConfig};
pub(crate) use shard_queues::ShardQueues;
pub(crate) use storage_actor::{Arguments as StorageActorArguments, StorageActor, StorageActorMsg};
