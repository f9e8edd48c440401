//! Reviews a source tree with a team of supervised agents, offline and without a key.
//!
//! `cargo run --release -p review -- PATH` asks before it writes REVIEW.md; `--help` prints the rest. A second review of the same
//! tree lists what is new, fixed and unchanged. [`team`] shows how agents hand off, delegate and ask for consent; [`session`]
//! shows how a program embeds a board.

mod advising;
mod comparing;
mod escaping;
mod faults;
mod findings;
mod languages;
mod lexing;
mod listing;
mod measuring;
mod options;
mod outlining;
mod progress;
mod reporting;
mod reviewing;
mod scoring;
mod session;
mod shelf;
mod team;

use std::io::{self, Write as _};
use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    let reviewed = match options::Options::parse(std::env::args_os().skip(1)) {
        Ok(Some(options)) => session::review(options).await.map_err(|error| error.to_string()),
        Ok(None) => {
            // Whoever reads only the beginning has what they want.
            let _ = writeln!(io::stdout(), "{}", options::USAGE);
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(error),
    };
    reviewed.unwrap_or_else(|error| {
        eprintln!("review: {error}");
        ExitCode::from(2)
    })
}
