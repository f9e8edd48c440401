//! The state that the clones of a turn, its worker and the scheduler share.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::actors::context::{ContextAccess, ContextStore};
use crate::actors::day_limiter::DayLimiter;
use crate::actors::events::Hub;
use crate::actors::kept_agents::KeptAgents;
use crate::actors::taint::TurnTaint;
use crate::env::Env;
use crate::messages::{AgentLimit, OnUnknown, PerDay, State};
use crate::supervision::Lease;
use crate::supervision::runs::dispatch::ReadyTurn;

use super::programs::Begun;
use super::stop::StopSignal;

/// The services that all turns of a board use.
pub(in crate::actors) struct TurnServices {
    pub(in crate::actors) context: Arc<ContextStore>,
    /// The observers of runs.
    pub(in crate::actors) hub: Arc<Hub>,
    /// The store of dynamic agents that are kept after their run.
    pub(in crate::actors) kept_agents: Arc<KeptAgents>,
    /// The timeout of finding out the outcome of an effect.
    pub(in crate::actors) reconcile_within: Duration,
    /// What may be used in a day.
    pub(in crate::actors) day_limiter: Arc<DayLimiter>,
    /// The board's lease: without it no step begins.
    pub(in crate::actors) lease: Arc<Lease>,
}

/// The part of an agent's configuration that its turns use.
#[derive(Debug)]
pub(in crate::actors) struct TurnSettings {
    /// The context namespaces that its agent was granted; without a list, that of its run.
    pub(in crate::actors) namespaces: Option<Arc<[Arc<str>]>>,
    /// The rule for effects with an unknown outcome; the board's if unset.
    pub(in crate::actors) on_unknown: Option<OnUnknown>,
    /// The time to live of its questions to people; unlimited if unset.
    pub(in crate::actors) question_ttl: Option<Duration>,
    /// Dynamic agents that it creates may be kept after their run.
    pub(in crate::actors) keeps_agents: bool,
    /// What it may use in a day.
    pub(in crate::actors) per_day: PerDay,
    /// What it may use in a run.
    pub(in crate::actors) per_run: AgentLimit,
}

pub(in crate::actors) struct TurnShared {
    pub(in crate::actors) ready: Box<ReadyTurn>,
    /// Those of the board.
    pub(super) services: Arc<TurnServices>,
    /// Those of its agent.
    pub(super) settings: Arc<TurnSettings>,
    /// Created at first use.
    uncommon: OnceLock<Box<Uncommon>>,
    /// Requests that wait for the runtime.
    waits: AtomicUsize,
    /// The number of the turn's next request.
    pub(super) next_ordinal: AtomicU32,
    /// Results of steps may not be on disk yet. In a durable run, the next step waits until they are.
    pub(super) is_unsynced: AtomicBool,
    pub(in crate::actors) stop: StopSignal,
    /// The attempt's outcome was enqueued with the run.
    pub(in crate::actors) has_reported: AtomicBool,
}

/// What many turns do not use. Each is created at first use.
#[derive(Default)]
pub(super) struct Uncommon {
    /// The namespaces that the makers of a dynamic agent grant it, if they restrict them; set before the turn begins.
    pub(super) narrowed: OnceLock<Arc<[Arc<str>]>>,
    pub(super) context: OnceLock<Box<ContextAccess>>,
    /// The view with the channels that the runtime writes.
    pub(super) state: OnceLock<State>,
    /// The turns for programs that have begun since the last request.
    pub(super) programs: Begun,
    /// Created when it may change for the first time; until then the turn has the taint of its admission.
    taint: OnceLock<Arc<TurnTaint>>,
}

#[cfg(test)]
pub(crate) const SIZE_OF_TURN: usize = size_of::<TurnShared>();

impl TurnShared {
    pub(in crate::actors) fn new(
        ready: Box<ReadyTurn>,
        services: Arc<TurnServices>,
        settings: Arc<TurnSettings>,
    ) -> Self {
        Self {
            ready,
            services,
            settings,
            uncommon: OnceLock::new(),
            waits: AtomicUsize::new(0),
            next_ordinal: AtomicU32::new(0),
            is_unsynced: AtomicBool::new(false),
            stop: StopSignal::default(),
            has_reported: AtomicBool::new(false),
        }
    }

    /// Restricts the turn of a dynamic agent to the namespaces that its makers grant. Called before the turn begins.
    pub(in crate::actors) fn narrow(&self, namespaces: Option<Arc<[Arc<str>]>>) {
        if let Some(namespaces) = namespaces {
            let _ = self.uncommon().narrowed.set(namespaces);
        }
    }

    pub(super) fn uncommon(&self) -> &Uncommon {
        self.uncommon.get_or_init(Box::default)
    }

    pub(super) fn env(&self) -> &Env {
        &self.services.context.env
    }

    /// Whether it works with untrusted input.
    pub(in crate::actors) fn is_tainted(&self) -> bool {
        let taint = self.uncommon.get().and_then(|uncommon| uncommon.taint.get());
        taint.map_or(self.ready.is_tainted, |taint| taint.is_set())
    }

    /// Whether it waits for the runtime, or for a change of the shared context: then it needs neither permit nor slot.
    pub(in crate::actors) fn is_waiting(&self) -> bool {
        let context = || self.uncommon.get().and_then(|uncommon| uncommon.context.get());
        self.waits.load(Ordering::Relaxed) > 0 || context().is_some_and(|context| context.is_waiting())
    }

    pub(super) fn taint(&self) -> &Arc<TurnTaint> {
        self.uncommon().taint.get_or_init(|| Arc::new(TurnTaint::of(&self.ready)))
    }
}

/// Counts a wait for as long as it lives: the turn's worker yields the permit meanwhile.
pub(super) struct Waiting<'a>(&'a TurnShared);

impl<'a> Waiting<'a> {
    pub(super) fn begin(shared: &'a TurnShared) -> Self {
        shared.waits.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waits.fetch_sub(1, Ordering::Relaxed);
    }
}
