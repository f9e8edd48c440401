//! The store of a `callboard run`, and the earlier run that it continues.

use callboard::messages::{RunEvent, RunResult, Submission, visible};

use crate::page::{Failure, note};
use crate::retry::{advice, raised_limits};
use crate::run_names::short;
use crate::stores::Stores;
use crate::stores::store::{Loaded, Store};

use super::arguments::{Allowance, Run};
use super::hints;
use super::patterns::is_of_workflow;

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
        let stores = arguments.choice.stores_with(&arguments.files)?;
        stores.check_outside(&arguments.files.root)?;
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
            None => {
                let store = stores.take_new(arguments.conversation.as_ref()).await?;
                if let Some(hint) = stores.hint().await.filter(|_| !arguments.quiet) {
                    note(&hint);
                }
                (store, None)
            }
        };
        let kept = Self { stores, store, before };
        kept.check_command(arguments)?;
        Ok(kept)
    }

    /// Refuses a run of a workflow, which `callboard workflow` resumes and retries: this command neither asks about its nodes nor has the
    /// programs that are its agents. The result of one that has ended is printed.
    fn check_command(&self, arguments: &Run) -> Result<(), Failure> {
        let Some(Loaded { id, replay, history, .. }) = &self.before else { return Ok(()) };
        let submission = replay.submission();
        let (is_retry, result) = (arguments.retry.is_some(), replay.result());
        if !is_of_workflow(submission) || (!is_retry && result.is_some()) {
            return Ok(());
        }
        let store = self.stores.named();
        let (verb, line) = if is_retry {
            let chosen = match &arguments.limits {
                Some(Allowance::Named(limits)) => Some(limits.argument()),
                // Refused when the arguments were checked.
                Some(Allowance::Judged) | None => None,
            };
            let failed = || raised_limits(history, result?);
            let limits = chosen.or_else(failed);
            ("retry", hints::workflow_retrial(submission, short(*id), limits.as_deref(), (store, arguments)))
        } else {
            ("resume", hints::workflow_resumption(submission, short(*id), store, arguments))
        };
        let missing =
            if line.lacks_programs { "\nin place of COMMAND comes the program that is this agent" } else { "" };
        let name = submission.task.plan.as_ref().map(|plan| visible(&plan.name)).unwrap_or_default();
        Err(Failure::usage(format!(
            "run {} is a run of the workflow {name}, which callboard run cannot {verb}; to {verb} it: {}{missing}",
            short(*id),
            visible(&line.text)
        )))
    }

    /// The result of the run to resume, if it has ended; closes the store then.
    pub(super) async fn result(&self, arguments: &Run) -> Option<RunResult> {
        let before = self.before.as_ref()?;
        let result = before.replay.result()?.clone();
        if !arguments.quiet {
            note(&format!("run {} has ended already", short(before.id)));
        }
        advise_retry(&before.history, &result, Some(&self.stores), arguments);
        self.store.close_or_note().await;
        Some(result)
    }
}

/// Prints how to continue after a run that did not finish; `stores` is `None` for a run that is not stored.
pub(super) fn advise_retry(history: &[RunEvent], result: &RunResult, stores: Option<&Stores>, arguments: &Run) {
    let line = stores.map(|stores| {
        let (run, store) = (short(result.run), stores.named());
        move |submission: &Submission, limits: Option<&str>| {
            if is_of_workflow(submission) {
                hints::workflow_retrial(submission, run, limits, (store, arguments)).text
            } else {
                hints::retrial(run, limits, store, arguments)
            }
        }
    });
    if let Some(advice) = advice(history, result, line) {
        note(&advice);
    }
}
