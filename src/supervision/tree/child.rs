//! The record that a supervisor keeps of one child.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ractor::ActorCell;
use tokio::sync::oneshot;

use super::child_ref::Down;
use super::errors::ControlError;
use super::intensity::Window;
use super::message::Reply;
use super::node::ActorState;
use super::restart::{ChildFacts, Presence, Restart};
use super::spec::ChildSpec;

/// A wait before a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    /// The incident that caused it.
    pub(super) incident: u64,
    /// Its end by the monotonic clock, for snapshots; a timer ends the pause.
    pub(super) until: Duration,
}

/// What follows a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Stay,
    Remove,
    Restart(Option<Pause>),
}

#[derive(Debug)]
pub(super) enum Phase {
    /// To be started when the pause is over and the order allows it.
    Waiting(Option<Pause>),
    Starting,
    Running,
    /// Starting or running, and to be stopped when those after it are down.
    Doomed(Then),
    /// A task is stopping it.
    Stopping(Then),
    /// Ended or stopped.
    Down,
    /// Restarted too often.
    Failed,
}

/// The reason of a start, which determines what its failure means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// With its supervisor: a failure fails the supervisor's start.
    Initial,
    /// Added at run time: a failure removes it from the list.
    Added,
    /// Started again by hand: a failure leaves it down.
    ByHand,
    /// By the supervisor: a failure is an incident like a crash.
    Restart,
}

/// The queue of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Queue {
    /// To run for the first time, with its supervisor.
    First,
    /// To be started again, or in addition.
    Start,
    /// To be started when its pause is over or the start in progress has succeeded.
    Pending,
    /// To stop when those after it are down.
    Doomed,
    /// For its stop to end.
    Stopping,
}

/// A start that is under way.
pub(super) struct Launching {
    /// Cancels the start; taken when that has been done.
    pub(super) cancel: Option<oneshot::Sender<()>>,
    pub(super) spawned: Arc<OnceLock<ActorCell>>,
}

pub(super) struct Child {
    pub(super) spec: ChildSpec,
    pub(super) path: Arc<str>,
    phase: Phase,
    /// Kept by the list of children.
    pub(super) queue: Option<Queue>,
    pub(super) origin: Origin,
    pub(super) generation: u64,
    pub(super) restarts: u64,
    pub(super) window: Window,
    pub(super) launching: Option<Launching>,
    pub(super) cell: Option<ActorCell>,
    /// It was asked to stop, and no task waits for it: its stop is over when its actor reports its end.
    pub(super) is_asked: bool,
    pub(super) running_since: Option<Duration>,
    pub(super) last_error: Option<String>,
    pub(super) start_reply: Option<Reply>,
    pub(super) stop_replies: Vec<Reply>,
    slot_owner: u64,
}

impl Child {
    pub(super) fn new(spec: ChildSpec, parent: &str, origin: Origin) -> Self {
        Self {
            path: format!("{parent}/{}", spec.id).into(),
            phase: Phase::Waiting(None),
            queue: None,
            origin,
            generation: 0,
            restarts: 0,
            window: Window::default(),
            launching: None,
            cell: None,
            is_asked: false,
            running_since: None,
            last_error: None,
            start_reply: None,
            stop_replies: Vec::new(),
            slot_owner: spec.slot.claim(),
            spec,
        }
    }

    pub(super) fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The queue for its phase.
    pub(super) fn due(&self) -> Option<Queue> {
        match (&self.phase, self.origin) {
            (Phase::Waiting(_) | Phase::Starting, Origin::Initial) => Some(Queue::First),
            (Phase::Waiting(None), Origin::Added | Origin::ByHand | Origin::Restart) => Some(Queue::Start),
            (Phase::Waiting(Some(_)) | Phase::Starting, Origin::Added | Origin::ByHand | Origin::Restart) => {
                Some(Queue::Pending)
            }
            (Phase::Doomed(_), _) => Some(Queue::Doomed),
            (Phase::Stopping(_), _) => Some(Queue::Stopping),
            (Phase::Running | Phase::Down | Phase::Failed, _) => None,
        }
    }

    /// Enters a phase and updates the child's reference.
    pub(super) fn enter(&mut self, phase: Phase) {
        let slot = &self.spec.slot;
        match (&phase, &self.cell) {
            (Phase::Running, Some(cell)) => slot.occupy(self.slot_owner, cell.clone()),
            // It continues to work until its turn to stop.
            (Phase::Doomed(_), _) => {}
            (Phase::Waiting(_) | Phase::Starting | Phase::Running, _) => {
                let first = matches!(self.origin, Origin::Initial | Origin::Added);
                slot.vacate(self.slot_owner, if first { Down::Starting } else { Down::Restarting });
            }
            (Phase::Stopping(_), _) => slot.vacate(self.slot_owner, Down::Exiting),
            (Phase::Down, _) => slot.vacate(self.slot_owner, Down::Stopped),
            (Phase::Failed, _) => slot.vacate(self.slot_owner, Down::Failed),
        }
        self.phase = phase;
    }

    /// Ends the pause that this incident asked for.
    pub(super) fn end_pause(&mut self, incident: u64) {
        match &mut self.phase {
            Phase::Waiting(pause) | Phase::Doomed(Then::Restart(pause)) | Phase::Stopping(Then::Restart(pause)) => {
                pause.take_if(|pause| pause.incident == incident);
            }
            Phase::Doomed(Then::Stay | Then::Remove) | Phase::Stopping(Then::Stay | Then::Remove) => {}
            Phase::Starting | Phase::Running | Phase::Down | Phase::Failed => {}
        }
    }

    /// The actor, also that of a supervisor whose children are still starting.
    pub(super) fn actor(&self) -> Option<&ActorCell> {
        self.cell.as_ref().or_else(|| self.launching.as_ref()?.spawned.get())
    }

    pub(super) fn facts(&self) -> ChildFacts {
        ChildFacts {
            restart: self.spec.restart,
            significant: self.spec.significant,
            own_intensity: self.spec.own_intensity,
            presence: match self.phase {
                Phase::Starting | Phase::Running | Phase::Doomed(_) => Presence::Up,
                Phase::Waiting(_) | Phase::Stopping(Then::Restart(_)) => Presence::Pending,
                Phase::Stopping(Then::Stay | Then::Remove) | Phase::Down | Phase::Failed => Presence::Down,
            },
        }
    }

    pub(super) fn state(&self, now: Duration) -> ActorState {
        match self.phase {
            Phase::Waiting(Some(pause)) => ActorState::Restarting { after: pause.until.saturating_sub(now) },
            Phase::Waiting(None) | Phase::Starting => match self.origin {
                Origin::Restart => ActorState::Restarting { after: Duration::ZERO },
                Origin::Initial | Origin::Added | Origin::ByHand => ActorState::Starting,
            },
            Phase::Running => ActorState::Running,
            Phase::Doomed(_) | Phase::Stopping(_) => ActorState::Stopping,
            Phase::Down => ActorState::Stopped,
            Phase::Failed => ActorState::Failed,
        }
    }

    pub(super) fn answer_start(&mut self, result: Result<(), ControlError>) {
        if let Some(reply) = self.start_reply.take() {
            // The caller may have stopped waiting.
            let _ = reply.send(result);
        }
    }

    pub(super) fn answer_stop(&mut self) {
        for reply in self.stop_replies.drain(..) {
            let _ = reply.send(Ok(()));
        }
    }

    /// What follows a stop: a temporary child, and one whose first start was cancelled, do not stay listed.
    pub(super) fn after_stop(&self, then: Then) -> Then {
        if self.spec.restart == Restart::Temporary || (self.origin == Origin::Added && then == Then::Stay) {
            Then::Remove
        } else {
            then
        }
    }
}

/// Marks the references as down if the supervisor is dropped.
impl Drop for Child {
    fn drop(&mut self) {
        self.spec.slot.vacate(self.slot_owner, Down::Stopped);
    }
}
