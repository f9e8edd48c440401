//! Boards in processes of their own on one database, of which some are killed or stopped. What they did is read from a file that they
//! write to, and from the database by a board without agents.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use callboard::messages::{Outcome, Pending, RunId};
use callboard::prelude::{AgentSpec, Callboard, Command as Then, Task, Turn, TurnError};
use callboard::runtime::Builder;
use callboard::storage::Journal;
use callboard::testing::become_later_build;
use callboard_postgres::{Postgres, PostgresConfig};
use rustix::process::{Pid, Signal, kill_process};

mod support;

use support::{Server, waits};

/// The environment variable of a board's process: its name, the folder of the server, the schema, the file to which it writes what it does,
/// and its kind.
const BOARD: &str = "CALLBOARD_TEST_BOARD";
const LEASE: Duration = Duration::from_secs(2);
const STEPS: usize = 4;
/// The first step of a run that waits until the gate is open.
const HELD_FROM: usize = 1;

/// What is special about a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Usual,
    /// Each of its writes is a transaction of its own, so that it takes runs over one by one.
    OneByOne,
    /// It is of a later build.
    Later,
}

/// The file that lets the steps end that wait.
fn gate(diary: &Path) -> PathBuf {
    diary.with_extension("open")
}

/// A board in a process of its own.
struct Board {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Board {
    /// Reads lines until one begins so, and returns the rest of it.
    fn await_line(&mut self, begins: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the board ended before it wrote {begins:?}");
            if let Some(rest) = line.trim_end().strip_prefix(begins) {
                return rest.trim_start().to_owned();
            }
        }
    }

    /// Has the board take tasks; the runs that it has acknowledged.
    fn submit(&mut self, tasks: usize) -> Vec<RunId> {
        writeln!(self.stdin, "submit {tasks}").unwrap();
        (0..tasks).map(|_| self.await_line("accepted").parse().unwrap()).collect()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn board(config: PostgresConfig, name: &str) -> Builder {
    let store = Postgres::connect_with(config).await.unwrap();
    let builder = Callboard::builder().storage(store).name(name);
    builder.timings(|timings| timings.lease(LEASE).scan_every(Duration::from_millis(200)))
}

/// The process of a board, if this is one: it takes tasks from its input until that ends.
fn is_board() -> bool {
    let Ok(told) = std::env::var(BOARD) else { return false };
    let told: Vec<String> = told.lines().map(str::to_owned).collect();
    let [name, folder, schema, diary, kind] = &told[..] else { panic!("{told:?}") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (diary, writer) = (PathBuf::from(diary), name.clone());
        let worker = move |turn: Turn| {
            let (diary, writer) = (diary.clone(), writer.clone());
            async move {
                for step in 0..STEPS {
                    let done = async {
                        let mut file = OpenOptions::new().append(true).create(true).open(&diary).unwrap();
                        // One write of a short line is not torn.
                        file.write_all(format!("{} {step} {writer}\n", turn.id().run).as_bytes()).unwrap();
                        // The steps from here on are under way until the test says otherwise.
                        while step >= HELD_FROM && !gate(&diary).exists() {
                            tokio::time::sleep(Duration::from_millis(10)).await;
                        }
                        Ok::<_, TurnError>(step)
                    };
                    turn.step(&format!("step {step}"), done).await?;
                    turn.context().set("run", &step.to_string(), &writer, None).await?;
                }
                Ok(Then::output("done"))
            }
        };
        let (diary, writer) = (PathBuf::from(told[3].clone()), name.clone());
        let poison = move |turn: Turn| {
            let line = format!("{} 0 {writer}\n", turn.id().run);
            let mut file = OpenOptions::new().append(true).create(true).open(&diary).unwrap();
            file.write_all(line.as_bytes()).unwrap();
            std::process::abort();
            #[expect(unreachable_code, reason = "the type of an agent")]
            async {
                Ok(Then::new())
            }
        };
        let mut config = support::config_at(Path::new(folder), schema);
        if *kind == format!("{:?}", Kind::OneByOne) {
            config = config.batches(1, 1 << 20);
        }
        if *kind == format!("{:?}", Kind::Later) {
            become_later_build();
        }
        let builder = board(config, name).await;
        let spec = AgentSpec::new("worker", worker).concurrency(100);
        let board = builder.pool(100).with(spec).agent("poison", poison).start().await.unwrap();
        println!("ready");
        let (lines, mut read) = tokio::sync::mpsc::unbounded_channel();
        std::thread::spawn(move || {
            std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
        });
        loop {
            tokio::select! {
                line = read.recv() => match line.as_deref() {
                    Some("poison") => drop(board.submit(Task::new("x").to("poison")).await.unwrap()),
                    Some("attention") => match board.people().next().await {
                        Some(Pending::Attention { turn, why, .. }) => println!("attention {} {why}", turn.run),
                        other => panic!("{other:?}"),
                    },
                    Some(line) => {
                        let tasks: usize = line.strip_prefix("submit ").unwrap().parse().unwrap();
                        for _ in 0..tasks {
                            println!("accepted {}", board.submit(Task::new("x").to("worker")).await.unwrap().id());
                        }
                    }
                    None => break,
                },
                reason = board.ended() => {
                    println!("ended {reason}");
                    std::future::pending().await
                }
            }
        }
        board.shutdown().await;
    });
    true
}

/// A schema that is empty, with the boards of a test.
struct Stage {
    test: &'static str,
    schema: String,
    config: PostgresConfig,
    diary: PathBuf,
    /// Removed at the end.
    _folder: tempfile::TempDir,
}

impl Stage {
    /// That of the test of this name; `None` in the process of one of its boards, once that has ended.
    fn begin(test: &'static str) -> Option<Self> {
        if is_board() {
            return None;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let schema = runtime.block_on(Server::of_this_process().fresh_schema());
        let (config, folder) = (Server::of_this_process().config(&schema), tempfile::tempdir().unwrap());
        Some(Self { test, schema, config, diary: folder.path().join("diary"), _folder: folder })
    }

    /// Starts a board that works.
    fn start(&self, name: &str) -> Board {
        self.start_of(Kind::Usual, name)
    }

    fn start_of(&self, kind: Kind, name: &str) -> Board {
        let mut board = self.spawn(kind, name);
        board.await_line("ready");
        board
    }

    /// Starts one that may end before it is ready.
    fn spawn(&self, kind: Kind, name: &str) -> Board {
        let folder = &Server::of_this_process().folder;
        let told = format!("{name}\n{}\n{}\n{}\n{kind:?}", folder.display(), self.schema, self.diary.display());
        let child = Command::new(std::env::current_exe().unwrap())
            .args([self.test, "--exact", "--nocapture", "--quiet"])
            .env(BOARD, told)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Board { child, stdin, stdout }
    }

    /// Lets the steps end that wait.
    fn open_gate(&self) {
        std::fs::write(gate(&self.diary), []).unwrap();
    }

    /// How often each step of each run was begun, and by which boards.
    fn steps(&self) -> BTreeMap<(RunId, usize), Vec<String>> {
        let mut steps: BTreeMap<_, Vec<String>> = BTreeMap::new();
        for line in std::fs::read_to_string(&self.diary).unwrap_or_default().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let key = (words[0].parse().unwrap(), words[1].parse().unwrap());
            steps.entry(key).or_default().push(words[2].to_owned());
        }
        steps
    }

    /// Waits until the boards have begun so many steps.
    fn await_steps(&self, count: usize) {
        while self.steps().len() < count {
            std::thread::yield_now();
        }
    }

    /// Waits for the ends of the runs at a board without agents, and checks that each has finished, with every step begun, and again
    /// only where it was under way when one of so many boards was gone.
    fn all_finish(&self, runs: &[RunId], gone: usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let observer = board(self.config.clone(), "observer").await.start().await.unwrap();
            for run in runs {
                let result = observer.run(*run).result().await.unwrap();
                assert_eq!(result.outcome, Outcome::Finished, "{run}");
            }
            observer.shutdown().await;
        });
        let steps = self.steps();
        for run in runs {
            let of_run = (0..STEPS).map(|step| steps.get(&(*run, step)).map_or(0, Vec::len)).collect::<Vec<_>>();
            assert!(of_run.iter().all(|times| *times >= 1), "{run}: {of_run:?}");
            assert!(of_run.iter().sum::<usize>() <= STEPS + gone, "{run}: {of_run:?}");
        }
        assert_eq!(runs.iter().collect::<BTreeSet<_>>().len(), runs.len());
    }
}

#[test]
fn runs_go_on_elsewhere_when_their_board_is_killed() {
    let Some(stage) = Stage::begin("runs_go_on_elsewhere_when_their_board_is_killed") else { return };
    let (mut first, mut second) = (stage.start("a"), stage.start("b"));
    let mut runs = first.submit(50);
    runs.extend(second.submit(50));
    stage.await_steps(120);
    first.kill();
    stage.open_gate();
    // A process that comes again under the name of a killed one waits for nobody.
    stage.all_finish(&runs, 1);
    let by_heir =
        stage.steps().into_iter().filter(|((run, _), by)| runs[..50].contains(run) && by.contains(&"b".to_owned()));
    assert!(by_heir.count() > 0, "the second board has continued runs of the first");
}

#[test]
fn a_run_that_kills_its_boards_is_left_to_a_person_by_the_fourth() {
    let Some(stage) = Stage::begin("a_run_that_kills_its_boards_is_left_to_a_person_by_the_fourth") else { return };
    let begun = || stage.steps().into_values().flatten().collect::<Vec<_>>();
    let mut dead = Vec::new();
    for name in ["a", "b", "c"] {
        let mut board = stage.spawn(Kind::Usual, name);
        if dead.is_empty() {
            writeln!(board.stdin, "poison").unwrap();
        }
        board.child.wait().unwrap();
        dead.push(board);
    }
    assert_eq!(begun(), ["a", "b", "c"]);
    let mut last = stage.start("d");
    writeln!(last.stdin, "attention").unwrap();
    let why = last.await_line("attention");
    assert!(why.contains("poison run: the boards a, b, c ended while they worked on it"), "{why}");
    assert_eq!(begun().len(), 3, "the fourth has not begun it");
}

#[test]
fn a_killed_board_starts_again_at_once_under_its_name_and_continues_its_runs() {
    let Some(stage) = Stage::begin("a_killed_board_starts_again_at_once_under_its_name_and_continues_its_runs") else {
        return;
    };
    let mut first = stage.start("a");
    let runs = first.submit(20);
    stage.await_steps(40);
    first.kill();
    stage.open_gate();
    // It would end here if its name were taken.
    let again = stage.start("a");
    stage.all_finish(&runs, 1);
    drop(again);
}

#[test]
fn a_board_that_was_stopped_for_too_long_ends_and_repeats_nothing() {
    let Some(stage) = Stage::begin("a_board_that_was_stopped_for_too_long_ends_and_repeats_nothing") else { return };
    let (mut first, second) = (stage.start("a"), stage.start("b"));
    let runs = first.submit(50);
    stage.await_steps(60);
    first.signal(Signal::STOP);
    stage.open_gate();
    stage.all_finish(&runs, 1);
    let by_first =
        || std::fs::read_to_string(&stage.diary).unwrap().lines().filter(|line| line.ends_with(" a")).count();
    let before = by_first();
    first.signal(Signal::CONT);
    let reason = first.await_line("ended");
    assert!(reason.contains("storage"), "{reason}");
    assert_eq!(by_first(), before, "it began nothing when it went on");
    drop(second);
}

/// A connection that holds the note of a run, so that nobody takes the run over until it is dropped.
struct Held {
    client: tokio_postgres::Client,
    watching: tokio_postgres::Client,
    journal: Journal,
    runtime: tokio::runtime::Runtime,
}

impl Held {
    fn hold(stage: &Stage, run: RunId) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = Server::of_this_process();
        let (client, watching, store) = runtime.block_on(async {
            let store = Postgres::connect_with(stage.config.clone()).await.unwrap();
            (server.client().await, server.client().await, store)
        });
        let note = format!(
            "BEGIN; SELECT FROM {}.entries WHERE position('open'::bytea IN key) > 0 AND position('{}'::bytea IN key) > 0 FOR UPDATE",
            stage.schema,
            run.0.as_simple()
        );
        runtime.block_on(client.batch_execute(&note)).unwrap();
        Self { client, watching, journal: Journal::new(Arc::new(store)), runtime }
    }

    /// Waits until so many boards want the run, and returns how many of the runs each board has by then.
    fn wanted_by(&self, boards: i64, runs: &[RunId]) -> BTreeMap<String, usize> {
        self.runtime.block_on(async {
            waits(&self.watching, boards).await;
            let names = self.journal.boards().await.unwrap();
            let mut owned = BTreeMap::new();
            for run in runs {
                let owner = self.journal.board_of(*run).await.unwrap();
                let board = names.iter().find(|board| Some(&board.info.id) == owner.as_ref());
                *owned.entry(board.map_or(String::new(), |board| board.name.to_string())).or_default() += 1;
            }
            owned
        })
    }

    fn release(self) {
        self.runtime.block_on(self.client.batch_execute("COMMIT")).unwrap();
    }
}

#[test]
fn an_heir_that_is_killed_while_it_takes_runs_over_leaves_all_of_them_to_the_next() {
    let Some(stage) = Stage::begin("an_heir_that_is_killed_while_it_takes_runs_over_leaves_all_of_them_to_the_next")
    else {
        return;
    };
    let mut first = stage.start("a");
    let runs = first.submit(40);
    stage.await_steps(80);
    let held = Held::hold(&stage, runs[20]);
    let mut heir = stage.start_of(Kind::OneByOne, "b");
    first.kill();
    let owned = held.wanted_by(1, &runs);
    heir.kill();
    held.release();
    let taken = owned.get("b").copied().unwrap_or_default();
    assert!((1..runs.len()).contains(&taken), "it is in the middle: {owned:?}");
    stage.open_gate();
    let next = stage.start("c");
    stage.all_finish(&runs, 2);
    drop(next);
}

#[test]
fn of_three_heirs_one_is_killed_while_they_take_runs_over_and_the_others_continue_each_run_once() {
    let Some(stage) =
        Stage::begin("of_three_heirs_one_is_killed_while_they_take_runs_over_and_the_others_continue_each_run_once")
    else {
        return;
    };
    let mut first = stage.start("a");
    let runs = first.submit(40);
    stage.await_steps(80);
    let held = Held::hold(&stage, runs[20]);
    let names = ["b", "c", "d"];
    let mut heirs = names.map(|name| stage.start_of(Kind::OneByOne, name));
    first.kill();
    let owned = held.wanted_by(3, &runs);
    // The one that has most.
    let most = (0..3).max_by_key(|heir| owned.get(names[*heir])).unwrap();
    assert!(owned.get(names[most]).is_some_and(|taken| *taken < runs.len()), "it is in the middle: {owned:?}");
    heirs[most].kill();
    held.release();
    stage.open_gate();
    stage.all_finish(&runs, 2);
    let mut continued_by: BTreeMap<RunId, BTreeSet<String>> = BTreeMap::new();
    for ((run, _), by) in stage.steps() {
        let others = by.into_iter().filter(|name| ![names[most], "a"].contains(&&**name));
        continued_by.entry(run).or_default().extend(others);
    }
    assert!(continued_by.values().all(|by| by.len() == 1), "each run has one heir that lives: {continued_by:?}");
}

#[test]
fn a_run_of_a_later_build_is_left_by_boards_of_this_one_and_continued_by_the_later() {
    let Some(stage) = Stage::begin("a_run_of_a_later_build_is_left_by_boards_of_this_one_and_continued_by_the_later")
    else {
        return;
    };
    let mut of_this = stage.start("this");
    let mut later = stage.start_of(Kind::Later, "later");
    let (older_runs, newer_runs) = (of_this.submit(5), later.submit(5));
    stage.await_steps(20);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime.block_on(Postgres::connect_with(stage.config.clone())).unwrap();
    let journal = Journal::new(Arc::new(store));
    let boards = || runtime.block_on(journal.boards()).unwrap();
    let forms = boards();
    let forms: Vec<_> = forms.iter().map(|board| (&*board.name, board.info.reads, board.info.letters)).collect();
    assert_eq!(forms, [("this", 1, 1), ("later", 2, 2)]);
    later.kill();
    stage.open_gate();
    stage.all_finish(&older_runs, 0);
    let is_gone = || boards().iter().any(|board| &*board.name == "later" && board.left.is_zero());
    while !is_gone() {
        std::thread::yield_now();
    }
    // One that starts leaves them too, and has its own to do.
    let mut heir = stage.start("heir");
    let own = heir.submit(5);
    stage.all_finish(&own, 0);
    let again = stage.start_of(Kind::Later, "again");
    stage.all_finish(&newer_runs, 1);
    let of_newer = stage.steps().into_iter().filter(|((run, _), _)| newer_runs.contains(run));
    let by: BTreeSet<String> = of_newer.flat_map(|(_, by)| by).collect();
    assert_eq!(by.iter().map(String::as_str).collect::<Vec<_>>(), ["again", "later"]);
    drop((of_this, heir, again));
}
