//! A process is killed in the middle of a run, and a second one continues the run. No finished step is repeated.
//!
//! Run it with `cargo run --example resume_after_kill`. It starts itself twice, as the two processes.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command as Process, Stdio};

use callboard::prelude::*;

/// The steps; the first process is killed in the last one.
const STEPS: [&str; 3] = ["book the train", "book the hotel", "book the museum"];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["first", data] => travel(Path::new(data), true),
        ["second", data] => travel(Path::new(data), false),
        _ => start_and_kill(),
    }
}

/// Starts both processes, and kills the first.
fn start_and_kill() -> Result<(), Box<dyn Error>> {
    let data = tempfile::tempdir()?;
    println!("The first process:");
    let mut first =
        Process::new(std::env::current_exe()?).arg("first").arg(data.path()).stdout(Stdio::piped()).spawn()?;
    for line in BufReader::new(first.stdout.take().ok_or("no output")?).lines() {
        let line = line?;
        println!("  {line}");
        if line.contains(STEPS[2]) {
            break;
        }
    }
    first.kill()?;
    first.wait()?;
    println!("  … killed in the middle of it.\n\nThe second process, on the same folder:");
    let second = Process::new(std::env::current_exe()?).arg("second").arg(data.path()).output()?;
    String::from_utf8(second.stdout)?.lines().for_each(|line| println!("  {line}"));
    if second.status.success() { Ok(()) } else { Err(String::from_utf8(second.stderr)?.into()) }
}

#[tokio::main]
async fn travel(data: &Path, dies: bool) -> Result<(), Box<dyn Error>> {
    let board = Callboard::builder()
        .storage(Sled::open(data)?)
        .agent("traveller", move |turn: Turn| async move {
            for (number, step) in (1..).zip(STEPS) {
                turn.step(step, book(number, step, dies)).await?;
            }
            Ok(Command::output(format!("booked: {}", STEPS.join(", "))))
        })
        .start()
        .await?;
    let run = match board.unfinished_runs().await?.pop() {
        Some(run) => {
            println!("found run {} unfinished; it continues without a command", run.id());
            run
        }
        None => board.submit(Task::new("a weekend in Lyon")).await?,
    };
    println!("{}", run.result().await?);
    board.shutdown().await;
    Ok(())
}

/// An external effect. Everything before it is on disk when it begins.
async fn book(number: usize, step: &str, dies: bool) -> Result<(), TurnError> {
    println!("step {number}: {step}");
    if dies && number == STEPS.len() {
        std::future::pending::<()>().await;
    }
    Ok(())
}
