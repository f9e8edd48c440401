//! What a test plans to go wrong, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use callboard_text::{did_you_mean, nearest};

use crate::env::Fault;

use super::points::{FaultKind, FaultPoint, HELD_BACK};
use super::world::World;

/// Passed before an agent's turn begins; its subject is the agent.
pub(super) const TURN: &str = "turn.begin";

/// Faults of a simulation. Each method that names a point adds a fault, which strikes the first time the point is
/// reached; the methods after it change that. A fault that no seed reaches fails the simulation, and so does one that hits
/// no work in flight in any seed, unless it is meant to ([`FaultPlan::at_rest`]).
///
/// ```
/// # use callboard::testing::{Seeds, Sim};
/// # use std::time::Duration;
/// # Seeds::new(1).simulate(async |sim: Sim| {
/// sim.faults()
///     .panic("coder").on_turn(2)                 // the second turn that it begins panics
///     .hang("reviewer").for_secs(90)             // its first one takes 90 s longer
///     .at("delegation.dispatch").drops()         // the first delegation is lost on its way
///     .at("router.handle").kills().at_rest()     // the router is killed, also with nothing under way
///     .at("storage.append").loses_reply().on_pass(3)
///     .at("storage.append").crash().on_pass(5);
/// # sim.faults().forget();
/// # Ok(()) });
/// ```
pub struct FaultPlan {
    pub(super) world: Arc<World>,
}

/// How often a planned fault struck; see [`FaultPlan::strikes`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Strikes {
    /// The planned fault as text: what it does, at which point, for which subject, and at which passes.
    pub fault: String,
    /// How often the fault has struck in this seed so far.
    pub struck: u64,
    /// How many of these strikes hit work in flight, as [`FaultPlan::strikes`] defines it. A strike that holds a
    /// message back counts when another message overtakes it.
    pub in_flight: u64,
}

/// The points that were reached, each with some of its subjects.
pub(super) type Passed = BTreeMap<&'static str, BTreeSet<Box<str>>>;

/// One planned fault.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    point: Box<str>,
    /// Whose point; any if empty.
    subject: Box<str>,
    /// `None` is the default error of a point.
    fault: Option<Fault>,
    passes: Passes,
    is_at_rest: bool,
    passed: u64,
    /// It was due when another one struck.
    pub(super) gave_way: bool,
    pub(super) struck: u64,
    pub(super) in_flight: u64,
    /// Until when the messages are held back that it struck; what passes meanwhile goes before them.
    held_until: Duration,
}

/// Which of the passes a fault strikes.
#[derive(Clone, Copy, Debug)]
enum Passes {
    Only(u64),
    EachNth(u64),
    OneIn(u64),
}

impl fmt::Display for Passes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only(number) => write!(f, "pass {number}"),
            Self::EachNth(number) => write!(f, "every pass that {number} divides"),
            Self::OneIn(number) => write!(f, "one pass in {number}"),
        }
    }
}

impl Planned {
    fn new(point: &str, subject: &str, fault: Option<Fault>) -> Self {
        Self {
            point: point.into(),
            subject: subject.into(),
            fault,
            passes: Passes::Only(1),
            is_at_rest: false,
            passed: 0,
            gave_way: false,
            struck: 0,
            in_flight: 0,
            held_until: Duration::ZERO,
        }
    }

    fn fault(&self) -> Fault {
        self.fault.clone().unwrap_or_else(|| Fault::Error("a planned error".into()))
    }

    /// Whether it showed what it was planned for.
    pub(super) fn is_covered(&self) -> bool {
        self.in_flight > 0 || (self.is_at_rest && self.struck > 0)
    }

    /// Whether its point was never passed, and is none of the runtime's.
    pub(super) fn is_unknown(&self, passed: &Passed) -> bool {
        !passed.contains_key(&*self.point) && FaultPoint::of(&self.point).is_none()
    }

    /// Why it may not have struck.
    pub(super) fn why_unreached(&self, passed: &Passed) -> String {
        let Self { point, subject, .. } = self;
        if self.is_unknown(passed) {
            let names = FaultPoint::all().iter().map(|point| point.name).chain(passed.keys().copied());
            return format!("; there is no such point{}", did_you_mean(nearest(point, names).as_deref()));
        }
        let Some(subjects) = passed.get(&**point) else { return "; nothing came there".to_owned() };
        if self.gave_way {
            return "; another planned fault struck in its stead".to_owned();
        }
        if subject.is_empty() || subjects.contains(subject) {
            return format!("; passes: {}", self.passed);
        }
        let named: Vec<_> = subjects.iter().map(|name| &**name).filter(|name| !name.is_empty()).collect();
        if named.is_empty() {
            return "; what comes there has no name, so leave `.of(..)` out".to_owned();
        }
        let near = did_you_mean(nearest(subject, named.iter().copied()).as_deref());
        format!("; what came there: {}{near}", named.join(", "))
    }

    /// A message passes that was not held back: it overtakes those that this fault holds back.
    pub(super) fn overtake(&mut self, point: &str, now: Duration) {
        if *self.point == *point && now < self.held_until {
            self.in_flight += 1;
            self.held_until = Duration::ZERO;
        }
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
        strikes.then(|| self.fault())
    }

    /// Counts a strike. A message that is held back counts as a hit when another one overtakes it.
    pub(super) fn strike(&mut self, has_work: bool, now: Duration) {
        self.struck += 1;
        match self.fault {
            Some(Fault::Hold(time)) => self.held_until = now + time,
            _ => self.in_flight += u64::from(has_work),
        }
    }

    /// What is wrong with a kind that the point does not take; a test's own points take everything.
    fn check(&self) -> Result<(), String> {
        let (Some(point), Some(kind)) = (FaultPoint::of(&self.point), FaultKind::of(&self.fault())) else {
            return Ok(());
        };
        if point.kinds.contains(&kind) {
            return Ok(());
        }
        let taken: Vec<String> = point.kinds.iter().map(ToString::to_string).collect();
        Err(format!("{} does not take `{kind}`: it takes {}", point.name, taken.join(", ")))
    }
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { point, subject, passes, .. } = self;
        let of = if subject.is_empty() { String::new() } else { format!(" of {subject}") };
        write!(f, "{:?} at {point}{of} ({passes})", self.fault())
    }
}

impl FaultPlan {
    /// Adds a panic to the plan. It strikes as a turn of this agent begins: the first one, unless
    /// [`FaultPlan::on_turn`] or the like sets another.
    pub fn panic(self, agent: &str) -> Self {
        self.plan(TURN, agent, Some(Fault::Panic("a planned panic".into())))
    }

    /// A turn of this agent fails, and may be tried again.
    pub fn fail(self, agent: &str) -> Self {
        self.plan(TURN, agent, Some(Fault::Error("a planned failure".into())))
    }

    /// A turn of this agent begins late, by [`FaultPlan::for_secs`] (for ever).
    pub fn hang(self, agent: &str) -> Self {
        self.plan(TURN, agent, Some(Fault::Wait(Duration::MAX)))
    }

    /// Something happens at a named point ([`FaultPoint::all`] and `docs/testing.md` list them): an
    /// error, unless the next call sets another.
    pub fn at(self, point: &str) -> Self {
        self.plan(point, "", None)
    }

    /// The last fault strikes this agent, key or actor only.
    pub fn of(self, subject: &str) -> Self {
        self.last(|planned| planned.subject = subject.into())
    }

    /// The last fault is an error with this text.
    ///
    /// # Panics
    /// As each method that sets what happens: when the point does not take it; the text lists what it takes.
    #[track_caller]
    pub fn error(self, text: &str) -> Self {
        self.fault(Fault::Error(text.into()))
    }

    /// The last fault is a panic with this text.
    #[track_caller]
    pub fn panics(self, text: &str) -> Self {
        self.fault(Fault::Panic(text.into()))
    }

    /// The last fault: it happens, and what it reports is lost, so that it looks failed.
    #[track_caller]
    pub fn loses_reply(self) -> Self {
        self.fault(Fault::Lose)
    }

    /// The last fault: the actor there ends as if it was killed, and its supervisor brings it back. At a turn's points that
    /// is its agent's actor, and the turn continues.
    #[track_caller]
    pub fn kills(self) -> Self {
        self.fault(Fault::Kill)
    }

    /// The last fault: the message is lost. A sender that waits for an answer notices after a second.
    #[track_caller]
    pub fn drops(self) -> Self {
        self.fault(Fault::Drop)
    }

    /// The last fault: the message arrives twice.
    #[track_caller]
    pub fn duplicates(self) -> Self {
        self.fault(Fault::Duplicate)
    }

    /// The last fault: the message is held back for a second, and what passes the same point meanwhile arrives before it.
    /// It counts as hit once another message has done so.
    #[track_caller]
    pub fn reorders(self) -> Self {
        self.fault(Fault::Hold(HELD_BACK))
    }

    /// The last fault is the end of the node; see [`Sim::until_crash`](super::Sim::until_crash).
    #[track_caller]
    pub fn crash(self) -> Self {
        self.fault(Fault::Crash)
    }

    /// Makes the last fault a wait of this many seconds of virtual time, as [`FaultPlan::waits`] does.
    #[track_caller]
    pub fn for_secs(self, secs: u64) -> Self {
        self.waits(Duration::from_secs(secs))
    }

    /// The last fault is a wait of this long; a message arrives so late.
    #[track_caller]
    pub fn waits(self, time: Duration) -> Self {
        self.fault(Fault::Wait(time))
    }

    /// The last fault is this one, as [`FaultPoint::faults`] lists them.
    #[track_caller]
    pub fn fault(self, fault: Fault) -> Self {
        let plan = self.last(|planned| planned.fault = Some(fault));
        let checked = plan.world.with_plan(|plan| plan.last().map_or(Ok(()), Planned::check));
        checked.unwrap_or_else(|wrong| panic!("{wrong}"));
        plan
    }

    /// The last fault strikes that turn of the agent, counted over all runs and attempts from 1.
    pub fn on_turn(self, number: u64) -> Self {
        self.on_pass(number)
    }

    /// The last fault strikes the time that execution comes there, from 1. Each planned fault counts for itself; of several
    /// that are due at once the first that was planned strikes.
    ///
    /// # Panics
    /// When the number is 0, as in the other methods that take one.
    pub fn on_pass(self, number: u64) -> Self {
        self.last(|planned| planned.passes = Passes::Only(counted(number)))
    }

    /// The last fault strikes each time whose number this divides.
    pub fn every(self, number: u64) -> Self {
        self.last(|planned| planned.passes = Passes::EachNth(counted(number)))
    }

    /// The last fault strikes by chance, one time in this many.
    pub fn one_in(self, number: u64) -> Self {
        self.last(|planned| planned.passes = Passes::OneIn(counted(number)))
    }

    /// The last fault is meant for a moment without work: it need not hit any in flight.
    pub fn at_rest(self) -> Self {
        self.last(|planned| planned.is_at_rest = true)
    }

    /// How often each planned fault has struck in this seed so far, in the order in which they were planned.
    ///
    /// A strike hits work in flight if a board of the node is not idle at that moment: a run that was taken in and has not
    /// ended, a turn that is ready, at work or waiting, an undecided approval, or another write that is not
    /// acknowledged.
    #[must_use]
    pub fn strikes(&self) -> Vec<Strikes> {
        let strikes = |planned: &Planned| Strikes {
            fault: planned.to_string(),
            struck: planned.struck,
            in_flight: planned.in_flight,
        };
        self.world.with_plan(|plan| plan.iter().map(strikes).collect())
    }

    /// Removes all planned faults of this seed: none strikes from now on, and none counts as not reached.
    pub fn forget(self) {
        self.world.with_plan(Vec::clear);
    }

    fn plan(self, point: &str, subject: &str, fault: Option<Fault>) -> Self {
        self.world.with_plan(|plan| plan.push(Planned::new(point, subject, fault)));
        self
    }

    fn last(self, change: impl FnOnce(&mut Planned)) -> Self {
        self.world.with_plan(|plan| {
            let planned = plan.last_mut().expect("name a point first: panic(..), hang(..), fail(..) or at(..)");
            change(planned);
        });
        self
    }
}

/// The default of a point that takes no error.
impl Drop for FaultPlan {
    fn drop(&mut self) {
        let unsaid = self.world.with_plan(|plan| plan.iter().find_map(|planned| planned.check().err()));
        if let Some(wrong) = unsaid.filter(|_| !std::thread::panicking()) {
            panic!("{wrong}");
        }
    }
}

fn counted(number: u64) -> u64 {
    assert!(number > 0, "passes are counted from 1; leave the fault out where it is not to strike");
    number
}
