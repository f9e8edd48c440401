//! What boards on one store write to each other.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::env::later_build;
use crate::messages::{
    ApprovalId, Chain, ConversationId, Envelope, Pending, PendingId, Response, RunId, RunResult, Task, TraceId, Votes,
};
use crate::storage::StorageError;
use crate::storage::codec::Stored;
use crate::supervision::runs::rules::errors::{AnswerError, SubmitError};

/// A letter: a value under the key of its receiver and its reference. It is deleted once it was answered, or read if it is a reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Letter {
    /// The id of the board that has sent it, to which the reply goes.
    pub(super) from: Arc<str>,
    pub(super) content: Content,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Content {
    Ask(Box<Ask>),
    Reply(Box<Reply>),
}

/// The form of letters that a board of this process reads and writes.
pub(crate) fn letter_form() -> u32 {
    u32::from(Letter::VERSION) + later_build::forms_ahead()
}

impl Stored for Letter {
    const SCHEMA: u16 = 24;
    const VERSION: u16 = 1;
    const NAME: &'static str = "letter";
}

/// What a board is asked to do. It does that as if a caller of its own had asked, and refuses the same. To ask the same twice has the
/// effect of asking once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// To accept a task, whose id its sender has chosen.
    Submit {
        task: Box<Task>,
        conversation: Option<ConversationId>,
        /// Where the run comes from, if a turn submits it.
        lineage: Option<(Chain, TraceId)>,
        /// Waits while the board is full, instead of being refused.
        waits_for_room: bool,
        /// Replies when the run has ended, with its result.
        waits_for_end: bool,
    },
    /// To look at which boards there are, and what they host.
    Look,
    /// To cancel a run.
    Cancel { run: RunId, reason: String },
    /// To change what a delegation from outside refers to.
    Refer { run: RunId, reference: Option<Arc<str>> },
    /// To respond to what a run waits for people with.
    Answer { id: PendingId, response: Response, by: Arc<str>, via: Arc<str> },
    /// To check whether a person may respond.
    Check { id: PendingId, by: Arc<str> },
    /// To list what its runs wait for people with, or one run does.
    Pending { run: Option<RunId> },
    /// To take over runs that the asking board gives it.
    TakeOver { runs: Vec<RunId> },
    /// To list the approvals that its runs wait for: which of those that are known are open, and some others, whole.
    Approvals { known: Vec<(ApprovalId, RunId)> },
}

/// The reply to an [`Ask`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// The run was accepted, or refused.
    Submitted(Result<RunId, SubmitError>),
    /// The board has looked.
    Looked,
    /// The run has ended.
    Ended(Box<RunResult>),
    /// Whether the run was open; `None` if the board does not work on it.
    Changed(Option<bool>),
    Answered(Result<Option<Votes>, AnswerError>),
    Pending(Vec<Pending>),
    /// The board could not do it.
    Failed(String),
    /// The board reads the runs.
    Taken,
    Approvals {
        open: Vec<ApprovalId>,
        others: Vec<Envelope>,
    },
}

/// An error that is sent to another board: what has no form there becomes a text.
pub(crate) trait Sendable {
    #[must_use]
    fn sendable(self) -> Self;
}

fn as_text(error: &impl ToString) -> StorageError {
    StorageError::Unavailable { detail: error.to_string() }
}

impl Sendable for SubmitError {
    fn sendable(self) -> Self {
        match self {
            Self::Plan(defects) => Self::Storage(as_text(&defects)),
            Self::OverLimit(error) => Self::Storage(as_text(&error)),
            Self::Refused(_)
            | Self::Storage(_)
            | Self::NoTarget { .. }
            | Self::NoAgents
            | Self::PlanChanged { .. }
            | Self::OtherConversation { .. }
            | Self::Unacknowledged(_) => self,
        }
    }
}

impl Sendable for AnswerError {
    fn sendable(self) -> Self {
        match self {
            Self::OverLimit(error) => Self::Storage(as_text(&error)),
            Self::NotOpen(_)
            | Self::AlreadyDecided { .. }
            | Self::NotInGroup { .. }
            | Self::OfRequester { .. }
            | Self::HasApproved { .. }
            | Self::Answered(_)
            | Self::Expired { .. }
            | Self::DoesNotFit { .. }
            | Self::NotForRun { .. }
            | Self::NotEditable { .. }
            | Self::NotAnOutcome(_)
            | Self::State(_)
            | Self::Panicked(_)
            | Self::Unacknowledged(_)
            | Self::Storage(_)
            | Self::NotHere(_)
            | Self::NotHosted { .. } => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::messages::{AgentName, PlacedTurn, State, TurnId};
    use crate::storage::codec;
    use crate::testing::golden;

    fn run() -> RunId {
        RunId(Uuid::from_u128(7))
    }

    fn letter(content: Content) -> Letter {
        Letter { from: "b0".into(), content }
    }

    #[test]
    fn the_bytes_of_a_letter_are_fixed() {
        let turn = TurnId { run: run(), number: 2 };
        let placed = PlacedTurn {
            turn,
            view: State::default(),
            previous_agent: AgentName::new("lead").ok(),
            figures: None,
            answers: None,
            node: Some("node".into()),
            conversation: None,
        };
        let task = Task { placed: Some(Box::new(placed)), ..Task::new("x").to("coder").id(run()) };
        let lineage = Some((Chain::default(), TraceId(run().0)));
        golden::check(
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"),
            &letter(Content::Ask(Box::new(Ask::Submit {
                task: Box::new(task),
                conversation: ConversationId::new("ann").ok(),
                lineage,
                waits_for_room: false,
                waits_for_end: true,
            }))),
        );
    }

    #[test]
    fn every_reply_is_read_as_it_was_written() {
        let refused = SubmitError::OverLimit(crate::messages::OverLimit::depth("the input"));
        let not_open = AnswerError::NotOpen(PendingId::Node(TurnId { run: run(), number: 1 }));
        let stopped = SubmitError::Storage(StorageError::Closed);
        for (reply, is_same) in [
            (Reply::Submitted(Ok(run())), true),
            (Reply::Submitted(Err(SubmitError::NoAgents)), true),
            (Reply::Submitted(Err(refused.sendable())), true),
            (Reply::Submitted(Err(stopped)), false),
            (Reply::Changed(Some(false)), true),
            (Reply::Answered(Err(not_open.sendable())), true),
            (Reply::Answered(Ok(Some(Votes::default()))), true),
            (Reply::Pending(Vec::new()), true),
            (Reply::Failed("no".to_owned()), true),
            (Reply::Approvals { open: Vec::new(), others: Vec::new() }, true),
        ] {
            let sent = letter(Content::Reply(Box::new(reply)));
            let read = codec::decode::<Letter>(&codec::encode(&sent)).unwrap();
            assert_eq!(read == sent, is_same, "{read:?}");
        }
    }
}
