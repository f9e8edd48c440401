//! What is wrong with a command line, for people and for machines.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Subcommand as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::arguments::Runs;
use crate::page::{self, Failure};

/// Prints why the command line was not read: as JSON if that is what it asks for. Help that was asked for is printed as text.
pub(crate) fn refuse(error: clap::Error) -> ExitCode {
    let error = with_tip(error);
    if !error.use_stderr() || !wants_json() {
        error.exit();
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    page::print(Err(Failure::trouble(text.to_owned())), true)
}

/// Whether `--json` is among the arguments of this process, however wrong the others are.
pub(crate) fn wants_json() -> bool {
    is_json_among(std::env::args_os().skip(1))
}

/// What follows `--` are values.
fn is_json_among(arguments: impl Iterator<Item = OsString>) -> bool {
    arguments.take_while(|argument| argument != "--").any(|argument| argument == "--json")
}

/// Names the command that is meant if `runs` was left out.
fn with_tip(mut error: clap::Error) -> clap::Error {
    if let (ErrorKind::InvalidSubcommand, Some(ContextValue::String(name))) =
        (error.kind(), error.get(ContextKind::InvalidSubcommand))
        && Runs::has_subcommand(name)
    {
        let tip = ContextValue::Strings(vec![format!("runs {name}")]);
        error.insert(ContextKind::SuggestedSubcommand, tip);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_wanted_by_the_option_and_not_by_a_value_after_two_dashes() {
        let among = |arguments: &[&str]| is_json_among(arguments.iter().map(OsString::from));
        assert!(among(&["run", "--json", "--nonsense"]) && among(&["run", "x", "--json", "--"]));
        assert!(!among(&["run", "--", "--json"]) && !among(&["run", "json"]));
    }
}
