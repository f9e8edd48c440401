//! Words that the graph adds to a query: a word that begins the name of an entity also finds that name. A query for "auth" finds
//! "authentication" if something of the base defines, mentions or links to it.

use rusqlite::{Connection, OptionalExtension, params};

use super::stem::stem;
use super::terms::Term;
use crate::store::KnowledgeError;
use crate::words::{parts, words};

/// The fewest letters of a word that is expanded.
const LEAST: usize = 3;

/// The most entities that are looked at for a word, and the most words that are added for it.
const MAX_LOOKED_UP: usize = 16;
const MAX_ADDED: usize = 4;

/// Greater than every character that a word has.
const END: char = char::MAX;

/// The most rows of a word that is added. A word that has more than twice as many rows as a name is written out where it is meant.
const MAX_ROWS: u64 = 2_000;
const RARER: u64 = 2;

/// Finds the words that are added to each word of a query. `rows` tells how many rows have a token.
pub(super) fn expand(
    connection: &Connection,
    namespace: &str,
    terms: &mut [Term],
    rows: impl Fn(&str) -> Result<u64, KnowledgeError>,
) -> Result<(), KnowledgeError> {
    // The first name that begins with the word and continues it with a letter.
    let mut next = connection.prepare_cached(
        "SELECT form, name FROM kb_graph_entities WHERE namespace = ?1 AND form >= ?2 AND form < ?3
         AND EXISTS (SELECT 1 FROM kb_graph_mentions m WHERE m.entity = kb_graph_entities.id AND m.deleted_at IS NULL)
         ORDER BY form LIMIT 1",
    )?;
    for term in terms.iter_mut().filter(|term| !term.joins) {
        let word = term.word.to_lowercase();
        if word.len() < LEAST || !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
            continue;
        }
        let known = stem(&word);
        let (mut from, end) = (format!("{word}a"), format!("{word}{END}"));
        for _ in 0..MAX_LOOKED_UP {
            let row = next.query_row(params![namespace, from, end], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
            let Some((form, name)): Option<(String, String)> = row else { break };
            let longer = words(&form).next().unwrap_or_default();
            from = format!("{longer}{END}");
            // An identifier that has the word as a part is found by it.
            let part = words(&name).next().map(parts).unwrap_or_default().into_iter().next().unwrap_or_default();
            if part.len() > word.len() && part.starts_with(&word) {
                let token = stem(&part);
                let usual = (1..=MAX_ROWS).contains(&rows(&token)?) && RARER * rows(&token)? >= rows(&known)?;
                if token != known && usual && !term.expanded.contains(&part) {
                    term.expanded.push(part);
                }
            }
            if term.expanded.len() == MAX_ADDED {
                break;
            }
        }
    }
    Ok(())
}
