//! What is changed about an open run from outside: it is cancelled, or what it refers to. The board that works on it does that.

use std::time::Duration;

use tokio::sync::oneshot;

use crate::actors::boards::{Ask, Reply};
use crate::messages::{check_reason, check_reference};
use crate::supervision::runs::queue::{RunMessage, ShardMessage};

use super::reach::{LOOK_EVERY, TAKEN_OVER_WITHIN};
use super::run_handle::{RunError, RunHandle};

impl RunHandle {
    /// Stops the run: nothing of it runs past its next await. `false` when it has ended already. The reason has at most
    /// (4,096) characters. A run that no board works on, also because none has its agents, is taken over by this one for that. Its turns at
    /// other boards are cancelled by the board that ends it.
    ///
    /// # Errors
    /// The reason is too long, the run is unknown, its journal cannot be read, its board cannot be asked, or this one has stopped before it
    /// ended.
    pub async fn cancel(&self, reason: &str) -> Result<bool, RunError> {
        check_reason(reason)?;
        self.check_quarantine()?;
        let began_at = self.board.board.env.now().monotonic;
        loop {
            let ask = Ask::Cancel { run: self.id(), reason: reason.to_owned() };
            let cancel = |ack| RunMessage::Cancel { reason: reason.to_owned(), ack };
            // Where its board is gone, no heir is waited for: nothing has to be continued.
            let cancelled = match self.change_open(cancel, ask, Duration::ZERO).await {
                Err(RunError::NotHere(_)) => self.end_left(reason).await,
                cancelled => cancelled,
            };
            // Another board has taken it over meanwhile, or its board is not found to be gone yet.
            let is_between = matches!(cancelled, Err(RunError::NotHere(_)));
            if !is_between || self.board.board.env.now().monotonic.saturating_sub(began_at) > TAKEN_OVER_WITHIN {
                return cancelled;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Ends a run that no board works on; `false` when it has ended already.
    async fn end_left(&self, reason: &str) -> Result<bool, RunError> {
        let (run, reason) = (self.id(), reason.to_owned());
        let ended = self.board.ask_shard(run, |ack| ShardMessage::End { run, reason, ack }).await;
        if ended != Some(true) {
            // It may have been taken over, or have ended, meanwhile.
            return if self.read().await?.result().is_some() { Ok(false) } else { Err(RunError::NotHere(run)) };
        }
        Ok(true)
    }

    /// Changes the outside resource that a delegation from outside refers to ([`Task::reference`](crate::messages::Task)). Turns of its agent
    /// that begin after this read the new one ([`Turn::reference`](crate::actors::Turn::reference)). `false` when the run has ended already.
    /// The reference has at most (4,096) characters.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// use callboard::messages::AgentName;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("asker", |turn: Turn| async move {
    ///         turn.people().ask("well?").await?;
    ///         Ok(Command::new().goto("teller"))
    ///     })
    ///     .agent("teller", |turn: Turn| async move { Ok(Command::output(turn.reference().unwrap_or_default())) })
    ///     .start()
    ///     .await?;
    /// let task = Task::new("x").to("asker").from_agent(AgentName::new("ann")?).reference("issue 7");
    /// let run = board.submit(task).await?;
    /// assert!(run.change_reference("bob", Some("issue 8")).await.is_err());
    /// assert!(run.change_reference("ann", Some("issue 8")).await?);
    /// let asked = board.people().next().await.unwrap();
    /// board.people().answer(asked.id(), Json::null(), "ann").await?;
    /// assert_eq!(run.result().await?.output, "issue 8");
    /// # board.shutdown().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// The task was not delegated by `requester` ([`Task::from_agent`](crate::messages::Task)), the reference is too long, the run is unknown,
    /// its journal cannot be read, this board does not work on it, or has stopped before it ended.
    pub async fn change_reference(&self, requester: &str, reference: Option<&str>) -> Result<bool, RunError> {
        check_reference(reference.unwrap_or_default())?;
        let run = self.read().await?;
        if run.submission().requester().is_none_or(|from| from.as_str() != requester) {
            return Err(RunError::NotRequester(self.id()));
        }
        let ask = Ask::Refer { run: self.id(), reference: reference.map(Into::into) };
        let refer = |ack| RunMessage::Refer { reference: reference.map(Into::into), ack };
        self.change_open(refer, ask, TAKEN_OVER_WITHIN).await
    }

    /// Has the run do what only an open one does, at the board that works on it, or that takes it over within this time; `false` when it has
    /// ended already.
    async fn change_open(
        &self,
        message: impl Fn(oneshot::Sender<bool>) -> RunMessage,
        ask: Ask,
        within: Duration,
    ) -> Result<bool, RunError> {
        loop {
            let changed = self.board.ask_run(self.id(), &message).await;
            match changed {
                Some(true) => return Ok(true),
                Some(false) => {
                    self.check_quarantine()?;
                    if self.read().await?.result().is_some() {
                        return Ok(false);
                    }
                    return match self.board.ask_owner(self.id(), ask, within).await? {
                        Some(Reply::Changed(Some(true))) => Ok(true),
                        _ if self.read().await?.result().is_some() => Ok(false),
                        _ => Err(RunError::NotHere(self.id())),
                    };
                }
                None if self.board.board.is_closed() => return self.result_at_the_end().await.map(|_| false),
                // The supervisor was just restarted.
                None => tokio::task::yield_now().await,
            }
        }
    }
}
