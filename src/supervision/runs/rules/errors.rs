//! Why a task or an answer is not accepted, or a run cannot be read.

use std::sync::Arc;

use callboard_text::visible_lines;

use crate::messages::state::StateError;
use crate::messages::{AgentName, ConversationId, Refusal, RequestId, RunId, TooDeep, TooLong, Unacknowledged};
use crate::storage::StorageError;
use crate::workflow::Defects;

use super::requests::MAX_COMMAND;

/// Why a task was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The guard refused it.
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
    /// The board has no agents.
    #[error(
        "no agent is registered; add one with `Builder::agent`, or with `board.agents().spawn` while the board runs"
    )]
    NoAgents,
    /// Its plan cannot be run, or its input lacks what the plan needs.
    #[error(transparent)]
    Plan(Defects),
    /// The run of the task's id began with another plan.
    #[error(
        "run {run} began with another definition: {}; give the task another id, or have the run migrated",
        visible_lines(&difference.join("; "))
    )]
    PlanChanged {
        /// The run.
        run: RunId,
        /// What is different, node by node.
        difference: Vec<String>,
    },
    /// The conversation belongs to another agent or workflow.
    #[error(
        "conversation {conversation} belongs to {owner}, and the task is for {asked}: submit it to {owner}, or choose another \
         conversation"
    )]
    OtherConversation {
        /// The conversation.
        conversation: ConversationId,
        /// The agent or workflow that it belongs to.
        owner: Arc<str>,
        /// The agent or workflow that the task is for.
        asked: Arc<str>,
    },
    /// The input is nested deeper than it could be read back from the journal.
    #[error(transparent)]
    TooDeep(#[from] TooDeep),
    /// The supervisor that took it was restarted, and again when it was enqueued once more; or the board has ended.
    #[error(transparent)]
    Unacknowledged(#[from] Unacknowledged),
}

/// The first of many names, and how many more there are.
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

/// Why a run could not be read back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LoadError {
    /// The store failed, or the journal is damaged.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A custom reducer panicked.
    #[error("the journal cannot be replayed: {0}")]
    Panicked(String),
}

/// Why an answer was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// No such run is in memory, or it has no such question.
    #[error("no question {0} is open")]
    Unknown(RequestId),
    /// The question has its answer.
    #[error("question {0} was answered already")]
    Answered(RequestId),
    /// The question was not answered in time.
    #[error("question {0} has expired; its turn continues without an answer")]
    Expired(RequestId),
    /// It is not known whether the answer was journaled.
    #[error(transparent)]
    Unacknowledged(#[from] Unacknowledged),
    /// The question is whether something was done, and the answer is none of those that it has.
    #[error("question {0} is answered with \"run it again\", \"give up\" or {{\"done\": RESULT}}")]
    NotAnOutcome(RequestId),
    /// The answer is nested too deeply to be stored.
    #[error(transparent)]
    TooDeep(#[from] TooDeep),
    /// The name of the person is too long.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The answer could not be journaled.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// Why a run was not resumed with an overwrite.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OverwriteError {
    /// The store does not know the run.
    #[error("there is no such run")]
    Unknown,
    /// It has not ended.
    #[error("the run has not ended")]
    NotEnded,
    /// It ended for another reason.
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
        /// The size in bytes.
        size: usize,
    },
    /// The name of the person is too long.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// A value is nested too deeply to be stored.
    #[error(transparent)]
    TooDeep(#[from] TooDeep),
    /// It is not known whether the overwrite was journaled.
    #[error(transparent)]
    Unacknowledged(#[from] Unacknowledged),
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}
