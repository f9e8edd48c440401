//! What a test plans to go wrong, and when.

use std::sync::Arc;
use std::time::Duration;

use crate::env::Fault;

use super::world::World;

/// Passed before an agent's turn begins; its subject is the agent.
pub(super) const TURN: &str = "turn.begin";

/// Faults of a simulation. Each method that names a place adds a fault, which strikes the first time execution comes
/// there; the methods after it say otherwise. A fault that no seed comes to fails the simulation.
///
/// ```
/// # use callboard::testing::{Sim, seeds, simulate};
/// # use std::time::Duration;
/// # simulate(seeds(1), async |sim: Sim| {
/// sim.faults()
///     .panic("coder").on_turn(2)                 // the second turn that it begins panics
///     .hang("reviewer").for_secs(90)             // its first one takes 90 s longer
///     .at("storage.append").loses_reply().on_pass(3)
///     .at("storage.append").crash().on_pass(5);
/// # sim.faults().forget();
/// # Ok(()) });
/// ```
#[must_use = "a fault is planned when it is named; drop the plan when that is all"]
pub struct FaultPlan {
    pub(super) world: Arc<World>,
}

/// One planned fault.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    point: Box<str>,
    /// Whose point; any if empty.
    subject: Box<str>,
    fault: Fault,
    passes: Passes,
    passed: u64,
    pub(super) struck: u64,
}

/// Which of the passes a fault strikes.
#[derive(Clone, Copy, Debug)]
enum Passes {
    Only(u64),
    EachNth(u64),
    OneIn(u64),
}

impl Planned {
    pub(super) fn new(point: &str, subject: &str, fault: Fault) -> Self {
        Self { point: point.into(), subject: subject.into(), fault, passes: Passes::Only(1), passed: 0, struck: 0 }
    }

    pub(super) fn point(&self) -> &str {
        &self.point
    }

    /// What happens as execution passes a point; `chance` draws below a bound.
    pub(super) fn pass(&mut self, point: &str, subject: &str, chance: impl FnOnce(u64) -> u64) -> Option<Fault> {
        if *self.point != *point || !(self.subject.is_empty() || *self.subject == *subject) {
            return None;
        }
        self.passed += 1;
        let strikes = match self.passes {
            Passes::Only(number) => self.passed == number,
            Passes::EachNth(number) => self.passed.is_multiple_of(number),
            Passes::OneIn(number) => chance(number) == 0,
        };
        self.struck += u64::from(strikes);
        strikes.then(|| self.fault.clone())
    }
}

impl std::fmt::Display for Planned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { point, subject, fault, passes, .. } = self;
        let of = if subject.is_empty() { String::new() } else { format!(" of {subject}") };
        write!(f, "{fault:?} at {point}{of} ({passes:?})")
    }
}

impl FaultPlan {
    /// A turn of this agent panics.
    pub fn panic(self, agent: &str) -> Self {
        self.plan(TURN, agent, Fault::Panic("a planned panic".into()))
    }

    /// A turn of this agent fails, and may be tried again.
    pub fn fail(self, agent: &str) -> Self {
        self.plan(TURN, agent, Fault::Error("a planned failure".into()))
    }

    /// A turn of this agent begins late; say how late with [`FaultPlan::for_secs`] (for ever).
    pub fn hang(self, agent: &str) -> Self {
        self.plan(TURN, agent, Fault::Wait(Duration::MAX))
    }

    /// Something happens at a named point (`docs/testing.md` lists them): an error, unless the next call says otherwise.
    pub fn at(self, point: &str) -> Self {
        self.plan(point, "", Fault::Error("a planned error".into()))
    }

    /// The last fault strikes this agent, key or actor only.
    pub fn of(self, subject: &str) -> Self {
        self.last(|planned| planned.subject = subject.into())
    }

    /// The last fault is an error with this text.
    pub fn error(self, text: &str) -> Self {
        self.last(|planned| planned.fault = Fault::Error(text.into()))
    }

    /// The last fault is a panic with this text.
    pub fn panics(self, text: &str) -> Self {
        self.last(|planned| planned.fault = Fault::Panic(text.into()))
    }

    /// The last fault: it happens, and what it reports is lost, so that it looks failed.
    pub fn loses_reply(self) -> Self {
        self.last(|planned| planned.fault = Fault::Lose)
    }

    /// The last fault is the end of the node; see [`Sim::until_crash`](super::Sim::until_crash).
    pub fn crash(self) -> Self {
        self.last(|planned| planned.fault = Fault::Crash)
    }

    /// The last fault is a wait of this long.
    pub fn for_secs(self, secs: u64) -> Self {
        self.waits(Duration::from_secs(secs))
    }

    /// The last fault is a wait of this long.
    pub fn waits(self, time: Duration) -> Self {
        self.last(|planned| planned.fault = Fault::Wait(time))
    }

    /// The last fault strikes that turn of the agent, counted over all runs and attempts from 1.
    pub fn on_turn(self, number: u64) -> Self {
        self.on_pass(number)
    }

    /// The last fault strikes the time that execution comes there, from 1.
    pub fn on_pass(self, number: u64) -> Self {
        self.last(|planned| planned.passes = Passes::Only(number.max(1)))
    }

    /// The last fault strikes each time whose number this divides.
    pub fn every(self, number: u64) -> Self {
        self.last(|planned| planned.passes = Passes::EachNth(number.max(1)))
    }

    /// The last fault strikes by chance, one time in this many.
    pub fn one_in(self, number: u64) -> Self {
        self.last(|planned| planned.passes = Passes::OneIn(number.max(1)))
    }

    /// Plans nothing any more.
    pub fn forget(self) {
        self.world.with_plan(Vec::clear);
    }

    fn plan(self, point: &str, subject: &str, fault: Fault) -> Self {
        self.world.with_plan(|plan| plan.push(Planned::new(point, subject, fault)));
        self
    }

    fn last(self, change: impl FnOnce(&mut Planned)) -> Self {
        self.world.with_plan(|plan| {
            let planned = plan.last_mut().expect("name a place first: panic(..), hang(..), fail(..) or at(..)");
            change(planned);
        });
        self
    }
}
