//! Typed requests to agents, outside any run.

use std::any::{Any, type_name};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use callboard_text::{cut, did_you_mean, quoted, visible_lines};
use futures::FutureExt;

use crate::messages::{AgentName, Refusal};
use crate::supervision::panic_text;

use super::handle::Callboard;

/// Why [`Callboard::ask`] returned no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The board has no agent of this name: none was added, or it was stopped.
    #[error("there is no agent {}{}", quoted(name), did_you_mean(nearest.as_deref()))]
    Unknown {
        /// The name as the caller wrote it.
        name: String,
        /// The most similar name of an agent on the board; `None` if none is similar enough.
        nearest: Option<String>,
    },
    /// The agent has failed too often, too many typed requests wait for it, or the board is shutting down.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The agent answers requests of other types, or takes turns of runs only. If the type of the reply alone differs,
    /// the agent has worked on the request, and its answer is dropped.
    #[error("agent {agent} answers {answers}, not {asked}")]
    WrongTypes {
        /// The name of the agent that was asked.
        agent: String,
        /// The Rust types of the request and of the reply that the caller expected.
        asked: String,
        /// The Rust types of the requests and replies of the agent, or that it takes turns of runs only.
        answers: String,
    },
    /// The agent returned an error or panicked, or the tokio runtime shut down while it worked.
    #[error("agent {agent} failed: {}", visible_lines(error))]
    Failed {
        /// The name of the agent that was asked.
        agent: String,
        /// The text of the error; that of a panic follows `panic:`.
        error: String,
    },
    /// The agent did not answer within the time limit of [`Callboard::ask`]; work on the request that has begun
    /// continues.
    #[error("agent {} did not answer within {timeout:?}", cut(agent))]
    TimedOut {
        /// The name of the agent that was asked.
        agent: String,
        /// The time limit (30 s), in which the wait for a slot of the agent counts too.
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
