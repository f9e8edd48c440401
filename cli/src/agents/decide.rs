//! Approvals and questions of a run, and the decisions of the person at the terminal.

use std::future::Future;
use std::io::{self, PipeReader};
use std::path::Path;
use std::time::Duration;

use tokio::task::JoinError;

use callboard::AnswerError;
use callboard::Callboard;
use callboard::messages::{Envelope, Pending, PendingId, Response, visible};
use callboard::runtime::RunHandle;

use crate::output::note_words;
use crate::page::{Failure, note};
use crate::person;
use crate::process::try_thread;

use super::dialog::{self, Decision};

/// How long an approval for the whole run is valid.
const FOR_RUN: Duration = Duration::from_secs(3600);

/// Waits for the next approval or question.
pub(crate) async fn next_asked(board: &Callboard) -> Pending {
    let is_asked = |open: &Pending| matches!(open, Pending::Approval(_) | Pending::Question(_));
    match board.people().next_where(is_asked).await {
        Some(open) => open,
        None => std::future::pending().await,
    }
}

/// The folder that tools work in, if it is not the current one.
pub(crate) fn place(root: &Path) -> Option<String> {
    (root != Path::new(".")).then(|| root.display().to_string())
}

/// Runs the prompt on a thread that may block; `None` if `closed` completes first, which withdraws the prompt.
pub(crate) async fn unless_closed<T: Send + 'static>(
    ask: impl FnOnce(Option<PipeReader>) -> T + Send + 'static,
    closed: impl Future<Output = ()>,
) -> Option<Result<T, JoinError>> {
    // Without a thread the prompt blocks this one and is not withdrawn.
    if try_thread().is_err() {
        return Some(Ok(ask(None)));
    }
    let (withdrawal, writer) = io::pipe().ok().unzip();
    let mut asking = tokio::task::spawn_blocking(move || ask(withdrawal));
    tokio::select! {
        biased;
        answer = &mut asking => Some(answer),
        () = closed, if writer.is_some() => {
            drop(writer);
            // The next prompt can use the terminal once that thread has released it.
            let _ = asking.await;
            None
        }
    }
}

/// The line about an approval that was closed while its card was open.
async fn closed(board: &Callboard, envelope: &Envelope) -> String {
    let action = visible(&envelope.action.to_string());
    match board.people().decision(envelope.id()).await {
        Ok(Some(decision)) if &*decision.by == "expiry" => {
            format!("{action} was denied: nobody decided before {}", envelope.expires_at)
        }
        Ok(Some(decision)) => format!("{action}: {}", AnswerError::AlreadyDecided { decision }),
        Ok(None) | Err(_) => format!("{action} no longer waits for a decision"),
    }
}

/// Asks the person at the terminal and records the decision; `false` if they leave it open. `root` is the folder of the tools.
pub(crate) async fn settle(board: &Callboard, asked: &Pending, root: &Path) -> Result<bool, Failure> {
    let (people, id) = (board.people(), asked.id());
    match asked {
        Pending::Approval(envelope) => {
            let (shown, place) = (envelope.clone(), place(root));
            let ask = move |withdrawal| dialog::decide(&shown, place.as_deref(), withdrawal);
            let Some(decision) = unless_closed(ask, people.closed(id)).await else {
                note_words(&closed(board, envelope).await);
                return Ok(true);
            };
            let response = match decision.unwrap_or(Decision::Leave) {
                Decision::Yes => Response::Approve,
                Decision::ForRun => Response::ApproveForRun(FOR_RUN),
                Decision::Edited { arguments } => Response::ApproveEdited(arguments.into()),
                Decision::No { reason } => Response::Deny { reason },
                Decision::Leave => return Ok(false),
            };
            respond(board, id, response).await
        }
        Pending::Question(question) => {
            let question = question.clone();
            let ask = move |withdrawal| dialog::answer(&question, withdrawal);
            let Some(answer) = unless_closed(ask, people.closed(id)).await else {
                note("the question is no longer open: it has expired, or was answered elsewhere");
                return Ok(true);
            };
            match answer.ok().flatten() {
                Some(answer) => respond(board, id, answer.into()).await,
                None => Ok(false),
            }
        }
        // Nodes are asked about with the workflow, and turns that need attention are restarted when their run is resumed.
        Pending::Node(_) | Pending::Attention { .. } => Ok(false),
    }
}

/// Answers; what is still open after this is asked again.
async fn respond(board: &Callboard, id: PendingId, response: Response) -> Result<bool, Failure> {
    match board.people().answer(id, response, &person::name()).await {
        Ok(votes) => {
            if let Some(votes) = votes.filter(|votes| votes.missing > 0) {
                note(&format!("approved; it needs {} more", votes.missing));
            }
            Ok(true)
        }
        // Another person was first, it expired while the prompt was open, or it takes other answers.
        Err(
            error @ (AnswerError::AlreadyDecided { .. }
            | AnswerError::Answered(_)
            | AnswerError::NotOpen(_)
            | AnswerError::Expired { .. }
            | AnswerError::NotInGroup { .. }
            | AnswerError::OfRequester { .. }
            | AnswerError::HasApproved { .. }
            | AnswerError::NotAnOutcome(_)),
        ) => {
            note_words(&error.to_string());
            Ok(true)
        }
        Err(error) => Err(Failure::of(error)),
    }
}

/// Restarts the turns of the run that need attention. One that is not restarted still needs it, which is shown then.
pub(crate) async fn restart_turns(board: &Callboard, run: &RunHandle) {
    for open in run.pending().await {
        if matches!(open, Pending::Attention { .. }) {
            let _ = board.people().answer(&open, Response::Restart, &person::name()).await;
        }
    }
}
