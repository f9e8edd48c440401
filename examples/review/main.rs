//! Reviews a source tree, offline.
//!
//! `cargo run --release --example review -- PATH [FOLDER]` measures the tree at `PATH` and prints a summary. With
//! `FOLDER` it also writes `REVIEW.md` and `findings.json` there, and compares with the findings of the last time.

mod advising;
mod comparing;
mod escaping;
mod findings;
mod languages;
mod lexing;
mod listing;
mod measuring;
mod outlining;
mod reporting;
mod scoring;

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use callboard::env::Env;

use crate::findings::Finding;
use crate::listing::Scope;
use crate::reporting::Review;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let path = arguments.next().ok_or("usage: review PATH [FOLDER]")?;
    review(&path, arguments.next().as_deref())
}

fn review(path: &Path, folder: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let listing = listing::list(path, &Scope::Everything)?;
    let mut measurements = Vec::new();
    for file in &listing.files {
        measurements.push(measuring::measure(file, &listing.read(file)?));
    }
    measuring::settle(&mut measurements);
    let repeated = measuring::repeated_blocks(&measurements);
    let earlier = folder.and_then(|folder| fs::read(folder.join("findings.json")).ok());
    let earlier: Option<Vec<Finding>> = earlier.map(|json| serde_json::from_slice(&json)).transpose()?;

    let title = listing.root.file_name().map_or_else(|| "/".into(), |name| name.to_string_lossy());
    let date = Env::system().now().wall.to_string();
    let (measurements, repeated) = (&measurements[..], &repeated[..]);
    let first = Review { title: &title, date: &date[..10], listing: &listing, measurements, repeated, changes: None };
    let found: Vec<Finding> = first.findings().into_iter().cloned().collect();
    let changes = earlier.map(|earlier| comparing::compare(&earlier, &found, |_| true));
    let review = Review { changes: changes.as_ref(), ..first };

    let mut out = io::stdout().lock();
    write!(out, "{}", reporting::terminal(&review))?;
    if !review.score().is_acceptable()
        && let Some(scope) = scoring::narrower_scope(&found, &listing)
    {
        writeln!(out, "  closer look at: {}", escaping::visible(&serde_json::to_string(&scope)?))?;
    }
    if let Some(folder) = folder {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("REVIEW.md"), reporting::markdown(&review))?;
        fs::write(folder.join("findings.json"), serde_json::to_vec_pretty(&found)?)?;
    }
    Ok(())
}
