//! How a child is stopped.

use std::time::Duration;

/// How a supervisor stops a child: `shutdown` of OTP's child specifications.
///
/// A child that is asked to stop finishes the message that it works on; a worker then runs its `post_stop`, and a supervisor
/// stops its own children first, each by its own `Shutdown`. Set with [`ChildSpec::shutdown`](super::ChildSpec::shutdown).
///
/// ```
/// use std::time::Duration;
/// use callboard::supervision::tree::{ChildSpec, Shutdown, Supervisor, SupervisorSpec};
/// # use ractor::{Actor, ActorProcessingErr, ActorRef};
/// # struct Cache;
/// # impl Actor for Cache {
/// #     type Msg = ();
/// #     type State = ();
/// #     type Arguments = ();
/// #     async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> { Ok(()) }
/// # }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cache = ChildSpec::actor("cache", || (Cache, ())).0.shutdown(Shutdown::BrutalKill);
/// let writer = ChildSpec::actor("writer", || (Cache, ())).0.shutdown(Shutdown::Timeout(Duration::from_secs(30)));
/// let tree = Supervisor::start(SupervisorSpec::one_for_one("app").child(cache).child(writer)).await?;
/// tree.stop().await;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shutdown {
    /// It is killed and not asked to stop: no `post_stop` runs, and the children of a supervisor are killed with it, in no order.
    BrutalKill,
    /// It is asked to stop, and killed if it has not ended after this time.
    Timeout(Duration),
    /// It is asked to stop, and waited for without a limit. This is the default of supervisors, which need the time of their
    /// children. A worker that does not end holds up its supervisor's end for ever.
    Infinity,
}

impl Shutdown {
    /// That of workers by default, as in OTP.
    pub(super) const OF_WORKERS: Self = Self::Timeout(Duration::from_secs(5));
}
