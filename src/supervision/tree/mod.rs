//! Supervision trees of ractor actors, with the rules of Erlang/OTP.
//!
//! Describe a tree with [`SupervisorSpec`] and [`ChildSpec`], start it with [`Supervisor::start`], and talk to the
//! actors through the [`ChildRef`]s that the specs came with: they stay valid when an actor is restarted.
//!
//! ```
//! use std::time::Duration;
//! use callboard::supervision::tree::{ChildSpec, Supervisor, SupervisorSpec};
//! use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
//!
//! struct Counter;
//!
//! enum CounterMsg {
//!     Add(u64),
//!     Get(RpcReplyPort<u64>),
//! }
//!
//! impl Actor for Counter {
//!     type Msg = CounterMsg;
//!     type State = u64;
//!     type Arguments = u64;
//!
//!     async fn pre_start(&self, _: ActorRef<CounterMsg>, start: u64) -> Result<u64, ActorProcessingErr> {
//!         Ok(start)
//!     }
//!
//!     async fn handle(&self, _: ActorRef<CounterMsg>, msg: CounterMsg, sum: &mut u64) -> Result<(), ActorProcessingErr> {
//!         match msg {
//!             CounterMsg::Add(n) => *sum = sum.checked_add(n).ok_or("too much")?,
//!             CounterMsg::Get(reply) => reply.send(*sum)?,
//!         }
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (spec, counter) = ChildSpec::actor("counter", || (Counter, 40));
//! let tree = Supervisor::start(SupervisorSpec::one_for_one("app").child(spec)).await?;
//! counter.cast(CounterMsg::Add(2))?;
//! assert_eq!(counter.call(CounterMsg::Get, Duration::from_secs(1)).await?, 42);
//!
//! let mut events = tree.subscribe();
//! counter.cast(CounterMsg::Add(u64::MAX))?; // Fails the actor, which is restarted.
//! while events.recv().await?.to_string() != "app/counter gen 2: restarted" {}
//! assert_eq!(counter.call(CounterMsg::Get, Duration::from_secs(1)).await?, 40);
//! tree.stop().await;
//! # Ok(()) }
//! ```
//!
//! # What it promises
//! - Children start in order, each after the one before it runs, and stop in reverse order, each by its [`Shutdown`]. A child
//!   that does not stop within its timeout is killed.
//! - A supervisor answers while its children start, stop, hang or wait for a restart.
//! - Two generations of a child never run at once. Messages of an earlier generation to its supervisor are ignored.
//! - One crash is one entry in the restart window, however many children it restarts; a failed restart is one more.
//! - A child that crashes at once, whenever it is started, is given up: an intensity that the backoff puts out of reach is
//!   refused.
//! - A supervisor whose children restart too often stops them and fails. For the supervisor above, that is one crash of one
//!   child: it restarts the failed one, with its first children, by its own rules. Above the root there is nobody: the tree
//!   ends, and [`Supervisor::join`] returns [`EndReason::IntensityExceeded`].
//! - A kill or a cancelled task is a crash, unless the supervisor itself asked for it.
//!
//! # What it leaves to others
//! - Messages in the mailbox of a crashed actor are lost, as with ractor itself.
//! - A child that blocks its thread cannot be killed, and may hold up what else that thread had to run. Its supervisor
//!   reports it, continues without it 5 s after the kill, and does not start it again while it is there.
//! - A killed supervisor cannot stop its children in order: ractor kills them with it.
//!
//! # Where it differs from OTP
//! - The default [`Intensity`] is 5 restarts in 60 s; OTP's is 1 in 5 s.
//! - Restarts wait ([`RestartBackoff`]), except for the first of a series; OTP restarts at once.
//! - The start of an actor has a timeout, 10 s by default. OTP waits for `init` without one.
//! - A supervisor that exceeds its intensity fails, so a transient one is restarted. OTP's exits with `shutdown`, which
//!   counts as normal for a transient child.
//! - A child may have a window of its own ([`ChildSpec::own_intensity`]). When it exceeds that one, the child alone
//!   fails, and the supervisor continues.
//! - [`SupervisorRef::remove_child`] is `terminate_child` and `delete_child` in one step.
//! - [`SupervisorRef::restart_child`] also starts a child that has failed, and does so below a simple_one_for_one
//!   supervisor too, where OTP refuses it.
//! - A stop with any reason is a normal end, not only `normal` and `shutdown`. The exception is the reason `killed`, which
//!   ractor uses for a kill.
//!
//! The tree uses no ractor names and no process groups.

#[cfg(panic = "abort")]
compile_error!("callboard supervises actors by catching their panics: build it with panic = \"unwind\"");

// What users describe and hold:
// - `spec`, `template`: the children and supervisors of a tree, before anything runs; `backoff`, `intensity`, `shutdown`: its
//   limits.
// - `handle`: a running tree, and the children of any supervisor in it. `child_ref`: an actor across its restarts.
// - `event`, `exit`, `errors`: what happened, how a child ended, why a request is refused.
// - `node`, `snapshot`: a picture of the tree, and how it is taken. `groups`: actors by the name of a group.
// The supervisor:
// - `restart`: the rule of what follows when a child ends; pure. `intensity`: the window that it counts in.
// - `supervisor`: the actor. `message`: its messages. `state`: its state, and what is started or stopped next.
// - `children`, `child`: the children in their order, and the book-keeping of one.
// - `requests`: requests from outside. `incidents`: starts and ends of children. `lifecycle`: the tasks that start and stop them.
// - `together`: children that stop at the same time with their supervisor, without a task for each.
//
// A request passes through: handle -> supervisor -> requests.
// A child's end: supervisor -> incidents -> restart (the rule) with intensity (the window).
// What is due after either: state::advance -> children (the queues) -> lifecycle (the tasks that start and stop actors)
// -> supervisor -> incidents (their reports).
mod backoff;
mod child;
mod child_ref;
mod children;
mod errors;
mod event;
mod exit;
mod groups;
mod handle;
mod incidents;
mod intensity;
#[cfg(any(test, feature = "testing"))]
mod kill;
mod lifecycle;
mod message;
mod node;
mod requests;
mod restart;
mod shutdown;
mod snapshot;
mod spec;
mod state;
mod supervisor;
mod template;
mod together;

pub use backoff::RestartBackoff;
pub use child_ref::{CallError, ChildRef, Down, SendError};
pub use errors::{ControlError, EndReason, SpecError, StartError};
pub use event::{TreeEvent, TreeEventKind};
pub use exit::Exit;
pub use groups::ProcessGroups;
pub use handle::{Supervisor, SupervisorRef};
pub use intensity::Intensity;
pub use node::{ActorState, TreeNode};
pub use restart::{AutoShutdown, Restart, Strategy};
pub use shutdown::Shutdown;
pub use spec::{ChildSpec, SupervisorSpec};
pub use template::ChildTemplate;
