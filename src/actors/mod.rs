//! The actors: agents and the scheduler of their turns, the delegation router, the context store, the approval gateway.

// Each of these rooms imports only those above it in the list:
//
// 1. What the others share. `events`, `stream_mode`: events of runs for watchers, and which of them a watcher gets.
//    `metrics`, `instruments`: the board's metrics, and what records them. `delayed_message`, `periodic`: what an actor sends
//    to itself later, or has done at intervals. `day_limiter`: what may be used in a day. `kept_agents`: dynamic agents that outlive their run. `shard_queues`: which
//    run supervisor owns which run. `taint`: whether a turn works with untrusted input. `boards`: the other boards on the store, and letters
//    to and from them.
// 2. `context`, `approvals`: services with an actor of their own: shared memory, and questions of consent.
// 3. `turn`: what an agent is given: its input and view, and requests to its run, a file for each kind of request.
// 4. `agent`: what an agent is, and how it is described to a board.
// 5. `scheduler`: runs the turns of all agents: queues, permits, workers.
// 6. `router`: resolves targets, keeps the ledger of delegations, and is what run supervisors dispatch through.
// 7. `agent_actor`, `storage_actor`, `gauges`: the actors that act on these.
mod agent;
mod agent_actor;
pub mod approvals;
pub(crate) mod boards;
pub(crate) mod context;
mod day_limiter;
mod delayed_message;
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
mod stream_mode;
mod taint;
mod turn;

pub use agent::{Agent, AgentSpec, IntoAgent, Mode};
pub use boards::{BoardShare, ShareReading};
pub use context::{ContextAccess, ContextChange, ContextError, ContextStore};
pub(crate) use events::Subject;
pub use events::Watched;
pub use router::{DelegationStatus, InboxMessage, PolicyQuestion};
pub use stream_mode::StreamMode;
pub use turn::{
    ConsentRequest, Delegation, DelegationError, OutsideEffect, Reservation, Settlement, Terminal, Turn, TurnAgents,
    TurnError, TurnPeople,
};

pub(crate) use agent::{AgentMsg, Source};
pub(crate) use agent_actor::{AgentActor, Arguments as AgentArguments};
pub(crate) use day_limiter::DayLimiter;
pub use day_limiter::DayLimits;
pub(crate) use gauges::{GaugeSources, Gauges};
pub(crate) use router::{ApprovalPolicy, HostedAgent, LedgerLimits, Router, RouterActor, RouterParts};
pub(crate) use scheduler::{
    AgentSnapshot, AgentStatus, DormantActors, InPlace, NotStarted, Scheduler, SchedulerConfig, TurnsElsewhere, want,
    wants_next,
};
pub(crate) use shard_queues::ShardQueues;
pub(crate) use storage_actor::{Arguments as StorageActorArguments, StorageActor, StorageActorMsg};
