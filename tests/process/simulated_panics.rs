//! What a process prints of the panics in a simulation.

use callboard::prelude::*;
use callboard::testing::{Seeds, Sim};

async fn coder(_: Turn) -> Result<Command, TurnError> {
    Ok(Command::output("+1").goto("reviewer"))
}

async fn reviewer(_: Turn) -> Result<Command, TurnError> {
    Ok(Command::output("fine"))
}

#[test]
fn panics_of_seeds_that_pass_are_not_printed_and_that_of_the_failing_one_is() {
    const INSIDE: &str = "CALLBOARD_TEST_INSIDE";
    if std::env::var_os(INSIDE).is_some() {
        Seeds::new(50).simulate(async |sim: Sim| {
            let dizzy = async |turn: Turn| if turn.attempt() == 1 { panic!("dizzy") } else { coder(turn).await };
            let board = sim.board().agent("dizzy", dizzy).agent("reviewer", reviewer).start().await?;
            let run = board.submit(Task::new("fix").to("dizzy")).await?;
            run.result().await?;
            assert_ne!(sim.below(5), 0, "one in five");
            Ok(())
        });
        return;
    }
    let this = "simulated_panics::panics_of_seeds_that_pass_are_not_printed_and_that_of_the_failing_one_is";
    let inside = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", this, "--nocapture", "--quiet"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let reported = String::from_utf8_lossy(&inside.stderr);
    let places: Vec<&str> = reported.lines().filter(|line| line.contains("panicked at ")).collect();
    let [agent, test, summary] = &places[..] else { panic!("{reported}") };
    assert!(
        agent.contains("tests/process/simulated_panics.rs") && test.contains("tests/process/simulated_panics.rs"),
        "{agent}, {test}"
    );
    assert!(summary.contains("driver.rs"), "{summary}");
}
