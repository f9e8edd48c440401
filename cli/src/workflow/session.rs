//! A board in this process that works on one run of a workflow, and leaves all others as they are.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use serde_json::Value;

use callboard::actors::StreamMode;
use callboard::messages::{
    ConversationId, Interrupt, Limits, PendingId, RunEvent, RunResult, Submission, visible, visible_lines,
};
use callboard::prelude::*;
use callboard::runtime::{RunError, RunHandle, Unfinished};
use callboard::supervision::runs::Run as State;

use crate::agents::decide::{self, unless_closed};
use crate::agents::watch::{Watch, changed};
use crate::agents::{load, process_log};
use crate::exit::Exit;
use crate::output::{self, note_words};
use crate::page::{Failure, is_coloured, note};
use crate::person::{self, is_anybody_here};
use crate::process::End;
use crate::retry::advice;
use crate::run_names::short;
use crate::service::boards::Reachable;
use crate::service::left::take_up;
use crate::signals::Signals;
use crate::stores::Stores;
use crate::stores::store::Store;
use crate::telemetry::{self, Spans};
use crate::waits::{self, rests};

use super::arguments::Execution;
use super::hints;
use super::interrupts::{self, Decision};
use super::programs::{Agents, agents};
use super::progress::{Follower, Line};
use super::steps::{Step, lines, next_step};

/// The options of a submission besides its input.
pub(super) struct SubmitOptions {
    pub(super) limits: Option<Limits>,
    pub(super) approval_ttl: Option<Duration>,
    pub(super) handoffs: Handoffs,
    pub(super) conversation: Option<ConversationId>,
}

/// A board, and the run that it works on.
pub(super) struct Session<'a> {
    pub(super) board: Callboard,
    kept: Option<(Stores, Store)>,
    execution: &'a Execution,
    watch: Option<Watch>,
    /// What exports the spans of the run.
    spans: Spans,
    /// Other processes reach the run.
    _reachable: Option<Reachable>,
}

impl<'a> Session<'a> {
    pub(super) async fn start(
        agents: Agents,
        kept: Option<(Stores, Store)>,
        execution: &'a Execution,
    ) -> Result<Self, Failure> {
        // Other unfinished runs of the store have agents that this process may not have.
        let mut builder = Callboard::builder().on_unfinished(Unfinished::Leave);
        if let Some((_, store)) = &kept {
            builder = builder.storage(store.storage());
        }
        if execution.watch {
            process_log::show();
        }
        let builder = agents.specs.into_iter().fold(builder, callboard::Builder::with);
        let per_run = agents.limits.per_run;
        let builder = builder.day_limits(|days| agents.limits.of_days(days)).run_limits(move |_| per_run);
        let board = load::share_rates(builder, agents.models.as_ref()).start().await.map_err(Failure::of)?;
        let spans = telemetry::start(&board, agents.models);
        let reachable = if kept.is_some() { Some(Reachable::start(&board).await) } else { None };
        Ok(Self { board, kept, execution, watch: agents.watch, spans, _reachable: reachable })
    }

    /// Has the board continue a run of its store.
    pub(super) async fn take_up(&self, run: RunId) -> RunHandle {
        match &self.kept {
            Some((stores, store)) => take_up(&self.board, run, (stores, store)).await,
            None => self.board.take_up(run).await,
        }
    }

    /// Resumes these nodes, and shows the state of the run.
    pub(super) async fn resume(
        &self,
        run: &RunHandle,
        follower: &mut Follower,
        chosen: &[Interrupt],
        resume: &Resume,
    ) -> Result<(), Failure> {
        for interrupt in chosen {
            let resumed = self.board.people().answer(interrupt, resume.clone(), &person::name()).await;
            resumed
                .map_err(|error| Failure::new(Exit::from(&error), format!("{}: {error}", visible(&interrupt.node))))?;
        }
        let read = run.read().await.map_err(Failure::of)?;
        self.show(&follower.catch_up(read));
        Ok(())
    }

    /// Follows the run until it ends, or until this process can do no more for it; then shuts the board down.
    pub(super) async fn see_through(
        mut self,
        run: RunHandle,
        mut follower: Follower,
        mut signals: Signals,
    ) -> Result<End, Failure> {
        let end = tokio::select! {
            biased;
            () = signals.next() => {
                note("stopping: programs that run have 10 s to end; Ctrl-C again stops them at once");
                Ok(End::not_begun())
            }
            end = self.follow(&run, &mut follower) => end,
        };
        let kept = self.kept.as_ref();
        let of_people = kept.map(|(stores, _)| hints::resumption(short(run.id()), stores.named(), self.execution));
        let resumption = kept.map(|(stores, _)| hints::resumption(run.id(), stores.named(), self.execution));
        let hint = match &end {
            Ok(End::Waits(_) | End::Stopped { .. }) => Some(match &of_people {
                Some(resumption) => format!("to continue: {}", visible(resumption)),
                None => "the run cannot be continued: --ephemeral stores nothing of it".to_owned(),
            }),
            Err(_) if is_left_by_its_store(&run).await => {
                of_people.as_ref().map(|resumption| format!("to continue: {}", visible(resumption)))
            }
            Ok(End::Result(_) | End::Shown) | Err(_) => None,
        };
        let ended = tokio::select! {
            biased;
            () = signals.next() => None,
            state = self.end(&run) => state,
        };
        let state = match (ended, &end) {
            // A signal came while the board ended.
            (None, Ok(End::Waits(_))) => run.read().await.ok(),
            (ended, _) => ended,
        };
        // The run may end while the board shuts down.
        let result = state.as_ref().and_then(State::result);
        if let (Ok(End::Waits(_) | End::Stopped { .. }), Some(result)) = (&end, result) {
            return Ok(End::Result(Box::new((**result).clone())));
        }
        let open = state.as_ref().map(waits::open).unwrap_or_default();
        if matches!(end, Ok(End::Waits(_))) {
            self.print_waits(&open, &follower);
        }
        if let Some(hint) = hint {
            note(&hint);
        }
        end.map(|end| match end {
            End::Waits(_) => End::Waits(waits::json(run.id(), &open, resumption.as_deref())),
            End::Stopped { .. } => End::Stopped { run: Some(run.id()), resumption },
            End::Result(_) | End::Shown => end,
        })
    }

    async fn follow(&mut self, run: &RunHandle, follower: &mut Follower) -> Result<End, Failure> {
        let mut decided = BTreeSet::new();
        let mut events = run.events(follower.next_sequence(), &[StreamMode::Debug]).await.map_err(Failure::of)?;
        let is_anybody_here = is_anybody_here(self.execution.no_input);
        let mut rests = pin!(rests(run, is_anybody_here));
        loop {
            if is_anybody_here && !follower.continues(&decided) && !self.ask(run, follower, &mut decided).await? {
                return Ok(End::Waits(Value::Null));
            }
            output::room().await;
            let asks_in = self.execution.folder.agents.is_some().then_some(&*self.execution.folder.root);
            let asks_in = asks_in.filter(|_| is_anybody_here);
            let changed = changed(&mut self.watch);
            match next_step(&self.board, &mut events, rests.as_mut(), asks_in, changed).await? {
                Step::Watched(watched) => self.show(&lines(follower, run, &watched).await?),
                Step::Decided => {}
                Step::Waits => return Ok(End::Waits(Value::Null)),
                Step::Ended => break,
                Step::Other => {
                    if let Some(watch) = &mut self.watch {
                        watch.reload(&self.board).await.iter().for_each(|line| note_words(line));
                    }
                }
            }
        }
        let result = run.result().await.map_err(Failure::of)?;
        let stores = self.kept.as_ref().map(|(stores, _)| stores);
        advise_retry(&run.history().await.unwrap_or_default(), &result, stores, self.execution);
        Ok(End::Result(Box::new(result)))
    }

    /// Asks the person at the terminal about the interrupted nodes; `false` if none was decided.
    async fn ask(&self, run: &RunHandle, follower: &Follower, decided: &mut BTreeSet<u32>) -> Result<bool, Failure> {
        let (before, people) = (decided.len(), self.board.people());
        for interrupt in follower.run().map(interrupts::of).unwrap_or_default() {
            if decided.contains(&interrupt.turn.number) {
                continue;
            }
            let (turn, node) = (interrupt.turn, visible(&interrupt.node));
            let id = PendingId::from(&interrupt);
            if run.pending().await.iter().all(|open| open.id() != id) {
                // No event reports it yet.
                decided.insert(turn.number);
                continue;
            }
            let ask = move |withdrawal| interrupts::ask(&interrupt, withdrawal);
            let Some(asked) = unless_closed(ask, people.closed(id)).await else {
                note_words(&format!("{node} no longer waits for a person"));
                decided.insert(turn.number);
                continue;
            };
            let input = match asked.unwrap_or(Decision::Leave) {
                Decision::Continue => None,
                Decision::ContinueWith(input) => Some(input.into()),
                Decision::Leave => continue,
                Decision::CancelRun => {
                    let cancelled = run.cancel(&format!("cancelled by {}", person::name())).await;
                    return cancelled.map_err(Failure::of).map(|_| {
                        decided.insert(turn.number);
                        true
                    });
                }
            };
            let resumed = people.answer(id, Resume { input, ..Resume::default() }, &person::name()).await;
            resumed.map_err(Failure::of)?;
            decided.insert(turn.number);
        }
        Ok(decided.len() > before)
    }

    fn print_waits(&self, open: &[Pending], follower: &Follower) {
        let place = decide::place(&self.execution.folder.root);
        if !is_anybody_here(self.execution.no_input) {
            waits::note_cards(open, place.as_deref());
        }
        waits::note_nodes(open);
        for (node, why) in follower.troubled() {
            let why = visible_lines(&why).replace('\n', "\n  │ ");
            note_words(&format!("{} needs attention: {why}", visible(&node)));
        }
    }

    /// Prints a line about the run, if it is stored or watched.
    pub(super) fn print(&self, text: &str) {
        if self.execution.watch || self.kept.is_some() {
            note(text);
        }
    }

    pub(super) fn show(&self, lines: &[Line]) {
        if self.execution.watch {
            let is_coloured = is_coloured(&std::io::stderr());
            lines.iter().for_each(|line| note_words(&line.shown(is_coloured)));
        }
    }

    /// Shuts the board down and closes the store; returns the state of the run.
    async fn end(&self, run: &RunHandle) -> Option<State> {
        self.board.shutdown().await;
        self.spans.end().await;
        let state = run.read().await.ok();
        self.close().await;
        state
    }

    /// Shuts the board down and closes the store, for a run that has not begun.
    pub(super) async fn give_up(&self) {
        self.board.shutdown().await;
        self.close().await;
    }

    async fn close(&self) {
        if let Some((_, store)) = &self.kept {
            store.close_or_note().await;
        }
    }
}

/// Whether the run ended without a result because its store has stopped.
pub(crate) async fn is_left_by_its_store(run: &RunHandle) -> bool {
    const WAIT: Duration = Duration::from_secs(1);
    matches!(tokio::time::timeout(WAIT, run.result()).await, Ok(Err(RunError::StoreStopped { .. })))
}

/// Prints how to continue after a run that did not finish; `stores` is `None` for a run that is not stored.
pub(super) fn advise_retry(history: &[RunEvent], result: &RunResult, stores: Option<&Stores>, execution: &Execution) {
    let line = stores.map(|stores| {
        let (run, store) = (short(result.run), stores.named());
        move |submission: &Submission, limits: Option<&str>| match submission.task.plan {
            Some(_) => hints::retrial(run, limits, store, execution),
            None => hints::agent_retrial(run, limits, store, execution),
        }
    });
    if let Some(advice) = advice(history, result, line) {
        note(&advice);
    }
}

/// The agents of a run, and its signals; `None` if a signal came before the agents were loaded.
pub(super) async fn agents_for(
    (execution, files): (&Execution, &[PathBuf]),
    stores: Option<&Stores>,
    cast: &[String],
) -> Result<Option<(Agents, Signals)>, Failure> {
    // Installed before a program runs, because a program may send the signal.
    let mut signals = Signals::new()?;
    let agents = tokio::select! {
        biased;
        () = signals.next() => {
            note("stopped before the run began");
            return Ok(None);
        }
        agents = agents((execution, files), stores, cast) => agents?,
    };
    Ok(Some((agents, signals)))
}
