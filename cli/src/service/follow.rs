//! `callboard status`, `wait` and `cancel`: a run is read from its store, and acted on by the process that works on it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

use callboard::Callboard;
use callboard::env::Env;
use callboard::messages::{RunEvent, RunId, RunResult, Submission, visible, visible_lines};
use callboard::runtime::Unfinished;
use callboard::storage::StorageError;
use callboard::supervision::runs::Run;
use callboard_server::json as shapes;

use crate::agents::hints;
use crate::apart::{End, apart};
use crate::command_line::{command_line, limits_option};
use crate::exit::Exit;
use crate::page::{Failure, Page, output_text};
use crate::person;
use crate::quote::quoted;
use crate::retry::{advice, without_limits};
use crate::run_names::short;
use crate::runs::list;
use crate::stores::Stores;
use crate::stores::store::Store;
use crate::waits;

use super::arguments::{Cancel, Status, Wait};
use super::boards::{ask_board, of_other};
use super::decide::{Detail, shown_card, shown_wait};
use super::following::{Following, Seen};
use super::left::Left;

/// How long the process that works on a run may take to answer a question about it.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// The end of the line of a run that has been silent.
const STALE: &str = ", stale: it has neither begun nor sent a notice for 10 minutes or more\n";

/// The state of a run, by its journal.
pub(super) async fn read(store: &Store, run: RunId) -> Result<Run, Failure> {
    folded(store.history(run).await.map_err(|error| unread(store, run, &error))?, run)
}

/// The error of a run that cannot be read.
pub(super) fn unread(store: &Store, run: RunId, error: &StorageError) -> Failure {
    let StorageError::Corrupt { detail, .. } = error else { return Failure::of(error.clone()) };
    let id = short(run);
    let delete = command_line(&format!("runs delete {id}"), Some(store.place()));
    let text = format!(
        "run {id} cannot be read: {}\n    `callboard store check` lists all that is damaged; `{}` removes the run",
        visible(detail),
        visible(&delete)
    );
    Failure::new(Exit::from(error), text)
}

/// The same, with what its turns wait for that other boards have taken.
pub(super) async fn read_with_placed(store: &Store, run: RunId) -> Result<Run, Failure> {
    with_placed(store, read(store, run).await?).await
}

/// The same run, with what its turns wait for that other boards have taken.
pub(super) async fn with_placed(store: &Store, run: Run) -> Result<Run, Failure> {
    let placed = store.placed_of(&run).await?;
    Ok(run.with_placed(&placed))
}

/// The state that these events of a run lead to.
pub(super) fn folded(history: Vec<RunEvent>, run: RunId) -> Result<Run, Failure> {
    list::folded(history).map_err(|why| Failure::failed(format!("run {}: {why}", short(run))))
}

/// Prints where a run stands.
pub(super) async fn status(arguments: &Status) -> Result<Page, Failure> {
    let stores = arguments.choice.stores()?;
    let (store, run) = stores.find(&arguments.run).await?;
    let fold = read_with_placed(&store, run).await?;
    let now = Env::system().now().wall;
    let is_open = fold.result().is_none();
    let left = if is_open { Left::if_left(&store, run, &stores).await? } else { None };
    // It is not known of a copy of a store.
    let is_worked_on = (is_open && !store.is_copy()).then_some(left.is_none());
    let is_stale = if is_worked_on == Some(true) { is_stale(&store, run).await } else { None };
    let mut text = format!("{}  {}: {}", short(run), fold.submission().agent, list::status(&fold, now));
    text.push_str(if is_stale == Some(true) { STALE } else { "\n" });
    let cards = cards(&store, &fold, &stores).await?;
    text.push_str(&cards);
    if let Some(result) = fold.result().filter(|result| !result.outcome.is_finished()) {
        let advice = to_try_again(&store, &fold, &stores).await?;
        let why = why(result, advice.as_deref());
        [Some(why), advice].iter().flatten().for_each(|line| text.push_str(&format!("    {line}\n")));
    }
    if let Some(left) = left.as_ref().filter(|_| cards.is_empty()) {
        text.push_str(&format!("    {}; {}\n", left.why(), left.remedy("")));
    }
    let mut json = shown(&fold);
    (json["is_worked_on"], json["to_continue"]) = (json!(is_worked_on), json!(left.as_ref().map(|it| &it.to_continue)));
    json["waits_for_agents"] = json!(left.as_ref().map(|it| &it.agents).filter(|agents| !agents.is_empty()));
    json["is_stale"] = json!(is_stale);
    Ok(Page::new(text, json))
}

/// What a run waits for, as people see it, with the commands that decide it.
async fn cards(store: &Store, fold: &Run, stores: &Stores) -> Result<String, Failure> {
    let mut cards = String::new();
    for wait in waits::open(fold) {
        let run = wait.run();
        if run != fold.submission().run {
            cards.push_str(&format!("    in a turn at another board, which is {} there:\n", short(run)));
        }
        let left = Left::if_left(store, run, stores).await?;
        cards.push_str(&shown_card(&wait, Detail::Brief, stores, left.as_ref()));
    }
    Ok(cards)
}

/// Whether there was no news of a run for long, by the process that works on it; `None` if that does not answer.
async fn is_stale(store: &Store, run: RunId) -> Option<bool> {
    let board = of_other(store, &store.board_of(run).await.ok()??);
    let path = format!("/v1/delegations/{run}");
    let (_, shown) = timeout(MAX_WAIT, board.request("GET", &path, None)).await.ok()?.ok()?;
    shown["is_stale"].as_bool()
}

/// A run as JSON (docs/json-output.md).
pub(super) fn shown(fold: &Run) -> Value {
    let now = Env::system().now().wall;
    json!({
        "request_id": fold.submission().run,
        "to_agent": fold.submission().agent,
        "status": shapes::delegation_status(fold),
        "state": shapes::status(fold, now),
        "pending": waits::open(fold).iter().map(shown_wait).collect::<Vec<_>>(),
        "result": fold.result().map(|result| shapes::result(result)),
    })
}

/// Waits until a run has ended, or waits for a person.
pub(super) async fn wait(arguments: &Wait) -> Result<Page, Failure> {
    let stores = arguments.choice.stores()?;
    let (report, found) = watch::channel(None);
    let (there, written) = (stores.clone(), arguments.run.clone());
    let waited = apart(Some(arguments.timeout), found.clone(), move || async move {
        let (store, run) = there.find(&written).await?;
        let mut following = Following::new(&store, run);
        let seen = following.follow(|fold, _| {
            let rests = fold.waits_for_people();
            if !rests && fold.result().is_none() {
                report.send_replace(Some(run));
            }
            rests
        });
        let (seen, fold) = (seen.await?, following.run_with_placed()?);
        match (seen, fold.result()) {
            (Seen::Abandoned, _) => Err(abandoned(&store, run, &there).await?),
            (Seen::Enough, Some(result)) => {
                let advice = to_try_again(&store, &fold, &there).await?;
                Ok(result_page(&fold, result, advice.as_deref()))
            }
            (Seen::Enough, None) => waiting(&store, &fold, &there).await,
        }
    });
    let (exit, why) = match waited.await? {
        End::Done(page) => return Ok(page),
        End::TimedOut => (Exit::TimedOut, "the time is over"),
        End::Interrupted => (Exit::Interrupted, "a signal came"),
    };
    Err(left(exit, why, ("wait", &arguments.run), *found.borrow(), &stores))
}

/// The error of a command that no longer follows a run. `found` is the run, if it was read.
pub(super) fn left(
    exit: Exit,
    why: &str,
    (command, written): (&str, &str),
    found: Option<RunId>,
    stores: &Stores,
) -> Failure {
    let (what, run) = match found {
        Some(run) => (format!("and run {} continues", short(run)), short(run)),
        None => (
            "and the run is not read yet: the process that has the store open may be suspended".to_owned(),
            quoted(written),
        ),
    };
    let line = visible(&command_line(&format!("{command} {run}"), stores.named()));
    Failure::new(exit, format!("{why}, {what}; to {command} again: {line}"))
}

/// The error of a run that no process works on.
pub(super) async fn abandoned(store: &Store, run: RunId, stores: &Stores) -> Result<Failure, Failure> {
    let (id, left) = (short(run), Left::of(store, run, stores).await?);
    let why = match left.agents.is_empty() {
        true => format!("no process works on run {id}, and it has not ended"),
        false => format!("run {id} {}", left.why()),
    };
    let cancel = visible(&command_line(&format!("cancel {id}"), stores.named()));
    let text = format!("{why}\n    {}\n    to cancel it: {cancel}", left.remedy(""));
    Ok(Failure::new(Exit::Unavailable, text))
}

fn result_page(fold: &Run, result: &RunResult, advice: Option<&str>) -> Page {
    let RunResult { outcome, output, .. } = result;
    let why = why(result, advice);
    let end = if outcome.is_finished() { Ok(output.value()) } else { Err(&*why) };
    let mut page = Page::of_end(outcome.into(), end, shown(fold));
    advice.iter().for_each(|line| page.remarks.push_str(&format!("{line}\n")));
    page
}

/// Why a run has not finished. What its limits would have to be is in the advice alone.
fn why(result: &RunResult, advice: Option<&str>) -> String {
    let why = visible(&result.outcome.to_string());
    if advice.is_some() { without_limits(&why) } else { why }
}

/// The line about how to try again what has not finished: with the server that has begun it, or with `callboard run`.
async fn to_try_again(store: &Store, run: &Run, stores: &Stores) -> Result<Option<String>, Failure> {
    let Submission { run: id, task, .. } = &**run.submission();
    let Some(result) = run.result() else { return Ok(None) };
    let history = store.history(*id).await.map_err(Failure::of)?;
    let (is_of_server, store) = (task.from_agent.is_some(), stores.named());
    // A server tries a turn again that has failed, and no handoff that was refused.
    let can_retry = !is_of_server || history.iter().any(|event| matches!(event, RunEvent::TurnFailed { .. }));
    let line = |_: &Submission, limits: Option<&str>| match is_of_server {
        true => command_line(&format!("retry {}{}", short(*id), limits_option(limits)), store),
        false => hints::retrial_of_left(run, &history, limits, store),
    };
    Ok(advice(&history, result, can_retry.then_some(line)))
}

/// The last line about a run that is watched.
pub(super) fn ended(fold: &Run) -> Page {
    let result = fold.result();
    let outcome = result.map(|result| &result.outcome);
    let exit = outcome.map_or(Exit::Done, Exit::from);
    let text = match (result, outcome) {
        (Some(result), Some(outcome)) if outcome.is_finished() => {
            format!("complete: {}\n", visible_lines(&output_text(&result.output)))
        }
        (_, outcome) => format!("fail: {}\n", visible(&outcome.map(ToString::to_string).unwrap_or_default())),
    };
    Page { exit, ..Page::new(text, shown(fold)) }
}

async fn waiting(store: &Store, fold: &Run, stores: &Stores) -> Result<Page, Failure> {
    let cards = cards(store, fold, stores).await?;
    let remarks = format!("{} waits for a person:\n{cards}", short(fold.submission().run));
    Ok(Page { exit: Exit::Waits, remarks, ..Page::new(String::new(), shown(fold)) })
}

/// Cancels a run: in the process that works on it, or here.
pub(super) async fn cancel(arguments: &Cancel) -> Result<Page, Failure> {
    let (store, run) = arguments.choice.stores()?.take_with(&arguments.run).await?;
    if let Some(result) = read(&store, run).await?.result() {
        return Err(Failure::failed(format!("run {} has ended already: {}", short(run), result.outcome)));
    }
    match store.board_of(run).await? {
        Some(board) => {
            let path = format!("/v1/delegations/{run}/cancel");
            let body = json!({ "reason": arguments.reason });
            ask_board(&store, &board, ("POST", &path), Some(&body)).await?;
        }
        None => cancel_here(&store, run, &arguments.reason).await?,
    }
    let fold = read(&store, run).await?;
    Ok(Page::new(format!("{} is cancelled\n", short(run)), shown(&fold)))
}

async fn cancel_here(store: &Store, run: RunId, reason: &str) -> Result<(), Failure> {
    // As a server records it.
    let reason = if reason.is_empty() { format!("cancelled by {}", person::name()) } else { reason.to_owned() };
    let board = Callboard::builder().on_unfinished(Unfinished::Leave).storage(store.storage()).start().await;
    let board = board.map_err(Failure::of)?;
    let cancelled = board.run(run).cancel(&reason).await;
    if cancelled.is_ok() {
        // Otherwise another board has to look what this one has left.
        let _ = timeout(MAX_WAIT, noted_as_ended(&board, run)).await;
    }
    board.shutdown().await;
    cancelled.map(drop).map_err(Failure::of)
}

/// Returns once the store lists the run as ended, which it does after the last record.
async fn noted_as_ended(board: &Callboard, run: RunId) {
    const LOOK_AGAIN: Duration = Duration::from_millis(20);
    while board.unfinished_runs().await.is_ok_and(|open| open.iter().any(|open| open.id() == run)) {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
