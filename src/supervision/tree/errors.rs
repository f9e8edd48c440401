//! The errors of trees: failed starts, ends, and refused requests.

use std::sync::Arc;
use std::time::Duration;

use callboard_text::{quoted, visible_lines};

use super::child_ref::Down;
use super::intensity::Intensity;
use super::node::ActorState;
use super::restart::Strategy;

/// Why a supervisor ended, as [`Supervisor::stop`](super::Supervisor::stop) and
/// [`Supervisor::join`](super::Supervisor::join) return it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndReason {
    /// It was stopped by [`Supervisor::stop`](super::Supervisor::stop) or by the supervisor above it, or the future of
    /// [`Supervisor::start`](super::Supervisor::start) was dropped before it returned.
    #[error("stopped")]
    Stopped,
    /// Its [`AutoShutdown`](super::AutoShutdown) rule ended it, because a significant child, or the last of them, has
    /// ended.
    #[error("`{child}` has ended and took its supervisor along")]
    AutoShutdown {
        /// The path of the child that ended last.
        child: Arc<str>,
    },
    /// Its children were restarted more often than its [`Intensity`] allows, so it stopped them and failed.
    #[error("`{child}` was restarted too often: {}", visible_lines(error))]
    IntensityExceeded {
        /// The path of the child whose end exceeded the intensity.
        child: Arc<str>,
        /// How that child ended or failed to start, as text.
        error: String,
    },
    /// A child could not be started when the supervisor started.
    #[error("`{child}` could not be started: {}", visible_lines(error))]
    StartFailed {
        /// The path of the child that did not start.
        child: Arc<str>,
        /// The text of the error or panic, or what else kept the child from starting, such as its start timeout.
        error: String,
    },
    /// It was killed, or its runtime ended, and its children with it.
    #[error("killed")]
    Killed,
}

/// Why a tree did not start. What had started by then has been stopped again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// The specification is invalid; nothing was started.
    #[error(transparent)]
    Invalid(#[from] SpecError),
    /// The supervisor ended before all of its children ran.
    #[error(transparent)]
    Ended(EndReason),
}

/// Why a request to a supervisor was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The supervisor lists no such child; a temporary child, for example, leaves the list when it ends.
    #[error("there is no child {}", quoted(child))]
    UnknownChild {
        /// The id that was asked for.
        child: Arc<str>,
    },
    /// Only a child that is stopped or failed can be started by hand.
    #[error("`{child}` is {state}")]
    NotStopped {
        /// The id of the child that was to be started.
        child: Arc<str>,
        /// The state of the child when the supervisor handled the request.
        state: ActorState,
    },
    /// The rules of the supervisor do not allow this child, or its id is taken; the child was not added.
    #[error(transparent)]
    Invalid(#[from] SpecError),
    /// The child could not be started. After `start_child` it is not listed; after `restart_child` it is stopped.
    #[error("`{child}` could not be started: {}", visible_lines(error))]
    StartFailed {
        /// The id of the child that did not start.
        child: Arc<str>,
        /// The text of the error or panic, or what else kept the child from starting, such as its start timeout.
        error: String,
    },
    /// The child was stopped before it had started.
    #[error("the start was cancelled")]
    Cancelled,
    /// The supervisor is still starting its first children, or is ending.
    #[error("the supervisor is {state}")]
    NotReady {
        /// [`ActorState::Starting`], [`ActorState::Stopping`] or [`ActorState::Stopped`].
        state: ActorState,
    },
    /// The supervisor does not run, or ended before it answered.
    #[error("the supervisor is {down}")]
    SupervisorDown {
        /// Why the supervisor's reference has no actor.
        down: Down,
    },
    /// The supervisor did not answer a request for a [snapshot](super::SupervisorRef::snapshot) within 2 s.
    #[error("the supervisor did not answer")]
    TimedOut,
}

/// Why a tree cannot be built as described. A tree is checked before anything starts, and each child that is added
/// later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Two children of one supervisor have the same id.
    #[error("there is already a child `{child}`")]
    DuplicateId {
        /// The id that both children have.
        child: Arc<str>,
    },
    /// A permanent child never ends for good, so nothing can follow from it.
    #[error("`{child}` is permanent and cannot be significant")]
    SignificantPermanent {
        /// The id of the permanent child.
        child: Arc<str>,
    },
    /// A significant child that exceeds an intensity of its own would fail, and its supervisor would continue without it.
    #[error("`{child}` is significant and cannot have its own intensity")]
    SignificantWithOwnIntensity {
        /// The id of the significant child.
        child: Arc<str>,
    },
    /// The supervisor would not act on a significant child.
    #[error("`{child}` is significant but its supervisor never shuts down by itself")]
    SignificantWithoutShutdown {
        /// The id of the significant child.
        child: Arc<str>,
    },
    /// The restarts wait so long that there are never too many of them in the window, and a child that always crashes would
    /// be restarted for ever.
    #[error("the intensity of `{whose}` is never exceeded: {} restarts wait {waits:?}, but only those in {:?} count", intensity.max, intensity.period)]
    UnreachableIntensity {
        /// The supervisor, or the child with an intensity of its own.
        whose: Arc<str>,
        /// The intensity that is refused.
        intensity: Intensity,
        /// The most that [`Intensity::max`] restarts wait for the backoff, all together.
        waits: Duration,
    },
    /// The children of a simple_one_for_one supervisor come from a template.
    #[error("`{child}` is listed below a simple_one_for_one supervisor; start it from a ChildTemplate")]
    ListedBelowSimple {
        /// The id of the first child that is listed.
        child: Arc<str>,
    },
    /// A child that is restarted with its siblings cannot count for itself.
    #[error("`{child}` has its own intensity, which {strategy} does not allow")]
    OwnIntensityInGroup {
        /// The id of the child with an intensity of its own.
        child: Arc<str>,
        /// The strategy of its supervisor: one_for_all or rest_for_one.
        strategy: Strategy,
    },
}
