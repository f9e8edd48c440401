//! Which words of a query a text has, how often, and which follow each other. Pure: the few best rows are read once, which is cheaper than
//! asking the full-text index for each word again.

use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::stem::stem;
use super::terms::Asked;
use crate::words::{parts, words};

/// A query, prepared for the comparison with many texts.
pub(super) struct Pattern {
    /// By the last stem of a form: its stems and the place of its word.
    forms: HashMap<String, Vec<(Vec<String>, usize)>>,
    /// The first letters of all stems: most words of a text begin otherwise, and need no stem.
    begins: Vec<char>,
    pairs: Vec<(usize, usize)>,
    count: usize,
}

/// What a text has of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Occurrences {
    /// How often it has each word.
    pub(super) counts: Vec<u32>,
    /// Which pairs follow each other in it, too.
    pub(super) pairs: Vec<bool>,
    /// How many words it has.
    pub(super) length: u32,
}

impl Pattern {
    pub(super) fn of(asked: &Asked) -> Self {
        let mut forms: HashMap<String, Vec<(Vec<String>, usize)>> = HashMap::new();
        let mut begins = Vec::new();
        for (place, term) in asked.terms.iter().enumerate() {
            for form in &term.forms {
                let stems: Vec<String> = form.split_whitespace().map(|word| stem(&folded(word))).collect();
                begins.extend(stems.iter().filter_map(|stem| stem.chars().next()));
                if let Some(last) = stems.last() {
                    forms.entry(last.clone()).or_default().push((stems, place));
                }
            }
        }
        Self { forms, begins, pairs: asked.pairs.clone(), count: asked.terms.len() }
    }

    /// Looks at the texts of a row one after another; words of two texts do not follow each other.
    pub(super) fn occurrences(&self, texts: [&str; 2]) -> Occurrences {
        let mut reading =
            Reading { pattern: self, stems: Vec::new(), ends: vec![None; self.count], found: self.none() };
        for text in texts {
            words(text).for_each(|word| reading.word(word));
            reading.stems.push(String::new());
        }
        reading.found
    }

    fn none(&self) -> Occurrences {
        Occurrences { counts: vec![0; self.count], pairs: vec![false; self.pairs.len()], length: 0 }
    }
}

struct Reading<'p> {
    pattern: &'p Pattern,
    /// The stems so far; empty where a word begins as none of the query.
    stems: Vec<String>,
    /// Where the last occurrence of each word ended.
    ends: Vec<Option<usize>>,
    found: Occurrences,
}

impl Reading<'_> {
    fn word(&mut self, word: &str) {
        let mut is_found = false;
        for piece in word.split('_').filter(|piece| !piece.is_empty()) {
            is_found |= self.token(piece);
        }
        let may_have_parts = word.chars().skip(1).any(|c| c.is_uppercase() || c.is_numeric());
        if !is_found && may_have_parts {
            let parts = parts(word);
            if parts.len() > 1 {
                parts.iter().for_each(|part| {
                    self.token(part);
                });
            }
        }
    }

    fn token(&mut self, token: &str) -> bool {
        self.found.length = self.found.length.saturating_add(1);
        let place = self.stems.len();
        let lower = folded(token);
        let may_be_asked = lower.chars().next().is_some_and(|first| self.pattern.begins.contains(&first));
        self.stems.push(if may_be_asked { stem(&lower) } else { String::new() });
        let mut is_found = false;
        for (form, term) in self.pattern.forms.get(&self.stems[place]).into_iter().flatten() {
            if !self.stems.ends_with(form) {
                continue;
            }
            is_found = true;
            self.found.counts[*term] = self.found.counts[*term].saturating_add(1);
            let begin = place + 1 - form.len();
            for (pair, (one, _)) in self.pattern.pairs.iter().enumerate().filter(|(_, (_, next))| next == term) {
                self.found.pairs[pair] |= self.ends[*one] == Some(begin);
            }
        }
        // Only now, so that a word does not follow itself.
        for (form, term) in self.pattern.forms.get(&self.stems[place]).into_iter().flatten() {
            if self.stems.ends_with(form) {
                self.ends[*term] = Some(place + 1);
            }
        }
        is_found
    }
}

/// In lower case, without diacritics.
fn folded(word: &str) -> String {
    if word.is_ascii() {
        word.to_ascii_lowercase()
    } else {
        word.nfd().filter(|c| !is_combining_mark(*c)).collect::<String>().to_lowercase()
    }
}

#[cfg(test)]
mod tests {
    use super::super::terms::asked;
    use super::*;

    fn occurrences(query: &str, texts: [&str; 2]) -> (Vec<u32>, Vec<bool>) {
        let found = Pattern::of(&asked(query)).occurrences(texts);
        (found.counts, found.pairs)
    }

    #[test]
    fn inflections_are_the_same_word() {
        assert_eq!(occurrences("tokens checked", ["Checks a token", ""]).0, [1, 1]);
        assert_eq!(occurrences("Äpfel", ["apfel", "äpfel"]).0, [2]);
    }

    #[test]
    fn identifiers_are_found_whole_and_in_parts() {
        for text in ["readFacts", "read_facts", "ReadFacts", "read facts"] {
            assert_eq!(occurrences("read_facts", [text, ""]).0, [1], "{text}");
            assert_eq!(occurrences("facts", [text, ""]).0, [1], "{text}");
        }
    }

    #[test]
    fn pairs_follow_each_other_within_one_text() {
        assert_eq!(occurrences("open gate", ["", "the open gate"]).1, [true]);
        assert_eq!(occurrences("open gate", ["", "the gate is open"]).1, [false]);
        assert_eq!(occurrences("open gate", ["open", "gate"]).1, [false]);
        assert_eq!(occurrences("open read_facts", ["", "open read_facts"]).1, [true]);
    }
}
