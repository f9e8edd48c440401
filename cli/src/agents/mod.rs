//! `callboard init|check|run`: agents from files, on a board in this process.

pub(crate) mod arguments;
pub(crate) mod asking;
pub(crate) mod broken;
mod checking;
pub(crate) mod deciding;
pub(crate) mod hints;
pub(crate) mod loading;
pub(crate) mod logged;
mod reading;
mod running;
mod starting;
mod telling;
mod together;
pub(crate) mod watching;

use std::process::ExitCode;

use crate::page;
use crate::workflow::{block_on, finish, print};

use arguments::{Check, Init, Run};

pub(crate) fn init(arguments: &Init) -> ExitCode {
    page::print(starting::init(&arguments.folder), false)
}

pub(crate) fn check(arguments: &Check) -> ExitCode {
    let (checked, json) = (block_on(checking::check(arguments)), arguments.json);
    print(move || page::print(checked, json))
}

pub(crate) fn run(arguments: &Run) -> ExitCode {
    finish(block_on(running::run(arguments)), arguments.json)
}
