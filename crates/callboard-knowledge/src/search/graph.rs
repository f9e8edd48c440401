//! What the graph adds to the score of a row in a deep query, as a share of the best text.
//!
//! - A row that defines or mentions what the query names gets more, by the share of the query that the name is, and less the more such rows
//!   there are.
//! - A query for a failure, such as the message of an error, is answered where failures are documented: below headings such as "Errors",
//!   "Panics" or `ParseError`. Rows there get half of their text's score more, and those of the documents of the best results get a part of
//!   the best score of the document, since the words of a message are often those of the code beside.
//! - The first row of a document to which one of the best results links gets a little.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

use rusqlite::{Connection, params};

use super::candidates::{Candidate, Weighed};
use super::failures::{asks_for_failure, failures_of, is_of_failure};
use super::found::{Checkpoint, ReadFacts};
use super::fulltext;
use super::score::{TextScorer, best_text};
use crate::store::KnowledgeError;
use crate::store::items::ItemId;
use crate::words::{normalised, words};

/// The most words of a name in a query.
const MAX_NAME: usize = 4;

/// The most names of a query that are looked up.
const MAX_NAMES: usize = 64;

/// An entity that more rows name than these says little about each of them.
const MAX_ROWS: usize = 64;

/// The best results whose documents and links are followed.
const FOLLOWED: usize = 10;
const LINKING: usize = 5;

/// The most documents that are looked through.
const MAX_DOCUMENTS: usize = 5;

const OF_DEFINES: f64 = 0.4;
const OF_MENTIONS: f64 = 0.05;
const OF_LINKS: f64 = 0.05;
const OF_FAILURE: f64 = 0.5;
const OF_FAILURE_BESIDE: f64 = 0.3;

/// What the graph adds to a row.
struct Hint {
    item: ItemId,
    added: f64,
    reason: String,
}

/// Adds what the graph adds, also to rows that are no candidates yet.
pub(super) fn add(
    connection: &Connection,
    query: &ReadFacts,
    terms: &[Weighed],
    scorer: &TextScorer<'_>,
    candidates: &mut Vec<Candidate>,
    checkpoints: &mut Vec<Checkpoint>,
) -> Result<(), KnowledgeError> {
    let hints = hints(connection, query, terms, candidates, checkpoints)?;
    let mut places: HashMap<ItemId, usize> =
        candidates.iter().enumerate().map(|(place, candidate)| (candidate.item, place)).collect();
    for Hint { item, added, reason } in hints {
        let place = match places.entry(item) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let Some(candidate) = fulltext::candidate(connection, query, item)? else { continue };
                candidates.push(Candidate { text: scorer.text(&candidate), ..candidate });
                *new.insert(candidates.len() - 1)
            }
        };
        candidates[place].graph += added;
        candidates[place].reasons.push(reason);
    }
    for candidate in candidates.iter_mut().filter(|candidate| candidate.text.is_expanded) {
        candidate.reasons.push("has a name that begins with a word".to_owned());
    }
    Ok(())
}

/// Finds what the graph adds.
fn hints(
    connection: &Connection,
    query: &ReadFacts,
    terms: &[Weighed],
    candidates: &[Candidate],
    checkpoints: &mut Vec<Checkpoint>,
) -> Result<Vec<Hint>, KnowledgeError> {
    let mut hints = Vec::new();
    for (name, of_query) in names(&query.query, terms) {
        let rows = rows_of(connection, &query.namespace, &name)?;
        #[expect(clippy::cast_precision_loss, reason = "a share needs no exact count")]
        let share = of_query / (1.0 + (rows.len() as f64).ln_1p());
        for (item, relation) in rows {
            let added = share * if relation == "defines" { OF_DEFINES } else { OF_MENTIONS };
            hints.push(Hint { item, added, reason: format!("{relation} {name:?}") });
        }
    }
    checkpoints.push(Checkpoint::new("what the query names", hints.len()));
    let best = best_text(candidates);
    let mut ranked: Vec<&Candidate> = candidates.iter().collect();
    ranked.sort_by(|one, other| other.text.score.total_cmp(&one.text.score).then_with(|| one.item.cmp(&other.item)));
    ranked.truncate(FOLLOWED);
    if asks_for_failure(terms) {
        let before = hints.len();
        let of_failure = candidates.iter().filter(|candidate| is_of_failure(&candidate.title));
        hints.extend(of_failure.map(|candidate| Hint {
            item: candidate.item,
            added: OF_FAILURE * candidate.text.score / best,
            reason: "documents a failure".to_owned(),
        }));
        let mut documents = BTreeSet::new();
        for candidate in &ranked {
            let Some(document) = candidate.document else { continue };
            if documents.len() == MAX_DOCUMENTS || !documents.insert(document) {
                continue;
            }
            hints.extend(failures_of(connection, document)?.into_iter().map(|item| Hint {
                item,
                added: OF_FAILURE_BESIDE * candidate.text.score / best,
                reason: "documents a failure beside a result".to_owned(),
            }));
        }
        checkpoints.push(Checkpoint::new("failures", hints.len() - before));
    }
    let before = hints.len();
    for candidate in ranked.into_iter().take(LINKING) {
        for (item, document) in linked(connection, candidate.item)? {
            hints.push(Hint { item, added: OF_LINKS, reason: format!("a result links to {document}") });
        }
    }
    checkpoints.push(Checkpoint::new("links of the best results", hints.len() - before));
    Ok(hints)
}

/// What a query may name: each word, and up to [`MAX_NAME`] words that follow each other, in normal form; longer ones first. With the share of
/// the query's weight that the words have.
fn names(query: &str, terms: &[Weighed]) -> Vec<(String, f64)> {
    let whole: f64 = terms.iter().map(|term| term.weight).sum();
    let weight = |word: &str| {
        let lower = word.to_lowercase();
        terms.iter().find(|term| term.term.word.to_lowercase() == lower).map_or(0.0, |term| term.weight)
    };
    let words: Vec<(&str, f64)> = words(query).take(MAX_NAMES).map(|word| (word, weight(word))).collect();
    let mut names: Vec<(String, f64)> = Vec::new();
    for length in (1..=MAX_NAME).rev() {
        for window in words.windows(length) {
            let name = normalised(&window.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" "));
            let of_query: f64 = window.iter().map(|(_, weight)| weight).sum::<f64>() / whole.max(f64::MIN_POSITIVE);
            if names.len() < MAX_NAMES && names.iter().all(|(known, _)| *known != name) {
                names.push((name, of_query.min(1.0)));
            }
        }
    }
    names
}

/// The rows that define or mention an entity, unless there are too many.
fn rows_of(connection: &Connection, namespace: &str, form: &str) -> Result<Vec<(ItemId, String)>, KnowledgeError> {
    let mut find = connection.prepare_cached(
        "SELECT m.item, m.relation FROM kb_graph_entities e JOIN kb_graph_mentions m ON m.entity = e.id
         WHERE e.namespace = ?1 AND e.form = ?2 AND m.deleted_at IS NULL AND m.relation IN ('defines', 'mentions')
         ORDER BY m.relation, m.item LIMIT ?3",
    )?;
    let rows = find.query_map(params![namespace, form, MAX_ROWS + 1], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let rows: Vec<(ItemId, String)> = rows.collect::<Result<_, _>>()?;
    Ok(if rows.len() > MAX_ROWS { Vec::new() } else { rows })
}

/// The first passages of the documents that a row links to.
fn linked(connection: &Connection, item: ItemId) -> Result<Vec<(ItemId, String)>, KnowledgeError> {
    let mut find = connection.prepare_cached(
        "SELECT i.id, e.name FROM kb_graph_mentions m
         JOIN kb_graph_entities e ON e.id = m.entity
         JOIN kb_items from_item ON from_item.id = m.item
         JOIN kb_documents d ON d.namespace = from_item.namespace AND d.path = e.name
         JOIN kb_items i ON i.document = d.id AND i.ordinal = 0 AND i.ended_at IS NULL
         WHERE m.item = ?1 AND m.relation = 'links' AND m.deleted_at IS NULL LIMIT ?2",
    )?;
    let rows = find.query_map(params![item, MAX_ROWS], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
