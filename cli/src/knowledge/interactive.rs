//! `callboard kb` without a command: commands are asked for at the terminal.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser as _;

use crate::exit::Exit;
use crate::output;
use crate::page::{self, Failure, brief};
use crate::person::{Person, at_the_terminal};

use super::arguments::{KbCommand, Place, Typed};

/// What can be typed.
const HELP: &str = "\
/query QUESTION      find what is known; a line without a command is a question
/submit STATEMENT    submit a fact
/invalidate FACT     show what it would change that a fact no longer holds, and apply it once you agree
/accept FACT         the same for a disputed fact that holds
/log FACT            show the history of a fact
/facts [--disputed] [--invalid] [--limit N]
                    list facts, the newest first
/documents, /predicates, /namespaces [--limit N]
                    list these
/help, /quit        show this, end";

/// What follows a command that can be typed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Follows {
    /// A text, which is taken as it was typed.
    Text(&'static str),
    /// Options, if any.
    Options,
}

/// The commands that can be typed.
const COMMANDS: [(&str, Follows); 9] = [
    ("query", Follows::Text("QUESTION")),
    ("submit", Follows::Text("STATEMENT")),
    ("invalidate", Follows::Text("FACT")),
    ("accept", Follows::Text("FACT")),
    ("log", Follows::Text("FACT")),
    ("facts", Follows::Options),
    ("documents", Follows::Options),
    ("predicates", Follows::Options),
    ("namespaces", Follows::Options),
];

/// A line that was typed.
#[derive(Debug, PartialEq)]
enum Line<'a> {
    Nothing,
    Help,
    Quit,
    Command(&'static str, Follows, &'a str),
    /// A command without what it is about.
    Lacking(&'static str, &'static str),
    Unknown(&'a str),
}

fn line(typed: &str) -> Line<'_> {
    let typed = typed.trim();
    let command = match typed {
        "" => return Line::Nothing,
        // Not a question: `/query help` finds the word.
        "help" | "?" => return Line::Help,
        "quit" | "exit" => return Line::Quit,
        _ => typed.strip_prefix('/'),
    };
    let Some(command) = command else { return Line::Command("query", Follows::Text("QUESTION"), typed) };
    let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    match (name, rest.trim()) {
        ("help" | "h" | "?", _) => Line::Help,
        ("quit" | "q" | "exit", _) => Line::Quit,
        (name, rest) => match COMMANDS.into_iter().find(|(command, _)| *command == name) {
            Some((name, Follows::Text(about))) if rest.is_empty() => Line::Lacking(name, about),
            Some((name, follows)) => Line::Command(name, follows, rest),
            None => Line::Unknown(name),
        },
    }
}

/// Reads lines until the end of the input, and has each command done.
pub(super) fn main(place: &Place, mut done: impl FnMut(&KbCommand) -> ExitCode) -> ExitCode {
    if place.common.json {
        return page::print(
            Err(Failure::usage("--json needs a command: callboard kb query QUESTION --json".to_owned())),
            true,
        );
    }
    let mut prompt = format!("{HELP}\nkb> ");
    loop {
        let Some(typed) = at_the_terminal(None, |person| person.answers(&prompt)) else {
            let why = "there is no terminal to ask at: name a command, as in `callboard kb query QUESTION`";
            return page::print(Err(Failure::usage(why.to_owned())), false);
        };
        "kb> ".clone_into(&mut prompt);
        match line(&typed.unwrap_or_else(|| "/quit".to_owned())) {
            Line::Nothing => {}
            Line::Help => output::note(HELP),
            Line::Quit => return Exit::Done.into(),
            Line::Lacking(command, about) => output::note(&format!("usage: /{command} {about}")),
            Line::Unknown(command) => output::note(&format!("there is no command /{}:\n{HELP}", brief(command, 40))),
            Line::Command(name, follows, rest) => match parsed(name, follows, rest, place) {
                Ok(command) => {
                    done(&command);
                }
                Err(error) => output::note(&error),
            },
        }
    }
}

/// The command with what follows it, in the same base.
fn parsed(name: &str, follows: Follows, text: &str, place: &Place) -> Result<KbCommand, String> {
    let mut arguments: Vec<OsString> = vec![name.into()];
    if name != "namespaces" {
        arguments.extend(["--namespace".into(), place.namespace.clone().into()]);
    }
    if let Some(store) = &place.common.choice.store {
        arguments.extend(["--store".into(), store.as_named()]);
    }
    match follows {
        Follows::Text(_) => arguments.extend(["--".into(), text.into()]),
        Follows::Options => arguments.extend(text.split_whitespace().map(OsString::from)),
    }
    Typed::try_parse_from(arguments).map(|typed| typed.command).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_command_or_a_question() {
        for (typed, expected) in [
            ("", Line::Nothing),
            ("  how does it work? ", Line::Command("query", Follows::Text("QUESTION"), "how does it work?")),
            ("/submit The gate --is open", Line::Command("submit", Follows::Text("STATEMENT"), "The gate --is open")),
            ("/invalidate fact-1", Line::Command("invalidate", Follows::Text("FACT"), "fact-1")),
            ("/facts", Line::Command("facts", Follows::Options, "")),
            ("/facts --limit 3", Line::Command("facts", Follows::Options, "--limit 3")),
            ("help", Line::Help),
            (" ? ", Line::Help),
            ("/help", Line::Help),
            ("exit", Line::Quit),
            ("/submit ", Line::Lacking("submit", "STATEMENT")),
            ("/query", Line::Lacking("query", "QUESTION")),
            ("/sumbit x", Line::Unknown("sumbit")),
            ("/q", Line::Quit),
        ] {
            assert_eq!(line(typed), expected, "{typed:?}");
        }
    }
}
