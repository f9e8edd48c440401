//! The specification of a tree: its children and supervisors, before anything runs.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use ractor::{Actor, ActorCell};

use super::backoff::RestartBackoff;
use super::child_ref::{ChildRef, ChildSlot};
use super::errors::SpecError;
use super::intensity::Intensity;
use super::restart::{AutoShutdown, Policy, Restart, Strategy};
use super::shutdown::Shutdown;

/// Spawns a worker, linked to the given supervisor.
pub(super) type Spawn = Arc<dyn Fn(ActorCell) -> BoxFuture<'static, Result<ActorCell, String>> + Send + Sync>;
type OnFailed = Arc<dyn Fn(&str) + Send + Sync>;
type Probe<T> = Arc<dyn Fn() -> T + Send + Sync>;

#[derive(Clone)]
pub(super) enum Kind {
    Worker(Spawn),
    Supervisor(Arc<SupervisorSpec>),
}

/// How to start, restart and stop one child. Clones describe the same child and share its reference.
#[derive(Clone)]
pub struct ChildSpec {
    pub(super) id: Arc<str>,
    pub(super) kind: Kind,
    pub(super) slot: Arc<dyn ChildSlot>,
    pub(super) restart: Restart,
    pub(super) significant: bool,
    pub(super) own_intensity: Option<Intensity>,
    pub(super) on_failed: Option<OnFailed>,
    pub(super) start_timeout: Option<Duration>,
    pub(super) shutdown: Shutdown,
    pub(super) mailbox_depth: Option<Probe<usize>>,
    pub(super) detail: Option<Probe<Option<String>>>,
}

impl fmt::Debug for ChildSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSpec").field("id", &self.id).field("restart", &self.restart).finish_non_exhaustive()
    }
}

impl ChildSpec {
    /// A ractor actor, with the reference that follows it through its restarts.
    ///
    /// `factory` makes a new actor and new arguments for every start. A panic in it is a failed start. The child is
    /// permanent, may take 10 s to start (`pre_start`) and 5 s to stop.
    pub fn actor<A, F>(id: impl Into<Arc<str>>, factory: F) -> (Self, ChildRef<A::Msg>)
    where
        A: Actor,
        F: Fn() -> (A, A::Arguments) + Send + Sync + 'static,
    {
        let factory = Arc::new(factory);
        let spawn: Spawn = Arc::new(move |supervisor| {
            let factory = Arc::clone(&factory);
            Box::pin(async move {
                let (actor, arguments) = factory();
                match A::spawn_linked(None, actor, arguments, supervisor).await {
                    Ok((actor, _)) => Ok(actor.get_cell()),
                    Err(ractor::SpawnErr::StartupFailed(error)) => Err(error.to_string()),
                    Err(error) => Err(error.to_string()),
                }
            })
        });
        let id = id.into();
        let reference = ChildRef::vacant(Arc::clone(&id));
        let mut spec = Self::new(id, Kind::Worker(spawn), reference.slot());
        spec.start_timeout = Some(Duration::from_secs(10));
        (spec, reference)
    }

    pub(super) fn new(id: Arc<str>, kind: Kind, slot: Arc<dyn ChildSlot>) -> Self {
        let shutdown = match kind {
            Kind::Worker(_) => Shutdown::OF_WORKERS,
            Kind::Supervisor(_) => Shutdown::Infinity,
        };
        Self {
            id,
            kind,
            slot,
            restart: Restart::default(),
            significant: false,
            own_intensity: None,
            on_failed: None,
            start_timeout: None,
            shutdown,
            mailbox_depth: None,
            detail: None,
        }
    }

    /// Sets after which ends the child is restarted. The default is [`Restart::Permanent`]: after every end.
    #[must_use]
    pub fn restart(mut self, restart: Restart) -> Self {
        self.restart = restart;
        self
    }

    /// The supervisor's [`AutoShutdown`] counts this child. It must be transient or temporary, and
    /// without an intensity of its own.
    #[must_use]
    pub fn significant(mut self) -> Self {
        self.significant = true;
        self
    }

    /// Counts this child's restarts in a window of its own. When there are too many, the child becomes `Failed` and
    /// stays listed, and the supervisor continues; [`restart_child`](super::SupervisorRef::restart_child) gives it a new
    /// window. Only below one_for_one and simple_one_for_one, and not for a significant child.
    #[must_use]
    pub fn own_intensity(mut self, intensity: Intensity) -> Self {
        self.own_intensity = Some(intensity);
        self
    }

    /// Sets what is called with the last cause when the child has become `Failed`. It must not block.
    #[must_use]
    pub fn on_failed(mut self, on_failed: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_failed = Some(Arc::new(on_failed));
        self
    }

    /// Sets how long a start may take before it counts as failed.
    #[must_use]
    pub fn start_timeout(mut self, timeout: Duration) -> Self {
        self.start_timeout = Some(timeout);
        self
    }

    /// Sets how the child is stopped: by default a worker has 5 s before it is killed, and a supervisor as long as it takes.
    #[must_use]
    pub fn shutdown(mut self, shutdown: Shutdown) -> Self {
        self.shutdown = shutdown;
        self
    }

    /// Sets how snapshots read the number of messages that wait for the child, which ractor does not report.
    #[must_use]
    pub fn mailbox_depth(mut self, probe: impl Fn() -> usize + Send + Sync + 'static) -> Self {
        self.mailbox_depth = Some(Arc::new(probe));
        self
    }

    /// Sets a text of the child's own for snapshots.
    #[must_use]
    pub fn detail(mut self, probe: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        self.detail = Some(Arc::new(probe));
        self
    }

    pub(super) fn is_supervisor(&self) -> bool {
        match self.kind {
            Kind::Worker(_) => false,
            Kind::Supervisor(_) => true,
        }
    }

    /// Checks that the supervisor accepts the child.
    pub(super) fn check(&self, supervisor: &SupervisorSpec) -> Result<(), SpecError> {
        let policy = &supervisor.policy;
        let child = || Arc::clone(&self.id);
        if self.significant && self.restart == Restart::Permanent {
            return Err(SpecError::SignificantPermanent { child: child() });
        }
        if self.significant && policy.auto_shutdown == AutoShutdown::Never {
            return Err(SpecError::SignificantWithoutShutdown { child: child() });
        }
        if self.significant && self.own_intensity.is_some() {
            return Err(SpecError::SignificantWithOwnIntensity { child: child() });
        }
        let is_alone = matches!(policy.strategy, Strategy::OneForOne | Strategy::SimpleOneForOne);
        if self.own_intensity.is_some() && !is_alone {
            return Err(SpecError::OwnIntensityInGroup { child: child(), strategy: policy.strategy });
        }
        if let Some(intensity) = self.own_intensity {
            supervisor.check_intensity(&self.id, intensity)?;
        }
        match &self.kind {
            Kind::Worker(_) => Ok(()),
            Kind::Supervisor(spec) => spec.check(),
        }
    }
}

/// A supervisor: its rules and the children it starts with, in start order.
#[derive(Clone, Debug)]
pub struct SupervisorSpec {
    pub(super) name: Arc<str>,
    pub(super) policy: Policy,
    pub(super) backoff: RestartBackoff,
    pub(super) children: Vec<ChildSpec>,
}

impl SupervisorSpec {
    /// A supervisor without children, with the default intensity and backoff.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, strategy: Strategy) -> Self {
        let policy = Policy { strategy, intensity: Intensity::default(), auto_shutdown: AutoShutdown::default() };
        Self { name: name.into(), policy, backoff: RestartBackoff::default(), children: Vec::new() }
    }

    /// A supervisor that restarts only the child that ended.
    #[must_use]
    pub fn one_for_one(name: impl Into<Arc<str>>) -> Self {
        Self::new(name, Strategy::OneForOne)
    }

    /// A supervisor that restarts all children when one ends.
    #[must_use]
    pub fn one_for_all(name: impl Into<Arc<str>>) -> Self {
        Self::new(name, Strategy::OneForAll)
    }

    /// A supervisor that restarts the child that ended and those after it.
    #[must_use]
    pub fn rest_for_one(name: impl Into<Arc<str>>) -> Self {
        Self::new(name, Strategy::RestForOne)
    }

    /// A supervisor of children that are alike, started from a [`ChildTemplate`](super::ChildTemplate) while it runs. It
    /// starts without children.
    #[must_use]
    pub fn simple_one_for_one(name: impl Into<Arc<str>>) -> Self {
        Self::new(name, Strategy::SimpleOneForOne)
    }

    /// Sets how many restarts are too many: by default more than 5 within 60 s. Restarts of children with an intensity
    /// of their own do not count.
    #[must_use]
    pub fn intensity(mut self, intensity: Intensity) -> Self {
        self.policy.intensity = intensity;
        self
    }

    /// Sets how long restarts of the children wait. The default is [`RestartBackoff::default`].
    #[must_use]
    pub fn backoff(mut self, backoff: RestartBackoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets whether the supervisor ends with its significant children.
    #[must_use]
    pub fn auto_shutdown(mut self, rule: AutoShutdown) -> Self {
        self.policy.auto_shutdown = rule;
        self
    }

    /// Adds a child, last in the start order.
    #[must_use]
    pub fn child(mut self, child: ChildSpec) -> Self {
        self.children.push(child);
        self
    }

    pub(super) fn check(&self) -> Result<(), SpecError> {
        self.check_intensity(&self.name, self.policy.intensity)?;
        if let (Strategy::SimpleOneForOne, Some(child)) = (self.policy.strategy, self.children.first()) {
            return Err(SpecError::ListedBelowSimple { child: Arc::clone(&child.id) });
        }
        let mut ids = HashSet::new();
        for child in &self.children {
            if !ids.insert(&child.id) {
                return Err(SpecError::DuplicateId { child: Arc::clone(&child.id) });
            }
            child.check(self)?;
        }
        Ok(())
    }

    fn check_intensity(&self, whose: &Arc<str>, intensity: Intensity) -> Result<(), SpecError> {
        let waits = self.backoff.total(intensity.max);
        if intensity.max == 0 || waits < intensity.period {
            return Ok(());
        }
        Err(SpecError::UnreachableIntensity { whose: Arc::clone(whose), intensity, waits })
    }
}
