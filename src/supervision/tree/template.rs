//! Children that are alike, for simple_one_for_one supervisors.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ractor::{Actor, Message};

use super::child_ref::ChildRef;
use super::errors::ControlError;
use super::handle::SupervisorRef;
use super::spec::ChildSpec;

type Build<T, M> = Arc<dyn Fn(String, T) -> (ChildSpec, ChildRef<M>) + Send + Sync>;
type Configure = Arc<dyn Fn(ChildSpec) -> ChildSpec + Send + Sync>;

/// How to start one more child that differs from the others by its arguments alone, as in OTP's simple_one_for_one. Clones
/// share the numbers that they give to children.
///
/// ```
/// use callboard::supervision::tree::{ChildTemplate, Restart, Supervisor, SupervisorSpec};
/// use ractor::{Actor, ActorProcessingErr, ActorRef};
///
/// struct Connection;
///
/// impl Actor for Connection {
///     type Msg = ();
///     type State = u16;
///     type Arguments = u16;
///
///     async fn pre_start(&self, _: ActorRef<()>, port: u16) -> Result<u16, ActorProcessingErr> {
///         Ok(port)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tree = Supervisor::start(SupervisorSpec::simple_one_for_one("connections")).await?;
/// let connections =
///     ChildTemplate::new("connection", |port| (Connection, port)).configure(|child| child.restart(Restart::Temporary));
/// let first = connections.start(&tree, 4000).await?;
/// let second = connections.start(&tree, 4001).await?;
/// assert_eq!((first.id(), second.id()), ("connection-1", "connection-2"));
/// tree.terminate_child(first.id()).await?;
/// assert_eq!(tree.snapshot().await?.children.len(), 1);
/// tree.stop().await;
/// # Ok(()) }
/// ```
pub struct ChildTemplate<T, M> {
    name: Arc<str>,
    build: Build<T, M>,
    configure: Configure,
    started: Arc<AtomicU64>,
}

impl<T, M> Clone for ChildTemplate<T, M> {
    fn clone(&self) -> Self {
        Self {
            name: Arc::clone(&self.name),
            build: Arc::clone(&self.build),
            configure: Arc::clone(&self.configure),
            started: Arc::clone(&self.started),
        }
    }
}

impl<T, M> fmt::Debug for ChildTemplate<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildTemplate").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<T: Clone + Send + Sync + 'static, M: Message> ChildTemplate<T, M> {
    /// A template. `factory` makes the actor and its arguments for every start, so a restarted child has the arguments that
    /// it was started with. Children are called `name-1`, `name-2`, …
    pub fn new<A>(name: impl Into<Arc<str>>, factory: impl Fn(T) -> (A, A::Arguments) + Send + Sync + 'static) -> Self
    where
        A: Actor<Msg = M>,
    {
        let factory = Arc::new(factory);
        let build: Build<T, M> = Arc::new(move |id, arguments| {
            let factory = Arc::clone(&factory);
            ChildSpec::actor(id, move || factory(arguments.clone()))
        });
        Self { name: name.into(), build, configure: Arc::new(|child| child), started: Arc::default() }
    }

    /// What holds for every child: its restart type, its timeouts, a restart window of its own.
    #[must_use]
    pub fn configure(mut self, configure: impl Fn(ChildSpec) -> ChildSpec + Send + Sync + 'static) -> Self {
        self.configure = Arc::new(configure);
        self
    }

    /// Starts a child with these arguments below a supervisor and waits until it runs.
    ///
    /// # Errors
    /// When the supervisor cannot take the child, is down, or has a child of this name from another template, and when the
    /// child does not start; it is not listed then.
    pub async fn start(&self, supervisor: &SupervisorRef, arguments: T) -> Result<ChildRef<M>, ControlError> {
        let number = self.started.fetch_add(1, Ordering::Relaxed) + 1;
        let (child, reference) = (self.build)(format!("{}-{number}", self.name), arguments);
        supervisor.start_child((self.configure)(child)).await?;
        Ok(reference)
    }
}
