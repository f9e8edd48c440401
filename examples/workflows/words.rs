//! Map and reduce: the words of many files are counted side by side, and the ten most frequent ones are shown.
//!
//! The workflow is examples/workflows/words.toml. Agents neither wait for each other nor take locks: the counters write to channels, and
//! reducers merge their writes where the branches join.
//!
//! Run it with `cargo run --example workflow_words`, or with another tree and another ending:
//! `cargo run --example workflow_words -- ../my/texts txt`.

mod tree;

use std::collections::BTreeMap;
use std::error::Error;

use callboard::prelude::*;
use serde::Deserialize;
use serde_json::json;

/// The most words that are shown.
const TOP: usize = 10;

/// Shorter words are not counted.
const SHORTEST: usize = 4;

type Counts = BTreeMap<String, u64>;

#[derive(Deserialize)]
struct OneFile {
    root: String,
    file: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let root = arguments.next().unwrap_or_else(|| tree::of_this_repository("docs"));
    let ending = arguments.next().unwrap_or_else(|| "md".to_owned());
    let workflow = Workflow::from_toml("examples/workflows/words.toml", include_str!("words.toml"))?;
    let board = Callboard::builder()
        .agent("lister", move |turn: Turn| {
            let ending = ending.clone();
            async move { Ok(Command::output(tree::files(&turn.input::<String>()?, &ending).map_err(Terminal)?)) }
        })
        .agent("counter", |turn: Turn| async move { count(&turn) })
        .agent("reducer", |turn: Turn| async move { reduce(&turn) })
        .start()
        .await?;
    let run = board.submit(workflow.task(json!({ "root": root }))).await?;
    let result = run.result().await?;
    board.shutdown().await;
    if !result.outcome.is_finished() {
        return Err(result.to_string().into());
    }
    println!("{result}");
    Ok(())
}

/// Counts the words of one file.
fn count(turn: &Turn) -> Result<Command, TurnError> {
    let OneFile { root, file } = turn.input()?;
    let text = tree::read(&root, &file).map_err(Terminal)?.to_lowercase();
    let words = text.split(|c: char| !c.is_alphabetic()).filter(|word| word.chars().count() >= SHORTEST);
    let (mut counts, mut all) = (Counts::new(), 0u64);
    for word in words {
        *counts.entry(word.to_owned()).or_default() += 1;
        all += 1;
    }
    Ok(Command::new().with("counts", json!({ file: counts })).with("words", all))
}

/// Sums the counts of all files.
fn reduce(turn: &Turn) -> Result<Command, TurnError> {
    let files: BTreeMap<String, Counts> = turn.channel("counts")?.unwrap_or_default();
    let all: u64 = turn.channel("words")?.unwrap_or_default();
    let mut sums = Counts::new();
    for (word, count) in files.values().flatten() {
        *sums.entry(word.clone()).or_default() += count;
    }
    let mut ranking: Vec<(String, u64)> = sums.into_iter().collect();
    ranking.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let top: String = ranking.iter().take(TOP).map(|(word, count)| format!("\n{count:>7}  {word}")).collect();
    Ok(Command::output(format!("{} files, {all} words. The most frequent ones:{top}", files.len())))
}
