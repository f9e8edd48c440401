//! The store of a `callboard run`, and the earlier run that it continues.

use callboard::messages::{RunEvent, RunId, RunResult, visible};

use crate::page::{Failure, note};
use crate::retry::FailedTurn;
use crate::stores::Stores;
use crate::stores::store::{Loaded, Store};

use super::arguments::Run;
use super::hints;

/// The open store, and the earlier run.
pub(super) struct Kept {
    pub(super) stores: Stores,
    pub(super) store: Store,
    /// The run to resume or to retry.
    pub(super) before: Option<Loaded>,
}

impl Kept {
    /// Opens the store for a new run, or the one with the run to resume or retry.
    pub(super) async fn open(arguments: &Run) -> Result<Self, Failure> {
        let stores = arguments.choice.stores()?;
        let (store, before) = match arguments.resume.as_ref().or(arguments.retry.as_ref()) {
            Some(wanted) if arguments.resume.is_some() => {
                let (store, before) = stores.load_to_resume(wanted).await?;
                (store, Some(before))
            }
            Some(wanted) => {
                let (store, run) = stores.take_with(wanted).await?;
                let before = store.load(run).await?;
                (store, Some(before))
            }
            None => match &arguments.conversation {
                Some(conversation) => (stores.take_for(conversation).await?, None),
                None => (stores.take()?, None),
            },
        };
        Ok(Self { stores, store, before })
    }

    /// The result of the run to resume, if it has ended; closes the store then.
    pub(super) async fn result(&self, arguments: &Run) -> Option<RunResult> {
        let before = self.before.as_ref()?;
        let result = before.replay.result()?.clone();
        if !arguments.quiet {
            note(&format!("run {} has ended already", before.id));
        }
        self.advise_retry(before.id, &before.history, &result, arguments);
        self.store.close_or_note().await;
        Some(result)
    }

    /// Prints the command line that retries the failed turn.
    pub(super) fn advise_retry(&self, run: RunId, history: &[RunEvent], result: &RunResult, arguments: &Run) {
        let (Some(RunEvent::Submitted(submission)), false) = (history.first(), result.outcome.is_finished()) else {
            return;
        };
        if let Some(failed) = FailedTurn::to_retry(history, &result.outcome) {
            let limits = failed.raised_limits(submission.limits());
            let line = hints::retrial(run, limits.as_deref(), self.stores.named(), arguments);
            note(&failed.advice(limits.as_deref(), &visible(&line)));
        }
    }
}
