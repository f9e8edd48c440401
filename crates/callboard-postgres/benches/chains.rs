//! What durable chains of three turns cost with a store in PostgreSQL, compared with one-row inserts and with the store on disk:
//! `cargo bench -p callboard-postgres`. It starts a server of its own; server, boards and both stores share the machine.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a benchmark")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use callboard::messages::Outcome;
use callboard::prelude::{AgentSpec, Callboard, Command, Task, Turn, TurnError};
use callboard::runtime::Builder;
use callboard::storage::{Append, Key, Sled, Storage as _};
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

fn row(name: &str, value: String, compared: &str, ratio: Option<f64>, target: &str) {
    let ratio = ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
    println!("{name:<46} {value:>14}  {compared:<34} {ratio:>6}  {target}");
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
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
    let mut measured: [Vec<f64>; 10] = Default::default();
    for round in 0..=ROUNDS {
        let values = [
            raw.four(),
            four_appends(&store, round).await,
            alone(&one).await,
            alone(&disk).await,
            crowd(&[&one]).await,
            crowd(&[&one, &other]).await,
            crowd(&[&disk]).await,
            submit(&one).await,
            delegate(&one).await,
            delegate_at_once(&one).await,
        ];
        if round > 0 {
            measured.iter_mut().zip(values).for_each(|(all, value)| all.push(value));
        }
    }
    let [
        inserts,
        appends,
        alone,
        alone_on_disk,
        crowd,
        crowd_of_two,
        crowd_on_disk,
        submit,
        delegate,
        delegate_at_once,
    ] = measured.map(median);
    let millis = |seconds: f64| format!("{:.2} ms", seconds * 1e3);
    let each_second = |count: f64| format!("{count:.0} chains/s");
    row("four one-row inserts on one connection", millis(inserts), "", None, "");
    row("four appends to the store", millis(appends), "the inserts", Some(appends / inserts), "");
    row("durable chain, one at a time", millis(alone), "the inserts", Some(alone / inserts), "at most 1.6");
    row("  the same, store on disk", millis(alone_on_disk), "the inserts", Some(alone_on_disk / inserts), "");
    row(
        "durable chain, 1,000 at once",
        each_second(crowd),
        "store on disk",
        Some(crowd / crowd_on_disk),
        "at least 10,000",
    );
    row(
        "  at two boards, 500 each",
        each_second(crowd_of_two),
        "one board",
        Some(crowd_of_two / crowd),
        "at least 1.1",
    );
    row("  store on disk", each_second(crowd_on_disk), "", None, "");
    row("10,000 submitted at once, acknowledged", millis(submit), "", None, "at most 1,000 ms");
    row(
        "delegation to another board, one at a time",
        millis(delegate),
        "the inserts",
        Some(delegate / inserts),
        "at most 4 ms",
    );
    row("  512 under way", format!("{delegate_at_once:.0}/s"), "", None, "at least 6,000/s");
    for board in [one, other, disk] {
        tokio::time::timeout(Duration::from_secs(60), board.shutdown()).await.unwrap();
    }
}
