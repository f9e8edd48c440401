//! What the graph adds to a deep query: what defines or mentions what the query names, and what the best results link to.

use rusqlite::{Connection, params};

use super::candidates::Candidate;
use super::found::{Checkpoint, ReadFacts};
use crate::store::KnowledgeError;
use crate::store::items::ItemId;
use crate::words::{normalised, words};

/// The most words of a name in a query.
const MAX_NAME: usize = 4;

/// The most names of a query that are looked up.
const MAX_NAMES: usize = 64;

/// An entity that more rows name than these says little about each of them.
const MAX_ROWS: usize = 64;

/// The best results whose links are followed.
const FOLLOWED: usize = 5;

/// What is added to the score of a row that defines what the query names, and that mentions it; the more of its rows there are, the less.
const OF_DEFINES: f64 = 0.6;
const OF_MENTIONS: f64 = 0.15;

/// What is added to the score of a row for each of the best results that links to its document.
const OF_LINKS: f64 = 0.05;

/// Adds rows and scores that follow from the graph.
pub(super) fn widen(
    connection: &Connection,
    query: &ReadFacts,
    candidates: &mut Vec<Candidate>,
    limit: usize,
    checkpoints: &mut Vec<Checkpoint>,
) -> Result<(), KnowledgeError> {
    if query.as_of.is_some() {
        // The graph has what holds now.
        return Ok(());
    }
    let mut found = 0;
    for name in names(&query.query) {
        let rows = rows_of(connection, &query.namespace, &name)?;
        #[expect(clippy::cast_precision_loss, reason = "a share needs no exact count")]
        let share = 1.0 / (1.0 + (rows.len() as f64).ln_1p());
        found += rows.len();
        for (item, relation) in rows {
            let added = share * if relation == "defines" { OF_DEFINES } else { OF_MENTIONS };
            add(candidates, item, added, format!("{relation} {name:?}"));
        }
    }
    checkpoints.push(Checkpoint::new("what the query names", found));
    let mut best: Vec<(ItemId, f64)> = candidates.iter().map(|candidate| (candidate.item, candidate.bm25)).collect();
    best.sort_by(|(one, of_one), (other, of_other)| of_other.total_cmp(of_one).then_with(|| one.cmp(other)));
    let mut followed = 0;
    for (item, _) in best.into_iter().take(FOLLOWED) {
        for (target, document) in linked(connection, item, limit)? {
            followed += 1;
            add(candidates, target, OF_LINKS, format!("a result links to {document}"));
        }
    }
    checkpoints.push(Checkpoint::new("links of the best results", followed));
    Ok(())
}

fn add(candidates: &mut Vec<Candidate>, item: ItemId, score: f64, reason: String) {
    match candidates.iter_mut().find(|candidate| candidate.item == item) {
        Some(candidate) => {
            candidate.graph += score;
            candidate.reasons.push(reason);
        }
        None => candidates.push(Candidate { item, graph: score, reasons: vec![reason], ..Candidate::default() }),
    }
}

/// What a query may name: each word, and up to [`MAX_NAME`] words that follow each other, in normal form; longer ones first.
fn names(query: &str) -> Vec<String> {
    let words: Vec<&str> = words(query).take(MAX_NAMES).collect();
    let mut names: Vec<String> = Vec::new();
    for length in (1..=MAX_NAME).rev() {
        for name in words.windows(length).map(|words| normalised(&words.join(" "))) {
            if names.len() < MAX_NAMES && !names.contains(&name) {
                names.push(name);
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
fn linked(connection: &Connection, item: ItemId, limit: usize) -> Result<Vec<(ItemId, String)>, KnowledgeError> {
    let mut find = connection.prepare_cached(
        "SELECT i.id, e.name FROM kb_graph_mentions m
         JOIN kb_graph_entities e ON e.id = m.entity
         JOIN kb_items from_item ON from_item.id = m.item
         JOIN kb_documents d ON d.namespace = from_item.namespace AND d.path = e.name
         JOIN kb_items i ON i.document = d.id AND i.ordinal = 0 AND i.ended_at IS NULL
         WHERE m.item = ?1 AND m.relation = 'links' AND m.deleted_at IS NULL LIMIT ?2",
    )?;
    let rows = find.query_map(params![item, limit], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
