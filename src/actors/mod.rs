//! The actors: agents and their floor, the delegation router, the context store, the approval gateway.

mod agent;
mod agent_actor;
pub mod approvals;
pub mod context;
pub mod events;
mod floor;
#[cfg(feature = "metrics")]
mod instruments;
#[cfg(not(feature = "metrics"))]
#[path = "instruments/absent.rs"]
mod instruments;
mod keeper;
mod kept;
pub mod meters;
mod router;
mod shards;
mod sweeps;
mod turn;
mod worker;

pub use agent::{Agent, AgentFactory, AgentSpec, IntoAgent, Mode};
pub use router::{ApprovalPolicy, InboxMessage, PolicyQuestion, Standing, default_policy};
pub use turn::{
    Delegation, DelegationError, OutsideEffect, Reservation, SettledTooLate, Settlement, Terminal, Turn, TurnError,
};

pub(crate) use agent_actor::{AgentActor, AgentMsg, Arguments as AgentArguments};
pub(crate) use floor::{AgentGlance, AgentStatus, Floor, FloorLimits};
pub(crate) use keeper::{Arguments as KeeperArguments, Keeper, KeeperMsg};
pub(crate) use router::{LedgerLimits, Listed, Router, RouterActor, RouterParts};
pub(crate) use shards::Shards;
