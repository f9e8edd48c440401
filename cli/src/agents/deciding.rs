//! What a run asks of people, and how the person at the terminal decides it.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use callboard::Callboard;
use callboard::actors::approvals::{DecideError, card};
use callboard::messages::{Envelope, Question};
use callboard::runtime::RunHandle;
use callboard::supervision::runs::inbox::AnswerError;

use crate::page::{Failure, note};
use crate::person::is_anybody_here;
use crate::workflow::people;

use super::asking::{self, Decision};

/// How long a decision holds that was made for a whole run.
const FOR_RUN: Duration = Duration::from_secs(3600);

/// Something that people are asked.
pub(crate) enum Asked {
    Approval(Box<Envelope>),
    Question(Question),
}

impl Asked {
    /// It as machines read it.
    pub(crate) fn json(&self) -> Value {
        match self {
            Self::Approval(envelope) => json!({
                "approval": envelope.id(),
                "agent": envelope.agent,
                "action": envelope.action.action,
                "target": envelope.action.target,
                "arguments": envelope.action.arguments,
                "expires_at": envelope.expires_at,
            }),
            Self::Question(Question { agent, question, .. }) => json!({ "agent": agent, "question": question }),
        }
    }
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

/// Who is asked, and about what is done where.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    no_input: bool,
    /// Where tools work, if that is not where the person is.
    place: Option<String>,
}

impl Asker {
    pub(crate) fn new(no_input: bool, root: &Path) -> Self {
        let place = (root != Path::new(".")).then(|| root.display().to_string());
        Self { no_input, place }
    }
}

/// Has a person decide. `false` if nobody does.
pub(crate) async fn settle(board: &Callboard, asked: Asked, asker: &Asker) -> Result<bool, Failure> {
    let trouble = |error: String| Failure::trouble(error);
    let place = asker.place.clone();
    if !is_anybody_here(asker.no_input) {
        let what = match &asked {
            Asked::Approval(envelope) => asking::placed(card(envelope), place.as_deref()),
            Asked::Question(question) => asking::shown(question),
        };
        note(&format!("nobody is here to be asked:\n{}", what.trim_end()));
        return Ok(false);
    }
    match asked {
        Asked::Approval(envelope) => {
            let id = envelope.id();
            let decision = tokio::task::spawn_blocking(move || asking::decide(&envelope, place.as_deref())).await;
            let decided = match decision.unwrap_or(Decision::Leave) {
                Decision::Yes => board.approvals().approve(id, &people::name()).await,
                Decision::ForRun => board.approvals().approve_for_run(id, &people::name(), FOR_RUN).await,
                Decision::Edited { arguments } => {
                    board.approvals().approve_edited(id, &people::name(), arguments).await
                }
                Decision::No { reason } => board.approvals().deny(id, &people::name(), &reason).await,
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
                    note(&error.to_string());
                    Ok(true)
                }
                Err(error) => Err(trouble(error.to_string())),
            }
        }
        Asked::Question(question) => {
            let id = question.id;
            let answer = tokio::task::spawn_blocking(move || asking::answer(&question)).await;
            let Some(answer) = answer.ok().flatten() else { return Ok(false) };
            match board.answer(id, answer, &people::name()).await {
                Ok(()) => Ok(true),
                // What is open is asked again.
                Err(error @ (AnswerError::NotAnOutcome(_) | AnswerError::Unknown(_) | AnswerError::Answered(_))) => {
                    note(&error.to_string());
                    Ok(true)
                }
                Err(error) => Err(trouble(error.to_string())),
            }
        }
    }
}
