//! An actor that records what it is sent.

use std::fmt::{self, Debug};
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, ActorStatus, Message};

use crate::supervision::tree::{ChildRef, ChildSpec};

use super::log::Log;

/// An actor that stands in for one of yours, and records what it is sent. A cheap clone; clones are the same probe.
///
/// What it is sent waits in order until a test expects it. A failed expectation panics with what was expected, what
/// came, and where the expectation stands. All times are tokio's: virtual when the runtime is paused, as in a
/// simulation.
///
/// ```
/// use callboard::testing::Probe;
/// use std::time::Duration;
///
/// #[derive(Debug, PartialEq)]
/// enum Mail {
///     Letter(&'static str),
///     Bill(u32),
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
/// let probe = Probe::spawn().await;
/// let code_under_test = probe.actor();
/// code_under_test.cast(Mail::Letter("hello")).unwrap();
/// code_under_test.cast(Mail::Bill(12)).unwrap();
///
/// // The first that fits; what came before it stays.
/// probe.expect_message_where(second, |mail| matches!(mail, Mail::Bill(_))).await;
/// assert_eq!(probe.expect_message(second).await, Mail::Letter("hello"));
/// probe.expect_no_message(hour).await;
///
/// code_under_test.stop(None);
/// probe.expect_terminated(code_under_test, second).await;
/// # }
/// ```
pub struct Probe<M> {
    actor: ActorRef<M>,
    came: Arc<Log<M>>,
}

impl<M> Clone for Probe<M> {
    fn clone(&self) -> Self {
        Self { actor: self.actor.clone(), came: Arc::clone(&self.came) }
    }
}

impl<M: Message + Debug> Probe<M> {
    /// Starts a probe. It runs until it is stopped like any actor, or its runtime ends.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn spawn() -> Self {
        let came = Arc::default();
        let (actor, _) =
            Actor::spawn(None, Recorder(PhantomData), Arc::clone(&came)).await.expect("a recorder starts without work");
        Self { actor, came }
    }

    /// Returns a reference to the probe's actor, to pass to the code under test.
    #[must_use]
    pub fn actor(&self) -> ActorRef<M> {
        self.actor.clone()
    }

    /// A supervised actor that records into this probe at every start, for code that talks to a [`ChildRef`].
    #[must_use]
    pub fn child(&self, id: impl Into<Arc<str>>) -> (ChildSpec, ChildRef<M>) {
        let came = Arc::clone(&self.came);
        ChildSpec::actor(id, move || (Recorder(PhantomData), Arc::clone(&came)))
    }

    /// Waits for the next message and takes it.
    ///
    /// # Panics
    /// When none comes in time.
    #[track_caller]
    pub fn expect_message(&self, within: Duration) -> impl Future<Output = M> + Send + '_ {
        let caller = Location::caller();
        async move {
            let taken = self.came.wait(within, |came| (!came.is_empty()).then(|| came.remove(0))).await;
            taken.unwrap_or_else(|| {
                let ended = if self.has_ended() { ", and the probe has ended" } else { "" };
                panic!("{caller}: expected {} within {within:?}; nothing came{ended}", wanted::<M>())
            })
        }
    }

    /// Waits for the first message that fits and takes it. What came before it stays, to be expected later.
    ///
    /// # Panics
    /// When none that fits comes in time.
    #[track_caller]
    pub fn expect_message_where<'a>(
        &'a self,
        within: Duration,
        mut fits: impl FnMut(&M) -> bool + Send + 'a,
    ) -> impl Future<Output = M> + Send + 'a {
        let caller = Location::caller();
        async move {
            let take = |came: &mut Vec<M>| came.iter().position(&mut fits).map(|index| came.remove(index));
            let taken = self.came.wait(within, take).await;
            taken.unwrap_or_else(|| {
                let came = self.came.read(|came| Came(came).to_string());
                panic!("{caller}: expected {} that fits within {within:?}; {came}", wanted::<M>())
            })
        }
    }

    /// Waits for this time, in which no message may arrive. A message that came before and was not expected counts.
    ///
    /// # Panics
    /// When something comes, or is there already, and when the probe has ended, because nothing could come.
    #[track_caller]
    pub fn expect_no_message(&self, time: Duration) -> impl Future<Output = ()> + Send + '_ {
        let caller = Location::caller();
        async move {
            if let Some(came) = self.came.wait(time, |came| (!came.is_empty()).then(|| Came(came).to_string())).await {
                panic!("{caller}: expected no message for {time:?}; {came}");
            }
            assert!(
                !self.has_ended(),
                "{caller}: expected no message for {time:?}; the probe has ended, so none could come"
            );
        }
    }

    fn has_ended(&self) -> bool {
        self.actor.get_status() == ActorStatus::Stopped
    }

    /// Waits for the end of another actor: it stopped, was killed, or failed; or had ended before.
    ///
    /// # Panics
    /// When it still runs after that time.
    #[track_caller]
    pub fn expect_terminated(&self, actor: impl Into<ActorCell>, within: Duration) -> impl Future<Output = ()> + Send {
        let (caller, actor) = (Location::caller(), actor.into());
        async move {
            if actor.wait(Some(within)).await.is_err() {
                let (id, status) = (actor.get_id(), actor.get_status());
                let name = actor.get_name().map(|name| format!(" ({name})")).unwrap_or_default();
                panic!("{caller}: expected the end of actor {id}{name} within {within:?}; it is {status:?}");
            }
        }
    }

    /// Takes everything that came and was not expected yet.
    #[must_use = "what is taken is not there to be expected any more"]
    pub fn received(&self) -> Vec<M> {
        self.came.change(std::mem::take)
    }
}

impl<M: Debug> Debug for Probe<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.came.read(|came| f.debug_struct("Probe").field("unexpected", &came).finish_non_exhaustive())
    }
}

fn wanted<M>() -> String {
    format!("a message ({})", std::any::type_name::<M>())
}

/// Messages, for the text of a failure.
struct Came<'a, M>(&'a [M]);

impl<M: Debug> fmt::Display for Came<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("nothing came"),
            [only] => write!(f, "this came: {only:?}"),
            several => {
                f.write_str("these came:")?;
                several.iter().try_for_each(|message| write!(f, "\n    {message:?}"))
            }
        }
    }
}

struct Recorder<M>(PhantomData<fn() -> M>);

impl<M: Message> Actor for Recorder<M> {
    type Msg = M;
    type State = Arc<Log<M>>;
    type Arguments = Arc<Log<M>>;

    async fn pre_start(&self, _: ActorRef<M>, came: Arc<Log<M>>) -> Result<Arc<Log<M>>, ActorProcessingErr> {
        Ok(came)
    }

    async fn handle(&self, _: ActorRef<M>, message: M, came: &mut Arc<Log<M>>) -> Result<(), ActorProcessingErr> {
        came.push(message);
        Ok(())
    }
}
