//! The words of a query, as the full-text index is asked for them. Pure.

use crate::words::{MAX_WORD, parts, words};

use super::found::MAX_QUERY;

/// The most different words of a query that count.
const MAX_TERMS: usize = 24;

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
}

impl Term {
    /// What the full-text index is asked: every form is quoted, and has neither quotes nor operators.
    pub(super) fn expression(&self) -> String {
        let forms: Vec<String> = self.forms.iter().map(|form| format!("\"{form}\"")).collect();
        if let [form] = forms.as_slice() { form.clone() } else { format!("({})", forms.join(" OR ")) }
    }
}

/// The different words of a query, in its order, without those that only join others.
pub(super) fn terms(query: &str) -> Vec<Term> {
    let end = (0..=query.len().min(MAX_QUERY)).rev().find(|end| query.is_char_boundary(*end)).unwrap_or(0);
    let mut terms: Vec<Term> = Vec::new();
    let joins = |word: &str| JOINING.contains(&&*word.to_lowercase());
    let joins_all = words(&query[..end]).all(joins);
    for word in words(&query[..end]).filter(|word| joins_all || !joins(word)) {
        let term = Term { word: word.to_owned(), forms: forms(word) };
        if terms.iter().all(|known| known.forms != term.forms) {
            terms.push(term);
        }
        if terms.len() == MAX_TERMS {
            break;
        }
    }
    terms
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
        let asked = |query: &str| terms(query).iter().map(Term::expression).collect::<Vec<_>>();
        assert_eq!(asked("read_facts"), ["(\"read facts\" OR \"readfacts\")"]);
        assert_eq!(asked("readFacts"), ["(\"readfacts\" OR \"read facts\")"]);
        assert_eq!(asked("facts Facts FACTS"), ["\"facts\""]);
    }

    #[test]
    fn words_that_join_others_count_where_there_is_nothing_else() {
        let asked = |query: &str| terms(query).into_iter().map(|term| term.word).collect::<Vec<_>>();
        assert_eq!(asked("How does the gate open?"), ["gate", "open"]);
        assert_eq!(asked("what is this"), ["what", "is", "this"]);
    }

    #[test]
    fn nothing_in_a_query_is_an_operator() {
        let asked = terms("a\" OR NOT (b*) NEAR(c, 2) title:d ^e -- ; DROP TABLE kb_items").into_iter();
        for term in asked {
            let inner = term.forms.iter().all(|form| form.chars().all(|c| c.is_alphanumeric() || c == ' '));
            assert!(inner, "{term:?}");
        }
    }
}
