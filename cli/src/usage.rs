//! Errors in the command line, as text or as JSON.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _, Subcommand as _};

use callboard::messages::{visible, visible_lines};

use crate::arguments::{Arguments, Runs};
use crate::exit::EXIT_CODES;
use crate::page::{self, Failure};
use crate::quote::quoted;
use crate::values::similar;

/// All commands, each with the exit codes in its help.
pub(crate) fn command() -> Command {
    with_exit_codes(Arguments::command())
}

fn with_exit_codes(command: Command) -> Command {
    let own = command.get_after_help().map(|own| format!("{own}\n\n")).unwrap_or_default();
    command.after_help(own + EXIT_CODES).mut_subcommands(with_exit_codes)
}

/// Prints why the command line was refused, as JSON if `--json` is among the arguments. Help is printed as text.
pub(crate) fn refuse(error: clap::Error) -> ExitCode {
    let error = with_tip(error);
    if !error.use_stderr() {
        error.exit();
    }
    let (json, shown) = (wants_json(), shown(error));
    match shown {
        Shown::Whole(error) if !json => error.exit(),
        Shown::Whole(error) => refuse_with(&error.render().to_string(), json),
        Shown::Escaped(text) => refuse_with(&text, json),
    }
}

fn refuse_with(text: &str, json: bool) -> ExitCode {
    let text = text.strip_prefix("error: ").unwrap_or(text).trim_end();
    page::print(Err(Failure::usage(text.to_owned())), json)
}

/// An error of clap, which repeats arguments.
enum Shown {
    /// The arguments have nothing that a terminal would not show.
    Whole(clap::Error),
    /// The text without colours, in which everything that a terminal would not show is escaped.
    Escaped(String),
}

fn shown(mut error: clap::Error) -> Shown {
    let is_hidden = |argument: OsString| {
        let text = argument.to_string_lossy();
        visible_lines(&text) != text
    };
    if !std::env::args_os().any(is_hidden) {
        return Shown::Whole(error);
    }
    // clap removes escape sequences from what it renders without colours, so arguments are escaped before.
    let escaped: Vec<(ContextKind, ContextValue)> = error
        .context()
        .filter_map(|(kind, value)| {
            let value = match value {
                ContextValue::String(text) => ContextValue::String(visible(text)),
                ContextValue::Strings(texts) => ContextValue::Strings(texts.iter().map(|text| visible(text)).collect()),
                _ => return None,
            };
            Some((kind, value))
        })
        .collect();
    for (kind, value) in escaped {
        error.insert(kind, value);
    }
    // Its tips repeat the argument with colours.
    error.remove(ContextKind::Suggested);
    Shown::Escaped(visible_lines(&error.render().to_string()))
}

/// The option for JSON with the version of its shapes, which docs/json-output.md states.
const VERSIONED: &str = "--json=1";

/// The arguments of this process, in which `--json=1` is `--json`. Other versions are left for clap to refuse.
pub(crate) fn arguments() -> impl Iterator<Item = OsString> {
    without_version(std::env::args_os())
}

fn without_version(arguments: impl Iterator<Item = OsString>) -> impl Iterator<Item = OsString> {
    let mut are_options = true;
    arguments.map(move |argument| {
        are_options &= argument != "--";
        if are_options && argument == VERSIONED { "--json".into() } else { argument }
    })
}

/// Whether `--json` is among the arguments of this process, whatever the others are.
pub(crate) fn wants_json() -> bool {
    is_json_among(std::env::args_os().skip(1))
}

/// Arguments after `--` are values.
fn is_json_among(mut arguments: impl Iterator<Item = OsString>) -> bool {
    let is_json = |argument: &OsString| argument == "--json" || argument.as_encoded_bytes().starts_with(b"--json=");
    arguments.by_ref().take_while(|argument| argument != "--").any(|argument| is_json(&argument))
}

/// Adds the likely command line to the error where clap finds none: a command without its `runs`, one with a typo, or the option for a
/// folder, or the place of an option.
fn with_tip(mut error: clap::Error) -> clap::Error {
    let misplaced = match error.kind() {
        ErrorKind::UnknownArgument => error.get(ContextKind::InvalidArg),
        ErrorKind::ArgumentConflict if error.get(ContextKind::InvalidSubcommand).is_some() => {
            error.get(ContextKind::PriorArg)
        }
        _ => None,
    };
    if let Some(ContextValue::String(argument)) = misplaced
        && let Some(tip) = place_tip(&std::env::args().skip(1).collect::<Vec<_>>(), argument)
    {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        return error;
    }
    if let (ErrorKind::UnknownArgument, Some(ContextValue::String(argument))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
        && let Some(tip) = folder_tip(std::env::args().nth(1).as_deref(), argument)
            .or_else(|| value_tip(&std::env::args().skip(1).collect::<Vec<_>>(), argument))
    {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        return error;
    }
    let (ErrorKind::InvalidSubcommand, Some(ContextValue::String(name))) =
        (error.kind(), error.get(ContextKind::InvalidSubcommand))
    else {
        return error;
    };
    let meant = if Runs::has_subcommand(name) {
        Some(format!("runs {name}"))
    } else if error.get(ContextKind::SuggestedSubcommand).is_none() {
        similar_subcommand(std::env::args().skip(1), name)
    } else {
        None
    };
    if let Some(meant) = meant {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![meant]));
    }
    error
}

/// The tip for `callboard check FOLDER`.
fn folder_tip(command: Option<&str>, argument: &str) -> Option<String> {
    let is_folder = command == Some("check") && !argument.is_empty() && !argument.starts_with('-');
    is_folder.then(|| format!("to check the agents of another folder: callboard check --agents {}", quoted(argument)))
}

/// The tip for an option before the command that it belongs to: the same command line with the option behind it.
fn place_tip(words: &[String], argument: &str) -> Option<String> {
    let long = argument.strip_prefix("--")?.split([' ', '=']).next()?;
    let option = |word: &String| word.strip_prefix("--").is_some_and(|word| word.split('=').next() == Some(long));
    let place = words.iter().position(option)?;
    let (mut command, mut end) = (Arguments::command(), 0);
    for (at, word) in words.iter().enumerate() {
        if let Some(named) = command.find_subcommand(word) {
            (command, end) = (named.clone(), at + 1);
        } else if !word.starts_with('-') && !at.checked_sub(1).is_some_and(|before| words[before].starts_with('-')) {
            break;
        }
    }
    let known = command.get_arguments().find(|known| known.get_long() == Some(long)).filter(|_| place < end)?;
    let has_value = known.get_action().takes_values() && !words[place].contains('=');
    let (moved, rest) = (place..place + 1 + usize::from(has_value), place + 1 + usize::from(has_value)..end);
    let all = words[..place].iter().chain(words.get(rest)?).chain(words.get(moved)?).chain(&words[end..]);
    let line: Vec<_> = all.map(|word| quoted(word)).collect();
    Some(format!("write --{long} behind the command: callboard {}", line.join(" ")))
}

/// The tip for `--option -value`.
fn value_tip(words: &[String], argument: &str) -> Option<String> {
    let place = words.iter().position(|word| word == argument)?;
    let option = words[..place].last()?;
    let mut command = Arguments::command();
    for word in words {
        let Some(named) = command.find_subcommand(word) else { break };
        command = named.clone();
    }
    let long = option.strip_prefix("--")?;
    let takes_value = |known: &clap::Arg| known.get_long() == Some(long) && known.get_action().takes_values();
    command
        .get_arguments()
        .any(takes_value)
        .then(|| format!("to give {option} this value: {option}={}", quoted(argument)))
}

/// The subcommand that differs from `name` by a typo, of the command that the words before it name.
fn similar_subcommand(words: impl Iterator<Item = String>, name: &str) -> Option<String> {
    let mut command = Arguments::command();
    for word in words {
        let Some(named) = command.find_subcommand(word) else { break };
        command = named.clone();
    }
    let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    similar(name, names).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subcommand_with_a_typo_is_corrected_if_only_one_is_similar() {
        let similar = |words: &[&str], name| similar_subcommand(words.iter().map(|word| (*word).to_owned()), name);
        assert_eq!(similar(&["workflow", "rnu"], "rnu").as_deref(), Some("run"));
        assert_eq!(similar(&["workflow", "dra"], "dra").as_deref(), Some("draw"));
        assert_eq!(similar(&["INIT"], "INIT").as_deref(), Some("init"));
        assert_eq!(similar(&["runz"], "runz"), None, "run and runs");
        assert_eq!(similar(&["workflow", "list"], "list"), None);
    }

    #[test]
    fn the_tip_for_an_option_before_its_command_is_the_same_line_with_it_behind() {
        let tip = |words: &[&str], argument| {
            place_tip(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), argument)
        };
        for (words, argument, line) in [
            (&["--json", "kb", "query", "who is it?"][..], "--json", "kb query --json 'who is it?'"),
            (&["kb", "--json", "query", "x"], "--json", "kb query --json x"),
            (&["--store", "s", "kb", "query", "x"], "--store", "kb query --store s x"),
            (&["kb", "--store=s", "query", "x"], "--store <FOLDER>", "kb query --store=s x"),
            (&["--json", "runs", "list"], "--json", "runs list --json"),
        ] {
            let (long, line) = (&argument[..6], format!("callboard {line}"));
            let long = if long == "--stor" { "--store" } else { long };
            assert_eq!(tip(words, argument), Some(format!("write {long} behind the command: {line}")), "{words:?}");
        }
        assert_eq!(tip(&["kb", "query", "x", "--title", "y"], "--title"), None, "no such option");
        assert_eq!(tip(&["--title", "y", "kb", "query", "x"], "--title"), None, "of another command");
        assert_eq!(tip(&["kb", "query", "query", "--json", "--json"], "--json"), None, "twice");
    }

    #[test]
    fn the_tip_for_a_value_like_an_option_is_of_the_option_before_it() {
        let tip = |words: &[&str], argument| {
            value_tip(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), argument)
        };
        assert_eq!(tip(&["run", "hi", "--to", "-x"], "-x").as_deref(), Some("to give --to this value: --to=-x"));
        assert_eq!(tip(&["run", "hi", "-x"], "-x"), None);
        assert_eq!(tip(&["run", "hi", "--quiet", "-x"], "-x"), None);
    }

    #[test]
    fn only_the_option_asks_for_json_and_not_a_value_after_two_dashes() {
        let among = |arguments: &[&str]| is_json_among(arguments.iter().map(OsString::from));
        assert!(among(&["run", "--json", "--nonsense"]) && among(&["run", "x", "--json", "--"]));
        assert!(!among(&["run", "--", "--json"]) && !among(&["run", "json"]));
        let words = |arguments: &[&str]| without_version(arguments.iter().map(OsString::from)).collect::<Vec<_>>();
        assert_eq!(words(&["run", "--json=1", "--json=2"]), ["run", "--json", "--json=2"]);
        assert_eq!(words(&["run", "--", "--json=1"]), ["run", "--", "--json=1"]);
    }
}
