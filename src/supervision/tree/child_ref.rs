//! References that stay valid while the actor behind them is restarted.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use ractor::rpc::CallResult;
use ractor::{ActorCell, ActorRef, Message, MessagingErr, RpcReplyPort};

/// Why a [`ChildRef`] has no actor, as [`ChildRef::down`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Down {
    /// The child has not been started yet, or is starting for the first time.
    Starting,
    /// The child is being stopped, or has just ended and its supervisor has not decided yet.
    Exiting,
    /// The child waits for its restart, or is restarting.
    Restarting,
    /// The child has ended or was stopped, or its supervisor is gone.
    Stopped,
    /// The child was restarted more often than its [own intensity](super::ChildSpec::own_intensity) allows; its
    /// supervisor continues without it.
    Failed,
}

impl fmt::Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Starting => "starting",
            Self::Exiting => "exiting",
            Self::Restarting => "restarting",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        })
    }
}

/// A message that could not be sent, given back.
#[derive(thiserror::Error)]
#[error("`{child}` is {down}")]
pub struct SendError<M> {
    /// The id of the child that was to receive the message.
    pub child: Arc<str>,
    /// Why the child takes no messages; [`Down::Exiting`] if its actor has just ended.
    pub down: Down,
    /// The message, which no actor has received.
    pub message: M,
}

impl<M> fmt::Debug for SendError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError").field("child", &self.child).field("down", &self.down).finish_non_exhaustive()
    }
}

/// Why [`ChildRef::call`] has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The child is down; the request was not sent.
    #[error("`{child}` is {down}")]
    Down {
        /// The id of the child that was called.
        child: Arc<str>,
        /// Why the child takes no messages; [`Down::Exiting`] if its actor has just ended.
        down: Down,
    },
    /// The child took the request and ended, or dropped it, without an answer.
    #[error("`{child}` gave no answer")]
    NoAnswer {
        /// The id of the child that was called.
        child: Arc<str>,
    },
    /// No answer came in time. The request may still be carried out.
    #[error("`{child}` did not answer within {after:?}")]
    TimedOut {
        /// The id of the child that was called.
        child: Arc<str>,
        /// The timeout that was passed to [`ChildRef::call`].
        after: Duration,
    },
}

/// A reference to a supervised actor that survives its restarts.
///
/// A clone costs one reference count, and a cast little more than [`ActorRef::cast`]: one uncontended read lock and no
/// hop through the supervisor. A message that was accepted is lost when the actor crashes before handling it, as with
/// ractor itself.
pub struct ChildRef<M> {
    slot: Arc<Slot<M>>,
}

impl<M> Clone for ChildRef<M> {
    fn clone(&self) -> Self {
        Self { slot: Arc::clone(&self.slot) }
    }
}

impl<M> fmt::Debug for ChildRef<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let current = self.slot.current.read();
        f.debug_struct("ChildRef")
            .field("child", &self.slot.child)
            .field("actor", &current.actor)
            .finish_non_exhaustive()
    }
}

impl<M: Message> ChildRef<M> {
    pub(super) fn vacant(child: Arc<str>) -> Self {
        let current = Current { actor: None, down: Down::Starting, owner: 0, last: None };
        Self { slot: Arc::new(Slot { child, current: RwLock::new(current) }) }
    }

    pub(super) fn slot(&self) -> Arc<dyn ChildSlot> {
        Arc::clone(&self.slot) as Arc<dyn ChildSlot>
    }

    /// Returns the id of the child, which is unique among the children of its supervisor.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.slot.child
    }

    /// Returns the actor that runs now; `None` while the child is down. A restart replaces the actor.
    #[must_use]
    pub fn actor(&self) -> Option<ActorRef<M>> {
        self.slot.current.read().actor.clone()
    }

    /// Returns the untyped cell of the actor that runs now; `None` while the child is down.
    #[must_use]
    pub fn cell(&self) -> Option<ActorCell> {
        self.actor().map(|actor| actor.get_cell())
    }

    /// Returns whether both refer to the same child; ids are not compared.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.slot, &other.slot)
    }

    /// Returns why there is no actor; `None` while one runs.
    #[must_use]
    pub fn down(&self) -> Option<Down> {
        let current = self.slot.current.read();
        current.actor.is_none().then_some(current.down)
    }

    /// Sends a message to the actor that runs now.
    ///
    /// # Errors
    /// Gives the message back, with the reason, when no actor runs.
    pub fn cast(&self, message: M) -> Result<(), SendError<M>> {
        let current = self.slot.current.read();
        let Some(actor) = &current.actor else {
            return Err(SendError { child: Arc::clone(&self.slot.child), down: current.down, message });
        };
        actor.cast(message).map_err(|error| match error {
            MessagingErr::SendErr(message) => {
                SendError { child: Arc::clone(&self.slot.child), down: Down::Exiting, message }
            }
            MessagingErr::ChannelClosed | MessagingErr::InvalidActorType => {
                unreachable!("a cast through a typed reference fails only with the message")
            }
        })
    }

    /// Sends the request that `build` makes of a reply port and waits at most `timeout` for the answer.
    ///
    /// # Errors
    /// When no actor runs, when it ends or drops the port without an answer, and when time is up.
    pub async fn call<T, F>(&self, build: F, timeout: Duration) -> Result<T, CallError>
    where
        T: Send + 'static,
        F: FnOnce(RpcReplyPort<T>) -> M,
    {
        let child = || Arc::clone(&self.slot.child);
        let (actor, down) = {
            let current = self.slot.current.read();
            (current.actor.clone(), current.down)
        };
        let Some(actor) = actor else { return Err(CallError::Down { child: child(), down }) };
        match actor.call(build, Some(timeout)).await {
            Ok(CallResult::Success(answer)) => Ok(answer),
            Ok(CallResult::Timeout) => Err(CallError::TimedOut { child: child(), after: timeout }),
            Ok(CallResult::SenderError) => Err(CallError::NoAnswer { child: child() }),
            Err(_) => Err(CallError::Down { child: child(), down: Down::Exiting }),
        }
    }
}

struct Slot<M> {
    child: Arc<str>,
    current: RwLock<Current<M>>,
}

struct Current<M> {
    actor: Option<ActorRef<M>>,
    /// The reason, while `actor` is `None`.
    down: Down,
    /// The life of the supervisor that may write here; earlier ones are ignored.
    owner: u64,
    /// The latest actor, which may still be stopping.
    last: Option<ActorCell>,
}

/// The supervisor's side of a reference, without the message type.
pub(super) trait ChildSlot: Send + Sync {
    /// Makes the caller the owner; calls of earlier owners are ignored from now on.
    fn claim(&self) -> u64;
    fn occupy(&self, owner: u64, cell: ActorCell);
    fn vacate(&self, owner: u64, down: Down);
    /// The latest actor, whichever supervisor started it.
    fn last(&self) -> Option<ActorCell>;
}

impl<M: Message> ChildSlot for Slot<M> {
    fn claim(&self) -> u64 {
        let mut current = self.current.write();
        current.owner += 1;
        (current.actor, current.down) = (None, Down::Starting);
        current.owner
    }

    fn occupy(&self, owner: u64, cell: ActorCell) {
        let mut current = self.current.write();
        if current.owner == owner {
            (current.actor, current.last) = (Some(cell.clone().into()), Some(cell));
        }
    }

    fn vacate(&self, owner: u64, down: Down) {
        let mut current = self.current.write();
        if current.owner == owner {
            (current.actor, current.down) = (None, down);
        }
    }

    fn last(&self) -> Option<ActorCell> {
        self.current.read().last.clone()
    }
}
