//! What people are asked, by kind.

use callboard::messages::{Envelope, Interrupt, Question, TurnId};
use callboard::prelude::*;
use callboard::runtime::RunError;

fn question_of(open: Pending) -> Option<Question> {
    if let Pending::Question(question) = open { Some(question) } else { None }
}

fn node_of(open: Pending) -> Option<Interrupt> {
    if let Pending::Node(node) = open { Some(node) } else { None }
}

fn approval_of(open: Pending) -> Option<Envelope> {
    if let Pending::Approval(envelope) = open { Some(*envelope) } else { None }
}

/// The open questions of a run.
pub(crate) async fn questions(run: &RunHandle) -> Vec<Question> {
    run.pending().await.into_iter().filter_map(question_of).collect()
}

/// The run's question that was asked first, as soon as there is one.
pub(crate) async fn next_question(run: &RunHandle) -> Result<Option<Question>, RunError> {
    Ok(run.next_pending_where(|open| matches!(open, Pending::Question(_))).await?.and_then(question_of))
}

/// As [`next_question`], of a run that asks one.
pub(crate) async fn question(run: &RunHandle) -> Question {
    next_question(run).await.unwrap().expect("the run has ended without a question")
}

/// The nodes of a run that wait for a person.
pub(crate) async fn nodes(run: &RunHandle) -> Vec<Interrupt> {
    run.pending().await.into_iter().filter_map(node_of).collect()
}

/// The first of [`nodes`], as soon as there is one.
pub(crate) async fn next_node(run: &RunHandle) -> Result<Option<Interrupt>, RunError> {
    Ok(run.next_pending_where(|open| matches!(open, Pending::Node(_))).await?.and_then(node_of))
}

/// As [`next_node`], of a run that has one.
pub(crate) async fn node(run: &RunHandle) -> Interrupt {
    next_node(run).await.unwrap().expect("the run has ended without an interrupt")
}

/// The open approvals of a board.
pub(crate) async fn approvals(board: &Callboard) -> Vec<Envelope> {
    board.people().pending().await.into_iter().filter_map(approval_of).collect()
}

/// The open approval that expires first, as soon as there is one.
pub(crate) async fn next_approval(board: &Callboard) -> Option<Envelope> {
    board.people().next_where(|open| matches!(open, Pending::Approval(_))).await.and_then(approval_of)
}

/// As [`next_approval`], of a board that asks for one.
pub(crate) async fn approval(board: &Callboard) -> Envelope {
    next_approval(board).await.expect("the board has ended without an approval")
}

/// The turns of a run that need attention, with the reasons, as they are journaled.
pub(crate) async fn attention(run: &RunHandle) -> Vec<(TurnId, String)> {
    let stuck = |open: Pending| match open {
        Pending::Attention { turn, why, .. } => Some((turn, why)),
        _ => None,
    };
    run.read().await.unwrap().pending().into_iter().filter_map(stuck).collect()
}

/// Restarts the turns of a run that need attention, and returns how many there were.
pub(crate) async fn restart_turns(board: &Callboard, run: &RunHandle) -> usize {
    let mut restarted = 0;
    for open in run.pending().await {
        if matches!(open, Pending::Attention { .. }) {
            board.people().answer(&open, Response::Restart, "ann").await.unwrap();
            restarted += 1;
        }
    }
    restarted
}
