//! Bugs that are planted turn the check red that is there to find them: each of them, for the reason that is stated here,
//! and the check is green without.
//!
//! The checks are tests of other binaries, in their own processes; `CALLBOARD_PLANT` names the bug. They have to be built
//! beside this one, as `cargo xtask test` and `cargo xtask campaign planted` do.

use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use callboard::env::Bug;

/// A test of this repository.
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

/// The check that must go red, and a part of what it says then.
fn check_of(bug: Bug) -> (Check, &'static str) {
    let (room, test, says) = match bug {
        Bug::AcknowledgeEarly => {
            ("simulation", "seeds::a_node_that_crashes_anywhere_loses_nothing_that_it_acknowledged", "there is no run")
        }
        Bug::WriteUnsynced => (
            "simulation",
            "seeds::the_disk_keeps_what_was_synced_and_may_lose_the_rest",
            "what was acknowledged as synced is lost",
        ),
        Bug::SubmitTwice => ("supervision", "recovery::the_same_id_is_the_same_run", "submitted again is the same run"),
        Bug::DelegateTwice => {
            ("actors", "turns::a_retried_turn_gets_the_recorded_answer_of_its_delegation", "the first answer counts")
        }
        Bug::RepeatStep => ("actors", "turns::finished_steps_are_answered_from_the_journal", "the first results count"),
        Bug::RunUnapproved => (
            "actors",
            "consent::changed_arguments_do_not_use_an_approval_again",
            "it goes ahead with what nobody has approved",
        ),
        Bug::QueueWithoutBound => (
            "actors",
            "turns::work_over_an_agents_bound_waits_in_line_or_is_refused_with_a_time_to_come_back",
            "on an `Ok` value: RunHandle",
        ),
        Bug::ReserveNothing => (
            "actors",
            "limits::a_thousand_reservations_at_once_never_exceed_the_budget",
            "every call that is admitted is paid for",
        ),
        Bug::BreakerNeverOpens => {
            ("actors", "limits::a_breaker_counts_a_turn_once_and_opens_after_three_that_failed", "right: Open")
        }
        Bug::WaitInCircles => (
            "actors",
            "delegations::waiting_for_each_others_slots_across_runs_is_refused_before_it_hangs",
            "they wait for each other for ever",
        ),
        Bug::IgnoreFences => ("storage", "conformance::memory::a_claim_shuts_out_older_fences", "right: Err(Fenced"),
        Bug::RestartUncounted => (
            "supervision",
            "tree::a_child_over_its_own_window_fails_alone_and_can_be_restarted_by_hand",
            "no event `app/a gen 2: restarted too often",
        ),
        Bug::ForgetIntent => (
            "actors",
            "outside_effects::a_charge_whose_result_was_lost_is_asked_about_and_not_repeated",
            "nobody is asked about the charge",
        ),
        bug => panic!("no check is named for {bug}"),
    };
    (Check { room, test }, says)
}

impl Check {
    /// The test's binary: the one that was built last, beside this one.
    fn binary(&self) -> PathBuf {
        let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let is_it = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let hash = name.trim_end_matches(".exe").strip_prefix(self.room).and_then(|rest| rest.strip_prefix('-'));
            hash.is_some_and(|hash| hash.chars().all(|character| character.is_ascii_hexdigit()))
        };
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(is_it);
        let newest = files.max_by_key(|path| path.metadata().unwrap().modified().unwrap());
        newest.unwrap_or_else(|| panic!("{self} is not built: cargo xtask campaign planted builds it"))
    }

    /// Whether it passes, and what it says.
    fn run(&self, bug: Option<Bug>) -> (bool, String) {
        let mut command = Command::new(self.binary());
        command.args([self.test, "--exact", "--nocapture"]).stdin(Stdio::null());
        command.env_remove("CALLBOARD_SEED").env_remove("CALLBOARD_SEEDS").env_remove("CALLBOARD_PLANT");
        if let Some(bug) = bug {
            command.env("CALLBOARD_PLANT", bug.to_string());
        }
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(text.contains("running 1 test\n"), "{self} is no test: {text}");
        (output.status.success(), text)
    }
}

#[test]
fn each_planted_bug_turns_its_check_red_for_the_stated_reason() {
    let mut wrong = Vec::new();
    for bug in Bug::ALL {
        let (check, says) = check_of(bug);
        let (is_green, without) = check.run(None);
        let (is_missed, with) = check.run(Some(bug));
        let verdict = if !is_green {
            wrong.push(format!("{check} fails without a bug: {without}"));
            "the check fails by itself"
        } else if !with.contains("this process has the bug") {
            wrong.push(format!("{check} does not come to where {bug} is: {with}"));
            "NOT REACHED"
        } else if is_missed {
            wrong.push(format!("{check} does not see {bug}"));
            "MISSED"
        } else if !with.contains(says) {
            wrong.push(format!("{check} sees {bug}, and does not say {says:?}: {with}"));
            "seen for another reason"
        } else {
            "red with it, green without"
        };
        println!("campaign planted: {bug}: {check}: {verdict}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
