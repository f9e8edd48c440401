//! `callboard init|check|run`: agents from files, on a board in this process.

pub(crate) mod arguments;
mod built_in;
mod check;
pub(crate) mod decide;
pub(crate) mod dialog;
pub(crate) mod hints;
mod init;
pub(crate) mod invalid;
mod kept;
pub(crate) mod load;
mod meaning;
pub(crate) mod patterns;
pub(crate) mod process_log;
mod progress;
pub(crate) mod provider;
pub(crate) mod read;
mod run;
mod session;
mod starter;
mod template;
pub(crate) mod trust;
pub(crate) mod watch;

use std::process::ExitCode;

use crate::page;
use crate::process::{block_on, finish, print};

use arguments::{Check, Init, Run};

/// Runs `callboard init`.
pub(crate) fn init(arguments: &Init) -> ExitCode {
    page::print(init::init(&arguments.folder), false)
}

/// Runs `callboard check`.
pub(crate) fn check(arguments: Check) -> ExitCode {
    let json = arguments.json;
    let checked = block_on(check::check(&Check { files: arguments.files.search(), ..arguments }));
    print(move || page::print(checked, json))
}

/// Runs `callboard run`.
pub(crate) fn run(arguments: Run) -> ExitCode {
    let json = arguments.json;
    finish(block_on(run::run(&Run { files: arguments.files.search(), ..arguments })), json)
}
