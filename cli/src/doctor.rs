//! `callboard doctor`: whether this machine has what agents and servers need.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use callboard::env::Env;
use callboard::messages::{Message, Timestamp, visible};
use callboard_agents::tools::ShellExec;
use callboard_agents::{ModelChoice, ModelEntry, ModelRequest, Models};
use callboard_postgres::Report;
use callboard_server::private;
use clap::Args;
use futures::StreamExt as _;
use futures::future::join_all;
use rustix::process::geteuid;

use crate::agents::arguments::Files;
use crate::agents::read::{self, Invalid};
use crate::config;
use crate::exit::Exit;
use crate::knowledge::stored;
use crate::page::{self, Failure, Page, count, is_coloured, shown_path, time};
use crate::process::{block_on, print};
use crate::service::{email, matrix, telegram, webhooks};
use crate::stores::copy::{NEEDED, free};
use crate::stores::database::Database;
use crate::stores::{Choice, Stores};

/// Less free space than this is a warning, in bytes.
const LITTLE: u64 = 1 << 30;
/// How long a model may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// The most tokens of its answer; some models refuse fewer.
const ANSWER_TOKENS: u32 = 16;
/// A clock before 2025 was never set, in milliseconds of Unix time.
const SET: Timestamp = Timestamp::from_millis(1_735_689_600_000);

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) files: Files,
    #[command(flatten)]
    pub(crate) choice: Choice,
    /// Ask each model of the catalog for an answer of a few tokens, to see whether it is reached and takes its key
    #[arg(long)]
    pub(crate) online: bool,
    /// Print JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Ok,
    /// Something is missing that not everybody needs.
    Warning,
    Failed,
}

impl Found {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }

    fn colour(self) -> &'static str {
        match self {
            Self::Ok => "32",
            Self::Warning => "33",
            Self::Failed => "31",
        }
    }
}

/// What was looked at, what was found, and a line about it.
type Check = (&'static str, Found, String);

/// Runs `callboard doctor`.
pub(crate) fn main(arguments: Doctor) -> ExitCode {
    let json = arguments.json;
    let answer = block_on(doctor(&Doctor { files: arguments.files.search(), ..arguments }));
    print(move || page::print(answer, json))
}

/// Looks at all of it.
async fn doctor(arguments: &Doctor) -> Result<Page, Failure> {
    let stores = arguments.choice.stores_with(&arguments.files)?;
    let now = Env::system().now().wall;
    let mut checks = match stores.database() {
        Some(database) => looked_at(database).await,
        None => Vec::new(),
    };
    checks.extend(store(&stores, now).await);
    checks.extend(stored::looked_at(&stores).await.map(|looked_at| match looked_at {
        Ok(text) => ("facts", Found::Ok, text),
        Err(why) => ("facts", Found::Failed, why),
    }));
    checks.push(disk(stores.folder()));
    checks.push(state(stores.folder()));
    checks.push(sockets().await);
    checks.extend(ShellExec::confinement().into_iter().map(|part| match part.lacks {
        None => ("sandbox", Found::Ok, format!("{}: {}", part.name, part.means)),
        Some(lacks) => ("sandbox", Found::Warning, format!("{}: {lacks}", part.name)),
    }));
    let models = read::models(&arguments.files)?;
    checks.push(listed(&models));
    if arguments.online {
        checks.extend(asked(&models).await);
    }
    checks.extend(settings(&arguments.files)?);
    checks.extend(bot(arguments, &stores).await);
    checks.extend(rooms(arguments, &stores).await);
    checks.extend(mail(arguments, &stores).await);
    checks.extend(receivers(arguments, &stores).await);
    let is_coloured = is_coloured(&std::io::stdout());
    let line = |(what, found, text): &Check| {
        let word = format!("{:<8}", found.word());
        let word = if is_coloured { format!("\u{1b}[{}m{word}\u{1b}[0m", found.colour()) } else { word };
        format!("{word} {what:<8} {}\n", visible(text))
    };
    let row = |(what, found, text): &Check| json!({ "check": what, "found": found.word(), "text": text });
    let exit = if checks.iter().any(|(_, found, _)| *found == Found::Failed) { Exit::Failed } else { Exit::Done };
    let page = Page::new(checks.iter().map(line).collect(), checks.iter().map(row).collect::<Value>());
    Ok(Page { exit, ..page })
}

/// The database that is the store: whether it answers, how the connection is protected, and what is wrong with it.
async fn looked_at(database: &Database) -> Vec<Check> {
    let report = match database.check().await {
        Ok(report) => report,
        Err(failure) => return vec![("database", Found::Failed, failure.text().to_owned())],
    };
    let Report { server_version, user, protection, problems, .. } = report;
    let shown = shown_path(database.shown());
    let answers = format!("{shown}: PostgreSQL {server_version}, as {user}, by {protection}");
    let problems = problems.into_iter().map(|problem| ("database", Found::Warning, problem));
    std::iter::once(("database", Found::Ok, answers)).chain(problems).collect()
}

async fn store(stores: &Stores, now: Timestamp) -> Vec<Check> {
    let open = match stores.open().await {
        Ok(open) => open,
        // One that is named, and will be made.
        Err(failure) if failure.exit() == Exit::NotFound => {
            return vec![("store", Found::Ok, failure.text().to_owned()), clock(now, 0)];
        }
        Err(failure) => return vec![("store", Found::Failed, failure.text().to_owned()), clock(now, 0)],
    };
    let (mut checks, mut last) = (Vec::new(), 0);
    for store in &open.stores {
        checks.push(match store.ids().await {
            Ok(runs) => {
                if let Some(newest) = runs.last() {
                    last = last.max(store.begun_at(*newest).await);
                }
                ("store", Found::Ok, format!("{}: {}", shown_path(store.place()), count(runs.len(), "run")))
            }
            Err(failure) => ("store", Found::Failed, format!("{}: {}", shown_path(store.place()), failure.text())),
        });
    }
    checks.extend(open.notes().lines().map(|note| ("store", Found::Failed, note.to_owned())));
    if checks.is_empty() {
        checks.push(("store", Found::Ok, "there is none yet".to_owned()));
    }
    checks.push(clock(now, last));
    checks
}

/// `last` is the time of the newest run, in milliseconds.
fn clock(now: Timestamp, last: u64) -> Check {
    let shown = time(now);
    if now < SET {
        ("clock", Found::Failed, format!("{shown}: it was never set"))
    } else if now.as_millis() < last {
        let newest = time(Timestamp::from_millis(last));
        ("clock", Found::Warning, format!("{shown}: it is behind the newest run, which was submitted at {newest}"))
    } else {
        ("clock", Found::Ok, shown)
    }
}

fn disk(folder: &Path) -> Check {
    let there = folder.ancestors().find(|folder| folder.exists()).unwrap_or(folder);
    match free(there) {
        None => ("disk", Found::Warning, format!("the free space of {} is not known", shown_path(there))),
        Some(bytes) => {
            let found = match bytes {
                _ if bytes < NEEDED => Found::Failed,
                _ if bytes < LITTLE => Found::Warning,
                _ => Found::Ok,
            };
            ("disk", found, format!("{} MiB free in {}", bytes >> 20, shown_path(there)))
        }
    }
}

/// The folder with the stores is to be this user's alone.
fn state(folder: &Path) -> Check {
    let shown = shown_path(folder);
    match fs::metadata(folder) {
        Ok(found) if found.uid() != geteuid().as_raw() => {
            ("state", Found::Failed, format!("{shown} belongs to user {}", found.uid()))
        }
        Ok(found) if found.mode() & 0o077 != 0 => (
            "state",
            Found::Warning,
            format!("{shown} has mode {:04o}: others may look into it", found.mode() & 0o7777),
        ),
        Ok(_) => ("state", Found::Ok, format!("{shown} is this user's alone")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            ("state", Found::Ok, format!("{shown} is made when it is needed"))
        }
        Err(error) => ("state", Found::Failed, format!("{shown}: {error}")),
    }
}

/// Other processes reach this one on a socket.
async fn sockets() -> Check {
    let folder = private::folder();
    match private::listen(&folder, &format!("doctor-{}.sock", std::process::id())).await {
        Ok(_) => ("sockets", Found::Ok, format!("in {}", shown_path(&folder))),
        Err(error) => ("sockets", Found::Failed, format!("other processes cannot reach this one: {error}")),
    }
}

/// The file of settings, and the certificate that it or a variable names.
fn settings(files: &Files) -> Result<Vec<Check>, Failure> {
    let read = config::read(files)?.and_then(|config| config.check_serve().map(|()| config));
    let config = match read {
        Ok(config) => config,
        Err(invalid) => {
            let why = first_line(&invalid.defects.to_string()).to_owned();
            return Ok(vec![("config", Found::Failed, why)]);
        }
    };
    let file = config.file.unwrap_or_else(|| "there is no file of settings".to_owned());
    let tls = match config.serve.tls(None, None) {
        Ok(None) => None,
        Ok(Some(named)) => Some(match named.open(&files.root) {
            Ok(_) => ("tls", Found::Ok, format!("{} with its key", shown_path(named.certificate()))),
            Err(unusable) => ("tls", Found::Failed, unusable.to_string()),
        }),
        Err(failure) => Some(("tls", Found::Failed, failure.text().to_owned())),
    };
    Ok(std::iter::once(("config", Found::Ok, file)).chain(tls).collect())
}

/// The bot on Telegram, if the settings have one. It is asked with `--online`.
async fn bot(arguments: &Doctor, stores: &Stores) -> Option<Check> {
    let config = config::read(&arguments.files).ok()?.ok()?;
    let places = (&*arguments.files.root, stores);
    let config = match telegram::config(config.telegram.as_ref()?, &config.people, places, None) {
        Ok(config) => config,
        Err(failure) => return Some(("telegram", Found::Failed, failure.text().to_owned())),
    };
    if !arguments.online {
        return Some(("telegram", Found::Ok, "the bot has a token; --online asks whether it answers".to_owned()));
    }
    Some(match timeout(ANSWER_TIME, config.bot_name()).await {
        Ok(Ok(name)) => ("telegram", Found::Ok, format!("{name} answers")),
        Ok(Err(why)) => ("telegram", Found::Failed, format!("the bot is not reached: {why}")),
        Err(_) => ("telegram", Found::Failed, format!("the bot has not answered within {} s", ANSWER_TIME.as_secs())),
    })
}

/// The account on Matrix and its rooms, if the settings have one. The homeserver is asked with `--online`.
async fn rooms(arguments: &Doctor, stores: &Stores) -> Vec<Check> {
    const MATRIX: &str = "matrix";
    let Ok(Ok(config)) = config::read(&arguments.files) else { return Vec::new() };
    let Some(section) = &config.matrix else { return Vec::new() };
    let places = (&*arguments.files.root, stores);
    let asking = matrix::config(section, &config.people, places, None);
    let agents = matrix::agents_config(section, &config.people, places, None);
    let (asking, agents) = match asking.and_then(|asking| Ok((asking, agents?))) {
        Ok(configs) => configs,
        Err(failure) => return vec![(MATRIX, Found::Failed, failure.text().to_owned())],
    };
    if !arguments.online {
        let text = "the account has a token; --online asks whether the homeserver answers".to_owned();
        return vec![(MATRIX, Found::Ok, text)];
    }
    let looked = async {
        let asking = match &asking {
            Some(asking) => Some(asking.look().await?),
            None => None,
        };
        let agents = match &agents {
            Some(agents) => Some(agents.look().await?),
            None => None,
        };
        let (accounts, unusable): (Vec<_>, Vec<_>) = asking.into_iter().chain(agents).unzip();
        Ok::<_, String>((accounts.into_iter().next().unwrap_or_default(), unusable.concat()))
    };
    match timeout(ANSWER_TIME, looked).await {
        Ok(Ok((account, unusable))) => {
            let account = (MATRIX, Found::Ok, format!("{account} is signed in"));
            std::iter::once(account).chain(unusable.into_iter().map(|text| (MATRIX, Found::Failed, text))).collect()
        }
        Ok(Err(why)) => vec![(MATRIX, Found::Failed, format!("the homeserver is not reached: {why}"))],
        Err(_) => {
            let text = format!("the homeserver has not answered within {} s", ANSWER_TIME.as_secs());
            vec![(MATRIX, Found::Failed, text)]
        }
    }
}

/// The server of mail and the people whom it reaches, if the settings have one. It is asked with `--online`, and gets no mail.
async fn mail(arguments: &Doctor, stores: &Stores) -> Vec<Check> {
    const EMAIL: &str = "email";
    let Ok(Ok(config)) = config::read(&arguments.files) else { return Vec::new() };
    let Some(section) = &config.email else { return Vec::new() };
    let config = match email::config(section, &config.people, (&arguments.files.root, stores), None) {
        Ok(config) => config.timeout(ANSWER_TIME),
        Err(failure) => return vec![(EMAIL, Found::Failed, failure.text().to_owned())],
    };
    if !arguments.online {
        let text = "there is a server; --online asks whether it takes mails, and sends none".to_owned();
        return vec![(EMAIL, Found::Ok, text)];
    }
    let line = |(address, taken): (String, Result<(), String>)| match taken {
        Ok(()) => (EMAIL, Found::Ok, format!("{address} gets mails")),
        Err(why) => (EMAIL, Found::Failed, format!("{address} gets no mail: {why}")),
    };
    match config.look().await {
        Ok(looked) => looked.into_iter().map(line).collect(),
        Err(why) => vec![(EMAIL, Found::Failed, format!("the server of mail is not reached: {why}"))],
    }
}

/// The webhooks that get approvals, if the settings have any. They get a message with `--online`.
async fn receivers(arguments: &Doctor, stores: &Stores) -> Vec<Check> {
    const WEBHOOKS: &str = "webhooks";
    let Ok(Ok(config)) = config::read(&arguments.files) else { return Vec::new() };
    let config = match webhooks::config(&config.channels, (&arguments.files.root, stores), None) {
        Ok(None) => return Vec::new(),
        Ok(Some(config)) => config.timeout(ANSWER_TIME),
        Err(failure) => return vec![(WEBHOOKS, Found::Failed, failure.text().to_owned())],
    };
    if !arguments.online {
        let text = "each has a secret; --online sends each a message of the type ping".to_owned();
        return vec![(WEBHOOKS, Found::Ok, text)];
    }
    let line = |(name, answer): (String, Result<(), String>)| match answer {
        Ok(()) => (WEBHOOKS, Found::Ok, format!("{name} takes messages")),
        Err(why) => (WEBHOOKS, Found::Failed, format!("{name} takes no message: {why}")),
    };
    config.ping().await.into_iter().map(line).collect()
}

fn listed(models: &Result<Models, Invalid>) -> Check {
    match models {
        Err(Invalid { origin, defects }) => {
            ("models", Found::Failed, format!("{origin}: {}", first_line(&defects.to_string())))
        }
        Ok(models) => match models.candidates(&ModelChoice::default()) {
            Ok(found) => ("models", Found::Ok, format!("{}, each with its key", count(found.len(), "model"))),
            Err(error) => ("models", Found::Warning, error.to_string()),
        },
    }
}

/// Asks all models of the catalog at the same time.
async fn asked(models: &Result<Models, Invalid>) -> Vec<Check> {
    let entries: Vec<&ModelEntry> = models.iter().flat_map(Models::entries).collect();
    if entries.is_empty() {
        return vec![("online", Found::Warning, "no catalog lists models that could be asked".to_owned())];
    }
    join_all(entries.into_iter().map(|entry| async move {
        match timeout(ANSWER_TIME, answer(entry)).await {
            Ok(Ok(())) => ("online", Found::Ok, format!("the model {} answers", entry.name)),
            Ok(Err(error)) => ("online", Found::Failed, format!("the model {}: {error}", entry.name)),
            Err(_) => {
                let text = format!("the model {} has not answered within {} s", entry.name, ANSWER_TIME.as_secs());
                ("online", Found::Failed, text)
            }
        }
    }))
    .await
}

/// Asks once, without the retries of agents.
async fn answer(entry: &ModelEntry) -> Result<(), String> {
    let request = ModelRequest {
        system: "".into(),
        messages: Arc::new(vec![Message::user("Answer with the word ok.")]),
        tools: Vec::new(),
        max_tokens: ANSWER_TOKENS,
        idempotency_key: "callboard-doctor".into(),
        trace_parent: None,
    };
    let mut events = entry.model.call(request);
    while let Some(event) = events.next().await {
        event.map_err(|error| error.text.into_owned())?;
    }
    Ok(())
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_behind_the_newest_run_or_was_never_set_is_reported() {
        let found = |now: u64, last| clock(Timestamp::from_millis(now), last).1;
        assert_eq!(found(1_000, 0), Found::Failed);
        assert_eq!(
            [found(1_800_000_000_000, 0), found(1_800_000_000_000, 1_800_000_000_001)],
            [Found::Ok, Found::Warning]
        );
    }
}
