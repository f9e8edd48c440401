//! The actor that reads the gauges of the metrics.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::messages::AgentName;
use crate::supervision::actor_point;
use crate::supervision::runs::breaker::BreakerState;
use crate::supervision::runs::facts::SharedFacts;

use super::instruments;
use super::metrics::{BREAKER_STATE, FREE_PERMITS, MAILBOX_DEPTH, RESTARTS};
use super::scheduler::Scheduler;

/// Reads the gauges at intervals.
pub(crate) struct Gauges;

/// The sources of the gauges.
#[derive(Clone)]
pub(crate) struct GaugeSources {
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) facts: Arc<SharedFacts>,
    pub(crate) every: Duration,
}

#[derive(Debug)]
pub(crate) struct ReadGauges;

impl Actor for Gauges {
    type Msg = ReadGauges;
    type State = (GaugeSources, BTreeSet<AgentName>);
    type Arguments = GaugeSources;

    async fn pre_start(
        &self,
        me: ActorRef<ReadGauges>,
        sources: GaugeSources,
    ) -> Result<(GaugeSources, BTreeSet<AgentName>), ActorProcessingErr> {
        sources.scheduler.env.slow_fault_point("gauges.start").await?;
        me.send_interval(sources.every, || ReadGauges);
        Ok((sources, BTreeSet::new()))
    }

    async fn handle(
        &self,
        me: ActorRef<ReadGauges>,
        _: ReadGauges,
        (sources, read): &mut (GaugeSources, BTreeSet<AgentName>),
    ) -> Result<(), ActorProcessingErr> {
        actor_point(&sources.scheduler.env, "gauges.handle", "", &me).await?;
        sources.read(read);
        Ok(())
    }

    async fn post_stop(
        &self,
        _: ActorRef<ReadGauges>,
        (sources, _): &mut (GaugeSources, BTreeSet<AgentName>),
    ) -> Result<(), ActorProcessingErr> {
        Ok(sources.scheduler.env.slow_fault_point("gauges.stop").await?)
    }
}

impl GaugeSources {
    /// Reads the gauges of all agents but those that sleep. `read` has those that were read the last time: of one that sleeps since then,
    /// no turn waits.
    fn read(&self, read: &mut BTreeSet<AgentName>) {
        let before = std::mem::take(read);
        instruments::set(FREE_PERMITS, self.scheduler.free_permits() as f64);
        for agent in self.scheduler.snapshot() {
            let name = agent.name.as_str();
            instruments::set_of(MAILBOX_DEPTH, name, agent.ready as f64);
            instruments::set_of(RESTARTS, name, agent.restarts as f64);
            let state = match self.facts.lock().breaker_state(name) {
                BreakerState::Closed => 0.0,
                BreakerState::HalfOpen => 1.0,
                BreakerState::Open => 2.0,
            };
            instruments::set_of(BREAKER_STATE, name, state);
            read.insert(agent.name);
        }
        for asleep in before.difference(read) {
            instruments::set_of(MAILBOX_DEPTH, asleep.as_str(), 0.0);
        }
    }
}
