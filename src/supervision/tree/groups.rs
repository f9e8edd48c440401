//! Named groups of actors, to reach all of them at once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use ractor::Message;

use super::child_ref::{ChildRef, Down};

type Members<M> = BTreeMap<Arc<str>, Vec<ChildRef<M>>>;

/// Groups of supervised actors that take the same messages, as OTP's `pg`: a member joins and leaves a group by name, and
/// others find the members. A cheap clone; clones are the same groups.
///
/// As in OTP, an actor that joined n times is a member n times, and one that ended for good is no longer a member. Unlike in
/// OTP, an actor that is restarted stays a member, because its [`ChildRef`] does; while it is down it is not among
/// [`members`](Self::members). Groups are those of this value, and not of the process: two boards in one process share none.
///
/// ```
/// # use callboard::supervision::tree::{ChildSpec, Supervisor, SupervisorSpec};
/// use callboard::supervision::tree::ProcessGroups;
/// # use ractor::{Actor, ActorProcessingErr, ActorRef};
/// # struct Listener;
/// # impl Actor for Listener {
/// #     type Msg = String;
/// #     type State = ();
/// #     type Arguments = ();
/// #     async fn pre_start(&self, _: ActorRef<String>, _: ()) -> Result<(), ActorProcessingErr> { Ok(()) }
/// # }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (spec, listener) = ChildSpec::actor("listener", || (Listener, ()));
/// let tree = Supervisor::start(SupervisorSpec::one_for_one("app").child(spec)).await?;
///
/// let groups = ProcessGroups::new();
/// groups.join("news", &listener);
/// for member in groups.members("news") {
///     member.cast("it rains".to_owned())?;
/// }
/// assert!(groups.leave("news", &listener));
/// assert!(groups.members("news").is_empty());
/// # tree.stop().await;
/// # Ok(()) }
/// ```
pub struct ProcessGroups<M> {
    groups: Arc<Mutex<Members<M>>>,
}

impl<M> Clone for ProcessGroups<M> {
    fn clone(&self) -> Self {
        Self { groups: Arc::clone(&self.groups) }
    }
}

impl<M> Default for ProcessGroups<M> {
    fn default() -> Self {
        Self { groups: Arc::default() }
    }
}

impl<M: Message> fmt::Debug for ProcessGroups<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.groups.lock().iter().map(|(name, members)| (name, members.len()))).finish()
    }
}

impl<M: Message> ProcessGroups<M> {
    /// Creates a value that has no groups yet. Only its clones share its groups.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a member, last. The group exists from its first member on.
    pub fn join(&self, group: &str, member: &ChildRef<M>) {
        let mut groups = self.groups.lock();
        let members = groups.entry(group.into()).or_default();
        members.retain(can_return);
        members.push(member.clone());
    }

    /// Takes a member out, once if it joined several times. Whether it was a member.
    pub fn leave(&self, group: &str, member: &ChildRef<M>) -> bool {
        let mut groups = self.groups.lock();
        let Some(members) = groups.get_mut(group) else { return false };
        let position = members.iter().position(|other| other.is_same(member));
        if let Some(position) = position {
            members.remove(position);
        }
        if members.is_empty() {
            groups.remove(group);
        }
        position.is_some()
    }

    /// The members that run now, in the order in which they joined; none if there is no such group.
    #[must_use]
    pub fn members(&self, group: &str) -> Vec<ChildRef<M>> {
        let mut groups = self.groups.lock();
        let Some(members) = groups.get_mut(group) else { return Vec::new() };
        members.retain(can_return);
        let running = members.iter().filter(|member| member.down().is_none()).cloned().collect();
        if members.is_empty() {
            groups.remove(group);
        }
        running
    }

    /// The names of the groups that have members, sorted.
    #[must_use]
    pub fn groups(&self) -> Vec<Arc<str>> {
        let mut groups = self.groups.lock();
        groups.retain(|_, members| {
            members.retain(can_return);
            !members.is_empty()
        });
        groups.keys().cloned().collect()
    }
}

/// Whether the member runs, or its supervisor may still start it.
fn can_return<M: Message>(member: &ChildRef<M>) -> bool {
    match member.down() {
        None | Some(Down::Starting | Down::Exiting | Down::Restarting) => true,
        Some(Down::Stopped | Down::Failed) => false,
    }
}
