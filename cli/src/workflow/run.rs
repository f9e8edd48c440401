//! `callboard workflow run|resume|retry|fork`.

use std::path::PathBuf;

use serde_json::Value;

use callboard::messages::{Interrupt, Json, Reducer, Resume, RunId, StateRules, visible};
use callboard::supervision::runs::{Cause, Fork, Replay};
use callboard::workflow::Workflow;

use crate::agents::decide::restart_turns;
use crate::command_line::command_line;
use crate::conversations;
use crate::exit::Exit;
use crate::limits::LimitChoice;
use crate::page::{Failure, count, note};
use crate::process::End;
use crate::retry::retry_of;
use crate::run_names::short;
use crate::stores::Stores;
use crate::stores::store::{Loaded, Store};
use crate::submitting::submit;
use crate::trace_parent;

use super::arguments::{Change, Execution, Stored};
use super::progress::Follower;
use super::session::{Session, SubmitOptions, advise_retry, agents_for};
use super::{hints, input, interrupts, read};

/// Starts a run of a workflow, and follows it until it ends or waits for a person.
pub(crate) async fn run(
    (files, line): (&[PathBuf], Option<&str>),
    input: Value,
    options: SubmitOptions,
    stores: Option<Stores>,
    execution: &Execution,
) -> Result<End, Failure> {
    let workflow = one(files, line)?;
    input::check(&workflow, &input)?;
    check_reducers(&workflow)?;
    let cast: Vec<String> = workflow.plan().cast().into_iter().map(ToString::to_string).collect();
    // Opened before the tools are made, because they need to know which folder they may not access.
    let kept = match stores {
        Some(stores) => {
            let store = stores.take_new(options.conversation.as_ref()).await?;
            if let Some(hint) = stores.hint().await {
                note(&hint);
            }
            if let Some(conversation) = &options.conversation {
                let line = |open: &Loaded| match open.replay.submission().task.plan {
                    Some(_) => hints::resumption(short(open.id), stores.named(), execution),
                    None => hints::agent_resumption(short(open.id), stores.named(), execution),
                };
                conversations::check_none_is_open(&store, conversation, stores.named(), line).await?;
            }
            Some((stores, store))
        }
        None => None,
    };
    let stores = kept.as_ref().map(|(stores, _)| stores);
    let Some((agents, signals)) = agents_for((execution, files), stores, &cast).await? else {
        return Ok(End::not_begun());
    };
    let session = Session::start(agents, kept, execution).await?;
    let mut task = workflow.task(input);
    let SubmitOptions { limits, approval_ttl, handoffs, conversation } = options;
    (task.limits, task.approval_ttl, task.handoffs) = (limits, approval_ttl, handoffs);
    task.conversation = conversation;
    task.trace_parent = trace_parent::of_environment().map(Box::new);
    let run = match submit(&session.board, task).await {
        Ok(run) => run,
        Err(error) => {
            session.give_up().await;
            return Err(Failure::of(error));
        }
    };
    session.print(&format!("run {} of {}", short(run.id()), visible(workflow.name())));
    session.see_through(run, Follower::new(StateRules::default()), signals).await
}

/// Resumes a run of a store.
pub(crate) async fn resume(
    stored: &Stored,
    nodes: &[String],
    change: &Change,
    execution: &Execution,
) -> Result<End, Failure> {
    let (kept, loaded) = load_to_resume(stored).await?;
    if let Some(result) = loaded.replay.result() {
        check_no_change(loaded.id, nodes, change, || hints::fork(short(loaded.id), kept.0.named(), execution))?;
        note(&format!("run {} has ended already", short(loaded.id)));
        advise_retry(&loaded.history, result, Some(&kept.0), execution);
        return Ok(End::Result(Box::new(result.clone())));
    }
    let cast = cast(&loaded, || hints::agent_resumption(short(loaded.id), kept.0.named(), execution))?;
    let waiting = interrupts::of(loaded.replay.run());
    let chosen = chosen(&loaded, &waiting, nodes, change)?;
    let resume = Resume { input: change.input.clone().map(Json::from), update: input::update(&change.set)? };
    let Some((agents, signals)) = agents_for((execution, &[]), Some(&kept.0), &cast).await? else {
        return Ok(End::not_begun());
    };
    let session = Session::start(agents, Some(kept), execution).await?;
    let run = session.take_up(loaded.id).await;
    restart_turns(&session.board, &run).await;
    let mut follower = Follower::new(loaded.rules.state.clone());
    let begun = session.resume(&run, &mut follower, &chosen, &resume).await;
    if let Err(failure) = begun {
        session.give_up().await;
        return Err(failure);
    }
    session.see_through(run, follower, signals).await
}

/// Starts a run as a copy of another one, up to a turn or a node.
pub(crate) async fn fork(
    stored: &Stored,
    place: (Option<u32>, Option<&str>),
    change: &Change,
    execution: &Execution,
) -> Result<End, Failure> {
    let (kept, loaded) = load(stored).await?;
    let line = || command_line(&format!("runs fork {} --turn N", short(loaded.id)), kept.0.named());
    let cast = cast(&loaded, line)?;
    let turn = match place {
        (Some(turn), _) => turn,
        (None, node) => turn_of(&loaded.replay, node.unwrap_or_default())?,
    };
    let input = change.input.clone().map(Json::from);
    let fork = Fork { input, update: input::update(&change.set)?, ..Fork::new() };
    begin_fork(kept, (&loaded, &cast), turn, fork, execution).await
}

/// Retries the failed turn of a run, in a new run.
pub(crate) async fn retry(
    stored: &Stored,
    limits: Option<&LimitChoice>,
    execution: &Execution,
) -> Result<End, Failure> {
    let (kept, loaded) = load(stored).await?;
    let argument = limits.map(LimitChoice::argument);
    let line = || hints::agent_retrial(short(loaded.id), argument.as_deref(), kept.0.named(), execution);
    let cast = cast(&loaded, line)?;
    let (turn, fork) = retry_of(&loaded, limits, || hints::resumption(short(loaded.id), kept.0.named(), execution))?;
    begin_fork(kept, (&loaded, &cast), turn, fork, execution).await
}

/// The error for `resume --limits`.
pub(crate) fn limits_are_kept(Stored { run, choice }: &Stored, execution: &Execution) -> Failure {
    let stores = choice.stores().ok();
    let line = hints::retrial_with_limits(run, stores.as_ref().and_then(Stores::named), execution);
    Failure::usage(format!(
        "the limits of a run cannot be changed: leave --limits out to resume it; once it has failed, this continues it in a new run: {}",
        visible(&line)
    ))
}

async fn begin_fork(
    kept: (Stores, Store),
    (loaded, cast): (&Loaded, &[String]),
    turn: u32,
    fork: Fork,
    execution: &Execution,
) -> Result<End, Failure> {
    let Some((agents, signals)) = agents_for((execution, &[]), Some(&kept.0), cast).await? else {
        return Ok(End::not_begun());
    };
    let session = Session::start(agents, Some(kept), execution).await?;
    let forked = session.board.fork(loaded.id, turn, fork).await;
    let run = match forked {
        Ok(run) => run,
        Err(error) => {
            session.give_up().await;
            return Err(Failure::new(Exit::from(&error), format!("run {}: {error}", short(loaded.id))));
        }
    };
    session.print(&format!("run {}, forked from {} at turn {turn}", short(run.id()), short(loaded.id)));
    let mut follower = Follower::new(loaded.rules.state.clone());
    if let Ok(read) = run.read().await {
        session.show(&follower.catch_up(read));
    }
    session.see_through(run, follower, signals).await
}

/// The only workflow that the command line names.
fn one(files: &[PathBuf], line: Option<&str>) -> Result<Workflow, Failure> {
    let texts = read::texts_or_warn(files, line)?;
    let [_] = texts.as_slice() else {
        return Err(Failure::usage(format!("one workflow can be run, and there are {}", texts.len())));
    };
    let read = read::workflows(files, &texts).pop();
    let defects = match read {
        Some(Ok(workflow)) => return Ok(workflow),
        Some(Err(defects)) => defects,
        None => return Err(Failure::usage("there is no workflow".to_owned())),
    };
    Err(Failure::usage(format!("{}\n\n{defects}", count(defects.list().len(), "defect"))))
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
    Failure::usage(format!("channel {channel} has the reducer {reducer}, which only a program in Rust can have"))
}

/// Opens the store with the run, and reads it.
async fn load(stored: &Stored) -> Result<((Stores, Store), Loaded), Failure> {
    let stores = stored.choice.stores()?;
    let (store, run) = stores.take_with(&stored.run).await?;
    let loaded = store.load(run).await?;
    check_loaded_reducers(&loaded)?;
    Ok(((stores, store), loaded))
}

/// As [`load`], for a run to resume: a run that has ended may be read from a copy of its store.
async fn load_to_resume(stored: &Stored) -> Result<((Stores, Store), Loaded), Failure> {
    let stores = stored.choice.stores()?;
    let (store, loaded) = stores.load_to_resume(&stored.run).await?;
    check_loaded_reducers(&loaded)?;
    Ok(((stores, store), loaded))
}

fn check_loaded_reducers(loaded: &Loaded) -> Result<(), Failure> {
    loaded.rules.missing.first().map_or(Ok(()), |(channel, reducer)| Err(no_reducer(channel, reducer)))
}

/// Refuses changes to a run that has ended: they would change nothing. `line` is the command line that forks it.
fn check_no_change(
    run: RunId,
    nodes: &[String],
    change: &Change,
    line: impl FnOnce() -> String,
) -> Result<(), Failure> {
    let given = [("--node", !nodes.is_empty()), ("--input", change.input.is_some()), ("--set", !change.set.is_empty())];
    let given: Vec<&str> = given.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option).collect();
    if given.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "run {} has ended, so {} would change nothing: leave that out to print its result; to run it again from a node, with \
         changes: {}",
        short(run),
        given.join(" and "),
        visible(&line())
    )))
}

/// The names of the agents of a run's workflow. `line` is the command line for a run without one.
fn cast(loaded: &Loaded, line: impl FnOnce() -> String) -> Result<Vec<String>, Failure> {
    let submission = loaded.replay.submission();
    if submission.task.plan.is_none() {
        return Err(Failure::usage(format!(
            "run {} has no workflow; the program that has its agent continues it, or, if its agent is in a file: {}",
            short(loaded.id),
            visible(&line())
        )));
    }
    Ok(submission.cast.iter().map(ToString::to_string).collect())
}

/// The nodes to resume: those that are named, or all that wait.
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
        let text =
            format!("run {}: node {} does not wait for a person; {waiting_text}", short(loaded.id), visible(unknown));
        return Err(Failure::not_found(text));
    }
    let is_chosen = |interrupt: &&Interrupt| nodes.is_empty() || nodes.contains(&interrupt.node);
    let chosen: Vec<Interrupt> = waiting.iter().filter(is_chosen).cloned().collect();
    let is_changed = change.input.is_some() || !change.set.is_empty();
    if is_changed && chosen.len() != 1 {
        let text = format!("--input and --set are for one node that waits: name it with --node; {waiting_text}");
        return Err(Failure::usage(text));
    }
    Ok(chosen)
}

/// The turn of a node, without turns that compensate it.
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
            Err(Failure::not_found(text))
        }
        several => {
            let turns: Vec<String> = several.iter().map(ToString::to_string).collect();
            let text = format!("node {} had the turns {}; name one with --turn", visible(node), turns.join(", "));
            Err(Failure::usage(text))
        }
    }
}
