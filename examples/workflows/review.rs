//! A workflow that reviews a source tree: every file is examined, and the findings decide the next steps.
//!
//! The workflow is examples/workflows/review.toml: a map over the files, conditions on channels that sum up the files,
//! and a join of the nodes that were not skipped. This file has the agents.
//!
//! Run it with `cargo run --example workflow_review`, or with another tree: `cargo run --example workflow_review -- ../my/src`.

mod tree;

use std::error::Error;
use std::fmt::Write;

use callboard::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The most lines that are shown of each kind.
const SHOWN: usize = 5;

/// The most characters that are shown of a line.
const WIDTH: usize = 100;

/// The findings in a file.
#[derive(Serialize, Deserialize)]
struct Facts {
    file: String,
    lines: usize,
    todos: usize,
    unsafe_lines: usize,
    /// The length of the longest line, in characters, and where it is.
    longest: usize,
    longest_at: usize,
}

#[derive(Deserialize)]
struct OneFile {
    root: String,
    file: String,
}

#[derive(Deserialize)]
struct Search {
    root: String,
    files: Vec<Facts>,
    words: Vec<String>,
}

#[derive(Deserialize)]
struct Findings {
    root: String,
    files: Vec<Facts>,
    lines: usize,
    todos: Option<Vec<String>>,
    unsafe_code: Option<Vec<String>>,
    praise: Option<String>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let root = std::env::args().nth(1).unwrap_or_else(|| tree::of_this_repository("examples"));
    let workflow = Workflow::from_toml("examples/workflows/review.toml", include_str!("review.toml"))?;
    let board = Callboard::builder()
        .agent("lister", |turn: Turn| async move { list(&turn) })
        .agent("measurer", |turn: Turn| async move { measure(&turn) })
        .agent("finder", |turn: Turn| async move { find(&turn) })
        .agent("praiser", |_: Turn| async { Ok(Command::output("Nothing was put off, and nothing is unsafe.")) })
        .agent("reporter", |turn: Turn| async move { report(&turn) })
        .start()
        .await?;
    let run = board.submit(workflow.task(json!({ "root": root }))).await?;
    let result = run.result().await?;
    board.shutdown().await;
    if !result.outcome.is_finished() {
        return Err(result.to_string().into());
    }
    // Untrusted text is shown with its control characters made visible.
    println!("{result}");
    Ok(())
}

fn list(turn: &Turn) -> Result<Command, TurnError> {
    let files = tree::files(&turn.input::<String>()?, "rs").map_err(Terminal)?;
    // Conditions read these channels also if there is no file.
    Ok(Command::output(files).with("lines", 0).with("todos", 0).with("unsafe_lines", 0))
}

fn measure(turn: &Turn) -> Result<Command, TurnError> {
    let OneFile { root, file } = turn.input()?;
    let text = tree::read(&root, &file).map_err(Terminal)?;
    let mut facts = Facts { file, lines: 0, todos: 0, unsafe_lines: 0, longest: 0, longest_at: 0 };
    for (number, line) in (1..).zip(text.lines()) {
        facts.lines += 1;
        facts.todos += usize::from(has_word(line, "TODO") || has_word(line, "FIXME"));
        facts.unsafe_lines += usize::from(has_word(line, "unsafe"));
        let length = line.chars().count();
        if length > facts.longest {
            (facts.longest, facts.longest_at) = (length, number);
        }
    }
    let (lines, todos, unsafe_lines) = (facts.lines, facts.todos, facts.unsafe_lines);
    let command = Command::output(Json::of(facts)?);
    Ok(command.with("lines", lines).with("todos", todos).with("unsafe_lines", unsafe_lines))
}

/// The lines that have one of the words.
fn find(turn: &Turn) -> Result<Command, TurnError> {
    let Search { root, files, words } = turn.input()?;
    let mut found = Vec::new();
    for Facts { file, .. } in files.iter().filter(|facts| facts.todos + facts.unsafe_lines > 0) {
        for (number, line) in (1..).zip(tree::read(&root, file).map_err(Terminal)?.lines()) {
            if words.iter().any(|word| has_word(line, word)) {
                found.push(format!("{file}:{number}: {}", line.trim()));
            }
        }
    }
    Ok(Command::output(found))
}

fn report(turn: &Turn) -> Result<Command, TurnError> {
    let found: Findings = turn.input()?;
    let mut text = format!("{}: {} files, {} lines\n", found.root, found.files.len(), found.lines);
    if let Some(longest) = found.files.iter().max_by_key(|facts| facts.longest) {
        let Facts { file, longest, longest_at, .. } = longest;
        writeln!(text, "The longest line has {longest} characters: {file}:{longest_at}")?;
    }
    for (what, lines) in [("TODO or FIXME", found.todos), ("unsafe", found.unsafe_code)] {
        let Some(lines) = lines else { continue };
        writeln!(text, "\nLines with {what}: {}", lines.len())?;
        for line in lines.iter().take(SHOWN) {
            writeln!(text, "  {}", line.chars().take(WIDTH).collect::<String>())?;
        }
    }
    if let Some(praise) = found.praise {
        writeln!(text, "\n{praise}")?;
    }
    Ok(Command::output(text.trim_end()))
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == word)
}
