//! `callboard workflow run|resume|fork`: a board in this process that works on one run, and leaves all others as they are.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::Value;

use callboard::actors::events::{StreamMode, Watched};
use callboard::messages::state::StateRules;
use callboard::messages::{ConversationId, Json, Limits, Reducer, RunEvent, RunId, RunResult, visible, visible_lines};
use callboard::prelude::*;
use callboard::runtime::{RunError, RunHandle, Unfinished};
use callboard::supervision::runs::fork::{Fork, ForkError};
use callboard::supervision::runs::interrupts::{Interrupt, Resume};
use callboard::supervision::runs::replay::{Cause, Replay};
use callboard::supervision::runs::run::Run as State;
use callboard::workflow::Workflow;

use crate::agents::deciding::{self, next_asked, settle, unless_closed};
use crate::agents::logged;
use crate::agents::watching::Watch;
use crate::conversations;
use crate::limiting::LimitChoice;
use crate::page::{Failure, Page, count, is_coloured, json_text, note};
use crate::person::is_anybody_here;
use crate::quoting::quoted;
use crate::retrying::{FailedTurn, retry_of};
use crate::saying::{self, note_words};
use crate::shapes;
use crate::stops::Stops;
use crate::store::{Loaded, Store};
use crate::stores::Stores;
use crate::waiting::{self, Wait, rests};

use super::arguments::{Change, Going, Stored};
use super::following::{Follower, Line};
use super::people::{self, Decision};
use super::programs::{Agents, agents};
use super::{inputs, reading};

/// How a run in this process ended, as far as this process goes.
pub(crate) enum End {
    Result(Box<RunResult>),
    /// As that, and what it came to has been told on this terminal already.
    Told,
    /// It waits for a person; for what, as machines read it.
    Waits(Value),
    /// A signal came.
    Stopped {
        /// The run, if it has begun.
        run: Option<RunId>,
        /// The command line that continues it, if one does.
        to_go_on: Option<String>,
    },
}

impl End {
    /// A signal came before there was a run.
    pub(crate) fn not_begun() -> Self {
        Self::Stopped { run: None, to_go_on: None }
    }
}

/// A board that works on one run.
struct Session<'a> {
    board: Callboard,
    kept: Option<(Stores, Store)>,
    going: &'a Going,
    watch: Option<Watch>,
}

/// What a run is submitted with besides its input.
pub(crate) struct Terms {
    pub(crate) limits: Option<Limits>,
    pub(crate) approval_ttl: Option<Duration>,
    pub(crate) handoffs: Handoffs,
    pub(crate) conversation: Option<ConversationId>,
}

/// Runs a workflow from its beginning.
pub(crate) async fn run(
    (files, line): (&[PathBuf], Option<&str>),
    input: Value,
    terms: Terms,
    stores: Option<Stores>,
    going: &Going,
) -> Result<End, Failure> {
    let workflow = one(files, line)?;
    inputs::check(&workflow, &input)?;
    check_reducers(&workflow)?;
    let cast: Vec<String> = workflow.plan().cast().into_iter().map(ToString::to_string).collect();
    // Before the tools of agents are made, which must not see it.
    let kept = match stores {
        Some(stores) => {
            let store = match &terms.conversation {
                Some(conversation) => {
                    let store = stores.take_for(conversation).await?;
                    let line = |run| people::resumption(run, stores.named(), going);
                    conversations::check_none_is_open(&store.conversations(), conversation, stores.named(), line)
                        .await?;
                    store
                }
                None => stores.take()?,
            };
            Some((stores, store))
        }
        None => None,
    };
    let hidden = kept.as_ref().map(|(stores, _)| stores.folder());
    let Some((agents, stops)) = made((going, files), hidden, &cast).await? else {
        return Ok(End::not_begun());
    };
    let session = Session::start(agents, kept, going).await?;
    let mut task = workflow.task(input);
    let Terms { limits, approval_ttl, handoffs, conversation } = terms;
    (task.limits, task.approval_ttl, task.handoffs) = (limits, approval_ttl, handoffs);
    task.conversation = conversation;
    let run = match session.board.submit(task).await {
        Ok(run) => run,
        Err(error) => {
            session.give_up().await;
            return Err(Failure::trouble(error.to_string()));
        }
    };
    session.say(&format!("run {} of {}", run.id(), visible(workflow.name())));
    session.see_through(run, Follower::new(StateRules::default()), stops).await
}

/// Goes on with a run that is in a store.
pub(crate) async fn resume(stored: &Stored, nodes: &[String], change: &Change, going: &Going) -> Result<End, Failure> {
    let (kept, loaded) = load_to_resume(stored).await?;
    if let Some(result) = loaded.replay.result() {
        note(&format!("run {} has ended already", loaded.id));
        advise_retry(loaded.id, &loaded.history, result, (kept.0.named(), going));
        return Ok(End::Result(Box::new(result.clone())));
    }
    let waiting: Vec<Interrupt> = loaded.replay.run().interrupts().collect();
    let chosen = chosen(&loaded, &waiting, nodes, change)?;
    let resume = Resume { input: change.input.clone().map(Json::from), update: inputs::update(&change.set)? };
    let Some((agents, stops)) = made((going, &[]), Some(kept.0.folder()), &cast(&loaded)?).await? else {
        return Ok(End::not_begun());
    };
    let session = Session::start(agents, Some(kept), going).await?;
    let run = session.board.take_up(loaded.id).await;
    run.restart_turns().await;
    let mut follower = Follower::new(loaded.rules.state.clone());
    let begun = session.resume(&run, &mut follower, &chosen, &resume).await;
    if let Err(failure) = begun {
        session.give_up().await;
        return Err(failure);
    }
    session.see_through(run, follower, stops).await
}

/// Begins a new run as a copy of one, and runs it to its end.
pub(crate) async fn fork(
    stored: &Stored,
    place: (Option<u32>, Option<&str>),
    change: &Change,
    going: &Going,
) -> Result<End, Failure> {
    let (kept, loaded) = load(stored).await?;
    let turn = match place {
        (Some(turn), _) => turn,
        (None, node) => turn_of(&loaded.replay, node.unwrap_or_default())?,
    };
    let input = change.input.clone().map(Json::from);
    begin_fork(kept, &loaded, turn, Fork { input, update: inputs::update(&change.set)?, ..Fork::new() }, going).await
}

/// Does what failed in a run again, in a new run, and runs that to its end.
pub(crate) async fn retry(stored: &Stored, limits: Option<&LimitChoice>, going: &Going) -> Result<End, Failure> {
    let (kept, loaded) = load(stored).await?;
    let (turn, fork) = retry_of(&loaded, limits)?;
    begin_fork(kept, &loaded, turn, fork, going).await
}

/// Why a run that is resumed is given no limits.
pub(crate) fn limits_are_kept(run: &str) -> Failure {
    Failure::trouble(format!(
        "a run keeps the limits that it began with: leave --limits out to resume it; once it has failed, callboard workflow retry {} \
         --limits … continues it in a new run",
        visible(&quoted(run))
    ))
}

async fn begin_fork(
    kept: (Stores, Store),
    loaded: &Loaded,
    turn: u32,
    fork: Fork,
    going: &Going,
) -> Result<End, Failure> {
    let Some((agents, stops)) = made((going, &[]), Some(kept.0.folder()), &cast(loaded)?).await? else {
        return Ok(End::not_begun());
    };
    let session = Session::start(agents, Some(kept), going).await?;
    let forked = session.board.fork(loaded.id, turn, fork).await;
    let run = match forked {
        Ok(run) => run,
        Err(error) => {
            session.give_up().await;
            let text = format!("run {}: {error}", loaded.id);
            return Err(match error {
                ForkError::NoTurn { .. } => Failure::unknown(text),
                _ => Failure::trouble(text),
            });
        }
    };
    session.say(&format!("run {}, forked from {} at turn {turn}", run.id(), loaded.id));
    let mut follower = Follower::new(loaded.rules.state.clone());
    if let Ok(read) = run.read().await {
        session.show(&follower.catch_up(read));
    }
    session.see_through(run, follower, stops).await
}

/// Prints how a turn that failed is done again, by which command line.
fn advise_retry(run: RunId, history: &[RunEvent], result: &RunResult, (store, going): (Option<&Path>, &Going)) {
    let (Some(RunEvent::Submitted(submission)), false) = (history.first(), result.outcome.is_finished()) else {
        return;
    };
    if let Some(failed) = FailedTurn::to_retry(history, &result.outcome) {
        let limits = failed.raised_limits(submission.limits());
        let line = people::retrial(run, limits.as_deref(), store, going);
        note(&failed.advice(limits.as_deref(), &visible(&line)));
    }
}

/// Whether nothing more is heard of the run because its store has stopped.
pub(crate) async fn is_left_by_its_store(run: &RunHandle) -> bool {
    const A_MOMENT: Duration = Duration::from_secs(1);
    matches!(tokio::time::timeout(A_MOMENT, run.result()).await, Ok(Err(RunError::StoreStopped { .. })))
}

/// What a run came to: its output alone, unless all of it is asked for.
pub(crate) fn page(result: &RunResult, as_json: bool) -> Page {
    let RunResult { outcome, output, .. } = result;
    let text = match output.as_str() {
        _ if !outcome.is_finished() || output.is_null() => String::new(),
        // Whoever reads it from a pipe gets it as it is.
        Some(text) if std::io::stdout().is_terminal() => format!("{}\n", visible_lines(text)),
        Some(text) => format!("{text}\n"),
        None => format!("{}\n", json_text(output)),
    };
    let code = u8::from(!outcome.is_finished());
    let remarks = if code == 0 || as_json { String::new() } else { format!("error: {outcome}\n") };
    Page { code, remarks, ..Page::new(text, shapes::result(result)) }
}

/// The agents of a run, and the signals that stop it; `None` if one came before the agents were made.
async fn made(
    (going, files): (&Going, &[PathBuf]),
    hidden: Option<&Path>,
    cast: &[String],
) -> Result<Option<(Agents, Stops)>, Failure> {
    // Before a program runs, because it may be what stops this process.
    let mut stops = Stops::new()?;
    let agents = tokio::select! {
        biased;
        () = stops.next() => {
            note("stopped before the run began");
            return Ok(None);
        }
        agents = agents((going, files), hidden, cast) => agents?,
    };
    Ok(Some((agents, stops)))
}

impl<'a> Session<'a> {
    async fn start(agents: Agents, kept: Option<(Stores, Store)>, going: &'a Going) -> Result<Self, Failure> {
        // What else is unfinished in the store has agents that this process does not have.
        let mut builder = Callboard::builder().on_unfinished(Unfinished::Leave);
        if let Some((_, store)) = &kept {
            builder = builder.storage(store.sled());
        }
        if going.watch {
            logged::show();
        }
        let builder = agents.specs.into_iter().fold(builder, callboard::Builder::with);
        let board = builder.start().await.map_err(|error| Failure::trouble(error.to_string()))?;
        // It is set here alone.
        Ok(Self { board, kept, going, watch: agents.watch })
    }

    /// Resumes the nodes that were chosen, and reads where the run stands.
    async fn resume(
        &self,
        run: &RunHandle,
        follower: &mut Follower,
        chosen: &[Interrupt],
        resume: &Resume,
    ) -> Result<(), Failure> {
        for interrupt in chosen {
            let resumed = run.resume(interrupt.turn, resume.clone(), &people::name()).await;
            resumed.map_err(|error| Failure::trouble(format!("{}: {error}", visible(&interrupt.node))))?;
        }
        let read = run.read().await.map_err(|error| Failure::trouble(error.to_string()))?;
        self.show(&follower.catch_up(read));
        Ok(())
    }

    /// Follows the run to its end, or to where this process can do no more for it.
    async fn see_through(mut self, run: RunHandle, mut follower: Follower, mut stops: Stops) -> Result<End, Failure> {
        let end = tokio::select! {
            biased;
            () = stops.next() => {
                note("stopping: programs that run have 10 s to end; Ctrl-C again stops them at once");
                Ok(End::not_begun())
            }
            end = self.follow(&run, &mut follower) => end,
        };
        let kept = self.kept.as_ref();
        let resumption = kept.map(|(stores, _)| people::resumption(run.id(), stores.named(), self.going));
        let hint = match &end {
            Ok(End::Waits(_) | End::Stopped { .. }) => Some(match &resumption {
                Some(resumption) => format!("to go on: {}", visible(resumption)),
                None => "nothing of it is kept, because it is --ephemeral".to_owned(),
            }),
            Err(_) if is_left_by_its_store(&run).await => {
                resumption.as_ref().map(|resumption| format!("to go on: {}", visible(resumption)))
            }
            Ok(End::Result(_) | End::Told) | Err(_) => None,
        };
        let ended = tokio::select! {
            biased;
            () = stops.next() => None,
            state = self.end(&run) => state,
        };
        let state = match (ended, &end) {
            // A signal came while the board ended.
            (None, Ok(End::Waits(_))) => run.read().await.ok(),
            (ended, _) => ended,
        };
        if let (Ok(End::Waits(_)), Some(result)) = (&end, state.as_ref().and_then(State::result)) {
            return Ok(End::Result(Box::new((**result).clone())));
        }
        let open = state.as_ref().map(waiting::open).unwrap_or_default();
        if matches!(end, Ok(End::Waits(_))) {
            self.tell_what_waits(&open, &follower);
        }
        if let Some(hint) = hint {
            note(&hint);
        }
        end.map(|end| match end {
            End::Waits(_) => End::Waits(waiting::json(run.id(), &open, resumption.as_deref())),
            End::Stopped { .. } => End::Stopped { run: Some(run.id()), to_go_on: resumption },
            End::Result(_) | End::Told => end,
        })
    }

    async fn follow(&mut self, run: &RunHandle, follower: &mut Follower) -> Result<End, Failure> {
        let trouble = |error: callboard::runtime::RunError| Failure::trouble(error.to_string());
        let mut decided = BTreeSet::new();
        let mut events = run.events(follower.next_sequence(), &[StreamMode::Debug]).await.map_err(trouble)?;
        let is_anybody_here = is_anybody_here(self.going.no_input);
        let mut rests = pin!(rests(run, is_anybody_here));
        loop {
            if is_anybody_here && !follower.goes_on(&decided) && !self.ask(run, follower, &mut decided).await? {
                return Ok(End::Waits(Value::Null));
            }
            saying::room().await;
            let watched = tokio::select! {
                biased;
                watched = events.next() => watched,
                asked = next_asked(&self.board, run), if is_anybody_here && self.going.thinkers.agents.is_some() => {
                    if !settle(&self.board, run, asked, &self.going.thinkers.root).await? {
                        return Ok(End::Waits(Value::Null));
                    }
                    continue;
                }
                rested = &mut rests => {
                    rested.map_err(trouble)?;
                    return Ok(End::Waits(Value::Null));
                }
                () = changed(&mut self.watch) => {
                    if let Some(watch) = &mut self.watch {
                        watch.reload(&self.board).await.iter().for_each(|line| note(line));
                    }
                    continue;
                }
            };
            let lines = match watched {
                Some(Watched::Event(event)) => follower.take(&event),
                Some(Watched::Live(_)) => Vec::new(),
                Some(Watched::Missed(_)) => follower.catch_up(run.read().await.map_err(trouble)?),
                None => break,
            };
            self.show(&lines);
        }
        let result = run.result().await.map_err(trouble)?;
        if let Some((stores, _)) = &self.kept {
            advise_retry(run.id(), &run.history().await.unwrap_or_default(), &result, (stores.named(), self.going));
        }
        Ok(End::Result(Box::new(result)))
    }

    /// Asks the person at the terminal about the nodes that wait. `false` if nothing continues after that.
    async fn ask(&self, run: &RunHandle, follower: &Follower, decided: &mut BTreeSet<u32>) -> Result<bool, Failure> {
        let before = decided.len();
        for interrupt in follower.interrupts() {
            if decided.contains(&interrupt.turn.number) {
                continue;
            }
            let (turn, node) = (interrupt.turn, visible(&interrupt.node));
            if run.interrupts().await.iter().all(|open| open.turn != turn) {
                // No event reports it yet.
                decided.insert(turn.number);
                continue;
            }
            let ask = move |withdrawal| people::ask(&interrupt, withdrawal);
            let Some(asked) = unless_closed(ask, run.interrupt_closed(turn)).await else {
                note_words(&format!("{node} no longer waits for a person"));
                decided.insert(turn.number);
                continue;
            };
            let input = match asked.unwrap_or(Decision::Leave) {
                Decision::GoOn => None,
                Decision::GoOnWith(input) => Some(input.into()),
                Decision::Leave => continue,
                Decision::CancelTheRun => {
                    let cancelled = run.cancel(&format!("{} said so", people::name())).await;
                    return cancelled.map_err(|error| Failure::trouble(error.to_string())).map(|_| {
                        decided.insert(turn.number);
                        true
                    });
                }
            };
            let resumed = run.resume(turn, Resume { input, ..Resume::default() }, &people::name()).await;
            resumed.map_err(|error| Failure::trouble(error.to_string()))?;
            decided.insert(turn.number);
        }
        Ok(decided.len() > before)
    }

    fn tell_what_waits(&self, open: &[Wait], follower: &Follower) {
        let place = deciding::place(&self.going.thinkers.root);
        if !is_anybody_here(self.going.no_input) {
            waiting::note_cards(open, place.as_deref());
        }
        waiting::note_nodes(open);
        for (node, why) in follower.troubled() {
            let why = visible_lines(&why).replace('\n', "\n  │ ");
            note_words(&format!("{} needs attention: {why}", visible(&node)));
        }
    }

    /// Prints where the run is kept, or that it continues.
    fn say(&self, text: &str) {
        if self.going.watch || self.kept.is_some() {
            note(text);
        }
    }

    fn show(&self, lines: &[Line]) {
        if self.going.watch {
            let is_coloured = is_coloured(&std::io::stderr());
            lines.iter().for_each(|line| note_words(&line.shown(is_coloured)));
        }
    }

    /// Ends the board, and returns how the run was left.
    async fn end(&self, run: &RunHandle) -> Option<State> {
        self.board.shutdown().await;
        let state = run.read().await.ok();
        self.close().await;
        state
    }

    /// Ends the board of a run that has not begun.
    async fn give_up(&self) {
        self.board.shutdown().await;
        self.close().await;
    }

    async fn close(&self) {
        if let Some((_, store)) = &self.kept {
            store.sled().close().await;
        }
    }
}

/// Waits until files look different. Where none are looked at, none do.
async fn changed(watch: &mut Option<Watch>) {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

/// The workflow that is to run.
fn one(files: &[PathBuf], line: Option<&str>) -> Result<Workflow, Failure> {
    let texts = reading::texts_or_warn(files, line)?;
    let [_] = texts.as_slice() else {
        return Err(Failure::trouble(format!("one workflow can be run, and there are {}", texts.len())));
    };
    let read = reading::workflows(files, &texts).pop();
    let defects = match read {
        Some(Ok(workflow)) => return Ok(workflow),
        Some(Err(defects)) => defects,
        None => return Err(Failure::trouble("there is no workflow".to_owned())),
    };
    Err(Failure::trouble(format!("{}\n\n{defects}", count(defects.list().len(), "defect"))))
}

fn check_reducers(workflow: &Workflow) -> Result<(), Failure> {
    let schema = &workflow.plan().schema;
    for channel in schema.declared() {
        if let Ok(Reducer::Custom(name)) = schema.reducer(channel) {
            return Err(no_reducer(channel, name));
        }
    }
    Ok(())
}

fn no_reducer(channel: &str, reducer: &str) -> Failure {
    let (channel, reducer) = (visible(channel), visible(reducer));
    Failure::trouble(format!(
        "channel {channel} is made by the reducer {reducer}, which only a program in Rust can have"
    ))
}

async fn load(stored: &Stored) -> Result<((Stores, Store), Loaded), Failure> {
    let stores = stored.choice.stores()?;
    let (store, run) = stores.take_with(&stored.run).await?;
    let loaded = store.load(run).await?;
    check_loaded_reducers(&loaded)?;
    Ok(((stores, store), loaded))
}

/// As [`load`], for a run that is resumed.
async fn load_to_resume(stored: &Stored) -> Result<((Stores, Store), Loaded), Failure> {
    let stores = stored.choice.stores()?;
    let (store, loaded) = stores.load_to_resume(&stored.run).await?;
    check_loaded_reducers(&loaded)?;
    Ok(((stores, store), loaded))
}

fn check_loaded_reducers(loaded: &Loaded) -> Result<(), Failure> {
    loaded.rules.missing.first().map_or(Ok(()), |(channel, reducer)| Err(no_reducer(channel, reducer)))
}

/// The agents of a run's workflow.
fn cast(loaded: &Loaded) -> Result<Vec<String>, Failure> {
    let submission = loaded.replay.submission();
    if submission.task.plan.is_none() {
        let text = format!("run {} has no workflow; the program that has its agents continues it", loaded.id);
        return Err(Failure::trouble(text));
    }
    Ok(submission.cast.iter().map(ToString::to_string).collect())
}

/// The nodes to be resumed: those that are named, or all that wait.
fn chosen(
    loaded: &Loaded,
    waiting: &[Interrupt],
    nodes: &[String],
    change: &Change,
) -> Result<Vec<Interrupt>, Failure> {
    let names: Vec<String> = waiting.iter().map(|interrupt| visible(&interrupt.node)).collect();
    let waiting_text =
        if names.is_empty() { "no node waits".to_owned() } else { format!("these wait: {}", names.join(", ")) };
    if let Some(unknown) = nodes.iter().find(|node| waiting.iter().all(|interrupt| interrupt.node != **node)) {
        let text = format!("run {}: node {} does not wait for a person; {waiting_text}", loaded.id, visible(unknown));
        return Err(Failure::unknown(text));
    }
    let is_chosen = |interrupt: &&Interrupt| nodes.is_empty() || nodes.contains(&interrupt.node);
    let chosen: Vec<Interrupt> = waiting.iter().filter(is_chosen).cloned().collect();
    let is_changed = change.input.is_some() || !change.set.is_empty();
    if is_changed && chosen.len() != 1 {
        let text = format!("--input and --set are for one node that waits: name it with --node; {waiting_text}");
        return Err(Failure::trouble(text));
    }
    Ok(chosen)
}

/// The turn of a node, and not one that takes back what it has done.
fn turn_of(replay: &Replay, node: &str) -> Result<u32, Failure> {
    let nodes = replay.turns().filter_map(|turn| match &turn.cause {
        Cause::Node { node } => Some((turn.number, node)),
        Cause::Compensation { .. }
        | Cause::Task
        | Cause::Handoff { .. }
        | Cause::Delegation { .. }
        | Cause::Answer { .. } => None,
    });
    let known: Vec<(u32, &String)> = nodes.collect();
    let fitting: Vec<u32> = known.iter().filter(|(_, name)| *name == node).map(|(turn, _)| *turn).collect();
    match fitting.as_slice() {
        [only] => Ok(*only),
        [] => {
            let names: Vec<String> = known.iter().take(20).map(|(_, name)| visible(name)).collect();
            let text = format!("the run has had no node {}; it has had {}", visible(node), names.join(", "));
            Err(Failure::unknown(text))
        }
        several => {
            let turns: Vec<String> = several.iter().map(ToString::to_string).collect();
            let text = format!("node {} had the turns {}; name one with --turn", visible(node), turns.join(", "));
            Err(Failure::trouble(text))
        }
    }
}
