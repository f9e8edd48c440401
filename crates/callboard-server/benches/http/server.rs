//! A server in a process of its own: this program again, with a variable.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command as Process, Stdio};
use std::time::Duration;

use callboard::env::Env;
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard_server::{Scope, Server, TokenSpec, Tokens};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::chain;
use crate::measure::{WORKERS, two_workers};

const SERVES: &str = "CALLBOARD_BENCH_SERVES";
const STORE: &str = "CALLBOARD_BENCH_STORE";

/// How many tokens the server has; each may have 100 event streams.
pub(crate) const TOKENS: usize = 100;

/// How many turns of the agent `worker` run at the same time, and how long one takes: the capacity is a matter of these, so that
/// the processor has time for everything else.
const WORKERS_AT_WORK: usize = 4;
const WORK: Duration = Duration::from_millis(4);
/// How many runs the board takes.
const RUNS: usize = 2_000;

pub(crate) struct Spawned {
    process: Child,
    pub(crate) port: u16,
    /// Of the bare handlers in the same process.
    pub(crate) bare_port: u16,
    pub(crate) secrets: Vec<String>,
    /// Where its store is. The server is killed, and removes nothing.
    _folder: TempDir,
}

/// What a server serves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Serves {
    /// An agent that works, and one that waits.
    Workers,
    /// A chain of three agents, with runs in memory.
    Chain,
    /// The same with runs on disk, synced.
    DurableChain,
}

impl Serves {
    /// How many tokens there are: each request is compared with all.
    fn tokens(self) -> usize {
        match self {
            Self::Workers => TOKENS,
            Self::Chain | Self::DurableChain => 1,
        }
    }

    const ALL: [Self; 3] = [Self::Workers, Self::Chain, Self::DurableChain];

    fn name(self) -> &'static str {
        match self {
            Self::Workers => "workers",
            Self::Chain => "chain",
            Self::DurableChain => "durable chain",
        }
    }
}

/// What this process is to serve, if it is a server.
pub(crate) fn is_one() -> Option<Serves> {
    let name = std::env::var(SERVES).ok()?;
    Serves::ALL.into_iter().find(|serves| serves.name() == name)
}

/// Raises the limit of open files as far as it may be raised, and returns it.
pub(crate) fn open_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    maximum.unwrap_or(u64::MAX)
}

/// Serves until this process is killed.
pub(crate) fn serve(serves: Serves) {
    open_files();
    two_workers().block_on(async {
        let board = match serves {
            Serves::Workers => workers(),
            Serves::Chain | Serves::DurableChain => chain::agents(),
        };
        let board = match serves {
            Serves::Workers | Serves::Chain => board,
            Serves::DurableChain => board.storage(Sled::open(std::env::var_os(STORE).unwrap()).unwrap()),
        };
        let board = board.start().await.unwrap();
        let tokens = Tokens::new(Env::system());
        let [listener, bare] = [TcpListener::bind("127.0.0.1:0").await, TcpListener::bind("127.0.0.1:0").await];
        let [listener, bare] = [listener.unwrap(), bare.unwrap()];
        println!("{} {}", listener.local_addr().unwrap().port(), bare.local_addr().unwrap().port());
        for number in 0..serves.tokens() {
            println!("{}", tokens.add(TokenSpec::new(&format!("token-{number}"), Scope::ALL)).unwrap());
        }
        let handlers = chain::bare(board.clone());
        tokio::spawn(async move { axum::serve(bare, handlers).await });
        Server::new(board, tokens).serve(listener, std::future::pending()).await.unwrap();
    });
}

fn workers() -> Builder {
    let worker = |_: Turn| async {
        tokio::time::sleep(WORK).await;
        Ok(Command::output("done"))
    };
    Callboard::builder()
        .with(AgentSpec::new("worker", worker).concurrency(WORKERS_AT_WORK))
        .with(AgentSpec::new("waiter", |_: Turn| std::future::pending::<Result<Command, TurnError>>()))
        .capacity(|it| it.runs_in_flight(RUNS))
        .retention(|it| it.memory_runs(1_000))
}

impl Spawned {
    pub(crate) fn start() -> Self {
        Self::with(Serves::Workers, 2)
    }

    /// A server on a runtime with so many workers.
    pub(crate) fn with(serves: Serves, workers: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Process::new(std::env::current_exe().unwrap());
        let process = process.env(SERVES, serves.name()).env(WORKERS, workers.to_string());
        let process = process.env(STORE, folder.path().join("store"));
        let mut process = process.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        let ports = lines.next().unwrap();
        let (port, bare_port) = ports.split_once(' ').unwrap();
        let (port, bare_port) = (port.parse().unwrap(), bare_port.parse().unwrap());
        Self { process, port, bare_port, secrets: lines.take(serves.tokens()).collect(), _folder: folder }
    }

    /// Its resident memory in bytes.
    pub(crate) fn resident(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}
