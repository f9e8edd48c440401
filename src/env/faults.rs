//! Fault points: the faults that can be planned at them, and how they are carried out.

use std::time::Duration;

/// The time after which a sender notices that its message was lost.
const NOTICED_AFTER: Duration = Duration::from_secs(1);

/// What a fault point does when a fault plan hits it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails with this text.
    Error(String),
    /// The code at the point panics with this text.
    Panic(String),
    /// The code at the point continues after this long, if it can wait; a message is handed over after this long.
    Wait(Duration),
    /// The code at the point lets others run this many times, if it can wait.
    Yield(u32),
    /// What the operation reports is lost: it has happened, and looks failed. Points that report nothing continue.
    Lose,
    /// The message at the point is lost; code that can wait continues 1 s later.
    Drop,
    /// The message at the point is handed over twice.
    Duplicate,
    /// The message at the point is held back for this long, so that later ones go first.
    Hold(Duration),
    /// The actor at the point ends as if it was killed.
    Kill,
    /// The process ends here: code that can wait never continues, and what other code still does reaches nobody.
    Crash,
}

/// Decides what happens at the named fault points (tests and simulations only).
pub trait Faults: Send + Sync + 'static {
    /// Called each time execution passes `point`; `subject` names the agent or key that it is about, where that matters.
    fn at(&self, point: &'static str, subject: &str) -> Option<Fault>;
}

impl Fault {
    /// How many times a message is handed over.
    pub(super) fn deliveries(&self) -> usize {
        match self {
            Self::Drop => 0,
            Self::Duplicate => 2,
            Self::Error(_)
            | Self::Panic(_)
            | Self::Wait(_)
            | Self::Yield(_)
            | Self::Lose
            | Self::Hold(_)
            | Self::Kill
            | Self::Crash => 1,
        }
    }

    /// Delivers a message as often and as late as the fault plan has it, where the code cannot wait.
    ///
    /// # Panics
    /// If the fault plan has a panic here.
    pub(crate) fn deliver<M: Clone + Send + 'static>(self, message: M, deliver: impl Fn(M) + Send + 'static) {
        let times = self.deliveries();
        if let Self::Wait(time) | Self::Hold(time) = self {
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                deliver(message);
            });
            return;
        }
        // Points of this kind report no error.
        let _ = happen(self);
        (0..times).for_each(|_| deliver(message.clone()));
    }
}

/// Carries out a fault at a point whose code can wait.
///
/// # Errors
/// The text of the planned error.
///
/// # Panics
/// If the fault plan has a panic here.
pub(crate) async fn happen_slowly(fault: Fault) -> Result<(), String> {
    match fault {
        Fault::Wait(time) | Fault::Hold(time) => tokio::time::sleep(time).await,
        Fault::Drop => tokio::time::sleep(NOTICED_AFTER).await,
        Fault::Yield(times) => {
            for _ in 0..times {
                tokio::task::yield_now().await;
            }
        }
        Fault::Crash => std::future::pending().await,
        Fault::Error(_) | Fault::Panic(_) | Fault::Lose | Fault::Duplicate | Fault::Kill => return happen(fault),
    }
    Ok(())
}

/// Carries out a fault at a point whose code cannot wait.
///
/// # Errors
/// The text of the planned error.
///
/// # Panics
/// If the fault plan has a panic here.
pub(crate) fn happen(fault: Fault) -> Result<(), String> {
    match fault {
        Fault::Error(text) => Err(text),
        // As a panic, but without the report of the panic hook, because it was planned.
        Fault::Panic(text) => std::panic::resume_unwind(Box::new(text)),
        Fault::Wait(_)
        | Fault::Yield(_)
        | Fault::Lose
        | Fault::Drop
        | Fault::Duplicate
        | Fault::Hold(_)
        | Fault::Kill
        | Fault::Crash => Ok(()),
    }
}
