//! The lines of an export.

use std::io::{self, BufRead, Read as _, Write};

use callboard::messages::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Transferred;
use crate::digest::hex;
use crate::entities::{EntityKind, Relation};
use crate::facts::{FactId, FactState, Source, Triple};
use crate::store::error::KnowledgeError;
use crate::store::history::Revision;
use crate::store::items::ItemId;

/// The version of the format.
pub(super) const VERSION: u32 = 1;

/// The most bytes of a line.
pub(super) const MAX_LINE: u64 = 16 << 20;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    #[serde(rename = "callboard_knowledge")]
    Version(u32),
    Entity(Entity),
    Document(Document),
    Passage(Passage),
    Fact(Box<Fact>),
    Contradiction(Contradiction),
    Predicate(Predicate),
    End(End),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entity {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) kind: EntityKind,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    pub(super) namespace: String,
    pub(super) path: String,
    pub(super) title: String,
    /// SHA-256 of what was read, in hexadecimal; none of a document that has ended.
    pub(super) hash: Option<String>,
    #[serde(with = "crate::times")]
    pub(super) read_at: Timestamp,
    pub(super) is_untrusted: bool,
}

/// A passage of the document before it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Passage {
    /// Its row: results of equal rank are ordered by it.
    pub(super) item: ItemId,
    pub(super) ordinal: u32,
    pub(super) anchor: String,
    pub(super) lines: [u32; 2],
    pub(super) title: String,
    pub(super) text: String,
    #[serde(with = "crate::times")]
    pub(super) since: Timestamp,
    #[serde(with = "crate::times::option")]
    pub(super) ended_at: Option<Timestamp>,
    pub(super) graph: Graph,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fact {
    pub(super) item: ItemId,
    pub(super) id: FactId,
    pub(super) namespace: String,
    pub(super) statement: String,
    pub(super) triple: Option<Triple>,
    pub(super) state: FactState,
    #[serde(with = "crate::times")]
    pub(super) valid_from: Timestamp,
    #[serde(with = "crate::times")]
    pub(super) since: Timestamp,
    #[serde(with = "crate::times::option")]
    pub(super) ended_at: Option<Timestamp>,
    pub(super) revision: u64,
    pub(super) source_count: u64,
    pub(super) sources: Vec<Source>,
    /// The ids of all normal forms in which it was stated.
    pub(super) forms: Vec<FactId>,
    pub(super) history: Vec<Revision>,
    pub(super) graph: Graph,
}

/// What a passage or fact that has not ended names, and the edges that it supports. Entities are named by their normal forms.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Graph {
    pub(super) names: Vec<(String, Relation)>,
    pub(super) edges: Vec<(String, Relation, String)>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Contradiction {
    pub(super) fact: FactId,
    pub(super) other: FactId,
    pub(super) reason: String,
    #[serde(with = "crate::times")]
    pub(super) at: Timestamp,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Predicate {
    pub(super) namespace: String,
    pub(super) form: String,
    pub(super) is_single: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct End {
    pub(super) counts: Transferred,
    pub(super) sha256: String,
}

/// Writes lines and hashes them.
pub(super) struct Lines<W> {
    to: W,
    hash: Sha256,
}

impl<W: Write> Lines<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to, hash: Sha256::new() }
    }

    pub(super) fn write(&mut self, line: &Line) -> Result<(), KnowledgeError> {
        let mut text =
            serde_json::to_vec(line).map_err(|error| KnowledgeError::Unreadable(format!("for an export: {error}")))?;
        text.push(b'\n');
        // What could not be imported is not exported.
        if text.len() as u64 > MAX_LINE {
            let why = format!(
                "a passage or fact makes a line of {} bytes, and an export has at most {MAX_LINE} in one",
                text.len()
            );
            return Err(KnowledgeError::Unreadable(why));
        }
        self.hash.update(&text);
        self.to.write_all(&text).map_err(KnowledgeError::Text)
    }

    pub(super) fn end(mut self, counts: Transferred) -> Result<W, KnowledgeError> {
        let sha256 = hex(&self.hash.clone().finalize());
        self.write(&Line::End(End { counts, sha256 }))?;
        self.to.flush().map_err(KnowledgeError::Text)?;
        Ok(self.to)
    }
}

/// Reads a line into the buffer, which is cleared first. Returns false at the end.
pub(super) fn read_line(from: &mut impl BufRead, into: &mut Vec<u8>) -> Result<bool, String> {
    into.clear();
    let read = from.take(MAX_LINE + 1).read_until(b'\n', into);
    match read {
        Err(error) => Err(format!("it cannot be read: {}", reason(&error))),
        Ok(0) => Ok(false),
        Ok(_) if into.last() == Some(&b'\n') => Ok(true),
        Ok(_) if into.len() as u64 > MAX_LINE => Err(format!("it has more than {MAX_LINE} bytes")),
        Ok(_) => Err("the export ends within it: it was truncated".to_owned()),
    }
}

fn reason(error: &io::Error) -> String {
    error.to_string()
}

/// The 32 bytes that 64 digits are.
pub(super) fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let is_hash =
        digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let byte = |place| u8::from_str_radix(&digits[place..place + 2], 16).ok();
    if is_hash { (0..64).step_by(2).map(byte).collect() } else { None }
}
