//! Agents of other boards: each of their turns is a run of one turn at a board that hosts the agent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::actors::boards::{Ask, Question, Reply, Unreached};
use crate::actors::{Agent, Turn, TurnError, TurnsElsewhere};
use crate::messages::{
    AgentName, Chain, Command, Json, Limits, Outcome, PlacedTurn, Refusal, RunId, RunResult, Task, TraceId, Update,
};
use crate::storage::StorageError;

use crate::supervision::runs::queue::WithRecord;
use crate::supervision::runs::rules::budget::Share;
use crate::supervision::runs::rules::errors::SubmitError;
use crate::supervision::runs::run::Run;

use super::handle::{Board, Callboard, Lineage};
use super::reach::TAKEN_OVER_WITHIN;
use super::run_handle::{RunError, RunHandle};
use super::workflow_agents::{TURN_STOPPED, command, not_begun};

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

    fn cancel(&self, run: RunId) -> BoxFuture<'static, bool> {
        let board = callboard(&self.0);
        async move {
            match board {
                Ok(board) => board.cancel_turn_elsewhere(run).await,
                Err(_) => false,
            }
        }
        .boxed()
    }
}

impl Callboard {
    /// Has a turn taken at a board that hosts its agent, as a run of its own there. It is known by the turn, so that a turn that is
    /// begun again finds it. It is cancelled when the turn is over without its end, by the turn's run.
    pub(super) async fn take_turn_elsewhere(&self, turn: Turn) -> Result<Command, TurnError> {
        let run = PlacedTurn::run_of(turn.own_id());
        let has_begun = turn.may_have_begun() && self.board.journal.has(run).await?;
        if turn.has_requests() && !has_begun {
            let agent = turn.agent();
            return Err(TurnError::needs_person(format!(
                "the turn had begun where {agent} was: a board that has the agent can continue it, and no other"
            )));
        }
        let asked_for = self.asked_for(run, &turn);
        let (asked, with_share) = self.first_question(turn.agent(), has_begun, &asked_for);
        let (reserved, share) = turn.reserve_share(with_share).await?;
        let ended =
            turn.waiting_for(self.ended_elsewhere(turn.agent(), (run, has_begun), asked_for(&share), asked)).await;
        match ended {
            Ok(result) => {
                // Before it is settled: an attempt that fails here finds the share that it had.
                let written = self.written_by_late_answers(&result).await?;
                reserved.settle_at_end(result.metrics.usage);
                command_of(&turn, result, written)
            }
            Err(Unended::Refused(error)) => {
                reserved.release_if_new();
                Err(error)
            }
            Err(Unended::Unknown(error)) => Err(error),
        }
    }

    /// Cancels the run of a turn that is over. A board that was asked for it may not have read its letter yet. `false` if this board ends
    /// first, or cannot do it.
    async fn cancel_turn_elsewhere(&self, run: RunId) -> bool {
        let began_at = self.board.env.now().monotonic;
        loop {
            let error = match self.run(run).cancel(TURN_STOPPED).await {
                Ok(_) => return true,
                Err(error) => error,
            };
            if self.board.is_closed() {
                return false;
            }
            let is_late = self.board.env.now().monotonic.saturating_sub(began_at) > TAKEN_OVER_WITHIN;
            match error {
                RunError::Storage(error) if error.is_transient() => {}
                RunError::Unknown(_) if !is_late => {}
                // It was not begun, and its board has ended, or refuses it.
                RunError::Unknown(_) => return true,
                error => {
                    tracing::warn!(%run, %error, "the run of a turn that is over was not cancelled");
                    return false;
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The first question about a turn, if another board is to be asked to begin its run, and the letter with it, which is written with the
    /// record of the share.
    fn first_question(
        &self,
        agent: &AgentName,
        has_begun: bool,
        asked_for: &Arc<AskFor>,
    ) -> (Asked, Option<WithRecord<Share>>) {
        let boards = &self.board.boards;
        let is_asked = !has_begun && self.board.check_is_here(agent).is_err();
        let Some(other) = is_asked.then(|| boards.hosting(agent)).flatten() else {
            return (Asked::default(), None);
        };
        let question = boards.question(&other.info.id);
        let is_written = Arc::new(AtomicBool::new(false));
        let (address, asked_for, is_sent) = (question.address(), Arc::clone(asked_for), Arc::clone(&is_written));
        let with_share = WithRecord(Arc::new(move |share: &Share| {
            let letter = address.question(asked_for(share).ask())?;
            is_sent.store(true, Ordering::Release);
            Some(letter)
        }));
        (Asked { question: Some(question), is_written }, Some(with_share))
    }

    /// What a turn and its late answers have written, if it has delegated.
    async fn written_by_late_answers(&self, result: &RunResult) -> Result<Option<Update>, TurnError> {
        if result.metrics.turns <= 1 || result.outcome != Outcome::Finished {
            return Ok(None);
        }
        let history = self.board.journal.events(result.run).await?;
        let mut written = Update::default();
        for (left, ended) in Run::left_to_another_board(history, &self.board.rules).map_err(damaged)? {
            written.append(&left);
            written.append(&command_in(ended.output.as_ref())?.update);
        }
        Ok(Some(written))
    }

    /// The run that a board is asked for which is to take a turn, by the share of the budget that it has.
    fn asked_for(&self, run: RunId, turn: &Turn) -> Arc<AskFor> {
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

    /// Has a board accept the run, and waits for its end, also while the store does not answer: the next attempt of one that fails finds the run.
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
                        let is_sent = asked.is_written.swap(false, Ordering::AcqRel);
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

/// A submission that was refused; `None` if the run may be there, or is to be asked for again.
fn refused(error: SubmitError) -> Result<Option<RunResult>, Unended> {
    match error {
        SubmitError::Storage(error) => or_later(error),
        // Another board is asked once this one knows that that one leaves; if it is this one, the turn is its heir's.
        SubmitError::Unacknowledged(_) | SubmitError::Refused(Refusal::ShuttingDown) => Ok(None),
        error => Err(Unended::Refused(not_begun(error))),
    }
}

/// What a call of the store has failed with: it is tried again if that may help.
fn or_later(error: StorageError) -> Result<Option<RunResult>, Unended> {
    if error.is_transient() { Ok(None) } else { Err(Unended::Unknown(error.into())) }
}

/// The run of a turn that another board is to take, by the share of the budget that it has.
type AskFor = dyn Fn(&Share) -> AskedFor + Send + Sync;

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

/// The first question about a turn.
#[derive(Default)]
struct Asked {
    question: Option<Question>,
    /// Its letter is written with the record of the turn's share.
    is_written: Arc<AtomicBool>,
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

/// The command of a turn whose run has ended; `written` if more than the turn itself has written.
fn command_of(turn: &Turn, result: RunResult, written: Option<Update>) -> Result<Command, TurnError> {
    let run = result.run;
    if result.is_tainted {
        turn.taint(&format!("run {run}"));
    }
    let last = command_in(command(Ok(result), run)?.output.as_ref())?;
    Ok(match written {
        Some(update) => Command { update, ..last },
        None => last,
    })
}

fn damaged(error: impl std::fmt::Display) -> TurnError {
    TurnError::terminal(format!("the command of a turn at another board cannot be read: {error}"))
}
