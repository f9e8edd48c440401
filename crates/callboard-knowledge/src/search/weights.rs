//! What the words of a query weigh: the fewer rows have a word, the more.

use rusqlite::{Connection, params};

use super::candidates::Weighed;
use super::stem::stem;
use super::terms::Term;
use crate::store::KnowledgeError;
use crate::store::frequencies::Frequencies;

/// How many rows have a word.
pub(super) struct Counts<'c> {
    connection: &'c Connection,
    is_of_past: bool,
    frequencies: &'c Frequencies,
    highest: u64,
}

impl<'c> Counts<'c> {
    pub(super) fn of(
        connection: &'c Connection,
        is_of_past: bool,
        frequencies: &'c Frequencies,
    ) -> Result<Self, KnowledgeError> {
        let highest =
            connection.prepare_cached("SELECT coalesce(max(id), 0) FROM kb_items")?.query_row([], |row| row.get(0))?;
        Ok(Self { connection, is_of_past, frequencies, highest })
    }

    pub(super) fn rows(&self, token: &str) -> Result<u64, KnowledgeError> {
        let now = self.frequencies.rows(self.connection, token, self.highest)?;
        Ok(now + if self.is_of_past { rows_of_past(self.connection, token)? } else { 0 })
    }

    /// What each word weighs. One that no row has keeps its weight, since what lacks it covers less of the query.
    pub(super) fn weighed(&self, terms: Vec<Term>) -> Result<Vec<Weighed>, KnowledgeError> {
        let mut weighed = Vec::with_capacity(terms.len());
        for term in terms {
            // A form of several tokens is in at most as many rows as its rarest token, a word in about as many as its most common form.
            let mut rows = 0;
            for form in &term.forms {
                let mut of_form = None;
                for token in tokens(self.connection, form)? {
                    let of_token = self.rows(&token)?;
                    of_form = Some(of_form.map_or(of_token, |least: u64| least.min(of_token)));
                }
                rows = rows.max(of_form.unwrap_or(0));
            }
            #[expect(clippy::cast_precision_loss, reason = "a share needs no exact count")]
            let (of, all) = (rows as f64, self.highest.max(rows) as f64);
            let is_absent = term.joins && rows == 0;
            let weight = if is_absent { 0.0 } else { (1.0 + (all - of + 0.5) / (of + 0.5)).ln() };
            weighed.push(Weighed { term, rows, weight });
        }
        Ok(weighed)
    }
}

/// How many rows that have ended have a token.
fn rows_of_past(connection: &Connection, token: &str) -> Result<u64, KnowledgeError> {
    let mut count = connection.prepare_cached("SELECT doc FROM temp.kb_past_words WHERE term = ?1")?;
    Ok(count.query_map([token], |row| row.get(0))?.next().transpose()?.unwrap_or(0))
}

/// The tokens of a form, as rows are cut into them. A table of the connection cuts what is not ASCII, which costs more than a query may.
fn tokens(connection: &Connection, form: &str) -> Result<Vec<String>, KnowledgeError> {
    if form.is_ascii() {
        return Ok(form.split(' ').filter(|token| !token.is_empty()).map(stem).collect());
    }
    connection.prepare_cached("INSERT INTO temp.kb_query (rowid, words) VALUES (1, ?1)")?.execute(params![form])?;
    let mut read = connection.prepare_cached("SELECT term FROM temp.kb_query_words ORDER BY offset")?;
    let tokens = read.query_map([], |row| row.get(0))?.collect::<Result<_, _>>();
    connection.prepare_cached("DELETE FROM temp.kb_query")?.execute([])?;
    Ok(tokens?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::terms::asked;

    #[test]
    fn forms_in_ascii_have_the_tokens_of_the_index() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(crate::store::schema::OF_READER).unwrap();
        let query = "read_facts HTTPServer2 sha256 x86_64 v1 2026 1.5e3 flies a1b2 tokens__checked B3rning r2d2ing";
        let forms: Vec<String> = asked(query).terms.into_iter().flat_map(|term| term.forms).collect();
        assert!(forms.len() > 12);
        for form in forms {
            connection.execute("INSERT INTO temp.kb_query (rowid, words) VALUES (1, ?1)", [&form]).unwrap();
            let mut read = connection.prepare("SELECT term FROM temp.kb_query_words ORDER BY offset").unwrap();
            let expected: Vec<String> =
                read.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
            connection.execute("DELETE FROM temp.kb_query", []).unwrap();
            assert_eq!(tokens(&connection, &form).unwrap(), expected, "{form}");
        }
    }

    #[test]
    fn forms_in_other_letters_lose_their_diacritics_as_in_the_index() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(crate::store::schema::OF_READER).unwrap();
        assert_eq!(tokens(&connection, "Äpfel größe").unwrap(), ["apfel", "groß"]);
    }
}
