//! `callboard status`, `wait` and `cancel`: a run is read from its store, and acted on by the process that works on it.

use std::time::Duration;

use serde_json::{Value, json};

use callboard::Callboard;
use callboard::env::Env;
use callboard::messages::{RunId, visible, visible_lines};
use callboard::runtime::Unfinished;
use callboard::supervision::runs::Run;
use callboard_server::json as shapes;
use callboard_server::private::ClientError;

use crate::command_line::command_line;
use crate::exit::Exit;
use crate::page::{Failure, Page, folded as folded_text, json_text};
use crate::run_names::short;
use crate::runs::list;
use crate::stores::Stores;
use crate::stores::store::Store;
use crate::waits;

use super::arguments::{Cancel, Status, Wait};
use super::boards::{accepted, of_board, unanswered};
use super::decide::shown_whole;

/// How long to wait before looking again at a run whose process does not answer.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// How often to look at a run that no process works on, before that is reported: another process may be about to take it over.
const LOOKS: u32 = 5;

/// The state of a run, by its journal.
pub(super) async fn read(store: &Store, run: RunId) -> Result<Run, Failure> {
    let history = store.history(run).await.map_err(Failure::of)?;
    list::folded(history).map_err(|why| Failure::failed(format!("run {}: {why}", short(run))))
}

/// Prints where a run stands.
pub(super) async fn status(arguments: &Status) -> Result<Page, Failure> {
    let stores = arguments.choice.stores()?;
    let (store, run) = stores.find(&arguments.run).await?;
    let fold = read(&store, run).await?;
    let now = Env::system().now().wall;
    let mut text = format!("{}  {}: {}\n", short(run), fold.submission().agent, list::status(&fold, now));
    waits::open(&fold).iter().for_each(|wait| text.push_str(&shown_whole(wait, &stores)));
    Ok(Page::new(text, shown(&fold)))
}

/// A run as JSON (docs/json-output.md).
fn shown(fold: &Run) -> Value {
    let now = Env::system().now().wall;
    json!({
        "request_id": fold.submission().run,
        "to_agent": fold.submission().agent,
        "status": shapes::status(fold, now),
        "pending": waits::open(fold).iter().map(shapes::pending).collect::<Vec<_>>(),
        "result": fold.result().map(|result| shapes::result(result)),
    })
}

/// Waits until a run has ended, or waits for a person.
pub(super) async fn wait(arguments: &Wait) -> Result<Page, Failure> {
    let stores = arguments.choice.stores()?;
    let (store, run) = stores.find(&arguments.run).await?;
    match tokio::time::timeout(arguments.timeout, until_it_rests(&store, run)).await {
        Ok(rested) => {
            let fold = rested?;
            Ok(match fold.result() {
                Some(_) => ended(&fold),
                None => waiting(&fold, &stores),
            })
        }
        Err(_) => Err(Failure::new(
            Exit::TimedOut,
            format!(
                "the time is over, and run {} continues; to wait again: {}",
                short(run),
                visible(&command_line(&format!("wait {}", short(run)), stores.named()))
            ),
        )),
    }
}

/// The run once it has ended or all its turns wait for people. An error if no process works on it.
async fn until_it_rests(store: &Store, run: RunId) -> Result<Run, Failure> {
    let mut looks = LOOKS;
    loop {
        let fold = read(store, run).await?;
        if fold.result().is_some() || fold.waits_for_people() {
            return Ok(fold);
        }
        match store.board_of(run).await? {
            Some(board) => {
                looks = LOOKS;
                let path = format!("/v1/delegations/{run}/events");
                match of_board(&board).events(&path, None).await {
                    Ok(mut events) => {
                        while let Ok(Some(_)) = events.next().await {
                            if read(store, run).await?.waits_for_people() {
                                break;
                            }
                        }
                    }
                    // It has ended meanwhile, or is about to.
                    Err(ClientError::Absent(_) | ClientError::Broken(_) | ClientError::Refused { .. }) => {}
                    Err(error) => return Err(unanswered(&error)),
                }
            }
            None if looks == 0 => {
                let text =
                    format!("no process works on run {}, and it has not ended: resume it, or cancel it", short(run));
                return Err(Failure::new(Exit::Unavailable, text));
            }
            None => looks -= 1,
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn ended(fold: &Run) -> Page {
    let result = fold.result();
    let outcome = result.map(|result| &result.outcome);
    let exit = outcome.map_or(Exit::Done, Exit::from);
    let text = match (result, outcome) {
        (Some(result), Some(outcome)) if outcome.is_finished() => {
            let output = result.output.as_str().map_or_else(|| json_text(&result.output), str::to_owned);
            format!("complete: {}\n", folded_text(&visible_lines(&output)))
        }
        (_, outcome) => format!("fail: {}\n", visible(&outcome.map(ToString::to_string).unwrap_or_default())),
    };
    Page { exit, ..Page::new(text, shown(fold)) }
}

fn waiting(fold: &Run, stores: &Stores) -> Page {
    let text = waits::open(fold).iter().map(|wait| shown_whole(wait, stores)).collect::<String>();
    let text = format!("{} waits for a person:\n{text}", short(fold.submission().run));
    Page { exit: Exit::Waits, ..Page::new(text, shown(fold)) }
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
            let answer = of_board(&board).request("POST", &path, Some(&body)).await;
            accepted(answer.map_err(|error| unanswered(&error))?)?;
        }
        None => cancel_here(&store, run, &arguments.reason).await?,
    }
    let fold = read(&store, run).await?;
    Ok(Page::new(format!("{} is cancelled\n", short(run)), shown(&fold)))
}

async fn cancel_here(store: &Store, run: RunId, reason: &str) -> Result<(), Failure> {
    let reason = if reason.is_empty() { "cancelled at the command line" } else { reason };
    let board = Callboard::builder().on_unfinished(Unfinished::Leave).storage(store.shared()).start().await;
    let board = board.map_err(Failure::of)?;
    let cancelled = board.take_up(run).await.cancel(reason).await;
    board.shutdown().await;
    cancelled.map(drop).map_err(Failure::of)
}
