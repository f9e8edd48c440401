//! Chores of the workspace: `cargo xtask test` is the whole test run, `cargo xtask campaign` repeats a part of it.

mod api;
mod book;
mod campaign;
mod circles;
mod injected;
mod mcp_clients;
mod mutants;
mod peers;
mod public_names;
mod release;
mod telemetry;
mod test;
mod tools;
mod words;
mod workspace;

use std::process::ExitCode;

use xtask::{commands, corpus};

fn main() -> ExitCode {
    if public_names::is_rustdoc() {
        return public_names::rustdoc();
    }
    if injected::is_compiler() {
        return injected::compile();
    }
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("test") => match arguments.next() {
            None => test::whole(),
            Some(room) => test::room(&room),
        },
        Some("api") => api::check(),
        Some("book") => book::build(),
        Some("campaign") => campaign::campaign(arguments),
        Some("circles") => circles::report(arguments),
        Some("compare-peers") => peers::compare(arguments),
        Some("corpus") => corpus::chore(arguments),
        Some("mcp-clients") => mcp_clients::check(),
        Some("public-names") => public_names::report(arguments),
        Some("release") => release::release(),
        Some("words") => words::report(),
        Some("telemetry") => telemetry::check(),
        Some("release-check") => release::check(),
        Some("release-packages") => release::packages(),
        name => {
            if let Some(name) = name {
                eprintln!("there is no chore {name:?}");
            }
            eprintln!(
                "usage: cargo xtask test [ROOM]    format, words, circles, book, licences, lints, tests, api, injected bugs, doc tests, docs, public names, minimal build, mcp clients, telemetry; \
                 or the tests of one room, such as actors"
            );
            eprintln!("       cargo xtask api    docs/openapi.json against a server that runs, with schemathesis");
            eprintln!("       cargo xtask book    the book of docs/ with mdbook, in target/book");
            eprintln!("       cargo xtask campaign NAME    one campaign by its name: see cargo xtask campaign --list");
            eprintln!(
                "       cargo xtask circles [--max N]    files that import each other; fails if more than N [3] do"
            );
            eprintln!(
                "       cargo xtask compare-peers [--quick] [--write] [CASE…]    the same work in callboard and other frameworks; into docs/performance.md"
            );
            eprintln!(
                "       cargo xtask corpus [--ci] [--to FOLDER] | --update | questions [--check]    documentation of crates, with which the quality of searches is measured"
            );
            eprintln!(
                "       cargo xtask public-names [--check FILE]    what users can name; fails if FILE has other names, or two types one"
            );
            eprintln!(
                "       cargo xtask mcp-clients    clients of the Model Context Protocol that others have written, with `callboard serve`"
            );
            eprintln!(
                "       cargo xtask telemetry    the spans of `callboard serve`, read by `opentelemetry-proto` of PyPI"
            );
            eprintln!("       cargo xtask words    retired words that are still used; fails if there are any");
            eprintln!("       cargo xtask release    the program callboard without symbols, and its symbols beside it");
            eprintln!("       cargo xtask release-check    whether the packages could be published; uploads nothing");
            eprintln!(
                "       cargo xtask release-packages    the program as packages for PyPI and npm, installed and run once"
            );
            ExitCode::from(2)
        }
    }
}
