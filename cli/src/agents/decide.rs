//! Approvals and questions of a run, and the decisions of the person at the terminal.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use tokio::task::JoinError;

use callboard::AnswerError;
use callboard::Callboard;
use callboard::actors::approvals::{DecideError, Withdrawal};
use callboard::messages::{Envelope, Question, visible};
use callboard::runtime::RunHandle;

use crate::output::note_words;
use crate::page::{Failure, note};
use crate::person;
use crate::process::try_thread;

use super::dialog::{self, Decision};

/// How long an approval for the whole run is valid.
const FOR_RUN: Duration = Duration::from_secs(3600);

/// An approval or a question that waits for a person.
pub(crate) enum Asked {
    Approval(Box<Envelope>),
    Question(Question),
}

/// Waits for the next approval or question.
pub(crate) async fn next_asked(board: &Callboard, run: &RunHandle) -> Asked {
    tokio::select! {
        biased;
        approval = board.next_approval() => match approval {
            Some(envelope) => Asked::Approval(Box::new(envelope)),
            None => std::future::pending().await,
        },
        question = run.next_question() => match question {
            Ok(Some(question)) => Asked::Question(question),
            Ok(None) | Err(_) => std::future::pending().await,
        },
    }
}

/// The folder that tools work in, if it is not the current one.
pub(crate) fn place(root: &Path) -> Option<String> {
    (root != Path::new(".")).then(|| root.display().to_string())
}

/// Runs the prompt on a thread that may block; `None` if `closed` completes first, which withdraws the prompt.
pub(crate) async fn unless_closed<T: Send + 'static>(
    ask: impl FnOnce(Option<Withdrawal>) -> T + Send + 'static,
    closed: impl Future<Output = ()>,
) -> Option<Result<T, JoinError>> {
    // Without a thread the prompt blocks this one and is not withdrawn.
    if try_thread().is_err() {
        return Some(Ok(ask(None)));
    }
    let (withdrawer, withdrawal) = Withdrawal::pair().map_or((None, None), |(one, other)| (Some(one), Some(other)));
    let mut asking = tokio::task::spawn_blocking(move || ask(withdrawal));
    tokio::select! {
        biased;
        answer = &mut asking => Some(answer),
        () = closed, if withdrawer.is_some() => {
            drop(withdrawer);
            // The next prompt can use the terminal once that thread has released it.
            let _ = asking.await;
            None
        }
    }
}

/// The line about an approval that was closed while its card was open.
async fn closed(board: &Callboard, envelope: &Envelope) -> String {
    let action = visible(&envelope.action.to_string());
    match board.approvals().decision(envelope.id()).await {
        Ok(Some(decision)) if &*decision.by == "expiry" => {
            format!("{action} was denied: nobody decided before {}", envelope.expires_at)
        }
        Ok(Some(decision)) => format!("{action}: {}", DecideError::AlreadyDecided { decision }),
        Ok(None) | Err(_) => format!("{action} no longer waits for a decision"),
    }
}

/// Asks the person at the terminal and records the decision; `false` if they leave it open. `root` is the folder of the tools.
pub(crate) async fn settle(board: &Callboard, run: &RunHandle, asked: Asked, root: &Path) -> Result<bool, Failure> {
    let trouble = |error: String| Failure::trouble(error);
    let place = place(root);
    match asked {
        Asked::Approval(envelope) => {
            let id = envelope.id();
            let shown = envelope.clone();
            let ask = move |withdrawal| dialog::decide(&shown, place.as_deref(), withdrawal);
            let approvals = board.approvals();
            let Some(decision) = unless_closed(ask, approvals.closed(id)).await else {
                note_words(&closed(board, &envelope).await);
                return Ok(true);
            };
            let decided = match decision.unwrap_or(Decision::Leave) {
                Decision::Yes => board.approvals().approve(id, &person::name()).await,
                Decision::ForRun => board.approvals().approve_for_run(id, &person::name(), FOR_RUN).await,
                Decision::Edited { arguments } => {
                    board.approvals().approve_edited(id, &person::name(), arguments).await
                }
                Decision::No { reason } => board.approvals().deny(id, &person::name(), &reason).await,
                Decision::Leave => return Ok(false),
            };
            match decided {
                Ok(_) => Ok(true),
                // Another person decided, or it expired while its card was open.
                Err(
                    error @ (DecideError::AlreadyDecided { .. }
                    | DecideError::Expired { .. }
                    | DecideError::Unknown { .. }),
                ) => {
                    note_words(&error.to_string());
                    Ok(true)
                }
                Err(error) => Err(trouble(error.to_string())),
            }
        }
        Asked::Question(question) => {
            let id = question.id;
            let ask = move |withdrawal| dialog::answer(&question, withdrawal);
            let Some(answer) = unless_closed(ask, run.question_closed(id)).await else {
                note("the question is no longer open: it has expired, or was answered elsewhere");
                return Ok(true);
            };
            let Some(answer) = answer.ok().flatten() else { return Ok(false) };
            match board.answer(id, answer, &person::name()).await {
                Ok(()) => Ok(true),
                // A question that is still open is asked again.
                Err(
                    error @ (AnswerError::NotAnOutcome(_)
                    | AnswerError::Unknown(_)
                    | AnswerError::Answered(_)
                    | AnswerError::Expired(_)),
                ) => {
                    note_words(&error.to_string());
                    Ok(true)
                }
                Err(error) => Err(trouble(error.to_string())),
            }
        }
    }
}
