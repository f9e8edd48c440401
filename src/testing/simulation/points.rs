//! The list of fault points, and what each takes.

use std::fmt;
use std::time::Duration;

use crate::env::Fault;

/// How long a message is held back that is to arrive after later ones.
pub(super) const HELD_BACK: Duration = Duration::from_secs(1);

/// What may be planned to happen at a fault point; shown as the method of [`FaultPlan`](super::FaultPlan) that plans it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// It fails.
    Error,
    /// It panics.
    Panic,
    /// It takes its time.
    Wait,
    /// It happens, and looks failed.
    LoseReply,
    /// The actor there is killed.
    Kill,
    /// The message there is lost.
    Drop,
    /// The message there arrives twice.
    Duplicate,
    /// The message there arrives after later ones.
    Reorder,
    /// The node crashes there.
    Crash,
}

impl FaultKind {
    /// `None` for what only chance does.
    pub(super) fn of(fault: &Fault) -> Option<Self> {
        Some(match fault {
            Fault::Error(_) => Self::Error,
            Fault::Panic(_) => Self::Panic,
            Fault::Wait(_) => Self::Wait,
            Fault::Yield(_) => return None,
            Fault::Lose => Self::LoseReply,
            Fault::Drop => Self::Drop,
            Fault::Duplicate => Self::Duplicate,
            Fault::Hold(_) => Self::Reorder,
            Fault::Kill => Self::Kill,
            Fault::Crash => Self::Crash,
        })
    }

    /// A fault of this kind.
    fn example(self) -> Fault {
        match self {
            Self::Error => Fault::Error("a planned error".into()),
            Self::Panic => Fault::Panic("a planned panic".into()),
            Self::Wait => Fault::Wait(Duration::from_secs(3)),
            Self::LoseReply => Fault::Lose,
            Self::Kill => Fault::Kill,
            Self::Drop => Fault::Drop,
            Self::Duplicate => Fault::Duplicate,
            Self::Reorder => Fault::Hold(HELD_BACK),
            Self::Crash => Fault::Crash,
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Panic => "panics",
            Self::Wait => "waits",
            Self::LoseReply => "loses_reply",
            Self::Kill => "kills",
            Self::Drop => "drops",
            Self::Duplicate => "duplicates",
            Self::Reorder => "reorders",
            Self::Crash => "crash",
        })
    }
}

/// A point in the runtime where faults may be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultPoint {
    /// Its name, for [`FaultPlan::at`](super::FaultPlan::at).
    pub name: &'static str,
    /// What it takes.
    pub(super) kinds: &'static [FaultKind],
    /// Chance leaves it alone. Messages pass where only a plan delays them, so that what the runtime keeps in order stays in
    /// order.
    pub(super) is_steady: bool,
}

impl FaultPoint {
    /// All fault points of the runtime.
    ///
    /// ```
    /// use callboard::env::Fault;
    /// use callboard::testing::FaultPoint;
    /// let is_killed_at = |point: &&FaultPoint| point.faults().contains(&Fault::Kill);
    /// assert!(FaultPoint::all().iter().filter(is_killed_at).any(|point| point.name == "router.handle"));
    /// ```
    #[must_use]
    pub fn all() -> &'static [Self] {
        POINTS
    }

    /// What the point takes, one fault of each kind, for [`FaultPlan::fault`](super::FaultPlan::fault).
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        self.kinds.iter().map(|kind| kind.example()).collect()
    }

    /// The point of this name; a test may have points of its own.
    pub(super) fn of(name: &str) -> Option<&'static Self> {
        POINTS.iter().find(|point| point.name == name)
    }
}

use FaultKind::{Crash, Drop, Duplicate, Error, Kill, LoseReply, Panic, Reorder, Wait};

const TURN: &[FaultKind] = &[Error, Panic, Wait, Kill, Crash];
const STEP: &[FaultKind] = &[Error, Panic, Wait, Crash];
const SHARD: &[FaultKind] = &[Error, Panic, Kill, Crash];
const CALL: &[FaultKind] = &[Error, Panic, Wait, LoseReply, Crash];
const START: &[FaultKind] = &[Error, Panic, Wait, Crash];
const HANDLE: &[FaultKind] = &[Error, Panic, Wait, Kill, Crash];
const STOP: &[FaultKind] = START;
const EXPIRY: &[FaultKind] = START;

const fn of(name: &'static str, kinds: &'static [FaultKind]) -> FaultPoint {
    FaultPoint { name, kinds, is_steady: false }
}

const fn steady(name: &'static str, kinds: &'static [FaultKind]) -> FaultPoint {
    FaultPoint { name, kinds, is_steady: true }
}

const POINTS: &[FaultPoint] = &[
    of("turn.begin", TURN),
    of("turn.end", TURN),
    of("step.begin", STEP),
    of("runs.taken", SHARD),
    of("runs.applied", SHARD),
    steady("runs.journaled", &[Panic, Kill, Crash]),
    of("storage.append", CALL),
    of("storage.read", CALL),
    of("storage.put", CALL),
    of("storage.get", CALL),
    of("storage.delete", CALL),
    of("storage.scan", CALL),
    of("storage.streams", CALL),
    of("storage.purge", CALL),
    of("session.begin", CALL),
    of("session.renew", CALL),
    of("session.end", CALL),
    of("session.list", CALL),
    of("session.forget", CALL),
    of("agent.start", START),
    of("agent.handle", HANDLE),
    of("agent.stop", STOP),
    of("router.start", START),
    of("router.handle", HANDLE),
    of("router.stop", STOP),
    of("gateway.start", START),
    of("gateway.handle", HANDLE),
    of("gateway.stop", STOP),
    of("channel.start", START),
    of("channel.handle", HANDLE),
    of("channel.stop", STOP),
    of("context.start", START),
    of("context.handle", HANDLE),
    of("context.stop", STOP),
    of("storage.start", START),
    of("storage.handle", HANDLE),
    of("storage.stop", STOP),
    of("boards.start", START),
    of("boards.handle", HANDLE),
    of("boards.stop", STOP),
    of("gauges.start", START),
    of("gauges.handle", HANDLE),
    of("gauges.stop", STOP),
    of("runs.start", START),
    of("runs.handle", HANDLE),
    of("runs.stop", STOP),
    of("storage.sweep", EXPIRY),
    of("context.sweep", EXPIRY),
    steady("turn.dispatch", &[Panic, Wait, Duplicate, Reorder, Crash]),
    steady("turn.reply", &[Wait, Duplicate, Reorder, Crash]),
    steady("delegation.dispatch", &[Error, Panic, Wait, Drop, Duplicate, Reorder, Crash]),
    steady("question.dispatch", &[Error, Panic, Wait, Drop, Duplicate, Reorder, Crash]),
    steady("approval.dispatch", &[Error, Panic, Wait, Drop, Duplicate, Reorder, Crash]),
    steady("delegation.reply", &[Error, Panic, Wait, Drop, Reorder, Crash]),
    steady("question.reply", &[Error, Panic, Wait, Drop, Reorder, Crash]),
    steady("approval.reply", &[Error, Panic, Wait, Drop, Reorder, Crash]),
    steady("inbox.dispatch", &[Wait, Drop, Duplicate, Reorder, Crash]),
    steady("answer.dispatch", &[Wait, Drop, Duplicate, Reorder, Crash]),
    steady("decision.dispatch", &[Error, Wait, Drop, Duplicate, Reorder, Crash]),
    steady("mail.take", &[Error, Panic, Wait, Duplicate, Reorder, Crash]),
    steady("channel.ask", &[Error, Panic, Wait, Drop, Duplicate, Crash]),
];
