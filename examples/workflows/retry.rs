//! Research, plan, implement, test; and implement again while the test fails, at most six times.
//!
//! The workflow is examples/workflows/retry.toml. The work is real: notes in a temporary folder break some rules, `research`
//! counts how often, `plan` chooses where to begin, `implement` edits the files, and `test` checks them. Fixing one rule
//! breaks another: tabs that become spaces make lines too long.
//!
//! Run it with `cargo run --example workflow_retry`. With `--hopeless` one note cannot be fixed, and the run is refused at its
//! limit.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use callboard::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The longest line of a note, in characters.
const WIDTH: usize = 60;

const NOTES: [(&str, &str); 2] = [
    (
        "monday.md",
        "# Monday\n\n\tTabs stand here, and there\twas one there; the line is long enough\n- water the plants   \n",
    ),
    (
        "tuesday.md",
        "# Tuesday\n\n- call Ada  \n- \tbuy bread, and cheese if there is any, and then come home early\n\n\n",
    ),
];

const HOPELESS: (&str, &str) =
    ("link.md", "https://example.org/a/name/without/a/space/that/is/longer/than/a/line/may/be\n");

/// A rule of the notes, in the order in which they are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Rule {
    Tabs,
    LongLines,
    TrailingSpaces,
    LastLine,
}

const RULES: [Rule; 4] = [Rule::Tabs, Rule::LongLines, Rule::TrailingSpaces, Rule::LastLine];

/// A place where a rule is broken.
#[derive(Debug, Serialize, Deserialize)]
struct Problem {
    folder: PathBuf,
    rule: Rule,
}

impl Rule {
    fn is_broken_by(self, text: &str) -> bool {
        match self {
            Self::Tabs => text.contains('\t'),
            Self::LongLines => text.lines().any(|line| line.chars().count() > WIDTH),
            Self::TrailingSpaces => text.lines().any(|line| line.ends_with(' ')),
            Self::LastLine => !text.ends_with('\n') || text.ends_with("\n\n"),
        }
    }

    fn fix(self, text: &str) -> String {
        match self {
            Self::Tabs => text.replace('\t', "    "),
            Self::LongLines => text.lines().map(|line| wrap(line) + "\n").collect(),
            Self::TrailingSpaces => text.lines().map(|line| line.trim_end().to_owned() + "\n").collect(),
            Self::LastLine => text.trim_end().to_owned() + "\n",
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let is_hopeless = std::env::args().any(|argument| argument == "--hopeless");
    for (name, text) in NOTES.into_iter().chain(is_hopeless.then_some(HOPELESS)) {
        fs::write(folder.path().join(name), text)?;
    }
    let workflow = Workflow::from_toml("examples/workflows/retry.toml", include_str!("retry.toml"))?;
    let board = Callboard::builder()
        .agent("researcher", |turn: Turn| async move { research(&turn) })
        .agent("planner", |turn: Turn| async move { plan(&turn) })
        .agent("editor", |turn: Turn| async move { implement(&turn) })
        .agent("tester", |turn: Turn| async move { test(&turn) })
        .agent("reporter", |turn: Turn| async move { report(&turn) })
        .start()
        .await?;
    let run = board.submit(workflow.task(json!({ "folder": folder.path() }))).await?;
    let result = run.result().await?;
    board.shutdown().await;
    println!("{result}\n");
    for (name, _) in NOTES {
        println!("{name}:\n{}", fs::read_to_string(folder.path().join(name))?);
    }
    Ok(())
}

/// Counts the files that break each rule.
fn research(turn: &Turn) -> Result<Command, TurnError> {
    let folder: PathBuf = turn.input()?;
    let notes = read(&folder)?;
    let count = |rule: Rule| notes.iter().filter(|(_, text)| rule.is_broken_by(text)).count();
    let broken: Vec<(Rule, usize)> = RULES.into_iter().map(|rule| (rule, count(rule))).collect();
    Ok(Command::output(Json::of((folder, broken))?))
}

/// Chooses the rule that is broken most often.
fn plan(turn: &Turn) -> Result<Command, TurnError> {
    let (folder, broken): (PathBuf, Vec<(Rule, usize)>) = turn.input()?;
    let most = broken.into_iter().rev().max_by_key(|(_, files)| *files);
    let (rule, _) = most.ok_or_else(|| TurnError::terminal("there is no rule"))?;
    Ok(Command::output(Json::of(Problem { folder, rule })?))
}

/// Edits the files that break the rule.
fn implement(turn: &Turn) -> Result<Command, TurnError> {
    let Problem { folder, rule } = turn.input()?;
    let mut command = Command::new();
    for (path, text) in read(&folder)?.into_iter().filter(|(_, text)| rule.is_broken_by(text)) {
        let fixed = rule.fix(&text);
        fs::write(&path, fixed)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        command = command.with("edits", format!("{name}: {rule:?}"));
    }
    Ok(command)
}

/// Checks every rule; the first one that is broken goes back to be fixed.
fn test(turn: &Turn) -> Result<Command, TurnError> {
    let folder: PathBuf = turn.input()?;
    let notes = read(&folder)?;
    let broken = RULES.into_iter().find(|rule| notes.iter().any(|(_, text)| rule.is_broken_by(text)));
    Ok(match broken {
        Some(rule) => Command::output(Json::of(Problem { folder, rule })?).goto("implement"),
        None => Command::output("The check passes."),
    })
}

fn report(turn: &Turn) -> Result<Command, TurnError> {
    let edits: Vec<String> = turn.channel("edits")?.unwrap_or_default();
    let list: String = edits.iter().map(|edit| format!("\n  {edit}")).collect();
    Ok(Command::output(format!("{} {} edits:{list}", turn.input::<String>()?, edits.len())))
}

fn read(folder: &Path) -> Result<Vec<(PathBuf, String)>, TurnError> {
    let mut notes = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        notes.push((path, text));
    }
    notes.sort();
    Ok(notes)
}

/// Breaks a line at spaces, if it is too long.
fn wrap(line: &str) -> String {
    if line.chars().count() <= WIDTH {
        return line.to_owned();
    }
    let mut lines = vec![String::new()];
    for word in line.split_inclusive(' ') {
        match lines.last_mut().filter(|last| last.chars().count() + word.trim_end().chars().count() <= WIDTH) {
            Some(last) => last.push_str(word),
            None => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}
