//! Reaching other boards on the store: tasks for their agents, and what is asked about their runs (SEMANTICS 16). What another board asks
//! for is done as if a caller of this one had asked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use tokio::time::timeout;

use crate::actors::AgentSpec;
use crate::actors::approvals::{ByPerson, PersonDoes};
use crate::actors::boards::{Address, Ask, Host, Reply, Sendable, Unreached};
use crate::messages::{AgentName, BoardAgent, Chain, Pending, Refusal, RunId, RunResult, Task, TraceId};
use crate::storage::StorageError;
use crate::supervision::answer_of;
use crate::supervision::runs::queue::{AtEnd, RunMessage, ShardMessage, WithRecord};
use crate::supervision::runs::rules::errors::SubmitError;

use super::announcing::When;
use super::handle::{Board, Callboard, Lineage};
use super::placed_turns::AgentElsewhere;
use super::run_handle::RunHandle;
use super::settings::Unfinished;

/// How long a command waits for a run whose board is gone, until another board has taken it over.
pub(super) const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(20);

/// How often a caller looks whether a run has been taken over.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How often those who wait for something that people are asked look at what other boards have.
const LIST_EVERY: Duration = Duration::from_secs(1);

/// How long a board that has changed waits for the others to have looked at it.
const LOOKED_WITHIN: Duration = Duration::from_millis(250);

/// How long a list of what waits for people waits for each board.
pub(super) const LISTED_WITHIN: Duration = Duration::from_secs(5);

impl Callboard {
    /// Makes known to the other boards that so many of this one's agents were added, replaced or removed: at once, or after a while together with
    /// others ([`Announcing`](super::announcing::Announcing)).
    pub(super) async fn announce(&self, changed: usize) {
        let when = self.board.announcing.lock().change(changed, self.board.router.hosted_here());
        match when {
            When::Now => {}
            When::After(wait) => {
                let board = Arc::downgrade(&self.board);
                tokio::spawn(async move {
                    tokio::time::sleep(wait).await;
                    // A board that ends says at its end what others are to know.
                    if let Some(board) = board.upgrade().filter(|board| !board.is_closed()) {
                        Self { board }.announce_now().await;
                    }
                });
                return;
            }
            When::WithOthers => return,
        }
        self.announce_now().await;
    }

    async fn announce_now(&self) {
        self.board.announcing.lock().announced();
        self.say_what_is_here().await;
        self.have_others_look().await;
    }

    /// Writes what this board hosts where others look.
    pub(super) async fn say_what_is_here(&self) {
        let board = &self.board;
        let about = (board.written)();
        let renewed = board.journal.storage().renew_session(board.ownership.session(), about);
        if let Err(error) = answer_of(renewed).await {
            tracing::warn!(%error, "the agents are made known to the other boards with the next renewal of the lease");
        }
    }

    /// Has the other boards look at what this one hosts, and waits a moment until they have: a board that is gone may be among them.
    pub(super) async fn have_others_look(&self) {
        let boards = &self.board.boards;
        let others = boards.others();
        let looks = others.iter().map(|other| boards.ask(&other.info.id, Ask::Look));
        let _ = timeout(LOOKED_WITHIN, join_all(looks)).await;
    }

    /// Looks at which other boards there are, and what they host.
    pub(super) async fn look_at_boards(&self) -> Result<(), StorageError> {
        answer_of(self.board.boards.look()).await?;
        self.know_agents_elsewhere(Vec::new()).await;
        Ok(())
    }

    /// Learns at the start which other boards there are, and which agents they have hosted.
    pub(super) async fn learn_of_boards(&self) -> Result<(), StorageError> {
        let known = answer_of(self.board.journal.known_agents()).await?;
        answer_of(self.board.boards.look()).await?;
        self.know_agents_elsewhere(known).await;
        Ok(())
    }

    /// Has the agents of other boards stand here under their names, unless this board has one of the name, and so have `earlier` ones,
    /// whose boards may come again. Where there are other boards, they get to know this board's agents.
    async fn know_agents_elsewhere(&self, earlier: Vec<BoardAgent>) {
        let board = &self.board;
        let mut known = board.agents_elsewhere.lock().await;
        let others = board.boards.others();
        // Where there is no other board, nobody has to know, and there may be very many.
        let is_alone = others.is_empty() && earlier.is_empty() && !board.journal.storage().is_shared();
        let here = if is_alone { Vec::new() } else { board.router.described() };
        board.differences.lock().log(&here, &others);
        if board.journal.storage().is_shared() || !others.is_empty() {
            for agent in &here {
                if known.get(&agent.name) != Some(agent) && answer_of(board.journal.remember_agent(agent)).await.is_ok()
                {
                    known.insert(agent.name.clone(), agent.clone());
                }
            }
        }
        let staying = others.iter().filter(|other| !other.info.is_leaving).flat_map(|other| &other.info.agents);
        board.router.know_living(staying.map(|agent| agent.name.clone()).collect());
        let living = others.iter().flat_map(|other| &other.info.agents);
        for agent in living.chain(&earlier) {
            if here.iter().any(|here| here.name == agent.name) {
                continue;
            }
            let is_there = board.router.listed(agent.name.as_str()).is_some();
            let is_declared = |known: &BoardAgent| others.iter().any(|other| other.info.agents.contains(known));
            if is_there && known.get(&agent.name).is_some_and(|known| known == agent || is_declared(known)) {
                continue;
            }
            let elsewhere = AgentElsewhere::new(Arc::downgrade(board));
            let spec = AgentSpec::new(agent.name.as_str(), move || elsewhere.clone()).elsewhere(agent);
            let listed = if is_there { self.agents().replace_any(spec).await } else { self.agents().add(spec).await };
            match listed {
                Ok(()) => drop(known.insert(agent.name.clone(), agent.clone())),
                Err(error) => {
                    tracing::warn!(agent = %agent.name, %error, "an agent of another board cannot be reached from here");
                }
            }
        }
    }

    /// Submits a task that this board has refused with this error, because it does not have the agent: where it is, after a look.
    pub(super) async fn submit_where_it_is(
        &self,
        mut task: Task,
        waits_for_room: bool,
        lineage: Option<Box<Lineage>>,
        error: SubmitError,
    ) -> Result<RunHandle, SubmitError> {
        let board = &self.board;
        let is_known = |target: &Result<(Vec<AgentName>, AgentName), SubmitError>| {
            target.as_ref().is_ok_and(|(_, agent)| board.router.is_elsewhere(agent))
        };
        let mut target = board.target_of(&task);
        if !is_known(&target) {
            self.look_at_boards().await?;
            target = board.target_of(&task);
        }
        match target {
            Ok((_, agent)) if board.router.is_elsewhere(&agent) => {
                self.submit_elsewhere(&agent, &task, waits_for_room, lineage).await
            }
            // It has come meanwhile.
            Ok(_) => self.try_accept(&mut task, lineage).await,
            Err(_) => Err(error),
        }
    }

    /// Has a board that hosts the agent accept a task.
    async fn submit_elsewhere(
        &self,
        agent: &AgentName,
        task: &Task,
        waits_for_room: bool,
        lineage: Option<Box<Lineage>>,
    ) -> Result<RunHandle, SubmitError> {
        let board = &self.board;
        let run = task.id.unwrap_or_else(|| RunId(board.env.id()));
        let ask = Ask::Submit {
            task: Box::new(Task { id: Some(run), ..task.clone() }),
            conversation: task.conversation.clone(),
            lineage: lineage.map(|lineage| (lineage.chain, lineage.trace)),
            waits_for_room,
            waits_for_end: false,
        };
        if board.boards.hosting(agent).is_none() {
            self.look_at_boards().await?;
        }
        while let Some(other) = board.boards.hosting(agent) {
            match board.boards.ask(&other.info.id, ask.clone()).await {
                Ok(Reply::Submitted(accepted)) => return accepted.map(|run| self.run(run)),
                Ok(reply) => return Err(unavailable(&reply).into()),
                Err(Unreached::Storage(error)) => return Err(error.into()),
                // It may have accepted the task before.
                Err(Unreached::Gone) if board.journal.has(run).await? => return Ok(self.run(run)),
                Err(Unreached::Gone) => {}
            }
        }
        let why = "no board that lives hosts it".to_owned();
        Err(Refusal::Unavailable { agent: agent.clone(), why }.into())
    }

    /// Whether a run is that of another board, which may be gone.
    pub(super) async fn is_elsewhere(&self, run: RunId) -> Result<bool, StorageError> {
        let owner = self.board.journal.owner_of(run).await?;
        Ok(owner.is_some_and(|owner| owner != *self.board.ownership.board()))
    }

    /// Asks the board that works on a run; `None` if no other board does. If its board is gone, another one is waited for `within` this time
    /// that takes the run over.
    pub(super) async fn ask_owner(
        &self,
        run: RunId,
        ask: Ask,
        within: Duration,
    ) -> Result<Option<Reply>, StorageError> {
        let board = &self.board;
        let mut gone_at = None;
        loop {
            let Some(owner) = board.journal.owner_of(run).await? else { return Ok(None) };
            if owner == *board.ownership.board() {
                return Ok(None);
            }
            if board.boards.lives(&owner) {
                match board.boards.ask(&owner, ask.clone()).await {
                    Ok(Reply::Failed(detail)) => return Err(StorageError::Unavailable { detail }),
                    Ok(reply) => return Ok(Some(reply)),
                    Err(Unreached::Storage(error)) => return Err(error),
                    Err(Unreached::Gone) => {}
                }
            } else if gone_at.is_none() && board.boards.others().is_empty() {
                // There is no board that could take it over.
                return Ok(None);
            }
            let now = board.env.now().monotonic;
            if now.saturating_sub(*gone_at.get_or_insert(now)) >= within || board.is_closed() {
                return Ok(None);
            }
            tokio::time::sleep(LOOK_EVERY).await;
            answer_of(board.boards.look()).await?;
        }
    }

    /// Waits until it is time to look again at what runs of other boards do.
    pub(super) async fn next_look(&self) {
        loop {
            tokio::time::sleep(LIST_EVERY).await;
            if !self.board.boards.others().is_empty() {
                return;
            }
        }
    }

    /// What the runs of the other boards wait for people with.
    pub(super) async fn pending_elsewhere(&self) -> Vec<Pending> {
        let boards = &self.board.boards;
        let others = boards.others();
        let asked = others.iter().map(|other| async move {
            let asked = boards.ask(&other.info.id, Ask::Pending { run: None });
            let why = match timeout(LISTED_WITHIN, asked).await {
                Ok(Ok(Reply::Pending(pending))) => return pending,
                // As that of a command, which had no runs. What one with runs has left is listed once another board has them.
                Ok(Err(Unreached::Gone)) => return Vec::new(),
                Ok(Ok(reply)) => unavailable(&reply).to_string(),
                Ok(Err(Unreached::Storage(error))) => error.to_string(),
                Err(late) => late.to_string(),
            };
            tracing::warn!(board = &*other.name, why, "what its runs wait for people with is not known now");
            Vec::new()
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// What a run of another board waits for people with; nothing while no board works on it.
    pub(super) async fn pending_of_elsewhere(&self, run: RunId) -> Vec<Pending> {
        let boards = &self.board.boards;
        let owner = match self.board.journal.owner_of(run).await {
            Ok(Some(owner)) if boards.lives(&owner) => owner,
            Ok(_) | Err(_) => return Vec::new(),
        };
        match timeout(LISTED_WITHIN, boards.ask(&owner, Ask::Pending { run: Some(run) })).await {
            Ok(Ok(Reply::Pending(pending))) => pending,
            Ok(Ok(_) | Err(_)) | Err(_) => Vec::new(),
        }
    }

    /// Accepts a task for another board. `None` if the reply was written with the last record of the run.
    async fn accept_for(&self, mut task: Task, how: Accepting, address: Address) -> Option<Reply> {
        let Accepting { lineage, waits_for_room, waits_for_end } = how;
        let is_written = Arc::new(AtomicBool::new(false));
        let write = move |result: &RunResult| address.reply(Reply::Ended(Box::new(result.clone())));
        let at_end = AtEnd { write: WithRecord(Arc::new(write)), is_written: Arc::clone(&is_written) };
        let at_end = waits_for_end.then(|| Box::new(at_end));
        let lineage = lineage.map(|(chain, trace)| Box::new(Lineage { chain, trace, at_end }));
        let accepted = match waits_for_room {
            true => match Arc::clone(&self.board.run_permits).acquire_owned().await {
                Ok(permit) => self.accept(&mut task, Some(permit), true, lineage).await,
                Err(_) => Err(Refusal::ShuttingDown.into()),
            },
            false => self.try_accept(&mut task, lineage).await,
        };
        Some(match accepted {
            Err(error) => Reply::Submitted(Err(error.sendable())),
            Ok(run) if !waits_for_end => Reply::Submitted(Ok(run.id())),
            Ok(run) => match run.result().await {
                Ok(_) if is_written.load(Ordering::Acquire) => return None,
                Ok(result) => Reply::Ended(Box::new(result)),
                Err(error) => Reply::Failed(error.to_string()),
            },
        })
    }

    /// Does what another board asks for. The reply goes to the address; `None` if it is written already.
    async fn answer_board(&self, ask: Ask, address: Address) -> Option<Reply> {
        Some(match ask {
            Ask::Submit { task, conversation, lineage, waits_for_room, waits_for_end } => {
                let task = Task { conversation, ..*task };
                return self.accept_for(task, Accepting { lineage, waits_for_room, waits_for_end }, address).await;
            }
            Ask::Look => match self.look_at_boards().await {
                Ok(()) => Reply::Looked,
                Err(error) => Reply::Failed(error.to_string()),
            },
            Ask::TakeOver { runs } => {
                if !self.board.is_closed() && self.board.settings.on_unfinished == Unfinished::Resume {
                    for run in runs {
                        let shard = self.board.shards.of(run);
                        shard.push(ShardMessage::Adopt { run, new_process: true, recovery: None });
                    }
                }
                Reply::Taken
            }
            Ask::Cancel { run, reason } => {
                Reply::Changed(self.ask_run(run, |ack| RunMessage::Cancel { reason, ack }).await)
            }
            Ask::Refer { run, reference } => {
                Reply::Changed(self.ask_run(run, |ack| RunMessage::Refer { reference, ack }).await)
            }
            Ask::Answer { id, response, by, via } => {
                let what = PersonDoes::Respond { response, via };
                Reply::Answered(self.answered_here(ByPerson { id, by, what }).await)
            }
            Ask::Check { id, by } => {
                Reply::Answered(self.answered_here(ByPerson { id, by, what: PersonDoes::Check }).await)
            }
            Ask::Pending { run: None } => Reply::Pending(self.people().pending_here().await),
            Ask::Approvals { known } => self.approvals(known).await,
            Ask::Pending { run: Some(run) } => Reply::Pending(self.run(run).pending_here().await),
        })
    }
}

/// How a task of another board is accepted.
struct Accepting {
    /// Where the run comes from, if a turn submits it.
    lineage: Option<(Chain, TraceId)>,
    waits_for_room: bool,
    waits_for_end: bool,
}

impl From<ByPerson> for Ask {
    fn from(ByPerson { id, by, what }: ByPerson) -> Self {
        match what {
            PersonDoes::Respond { response, via } => Self::Answer { id, response, by, via },
            PersonDoes::Check => Self::Check { id, by },
        }
    }
}

pub(super) fn unavailable(reply: &impl std::fmt::Debug) -> StorageError {
    StorageError::Unavailable { detail: format!("another board gave no answer that fits: {reply:?}") }
}

/// A board that others on its store ask.
pub(super) struct HostedBoard(pub(super) Weak<Board>);

impl HostedBoard {
    fn board(&self) -> Option<Callboard> {
        self.0.upgrade().map(|board| Callboard { board })
    }
}

impl Host for HostedBoard {
    fn answer(&self, ask: Ask, address: Address) -> BoxFuture<'static, Option<Reply>> {
        let board = self.board();
        async move {
            match board {
                Some(board) => board.answer_board(ask, address).await,
                None => Some(Reply::Failed("the board has ended".to_owned())),
            }
        }
        .boxed()
    }

    fn others_changed(&self) -> BoxFuture<'static, ()> {
        let board = self.board();
        async move {
            if let Some(board) = board {
                board.know_agents_elsewhere(Vec::new()).await;
            }
        }
        .boxed()
    }

    fn looked(&self) {
        if let Some(board) = self.board() {
            board.begin_to_show_for_others();
        }
    }
}
