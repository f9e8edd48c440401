//! Three searches for a definition; the first that finds it wins, and the others are cancelled.
//!
//! The workflow is one line of text, below. One search looks for a file with the name of the definition, which is fast if there is one;
//! the others read all files, from the first to the last and from the last to the first. The losers are stopped at their next await, and
//! print a line as they are dropped. Their writes are discarded too.
//!
//! Run it with `cargo run --example workflow_race`, or `cargo run --example workflow_race -- NAME TREE`.

mod tree;

use std::error::Error;

use callboard::messages::visible;
use callboard::prelude::*;
use serde::Deserialize;
use serde_json::json;

const WORKFLOW: &str = "any(by_name, forwards, backwards) -> report";

/// The definition to find.
#[derive(Deserialize)]
struct Wanted {
    root: String,
    name: String,
}

/// Prints a line when it is dropped before its search has ended.
struct Search {
    way: &'static str,
    files: usize,
    is_over: bool,
}

impl Drop for Search {
    fn drop(&mut self) {
        if !self.is_over {
            println!("{} was cancelled at file {}", self.way, self.files);
        }
    }
}

// One thread, so that the three take turns file by file, and the same one wins each time.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "Chain".to_owned());
    let root = arguments.next().unwrap_or_else(|| tree::of_this_repository("src"));
    let workflow = Workflow::from_line("examples/workflows/race.rs", WORKFLOW)?;
    let board = Callboard::builder()
        .agent("by_name", |turn: Turn| async move {
            let file = format!("{}.rs", snake_case(&turn.input::<Wanted>()?.name));
            let is_named = move |path: &str| path.rsplit('/').next() == Some(file.as_str());
            search(turn, "by_name", false, is_named).await
        })
        .agent("forwards", |turn: Turn| search(turn, "forwards", false, |_| true))
        .agent("backwards", |turn: Turn| search(turn, "backwards", true, |_| true))
        .agent("report", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) })
        .start()
        .await?;
    println!("{WORKFLOW}\n\nLooking for {}:", visible(&name));
    let run = board.submit(workflow.task(json!({ "root": root, "name": name }))).await?;
    println!("{}", run.result().await?);
    let ended = run.history().await?.into_iter().filter_map(|event| match event {
        RunEvent::TurnEnded { agent, .. } => Some(agent.to_string()),
        _ => None,
    });
    println!("Turns that came to their end: {}", ended.collect::<Vec<_>>().join(", "));
    board.shutdown().await;
    Ok(())
}

/// Reads the candidate files, one after the other, until one has the definition.
async fn search(
    turn: Turn,
    way: &'static str,
    is_reversed: bool,
    may_have: impl Fn(&str) -> bool,
) -> Result<Command, TurnError> {
    let Wanted { root, name } = turn.input()?;
    let mut files = tree::files(&root, "rs").map_err(Terminal)?;
    if is_reversed {
        files.reverse();
    }
    let mut search = Search { way, files: 0, is_over: false };
    for file in files {
        search.files += 1;
        if may_have(&file) {
            let text = tree::read(&root, &file).map_err(Terminal)?;
            if let Some(line) = (1..).zip(text.lines()).find_map(|(line, text)| defines(text, &name).then_some(line)) {
                search.is_over = true;
                return Ok(Command::output(format!("{way} has found it: {file}:{line}")));
            }
        }
        // The search can be stopped here.
        tokio::task::yield_now().await;
    }
    search.is_over = true;
    println!("{way} has not found it in {} files", search.files);
    Err(TurnError::terminal(format!("{name} is not defined there")))
}

fn defines(line: &str, name: &str) -> bool {
    let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    words.windows(2).any(|pair| matches!(pair[0], "struct" | "enum" | "trait" | "fn" | "type") && pair[1] == name)
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}
