//! What durable chains of three turns cost with a store in PostgreSQL, compared with one-row inserts and with the store on disk:
//! `cargo bench -p callboard-postgres`, or `… -- delegation` for the rows whose names contain a word. It starts a server of its own;
//! server, boards and both stores share the machine.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a benchmark")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use callboard::messages::Outcome;
use callboard::prelude::{AgentSpec, Callboard, Command, Task, Turn, TurnError};
use callboard::runtime::Builder;
use callboard::storage::{Append, Key, SessionId, Sled, Storage as _};
use callboard_postgres::{Postgres, PostgresConfig};
use futures::future::join_all;
use support::Server;

const ROUNDS: usize = 9;
/// Chains one at a time in a round.
const ALONE: usize = 100;
/// Chains that are under way at once, and how often that in a round.
const WIDTH: usize = 1_000;
const REPEATS: usize = 3;
const SUBMITTED: usize = 10_000;
/// Take-overs; each needs a lost board with [`SUBMITTED`] runs.
const TAKE_OVERS: usize = 3;
/// Delegations to another board that are under way at once.
const DELEGATED: usize = 512;

fn chains() -> Builder {
    let builder = Callboard::builder()
        .agent("researcher", |turn: Turn| async move {
            Ok(Command::output(format!("notes on {}", turn.task().body)).goto("writer"))
        })
        .agent("writer", |_: Turn| async move { Ok(Command::output("88 of 100").goto("editor")) })
        .agent("editor", |_: Turn| async move { Ok(Command::output("done")) });
    builder.capacity(|capacity| capacity.runs_in_flight(100_000))
}

async fn finish(board: Callboard) {
    let result = board.submit(Task::new("the design").to("researcher")).await.unwrap().result().await.unwrap();
    assert_eq!(result.outcome, Outcome::Finished);
}

/// The median time of four appends to streams of their own, one after the other.
async fn four_appends(store: &Postgres, round: usize) -> f64 {
    let mut times = Vec::new();
    for count in 0..ALONE {
        let stream = Key::new(["bench", &format!("{round}-{count}")]);
        let began = Instant::now();
        for expected in 0..4 {
            store.append(Append::new(stream.clone(), expected, [7_u8; 200][..].into())).await.unwrap();
        }
        times.push(began.elapsed().as_secs_f64());
    }
    median(times)
}

/// The median time of a chain, one after the other.
async fn alone(board: &Callboard) -> f64 {
    let mut times = Vec::new();
    for _ in 0..ALONE {
        let began = Instant::now();
        finish(board.clone()).await;
        times.push(began.elapsed().as_secs_f64());
    }
    median(times)
}

/// Chains each second, with a crowd at each of these boards.
async fn crowd(boards: &[&Callboard]) -> f64 {
    let began = Instant::now();
    for _ in 0..REPEATS {
        let each = WIDTH / boards.len();
        let runs = boards.iter().flat_map(|board| (0..each).map(|_| tokio::spawn(finish((*board).clone()))));
        for run in runs.collect::<Vec<_>>() {
            run.await.unwrap();
        }
    }
    (REPEATS * WIDTH) as f64 / began.elapsed().as_secs_f64()
}

/// The time until all submissions are acknowledged.
async fn submit(board: &Callboard) -> f64 {
    let began = Instant::now();
    let submitted: Vec<_> = (0..SUBMITTED)
        .map(|_| {
            let board = board.clone();
            tokio::spawn(async move { board.submit(Task::new("the design").to("researcher")).await.unwrap() })
        })
        .collect();
    let runs = join_all(submitted).await;
    let took = began.elapsed().as_secs_f64();
    join_all(runs.into_iter().map(|run| async move { run.unwrap().result().await.unwrap() })).await;
    took
}

/// The time until another board works on the runs of a board whose session has ended, from that end and from the next look for such
/// boards, which are 2 s apart. The runs wait for people.
async fn take_over(server: &Server) -> (f64, f64) {
    let config = server.fresh().await;
    let store = Postgres::connect_with(config.clone()).await.unwrap();
    let lost = board(&config, "lost", waiters()).await;
    let heir = board(&config, "heir", waiters()).await;
    let submitted = (0..SUBMITTED).map(|_| lost.submit(Task::new("x").to("waiter")));
    join_all(submitted).await.into_iter().for_each(|run| drop(run.unwrap()));
    let entry = heir.boards().await.unwrap().into_iter().find(|board| &*board.name == "lost").unwrap();
    let began = Instant::now();
    store.end_session(SessionId(entry.session), false).await.unwrap();
    let mut found = None;
    while heir.load().runs < SUBMITTED {
        if !heir.runs_at_work().is_empty() {
            found.get_or_insert_with(Instant::now);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let took = (began.elapsed().as_secs_f64(), found.unwrap_or(began).elapsed().as_secs_f64());
    heir.shutdown().await;
    lost.shutdown().await;
    took
}

fn waiters() -> Builder {
    chains().agent("waiter", |turn: Turn| async move { Ok(Command::output(turn.people().ask("name?").await?)) })
}

/// A turn that delegates to an agent of another board, and has the seconds that this took as its output.
async fn ask(turn: Turn) -> Result<Command, TurnError> {
    let began = Instant::now();
    turn.delegate("far", "x").await?;
    Ok(Command::output(began.elapsed().as_secs_f64()))
}

async fn delegated(board: Callboard) -> f64 {
    let result = board.submit(Task::new("x").to("asker")).await.unwrap().result().await.unwrap();
    result.output.parse().unwrap()
}

/// The median time of a delegation, one after the other.
async fn delegate(board: &Callboard) -> f64 {
    let mut times = Vec::new();
    for _ in 0..ALONE {
        times.push(delegated(board.clone()).await);
    }
    median(times)
}

/// Delegations each second, with a crowd of askers.
async fn delegate_at_once(board: &Callboard) -> f64 {
    let began = Instant::now();
    for _ in 0..REPEATS {
        let runs: Vec<_> = (0..DELEGATED).map(|_| tokio::spawn(delegated(board.clone()))).collect();
        for run in runs {
            run.await.unwrap();
        }
    }
    (REPEATS * DELEGATED) as f64 / began.elapsed().as_secs_f64()
}

/// One-row inserts on one connection, on a thread of its own as the connections of a store are.
struct Inserts {
    ask: mpsc::Sender<mpsc::Sender<f64>>,
}

impl Inserts {
    fn start(url: String) -> Self {
        let (ask, asked) = mpsc::channel::<mpsc::Sender<f64>>();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let client = support::connect(&url).await;
                client.batch_execute("CREATE TABLE raw (id bigint PRIMARY KEY, body bytea NOT NULL)").await.unwrap();
                let insert = client.prepare("INSERT INTO raw VALUES ($1, $2)").await.unwrap();
                let (mut next, body) = (0_i64, [7_u8; 200]);
                while let Ok(answer) = asked.recv() {
                    let mut times = Vec::new();
                    for _ in 0..ALONE {
                        let began = Instant::now();
                        for _ in 0..4 {
                            next += 1;
                            client.execute(&insert, &[&next, &&body[..]]).await.unwrap();
                        }
                        times.push(began.elapsed().as_secs_f64());
                    }
                    answer.send(median(times)).unwrap();
                }
            });
        });
        Self { ask }
    }

    /// The median time of four, one after the other.
    fn four(&self) -> f64 {
        let (answer, answered) = mpsc::channel();
        self.ask.send(answer).unwrap();
        answered.recv().unwrap()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn board(config: &PostgresConfig, name: &str, agents: Builder) -> Callboard {
    let store = Postgres::connect_with(config.clone()).await.unwrap();
    agents.storage(store).name(name).start().await.unwrap()
}

/// The rows: what is measured, its unit, what it is compared with, and the target.
const ROWS: [(&str, Unit, Option<usize>, &str); 12] = [
    ("four one-row inserts on one connection", Unit::Time, None, ""),
    ("four appends to the store", Unit::Time, Some(0), ""),
    ("durable chain, one at a time", Unit::Time, Some(0), "at most 1.6"),
    ("durable chain on disk, one at a time", Unit::Time, Some(0), ""),
    ("durable chain, 1,000 at once", Unit::Rate, Some(6), "at least 10,000/s"),
    ("durable chain, 500 at once at each of two boards", Unit::Rate, Some(4), "at least 1.1"),
    ("durable chain on disk, 1,000 at once", Unit::Rate, None, ""),
    ("10,000 submitted at once, acknowledged", Unit::Time, None, "at most 1,000 ms"),
    ("delegation to another board, one at a time", Unit::Time, Some(0), "at most 4 ms"),
    ("delegation to another board, 512 under way", Unit::Rate, None, "at least 6,000/s"),
    ("take-over of 10,000 runs", Unit::Time, None, "at most 3,000 ms"),
    ("take-over of 10,000 runs, from when it is due", Unit::Time, None, "at most 1,000 ms"),
];

#[derive(Clone, Copy)]
enum Unit {
    Time,
    Rate,
}

impl Unit {
    fn shown(self, value: f64) -> String {
        match self {
            Self::Time => format!("{:.2} ms", value * 1e3),
            Self::Rate => format!("{value:.0}/s"),
        }
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with("--")).unwrap_or_default();
    let server = Server::start(&["shared_buffers=256MB", "max_wal_size=2GB", "checkpoint_timeout=30min"]);
    let config = server.fresh().await;
    let raw = Inserts::start(server.url());
    let far = AgentSpec::new("far", |_: Turn| async { Ok(Command::output(1)) }).concurrency(DELEGATED);
    let other = board(&config, "other", chains().with(far)).await;
    let asker = AgentSpec::new("asker", ask).concurrency(DELEGATED);
    let one = board(&config, "one", chains().pool(DELEGATED).with(asker)).await;
    let folder = tempfile::tempdir().unwrap();
    let disk = chains().storage(Sled::open(folder.path()).unwrap()).start().await.unwrap();

    let store = Postgres::connect_with(config.clone()).await.unwrap();
    let mut measured: [Vec<f64>; ROWS.len()] = Default::default();
    let mut found = 0.0;
    for round in 0..=ROUNDS {
        for (row, values) in measured.iter_mut().enumerate() {
            // What others are compared with is measured with them.
            let is_wanted = |index: usize| ROWS[index].0.contains(&wanted);
            if !is_wanted(row) && !(0..ROWS.len()).any(|other| is_wanted(other) && ROWS[other].2 == Some(row)) {
                continue;
            }
            let value = match row {
                0 => raw.four(),
                1 => four_appends(&store, round).await,
                2 => alone(&one).await,
                3 => alone(&disk).await,
                4 => crowd(&[&one]).await,
                5 => crowd(&[&one, &other]).await,
                6 => crowd(&[&disk]).await,
                7 => submit(&one).await,
                8 => delegate(&one).await,
                9 => delegate_at_once(&one).await,
                _ if round > TAKE_OVERS => continue,
                10 => {
                    let taken = take_over(&server).await;
                    found = taken.1;
                    taken.0
                }
                _ => found,
            };
            if round > 0 {
                values.push(value);
            }
        }
    }
    let medians = measured.map(|values| (!values.is_empty()).then(|| median(values)));
    for ((name, unit, compared, target), value) in ROWS.into_iter().zip(medians) {
        let Some(value) = value else { continue };
        let ratio = compared.and_then(|row| Some((ROWS[row].0, value / medians[row]?)));
        let (compared, ratio) = ratio.map(|(name, ratio)| (name, format!("{ratio:.2}"))).unwrap_or_default();
        println!("{name:<50} {:>11}  {compared:<50} {ratio:>5}  {target}", unit.shown(value));
    }
    for board in [one, other, disk] {
        tokio::time::timeout(Duration::from_secs(60), board.shutdown()).await.unwrap();
    }
}
