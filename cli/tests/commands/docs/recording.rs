//! The picture of a run in README.md, which docs/recording/record.py makes.

use std::path::Path;
use std::process::Command;

use super::pages::root;
use super::transcripts::without_times;
use crate::support::{CALLBOARD, content, output_of};

/// The lines of a recording, in the order of the alphabet, because agents that work side by side print theirs in any order, and
/// with zeros for all digits: a prompt with one more word uses more tokens.
fn lines(folder: &Path, file: &str) -> Vec<String> {
    let text = content(folder, file).unwrap();
    let rows = text.lines().filter(|row| row.starts_with("<text "));
    let text_of =
        |row: &str| row.split('<').filter_map(|part| Some(part.split_once('>')?.1)).collect::<Vec<_>>().join(" ");
    let mut lines: Vec<String> =
        rows.map(|row| without_times(&text_of(row)).replace(|letter: char| letter.is_ascii_digit(), "0")).collect();
    lines.sort();
    lines
}

#[test]
fn the_recording_shows_what_the_program_prints() {
    let folder = tempfile::tempdir().unwrap();
    let mut record = Command::new("python3");
    record.arg(root().join("docs/recording/record.py")).arg(CALLBOARD).arg(folder.path().join("run.svg"));
    let recorded = output_of(&mut record);
    assert_eq!(recorded.code, Some(0), "{}{}", recorded.out, recorded.error);
    let (shown, printed) = (lines(root(), "docs/recording/run.svg"), lines(folder.path(), "run.svg"));
    assert!(shown.len() > 40, "{shown:?}");
    assert!(
        shown == printed,
        "run docs/recording/record.py again:\n{}\n\nnow:\n{}",
        shown.join("\n"),
        printed.join("\n")
    );
}
