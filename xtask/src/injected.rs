//! The campaign `injected`: each bug that can be injected into the library turns its named test red, for the stated reason,
//! and without a bug the test is green.
//!
//! The bugs (`src/env/mutants.rs`) are compiled under `--cfg callboard_mutants` alone. This program is the compiler's wrapper
//! of such a build (`RUSTC_WORKSPACE_WRAPPER`), so the packages of this workspace are built with it, under names of their
//! own, and all that they depend on is what other builds have left.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use mutants::Mutant;
use serde_json::Value;

#[path = "../../src/env/mutants.rs"]
#[allow(dead_code, reason = "what the library asks of it")]
mod mutants;

pub(crate) const NAME: &str = "injected";
pub(crate) const ABOUT: &str = "each injected bug turns the test red that is there to find it";

/// Set for the build: this program is the compiler's wrapper.
const WRAPPER: &str = "CALLBOARD_XTASK_MUTANTS";
/// Names the bug of a process.
const MUTANT: &str = "CALLBOARD_MUTANT";

/// A test of this repository.
#[derive(Clone, Copy)]
struct Check {
    /// The room of `tests`, which is the name of its binary.
    room: &'static str,
    test: &'static str,
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.room, self.test)
    }
}

/// The test that must fail, and a part of its message.
fn check_of(mutant: Mutant) -> (Check, &'static str) {
    let (room, test, says) = match mutant {
        Mutant::AcknowledgeEarly => {
            ("simulation", "seeds::a_node_that_crashes_anywhere_loses_nothing_that_it_acknowledged", "there is no run")
        }
        Mutant::WriteUnsynced => (
            "simulation",
            "seeds::the_disk_keeps_what_was_synced_and_may_lose_the_rest",
            "what was acknowledged as synced is lost",
        ),
        Mutant::SubmitTwice => {
            ("supervision", "recovery::the_same_id_is_the_same_run", "submitted again is the same run")
        }
        Mutant::DelegateTwice => {
            ("actors", "turns::a_retried_turn_gets_the_recorded_answer_of_its_delegation", "the first answer counts")
        }
        Mutant::RepeatStep => {
            ("actors", "turns::finished_steps_are_answered_from_the_journal", "the first results count")
        }
        Mutant::RunUnapproved => (
            "actors",
            "consent::changed_arguments_do_not_use_an_approval_again",
            "it goes ahead with what nobody has approved",
        ),
        Mutant::QueueWithoutBound => (
            "actors",
            "turns::work_over_an_agents_bound_waits_or_is_refused_with_a_time_to_retry",
            "on an `Ok` value: RunHandle",
        ),
        Mutant::ReserveNothing => (
            "actors",
            "limits::a_thousand_reservations_at_once_never_exceed_the_budget",
            "every call that is admitted is paid for",
        ),
        Mutant::BreakerNeverOpens => {
            ("actors", "limits::a_breaker_counts_a_turn_once_and_opens_after_three_that_failed", "right: Open")
        }
        Mutant::WaitInCircles => (
            "actors",
            "delegations::waiting_for_each_others_slots_across_runs_is_refused_before_it_hangs",
            "they wait for each other for ever",
        ),
        Mutant::IgnoreEndedSessions => {
            ("storage", "conformance::memory::writes_of_a_session_that_has_ended_are_refused", "the append: Ok(()")
        }
        Mutant::RestartUncounted => (
            "supervision",
            "tree::a_child_over_its_own_window_fails_alone_and_can_be_restarted_by_hand",
            "no event `app/a gen 2: restarted too often",
        ),
        Mutant::ForgetIntent => (
            "actors",
            "outside_effects::a_charge_whose_result_was_lost_is_asked_about_and_not_repeated",
            "nobody is asked about the charge",
        ),
    };
    (Check { room, test }, says)
}

/// Builds the library with the bugs, and runs the tests with each of them and with none.
pub(crate) fn injected() -> ExitCode {
    #[allow(clippy::disallowed_methods, reason = "a chore, not the library")]
    let started = Instant::now();
    match build().and_then(|binaries| binaries.run()) {
        Ok(wrong) if wrong.is_empty() => {
            println!("{NAME}: {} bugs, 0 missed; passed in {:.1?}", Mutant::ALL.len(), started.elapsed());
            ExitCode::SUCCESS
        }
        Ok(wrong) => {
            eprintln!("{}", wrong.join("\n\n"));
            println!("{NAME}: {} bugs; FAILED in {:.1?}", Mutant::ALL.len(), started.elapsed());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// The test binaries that have the bugs, by room.
struct Binaries(Vec<(String, PathBuf)>);

fn build() -> Result<Binaries, String> {
    let wrapper = std::env::current_exe().map_err(|error| format!("this program has no name: {error}"))?;
    let mut rooms: Vec<&str> = Mutant::ALL.iter().map(|mutant| check_of(*mutant).0.room).collect();
    rooms.sort_unstable();
    rooms.dedup();
    let mut cargo = crate::commands::cargo();
    // The whole workspace, so that what it depends on has the features that other builds gave it.
    cargo.args(["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]);
    cargo.args(rooms.iter().flat_map(|room| ["--test", room]));
    cargo.env("RUSTC_WORKSPACE_WRAPPER", wrapper).env(WRAPPER, "1").stderr(Stdio::inherit());
    // Nobody looks for the lines of a bug that is put in, or builds this twice.
    cargo.env("CARGO_PROFILE_DEV_DEBUG", "false").env("CARGO_INCREMENTAL", "0");
    let output = cargo.output().map_err(|error| format!("cargo cannot be started: {error}"))?;
    if !output.status.success() {
        return Err("the tests do not build with --cfg callboard_mutants".into());
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found = messages.filter_map(|message| {
        let room = message["target"]["name"].as_str().filter(|room| rooms.contains(room))?;
        Some((room.to_owned(), PathBuf::from(message["executable"].as_str()?)))
    });
    Ok(Binaries(found.collect()))
}

impl Binaries {
    /// What is wrong with the tests; nothing, if each does what is stated.
    fn run(&self) -> Result<Vec<String>, String> {
        let mut wrong = Vec::new();
        for mutant in Mutant::ALL {
            let (check, says) = check_of(mutant);
            let (is_green, without) = self.passes(check, None)?;
            let (is_missed, with) = self.passes(check, Some(mutant))?;
            let verdict = if !is_green {
                wrong.push(format!("{check} fails without a bug: {without}"));
                "the test fails by itself"
            } else if !with.contains("this process has the injected bug") {
                wrong.push(format!("{check} does not reach the line of {mutant}: {with}"));
                "NOT REACHED"
            } else if is_missed {
                wrong.push(format!("{check} does not notice {mutant}"));
                "MISSED"
            } else if !with.contains(says) {
                wrong.push(format!("{check} notices {mutant}, and does not say {says:?}: {with}"));
                "red for another reason"
            } else {
                "red with it, green without"
            };
            println!("{NAME}: {mutant}: {check}: {verdict}");
        }
        Ok(wrong)
    }

    /// Whether a test passes, and what it prints.
    fn passes(&self, check: Check, mutant: Option<Mutant>) -> Result<(bool, String), String> {
        let binary = self.0.iter().find(|(room, _)| room == check.room).map(|(_, binary)| binary);
        let mut command = Command::new(binary.ok_or_else(|| format!("cargo built no {}", check.room))?);
        command.args([check.test, "--exact", "--nocapture"]).stdin(Stdio::null());
        command.env_remove("CALLBOARD_SEED").env_remove("CALLBOARD_SEEDS").env_remove(MUTANT);
        if let Some(mutant) = mutant {
            command.env(MUTANT, mutant.to_string());
        }
        let output = command.output().map_err(|error| format!("{check} cannot be started: {error}"))?;
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        if !text.contains("running 1 test\n") {
            return Err(format!("{check} is no test: {text}"));
        }
        Ok((output.status.success(), text))
    }
}

/// Whether this program was started as the compiler's wrapper.
pub(crate) fn is_compiler() -> bool {
    std::env::var_os(WRAPPER).is_some()
}

/// Compiles as cargo asks (the first argument is the compiler), with the bugs.
pub(crate) fn compile() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let compiler = arguments.next().unwrap_or_else(|| OsString::from("rustc"));
    let status = Command::new(&compiler).args(arguments).args(["--cfg", "callboard_mutants"]).status();
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("{} cannot be started: {error}", compiler.display());
            ExitCode::FAILURE
        }
    }
}
