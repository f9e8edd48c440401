//! `callboard kb` without a command: commands are asked for at the terminal.

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
/quit                end";

/// The commands that can be typed, each with what it is about.
const COMMANDS: [(&str, &str); 5] =
    [("query", "QUESTION"), ("submit", "STATEMENT"), ("invalidate", "FACT"), ("accept", "FACT"), ("log", "FACT")];

/// A line that was typed.
#[derive(Debug, PartialEq)]
enum Line<'a> {
    Nothing,
    Help,
    Quit,
    Command(&'a str, &'a str),
    /// A command without what it is about.
    Lacking(&'static str, &'static str),
    Unknown(&'a str),
}

fn line(typed: &str) -> Line<'_> {
    let typed = typed.trim();
    let Some(command) = typed.strip_prefix('/') else {
        return if typed.is_empty() { Line::Nothing } else { Line::Command("query", typed) };
    };
    let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    match (name, rest.trim()) {
        ("help" | "h" | "?", _) => Line::Help,
        ("quit" | "q" | "exit", _) => Line::Quit,
        (name, rest) => match COMMANDS.into_iter().find(|(command, _)| *command == name) {
            Some((name, about)) if rest.is_empty() => Line::Lacking(name, about),
            Some((name, _)) => Line::Command(name, rest),
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
            Line::Command(name, rest) => match parsed(name, rest, place) {
                Ok(command) => {
                    done(&command);
                }
                Err(error) => output::note(&error),
            },
        }
    }
}

/// The command with the text as it was typed, in the same base.
fn parsed(name: &str, text: &str, place: &Place) -> Result<KbCommand, String> {
    let mut arguments = vec![name.into(), "--namespace".into(), place.namespace.clone().into()];
    if let Some(store) = &place.common.choice.store {
        arguments.extend(["--store".into(), store.clone().into_os_string()]);
    }
    arguments.extend(["--".into(), text.into()]);
    Typed::try_parse_from(arguments).map(|typed| typed.command).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_command_or_a_question() {
        for (typed, expected) in [
            ("", Line::Nothing),
            ("  how does it work? ", Line::Command("query", "how does it work?")),
            ("/submit The gate --is open", Line::Command("submit", "The gate --is open")),
            ("/invalidate fact-1", Line::Command("invalidate", "fact-1")),
            ("/submit ", Line::Lacking("submit", "STATEMENT")),
            ("/query", Line::Lacking("query", "QUESTION")),
            ("/sumbit x", Line::Unknown("sumbit")),
            ("/q", Line::Quit),
        ] {
            assert_eq!(line(typed), expected, "{typed:?}");
        }
    }
}
