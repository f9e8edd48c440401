//! Why a task, an answer or a run was not taken.

use std::sync::Arc;

use callboard_text::visible_lines;

use crate::messages::state::StateError;
use crate::messages::{ConversationId, Refusal, RequestId, RunId, TooLong};
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
    /// It could not be journaled, or the store's answer was lost.
    #[error("{}", not_accepted(.0))]
    Storage(#[from] StorageError),
    /// The task names no target, and there are several agents.
    #[error("the task names no target; say `.to(…)` one of: {agents}")]
    NoTarget {
        /// Who there is.
        agents: String,
    },
    /// The board has no agent.
    #[error(
        "no agent is registered; add one with `Builder::agent`, or with `board.agents().spawn` while the board runs"
    )]
    NoAgents,
    /// Its plan cannot be run, or its input lacks what the plan needs.
    #[error(transparent)]
    Plan(Defects),
    /// The run that is there under the task's id began with another plan.
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
        /// Whose it is.
        owner: Arc<str>,
        /// Whom the task is for.
        asked: Arc<str>,
    },
    /// The input is nested deeper than it could be read back from the journal.
    #[error("the input is nested too deeply; at most {max} levels are allowed")]
    TooDeep {
        /// The limit.
        max: usize,
    },
    /// The supervisor that took it was restarted, and again when it was sent once more; or the board has ended.
    /// Submitting it again is safe for a task with an id of its own.
    #[error("the task was not journaled; submit it again")]
    Interrupted,
}

fn not_accepted(error: &StorageError) -> String {
    if error.may_pass() {
        format!(
            "it is not known whether the task was accepted: {error}; a task with an id of its own is submitted again safely"
        )
    } else {
        format!("the task was not accepted: {error}")
    }
}

/// Why a run could not be read back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The store failed, or the journal is damaged.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A custom reducer panicked.
    #[error("the journal cannot be replayed: {0}")]
    Panicked(String),
}

/// Why an answer was not taken.
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
    /// The run's supervisor was restarted, or the board ended, before the answer was known to be journaled; the run's
    /// open questions show it.
    #[error("nothing is known about the answer to {0}; look at the open questions")]
    Interrupted(RequestId),
    /// The question is whether something was done, and the answer does not state that.
    #[error("question {0} is answered with \"run it again\", \"give up\" or {{\"done\": RESULT}}")]
    NotAnOutcome(RequestId),
    /// The answer is nested too deeply to be stored.
    #[error("the answer is nested deeper than {} levels", crate::messages::MAX_JSON_DEPTH)]
    TooDeep,
    /// Who answers is named at too great a length.
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
    /// Who writes is named at too great a length.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// A value is nested too deeply to be stored.
    #[error("a value is nested deeper than {} levels", crate::messages::MAX_JSON_DEPTH)]
    TooDeep,
    /// It is not known whether the overwrite was journaled; the run shows it.
    #[error("nothing is known about the overwrite; look at the run")]
    Interrupted,
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}
