//! An export that was read to its end before anything of it is written.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek as _, Write as _};
use std::path::Path;

use callboard_text::visible;
use sha2::{Digest, Sha256};

use super::lines::{Line, VERSION, read_line};
use crate::digest::hex;
use crate::store::error::KnowledgeError;

/// The most characters of what is wrong with the form of a line.
const MAX_WHY: usize = 500;

/// The text of an export whose lines and hash are right. It is in a file without a name, which goes when this is dropped. The rows of
/// its lines are checked when it is imported.
#[derive(Debug)]
pub struct WholeExport {
    file: File,
    lines: u64,
    sha256: String,
}

impl WholeExport {
    /// How an export begins.
    pub const BEGIN: &str = "{\"callboard_knowledge\":";

    /// Reads an export after which nothing follows, into a file in `folder`, which has to have space for it.
    ///
    /// # Errors
    /// [`KnowledgeError::Export`] with the line at which it is wrong, or it cannot be kept in the folder.
    pub fn read(from: impl BufRead, folder: &Path) -> Result<Self, KnowledgeError> {
        let (export, mut from) = Self::read_first(from, folder)?;
        let line = export.lines + 1;
        let at = |why| KnowledgeError::Export { line, why };
        if read_line(&mut from, &mut Vec::new()).map_err(at)? {
            return Err(at("nothing follows the last line".to_owned()));
        }
        Ok(export)
    }

    /// Reads an export, and returns what follows it.
    ///
    /// # Errors
    /// As for [`WholeExport::read`].
    pub fn read_first<R: BufRead>(mut from: R, folder: &Path) -> Result<(Self, R), KnowledgeError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => KnowledgeError::Full,
            _ => KnowledgeError::Io { path: folder.to_owned(), error },
        };
        let mut file = tempfile::tempfile_in(folder).map_err(failed)?;
        let (mut hash, mut text, mut section, mut number) = (Sha256::new(), Vec::new(), 0, 0);
        let mut to = io::BufWriter::new(&mut file);
        loop {
            number += 1;
            let at = |why| KnowledgeError::Export { line: number, why };
            if !read_line(&mut from, &mut text).map_err(at)? {
                return Err(at("the export ends before its last line: it was truncated".to_owned()));
            }
            let line = parsed(&text).map_err(at)?;
            match (&line, number) {
                (Line::Version(VERSION), 1) => {}
                (Line::Version(version), 1) => {
                    return Err(at(format!(
                        "the export has version {version}, and this build reads version {VERSION}"
                    )));
                }
                (Line::Version(_), _) => return Err(at("the version is in the first line alone".to_owned())),
                (_, 1) => return Err(at("the first line of an export is {\"callboard_knowledge\":1}".to_owned())),
                (_, _) => {}
            }
            if section_of(&line) < section {
                let order = "entities, documents, facts, contradictions and predicates follow each other";
                return Err(at(format!("it is out of order: {order}")));
            }
            section = section_of(&line);
            to.write_all(&text).map_err(failed)?;
            let before = hash.clone();
            hash.update(&text);
            let Line::End(end) = line else { continue };
            if end.sha256 != hex(&before.finalize()) {
                return Err(at("its SHA-256 is not that of the lines before it: the export was changed".to_owned()));
            }
            to.flush().map_err(failed)?;
            drop(to);
            let sha256 = hex(&hash.finalize());
            return Ok((Self { file, lines: number, sha256 }, from));
        }
    }

    /// How many lines it has.
    #[must_use]
    pub const fn lines(&self) -> u64 {
        self.lines
    }

    /// SHA-256 of all of it, in hexadecimal.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Calls `each` with each line and its number, until one is an error.
    pub(super) fn for_each(
        &mut self,
        mut each: impl FnMut(Line, u64) -> Result<(), KnowledgeError>,
    ) -> Result<(), KnowledgeError> {
        let at =
            |error: io::Error| KnowledgeError::Export { line: 1, why: format!("it cannot be read again: {error}") };
        self.file.rewind().map_err(at)?;
        let (mut from, mut text) = (BufReader::new(&mut self.file), Vec::new());
        for number in 1..=self.lines {
            let at = |why| KnowledgeError::Export { line: number, why };
            if !read_line(&mut from, &mut text).map_err(at)? {
                return Err(at("it is gone".to_owned()));
            }
            each(parsed(&text).map_err(at)?, number)?;
        }
        Ok(())
    }
}

fn parsed(text: &[u8]) -> Result<Line, String> {
    // The error has the text of an unknown name, whatever its length.
    serde_json::from_slice(text).map_err(|error| {
        let why: String = error.to_string().chars().take(MAX_WHY).collect();
        format!("it is no line of an export: {}", visible(&why))
    })
}

/// The sections follow each other.
fn section_of(line: &Line) -> u8 {
    match line {
        Line::Version(_) | Line::Entity(_) => 0,
        Line::Document(_) | Line::Passage(_) => 1,
        Line::Fact(_) => 2,
        Line::Contradiction(_) => 3,
        Line::Predicate(_) | Line::End(_) => 4,
    }
}
