//! Dormant agents: how many are added at once, and how their actors are started and ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use callboard_text::looks;
use futures::FutureExt;
use futures::future::{BoxFuture, ready};

use crate::actors::{AgentActor, AgentArguments, AgentMsg, AgentSpec, DormantActors, NotStarted, Source};
use crate::messages::AgentName;
use crate::supervision::runs::rules::directory::AgentDirectory as _;
use crate::supervision::tree::{ChildRef, ChildSpec, ControlError, Intensity};

use super::agents::{AgentError, AgentsHandle};
use super::handle::Board;

/// Dormant agents that are added before others get a chance to work.
const AT_ONCE: usize = 1024;

impl AgentsHandle {
    /// Adds many dormant agents that are alike but for their names: as [`AgentSpec::dormant`] says, whatever the spec says of that, and
    /// without its name. They share what the spec has, so each takes little memory. Either all of them are added or none.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder().start().await?;
    /// let room = AgentSpec::new("room", |turn: Turn| async move { Ok(Command::output(turn.agent().as_str())) }).role("room");
    /// board.agents().declare(&room, (0..1000).map(|number| format!("room-{number}"))).await?;
    /// let run = board.submit(Task::new("x").to("room-7")).await?;
    /// assert_eq!(run.result().await?.output, "room-7");
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// See [`AgentError`].
    pub async fn declare(
        &self,
        spec: &AgentSpec,
        names: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<(), AgentError> {
        spec.check_names()?;
        let names: Vec<AgentName> =
            names.into_iter().map(|name| AgentSpec::check_name(name.as_ref())).collect::<Result<_, _>>()?;
        let board = &self.board;
        let mut elsewhere = board.agents_elsewhere.lock().await;
        // Agents of other boards give way, as to one that is spawned.
        let giving_way: Vec<&AgentName> = names.iter().filter(|name| board.router.is_elsewhere(name)).collect();
        if !giving_way.is_empty() {
            self.check_are_free(&names)?;
        }
        for name in giving_way {
            self.remove(name).await?;
            elsewhere.remove(name);
        }
        let is_first = board.router.hosted_here() == 0;
        let source = Arc::new(spec.source());
        {
            let _one_at_a_time = board.submissions.write().await;
            self.check_are_free(&names)?;
            if spec.may_keep_agents() {
                for name in &names {
                    board.scheduler.kept_agents().add(self.read_kept(name, spec).await?);
                }
            }
            for names in names.chunks(AT_ONCE) {
                board.add_dormant(names, &source);
                tokio::task::yield_now().await;
            }
        }
        drop(elsewhere);
        self.make_known(names.len(), is_first).await;
        Ok(())
    }

    /// Checks that the board can have agents of these names: agents of other boards give way to them.
    fn check_are_free(&self, names: &[AgentName]) -> Result<(), AgentError> {
        let router = &self.board.router;
        let mut new = BTreeSet::new();
        for name in names {
            let is_taken = router.listed(name.as_str()).is_some_and(|listed| !listed.is_elsewhere);
            if is_taken || !new.insert(name) {
                return Err(AgentError::NameInUse { name: name.clone() });
            }
            if let Some(other) = router.look_alike(name.as_str()) {
                return Err(AgentError::LooksLike { name: name.clone(), other });
            }
        }
        if names.iter().any(|name| !name.as_str().is_ascii()) {
            let mut looked: BTreeMap<String, &AgentName> = BTreeMap::new();
            for name in names {
                let are_plain = |other: &AgentName| name.as_str().is_ascii() && other.as_str().is_ascii();
                if let Some(other) = looked.insert(looks(name.as_str()), name).filter(|other| !are_plain(other)) {
                    return Err(AgentError::LooksLike { name: name.clone(), other: other.clone() });
                }
            }
        }
        Ok(())
    }

    /// Whether an agent of this board is [dormant](AgentSpec::dormant) and sleeps: it has no actor until its next turn.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let clerk = |_: Turn| async { Ok(Command::output("done")) };
    /// let board = Callboard::builder().with(AgentSpec::new("clerk", clerk).dormant()).start().await?;
    /// assert!(board.agents().is_asleep("clerk"));
    /// board.submit(Task::new("x").to("clerk")).await?.result().await?;
    /// assert!(!board.agents().is_asleep("clerk"));
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn is_asleep(&self, name: &str) -> bool {
        self.board.scheduler.is_asleep(name)
    }
}

impl Board {
    /// Adds dormant agents of names that are free. One whose turns have waited for it wakes at once, so it is listed before.
    pub(super) fn add_dormant(&self, names: &[AgentName], source: &Arc<Source>) {
        self.router.list_dormant(names, source);
        self.scheduler.declare(names, source);
        self.router.announce_dormant(names, source);
    }

    /// The child for an agent, and its actor. One that is wanted has work that waits for it.
    pub(super) fn agent_child(
        &self,
        name: &AgentName,
        source: &Arc<Source>,
        life: u64,
        is_wanted: bool,
    ) -> (ChildSpec, ChildRef<AgentMsg>) {
        let arguments = Arc::new(AgentArguments {
            name: name.clone(),
            source: Arc::clone(source),
            scheduler: Arc::clone(&self.scheduler),
            presence: self.router.presence_handle(name, Arc::clone(&source.description)),
            life,
            is_wanted,
        });
        let (child, actor) = ChildSpec::actor(name, move || (AgentActor, Arc::clone(&arguments)));
        let (window, scheduler, failed) = (source.window, Arc::clone(&self.scheduler), name.clone());
        let child = child
            .own_intensity(Intensity::new(window.max, window.within))
            .on_failed(move |error| scheduler.fail_agent(&failed, error));
        (child, actor)
    }
}

/// Starts and ends the actors of a board's dormant agents.
pub(super) struct BoardsDormantActors(pub(super) Weak<Board>);

impl DormantActors for BoardsDormantActors {
    fn start(&self, agent: &AgentName, source: &Arc<Source>, life: u64) -> BoxFuture<'static, Result<(), NotStarted>> {
        let Some(board) = self.0.upgrade() else { return ready(Err(NotStarted::BoardEnds)).boxed() };
        let (child, actor) = board.agent_child(agent, source, life, true);
        board.router.set_actor(agent, Some(actor));
        let started = board.agents.begin_start(child);
        let board = Weak::clone(&self.0);
        async move {
            let Err(error) = started.await else { return Ok(()) };
            let ends = board.upgrade().is_none_or(|board| board.is_closed());
            Err(match error {
                _ if ends => NotStarted::BoardEnds,
                ControlError::StartFailed { error, .. } => NotStarted::Failed(error),
                ControlError::NotReady { .. } | ControlError::SupervisorDown { .. } | ControlError::Cancelled => {
                    NotStarted::SupervisorDown
                }
                error @ (ControlError::Invalid(_)
                | ControlError::UnknownChild { .. }
                | ControlError::NotStopped { .. }
                | ControlError::TimedOut) => NotStarted::Failed(error.to_string()),
            })
        }
        .boxed()
    }

    fn end(&self, agent: &AgentName) -> BoxFuture<'static, ()> {
        let Some(board) = self.0.upgrade() else { return ready(()).boxed() };
        board.router.set_actor(agent, None);
        let ended = board.agents.begin_removal(agent.into());
        // If there is no such child, or no supervisor, there is nothing to end.
        async move { drop(ended.await) }.boxed()
    }
}
