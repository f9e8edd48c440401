//! Which words of a query a text has, how often, and which follow each other. Pure: the few best rows are read once, which is cheaper than
//! asking the full-text index for each word again.

use std::cell::RefCell;

use foldhash::{HashMap, HashMapExt as _};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

use super::stem::stem;
use super::terms::Asked;
use crate::words::{parts, words};

/// A stem of the query; [`NONE`] is every other one.
type StemId = usize;

const NONE: StemId = 0;

/// A query, prepared for the comparison with many texts.
pub(super) struct Pattern {
    stems: HashMap<String, StemId>,
    /// By the last stem of a form: its stems and the place of its count.
    forms: Vec<Vec<(Vec<StemId>, usize)>>,
    begins: Beginnings,
    /// The stems of the words of texts so far: texts about one thing have the same words.
    read: RefCell<HashMap<String, StemId>>,
    pairs: Vec<(usize, usize)>,
    count: usize,
}

/// How the stems of a query begin: most words of a text begin otherwise, and need no stem. In a stem of three letters or more the first two are
/// those of its words, since an ending is replaced only if two letters at least are before it.
struct Beginnings {
    /// By a first letter or digit: the second ones, as bits.
    seconds: [u64; 36],
}

/// The bit of every second letter, and of none.
const ANY: u64 = u64::MAX;

impl Beginnings {
    const fn none() -> Self {
        Self { seconds: [0; 36] }
    }

    fn add(&mut self, stem: &str) {
        // A stem that is not ASCII is that of such words alone, and these are not left out.
        let mut letters = stem.bytes().map(letter);
        if let (true, Some(Some(first))) = (stem.is_ascii(), letters.next()) {
            let second = letters.next().flatten();
            self.seconds[first] |= if stem.len() > 2 { second.map_or(ANY, |second| 1 << second) } else { ANY };
        }
    }

    fn may_begin(&self, token: &str) -> bool {
        let mut letters = token.bytes().map(letter);
        match (letters.next(), letters.next()) {
            (Some(Some(first)), Some(Some(second))) => self.seconds[first] & (1 << second) != 0,
            (Some(Some(first)), None) => self.seconds[first] != 0,
            // Not ASCII: two letters may be folded to others.
            (Some(None), _) | (Some(Some(_)), Some(None)) => true,
            (None, _) => false,
        }
    }
}

/// The number of an ASCII letter, in either case, or digit.
const fn letter(byte: u8) -> Option<usize> {
    match byte {
        b'a'..=b'z' => Some((byte - b'a') as usize),
        b'A'..=b'Z' => Some((byte - b'A') as usize),
        b'0'..=b'9' => Some((byte - b'0') as usize + 26),
        _ => None,
    }
}

/// What a text has of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Occurrences {
    /// How often it has each word, and then what each is expanded to.
    pub(super) counts: Vec<u32>,
    /// Which pairs follow each other in it, too.
    pub(super) pairs: Vec<bool>,
    /// How many words it has.
    pub(super) length: u32,
}

impl Pattern {
    pub(super) fn of(asked: &Asked) -> Self {
        let mut stems = HashMap::new();
        let mut ending = vec![Vec::new()];
        let mut begins = Beginnings::none();
        let count = asked.terms.len();
        for (place, term) in asked.terms.iter().enumerate() {
            let forms = term.forms.iter().map(|form| (form, place));
            for (form, place) in forms.chain(term.expanded.iter().map(|form| (form, count + place))) {
                let of_form: Vec<StemId> = form
                    .split_whitespace()
                    .map(|word| {
                        let stem = stem(&folded(word));
                        begins.add(&stem);
                        let next = stems.len() + 1;
                        *stems.entry(stem).or_insert(next)
                    })
                    .collect();
                ending.resize_with(stems.len() + 1, Vec::new);
                if let Some(&last) = of_form.last() {
                    ending[last].push((of_form, place));
                }
            }
        }
        let pairs = asked.pairs.clone();
        Self { stems, forms: ending, begins, read: RefCell::default(), pairs, count }
    }

    /// Looks at the texts of a row one after another; words of two texts do not follow each other.
    pub(super) fn occurrences(&self, texts: [&str; 2]) -> Occurrences {
        let length: usize = texts.iter().map(|text| text.len()).sum();
        let mut reading = Reading {
            pattern: self,
            stems: Vec::with_capacity(length / 4),
            ends: vec![None; 2 * self.count],
            found: self.none(),
        };
        for text in texts {
            words(text).for_each(|word| reading.word(word));
            reading.stems.push(NONE);
        }
        reading.found
    }

    fn none(&self) -> Occurrences {
        Occurrences { counts: vec![0; 2 * self.count], pairs: vec![false; self.pairs.len()], length: 0 }
    }

    fn stem_of(&self, token: &str) -> StemId {
        if !self.begins.may_begin(token) {
            return NONE;
        }
        if let Some(&known) = self.read.borrow().get(token) {
            return known;
        }
        let id = self.stems.get(&stem(&folded(token))).copied().unwrap_or(NONE);
        self.read.borrow_mut().insert(token.to_owned(), id);
        id
    }
}

struct Reading<'p> {
    pattern: &'p Pattern,
    stems: Vec<StemId>,
    /// Where the last occurrence of each word ended.
    ends: Vec<Option<usize>>,
    found: Occurrences,
}

impl Reading<'_> {
    fn word(&mut self, word: &str) {
        // Most words are of small letters, but for the first one.
        if word.bytes().skip(1).all(|byte| byte.is_ascii_lowercase())
            && word.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        {
            self.token(word);
            return;
        }
        let (mut is_ascii, mut has_underscore, mut may_have_parts) = (true, false, false);
        for (place, byte) in word.bytes().enumerate() {
            is_ascii &= byte.is_ascii();
            has_underscore |= byte == b'_';
            may_have_parts |= place > 0 && (byte.is_ascii_uppercase() || byte.is_ascii_digit());
        }
        let mut is_found = false;
        if has_underscore {
            for piece in word.split('_').filter(|piece| !piece.is_empty()) {
                is_found |= self.token(piece);
            }
        } else {
            is_found = self.token(word);
        }
        if !is_ascii {
            may_have_parts = word.chars().skip(1).any(|c| c.is_uppercase() || c.is_numeric());
        }
        if is_found || !may_have_parts {
            return;
        }
        if is_ascii {
            let parts = || ascii_parts(word);
            if parts().nth(1).is_some() {
                parts().for_each(|part| {
                    self.token(part);
                });
            }
        } else {
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
        let id = self.pattern.stem_of(token);
        self.stems.push(id);
        let mut is_found = false;
        for (form, term) in &self.pattern.forms[id] {
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
        for (form, term) in &self.pattern.forms[id] {
            if self.stems.ends_with(form) {
                self.ends[*term] = Some(place + 1);
            }
        }
        is_found
    }
}

/// [`parts`] of a word in ASCII, as they are written.
fn ascii_parts(word: &str) -> impl Iterator<Item = &str> {
    let bytes = word.as_bytes();
    let mut begin = 0;
    let part = move || {
        while bytes.get(begin) == Some(&b'_') {
            begin += 1;
        }
        let ends = |place: &usize| {
            let (before, here) = (bytes[place - 1], bytes[*place]);
            let is_before_lower = bytes.get(place + 1).is_some_and(u8::is_ascii_lowercase);
            here == b'_'
                || (here.is_ascii_uppercase() && (before.is_ascii_lowercase() || is_before_lower))
                || here.is_ascii_digit() != before.is_ascii_digit()
        };
        let end = (begin + 1..bytes.len()).find(ends).unwrap_or(bytes.len());
        let part = word.get(begin..end).filter(|part| !part.is_empty());
        begin = end;
        part
    };
    std::iter::from_fn(part)
}

/// In lower case, without diacritics.
pub(super) fn folded(word: &str) -> String {
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
        (found.counts[..found.counts.len() / 2].to_vec(), found.pairs)
    }

    #[test]
    fn inflections_are_the_same_word() {
        assert_eq!(occurrences("tokens checked", ["Checks a token", ""]).0, [1, 1]);
        assert_eq!(occurrences("Äpfel", ["apfel", "äpfel"]).0, [2]);
    }

    const TEXTS: [&str; 3] = [
        include_str!("../../../../ARCHITECTURE.md"),
        include_str!("../../../../docs/semantics.md"),
        "eyed aye dying ties K\u{212a}elvin \u{e9}cole XMLHttpRequest2 __init__ a1b2C3 ABCd _x _",
    ];

    #[test]
    fn a_word_that_may_have_a_stem_of_the_query_is_compared_with_it() {
        for word in TEXTS.into_iter().flat_map(words).flat_map(|word| word.split('_')).filter(|word| !word.is_empty()) {
            let mut begins = Beginnings::none();
            begins.add(&stem(&folded(word)));
            assert!(begins.may_begin(word), "{word}");
        }
    }

    #[test]
    fn parts_in_ascii_are_those_of_every_word() {
        for word in TEXTS.into_iter().flat_map(words).filter(|word| word.is_ascii()) {
            let found: Vec<String> = ascii_parts(word).map(str::to_ascii_lowercase).collect();
            assert_eq!(found, parts(word), "{word}");
        }
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
