//! A server in a process of its own: this program again, with a variable.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command as Process, Stdio};
use std::time::Duration;

use callboard::env::Env;
use callboard::prelude::*;
use callboard_server::{Scope, Server, TokenSpec, Tokens};
use tokio::net::TcpListener;

use crate::measure::two_workers;

const SERVES: &str = "CALLBOARD_BENCH_SERVES";

/// How many tokens the server has; each may have 100 event streams.
pub(crate) const TOKENS: usize = 100;

/// How many turns of the agent `worker` run at the same time, and how long one takes: the capacity is a matter of these, so that
/// the processor has time for everything else.
const WORKERS: usize = 4;
const WORK: Duration = Duration::from_millis(4);
/// How many runs the board takes.
const RUNS: usize = 2_000;

pub(crate) struct Spawned {
    process: Child,
    pub(crate) port: u16,
    pub(crate) secrets: Vec<String>,
}

pub(crate) fn is_one() -> bool {
    std::env::var_os(SERVES).is_some()
}

/// Raises the limit of open files as far as it may be raised, and returns it.
pub(crate) fn open_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    maximum.unwrap_or(u64::MAX)
}

/// Serves until this process is killed.
pub(crate) fn serve() {
    open_files();
    two_workers().block_on(async {
        let worker = |_: Turn| async {
            tokio::time::sleep(WORK).await;
            Ok(Command::output("done"))
        };
        let board = Callboard::builder()
            .with(AgentSpec::new("worker", worker).concurrency(WORKERS))
            .with(AgentSpec::new("waiter", |_: Turn| std::future::pending::<Result<Command, TurnError>>()))
            .capacity(|it| it.runs_in_flight(RUNS))
            .retention(|it| it.memory_runs(1_000))
            .start()
            .await
            .unwrap();
        let tokens = Tokens::new(Env::system());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap().port());
        for number in 0..TOKENS {
            println!("{}", tokens.add(TokenSpec::new(&format!("token-{number}"), Scope::ALL)).unwrap());
        }
        Server::new(board, tokens).serve(listener, std::future::pending()).await.unwrap();
    });
}

impl Spawned {
    pub(crate) fn start() -> Self {
        let mut process = Process::new(std::env::current_exe().unwrap());
        let mut process = process.env(SERVES, "1").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        let port = lines.next().unwrap().parse().unwrap();
        Self { process, port, secrets: lines.take(TOKENS).collect() }
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
