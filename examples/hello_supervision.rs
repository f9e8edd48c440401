//! An agent crashes, is restarted, and the answer arrives.
//!
//! Run it with `cargo run --example hello_supervision`.

use std::error::Error;

use callboard::prelude::*;

/// Answers questions, and panics at the first one.
struct Oracle;

impl Agent for Oracle {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        if turn.attempt() == 1 {
            panic!("I did not expect a question");
        }
        Ok(Command::output(format!("42 is the answer to {:?}", turn.task().body)))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Prints one line per panic, which is enough here; a board does not need this.
    std::panic::set_hook(Box::new(|panic| println!("    {}", panic.to_string().replace('\n', " "))));
    let board = Callboard::builder().agent("oracle", || Oracle).start().await?;
    println!("Everything runs:\n\n{}\n", board.tree().await?);

    println!("Asking. The oracle panics:\n");
    let run = board.submit(Task::new("What is six times seven?").to("oracle")).await?;
    let result = run.result().await?;

    for event in run.history().await? {
        if let RunEvent::AttemptFailed { attempt, failure, retry_at, at, .. } = event {
            println!("\nAttempt {attempt} failed ({failure}). The oracle was rebuilt,");
            println!("and its turn began again {:?} later.\n", retry_at.since(at));
        }
    }
    println!("The answer: {result}\n");
    println!("What the tree remembers:\n\n{}\n", board.tree().await?);
    board.shutdown().await;

    println!("Try next:");
    println!("  cargo run --release -p review -- src                 five agents review this source tree");
    println!("  cargo run --example resume_after_kill                kill -9, and nothing is done twice");
    Ok(())
}
