//! The errors of submissions, answers and other operations on runs, and of reading runs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use callboard_text::{visible, visible_lines};
use serde::{Deserialize, Serialize};

use crate::messages::state::StateError;
use crate::messages::{
    AgentName, ApprovalId, ConversationId, Decision, OverLimit, PendingId, QuestionId, Refusal, RunId, Timestamp,
    Unacknowledged,
};
use crate::storage::StorageError;
use crate::workflow::Defects;

use super::requests::MAX_COMMAND;

/// Why [`Callboard::submit`](crate::Callboard::submit) or [`Callboard::try_submit`](crate::Callboard::try_submit) did
/// not accept a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The board refused it: it shuts down, it is overloaded, the target is unknown or was stopped, or the breaker of
    /// the agent is open.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It could not be journaled, or the store's acknowledgement was lost.
    #[error("{}", not_accepted(.0))]
    Storage(#[from] StorageError),
    /// The task names no target, and there are several agents.
    #[error("the task names no target; choose one with `.to(…)`: {}", listed(agents))]
    NoTarget {
        /// The agents of the board, by name.
        agents: Box<[AgentName]>,
    },
    /// The task names no target, and the board has no agents.
    #[error(
        "no agent is registered; add one with `Builder::agent`, or with `board.agents().spawn` while the board runs"
    )]
    NoAgents,
    /// The run of the task's id began with another plan.
    #[error(
        "run {run} began with another definition: {}; give the task another id, or have the run migrated",
        visible_lines(&difference.join("; "))
    )]
    PlanChanged {
        /// The run that already has the id of the task.
        run: RunId,
        /// The differences, node by node.
        difference: Vec<String>,
    },
    /// The conversation belongs to another agent or workflow.
    #[error(
        "conversation {conversation} belongs to {owner}, and the task is for {asked}: submit it to {owner}, or choose another \
         conversation"
    )]
    OtherConversation {
        /// The conversation that the task names.
        conversation: ConversationId,
        /// The agent or workflow that it belongs to.
        owner: Arc<str>,
        /// The agent or workflow that the task is for.
        asked: Arc<str>,
    },
    /// The supervisor that took it was restarted, and again when it was enqueued once more; or the board has ended.
    #[error(transparent)]
    Unacknowledged(#[from] Unacknowledged),
    /// Its plan cannot be run, or its input lacks what the plan needs.
    #[error(transparent)]
    #[serde(skip)]
    Plan(Defects),
    /// The input is nested deeper than it could be read back from the journal.
    #[error(transparent)]
    #[serde(skip)]
    OverLimit(#[from] OverLimit),
}

/// The first names of a long list, and how many more there are.
fn listed(agents: &[AgentName]) -> String {
    const SHOWN: usize = 20;
    let shown: Vec<&str> = agents.iter().take(SHOWN).map(AgentName::as_str).collect();
    match agents.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn not_accepted(error: &StorageError) -> String {
    if error.is_transient() {
        format!(
            "it is not known whether the task was accepted: {error}; a task with an id of its own is submitted again safely"
        )
    } else {
        format!("the task was not accepted: {error}")
    }
}

/// The error of reading a run back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LoadError {
    /// Another board works on the run.
    #[error("the board {owner} works on the run")]
    Held {
        /// The board's id.
        owner: Arc<str>,
        /// How long its lease lasts.
        left: Duration,
    },
    /// The board lacks agents of the run's open turns, and leaves the run to others.
    #[error("the board does not have the agents {agents:?}")]
    NotHosted {
        /// The agents.
        agents: BTreeSet<AgentName>,
    },
    /// A newer build has written records that this board does not read, which leaves the run to others.
    #[error("the records of the run are of format {format}, which this board does not read")]
    NewerFormat {
        /// The format in the run's note.
        format: u32,
    },
    /// The store failed, or the journal is damaged.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A custom reducer panicked.
    #[error("the journal cannot be replayed: {0}")]
    Panicked(String),
}

impl From<LoadError> for OverwriteError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Storage(error) => Self::Storage(error),
            // It was reopened there.
            LoadError::Held { .. } => Self::NotEnded,
            LoadError::NotHosted { .. } | LoadError::NewerFormat { .. } | LoadError::Panicked(_) => {
                Self::CannotGoOn(error.to_string())
            }
        }
    }
}

/// Why what a person responded was not accepted. Nothing has then changed, but where a variant says that this is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// Nothing of this id is open: it never was, it was answered or withdrawn, its run has ended, or this board does not work
    /// on the run.
    #[error("{}", not_open(.0))]
    NotOpen(PendingId),
    /// The approval was decided before, and the first decision counts.
    #[error("already {decision}")]
    AlreadyDecided {
        /// The decision that counts, with who made it and when.
        decision: Decision,
    },
    /// The approval is decided by people of a group, and this person is not in it.
    #[error("people of {} decide about it, and {} is not one of them", visible(.group), visible(.by))]
    NotInGroup {
        /// The approval that was to be decided.
        id: ApprovalId,
        /// Who was to decide it.
        by: Arc<str>,
        /// The group whose people decide.
        group: Arc<str>,
    },
    /// The approval is not decided by who asked for the run, and this person did, or their token.
    #[error("{} has asked for the run: somebody else decides", visible(.by))]
    OfRequester {
        /// The approval that was to be decided.
        id: ApprovalId,
        /// Who was to decide it.
        by: Arc<str>,
    },
    /// Several people have to approve, and this one has approved before.
    #[error("{} has approved already, at {at}: other people have to as well", visible(.by))]
    HasApproved {
        /// The approval that was to be approved again.
        id: ApprovalId,
        /// Who has approved.
        by: Arc<str>,
        /// When they did, by the wall clock.
        at: Timestamp,
    },
    /// The question was answered before, and the first answer counts.
    #[error("question {} was answered already", .0.request)]
    Answered(QuestionId),
    /// Its time was over before: the approval is denied, or the turn that asked continues without an answer.
    #[error("{}", expired(id, *at))]
    Expired {
        /// The approval or question that has expired.
        id: PendingId,
        /// The time by which it had to be answered, by the wall clock.
        at: Timestamp,
    },
    /// What was responded is for something of another kind.
    #[error("{}", does_not_fit(id))]
    DoesNotFit {
        /// What was responded to; its kind determines which [`Response`](crate::messages::Response) fits.
        id: PendingId,
    },
    /// It is an approval that is asked for each time, or of a handoff: it cannot be given for a whole run.
    #[error("approval {id} cannot be given for the whole run: it is asked each time")]
    NotForRun {
        /// The approval that was to be given for the whole run.
        id: ApprovalId,
    },
    /// It is an approval of a handoff, what it was changed to nests too deeply, or it cannot be said what it would be done to.
    #[error("approval {id} cannot be given with other arguments: deny it, and say what to do instead")]
    NotEditable {
        /// The approval that was to be given with other arguments.
        id: ApprovalId,
    },
    /// The question is whether something was done, and the answer is none of those that it has.
    #[error("question {} is answered with \"run it again\", \"give up\" or {{\"done\": RESULT}}", .0.request)]
    NotAnOutcome(QuestionId),
    /// A channel does not take what was written.
    #[error(transparent)]
    State(#[from] StateError),
    /// A custom reducer panicked over what was written.
    #[error("a reducer panicked: {0}")]
    Panicked(String),
    /// It is not known whether it was journaled.
    #[error(transparent)]
    Unacknowledged(#[from] Unacknowledged),
    /// It could not be stored. Of a decision about an approval it is not known whether it will be found later, and everybody is
    /// asked again.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// No board works on the run that waits for it: its board is gone, and no other one has taken it over.
    #[error("no board works on run {0}, which waits for this")]
    NotHere(RunId),
    /// No board that lives can decide it: the one that works on the run is gone, or does not answer, and no other one has the agents of the
    /// run's open turns.
    #[error("{}", not_hosted(*run, agents, silent.as_deref()))]
    NotHosted {
        /// The run that waits for this, and for a board.
        run: RunId,
        /// The agents that the run waits for ([`Run::agents_lacking`](crate::supervision::runs::Run::agents_lacking)).
        agents: BTreeSet<AgentName>,
        /// The name of the board that works on the run, if its lease lasts and it does not answer. It does what it was asked for if it
        /// continues in time.
        silent: Option<Arc<str>>,
    },
    /// A value is nested too deeply to be stored, or the name of the person or the reason is too long.
    #[error(transparent)]
    #[serde(skip)]
    OverLimit(#[from] OverLimit),
}

fn not_hosted(run: RunId, agents: &BTreeSet<AgentName>, silent: Option<&str>) -> String {
    let names: Vec<String> = agents.iter().map(|agent| format!("`{}`", visible(agent.as_str()))).collect();
    let names = names.join(" and ");
    match silent {
        None => format!(
            "no board works on run {run}, which waits for one that has {names}: start such a board, and decide then"
        ),
        Some(board) => format!(
            "board {}, which works on run {run}, does not answer, and no other board has {names}: start one that does, and decide then; if that \
             board continues before its lease has ended, it takes this decision",
            visible(board)
        ),
    }
}

fn not_open(id: &PendingId) -> String {
    match id {
        PendingId::Approval(id) => format!("no approval {id} is open"),
        PendingId::Question(id) => format!("no question {} is open", id.request),
        PendingId::Node(turn) => format!("turn {turn} does not wait to be resumed"),
        PendingId::Attention(turn) => format!("turn {turn} does not wait to be restarted"),
    }
}

fn expired(id: &PendingId, at: Timestamp) -> String {
    match id {
        PendingId::Approval(id) => format!("approval {id} expired at {at}"),
        PendingId::Question(id) => format!("question {} has expired; its turn continues without an answer", id.request),
        PendingId::Node(turn) | PendingId::Attention(turn) => format!("turn {turn} expired at {at}"),
    }
}

fn does_not_fit(id: &PendingId) -> String {
    match id {
        PendingId::Approval(id) => format!("approval {id} is approved or denied"),
        PendingId::Question(id) => format!("question {} is answered with a value", id.request),
        PendingId::Node(turn) => format!("turn {turn} is resumed, or its run is cancelled"),
        PendingId::Attention(turn) => format!("turn {turn} is restarted, or its run is cancelled"),
    }
}

/// Why a run was not resumed with an overwrite.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OverwriteError {
    /// The store does not know the run.
    #[error("there is no such run")]
    Unknown,
    /// The run has not ended, so it has no conflict to overwrite.
    #[error("the run has not ended")]
    NotEnded,
    /// The run ended, but not because branches wrote one place concurrently.
    #[error("the run did not end because of concurrent writes")]
    NoConflict,
    /// The overwrites leave a conflict, or a channel does not take them. Nothing has changed.
    #[error(transparent)]
    State(#[from] StateError),
    /// It could not continue from there: an agent that it names is gone, or a custom reducer panicked.
    #[error("{0}")]
    CannotGoOn(String),
    /// The values are larger than a command may be.
    #[error("the overwrite has {size} bytes; at most {} are allowed", MAX_COMMAND)]
    TooLarge {
        /// The size of the values and of the names of their channels, in bytes.
        size: usize,
    },
    /// It is not known whether the overwrite was journaled.
    #[error(transparent)]
    Unacknowledged(#[from] Unacknowledged),
    /// The store could not be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A value is nested too deeply to be stored, or the name of the person is too long.
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
}
