//! A board of this process for one run of a workflow of the base. A run of the same that was left before is continued.

use std::io::IsTerminal as _;
use std::path::Path;
use std::pin::pin;

use callboard::messages::{RunResult, StateRules, visible};
use callboard::prelude::*;
use callboard::runtime::{RunHandle, Unfinished};
use callboard::supervision::runs::Run as State;
use callboard_agents::Models;
use serde_json::Value;

use crate::agents::decide::restart_turns;
use crate::agents::load;
use crate::exit::Exit;
use crate::output::{note, note_words};
use crate::page::{Failure, Page};
use crate::person::is_anybody_here;
use crate::run_names::short;
use crate::service::boards::Reachable;
use crate::signals::Signals;
use crate::stores::Stores;
use crate::stores::store::Store;
use crate::submitting::submit;
use crate::waits::{self, rests};
use crate::workflow::progress::{Follower, Kind, Line};
use crate::workflow::steps::{Step, lines, next_step};

/// A run that is to be made, and how.
pub(super) struct Cycles<'a> {
    pub(super) stores: &'a Stores,
    pub(super) agents: Vec<AgentSpec>,
    /// The models of the agents.
    pub(super) models: Option<Models>,
    pub(super) task: Task,
    /// Whether a run with this input is the same one.
    pub(super) is_same: &'a dyn Fn(&Json) -> bool,
    /// The command line that continues it.
    pub(super) line: String,
    pub(super) no_input: bool,
    /// Whether lines report what its nodes do.
    pub(super) is_shown: bool,
}

/// How it ended in this process.
pub(super) enum Ended {
    Result {
        result: Box<RunResult>,
        /// The run was made by an earlier process.
        is_continued: bool,
    },
    /// The same command continues it; the page says what it waits for.
    Left(Page),
}

enum Stopped {
    Ended,
    Waits,
    BySignal,
}

impl Cycles<'_> {
    pub(super) async fn run(self) -> Result<Ended, Failure> {
        let Self { stores, agents, models, task, is_same, line, no_input, is_shown } = self;
        let mut signals = Signals::new()?;
        let (store, before) = store_of(stores, &task, is_same).await?;
        let builder = Callboard::builder().on_unfinished(Unfinished::Leave).storage(store.storage());
        let builder = load::share_rates(builder, models.as_ref());
        let board = agents.into_iter().fold(builder, callboard::Builder::with).start().await.map_err(Failure::of)?;
        let reachable = Reachable::start(&board).await;
        let is_continued = before.is_some();
        let run = match before {
            Some(id) => {
                note(&format!("run {} is continued", short(id)));
                let run = board.take_up(id).await;
                restart_turns(&board, &run).await;
                Ok(run)
            }
            None => submit(&board, task).await.map_err(Failure::of),
        };
        let followed = match &run {
            Ok(run) => {
                tokio::select! {
                    biased;
                    () = signals.next() => Ok(Stopped::BySignal),
                    stopped = follow(&board, run, no_input, is_shown) => stopped,
                }
            }
            // It has not begun.
            Err(_) => Ok(Stopped::Ended),
        };
        if matches!(followed, Ok(Stopped::BySignal)) {
            note("stopping: what runs has 10 s to end; Ctrl-C again stops it at once");
        }
        tokio::select! {
            biased;
            () = signals.next() => {}
            _ = async { reachable.stop().await; board.shutdown().await } => {}
        }
        let run = run?;
        let state = run.read().await.ok();
        store.close_or_note().await;
        // It may end while the board shuts down.
        if let Some(result) = state.as_ref().and_then(State::result) {
            return Ok(Ended::Result { result: Box::new((**result).clone()), is_continued });
        }
        let exit = match followed? {
            Stopped::Ended => return Err(Failure::failed(format!("run {} was left by its store", short(run.id())))),
            Stopped::Waits => Exit::Waits,
            Stopped::BySignal => Exit::Interrupted,
        };
        let open = state.as_ref().map(waits::open).unwrap_or_default();
        if exit == Exit::Waits && !is_anybody_here(no_input) {
            waits::note_cards(&open, None);
        }
        note(&format!("to continue: {}", visible(&line)));
        Ok(Ended::Left(Page { exit, ..Page::new(String::new(), waits::json(run.id(), &open, Some(&line))) }))
    }
}

/// The store for the run, with the run that is continued if one of the same was left.
async fn store_of(
    stores: &Stores,
    task: &Task,
    is_same: &dyn Fn(&Json) -> bool,
) -> Result<(Store, Option<RunId>), Failure> {
    // A store that does not exist yet has no run.
    let Ok(open) = stores.open().await else { return Ok((stores.take_new(None).await?, None)) };
    let name = task.plan.as_ref().map(|plan| &plan.name);
    for store in &open.stores {
        for id in store.open_runs().await? {
            let Ok(loaded) = store.load(id).await else { continue };
            let before = &loaded.replay.submission().task;
            let is_this =
                before.plan.as_ref().map(|plan| &plan.name) == name && before.input.as_ref().is_some_and(is_same);
            // The note that a run is open may outlast it.
            if !is_this || loaded.replay.result().is_some() {
                continue;
            }
            if !store.is_copy() {
                store.check_is_free(id).await?;
            }
            drop(open);
            return stores.take_with(&id.to_string()).await.map(|(store, id)| (store, Some(id)));
        }
    }
    drop(open);
    Ok((stores.take_new(None).await?, None))
}

/// Shows what the run does and asks what it asks, until it ends or this process can do no more for it.
async fn follow(board: &Callboard, run: &RunHandle, no_input: bool, is_shown: bool) -> Result<Stopped, Failure> {
    let is_anybody_here = is_anybody_here(no_input);
    let asks_in = is_anybody_here.then_some(Path::new("."));
    let mut follower = Follower::new(StateRules::default());
    let mut events = run.events(follower.next_sequence(), &[StreamMode::Debug]).await.map_err(Failure::of)?;
    let mut rests = pin!(rests(run, is_anybody_here));
    loop {
        let watched = match next_step(board, &mut events, rests.as_mut(), asks_in, std::future::pending()).await? {
            Step::Watched(watched) => watched,
            Step::Decided | Step::Other => continue,
            Step::Waits => return Ok(Stopped::Waits),
            Step::Ended => return Ok(Stopped::Ended),
        };
        if let Watched::Event { event, .. } = &watched
            && let RunEvent::Noticed { text, .. } = &**event
            && (is_shown || std::io::stderr().is_terminal())
        {
            note_words(&visible(text));
        }
        let lines = lines(&mut follower, run, &watched).await?;
        if is_shown {
            lines.iter().filter_map(progress).for_each(|line| note_words(&line));
        }
    }
}

/// What is shown of an event: of a node that went well its name alone, and nothing of the turns within it.
fn progress(line: &Line) -> Option<String> {
    let is_node = !line.node().starts_with("turn ");
    match line.kind {
        Kind::Started => is_node.then(|| format!("{} begins", line.node())),
        Kind::Finished => is_node.then(|| format!("{} is done", line.node())),
        Kind::Failed | Kind::Retried | Kind::Waits => Some(line.shown(false)),
        Kind::Repeated | Kind::Cancelled => None,
    }
}

/// The failure that a run is which did not finish.
pub(super) fn not_finished(result: &RunResult) -> Failure {
    Failure::new(Exit::from(&result.outcome), visible(&result.outcome.to_string()))
}

/// Whether two inputs are the same but for these fields.
pub(super) fn same_but_for(fields: &[&str], one: &Value, other: &Value) -> bool {
    let of = |value: &Value| {
        let mut value = value.clone();
        if let Some(object) = value.as_object_mut() {
            fields.iter().for_each(|field| drop(object.remove(*field)));
        }
        value
    };
    of(one) == of(other)
}
