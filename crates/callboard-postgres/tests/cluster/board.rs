//! The process of a board: it does what its input asks for, one line each, and writes lines about it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use callboard::messages::{Pending, Response, RunId};
use callboard::prelude::{Callboard, Task};
use callboard::runtime::{BuildError, RunError};
use callboard::storage::StorageError;
use callboard_postgres::{Postgres, PostgresConfig};

use super::agents;
use super::record::Recorder;
use super::support;
use super::zombie::Standstill;

/// The environment variable of a board's process, with the lines of [`Life`].
pub(crate) const BOARD: &str = "CALLBOARD_CLUSTER_BOARD";

/// The beginning of each line that a board writes.
pub(crate) const LINE: &str = "@ ";

/// One process of a board.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) name: String,
    pub(crate) number: u64,
    pub(crate) lease: Duration,
    /// The folder of the server's socket.
    pub(crate) folder: PathBuf,
    pub(crate) schema: String,
    pub(crate) record: PathBuf,
}

impl Life {
    /// The board and the number of its process, as in the record.
    pub(crate) fn who(&self) -> String {
        format!("{}-{}", self.name, self.number)
    }

    pub(crate) fn to_lines(&self) -> String {
        let Self { name, number, lease, folder, schema, record } = self;
        format!("{name}\n{number}\n{}\n{}\n{schema}\n{}", lease.as_millis(), folder.display(), record.display())
    }

    /// The life that this process is, if it is that of a board.
    fn of_this_process() -> Option<Self> {
        let lines = std::env::var(BOARD).ok()?;
        let [name, number, lease, folder, schema, record] = lines.lines().collect::<Vec<_>>()[..] else {
            panic!("{lines:?}")
        };
        Some(Self {
            name: name.to_owned(),
            number: number.parse().unwrap(),
            lease: Duration::from_millis(lease.parse().unwrap()),
            folder: folder.into(),
            schema: schema.to_owned(),
            record: record.into(),
        })
    }
}

fn say(line: &str) {
    println!("{LINE}{}", line.replace('\n', " "));
}

/// Runs the board, if this is the process of one.
pub(crate) fn run() {
    let Some(life) = Life::of_this_process() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let standstill = Standstill::default();
        match start(&life, &standstill).await {
            Ok(board) => serve(board, &life.record, standstill).await,
            Err(error) => say(&format!("failed {error}")),
        }
    });
    // Tasks that wait are not waited for.
    std::process::exit(0);
}

/// Starts the board, as soon as its name is free.
async fn start(life: &Life, standstill: &Standstill) -> Result<Callboard, String> {
    let recorder = Recorder::open(&life.record, &life.who(), life.number);
    loop {
        let config: PostgresConfig = support::config_at(&life.folder, &life.schema);
        let store = Postgres::connect_with(config).await.map_err(|error| error.to_string())?;
        let builder = Callboard::builder()
            .env(standstill.env())
            .storage(standstill.store(store))
            .name(&life.name)
            .pool(100)
            .max_recoveries(1_000)
            .shutdown_grace(Duration::from_secs(1))
            .timings(|timings| timings.lease(life.lease).scan_every(Duration::from_millis(200)));
        let hosted = agents::of_board(&life.name).iter().map(|name| agents::agent(name, &recorder));
        match hosted.fold(builder, |builder, agent| builder.with(agent)).start().await {
            Ok(board) => return Ok(board),
            Err(BuildError::Storage(StorageError::NameTaken { left, .. })) => {
                say("taken");
                tokio::time::sleep(left).await;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

async fn serve(board: Callboard, record: &Path, standstill: Standstill) {
    say("ready");
    let (lines, mut read) = tokio::sync::mpsc::channel(1);
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| lines.blocking_send(line))
    });
    loop {
        tokio::select! {
            line = read.recv() => match line {
                Some(line) if line == "stand still" => standstill.begin(),
                Some(line) => drop(tokio::spawn(do_as_asked(board.clone(), line, record.to_owned()))),
                None => break,
            },
            reason = board.ended() => return say(&format!("ended {reason}")),
        }
    }
    board.shutdown().await;
    say("stopped");
}

async fn do_as_asked(board: Callboard, line: String, record: PathBuf) {
    match line.split(' ').collect::<Vec<_>>()[..] {
        ["submit", kind, to, run] => {
            let task = Task::new(kind).to(to).input(format!("{kind} {run} whole")).id(run.parse().unwrap());
            match board.submit(task).await {
                Ok(_) => {
                    say(&format!("accepted {run}"));
                    wait(&board, run.parse().unwrap()).await;
                }
                Err(error) => say(&format!("refused {run} {error}")),
            }
        }
        ["wait", run] => wait(&board, run.parse().unwrap()).await,
        ["people"] => answer_people(&board, &record).await,
        ["look"] => {
            let quarantined = board.quarantined();
            if !quarantined.is_empty() {
                say(&format!("wrong quarantined: {quarantined:?}"));
            }
            if let Ok(unfinished) = board.unfinished_runs().await {
                let first: Vec<_> = unfinished.iter().take(3).map(|run| run.id().to_string()).collect();
                say(&format!("unfinished {} {}", unfinished.len(), first.join(" ")));
            }
        }
        _ => panic!("{line:?}"),
    }
}

async fn wait(board: &Callboard, run: RunId) {
    match board.run(run).result().await {
        Ok(result) => say(&format!("end {run} {} {}", result.outcome, result.output)),
        Err(error @ (RunError::Unknown(_) | RunError::Quarantined { .. } | RunError::Trimmed(_))) => {
            say(&format!("wrong {run} is lost: {error}"));
        }
        Err(error) => say(&format!("unknown {run} {error}")),
    }
}

/// Answers what runs of other boards wait for people with.
async fn answer_people(board: &Callboard, record: &Path) {
    for open in board.people().pending().await {
        if board.runs_at_work().iter().any(|run| run.id() == open.run()) {
            continue;
        }
        let (kind, response) = match &open {
            Pending::Question(question) => {
                let text = question.text();
                let record = std::fs::read_to_string(record).unwrap_or_default();
                let kind = if text.starts_with("continue ") { "question" } else { "outcome" };
                (kind, Response::Value(agents::answer(&text, &record)))
            }
            Pending::Attention { why, .. } => {
                say(&format!("attention {} {why}", open.turn()));
                ("attention", Response::Restart)
            }
            Pending::Approval(_) | Pending::Node(_) => {
                say(&format!("wrong nobody asks for this: {open:?}"));
                continue;
            }
        };
        match board.people().answer(&open, response, "ann").await {
            Ok(_) => say(&format!("answered {kind}")),
            Err(error) => say(&format!("unanswered {kind} {error}")),
        }
    }
}
