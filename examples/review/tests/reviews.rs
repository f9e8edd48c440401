//! The review example as its users meet it: as a process that is crashed, killed, resumed and denied.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../../tests/process/processes.rs"]
#[allow(dead_code, reason = "some of it is for other tests")]
mod processes;
#[path = "../../../tests/screen/mod.rs"]
#[allow(dead_code, reason = "some of it is for other tests")]
mod screen;

use std::fs;
use std::path::PathBuf;

use callboard::storage::Sled;
use tokio::process::Command;

use crate::processes::{Ended, built, output};
use crate::screen::Screen;

const PROMPT: &str = "approve? [y and the code, or n and a reason] ";

/// A small tree that scores below 80, and a place for what the review writes.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { folder: tempfile::tempdir().unwrap() };
        let body: String = (0..9).map(|n| format!("    take(x{n}).unwrap();\n")).collect();
        place.write("src/lib.rs", &format!("//! A crate.\n\n/// Opens.\npub fn open() {{\n{body}}}\n"));
        place.write("src/deep/worse.rs", &format!("pub fn worse() {{\n    // TODO: finish\n{body}    todo!()\n}}\n"));
        place.write("tool.py", "def run():\n    try:\n        go()\n    except:\n        pass\n");
        place.write("web/app.js", "export function start() { return 1; }\n");
        place
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.tree().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn tree(&self) -> PathBuf {
        self.folder.path().join("tree")
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn report(&self) -> PathBuf {
        self.folder.path().join("REVIEW.md")
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = built(env!("CARGO_BIN_EXE_review"));
        command.arg(self.tree()).arg("--data").arg(self.data()).arg("--output").arg(self.report()).args(options);
        command
    }

    /// What a person makes of it who sits before it.
    async fn at_a_terminal<T: Send + 'static>(
        &self,
        options: &[&str],
        person: impl FnOnce(Screen) -> T + Send + 'static,
    ) -> T {
        let command = self.command(options).into_std();
        tokio::task::spawn_blocking(move || person(Screen::of(command))).await.unwrap()
    }

    async fn review(&self, options: &[&str]) -> Ended {
        output(self.command(options), "").await
    }
}

#[tokio::test]
async fn a_second_review_reports_what_is_new_fixed_and_unchanged() {
    let place = Place::new();
    let first = place.review(&["--yes"]).await;
    assert_eq!(first.code(), Some(0), "{}", first.reported());
    let report = fs::read_to_string(place.report()).unwrap();
    assert!(report.starts_with("# Review of `tree`"), "{report}");
    assert!(report.contains("## A closer look") && !report.contains("Since the last review"), "{report}");
    for reported in [
        "limits  13 handoffs",
        "is below 80: narrow down to",
        "; reviewers look only there: → planner",
        "→ scout",
        "→ planner",
        "→ reviewer: ",
        "approved by --yes",
    ] {
        assert!(first.stderr().contains(reported), "{reported:?} in {}", first.reported());
    }
    assert!(report.contains("so reviewers looked where its findings weigh most: in `src"), "{report}");
    for reported in ["Flow", "[scout] --> [analyzer]", "of 13 handoffs and delegations, 5 of 5 agents"] {
        assert!(first.stdout().contains(reported), "{reported:?} in {}", first.reported());
    }

    place.write("tool.py", "def run():\n    go()\n");
    place.write("src/new.rs", "fn new() {\n    todo!()\n}\n");
    let second = place.review(&["--yes"]).await;
    let expected = "since the last review: 1 new, 1 fixed, ";
    assert!(second.stdout().contains(expected), "{}", second.reported());
    assert!(fs::read_to_string(place.report()).unwrap().contains("## Since the last review"));

    let third = place.review(&["--yes"]).await;
    assert!(third.stdout().contains("since the last review: 0 new, 0 fixed, "), "{}", third.reported());
}

#[tokio::test]
async fn a_crashed_agent_is_restarted_and_the_review_finishes() {
    for agent in ["analyzer", "planner", "reviewer"] {
        let place = Place::new();
        let review = place.review(&["--yes", "--crash", agent]).await;
        assert_eq!(review.code(), Some(0), "{}", review.reported());
        assert!(place.report().exists());
        assert!(review.stderr().contains("its agent is restarted, and the turn begins again"), "{}", review.reported());
        let survived =
            format!("{agent} crashed (injected by --crash {agent}) and is running after 1 restart, generation 2");
        assert!(review.stdout().contains(&survived), "{}", review.reported());
    }
}

#[tokio::test]
async fn a_review_that_dies_anywhere_continues_with_resume() {
    let place = Place::new();
    let whole = place.review(&["--yes"]).await;
    let expected = fs::read_to_string(place.report()).unwrap();
    let summary = |review: &Ended| review.stdout().lines().find(|line| !line.is_empty()).map(str::to_owned);
    for agent in ["scout", "analyzer", "planner", "reviewer", "writer"] {
        let place = Place::new();
        let killed = place.review(&["--yes", "--kill-at", agent]).await;
        assert_ne!(killed.code(), Some(0), "{}", killed.reported());
        assert!(!place.report().exists());
        let resumed = place.review(&["--yes", "--resume"]).await;
        assert_eq!(resumed.code(), Some(0), "killed at {agent}: {}", resumed.reported());
        assert!(resumed.stderr().contains("Resuming the review of"), "{}", resumed.reported());
        assert!(resumed.stderr().contains("it continues with"), "{}", resumed.reported());
        assert_eq!(summary(&resumed), summary(&whole));
        assert_eq!(
            fs::read_to_string(place.report()).unwrap().lines().skip(3).collect::<Vec<_>>(),
            expected.lines().skip(3).collect::<Vec<_>>()
        );
    }
}

#[tokio::test]
async fn a_review_that_is_killed_while_it_asks_asks_again_with_resume() {
    let place = Place::new();
    let killed = place.at_a_terminal(&[], |mut killed| {
        // What is reported of the run and what the person is asked are written by two tasks, in either order.
        const REPORTED: &str = "asks for consent: write_file";
        if !killed.until(PROMPT).contains(REPORTED) {
            killed.until(REPORTED);
        }
        killed.kill();
    });
    killed.await;
    assert!(!place.report().exists());

    let (code, reported) = place
        .at_a_terminal(&["--resume"], |mut resumed| {
            let card = resumed.until(PROMPT);
            resumed.consents(&card);
            resumed.exited()
        })
        .await;
    assert_eq!(code, Some(0), "{reported}");
    assert!(reported.contains("it continues with writer") && reported.contains("approved by terminal"), "{reported}");
    assert!(place.report().exists());
}

#[tokio::test]
async fn an_interrupted_review_is_given_up_by_a_new_one() {
    let place = Place::new();
    place.review(&["--yes", "--kill-at", "writer"]).await;
    let new = place.review(&["--yes"]).await;
    assert_eq!(new.code(), Some(0), "{}", new.reported());
    assert!(new.stderr().contains("An interrupted review is given up"), "{}", new.reported());
    let nothing_left = place.review(&["--yes", "--resume"]).await;
    assert_eq!(nothing_left.code(), Some(0), "{}", nothing_left.reported());
    assert!(nothing_left.stderr().contains("There is nothing to resume"), "{}", nothing_left.reported());
    assert!(nothing_left.stdout().contains("0 new, 0 fixed, "), "{}", nothing_left.reported());
}

#[tokio::test]
async fn a_denied_report_is_not_written_and_nothing_is_remembered() {
    let place = Place::new();
    let (code, reported) = place
        .at_a_terminal(&[], |mut screen| {
            screen.until(PROMPT);
            screen.types("n not today\n");
            screen.exited()
        })
        .await;
    let nobody = output(place.command(&[]), "y\n").await;
    for (code, reported, reason) in
        [(code, reported, ": not today"), (nobody.code(), nobody.reported().to_string(), ": nobody is there to answer")]
    {
        assert_eq!(code, Some(1), "{reported}");
        assert!(!place.report().exists());
        assert!(reported.contains("No report was written: write_file "), "{reported}");
        assert!(reported.contains(&format!("was denied by terminal{reason}")), "{reported}");
    }
    let first = place.review(&["--yes"]).await;
    assert!(!first.stdout().contains("since the last review"), "{}", first.reported());
}

#[tokio::test]
async fn what_cannot_be_reviewed_is_reported_in_one_line() {
    let place = Place::new();
    let _held = Sled::open(place.data()).unwrap();
    let locked = place.review(&["--yes"]).await;
    assert!(locked.stderr().contains(&format!("process {} has it open", std::process::id())), "{}", locked.reported());

    let empty = tempfile::tempdir().unwrap();
    let other = |path: PathBuf, data: PathBuf| async move {
        let mut command = built(env!("CARGO_BIN_EXE_review"));
        command.arg(path).arg("--data").arg(data);
        output(command, "").await
    };
    let data = empty.path().join("data");
    let nothing = other(empty.path().to_owned(), data.clone()).await;
    assert!(nothing.stderr().contains("no Rust, Python or JavaScript sources are there"), "{}", nothing.reported());
    let missing = other(empty.path().join("nowhere"), data.clone()).await;
    assert!(missing.stderr().contains("cannot be reviewed: No such file"), "{}", missing.reported());
    let file = other(place.tree().join("tool.py"), data).await;
    assert!(file.stderr().contains("is a file; name the folder that it is in"), "{}", file.reported());
    for failed in [locked, nothing, missing, file] {
        assert_eq!(failed.code(), Some(2), "{}", failed.reported());
        let errors = failed.stderr();
        assert_eq!(errors.lines().filter(|line| line.starts_with("review: ")).count(), 1, "{errors}");
        assert!(errors.lines().last().unwrap().starts_with("review: "), "{errors}");
    }
}
