//! Workflows as agents: each turn is a run of its own.

use std::fmt;
use std::sync::{Arc, Weak};

use tokio::runtime::Handle;

use crate::actors::{Agent, AgentSpec, Turn, TurnError};
use crate::messages::{Command, Limits, Outcome, Refusal, RunId, RunResult, Task};
use crate::supervision::runs::rules::errors::SubmitError;
use crate::workflow::Workflow;

use super::builder::Builder;
use super::handle::{Board, Callboard, Lineage};
use super::run_handle::{RunError, RunHandle};

/// Why a run is cancelled that a turn has begun.
pub(super) const TURN_STOPPED: &str = "the turn that waited for it was stopped";

/// An agent whose turns are runs of a workflow.
#[derive(Clone)]
struct WorkflowAgent {
    /// Weak, because the board owns its agents.
    board: Weak<Board>,
    workflow: Workflow,
    limits: Limits,
}

impl Builder {
    /// Adds a workflow as an agent: see [`Callboard::workflow_agent`].
    pub fn workflow(mut self, name: &str, workflow: &Workflow, limits: impl Into<Limits>) -> Self {
        self.workflows.push((name.to_owned(), workflow.clone(), limits.into()));
        self
    }
}

impl Callboard {
    /// An agent that runs a workflow, so that it can be used wherever an agent can be named: a coordinator, a delegation, a node of
    /// another workflow. To be added with [`AgentsHandle::spawn`](super::AgentsHandle::spawn); [`Builder::workflow`] adds one before the board starts.
    ///
    /// Each turn of it is a run of its own, on what the turn works on, within these limits. Its tokens are set aside in the asking
    /// run while it lasts, and what it took counts there. Its chain continues the asking turn's: the delegations that
    /// led there count against its depth, and it cannot delegate back to an agent that waits for it. It is known by the turn: a turn
    /// that is begun again after a crash finds the run that it had begun. It is cancelled when the turn is. Its state is its own,
    /// and so are its events, its questions and its approvals: `board.runs()` has it. While it lasts, the turn holds neither
    /// permit nor slot. What it uses counts against the limits of a day of whoever asked for the asking run.
    ///
    /// A run that has not finished fails the turn for good, with its reason.
    ///
    /// ```
    /// use callboard::messages::Complexity;
    /// use callboard::prelude::*;
    /// use callboard::workflow::patterns::Pipeline;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let shout = Pipeline::new("shout").then("loud").then("twice").build()?;
    /// let board = Callboard::builder()
    ///     .agent("loud", |turn: Turn| async move { Ok(Command::output(turn.input::<String>()?.to_uppercase())) })
    ///     .agent("twice", |turn: Turn| async move { Ok(Command::output(turn.input::<String>()?.repeat(2))) })
    ///     .agent("lead", |turn: Turn| async move { Ok(Command::output(turn.delegate("shouter", "hey").await?)) })
    ///     .workflow("shouter", &shout, Complexity::Medium)
    ///     .start()
    ///     .await?;
    /// let run = board.submit(Task::new("have it shouted").to("lead")).await?;
    /// assert_eq!(run.result().await?.output, "HEYHEY");
    /// # board.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn workflow_agent(&self, name: &str, workflow: &Workflow, limits: impl Into<Limits>) -> AgentSpec {
        let board = Arc::downgrade(&self.board);
        let agent = WorkflowAgent { board, workflow: workflow.clone(), limits: limits.into() };
        AgentSpec::new(name, move || agent.clone())
    }

    /// Submits a run for a turn that waits for it. A run that an earlier attempt submitted is found.
    async fn submit_for(&self, turn: &Turn, mut task: Task) -> Result<RunHandle, SubmitError> {
        // The run has at most the turn's authority, the participants of the turn's chain are in its own, and what it uses counts
        // against the limits of the same requester.
        (task.grant, task.is_untrusted) = (turn.authority(), turn.is_tainted());
        (task.handoffs, task.from_agent) = (turn.task().handoffs, turn.task().from_agent.clone());
        task.trace_parent = Some(Box::new(turn.trace_parent()));
        // A workflow without agents has no target.
        let to = self.board.cast(&task)?.into_iter().next();
        let chain = turn.chain().clone();
        let chain = to.map_or(chain, |to| turn.chain().add_step(turn.agent(), &to, &task.body));
        self.try_submit_from(task, Some(Box::new(Lineage { chain, trace: turn.trace(), at_end: None }))).await
    }
}

impl Agent for WorkflowAgent {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        let name = self.workflow.name();
        if turn.chain().is_waiting(turn.agent()) {
            let chain = turn.chain();
            return Err(TurnError::terminal(format!("the workflow {name} would run within itself: {chain}")));
        }
        let board = self.board.upgrade().ok_or_else(|| TurnError::transient("the board has ended"))?;
        let board = Callboard { board };
        let id = turn.own_id().workflow_run();
        let limits = board.board.settings.run_limits.bound(turn.task().from_agent.as_ref(), &self.limits);
        let mut task = self.workflow.task(turn.input_json().clone()).id(id).limits(limits.clone());
        task.durability = turn.task().durability;
        task.deadline = turn.deadline().map(|deadline| deadline.since(board.board.env.now().wall));
        let reserved = turn.reserve_for_run(limits.tokens, limits.cost).await?;
        turn.committed().await?;
        // The run may exist from here on, also if the turn is stopped before the acknowledgement arrives.
        let mut begun = Begun { run: board.run(id), has_ended: false };
        let result = match board.submit_for(&turn, task).await {
            Ok(run) => turn.waiting_for(run.result()).await,
            Err(error) => {
                begun.has_ended = true;
                reserved.release_if_new();
                return Err(not_begun(error));
            }
        };
        begun.has_ended = true;
        if let Ok(RunResult { metrics, is_tainted, .. }) = &result {
            drop(reserved.settle(metrics.usage));
            if *is_tainted {
                turn.taint(&format!("run {id}"));
            }
        }
        command(result, id)
    }
}

/// The error of a turn whose run could not begin.
pub(super) fn not_begun(error: SubmitError) -> TurnError {
    match error {
        SubmitError::Refused(refusal @ (Refusal::Overloaded { .. } | Refusal::ShuttingDown)) => {
            TurnError::transient(refusal.to_string())
        }
        SubmitError::Refused(refusal) => refusal.into(),
        SubmitError::Storage(error) => error.into(),
        SubmitError::Unacknowledged(_) => error.into(),
        SubmitError::NoTarget { .. }
        | SubmitError::NoAgents
        | SubmitError::Plan(_)
        | SubmitError::PlanChanged { .. }
        | SubmitError::OtherConversation { .. }
        | SubmitError::OverLimit(_) => TurnError::terminal(error.to_string()),
    }
}

/// The result of a run as that of a turn.
pub(super) fn command(result: Result<RunResult, RunError>, run: RunId) -> Result<Command, TurnError> {
    let RunResult { outcome, output, .. } = result?;
    match outcome {
        Outcome::Finished => Ok(Command { output: Some(output), ..Command::default() }),
        Outcome::Refused(refusal) => Err(refusal.into()),
        Outcome::Failed { error } => Err(TurnError::terminal(format!("run {run}: {error}"))),
        outcome @ (Outcome::Denied { .. } | Outcome::Cancelled { .. }) => {
            Err(TurnError::terminal(format!("run {run}: {outcome}")))
        }
    }
}

/// A run that a turn waits for: it is cancelled once the turn is stopped.
struct Begun {
    run: RunHandle,
    has_ended: bool,
}

impl Drop for Begun {
    fn drop(&mut self) {
        // If the board ends, both stay for the next start, where the turn finds the run by its id.
        if self.has_ended || self.run.board.board.is_closed() {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let run = self.run.clone();
            runtime.spawn(async move { run.cancel(TURN_STOPPED).await });
        }
    }
}

impl fmt::Debug for WorkflowAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkflowAgent").field("workflow", &self.workflow.name()).finish_non_exhaustive()
    }
}
