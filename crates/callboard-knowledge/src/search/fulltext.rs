//! Full text: which rows may be the best for the words of a query.
//!
//! The index reads every row that has a word, so a common word is costly and says little. A shallow query reads the rows that have one of
//! the rarest words, as many words as have [`READ`] rows together, and orders them by all words. A deep query reads the rows of all words.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};

use super::candidates::{Candidate, Weighed};
use super::found::{Checkpoint, Depth, ReadFacts};
use super::terms::Term;
use crate::store::KnowledgeError;
use crate::store::items::{ItemId, millis};

/// How many rows a shallow query reads; more, if its rarest word has more.
const READ: u64 = 2_000;

/// The most words of one expression: each more costs a list of rows.
const MAX_ASKED: usize = 8;

/// The weights of title, names and body.
const WEIGHTS: &str = "1.0, 0.5, 1.0";

/// Finds how many rows have each word. Words that no row has keep their weight, since what lacks them covers less of the query.
pub(super) fn weighed(connection: &Connection, terms: &[Term]) -> Result<Vec<Weighed>, KnowledgeError> {
    let mut insert = connection.prepare_cached("INSERT INTO temp.kb_query (rowid, words) VALUES (?1, ?2)")?;
    let mut row = 0;
    let mut of_row = Vec::new();
    for (place, term) in terms.iter().enumerate() {
        for form in &term.forms {
            row += 1;
            of_row.push(place);
            insert.execute(params![row, form])?;
        }
    }
    let mut read = connection.prepare_cached("SELECT doc, term FROM temp.kb_query_words ORDER BY doc, offset")?;
    let tokens: Vec<(i64, String)> =
        read.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    connection.prepare_cached("DELETE FROM temp.kb_query")?.execute([])?;
    // A form of several tokens is in at most as many rows as its rarest token, a word in about as many as its most common form.
    let mut forms: BTreeMap<i64, u64> = BTreeMap::new();
    let mut frequency = connection.prepare_cached("SELECT doc FROM kb_text_words WHERE term = ?1")?;
    for (row, token) in &tokens {
        let rows: u64 = frequency.query_map([token], |row| row.get(0))?.next().transpose()?.unwrap_or(0);
        forms.entry(*row).and_modify(|least| *least = rows.min(*least)).or_insert(rows);
    }
    let total: u64 =
        connection.prepare_cached("SELECT coalesce(max(rowid), 0) FROM kb_text")?.query_row([], |row| row.get(0))?;
    let mut rows = vec![0_u64; terms.len()];
    for (row, of_form) in forms {
        let place = usize::try_from(row - 1).ok().and_then(|row| of_row.get(row)).copied().unwrap_or(0);
        rows[place] = rows[place].max(of_form);
    }
    #[expect(clippy::cast_precision_loss, reason = "a share needs no exact count")]
    let weighed = terms.iter().zip(rows).map(|(term, rows)| {
        let (of, all) = (rows as f64, total.max(rows) as f64);
        let is_absent = term.joins && rows == 0;
        let weight = if is_absent { 0.0 } else { (1.0 + (all - of + 0.5) / (of + 0.5)).ln() };
        Weighed { term: term.clone(), rows, weight }
    });
    Ok(weighed.collect())
}

/// Finds the best rows for the words, best first.
pub(super) fn find(
    connection: &Connection,
    query: &ReadFacts,
    terms: &[Weighed],
    limit: usize,
    checkpoints: &mut Vec<Checkpoint>,
) -> Result<Vec<ItemId>, KnowledgeError> {
    let may_find = |term: &&Weighed| !term.term.joins && (term.rows > 0 || query.as_of.is_some());
    let mut known: Vec<&Weighed> = terms.iter().filter(may_find).collect();
    known.sort_by_key(|term| term.rows);
    known.truncate(MAX_ASKED);
    let read = match query.discovery_depth {
        Depth::Shallow => rarest(&known),
        Depth::Deep => known.len(),
    };
    let any = expression(&known, " OR ");
    let (step, expression) = if read < known.len() {
        ("rare words", format!("({}) AND ({any})", expression(&known[..read], " OR ")))
    } else {
        ("any word", any)
    };
    let rows = if known.is_empty() { Vec::new() } else { ask(connection, query, &expression, limit)? };
    checkpoints.push(Checkpoint::new(step, rows.len()));
    Ok(rows)
}

/// How many of the words, rarest first, have [`READ`] rows together; at least one.
fn rarest(known: &[&Weighed]) -> usize {
    let mut rows = 0_u64;
    let fitting = known.iter().take_while(|term| {
        rows = rows.saturating_add(term.rows);
        rows <= READ
    });
    fitting.count().max(1)
}

fn expression(terms: &[&Weighed], operator: &str) -> String {
    terms.iter().map(|term| term.term.expression()).collect::<Vec<_>>().join(operator)
}

/// The best rows for an expression.
fn ask(
    connection: &Connection,
    query: &ReadFacts,
    expression: &str,
    limit: usize,
) -> Result<Vec<ItemId>, KnowledgeError> {
    if query.as_of.is_none() {
        // Only the best rows are looked up: a namespace is most of its base, or a query of it takes longer.
        let mut find = connection.prepare_cached(&format!(
            "SELECT t.id, i.namespace = ?2 FROM (
                 SELECT rowid AS id, bm25(kb_text, {WEIGHTS}) AS score FROM kb_text WHERE kb_text MATCH ?1
                 ORDER BY score, id LIMIT ?3
             ) t JOIN kb_items i ON i.id = t.id ORDER BY t.score, t.id"
        ))?;
        let rows = find.query_map(params![expression, query.namespace, limit], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let rows: Vec<(ItemId, bool)> = rows.collect::<Result<_, _>>()?;
        if rows.len() < limit || rows.iter().all(|(_, is_here)| *is_here) {
            return Ok(rows.into_iter().filter_map(|(item, is_here)| is_here.then_some(item)).collect());
        }
    }
    let one = |table: &str, holds: &str| {
        format!(
            "SELECT t.rowid, -bm25({table}, {WEIGHTS}) AS score FROM {table} t JOIN kb_items i ON i.id = t.rowid
             WHERE {table} MATCH ?1 AND i.namespace = ?2 AND {holds}"
        )
    };
    let order = "ORDER BY score DESC, 1 LIMIT ?3";
    let (sql, at) = match query.as_of {
        None => (format!("{} {order}", one("kb_text", "?4 IS NULL")), None),
        Some(at) => {
            let (now, past) = (one("kb_text", "i.since <= ?4"), one("kb_text_past", "i.since <= ?4"));
            (format!("{now} UNION ALL {past} AND (i.document IS NULL OR i.ended_at > ?4) {order}"), Some(millis(at)))
        }
    };
    let mut find = connection.prepare_cached(&sql)?;
    let rows = find.query_map(params![expression, query.namespace, limit, at], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Reads what rows are compared by.
pub(super) fn candidates(connection: &Connection, items: &[ItemId]) -> Result<Vec<Candidate>, KnowledgeError> {
    let mut find = connection.prepare_cached("SELECT document, title, body FROM kb_items WHERE id = ?1")?;
    let mut candidates = Vec::with_capacity(items.len());
    for &item in items {
        let read = find.query_row([item], |row| {
            Ok(Candidate { item, document: row.get(0)?, title: row.get(1)?, body: row.get(2)?, ..Candidate::default() })
        });
        candidates.extend(read.optional()?);
    }
    Ok(candidates)
}
