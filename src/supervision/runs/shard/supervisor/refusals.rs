//! Answers to messages for runs that are not in memory: they have ended, cannot be read, or never existed.

use crate::messages::{PendingId, QuestionId, RequestId, RunId, TurnId};
use crate::supervision::runs::rules::errors::{AnswerError, OverwriteError};
use crate::supervision::runs::rules::requests::{RequestKey, Settled, TurnReply, TurnRequest};
use crate::supervision::runs::shard::queue::{RunMessage, ShardMessage};

/// Answers a message for a run that is not in memory: it has ended, or never existed.
pub(super) fn refuse(run: RunId, message: RunMessage) {
    let id = |number| TurnId { run, number };
    match message {
        RunMessage::Request { key, request, reply, .. } => {
            if let TurnRequest::Settle(Settled { usage, .. }) = request {
                tracing::warn!(parent: None, turn = %id(key.turn), ?usage, "a call has reported after its run had ended; its reservation stays counted as spent");
            }
            if let Some(reply) = reply {
                let _ = reply.send(TurnReply::Gone);
            }
        }
        RunMessage::Answer { asked: RequestKey { turn, ordinal }, nonce, ack, .. } => {
            let question = QuestionId { request: RequestId { turn: id(turn), ordinal }, nonce };
            drop(ack.send(Err(AnswerError::NotOpen(question.into()))));
        }
        RunMessage::Cancel { ack, .. } | RunMessage::Refer { ack, .. } => drop(ack.send(false)),
        RunMessage::RestartTurn { turn, ack } => {
            drop(ack.send(Err(AnswerError::NotOpen(PendingId::Attention(id(turn))))))
        }
        RunMessage::Pending { reply } => drop(reply.send(Vec::new())),
        RunMessage::Resume { turn, ack, .. } => drop(ack.send(Err(AnswerError::NotOpen(PendingId::Node(id(turn)))))),
        RunMessage::Overwrite { ack, .. } => drop(ack.send(Err(OverwriteError::NotEnded))),
        // A dropped reply means that the run is not in memory.
        RunMessage::Result { .. }
        | RunMessage::Outcome { .. }
        | RunMessage::Decide { .. }
        | RunMessage::Fail { .. }
        | RunMessage::Expired { .. }
        | RunMessage::ConversationRead { .. } => {}
    }
}

/// Answers a message that was kept for a run which cannot be read. A dropped submission is sent again by its caller.
pub(super) fn refuse_kept(message: ShardMessage) {
    match message {
        ShardMessage::Run { run, message } => refuse(run, message),
        ShardMessage::Submit { .. }
        | ShardMessage::Adopt { .. }
        | ShardMessage::End { .. }
        | ShardMessage::Loaded { .. }
        | ShardMessage::Reopened { .. }
        | ShardMessage::Committed { .. }
        | ShardMessage::Redispatch { .. }
        | ShardMessage::LookAtConversation { .. }
        | ShardMessage::Pending { .. }
        | ShardMessage::HandOver { .. }
        | ShardMessage::Tick => {}
    }
}
