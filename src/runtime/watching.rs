//! The state of a board: its events, its supervision tree, and its load.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use futures::Stream;
use tokio::sync::broadcast;

use crate::actors::{AgentSnapshot, AgentStatus, StreamMode, Subject, Watched};
use crate::messages::AgentName;
use crate::supervision::tree::{ActorState, ControlError, TreeEvent, TreeNode};

use super::handle::Callboard;

/// Counts of what a board works on and holds at one moment, returned by [`Callboard::load`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Runs that this board works on: taken in, forked, or taken over from a board that is gone.
    pub runs: usize,
    /// Turns in the queues of all agents that have not begun.
    pub ready_turns: usize,
    /// Turns and typed requests that hold a slot.
    pub turns_at_work: usize,
    /// Turns that wait for the runtime, without slot and permit.
    pub waiting_turns: usize,
    /// Permits of the pool that no turn holds.
    pub free_permits: usize,
    /// Permits that the pool has in all, set by [`Builder::pool`](super::Builder::pool).
    pub pool: usize,
    /// Approvals that wait for a decision; one that has expired counts until its run has noticed it.
    pub open_approvals: usize,
    /// Edges of the wait-for graph of all runs (SEMANTICS 4), each from one that waits to what it waits for: a turn, or
    /// the slot of a non-reentrant agent.
    pub waits: usize,
}

impl Load {
    /// Nothing is under way and nothing is held.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let Self { runs, ready_turns, turns_at_work, waiting_turns, free_permits, pool, open_approvals, waits } = *self;
        runs + ready_turns + turns_at_work + waiting_turns + open_approvals + waits == 0 && free_permits == pool
    }
}

/// The node of a dormant agent that sleeps.
fn dormant_node(agent: AgentSnapshot) -> TreeNode {
    TreeNode {
        name: agent.name.as_str().to_owned(),
        strategy: None,
        state: ActorState::Dormant,
        generation: agent.generation,
        restarts: agent.restarts,
        mailbox_depth: Some(agent.ready),
        detail: None,
        last_error: agent.last_error,
        uptime: None,
        children: Vec::new(),
    }
}

impl Callboard {
    /// Events of all runs from now on, in any of the modes; ends with the board. A slow watcher receives the number that it missed.
    pub fn watch(&self, modes: &[StreamMode]) -> impl Stream<Item = Watched> + Send + Unpin + use<> {
        self.watch_within(modes, self.board.settings.capacity.watch_buffer)
    }

    /// As [`Callboard::watch`], for a watcher that is late when so many events wait.
    pub fn watch_within(
        &self,
        modes: &[StreamMode],
        buffer: usize,
    ) -> impl Stream<Item = Watched> + Send + Unpin + use<> {
        self.board.router.hub.watch(Subject::All, modes, buffer)
    }

    /// Events of the turns of an agent from now on, in any run and in any of the modes, and the submissions of runs that begin
    /// with it; ends with the board. A slow watcher receives the number that it missed.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// use futures::StreamExt;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("coder", "fix").await?)) };
    /// let board = Callboard::builder().agent("lead", lead).agent("coder", |_: Turn| async { Ok(Command::new()) });
    /// let board = board.start().await?;
    /// let mut events = board.watch_agent(&AgentName::new("coder")?, &[StreamMode::Updates]);
    /// board.submit(Task::new("x").to("lead")).await?.result().await?;
    /// let Some(Watched::Event { event, .. }) = events.next().await else { panic!("no event") };
    /// assert!(matches!(&*event, RunEvent::TurnEnded { agent, .. } if agent.as_str() == "coder"));
    /// # board.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    pub fn watch_agent(
        &self,
        agent: &AgentName,
        modes: &[StreamMode],
    ) -> impl Stream<Item = Watched> + Send + Unpin + use<> {
        let buffer = self.board.settings.capacity.watch_buffer;
        self.board.router.hub.watch(Subject::Agent(agent.clone()), modes, buffer)
    }

    /// A picture of the supervision tree. Agents show the life of their values: generation, restarts, ready turns.
    ///
    /// # Errors
    /// When the tree has ended.
    pub async fn tree(&self) -> Result<TreeNode, ControlError> {
        let mut tree = self.board.tree.snapshot().await?;
        let Some(below) = tree.children.iter_mut().find(|node| node.name == "agents") else { return Ok(tree) };
        let (agents, asleep) = (self.board.scheduler.snapshot(), self.board.scheduler.asleep());
        let mut agents: BTreeMap<AgentName, AgentSnapshot> =
            agents.into_iter().chain(asleep).map(|agent| (agent.name.clone(), agent)).collect();
        for node in &mut below.children {
            let Some(agent) = agents.remove(node.name.as_str()) else { continue };
            if agent.status == AgentStatus::Dormant {
                // Its actor is being ended.
                *node = dormant_node(agent);
                continue;
            }
            node.generation = agent.generation;
            // The restarts of its actor when that was killed, and the rebuilds of its value.
            node.restarts += agent.restarts;
            node.mailbox_depth = Some(agent.ready);
            if let AgentStatus::Failed(error) = &agent.status {
                (node.state, node.last_error) = (ActorState::Failed, Some(error.clone()));
            } else if node.last_error.is_none() {
                node.last_error.clone_from(&agent.last_error);
            }
            let stuck = if agent.stuck > 0 { format!(", {} stuck", agent.stuck) } else { String::new() };
            if agent.busy + agent.waiting > 0 || agent.stuck > 0 {
                node.detail = Some(format!("{} at work, {} waiting{stuck}", agent.busy, agent.waiting));
            }
        }
        let dormant = agents.into_values().filter(|agent| agent.status == AgentStatus::Dormant);
        below.children.extend(dormant.map(dormant_node));
        Ok(tree)
    }

    /// What is under way and what is held at this moment. [`Load::is_idle`] when nothing is left.
    #[must_use]
    pub fn load(&self) -> Load {
        let board = &self.board;
        let agents = board.scheduler.snapshot();
        Load {
            runs: board.settings.capacity.runs_in_flight.saturating_sub(board.run_permits.available_permits())
                + board.without_permit.load(Ordering::Relaxed),
            ready_turns: agents.iter().map(|agent| agent.ready).sum(),
            turns_at_work: agents.iter().map(|agent| agent.busy).sum(),
            waiting_turns: agents.iter().map(|agent| agent.waiting).sum(),
            free_permits: board.scheduler.free_permits(),
            pool: board.settings.capacity.pool,
            open_approvals: board.decider.pending(),
            waits: board.facts.lock().waits.len(),
        }
    }

    /// Kills an actor of the board's tree, as ractor kills: it never runs past its next await, and does not clean up after
    /// itself. The path begins below the board's own supervisor; `false` if no actor is there now.
    ///
    /// A child of the board is restarted as after a panic. Killing `agents` takes the agents for good: their supervisor
    /// comes back without the children that were added at run time.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// use callboard::testing::TreeRecorder;
    /// use callboard::supervision::tree::TreeEventKind;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), callboard::Error> {
    /// let board = Callboard::builder().agent("coder", |_: Turn| async { Ok(Command::output("done")) }).start().await?;
    /// let recorder = TreeRecorder::new(board.tree_events());
    /// assert!(board.kill(&["runs", "runs-0"]).await?);
    /// let is_back = |kind: &TreeEventKind| matches!(kind, TreeEventKind::Restarted);
    /// recorder.expect("callboard/runs/runs-0", is_back, Duration::from_secs(1)).await;
    /// assert!(board.submit(Task::new("x")).await?.result().await?.outcome.is_finished());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When the board has ended.
    #[cfg(any(test, feature = "testing"))]
    pub async fn kill(&self, path: &[&str]) -> Result<bool, ControlError> {
        self.board.tree.kill(path).await
    }

    /// What happens in the supervision tree from now on.
    #[must_use]
    pub fn tree_events(&self) -> broadcast::Receiver<TreeEvent> {
        self.board.tree.subscribe()
    }
}
