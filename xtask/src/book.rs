//! The book of docs/, built by mdbook.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::tools::MDBOOK;

/// Where docs/book.toml has it written to.
const BOOK: &str = "target/book";

/// Builds the book with its search. A link or a chapter that leads nowhere is found by the tests of `links.rs`.
pub(crate) fn build() -> ExitCode {
    let is_built = Command::new(MDBOOK).args(["build", "docs"]).status().is_ok_and(|status| status.success());
    if !is_built {
        eprintln!("mdbook could not build docs/: `cargo install mdbook` installs it");
        return ExitCode::FAILURE;
    }
    if !has_search(Path::new(BOOK)) {
        eprintln!("the book in {BOOK} has no search");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Whether the folder has an index for the search. Its name has a hash in some versions of mdbook.
fn has_search(book: &Path) -> bool {
    let Ok(entries) = fs::read_dir(book) else { return false };
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("searchindex"))
}
