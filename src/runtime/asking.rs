//! Typed requests to agents, outside any run.

use std::any::{Any, type_name};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use callboard_text::{cut, did_you_mean, quoted, visible_lines};
use futures::FutureExt;

use crate::messages::{AgentName, Refusal};
use crate::supervision::panic_text;

use super::handle::Callboard;

/// Why a typed request has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// There is no such agent.
    #[error("there is no agent {}{}", quoted(name), did_you_mean(nearest.as_deref()))]
    Unknown {
        /// The name.
        name: String,
        /// The most similar name.
        nearest: Option<String>,
    },
    /// The agent takes no work now.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The agent answers other types, or none.
    #[error("agent {agent} answers {answers}, not {asked}")]
    WrongTypes {
        /// The agent.
        agent: String,
        /// What was asked.
        asked: String,
        /// What it answers.
        answers: String,
    },
    /// The agent failed.
    #[error("agent {agent} failed: {}", visible_lines(error))]
    Failed {
        /// The agent.
        agent: String,
        /// The error, or the text of the panic.
        error: String,
    },
    /// No answer in time.
    #[error("agent {} did not answer within {timeout:?}", cut(agent))]
    TimedOut {
        /// The agent.
        agent: String,
        /// The time.
        timeout: Duration,
    },
}

impl Callboard {
    /// Asks a typed agent outside any run, and waits (30 s) at most.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let doubler = AgentSpec::typed("doubler", |number: u64| async move { Ok(number * 2) });
    /// let board = Callboard::builder().with(doubler).start().await?;
    /// assert_eq!(board.ask::<u64, u64>("doubler", 21).await?, 42);
    /// board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn ask<Request, Reply>(&self, agent: &str, request: Request) -> Result<Reply, AskError>
    where
        Request: Send + 'static,
        Reply: Send + 'static,
    {
        let timeout = Duration::from_secs(30);
        match tokio::time::timeout(timeout, self.ask_now(agent, request)).await {
            Ok(answer) => answer,
            Err(_) => Err(AskError::TimedOut { agent: agent.to_owned(), timeout }),
        }
    }

    async fn ask_now<Request, Reply>(&self, agent: &str, request: Request) -> Result<Reply, AskError>
    where
        Request: Send + 'static,
        Reply: Send + 'static,
    {
        let board = &self.board;
        let unknown = || AskError::Unknown { name: agent.to_owned(), nearest: board.nearest(agent) };
        let name = AgentName::new(agent).map_err(|_| unknown())?;
        let Some(slot) = board.scheduler.typed_slot(&name).await? else {
            if board.is_closed() {
                return Err(Refusal::ShuttingDown.into());
            }
            return Err(match board.scheduler.load(&name) {
                Err(refusal) if board.router.listed(agent).is_some() => refusal.into(),
                _ => unknown(),
            });
        };
        let wrong_types = |answers: String| AskError::WrongTypes {
            agent: agent.to_owned(),
            asked: format!("{} with {}", type_name::<Request>(), type_name::<Reply>()),
            answers,
        };
        let typed = || match slot.types() {
            Some((request, reply)) => format!("{request} with {reply}"),
            None => "turns of runs only; submit a task".to_owned(),
        };
        let Ok(answer) = slot.answer(Box::new(request)) else { return Err(wrong_types(typed())) };
        let types = typed();
        let failed = |error: String| AskError::Failed { agent: agent.to_owned(), error };
        // The task holds the slot: the agent's work is not interrupted if the caller is dropped.
        let answered = tokio::spawn(async move {
            let answer = AssertUnwindSafe(answer).catch_unwind().await;
            if let Err(panic) = &answer {
                slot.panicked(&panic_text(&**panic));
            }
            answer
        });
        match answered.await {
            Ok(Ok(Ok(reply))) => {
                let reply: Box<dyn Any + Send> = reply;
                reply.downcast::<Reply>().map(|reply| *reply).map_err(|_| wrong_types(types))
            }
            Ok(Ok(Err(error))) => Err(failed(error.to_string())),
            Ok(Err(panic)) => Err(failed(format!("panic: {}", panic_text(&*panic)))),
            Err(_) => Err(failed("the runtime is going down".into())),
        }
    }
}
