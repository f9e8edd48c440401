//! Queries for failures, such as the message of an error, and where they are answered: below headings such as "Errors", "Panics" or
//! `ParseError`.

use rusqlite::{Connection, params};

use super::candidates::Weighed;
use super::stem::stem;
use crate::store::KnowledgeError;
use crate::store::items::ItemId;
use crate::words::{parts, words};

/// The most passages of a document that are looked through.
const MAX_PASSAGES: usize = 500;

/// Stems of the words by which queries and messages speak of failures.
const FAILING: &[&str] = &[
    "abort",
    "break",
    "broken",
    "cannot",
    "crash",
    "deni",
    "duplic",
    "error",
    "exceed",
    "except",
    "expect",
    "fail",
    "failur",
    "invalid",
    "mismatch",
    "miss",
    "must",
    "not",
    "overflow",
    "panic",
    "refus",
    "reject",
    "too",
    "unabl",
    "unexpect",
    "unknown",
    "unsupport",
    "wrong",
];

/// Stems of the parts of headings below which failures are documented.
const FAILURES: &[&str] = &["error", "except", "failur", "panic", "problem", "troubleshoot"];

/// Whether queries and messages speak of failures by this word.
pub(super) fn is_failing(word: &str) -> bool {
    FAILING.contains(&&*stem(&word.to_lowercase()))
}

pub(super) fn asks_for_failure(terms: &[Weighed]) -> bool {
    terms.iter().any(|term| is_failing(&term.term.word))
}

/// Whether one of the headings below the first has a word of failures.
pub(super) fn is_of_failure(title: &str) -> bool {
    let headings = title.split(" > ").skip(1);
    headings.flat_map(words).flat_map(parts).any(|part| FAILURES.contains(&&*stem(&part)))
}

/// What the full-text index is asked for rows with such a heading.
pub(super) fn headings() -> String {
    format!("{{title}} : ({})", FAILURES.join(" OR "))
}

/// The passages of a document that document failures.
pub(super) fn failures_of(connection: &Connection, document: i64) -> Result<Vec<ItemId>, KnowledgeError> {
    let mut find = connection.prepare_cached(
        "SELECT id, title FROM kb_items WHERE document = ?1 AND ended_at IS NULL ORDER BY ordinal LIMIT ?2",
    )?;
    let rows = find.query_map(params![document, MAX_PASSAGES], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let rows: Vec<(ItemId, String)> = rows.collect::<Result<_, _>>()?;
    Ok(rows.into_iter().filter_map(|(item, title)| is_of_failure(&title).then_some(item)).collect())
}
