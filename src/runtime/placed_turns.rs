//! Agents of other boards: each of their turns is a run of one turn at a board that hosts the agent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::actors::boards::{Ask, Question, Reply, Unreached};
use crate::actors::{Agent, Turn, TurnError, TurnsElsewhere};
use crate::messages::{
    AgentName, Chain, Command, Json, Limits, PlacedTurn, Refusal, RunId, RunResult, Task, TraceId, Update,
};
use crate::storage::StorageError;

use crate::supervision::runs::queue::WithRecord;
use crate::supervision::runs::rules::budget::Share;
use crate::supervision::runs::rules::errors::SubmitError;
use crate::supervision::runs::run::Run;

use super::handle::{Board, Callboard, Lineage};
use super::run_handle::{RunError, RunHandle};
use super::workflow_agents::{Begun, command, not_begun};

/// How long a turn at another board may take, if neither its run nor its delegation has a deadline.
const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// How long a turn waits before it looks again for a board that hosts its agent, or for the run that has begun elsewhere.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// An agent that another board hosts.
#[derive(Clone, Debug)]
pub(super) struct AgentElsewhere {
    /// Weak, because the board owns its agents.
    board: Weak<Board>,
}

impl AgentElsewhere {
    pub(super) fn new(board: Weak<Board>) -> Self {
        Self { board }
    }
}

fn callboard(board: &Weak<Board>) -> Result<Callboard, TurnError> {
    board.upgrade().map(|board| Callboard { board }).ok_or_else(|| TurnError::transient("the board has ended"))
}

impl Agent for AgentElsewhere {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        callboard(&self.board)?.take_turn_elsewhere(turn).await
    }
}

/// The turns that other boards take for this one.
pub(super) struct PlacedTurns(pub(super) Weak<Board>);

impl TurnsElsewhere for PlacedTurns {
    fn take(&self, turn: Turn) -> BoxFuture<'static, Result<Command, TurnError>> {
        let board = callboard(&self.0);
        async move { board?.take_turn_elsewhere(turn).await }.boxed()
    }
}

impl Callboard {
    /// Has a turn taken at a board that hosts its agent, as a run of its own there. It is known by the turn, so that a turn that is
    /// begun again finds it.
    pub(super) async fn take_turn_elsewhere(&self, turn: Turn) -> Result<Command, TurnError> {
        let boards = &self.board.boards;
        let run = PlacedTurn::run_of(turn.own_id());
        let has_begun = turn.may_have_begun() && self.board.journal.has(run).await?;
        if turn.has_requests() && !has_begun {
            let agent = turn.agent();
            return Err(TurnError::needs_person(format!(
                "the turn had begun where {agent} was: a board that has the agent can continue it, and no other"
            )));
        }
        let asked_for = self.asked_for(run, &turn);
        let is_asked = !has_begun && self.board.check_is_here(turn.agent()).is_err();
        let other = if is_asked { boards.hosting(turn.agent()) } else { None };
        let mut asked = Asked { question: other.map(|other| boards.question(&other.info.id)), is_sent: false };
        let is_written = Arc::new(AtomicBool::new(false));
        let with_share = asked.question.as_ref().map(|question| {
            let (address, asked_for, is_written) =
                (question.address(), Arc::clone(&asked_for), Arc::clone(&is_written));
            WithRecord(Arc::new(move |share: &Share| {
                let letter = address.question(asked_for(share).ask())?;
                is_written.store(true, Ordering::Release);
                Some(letter)
            }))
        });
        // It may exist from here on, also if the turn is stopped before the reply arrives.
        let mut begun = Begun { run: self.run(run), has_ended: false };
        // So that branches side by side all have some: a fourth of what is left is for this one.
        let (reserved, share) = match turn.reserve_share(with_share).await {
            Ok(reserved) => reserved,
            Err(error) => {
                begun.has_ended = !is_written.load(Ordering::Acquire) && !has_begun;
                return Err(error);
            }
        };
        asked.is_sent = reserved.is_new() && is_written.load(Ordering::Acquire);
        let ended =
            turn.waiting_for(self.ended_elsewhere(turn.agent(), (run, has_begun), asked_for(&share), asked)).await;
        begun.has_ended = !matches!(ended, Err(Unended::Unknown(_)));
        match ended {
            Ok(result) => {
                reserved.settle_at_end(result.metrics.usage);
                if result.is_tainted {
                    turn.taint(&format!("run {run}"));
                }
                let has_delegated = result.metrics.turns > 1;
                let mut last = command_in(command(Ok(result), run)?.output.as_ref())?;
                if has_delegated {
                    let history = self.board.journal.events(run).await?;
                    let mut written = Update::default();
                    let turns = Run::left_to_another_board(history, &self.board.rules).map_err(damaged)?;
                    for (left, ended) in turns {
                        written.append(&left);
                        written.append(&command_in(ended.output.as_ref())?.update);
                    }
                    last.update = written;
                }
                Ok(last)
            }
            Err(Unended::Refused(error)) => {
                reserved.release_if_new();
                Err(error)
            }
            Err(Unended::Unknown(error)) => Err(error),
        }
    }

    /// The run that a board is asked for which is to take a turn, by the share of the budget that it has.
    fn asked_for(&self, run: RunId, turn: &Turn) -> Arc<dyn Fn(&Share) -> AskedFor + Send + Sync> {
        let limits = turn.task().limits.clone().unwrap_or_default();
        let handoffs = limits.handoffs.saturating_sub(turn.metrics().handoffs);
        let task = self.placed_task(run, turn, Limits { handoffs, ..limits.clone() });
        let lineage = (turn.chain().clone(), turn.trace());
        Arc::new(move |Share { tokens, cost }| {
            let limits = Limits { tokens: *tokens, cost: *cost, handoffs, ..limits.clone() };
            AskedFor { task: Task { limits: Some(limits), ..task.clone() }, lineage: lineage.clone() }
        })
    }

    fn placed_task(&self, run: RunId, turn: &Turn, limits: Limits) -> Task {
        let task = turn.task();
        let left = turn.deadline().map(|deadline| deadline.since(self.board.env.now().wall));
        Task {
            to: Some(turn.agent().as_str().into()),
            input: Some(turn.input_json().clone()),
            limits: Some(limits),
            schema: task.schema.clone().or_else(|| Some(Arc::clone(&task.plan.as_ref()?.schema))),
            deadline: Some(left.unwrap_or(LONGEST)),
            durability: task.durability,
            id: Some(run),
            handoffs: task.handoffs,
            is_untrusted: turn.is_tainted(),
            grant: turn.authority(),
            approval_ttl: task.approval_ttl,
            from_agent: task.from_agent.clone(),
            reference: turn.reference().map(Into::into),
            trace_parent: Some(Box::new(turn.trace_parent())),
            placed: Some(Box::new(turn.placed())),
            ..Task::new(&task.body)
        }
    }

    /// Has a board accept the run, and waits for its end, also while the store does not answer: an attempt that fails has its run cancelled.
    async fn ended_elsewhere(
        &self,
        agent: &AgentName,
        (run, mut may_be_there): (RunId, bool),
        asked_for: AskedFor,
        mut asked: Asked,
    ) -> Result<RunResult, Unended> {
        let board = &self.board;
        let mut without_board_since = None;
        loop {
            let ended = if may_be_there { self.ended_if_there(run).await? } else { None };
            may_be_there = true;
            let ended = match ended {
                None if board.check_is_here(agent).is_ok() => self.ended_here(&asked_for).await?,
                None => match asked.question.take().or_else(|| self.question_for(agent)) {
                    Some(question) => {
                        without_board_since = None;
                        let is_sent = std::mem::take(&mut asked.is_sent);
                        ended_there(question, (!is_sent).then(|| asked_for.ask())).await?
                    }
                    None => {
                        // As for an agent of this board that was stopped.
                        let now = board.env.now().monotonic;
                        let since = *without_board_since.get_or_insert(now);
                        if now.saturating_sub(since) >= board.settings.timings.offline_after {
                            let why = "no board that lives hosts it".to_owned();
                            return Err(Unended::Refused(Refusal::Unavailable { agent: agent.clone(), why }.into()));
                        }
                        None
                    }
                },
                ended => ended,
            };
            match ended {
                Some(result) => return Ok(result),
                None => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    fn question_for(&self, agent: &AgentName) -> Option<Question> {
        let boards = &self.board.boards;
        Some(boards.question(&boards.hosting(agent)?.info.id))
    }

    /// Waits for the end of a run, if the store has it.
    async fn ended_if_there(&self, run: RunId) -> Result<Option<RunResult>, Unended> {
        match self.board.journal.has(run).await {
            Ok(true) => ended(&self.run(run)).await,
            Ok(false) => Ok(None),
            Err(error) => or_later(error),
        }
    }

    /// Has this board accept the run, which has the agent by now. It is another run still, which a board that was asked may begin first.
    async fn ended_here(&self, asked_for: &AskedFor) -> Result<Option<RunResult>, Unended> {
        let (mut task, (chain, trace)) = (asked_for.task.clone(), asked_for.lineage.clone());
        match self.try_accept(&mut task, Some(Box::new(Lineage { chain, trace, at_end: None }))).await {
            Ok(run) => ended(&run).await,
            Err(error) => refused(error),
        }
    }
}

/// What a board replies that is asked to take the turn, after it is sent the letter, if that is not written already. `None` if the run may
/// be there.
async fn ended_there(question: Question, letter: Option<Ask>) -> Result<Option<RunResult>, Unended> {
    if let Some(letter) = letter
        && let Err(error) = question.send(letter).await
    {
        return or_later(error);
    }
    match question.reply().await {
        Ok(Reply::Ended(result)) => Ok(Some(*result)),
        Ok(Reply::Submitted(Err(error))) => refused(error),
        // It has ended before the run.
        Ok(_) | Err(Unreached::Gone | Unreached::Storage(_)) => Ok(None),
    }
}

async fn ended(run: &RunHandle) -> Result<Option<RunResult>, Unended> {
    match run.result().await {
        Ok(result) => Ok(Some(result)),
        Err(RunError::Storage(error)) => or_later(error),
        Err(error) => Err(Unended::Unknown(error.into())),
    }
}

/// A submission that was refused; `None` if the run may be there.
fn refused(error: SubmitError) -> Result<Option<RunResult>, Unended> {
    match error {
        SubmitError::Storage(error) => or_later(error),
        SubmitError::Unacknowledged(_) => Ok(None),
        error => Err(Unended::Refused(not_begun(error))),
    }
}

/// What a call of the store has failed with: it is tried again if that may help.
fn or_later(error: StorageError) -> Result<Option<RunResult>, Unended> {
    if error.is_transient() { Ok(None) } else { Err(Unended::Unknown(error.into())) }
}

/// The run of a turn that another board is to take.
struct AskedFor {
    task: Task,
    lineage: (Chain, TraceId),
}

impl AskedFor {
    fn ask(&self) -> Ask {
        Ask::Submit {
            task: Box::new(self.task.clone()),
            conversation: None,
            lineage: Some(self.lineage.clone()),
            waits_for_room: false,
            waits_for_end: true,
        }
    }
}

/// The first question about a turn, which was written with the record of its share, or was not.
struct Asked {
    question: Option<Question>,
    is_sent: bool,
}

/// Why the end of a run elsewhere is not known.
enum Unended {
    /// It has not begun.
    Refused(TurnError),
    /// It may have.
    Unknown(TurnError),
}

/// The command of a turn, from the output with which it ended at the board that took it.
fn command_in(output: Option<&Json>) -> Result<Command, TurnError> {
    PlacedTurn::command_of(output.ok_or("it is missing").map_err(damaged)?).map_err(damaged)
}

fn damaged(error: impl std::fmt::Display) -> TurnError {
    TurnError::terminal(format!("the command of a turn at another board cannot be read: {error}"))
}
