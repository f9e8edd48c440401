//! `callboard completions` and `callboard man`: what shells and `man` know of the commands.

use std::fs;
use std::process::ExitCode;

use serde_json::Value;

use crate::arguments::{Completions, Man};
use crate::page::{self, Failure, Page, count, shown_path};
use crate::usage;
use crate::values::reason;

/// Prints the script that completes command lines.
pub(crate) fn completions(arguments: &Completions) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut usage::command(), "callboard", &mut script);
    page::print(Ok(Page::new(String::from_utf8_lossy(&script).into_owned(), Value::Null)), false)
}

/// Writes a page for each command.
pub(crate) fn man(arguments: &Man) -> ExitCode {
    let folder = &arguments.folder;
    let written = fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(usage::command(), folder));
    let pages = written.and_then(|()| Ok(fs::read_dir(folder)?.count()));
    let page =
        pages.map(|pages| Page::new(format!("{} in {}\n", count(pages, "file"), shown_path(folder)), Value::Null));
    let cannot = |error| Failure::file(&error, format!("{}: {}", shown_path(folder), reason(&error)));
    page::print(page.map_err(cannot), false)
}
