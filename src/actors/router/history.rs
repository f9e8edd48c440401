//! Messages of delegations from the journals of their runs. An inbox is recalled when it is first opened: from the runs that are
//! open then, and from those that the index of inboxes names, the latest end first and only as far back as the inbox needs.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::try_join_all;

use crate::messages::state::StateRules;
use crate::messages::{AgentName, RequestId, RunId, Status, Timestamp};
use crate::storage::{Journal, StorageError};

use super::Router;
use super::derive::{Wanted, of_run, owners};
use super::ledger::{DelegationLedger, DelegationStatus, InboxMessage, Placed};

/// How many runs are read at once.
const READ_TOGETHER: usize = 16;

/// What was recalled already.
#[derive(Debug, Default)]
pub(super) struct Recalled {
    /// The index is complete, and the runs that were open have been read.
    has_begun: bool,
    /// The agents whose inboxes are complete.
    agents: BTreeSet<String>,
    /// The runs whose journals have been read.
    runs: BTreeSet<RunId>,
}

impl Router {
    /// Adds the messages of an agent's inbox from the journals. Each run is read at most once, for all inboxes together.
    ///
    /// # Errors
    /// What the store reports; the next call continues where this one stopped. A run that cannot be read is left out.
    pub(super) async fn recall(&self, agent: &str) -> Result<(), StorageError> {
        let mut recalled = self.recalled.lock().await;
        if recalled.agents.contains(agent) {
            return Ok(());
        }
        self.drain_outbox();
        if !recalled.has_begun {
            if !self.journal.has_all_inboxes().await? {
                index(&self.journal, &self.rules).await?;
            }
            for run in self.journal.open_runs().await? {
                self.read_messages(run, &mut recalled).await?;
            }
            recalled.has_begun = true;
        }
        let mut last = None;
        loop {
            let page = self.journal.inbox_notes(agent, last.as_ref()).await?;
            last = page.last().cloned();
            for note in page {
                if self.ledger.lock().is_full_since(agent, note.ended) {
                    last = None;
                    break;
                }
                if !self.read_messages(note.run, &mut recalled).await? {
                    self.journal.forget_inbox_note(note).await?;
                }
            }
            if last.is_none() {
                break;
            }
        }
        recalled.agents.insert(agent.to_owned());
        Ok(())
    }

    /// Enters the messages of a run, unless they were read before; `false` if it has none, as one that is gone.
    async fn read_messages(&self, run: RunId, recalled: &mut Recalled) -> Result<bool, StorageError> {
        if recalled.runs.contains(&run) {
            return Ok(true);
        }
        let Some(messages) = self.messages_of(run).await? else { return Ok(true) };
        recalled.runs.insert(run);
        let is_any = !messages.is_empty();
        let is_there = |agent: &str| self.directory.read().is_present(agent);
        Self::enter_all(&mut self.ledger.lock(), messages, is_there);
        Ok(is_any)
    }

    /// The newest messages of an inbox on a store that several boards work on, oldest first. Other boards enter nothing here, so they are
    /// derived from the journals each time: of the runs that are open, and of those that the index names, the latest end first and only
    /// as far back as the inbox needs. `is_elsewhere` is whether another board hosts an agent.
    ///
    /// # Errors
    /// What the store reports. A run that cannot be read is left out.
    pub(crate) async fn inbox_of_all_boards(
        &self,
        agent: &str,
        is_elsewhere: impl Fn(&str) -> bool,
    ) -> Result<Vec<InboxMessage>, StorageError> {
        if !self.journal.has_all_inboxes().await? {
            index(&self.journal, &self.rules).await?;
        }
        self.drain_outbox();
        let is_there = |agent: &str| self.has_present(agent) || is_elsewhere(agent);
        let mut ledger = DelegationLedger::new(self.limits);
        for runs in self.journal.open_runs().await?.chunks(READ_TOGETHER) {
            self.derive_into(&mut ledger, runs, &is_there).await?;
        }
        let mut last = None;
        'pages: loop {
            let page = self.journal.inbox_notes(agent, last.as_ref()).await?;
            last = page.last().cloned();
            for notes in page.chunks(READ_TOGETHER) {
                let runs: Vec<RunId> = notes.iter().map(|note| note.run).collect();
                let has_any = self.derive_into(&mut ledger, &runs, &is_there).await?;
                for (note, _) in notes.iter().zip(has_any).filter(|(_, has_any)| !has_any) {
                    self.journal.forget_inbox_note(note.clone()).await?;
                }
                if notes.last().is_some_and(|note| ledger.is_full_since(agent, note.ended)) {
                    break 'pages;
                }
            }
            if last.is_none() {
                break;
            }
        }
        Ok(ledger.inbox(agent))
    }

    /// Enters the messages of some runs; whether each has any, or may have some that cannot be read.
    async fn derive_into(
        &self,
        ledger: &mut DelegationLedger,
        runs: &[RunId],
        is_there: impl Fn(&str) -> bool,
    ) -> Result<Vec<bool>, StorageError> {
        let read = runs.iter().map(|run| self.messages_of(*run));
        let read = try_join_all(read).await?;
        let has_any =
            read.iter().map(|messages| messages.as_ref().is_none_or(|messages| !messages.is_empty())).collect();
        for messages in read.into_iter().flatten() {
            Self::enter_all(ledger, messages, &is_there);
        }
        Ok(has_any)
    }

    /// The messages of a run; `None` if it cannot be read.
    async fn messages_of(&self, run: RunId) -> Result<Option<Vec<Placed>>, StorageError> {
        match of_run(&self.journal, run, &self.rules, Wanted::Own, |name| self.named(name)).await {
            Ok(messages) => Ok(Some(messages)),
            Err(error @ StorageError::Corrupt { .. }) => {
                tracing::warn!(parent: None, %run, %error, "the run cannot be read; its messages are in no inbox");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Enters the messages of a run. An acknowledgement that nothing follows waits until its agent is there.
    fn enter_all(ledger: &mut DelegationLedger, messages: Vec<Placed>, is_there: impl Fn(&str) -> bool) {
        let followed: BTreeSet<RequestId> = messages.iter().filter_map(Placed::follows_acknowledgement).collect();
        for placed in messages {
            match placed.acknowledged_by() {
                Some(agent) if !followed.contains(&placed.message.request_id()) && !is_there(agent.host()) => {
                    ledger.hold(placed);
                }
                Some(_) | None => ledger.enter(placed),
            }
        }
    }

    /// The status of a delegation that is in no inbox, from its run's journal.
    pub(super) async fn recalled(&self, request: RequestId) -> Result<Option<DelegationStatus>, StorageError> {
        let run = request.turn.run;
        let messages = of_run(&self.journal, run, &self.rules, Wanted::All, |name| self.named(name)).await?;
        let status = self.limits.last_of(request, &messages, self.env.now().wall);
        let directory = self.directory.read();
        Ok(status.filter(|last| last.status != Status::Ack || directory.is_present(last.from_agent.host())))
    }
}

/// Completes the index of a store that was written without it. Reads all runs that have ended, once for the store.
async fn index(journal: &Journal, rules: &StateRules) -> Result<(), StorageError> {
    let open: BTreeSet<RunId> = journal.open_runs().await?.into_iter().collect();
    let ends: BTreeMap<RunId, Timestamp> = journal.ended_runs().await?.into_iter().map(|(at, run)| (run, at)).collect();
    for run in journal.runs().await?.into_iter().filter(|run| !open.contains(run)) {
        let messages = match of_run(journal, run, rules, Wanted::Own, |name| AgentName::new(name).ok()).await {
            Ok(messages) => messages,
            Err(StorageError::Corrupt { .. }) => continue,
            Err(error) => return Err(error),
        };
        let Some(last) = messages.last() else { continue };
        let inboxes = owners(&messages);
        match ends.get(&run) {
            Some(at) => journal.note_ended(run, *at, &inboxes).await?,
            // The note of its end was lost.
            None => journal.note_inboxes(run, last.at, &inboxes).await?,
        }
    }
    journal.note_all_inboxes().await
}
