//! An agent asks a person before it writes a file.
//!
//! Run it with `cargo run --example approval`, and answer `y` with the code that is on the card, or `n` with a reason. With `--yes` it is approved without a question.

use std::error::Error;
use std::fs;

use callboard::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::temp_dir().join(format!("callboard-approval-{}.txt", std::process::id()));
    let target = path.to_string_lossy().into_owned();
    let mut builder =
        Callboard::builder().channel(TerminalChannel::new().deny_at_end()).agent("clerk", move |turn: Turn| {
            let letter = Action::new("write_file", &target, format!("Dear {},\nall is well.\n", turn.task().body));
            async move {
                let approved = turn.people().approve(letter).await?;
                // The approved arguments are executed unchanged, wherever they were stored meanwhile.
                fs::write(&*approved.target, approved.arguments.as_str().unwrap_or_default())?;
                Ok(Command::output(format!("wrote {}", approved.target)))
            }
        });
    if std::env::args().any(|argument| argument == "--yes") {
        builder = builder.approval_policy(|_| Consent::Auto);
    }
    let board = builder.start().await?;

    println!("The clerk wants to write a letter. Until somebody decides, it holds neither a permit nor a slot.\n");
    let run = board.submit(Task::new("Ada").to("clerk")).await?;
    let result = run.result().await?;

    for event in run.history().await? {
        if let RunEvent::Decided { decision, approval, .. } = event {
            let verdict = if decision.approved { "approved" } else { "denied" };
            println!(
                "Decided: {verdict} by {}, for exactly the bytes with the hash {:.12}…",
                decision.by,
                approval.to_string()
            );
        }
    }
    println!("The run ended: {}.", result.outcome);
    match fs::read_to_string(&path) {
        Ok(letter) => println!("The letter:\n\n{letter}"),
        Err(_) => println!("There is no letter."),
    }
    board.shutdown().await;
    // The file is not needed any more; if it was not written, there is nothing to remove.
    let _ = fs::remove_file(&path);
    Ok(())
}
