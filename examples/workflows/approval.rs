//! A person decides in the middle of a workflow, before an action that cannot be undone.
//!
//! The workflow is examples/workflows/approval.toml: an index of this repository's pages is drafted, and written to a file once
//! a person has approved it, unchanged or with another heading.
//!
//! Run it with `cargo run --example workflow_approval` and answer `y`, `n`, or with a heading. `--yes` and `--no` decide without
//! a question.

mod tree;

use std::error::Error;
use std::fs;
use std::io::{self, Write};

use callboard::messages::visible_lines;
use callboard::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

/// The input of the publisher.
#[derive(Serialize, Deserialize)]
struct Page {
    file: String,
    text: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let target = folder.path().join("INDEX.md");
    let workflow = Workflow::from_toml("examples/workflows/approval.toml", include_str!("approval.toml"))?;
    let board = Callboard::builder()
        .agent("indexer", |turn: Turn| async move { index(&turn) })
        .agent("publisher", |turn: Turn| async move {
            let Page { file, text } = turn.input()?;
            fs::write(file, text)?;
            Ok(Command::new())
        })
        .agent("verifier", |turn: Turn| async move {
            let text = fs::read_to_string(turn.input::<String>()?)?;
            Ok(Command::output(format!("Published, {} lines:\n\n{text}", text.lines().count())))
        })
        .start()
        .await?;
    let input = json!({ "root": tree::of_this_repository("docs"), "target": target });
    let run = board.submit(workflow.task(input)).await?;

    while let Some(Pending::Node(open)) = run.next_pending().await? {
        let page: Page = open.input.parse()?;
        println!("`{}` waits. It would write {}:\n\n{}", open.node, page.file, visible_lines(&page.text));
        match answer().await?.as_str() {
            "y" | "yes" => drop(board.people().answer(&open, Resume::default(), "you").await?),
            "n" | "no" => drop(run.cancel("a person refused it").await?),
            "" => drop(run.cancel("nobody is there to answer").await?),
            heading => {
                let (_, rest) = page.text.split_once('\n').unwrap_or_default();
                let changed = Page { text: format!("# {heading}\n{rest}"), ..page };
                let resume = Resume { input: Some(Json::of(changed)?), ..Resume::default() };
                board.people().answer(&open, resume, "you").await?;
            }
        }
    }
    println!("{}", run.result().await?);
    board.shutdown().await;
    println!("There is {} file.", if target.exists() { "a" } else { "no" });
    Ok(())
}

/// The decision: from the command line, or from the terminal; `None` without a terminal.
async fn answer() -> io::Result<String> {
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--yes" => return Ok("y".to_owned()),
            "--no" => return Ok("n".to_owned()),
            other => eprintln!("{other:?} is not known; --yes and --no are"),
        }
    }
    print!("Publish it? y, n, or another heading: ");
    io::stdout().flush()?;
    let mut line = String::new();
    BufReader::new(tokio::io::stdin()).read_line(&mut line).await?;
    println!();
    Ok(line.trim().to_owned())
}

/// The pages with their titles.
fn index(turn: &Turn) -> Result<Command, TurnError> {
    let root: String = turn.input()?;
    let mut text = "# Pages\n\n".to_owned();
    for file in tree::files(&root, "md").map_err(Terminal)? {
        let page = tree::read(&root, &file)?;
        let title = page.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or("without a title");
        text += &format!("- [{title}]({file})\n");
    }
    Ok(Command::output(text))
}
