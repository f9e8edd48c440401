//! Full text in stages: all rare words, then some of them, then any word.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};

use super::candidates::{Candidate, Weighed};
use super::found::{Checkpoint, ReadFacts};
use super::terms::Term;
use crate::store::KnowledgeError;
use crate::store::items::{ItemId, millis};

/// A word is rare if at most this share of the rows has it, or at most [`RARE_ROWS`].
const RARE_SHARE: f64 = 0.02;
const RARE_ROWS: u64 = 20;

/// The most words of one expression: each more costs a list of rows.
const MAX_ASKED: usize = 8;

/// The weights of title, names and body.
const WEIGHTS: &str = "4.0, 2.0, 1.0";

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
        let weight = (1.0 + (all - of + 0.5) / (of + 0.5)).ln();
        Weighed { term: term.clone(), rows, weight, is_rare: rows <= RARE_ROWS || of <= RARE_SHARE * all }
    });
    Ok(weighed.collect())
}

/// Finds the best rows for the words.
pub(super) fn find(
    connection: &Connection,
    query: &ReadFacts,
    terms: &[Weighed],
    limit: usize,
    checkpoints: &mut Vec<Checkpoint>,
) -> Result<Vec<Candidate>, KnowledgeError> {
    let mut known: Vec<&Weighed> = terms.iter().filter(|term| term.rows > 0 || query.as_of.is_some()).collect();
    known.sort_by_key(|term| term.rows);
    known.truncate(MAX_ASKED);
    let rare: Vec<&Weighed> = known.iter().copied().filter(|term| term.is_rare).collect();
    let stages = [
        ("all rare words", rare.len() > 1, expression(&rare, " AND ")),
        ("some rare words", !rare.is_empty(), expression(&rare, " OR ")),
        ("any word", known.len() > rare.len(), expression(&known, " OR ")),
    ];
    let mut found: Vec<Candidate> = Vec::new();
    for (step, _, expression) in stages.iter().filter(|(_, is_asked, _)| *is_asked) {
        let rows = ask(connection, query, expression, limit)?;
        checkpoints.push(Checkpoint::new(*step, rows.len()));
        for (item, bm25) in rows {
            match found.iter_mut().find(|candidate| candidate.item == item) {
                Some(candidate) => candidate.bm25 = candidate.bm25.max(bm25),
                None => found.push(Candidate { item, bm25, ..Candidate::default() }),
            }
        }
        if found.len() >= limit {
            break;
        }
    }
    if checkpoints.is_empty() {
        checkpoints.push(Checkpoint::new("any word", 0));
    }
    Ok(found)
}

fn expression(terms: &[&Weighed], operator: &str) -> String {
    terms.iter().map(|term| term.term.expression()).collect::<Vec<_>>().join(operator)
}

/// The best rows for an expression, with their scores.
fn ask(
    connection: &Connection,
    query: &ReadFacts,
    expression: &str,
    limit: usize,
) -> Result<Vec<(ItemId, f64)>, KnowledgeError> {
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
    let rows = find.query_map(params![expression, query.namespace, limit, at], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Finds which words each candidate has.
pub(super) fn match_terms(
    connection: &Connection,
    terms: &[Weighed],
    candidates: &mut [Candidate],
) -> Result<(), KnowledgeError> {
    let ids: Vec<String> = candidates.iter().map(|candidate| candidate.item.to_string()).collect();
    let ids = ids.join(",");
    for (place, term) in terms.iter().enumerate().filter(|(_, term)| term.rows > 0) {
        for table in ["kb_text", "kb_text_past"] {
            let sql = format!("SELECT rowid FROM {table} WHERE {table} MATCH ?1 AND rowid IN ({ids})");
            let mut find = connection.prepare(&sql)?;
            for item in find.query_map([term.term.expression()], |row| row.get::<_, ItemId>(0))? {
                let item = item?;
                candidates.iter_mut().filter(|candidate| candidate.item == item).for_each(|candidate| {
                    candidate.matched.push(place);
                });
            }
        }
    }
    Ok(())
}
