//! `callboard watch`: the events of a run, or what happens to all runs of the server, as it happens.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use callboard::messages::{Outcome, PlacedTurn, RunEvent, RunId, RunResult, Timestamp, visible};
use callboard::storage::StorageError;
use callboard::supervision::runs::Run;
use callboard_server::json as shapes;
use callboard_server::private::ClientError;

use crate::apart::{End, apart};
use crate::command_line::command_line;
use crate::exit::Exit;
use crate::page::{Failure, Page, brief, brief_json, duration, is_coloured, json_line, time};
use crate::run_names::short;
use crate::stores::Stores;
use crate::stores::store::Store;
use crate::waits;
use crate::workflow::progress::Kind;

use super::arguments::Watch;
use super::boards::{has_boards, no_server, of_service, unanswered};
use super::follow::{abandoned, ended, left, shown, unread};
use super::following::{Added, Following, LOOK_AGAIN, Seen};

/// How much of a task, an output or an event one line shows, in characters.
const SHOWN: usize = 200;
/// How often to look for a server that is gone, before that is reported: another may be about to start.
const LOOKS: u32 = 25;
/// How often to look at the runs of all boards on a database.
const LOOK_AT_STORE: Duration = Duration::from_secs(1);

/// Watches until the run has ended, the server is gone, or a signal comes.
pub(super) async fn watch(arguments: &Watch) -> Result<Page, Failure> {
    let Watch { run, choice, json } = arguments;
    let stores = choice.stores()?;
    let (report, found) = watch::channel(None);
    let out = Out { stores: stores.clone(), is_json: *json, is_coloured: is_coloured(&io::stdout()) };
    let written = run.clone();
    let watched = apart(None, found.clone(), move || async move {
        match written {
            Some(written) => of_run(&out, &written, &report).await,
            None if out.stores.database().is_some() => of_store(&out).await,
            None => of_board(&out).await,
        }
    });
    match (watched.await?, run) {
        (End::Done(page), _) => Ok(page),
        (End::TimedOut | End::Interrupted, Some(run)) => {
            Err(left(Exit::Interrupted, "a signal came", ("watch", run), *found.borrow(), &stores))
        }
        (End::TimedOut | End::Interrupted, None) => Ok(Page { exit: Exit::Interrupted, ..nothing() }),
    }
}

/// What was to be printed is printed.
fn nothing() -> Page {
    Page::new(String::new(), Value::Null)
}

async fn of_run(out: &Out, written: &str, report: &watch::Sender<Option<RunId>>) -> Result<Page, Failure> {
    let (store, run) = out.stores.find(written).await?;
    let (mut following, mut waiting, mut written) = (Following::new(&store, run), BTreeSet::new(), Ok(()));
    let seen = following.follow(|fold, added| {
        report.send_replace(Some(run));
        written = added.iter().try_for_each(|added| out.event(fold, added));
        written = std::mem::replace(&mut written, Ok(())).and_then(|()| out.waits(fold, &mut waiting, None));
        written.is_err()
    });
    let (seen, fold) = (seen.await?, following.run()?);
    if let Err(error) = written {
        return unwritten(&error);
    }
    match seen {
        Seen::Abandoned => Err(abandoned(&store, run, &out.stores).await?),
        Seen::Enough if out.is_json => match out.line(&kind("ended", shown(fold)), "") {
            Ok(()) => Ok(Page { exit: ended(fold).exit, ..nothing() }),
            Err(error) => unwritten(&error),
        },
        Seen::Enough => Ok(ended(fold)),
    }
}

/// A closed pipe, as of `head`, is not an error.
fn unwritten(error: &io::Error) -> Result<Page, Failure> {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(nothing()),
        _ => Err(Failure::failed(format!("the output cannot be written: {error}"))),
    }
}

async fn of_board(out: &Out) -> Result<Page, Failure> {
    let mut looks = 0;
    let mut connect = async || loop {
        match of_service(&out.stores).events("/v1/tree/events?modes=debug", None).await {
            Ok(events) => {
                looks = LOOKS;
                return Ok(events);
            }
            Err(ClientError::Absent(_)) if looks == 0 => return Err(no_server(&out.stores).await),
            Err(ClientError::Absent(_) | ClientError::Broken(_)) if looks > 0 => looks -= 1,
            Err(error) => return Err(unanswered(&error)),
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    };
    let mut events = connect().await?;
    let stores = out.stores.open().await?.stores;
    let mut board = Board { stores: &stores, runs: BTreeMap::new(), ended: BTreeSet::new(), out };
    loop {
        if let Err(error) = board.look_at_all().await? {
            return unwritten(&error);
        }
        while let Ok(Some(message)) = events.next().await {
            let data: Value = serde_json::from_str(&message.data).unwrap_or_default();
            let written = match (&*message.kind, data["run"].as_str().and_then(|id| id.parse().ok())) {
                ("missed", _) => board.look_at_all().await?,
                (_, Some(run)) => board.look_at(run).await?,
                // Of the supervisors.
                (_, None) => Ok(()),
            };
            if let Err(error) = written {
                return unwritten(&error);
            }
        }
        events = connect().await?;
    }
}

/// Shows what happens to the runs of all boards on a database, until no board with agents works on it.
async fn of_store(out: &Out) -> Result<Page, Failure> {
    let stores = out.stores.open_existing().await?.stores;
    let mut board = Board { stores: &stores, runs: BTreeMap::new(), ended: BTreeSet::new(), out };
    let mut looks = 0;
    loop {
        if let Err(error) = board.look_at_all().await? {
            return unwritten(&error);
        }
        let mut is_served = false;
        for store in &stores {
            is_served |= has_boards(store).await?;
        }
        match looks {
            _ if is_served => looks = LOOKS,
            0 => return Err(no_server(&out.stores).await),
            _ => looks -= 1,
        }
        tokio::time::sleep(LOOK_AT_STORE).await;
    }
}

/// The runs of the server, as far as they were shown.
struct Board<'s> {
    stores: &'s [Store],
    runs: BTreeMap<RunId, (Following<'s>, BTreeSet<String>)>,
    ended: BTreeSet<RunId>,
    out: &'s Out,
}

impl Board<'_> {
    /// Shows what has happened to all runs.
    async fn look_at_all(&mut self) -> Result<io::Result<()>, Failure> {
        let mut runs: BTreeSet<RunId> = self.runs.keys().copied().collect();
        for store in self.stores {
            runs.extend(store.open_runs().await?);
        }
        for run in runs {
            if let Err(error) = self.look_at(run).await? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// Shows what has happened to a run since it was looked at last.
    async fn look_at(&mut self, run: RunId) -> Result<io::Result<()>, Failure> {
        if self.ended.contains(&run) {
            return Ok(Ok(()));
        }
        let is_new = !self.runs.contains_key(&run);
        if is_new {
            let store = match store_of(self.stores, run).await {
                Ok(Some(store)) => store,
                Ok(None) => return Ok(Ok(())),
                // The others go on.
                Err((store, error @ StorageError::Corrupt { .. })) => {
                    self.ended.insert(run);
                    return Ok(self.out.unread(run, unread(store, run, &error).text()));
                }
                Err((_, error)) => return Err(Failure::of(error)),
            };
            self.runs.insert(run, (Following::new(store, run), BTreeSet::new()));
        }
        let Some((following, waiting)) = self.runs.get_mut(&run) else { return Ok(Ok(())) };
        following.advance().await?;
        let (fold, at) = (following.run()?, following.at());
        let begun = if is_new { self.out.begun(fold) } else { Ok(()) };
        let written = begun.and_then(|()| self.out.waits(fold, waiting, Some(at)));
        if fold.result().is_none() {
            return Ok(written);
        }
        let written = written.and_then(|()| self.out.ended(fold, at));
        self.runs.remove(&run);
        self.ended.insert(run);
        Ok(written)
    }
}

async fn store_of(stores: &[Store], run: RunId) -> Result<Option<&Store>, (&Store, StorageError)> {
    for store in stores {
        if !store.events_after(run, 0).await.map_err(|error| (store, error))?.0.is_empty() {
            return Ok(Some(store));
        }
    }
    Ok(None)
}

/// What a finished run came to. That of a turn which another board has taken has the turn's command as its output.
fn came_to(fold: &Run, result: &RunResult) -> String {
    let is_placed = fold.submission().task.placed.is_some();
    let Some(command) = is_placed.then(|| PlacedTurn::command_of(&result.output).ok()).flatten() else {
        return format!(": {}", brief_json(&result.output, SHOWN));
    };
    let output = command.output.map_or_else(String::new, |output| format!(": {}", brief_json(&output, SHOWN)));
    let targets: Vec<&str> = command.goto.targets().map(|target| &**target).collect();
    let goes = if targets.is_empty() { String::new() } else { format!(", to go to {}", targets.join(", ")) };
    output + &brief(&goes, SHOWN)
}

/// Where lines are printed, and in which form.
struct Out {
    stores: Stores,
    is_json: bool,
    is_coloured: bool,
}

/// An object of this kind.
fn kind(kind: &str, mut object: Value) -> Value {
    object["kind"] = kind.into();
    object
}

impl Out {
    fn line(&self, object: &Value, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.is_json { writeln!(out, "{}", json_line(object)) } else { writeln!(out, "{text}") }
    }

    fn coloured(&self, colour: &str, text: &str) -> String {
        if self.is_coloured { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    /// A line about a run of the board.
    fn about(&self, fold: &Run, at: Timestamp, (kind, text): (Kind, &str)) -> String {
        let (mark, colour) = kind.mark();
        let (id, agent) = (short(fold.submission().run), visible(fold.submission().agent.as_str()));
        let head = self.coloured(colour, &format!("{mark} {agent}"));
        format!("{}  {id}  {head} {text}", self.coloured("2", &time(at)))
    }

    fn unread(&self, run: RunId, why: &str) -> io::Result<()> {
        self.line(&kind("unread", json!({ "request_id": run, "error": why })), why)
    }

    fn begun(&self, fold: &Run) -> io::Result<()> {
        let submission = fold.submission();
        let object = json!({
            "request_id": submission.run, "to_agent": submission.agent, "body": submission.task.body,
            "at": shapes::time(submission.at),
        });
        let what = match &submission.task.placed {
            Some(placed) => format!("began turn {} of {}", placed.turn.number, short(placed.turn.run)),
            None => "began".to_owned(),
        };
        let text = format!("{what}: {}", brief(&submission.task.body, SHOWN));
        self.line(&kind("began", object), &self.about(fold, submission.at, (Kind::Started, &text)))
    }

    /// What a run waits for that was not shown. `at` is the time, if the line is one of the board.
    fn waits(&self, fold: &Run, waiting: &mut BTreeSet<String>, at: Option<Timestamp>) -> io::Result<()> {
        let now: BTreeSet<String> = waits::open(fold).iter().map(|wait| wait.id().to_string()).collect();
        let submission = fold.submission();
        let about = |what: (Kind, &str)| match at {
            Some(at) => self.about(fold, at, what),
            None => {
                let (mark, colour) = what.0.mark();
                format!("{} {}", self.coloured(colour, mark), what.1)
            }
        };
        for wait in waits::open(fold).iter().filter(|wait| !waiting.contains(&wait.id().to_string())) {
            let (what, line) = waits::line(wait, callboard::env::Env::system().now().wall);
            let command = visible(&command_line(&format!("pending {}", wait.id()), self.stores.named()));
            let object = json!({
                "request_id": submission.run, "to_agent": submission.agent, "pending": shapes::pending(wait),
            });
            let text = format!("waits for a person ({what}): {}\n    {command}", brief(&line, SHOWN));
            self.line(&kind("waits", object), &about((Kind::Waits, &text)))?;
        }
        if now.is_empty() && !waiting.is_empty() && fold.result().is_none() {
            let object = json!({ "request_id": submission.run, "to_agent": submission.agent });
            self.line(&kind("continues", object), &about((Kind::Started, "continues")))?;
        }
        *waiting = now;
        Ok(())
    }

    fn ended(&self, fold: &Run, at: Timestamp) -> io::Result<()> {
        let Some(result) = fold.result() else { return Ok(()) };
        let kind_of = match &result.outcome {
            Outcome::Finished => Kind::Finished,
            Outcome::Cancelled { .. } => Kind::Cancelled,
            Outcome::Failed { .. } | Outcome::Refused(_) | Outcome::Denied { .. } => Kind::Failed,
        };
        let what = match &result.outcome {
            Outcome::Finished => came_to(fold, result),
            outcome => format!(": {}", brief(&outcome.to_string(), SHOWN)),
        };
        let text = format!("{} after {}{what}", result.outcome.name(), duration(result.metrics.elapsed));
        self.line(&kind("ended", shown(fold)), &self.about(fold, at, (kind_of, &text)))
    }

    /// An event of a run, in a line.
    fn event(&self, fold: &Run, Added { number, at, agent, event }: &Added) -> io::Result<()> {
        let object = json!({
            "request_id": fold.submission().run, "number": number, "at": shapes::time(*at), "turn": event.turn(),
            "agent": agent, "what": event.to_string(), "event": shapes::event(event),
        });
        let whose = match (event.turn(), agent) {
            (Some(turn), Some(agent)) => format!("turn {turn} {}: ", self.coloured("36", &visible(agent.as_str()))),
            (Some(turn), None) => format!("turn {turn}: "),
            (None, _) => String::new(),
        };
        let what = brief(&event.to_string().replace('\n', " "), SHOWN);
        let what = match event {
            RunEvent::TurnFailed { .. } | RunEvent::AttemptFailed { .. } => self.coloured("31", &what),
            _ => what,
        };
        let when = format!("{number:>4}  {:>10}", format!("+{}", duration(at.since(fold.submission().at))));
        self.line(&kind("event", object), &format!("{}  {whose}{what}", self.coloured("2", &when)))
    }
}
