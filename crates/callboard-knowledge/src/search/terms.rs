//! The words of a query, as the full-text index is asked for them. Pure.

use crate::words::{MAX_WORD, parts, words};

use super::found::MAX_QUERY;

/// The most different words of a query that count.
const MAX_TERMS: usize = 32;

/// Words that join others: a query is about the rest of its words, unless it has none.
const JOINING: &[&str] = &[
    "a", "about", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can", "could", "did", "do",
    "does", "for", "from", "had", "has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "may", "me", "my",
    "of", "on", "or", "our", "shall", "should", "so", "that", "the", "their", "there", "these", "this", "those", "to",
    "was", "we", "were", "what", "when", "where", "which", "who", "whom", "whose", "why", "will", "with", "would",
    "you", "your",
];

/// A word of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    /// As it was written.
    pub(super) word: String,
    /// The ways in which a row may have it; each is one or more words that follow each other.
    pub(super) forms: Vec<String>,
    /// Names in the graph that begin with it: a row that has one instead has it in part.
    pub(super) expanded: Vec<String>,
    /// Whether it only joins others: it finds no rows, and counts in those that others find.
    pub(super) joins: bool,
}

impl Term {
    /// What the full-text index is asked: every form is quoted, and has neither quotes nor operators.
    pub(super) fn expression(&self) -> String {
        any_of(&self.forms)
    }
}

/// What the full-text index is asked for rows that have one of these.
pub(super) fn any_of(forms: &[String]) -> String {
    let quoted: Vec<String> = forms.iter().map(|form| format!("\"{form}\"")).collect();
    if let [form] = quoted.as_slice() { form.clone() } else { format!("({})", quoted.join(" OR ")) }
}

/// What a query asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// Its different words, in its order.
    pub(super) terms: Vec<Term>,
    /// Which of them follow each other in it.
    pub(super) pairs: Vec<(usize, usize)>,
}

/// Cuts a query into its words.
pub(super) fn asked(query: &str) -> Asked {
    let end = (0..=query.len().min(MAX_QUERY)).rev().find(|end| query.is_char_boundary(*end)).unwrap_or(0);
    let mut asked = Asked::default();
    let joins = |word: &str| JOINING.contains(&&*word.to_lowercase());
    let joins_all = words(&query[..end]).all(joins);
    let mut before = None;
    for word in words(&query[..end]) {
        let term =
            Term { word: word.to_owned(), forms: forms(word), expanded: Vec::new(), joins: !joins_all && joins(word) };
        let known = asked.terms.iter().position(|known| known.forms == term.forms);
        if known.is_none() && asked.terms.len() == MAX_TERMS {
            break;
        }
        let place = known.unwrap_or(asked.terms.len());
        if known.is_none() {
            asked.terms.push(term);
        }
        if let Some(before) = before.filter(|before| *before != place)
            && !asked.pairs.contains(&(before, place))
        {
            asked.pairs.push((before, place));
        }
        before = Some(place);
    }
    asked
}

/// An identifier is found in each of the ways in which identifiers are written.
fn forms(word: &str) -> Vec<String> {
    let parts = parts(word);
    let mut forms = vec![word.to_lowercase().replace('_', " ").trim().to_owned()];
    if parts.len() > 1 {
        for form in [parts.join(" "), parts.concat()] {
            if form.len() <= 4 * MAX_WORD && !forms.contains(&form) {
                forms.push(form);
            }
        }
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_asked_for_in_each_way_of_writing_them() {
        let asked = |query: &str| asked(query).terms.iter().map(Term::expression).collect::<Vec<_>>();
        assert_eq!(asked("read_facts"), ["(\"read facts\" OR \"readfacts\")"]);
        assert_eq!(asked("readFacts"), ["(\"readfacts\" OR \"read facts\")"]);
        assert_eq!(asked("facts Facts FACTS"), ["\"facts\""]);
    }

    #[test]
    fn words_that_join_others_count_where_there_is_nothing_else() {
        let found_by = |query: &str| {
            let terms = asked(query).terms.into_iter().filter(|term| !term.joins);
            terms.map(|term| term.word).collect::<Vec<_>>()
        };
        assert_eq!(found_by("How does the gate open?"), ["gate", "open"]);
        assert_eq!(found_by("what is this"), ["what", "is", "this"]);
        assert_eq!(asked("is it what it is").pairs, [(0, 1), (1, 2), (2, 1), (1, 0)]);
    }

    #[test]
    fn nothing_in_a_query_is_an_operator() {
        let asked = asked("a\" OR NOT (b*) NEAR(c, 2) title:d ^e -- ; DROP TABLE kb_items");
        for term in asked.terms {
            let inner = term.forms.iter().all(|form| form.chars().all(|c| c.is_alphanumeric() || c == ' '));
            assert!(inner, "{term:?}");
        }
    }
}
