//! What is compared with: full text as SQLite has it, without anything of this crate but the cut into passages.

use std::path::Path;

use callboard_knowledge::store::NewDocument;
use callboard_knowledge::words::words;
use rusqlite::{Connection, params};
use xtask::corpus::questions::record::Question;

use crate::asked::RESULTS;
use crate::corpus;

/// Indexes titles and texts of passages as one column.
pub(crate) fn build(path: &Path, documents: &[NewDocument]) {
    let mut connection = Connection::open(path).unwrap();
    let transaction = connection.transaction().unwrap();
    transaction
        .execute_batch(
            "CREATE TABLE passages (id INTEGER PRIMARY KEY, document TEXT, title TEXT);
             CREATE VIRTUAL TABLE plain USING fts5 (text, tokenize = 'porter unicode61 remove_diacritics 2')",
        )
        .unwrap();
    for document in documents {
        for passage in &document.passages {
            let row = params![document.path, passage.title];
            transaction.execute("INSERT INTO passages (document, title) VALUES (?1, ?2)", row).unwrap();
            let text = format!("{}\n{}", passage.title, passage.text);
            let row = params![transaction.last_insert_rowid(), text];
            transaction.execute("INSERT INTO plain (rowid, text) VALUES (?1, ?2)", row).unwrap();
        }
    }
    transaction.commit().unwrap();
}

/// The place of the first right result of each question.
pub(crate) fn ranks(connection: &Connection, questions: &[Question]) -> Vec<Option<usize>> {
    let mut find = connection
        .prepare(
            "SELECT p.document, p.title FROM plain JOIN passages p ON p.id = plain.rowid
             WHERE plain MATCH ?1 ORDER BY bm25(plain), plain.rowid LIMIT ?2",
        )
        .unwrap();
    let mut ranks = Vec::new();
    for question in questions {
        let asked: Vec<String> = words(&question.question).map(|word| format!("\"{word}\"")).collect();
        let rows = find.query_map(params![asked.join(" OR "), RESULTS], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let rows: Vec<(String, String)> = rows.collect::<Result<_, _>>().unwrap();
        let right = rows.iter().position(|(document, title)| corpus::answers(question, document, title));
        ranks.push(right.map(|place| place + 1));
    }
    ranks
}
