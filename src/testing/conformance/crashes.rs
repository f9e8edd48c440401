//! Rules of stores that crash: a process writes and reports its progress, it dies at some point, and the store is opened
//! again. What is known of it comes from outside: the store is never asked what it lost.

use std::future::Future;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;

use super::script::{Contents, CrashScript, WriteReport};
use super::sessions::new_session;
use super::subject::expect;
use crate::storage::{Key, Put, Storage};

/// The environment of the child: the path of the store, and the script that it plays.
const PATH: &str = "CALLBOARD_CRASH_PATH";
const SCRIPT: &str = "CALLBOARD_CRASH_SCRIPT";
/// Lives on one store.
const LIVES: u64 = 6;

type Open = Box<dyn Fn(PathBuf) -> BoxFuture<'static, Arc<dyn Storage>>>;

/// A backend that can crash, for the form `crashed` of [`storage_conformance!`](crate::storage_conformance), whose form `killed` makes its own.
pub struct Mortal {
    open: Open,
    /// For stores of processes; the others do not look at it.
    path: PathBuf,
    death: Death,
}

enum Death {
    /// The test of this name, as a process of its own, is killed.
    Kill(&'static str),
    /// The backend itself knows what a crash is.
    Crash(Box<dyn Fn() -> BoxFuture<'static, ()>>),
}

impl std::fmt::Debug for Mortal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mortal").field("path", &self.path).finish_non_exhaustive()
    }
}

/// One life of a writer: its script, what it reported before it died, and what was found.
struct Life {
    script: CrashScript,
    reports: Vec<WriteReport>,
    found: Contents,
}

impl Mortal {
    /// A backend that dies with its process. `open` opens it at a path: that of a folder that does not exist yet, or a
    /// name made of it. `test` is the path of the test that checks a rule with it, from the name of its crate on.
    pub fn new<F>(test: &'static str, open: impl Fn(PathBuf) -> F + 'static) -> Self
    where
        F: Future<Output = Arc<dyn Storage>> + Send + 'static,
    {
        let open: Open = Box::new(move |path| Box::pin(open(path)));
        let test = test.split_once("::").map_or(test, |(_crate, test)| test);
        let rule = test.replace("::", "-");
        let path = std::env::temp_dir().join(format!("callboard-crash-{}-{rule}", std::process::id()));
        Self { open, path, death: Death::Kill(test) }
    }

    /// A backend that can be crashed without its process: one on a disk that is only simulated, or in a process elsewhere.
    /// `open` opens it with all that is left of it, the first time with nothing. `crash` is called amid its work, has it lose
    /// what a crash may take, and discards whatever the open handle still has under way; the handle is dropped
    /// after that.
    pub fn in_process<O, C>(open: impl Fn() -> O + 'static, crash: impl Fn() -> C + 'static) -> Self
    where
        O: Future<Output = Arc<dyn Storage>> + Send + 'static,
        C: Future<Output = ()> + Send + 'static,
    {
        let open: Open = Box::new(move |_| Box::pin(open()));
        let crash = Death::Crash(Box::new(move || Box::pin(crash())));
        Self { open, path: PathBuf::new(), death: crash }
    }

    /// Runs one rule; in a child, what is to be killed.
    pub(super) fn check_with<F: Future<Output = ()>>(self, rule: impl FnOnce(Self) -> F) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => panic!("cannot start a runtime: {error}"),
        };
        runtime.block_on(async move {
            match (std::env::var_os(PATH), std::env::var(SCRIPT)) {
                (Some(path), Ok(seed)) => self.live(path.into(), &seed).await,
                _ => rule(self).await,
            }
        });
    }

    async fn live(&self, path: PathBuf, seed: &str) {
        let Ok(seed) = seed.parse() else { panic!("{SCRIPT}={seed:?} is not a number") };
        let store = (self.open)(path).await;
        let base = expect(Contents::read(&*store).await);
        CrashScript::new(seed, base).play(&*store, u64::MAX).for_each(async |report| println!("{report}")).await;
    }

    async fn open(&self) -> Arc<dyn Storage> {
        (self.open)(self.path.clone()).await
    }

    /// Lets a writer live until it has reported `lines` lines.
    async fn life(&self, seed: u64, lines: usize, base: Contents) -> Life {
        let script = CrashScript::new(seed, base);
        let reports = match &self.death {
            Death::Kill(test) => self.kill_after(test, seed, lines),
            Death::Crash(crash) => {
                let store = self.open().await;
                // What this test did itself is not what may be lost.
                expect(store.put_if_revision(marker("begun")).await);
                let mut playing = pin!(script.play(&*store, u64::MAX));
                let reports = playing.as_mut().take(lines).collect().await;
                crash().await;
                reports
            }
        };
        let found = expect(Contents::read(&*self.open().await).await);
        Life { script, reports, found }
    }

    fn kill_after(&self, test: &str, seed: u64, lines: usize) -> Vec<WriteReport> {
        let program = match std::env::current_exe() {
            Ok(program) => program,
            Err(error) => panic!("the test program is not to be found: {error}"),
        };
        let child = Command::new(program)
            .args([test, "--exact", "--nocapture", "--quiet"])
            .env(PATH, &self.path)
            .env(SCRIPT, seed.to_string())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(error) => panic!("the child cannot be started: {error}"),
        };
        let output = child.stdout.take().into_iter().flat_map(|output| BufReader::new(output).lines());
        let mut reports = Vec::new();
        // The pipe keeps what the child wrote before it was killed.
        for line in output.map_while(Result::ok) {
            reports.extend(line.parse::<WriteReport>());
            if reports.len() == lines {
                let _ = child.kill();
            }
        }
        let _ = child.wait();
        assert!(reports.len() >= lines, "the child ended before it was killed");
        reports
    }

    async fn lives(&self, judge: impl AsyncFn(&Life)) {
        let mut base = Contents::default();
        for seed in 0..LIVES {
            let life = self.life(seed, [5, 40, 90, 17, 200, 63][seed as usize % 6], base).await;
            judge(&life).await;
            base = life.found;
        }
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        // A backend that keeps nothing there has none.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn marker(name: &str) -> Put {
    Put::new(Key::new(["crash", name]), b"x".as_slice().into())
}

/// Everything up to the last acknowledged `Sync` write, whatever its own durability was.
pub(super) async fn what_was_acknowledged_as_synced_is_there_after_a_crash(store: Mortal) {
    store
        .lives(async |life| {
            let judged = life.script.judge(&life.reports, &life.found);
            assert!(judged.is_ok(), "{judged:?}");
        })
        .await;
}

/// Long and short payloads, records and values: in the order in which they were issued, each whole.
pub(super) async fn what_a_crash_leaves_is_a_beginning_of_what_was_written(store: Mortal) {
    store.lives(async |life| assert!(life.script.kept(&life.reports, &life.found).is_some())).await;
}

/// Revisions and ids of sessions.
pub(super) async fn no_number_is_given_out_twice_across_a_crash(store: Mortal) {
    store
        .lives(async |life| {
            let [revision, session] = life.script.given_out(&life.reports);
            let opened = store.open().await;
            assert!(expect(opened.put_if_revision(marker("after")).await) > revision);
            let begun = expect(opened.begin_session(new_session("after")).await);
            assert!(begun.0 > session);
            // The next life needs the name.
            expect(opened.end_session(begun, false).await);
        })
        .await;
}
