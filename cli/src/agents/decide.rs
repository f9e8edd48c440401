//! What a run asks of people, and how the person at the terminal decides it.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use tokio::task::JoinError;

use callboard::AnswerError;
use callboard::Callboard;
use callboard::actors::approvals::{DecideError, Withdrawal, withdrawal};
use callboard::messages::{Envelope, Question, visible};
use callboard::runtime::RunHandle;

use crate::output::note_words;
use crate::page::{Failure, note};
use crate::person;
use crate::process::try_thread;

use super::dialog::{self, Decision};

/// How long a decision holds that was made for a whole run.
const FOR_RUN: Duration = Duration::from_secs(3600);

/// Something that people are asked.
pub(crate) enum Asked {
    Approval(Box<Envelope>),
    Question(Question),
}

/// Waits for something that people are asked.
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

/// Where tools work, if that is not where the person is.
pub(crate) fn place(root: &Path) -> Option<String> {
    (root != Path::new(".")).then(|| root.display().to_string())
}

/// Asks on a thread that may block, unless what is asked is closed first; then `None`.
pub(crate) async fn unless_closed<T: Send + 'static>(
    ask: impl FnOnce(Option<Withdrawal>) -> T + Send + 'static,
    closed: impl Future<Output = ()>,
) -> Option<Result<T, JoinError>> {
    // Without a thread nothing is withdrawn.
    if try_thread().is_err() {
        return Some(Ok(ask(None)));
    }
    let (withdrawer, withdrawal) = withdrawal().map_or((None, None), |(one, other)| (Some(one), Some(other)));
    let mut asking = tokio::task::spawn_blocking(move || ask(withdrawal));
    tokio::select! {
        biased;
        said = &mut asking => Some(said),
        () = closed, if withdrawer.is_some() => {
            drop(withdrawer);
            // The terminal is free for what is asked next once that thread has let go of it.
            let _ = asking.await;
            None
        }
    }
}

/// What is said of an approval that was closed while its card was open.
async fn closed(board: &Callboard, envelope: &Envelope) -> String {
    let action = visible(&envelope.action.to_string());
    match board.approvals().decision(envelope.id()).await {
        Ok(Some(decision)) if &*decision.by == "expiry" => {
            format!("{action} was denied: nobody decided before {}", envelope.expires_at)
        }
        Ok(Some(decision)) => format!("{action}: {}", DecideError::AlreadyDecided { decision }),
        Ok(None) | Err(_) => format!("{action} is no longer asked about"),
    }
}

/// Has the person at the terminal decide. `false` if they leave it open. `root` is where tools work.
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
                // Somebody was first, or it expired while its card was open.
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
                // What is open is asked again.
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
