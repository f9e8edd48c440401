//! Takes requests: each is submitted as a run whose id follows from its event, and noted then, so that none starts two runs.

use std::sync::Arc;

use callboard::SubmitError;
use callboard::messages::{AgentName, Durability, Refusal, RunId, Task};
use callboard::runtime::RunError;
use callboard::storage::StorageError;
use sha2::{Digest as _, Sha256};

use super::ledger::{Ending, Ledger, Request};
use super::request::{Asked, Work, asked};
use super::{NAME, Shared};
use crate::kept::Kept;
use crate::matrix::following::Reader;
use crate::matrix::history::History;
use crate::matrix::rooms::Rooms;
use crate::matrix::synced::Event;

/// Why a task was not submitted.
enum Halt {
    /// It is refused.
    Refused(String),
    /// The board cannot take it now.
    Later(String),
}

impl From<StorageError> for Halt {
    /// The next process may have one that was closed.
    fn from(error: StorageError) -> Self {
        let may_pass = error.is_transient() || error == StorageError::Closed;
        let why = error.to_string();
        if may_pass { Self::Later(why) } else { Self::Refused(why) }
    }
}

impl From<SubmitError> for Halt {
    fn from(error: SubmitError) -> Self {
        let why = error.to_string();
        match error {
            SubmitError::Refused(Refusal::ShuttingDown) | SubmitError::Unacknowledged(_) => Self::Later(why),
            SubmitError::Storage(error) => error.into(),
            _ => Self::Refused(why),
        }
    }
}

impl Reader for Shared {
    type Ledger = Ledger;

    fn kept(&self) -> &Arc<Kept<Ledger>> {
        &self.opened.kept
    }

    fn is_private(&self, room: &str) -> bool {
        self.opened.agents.contains_key(room)
    }

    fn reads(&self, room: &str, rooms: &Rooms) -> bool {
        rooms.is_ready(room) && self.opened.agents.contains_key(room)
    }

    fn reads_from_the_start(&self, _: &str) -> bool {
        false
    }

    fn history(&self, _: &str) -> Option<History> {
        Some(History::default())
    }

    fn concerns(&self, event: &Event) -> bool {
        asked(event, &self.opened.config.prefix).is_some()
    }

    async fn take(&self, room: &str, event: &Event, account: &str) {
        let Some(agent) = self.opened.agents.get(room).filter(|_| event.sender != account) else { return };
        let Some(asked) = asked(event, &self.opened.config.prefix) else { return };
        if self.kept().ledger().is_handled(&event.id) {
            return;
        }
        let request = self.handled((room, agent), event, account, asked).await;
        // Not before: where the process ends meanwhile, the next one receives the event again, and finds the run.
        if !self.kept().change(|ledger| ledger.handle(&event.id, request)) {
            tracing::warn!(room, "too many requests on Matrix are refused at once: one is not answered");
        }
        self.kept().save().await;
    }

    fn miss(&self, room: &str) {
        tracing::warn!(room, "messages of a room are missing: requests among them are not taken");
    }

    fn retry(&self, room: &str) {
        if self.opened.agents.contains_key(room) {
            self.opened.announced.lock().retry(room);
        } else {
            self.opened.announced.lock().retry_space();
        }
        self.kept().change(|ledger| ledger.retry(room));
    }
}

impl Shared {
    /// Submits the task of a request, or refuses it, and returns what is noted of it.
    async fn handled(&self, (room, agent): (&str, &AgentName), event: &Event, own: &str, asked: Asked) -> Request {
        let Asked { form, id, trace_id, work } = asked;
        let (account, id) = (&*event.sender, id.unwrap_or_else(|| event.id.clone()));
        let person = self.opened.config.people.get(account);
        let to = person.map_or(account, |person| person);
        let mut request = Request::new(room, agent, form, (&id, account, to));
        request.trace_id = trace_id;
        let run = run_of(own, room, &event.id);
        match self.begun((room, agent), (account, person.map(|person| &**person)), work, run).await {
            Ok(requester) => {
                tracing::info!(target: "callboard::audit", channel = NAME, account, room, who = to, %requester, %agent, %run, "request");
                request.run = Some(run);
            }
            Err(why) => {
                tracing::info!(target: "callboard::audit", channel = NAME, account, room, why, "refused");
                request.ending = Some(Ending::Refused(why));
            }
        }
        request
    }

    /// Submits a task, and returns in whose name.
    ///
    /// # Errors
    /// Why it is refused.
    async fn begun(
        &self,
        (room, agent): (&str, &AgentName),
        (account, person): (&str, Option<&str>),
        work: Result<Work, String>,
        run: RunId,
    ) -> Result<AgentName, String> {
        let person = person.ok_or("this account may not give tasks here")?;
        let Work { body, input, reference } = work?;
        if let Some(why) = self.kept().ledger().is_full(room, account) {
            return Err(why);
        }
        let requester = (self.requester)(person, agent)?;
        let mut task = Task::new(&body).to(agent.as_str()).durability(Durability::Sync).id(run);
        task.input = input.map(Into::into);
        task.reference = reference.map(Into::into);
        task.from_agent = Some(requester.clone());
        task.is_untrusted = true;
        let mut delays = self.kept().delays();
        loop {
            match self.submit(task.clone(), run).await {
                Ok(()) => return Ok(requester),
                Err(Halt::Refused(why)) => return Err(why),
                Err(Halt::Later(why)) => tracing::debug!(why, "a request on Matrix is submitted again"),
            }
            self.kept().pause(&mut delays).await;
        }
    }

    /// Submits a task, or finds its run, which an earlier process has begun.
    async fn submit(&self, task: Task, run: RunId) -> Result<(), Halt> {
        // A task that is there already is not admitted again: the board may be full, or its agent gone.
        match self.board.run(run).read().await {
            Err(RunError::Unknown(_)) => Ok(self.board.try_submit(task).await.map(drop)?),
            Err(RunError::Storage(error)) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// The run of an event: the same for the same event.
fn run_of(account: &str, room: &str, event: &str) -> RunId {
    let mut hash = Sha256::new();
    hash.update(b"callboard request on Matrix\0");
    for part in [account, room, event] {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part);
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    RunId::of_hash(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_submitted_again_and_anything_else_is_refused() {
        let is_later = |error: SubmitError| matches!(Halt::from(error), Halt::Later(_));
        assert!(is_later(Refusal::ShuttingDown.into()));
        assert!(is_later(StorageError::Unavailable { detail: "busy".into() }.into()));
        assert!(is_later(StorageError::Closed.into()) && !is_later(SubmitError::NoAgents));
        assert!(!is_later(Refusal::DeadlinePassed.into()));
    }
}
