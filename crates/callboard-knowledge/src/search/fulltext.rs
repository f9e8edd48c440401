//! Full text: which rows may be the best for the words of a query.
//!
//! What a row costs depends on what it is asked. The index iterates 30 rows of a word in a microsecond, finds rows that have two words by skipping
//! the others, and takes a microsecond to compute BM25 of one row. BM25 of an expression also iterates all rows of each of its words. So BM25 is
//! asked for the rarest words alone, as many as have a bounded number of rows together. What more common words add is whether such a row has
//! them. A query without rare words finds the newest rows that have all of its words, then those that have all but the most common one, and so on.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, OptionalExtension, params};

use super::candidates::{Candidate, Weighed};
use super::failures::{asks_for_failure, headings};
use super::found::{Checkpoint, Depth, ReadFacts};
use super::score::EXPANDED;
use super::terms::any_of;
use crate::store::KnowledgeError;
use crate::store::items::{ItemId, millis};

/// How many rows of the rarest words get BM25: most of the time of a query. The rarest word of a shallow query may have more alone.
const SCORED_SHALLOW: u64 = 2_000;
const SCORED_SHALLOW_ALONE: u64 = 4_000;
const SCORED_DEEP: u64 = 10_000;

/// How many of the more common words, the rarest first, add to these scores.
const ADDING: usize = 2;

/// The most rows of common words that are looked up, also those of other namespaces and times.
const MAX_LOOKED_UP: usize = 20_000;

/// How many rows are looked at that have a word and something else, and how many rows are added.
const COMBINED: usize = 300;
const ADDED: usize = 30;

/// The most words of one expression: each more costs a list of rows.
const MAX_ASKED: usize = 8;

/// The weights of title, names and body.
const WEIGHTS: &str = "1.0, 0.5, 1.0";

/// What holds, and what held.
const NOW: &[&str] = &["kb_text"];
const NOW_AND_PAST: &[&str] = &["kb_text", "kb_text_past"];

/// Finds the best rows for the words, best first, and reads what they are compared by.
pub(super) fn find(
    connection: &Connection,
    query: &ReadFacts,
    terms: &[Weighed],
    limit: usize,
    checkpoints: &mut Vec<Checkpoint>,
) -> Result<Vec<Candidate>, KnowledgeError> {
    let known = known(terms);
    let (rare, common) = known.split_at(rarest(&known, query.discovery_depth));
    let found = read(connection, query, limit, of_rare(connection, query, rare, common)?)?;
    let step = if common.is_empty() { "any word" } else { "rare words" };
    checkpoints.push(Checkpoint::new(step, found.len()));
    if !found.is_empty() || common.is_empty() {
        return Ok(found);
    }
    let found = of_common(connection, query, limit, common)?;
    checkpoints.push(Checkpoint::new("common words together", found.len()));
    Ok(found)
}

/// The rarest words that find rows, rarest first.
fn known(terms: &[Weighed]) -> Vec<&Weighed> {
    let mut known: Vec<&Weighed> = terms.iter().filter(|term| !term.term.joins && term.rows > 0).collect();
    known.sort_by_key(|term| term.rows);
    known.truncate(MAX_ASKED);
    known
}

/// Adds rows to which the graph leads: of names that begin with a word, and below headings of failures.
pub(super) fn widen(
    connection: &Connection,
    query: &ReadFacts,
    terms: &[Weighed],
    candidates: &mut Vec<Candidate>,
    checkpoints: &mut Vec<Checkpoint>,
) -> Result<(), KnowledgeError> {
    let known = known(terms);
    let expanded: Vec<&Weighed> = terms.iter().filter(|term| !term.term.expanded.is_empty()).collect();
    if !expanded.is_empty() {
        let names: Vec<String> = expanded.iter().flat_map(|term| term.term.expanded.clone()).collect();
        let mut parts: Vec<Part> =
            expanded.iter().map(|term| (any_of(&term.term.expanded), EXPANDED * term.weight)).collect();
        parts.extend(below(&any_of(&names), &known));
        let added = add(connection, query, &parts, candidates)?;
        checkpoints.push(Checkpoint::new("names that begin with a word", added));
    }
    if asks_for_failure(terms) {
        let added = add(connection, query, &below(&headings(), &known), candidates)?;
        checkpoints.push(Checkpoint::new("words below headings of failures", added));
    }
    Ok(())
}

/// What the index is asked for, and what a row gets that it finds.
type Part = (String, f64);

/// Each of the words together with something else.
fn below(other: &str, known: &[&Weighed]) -> Vec<Part> {
    known.iter().map(|term| (format!("{other} AND {}", term.term.expression()), term.weight)).collect()
}

/// Adds the rows that get most, without those that are there. The newest rows of each part are looked at.
fn add(
    connection: &Connection,
    query: &ReadFacts,
    parts: &[Part],
    candidates: &mut Vec<Candidate>,
) -> Result<usize, KnowledgeError> {
    let mut find = connection.prepare_cached(&format!(
        "SELECT rowid FROM kb_text WHERE kb_text MATCH ?1 ORDER BY rowid DESC LIMIT {COMBINED}"
    ))?;
    let mut weights: HashMap<ItemId, f64> = HashMap::new();
    for (expression, weight) in parts {
        for item in find.query_map([expression], |row| row.get(0))? {
            *weights.entry(item?).or_default() += weight;
        }
    }
    for known in candidates.iter() {
        weights.remove(&known.item);
    }
    let added = read(connection, query, ADDED, by_score(weights.into_iter().collect()))?;
    let number = added.len();
    candidates.extend(added);
    Ok(number)
}

/// The best first.
fn by_score(mut ranked: Vec<(ItemId, f64)>) -> Vec<ItemId> {
    ranked.sort_by(|(one, of_one), (other, of_other)| of_other.total_cmp(of_one).then_with(|| one.cmp(other)));
    ranked.into_iter().map(|(item, _)| item).collect()
}

/// How many of the words, rarest first, get BM25.
fn rarest(known: &[&Weighed], depth: Depth) -> usize {
    let (together, alone) = match depth {
        Depth::Shallow => (SCORED_SHALLOW, SCORED_SHALLOW_ALONE),
        Depth::Deep => (SCORED_DEEP, SCORED_DEEP),
    };
    let mut rows = 0_u64;
    let fitting = known.iter().take_while(|term| {
        rows = rows.saturating_add(term.rows);
        rows <= together
    });
    match (fitting.count(), known.first()) {
        (0, Some(first)) if first.rows <= alone => 1,
        (fitting, _) => fitting,
    }
}

fn tables(query: &ReadFacts) -> &'static [&'static str] {
    if query.as_of.is_none() { NOW } else { NOW_AND_PAST }
}

fn expression(terms: &[&Weighed], operator: &str) -> String {
    terms.iter().map(|term| term.term.expression()).collect::<Vec<_>>().join(operator)
}

/// The rows that have a rare word, best first.
fn of_rare(
    connection: &Connection,
    query: &ReadFacts,
    rare: &[&Weighed],
    common: &[&Weighed],
) -> Result<Vec<ItemId>, KnowledgeError> {
    let mut found: Vec<(ItemId, f64)> = Vec::new();
    if rare.is_empty() {
        return Ok(Vec::new());
    }
    let any = expression(rare, " OR ");
    for table in tables(query) {
        let mut find = connection
            .prepare_cached(&format!("SELECT rowid, -bm25({table}, {WEIGHTS}) FROM {table} WHERE {table} MATCH ?1"))?;
        let scores = find.query_map([&any], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut scores: Vec<(ItemId, f64)> = scores.collect::<Result<_, _>>()?;
        let mut find = connection.prepare_cached(&format!("SELECT rowid FROM {table} WHERE {table} MATCH ?1"))?;
        for term in common.iter().take(ADDING) {
            let both = format!("({any}) AND {}", term.term.expression());
            // Both lists are in the order of the rows.
            let mut place = 0;
            for item in find.query_map([both], |row| row.get::<_, ItemId>(0))? {
                let item = item?;
                place += scores.iter().skip(place).take_while(|(scored, _)| *scored < item).count();
                if let Some((scored, score)) = scores.get_mut(place)
                    && *scored == item
                {
                    *score += term.weight;
                }
            }
        }
        found.extend(scores);
    }
    Ok(by_score(found))
}

/// Rows that have as many of the words as there are rows for, newest first.
fn of_common(
    connection: &Connection,
    query: &ReadFacts,
    limit: usize,
    common: &[&Weighed],
) -> Result<Vec<Candidate>, KnowledgeError> {
    let (mut found, mut looked_up) = (Vec::new(), HashSet::new());
    for words in (1..=common.len()).rev() {
        let all = expression(&common[..words], " AND ");
        for table in tables(query) {
            let mut find = connection
                .prepare_cached(&format!("SELECT rowid FROM {table} WHERE {table} MATCH ?1 ORDER BY rowid DESC"))?;
            let mut rows = find.query([&all])?;
            while found.len() < limit
                && looked_up.len() < MAX_LOOKED_UP
                && let Some(row) = rows.next()?
            {
                let item = row.get(0)?;
                if looked_up.insert(item) {
                    found.extend(candidate(connection, query, item)?);
                }
            }
        }
    }
    Ok(found)
}

/// Reads the first of the rows that are in the namespace and hold at the time of the query.
fn read(
    connection: &Connection,
    query: &ReadFacts,
    limit: usize,
    items: Vec<ItemId>,
) -> Result<Vec<Candidate>, KnowledgeError> {
    let mut found = Vec::with_capacity(limit.min(items.len()));
    for item in items {
        if found.len() == limit {
            break;
        }
        found.extend(candidate(connection, query, item)?);
    }
    Ok(found)
}

/// What a row is compared by, if it is in the namespace and holds at the time of the query.
pub(super) fn candidate(
    connection: &Connection,
    query: &ReadFacts,
    item: ItemId,
) -> Result<Option<Candidate>, KnowledgeError> {
    let is_current_fact = "document IS NULL AND EXISTS (SELECT 1 FROM kb_facts WHERE item = id AND state = 'current')";
    let row = |row: &rusqlite::Row<'_>| {
        Ok(Candidate {
            item,
            document: row.get(0)?,
            title: row.get(1)?,
            body: row.get(2)?,
            is_current_fact: row.get(3)?,
            ..Candidate::default()
        })
    };
    let candidate = match query.as_of {
        None => connection
            .prepare_cached(&format!(
                "SELECT document, title, body, {is_current_fact} FROM kb_items WHERE id = ?1 AND namespace = ?2"
            ))?
            .query_row(params![item, query.namespace], row),
        Some(at) => connection
            .prepare_cached(&format!(
                "SELECT document, title, body, {is_current_fact} FROM kb_items
                 WHERE id = ?1 AND namespace = ?2 AND since <= ?3
                 AND (document IS NULL OR ended_at IS NULL OR ended_at > ?3)"
            ))?
            .query_row(params![item, query.namespace, millis(at)], row),
    };
    Ok(candidate.optional()?)
}
