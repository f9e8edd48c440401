//! What the clones of a turn, its worker and the scheduler share.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::actors::context::{ContextAccess, ContextStore};
use crate::actors::events::Hub;
use crate::actors::kept_agents::KeptAgents;
use crate::actors::taint::TurnTaint;
use crate::messages::{OnUnknown, State};
use crate::supervision::runs::dispatch::ReadyTurn;

use super::stop::StopSignal;

/// What all turns of a board use.
#[derive(Clone)]
pub(in crate::actors) struct TurnServices {
    pub(in crate::actors) context: Arc<ContextStore>,
    /// Those who watch runs.
    pub(in crate::actors) hub: Arc<Hub>,
    /// Where dynamic agents are kept after their run.
    pub(in crate::actors) kept_agents: Arc<KeptAgents>,
    /// How long finding out what came of an effect may take.
    pub(in crate::actors) reconcile_within: Duration,
}

/// What a turn has of its agent's configuration.
pub(in crate::actors) struct TurnSettings {
    /// The context namespaces that its agent was granted; without a list, that of its run.
    pub(in crate::actors) namespaces: Option<Arc<[Arc<str>]>>,
    /// What follows when the outcome of an effect is unknown; without it, as the board is configured.
    pub(in crate::actors) on_unknown: Option<OnUnknown>,
    /// How long its questions to people wait; without it, for ever.
    pub(in crate::actors) question_ttl: Option<Duration>,
    /// Dynamic agents that it makes may be kept after their run.
    pub(in crate::actors) keeps_agents: bool,
}

pub(in crate::actors) struct TurnShared {
    pub(in crate::actors) ready: Box<ReadyTurn>,
    pub(super) store: Arc<ContextStore>,
    pub(super) hub: Arc<Hub>,
    pub(super) namespaces: Option<Arc<[Arc<str>]>>,
    pub(super) on_unknown: Option<OnUnknown>,
    pub(super) question_ttl: Option<Duration>,
    /// Where dynamic agents that it makes are kept, if they may be.
    pub(super) kept_agents: Option<Arc<KeptAgents>>,
    pub(super) reconcile_within: Duration,
    /// The namespaces that the makers of its dynamic agent let it have; set before the turn begins, if that is less.
    pub(super) narrowed: OnceLock<Arc<[Arc<str>]>>,
    /// Made when the turn asks for it first; most never do.
    pub(super) context: OnceLock<Box<ContextAccess>>,
    /// As `context`: the view with what the runtime writes, where there is any.
    pub(super) state: OnceLock<Box<State>>,
    /// Requests that wait for the runtime. While there are any, the turn needs neither permit nor slot.
    pub(in crate::actors) waits: AtomicUsize,
    /// The number of the turn's next request.
    pub(super) next_ordinal: AtomicU32,
    /// There are results of steps that may not be on disk yet. The next step waits for them where the run is durable.
    pub(super) is_unsynced: AtomicBool,
    /// Made when it may change for the first time; until then the turn is as tainted as when it was admitted.
    taint: OnceLock<Arc<TurnTaint>>,
    pub(in crate::actors) stop: StopSignal,
    /// The attempt's outcome was enqueued with the run.
    pub(in crate::actors) has_reported: AtomicBool,
}

impl TurnShared {
    pub(in crate::actors) fn new(ready: Box<ReadyTurn>, services: &TurnServices, settings: TurnSettings) -> Self {
        let TurnSettings { namespaces, on_unknown, question_ttl, keeps_agents } = settings;
        Self {
            ready,
            store: Arc::clone(&services.context),
            hub: Arc::clone(&services.hub),
            namespaces,
            on_unknown,
            question_ttl,
            kept_agents: keeps_agents.then(|| Arc::clone(&services.kept_agents)),
            reconcile_within: services.reconcile_within,
            narrowed: OnceLock::new(),
            context: OnceLock::new(),
            state: OnceLock::new(),
            waits: AtomicUsize::new(0),
            next_ordinal: AtomicU32::new(0),
            is_unsynced: AtomicBool::new(false),
            taint: OnceLock::new(),
            stop: StopSignal::default(),
            has_reported: AtomicBool::new(false),
        }
    }

    /// Grants the turn of a dynamic agent no more than its makers let it have. Called before the turn begins.
    pub(in crate::actors) fn narrow(&self, namespaces: Option<Arc<[Arc<str>]>>) {
        if let Some(namespaces) = namespaces {
            let _ = self.narrowed.set(namespaces);
        }
    }

    /// Whether it works with untrusted input.
    pub(in crate::actors) fn is_tainted(&self) -> bool {
        self.taint.get().map_or(self.ready.is_tainted, |taint| taint.is_set())
    }

    pub(super) fn taint(&self) -> &Arc<TurnTaint> {
        self.taint.get_or_init(|| Arc::new(TurnTaint::of(&self.ready)))
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
