//! The newest lines of an audit log, read from its end. How much is read for one page is bounded.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The most bytes that are read for a page, and how many are read at once.
const MAX_READ: u64 = 8 * 1024 * 1024;
const CHUNK: u64 = 64 * 1024;
/// The longest line: what is longer is no line of the log.
const MAX_LINE: usize = 64 * 1024;

/// The lines of a page, the newest first.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Lines {
    pub(crate) lines: Vec<Value>,
    /// The time before which the next page begins; `None` at the end of the log.
    pub(crate) before: Option<String>,
}

/// The lines of these files, the newest file first, that are wanted and older than a time.
///
/// # Errors
/// A file cannot be read. One that is not there has no lines.
pub(super) fn newest(
    files: &[PathBuf],
    before: Option<&str>,
    limit: usize,
    mut is_wanted: impl FnMut(&Value) -> bool,
) -> io::Result<Lines> {
    let (mut found, mut left, mut last) = (Lines::default(), MAX_READ, None::<String>);
    for path in files {
        let mut backwards = match Backwards::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        while let Some(line) = backwards.next(&mut left)? {
            let Ok(line) = serde_json::from_slice::<Value>(&line) else { continue };
            let at = line["at"].as_str().unwrap_or_default().to_owned();
            // Times are of one length, so their order is that of the texts.
            if before.is_some_and(|before| *at >= *before) {
                continue;
            }
            // Lines of one moment are on one page: the next begins before it.
            if found.lines.len() >= limit && last.as_ref().is_some_and(|last| *last != at) {
                found.before = last;
                return Ok(found);
            }
            last = Some(at);
            if is_wanted(&line) {
                found.lines.push(line);
            }
        }
        if left == 0 {
            found.before = last;
            return Ok(found);
        }
    }
    Ok(found)
}

/// The lines of a file, the last one first.
struct Backwards {
    file: File,
    /// The place from which on everything was read.
    at: u64,
    /// What was read and not returned yet.
    rest: Vec<u8>,
}

impl Backwards {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let at = file.metadata()?.len();
        Ok(Self { file, at, rest: Vec::new() })
    }

    /// The line before those that were returned; `None` at the beginning, or when no more may be read.
    fn next(&mut self, left: &mut u64) -> io::Result<Option<Vec<u8>>> {
        loop {
            while self.rest.last() == Some(&b'\n') {
                self.rest.pop();
            }
            if let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') {
                return Ok(Some(self.rest.split_off(end + 1)));
            }
            if self.at == 0 {
                return Ok((!self.rest.is_empty()).then(|| std::mem::take(&mut self.rest)));
            }
            if self.rest.len() > MAX_LINE {
                self.rest.clear();
            }
            let size = self.at.min(CHUNK).min(*left);
            if size == 0 {
                return Ok(None);
            }
            (self.at, *left) = (self.at - size, *left - size);
            self.file.seek(SeekFrom::Start(self.at))?;
            let mut read = Vec::new();
            (&mut self.file).take(size).read_to_end(&mut read)?;
            read.append(&mut self.rest);
            self.rest = read;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::fs;

    use serde_json::json;

    use super::*;

    fn at(second: u32) -> String {
        format!("2026-01-31T12:{:02}:{:02}.000Z", second / 60, second % 60)
    }

    #[test]
    fn the_newest_lines_are_read_first_over_files_and_pages() {
        let folder = tempfile::tempdir().unwrap();
        let [new, old] = ["audit.jsonl", "audit.jsonl.1"].map(|name| folder.path().join(name));
        let padding = "x".repeat(700);
        let text = |seconds: std::ops::Range<u32>| {
            seconds.map(|second| format!("{}\n", json!({ "at": at(second), "who": padding }))).collect::<String>()
        };
        fs::write(&old, text(0..200)).unwrap();
        // A line that was cut by a crash is none.
        fs::write(&new, text(200..350) + "{\"at\":\"2026").unwrap();
        let files = [new, folder.path().join("missing"), old];
        let (mut seen, mut before) = (Vec::new(), None::<String>);
        loop {
            let page = newest(&files, before.as_deref(), 40, |_| true).unwrap();
            seen.extend(page.lines.iter().map(|line| line["at"].as_str().unwrap().to_owned()));
            before = page.before;
            if before.is_none() {
                break;
            }
        }
        assert_eq!(seen, (0..350).rev().map(at).collect::<Vec<_>>());
        let one = newest(&files, Some(&at(300)), 1, |line| line["at"] == at(7)).unwrap();
        assert_eq!(one.lines.len(), 1);
    }

    #[test]
    fn lines_of_one_moment_are_on_one_page() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let lines = [1, 2, 2, 2, 3].map(|second| format!("{}\n", json!({ "at": at(second) })));
        fs::write(&path, lines.concat()).unwrap();
        let first = newest(std::slice::from_ref(&path), None, 2, |_| true).unwrap();
        assert_eq!((first.lines.len(), first.before.clone()), (4, Some(at(2))));
        let second = newest(&[path], first.before.as_deref(), 2, |_| true).unwrap();
        assert_eq!((second.lines.len(), second.before), (1, None));
    }
}
