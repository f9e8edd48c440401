//! The index by which a page of the site searches: words with the entries that have them, in files that a browser loads when a query needs
//! them.
//!
//! The files are scripts that hand over their contents, because a page that was opened as a file may load scripts but may not read files.
//! The words are in order, so the files that have the words of a prefix are next to each other.

mod postings;
mod shards;

use std::collections::BTreeMap;

use unicode_normalization::UnicodeNormalization as _;

use super::texts;
use crate::facts::FactState;
use crate::words;

pub(super) use postings::Postings;
pub(super) use shards::{Entries, write_words};

/// The most of a text that is indexed, in bytes.
const MAX_INDEXED: usize = 2 * 1024 * 1024;
/// The most different words of an entry.
const MAX_WORDS: usize = 20_000;
/// The highest weight of a word in an entry.
const MAX_WEIGHT: u32 = 99;

/// The words in which an occurrence counts. In a longer text, a word has to occur more often to weigh the same.
const USUAL_LENGTH: u32 = 400;

/// What a search finds: a section, a fact or an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The link, relative to the site.
    pub(super) target: String,
    pub(super) title: String,
    /// Where it is, as the result shows it.
    pub(super) context: String,
    pub(super) kind: Kind,
    pub(super) excerpt: String,
    /// The words by which it is found, each with its weight.
    pub(super) words: BTreeMap<String, u8>,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Document,
    Untrusted,
    Fact(FactState),
    Entity,
}

impl Kind {
    /// The word that a result shows beside its title.
    fn word(self) -> &'static str {
        match self {
            Self::Document => "",
            Self::Untrusted => "untrusted",
            Self::Fact(state) => state.name(),
            Self::Entity => "entity",
        }
    }
}

/// Returns the words of texts, each text with what one of its words weighs. A word that occurs often weighs more, up to three times as much.
pub(super) fn words_of(texts: &[(u32, &str)]) -> BTreeMap<String, u8> {
    let mut weights: BTreeMap<String, u32> = BTreeMap::new();
    for (weight, text) in texts {
        let mut counts: BTreeMap<String, u32> = BTreeMap::new();
        let mut length: u32 = 0;
        for word in words::words(texts::beginning(text, MAX_INDEXED).0) {
            length += 1;
            let mut count = |key: String| {
                if counts.len() < MAX_WORDS || counts.contains_key(&key) {
                    *counts.entry(key).or_default() += 1;
                }
            };
            // Parts of identifiers are found too.
            if words::is_identifier(word) {
                words::parts(word).into_iter().for_each(|part| keys(&part, &mut count));
            }
            keys(word, &mut count);
        }
        for (word, count) in counts {
            *weights.entry(word).or_default() += weight * (1 + often(count, length).ilog2().min(2));
        }
    }
    let weighted = weights.into_iter().take(MAX_WORDS);
    weighted.map(|(word, weight)| (word, u8::try_from(weight.min(MAX_WEIGHT)).unwrap_or(u8::MAX))).collect()
}

/// How often a word occurs in as much of the text as is usual; one at least.
fn often(count: u32, length: u32) -> u32 {
    let usual = u64::from(count) * u64::from(USUAL_LENGTH) / u64::from(length.max(USUAL_LENGTH));
    u32::try_from(usual).unwrap_or(u32::MAX).max(1)
}

/// The forms in which a word is indexed; `search.js` has the same rule for queries. Scripts without spaces are indexed by pairs of characters.
fn keys(word: &str, count: &mut impl FnMut(String)) {
    let key: String = word.nfkc().collect::<String>().to_lowercase();
    if !key.chars().any(is_without_spaces) {
        count(key);
        return;
    }
    let chars: Vec<char> = key.chars().collect();
    if let [only] = chars[..] {
        count(only.to_string());
    }
    chars.windows(2).for_each(|pair| count(pair.iter().collect()));
}

/// Whether it is of a script that is written without spaces between words.
fn is_without_spaces(c: char) -> bool {
    matches!(c, '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{3040}'..='\u{30ff}'
        | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{20000}'..='\u{3ffff}')
}

/// Returns a text as a literal of a script.
fn literal(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' | '<' | '\u{2028}' | '\u{2029}' => literal.push_str(&format!("\\u{:04x}", c as u32)),
            c if c.is_control() => literal.push_str(&format!("\\u{:04x}", c as u32)),
            c => literal.push(c),
        }
    }
    literal.push('"');
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_lower_case_with_the_parts_of_identifiers() {
        let words = words_of(&[(8, "Read readFacts"), (1, "read READ read ＦＡＣＴＳ")]);
        let found: Vec<(&str, u8)> = words.iter().map(|(word, weight)| (word.as_str(), *weight)).collect();
        assert_eq!(found, [("facts", 9), ("read", 18), ("readfacts", 8)]);
    }

    #[test]
    fn a_word_weighs_less_in_a_long_text() {
        let short = words_of(&[(1, &"often ".repeat(4))]);
        let long = words_of(&[(1, &("often ".repeat(4) + &"other ".repeat(4_000)))]);
        assert_eq!((short["often"], long["often"], long["other"]), (3, 1, 3));
    }

    #[test]
    fn a_script_without_spaces_is_indexed_by_pairs() {
        let words = words_of(&[(1, "知識の 木")]);
        let mut found: Vec<&str> = words.keys().map(String::as_str).collect();
        found.sort_unstable();
        assert_eq!(found, ["木", "知識", "識の"]);
    }

    #[test]
    fn the_words_of_an_entry_are_bounded() {
        let text: String = (0..50_000).map(|number| format!("w{number} ")).collect();
        assert_eq!(words_of(&[(1, &text)]).len(), MAX_WORDS);
        let often = "often ".repeat(300_000);
        assert_eq!(words_of(&[(90, &often)])["often"], 99);
    }

    #[test]
    fn a_literal_ends_where_it_should() {
        assert_eq!(literal("a\"</script>\\\n\u{2028}é"), "\"a\\u0022\\u003c/script>\\u005c\\u000a\\u2028é\"");
    }
}
