//! Commands and options that a text names, in a span of code.

use std::collections::{BTreeMap, BTreeSet};

use super::pages::{Page, root};
use crate::support::{callboard, content};

/// Options of other programs that a text names alone.
const OTHERS: [(&str, &str); 5] = [
    ("--cfg", "rustc"),
    ("--long", "cargo xtask campaign"),
    ("--quick", "cargo bench"),
    ("--parts", "cargo xtask campaign"),
    ("--seed", "cargo xtask campaign"),
];

/// A span that begins like a command line and is none: a line of a file.
const NO_COMMAND: &str = "callboard store, format 3";

/// Every command of `callboard` with its options, as its help has them, and the chores of `cargo xtask`.
pub(super) struct Known {
    commands: BTreeMap<String, BTreeSet<String>>,
    chores: String,
}

impl Known {
    /// Asks the program.
    pub(super) fn ask() -> Self {
        let mut known = Self { commands: BTreeMap::new(), chores: content(root(), "xtask/src/main.rs").unwrap() };
        known.add(&[]);
        assert!(known.commands.len() > 25, "{:?}", known.commands);
        known
    }

    fn add(&mut self, command: &[&str]) {
        let help = callboard(root(), &[command, &["--help"]].concat()).out;
        let mut options: BTreeSet<String> = help.lines().filter_map(option_of).collect();
        // An alias may be in the next line.
        let words: Vec<&str> = help.split_whitespace().collect();
        options.extend(
            words.windows(2).filter(|two| two[0] == "[alias:").map(|two| two[1].trim_end_matches(']').to_owned()),
        );
        self.commands.insert(command.join(" "), options);
        let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        for line in commands.filter(|line| line.starts_with("  ") && !line.starts_with("   ")) {
            self.add_unless_help(command, line.split_whitespace().next().unwrap());
        }
    }

    fn add_unless_help(&mut self, command: &[&str], name: &str) {
        let inner = [command, &[name]].concat();
        match name {
            "help" => drop(self.commands.insert(inner.join(" "), BTreeSet::new())),
            _ => self.add(&inner),
        }
    }

    /// What is wrong with the spans of a page, and with its commands of cargo.
    pub(super) fn problems(&self, page: &Page) -> Vec<String> {
        let spans = page.spans.iter().filter_map(|(line, span)| Some(page.at(*line, self.problem(span)?)));
        let lines = page.blocks.iter().flat_map(|block| block.text.lines().map(move |line| (block.line, line)));
        let chores = lines
            .filter(|(_, line)| line.starts_with("cargo "))
            .filter_map(|(at, line)| Some(page.at(at, self.problem(line)?)));
        spans.chain(chores).collect()
    }

    /// What is wrong with a span, if it is a command line, a part of one, or an option.
    fn problem(&self, span: &str) -> Option<String> {
        let text = without_substitutions(span);
        let words: Vec<&str> = text.split(' ').collect();
        let problem = match words[..] {
            ["cargo", "xtask", chore, ..] if chore.starts_with(|first: char| first.is_lowercase()) => {
                (!self.chores.contains(&format!("Some({chore:?})"))).then(|| format!("there is no chore {chore}"))
            }
            _ if span == NO_COMMAND => None,
            [first, ..] if first.starts_with("--") => {
                let is_known = |option: &&str| {
                    self.commands.values().any(|known| known.contains(*option))
                        || OTHERS.iter().any(|(other, _)| other == option)
                };
                let unknown = options(&words).find(|option| !is_known(option));
                unknown.map(|option| format!("no command has the option {option}"))
            }
            _ => match words.iter().position(|word| *word == "callboard") {
                Some(at) => self.problem_of_arguments(&words[at + 1..]),
                // Other texts begin like this too.
                None if self.command(&words).is_empty() => None,
                None => self.problem_of_options(&words),
            },
        };
        problem.map(|problem| format!("`{span}`: {problem}"))
    }

    fn problem_of_arguments(&self, words: &[&str]) -> Option<String> {
        let command = self.command(words);
        let next = words.get(command.len()).filter(|word| word.chars().all(|letter| letter.is_ascii_lowercase()));
        let inner = format!("{} ", command.join(" "));
        let has_commands = command.is_empty() || self.commands.keys().any(|name| name.starts_with(&inner));
        match next {
            Some(next) if has_commands => Some(format!("`callboard {}` has no command {next}", command.join(" "))),
            _ => self.problem_of_options(words),
        }
    }

    fn problem_of_options(&self, words: &[&str]) -> Option<String> {
        let command = self.command(words).join(" ");
        let unknown = options(words).find(|option| !self.commands[&command].contains(*option));
        unknown.map(|option| format!("`callboard {command}` has no option {option}"))
    }

    /// The command, of one or two words, that these words begin with.
    fn command<'a>(&self, words: &'a [&'a str]) -> &'a [&'a str] {
        let is_known = |count: &usize| *count <= words.len() && self.commands.contains_key(&words[..*count].join(" "));
        &words[..(0..=2).rev().find(is_known).unwrap()]
    }
}

fn options<'a>(words: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let options = words.iter().filter(|word| word.starts_with("--") && word.len() > 2);
    options.map(|word| word.split(['=', '\'', '"']).next().unwrap())
}

/// A command line without what the shell runs first: `$(…)`.
fn without_substitutions(line: &str) -> String {
    let mut parts = line.split("$(");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| text + part.split_once(')').map_or("", |(_, after)| after))
}

/// The option that a line of a help describes. Its description is indented further.
fn option_of(line: &str) -> Option<String> {
    let text = line.trim_start();
    if line.len() - text.len() > 6 || !text.starts_with('-') {
        return None;
    }
    let option = text.split([' ', ',']).find(|word| word.starts_with("--"))?;
    Some(option.to_owned())
}

#[test]
fn an_option_or_a_command_that_does_not_exist_is_a_problem() {
    let known = Known::ask();
    for wrong in [
        "callboard nonsense",
        "callboard workflow rnu review.toml",
        "callboard run --resume-it @last",
        "PATH=/bin callboard run \"…\" --allow-raed /bin",
        "runs list --stat failed",
        "workflow draw --runs",
        "--nonsense",
        "--models-file FILE",
        "cargo xtask tset",
    ] {
        assert!(known.problem(wrong).is_some(), "{wrong}");
    }
    for right in [
        "callboard",
        "callboard --version",
        "callboard help COMMAND",
        "callboard run \"…\" --to NAME",
        "callboard runs list --data FOLDER",
        "callboard workflow run FILE --agents FOLDER",
        "callboard runs",
        "run it again",
        "workflow = \"inner\"",
        "--pipeline '\"a, b\",reviewer'",
        "--state",
        "PATH=\"$(rustc --print sysroot)/bin\" callboard run \"…\" --allow-read \"$(rustc --print sysroot)\"",
        "npm install --global callboard",
        "cargo test",
        "cargo xtask test actors",
        "cargo xtask NAME",
    ] {
        assert_eq!(known.problem(right), None);
    }
}
