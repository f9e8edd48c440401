//! Where a run of `callboard run` is kept.

use callboard::messages::{RunEvent, RunId, RunResult, visible};

use crate::page::{Failure, note};
use crate::retry::FailedTurn;
use crate::stores::Stores;
use crate::stores::store::{Loaded, Store};

use super::arguments::Run;
use super::hints;

/// Where the run is kept.
pub(super) struct Kept {
    pub(super) stores: Stores,
    pub(super) store: Store,
    /// The run to continue, or to do again.
    pub(super) before: Option<Loaded>,
}

impl Kept {
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

    /// What the run that is wanted has resulted in, if it has ended.
    pub(super) async fn result(&self, arguments: &Run) -> Option<RunResult> {
        let before = self.before.as_ref()?;
        let result = before.replay.result()?.clone();
        if !arguments.quiet {
            note(&format!("run {} has ended already", before.id));
        }
        self.advise_retry(before.id, &before.history, &result, arguments);
        self.store.sled().close().await;
        Some(result)
    }

    /// Prints how a failed turn is done again.
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
