//! The part of a result that is shown: where its text has the words of the query. Pure.

use std::ops::Range;

use super::matching::folded;
use super::stem::stem;
use super::terms::asked;
use crate::words::{parts, placed_words};

/// The fewest characters of an excerpt: the longest word that is found, and two ellipses.
const FEWEST: usize = 80;

/// Returns the part of a text that has the most different words of the query, with what is around it: at most `most` characters (or 80, if
/// that is more), with `…` where something is cut. Without a word of the query it is the beginning of the text.
///
/// ```
/// use callboard_knowledge::search::excerpt;
///
/// let text = format!("{}Keys rotate each month.{}", "Nothing. ".repeat(50), " Nothing.".repeat(50));
/// assert!(excerpt("when do keys rotate?", &text, 100).contains("Keys rotate each month."));
/// assert_eq!(excerpt("keys", "A key.", 100), "A key.");
/// ```
#[must_use]
pub fn excerpt(query: &str, text: &str, most: usize) -> String {
    let most = most.max(FEWEST);
    // Where each character begins: all places below are numbers of characters.
    let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    let length = starts.len() - 1;
    if length <= most {
        return text.to_owned();
    }
    let part = |places: Range<usize>| &text[starts[places.start]..starts[places.end]];
    let room = most - 2;
    let densest = densest(&matches(query, text, &starts), room).unwrap_or(0..0);
    let start = if densest.end <= room {
        0
    } else {
        let around = room.saturating_sub(densest.len());
        let start = densest.start.saturating_sub(around / 2).min(length - room);
        start + begin(part(start..densest.start), around / 4)
    };
    let end = (start + room).min(length);
    let kept = densest.end.clamp(start, end);
    let end = if end == length { end } else { kept + whole_words(part(kept..end)) };
    let (before, after) = (if start > 0 { "…" } else { "" }, if end < length { "…" } else { "" });
    format!("{before}{}{after}", part(start..end).trim_end())
}

/// After how many characters, up to `most`, a line begins, or else a word.
fn begin(text: &str, most: usize) -> usize {
    let after = |ends: fn(char) -> bool| text.chars().take(most).position(ends).map(|place| place + 1);
    after(|c| c == '\n').or_else(|| after(char::is_whitespace)).unwrap_or(0)
}

/// How many characters are before the last white space; all if there is none.
fn whole_words(text: &str) -> usize {
    text.rfind(char::is_whitespace).map_or(text, |end| &text[..end]).chars().count()
}

/// A word of the query in a text: its place, and which word it is.
struct Match {
    place: Range<usize>,
    term: usize,
}

/// The place of at most `room` characters with the most different words of the query; of those the one with the most words, and of those the
/// first.
fn densest(matches: &[Match], room: usize) -> Option<Range<usize>> {
    let mut best: Option<((u32, usize), Range<usize>)> = None;
    let mut first = 0;
    for (last, Match { place, .. }) in matches.iter().enumerate() {
        while first < last && place.end - matches[first].place.start > room {
            first += 1;
        }
        let within = &matches[first..=last];
        let different = within.iter().fold(0_u64, |terms, found| terms | 1 << (found.term % 64));
        let rank = (different.count_ones(), within.len());
        if best.as_ref().is_none_or(|(before, _)| rank > *before) {
            best = Some((rank, matches[first].place.start..place.end));
        }
    }
    best.map(|(_, place)| place)
}

/// The words of the query in a text, in the text's order. Words that only join others do not count.
fn matches(query: &str, text: &str, starts: &[usize]) -> Vec<Match> {
    let stems = |form: &String| form.split_whitespace().map(|word| stem(&folded(word))).collect::<Vec<_>>();
    let terms = asked(query).terms;
    let terms = terms.iter().enumerate().filter(|(_, term)| !term.joins);
    let forms: Vec<(Vec<String>, usize)> =
        terms.flat_map(|(number, term)| term.forms.iter().map(move |form| (stems(form), number))).collect();
    let mut found = Vec::new();
    let mut read: Vec<(String, usize)> = Vec::new();
    for (at, word) in placed_words(text) {
        let start = starts.partition_point(|start| *start < at);
        let end = start + word.chars().count();
        let pieces = parts(word);
        let whole = (pieces.len() > 1).then(|| word.to_owned());
        for token in whole.into_iter().chain(pieces) {
            read.push((stem(&folded(&token)), start));
            for (form, term) in &forms {
                let begins = read.len().checked_sub(form.len()).filter(|_| !form.is_empty());
                if let Some(begins) = begins.filter(|begins| read[*begins..].iter().map(|(stem, _)| stem).eq(form)) {
                    found.push(Match { place: read[begins].1..end, term: *term });
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn has_match(query: &str, text: &str) -> bool {
        let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        !matches(query, text, &starts).is_empty()
    }

    #[test]
    fn the_part_with_the_most_different_words_is_shown_with_what_is_around_it() {
        let filler = "Nothing is said here. ".repeat(20);
        let text = format!("Keys, keys, keys.\n{filler}\nA key rotates\neach month.\n{filler}");
        let shown = excerpt("when do keys rotate?", &text, 100);
        assert_eq!(
            shown,
            "…is said here. Nothing is said here. \nA key rotates\neach month.\nNothing is said here. Nothing is…"
        );
        let shown = excerpt("keys", &text, 100);
        assert!(shown.starts_with("Keys, keys, keys.\nNothing") && shown.ends_with("Nothing is…"), "{shown}");
        assert!(excerpt("month", &format!("{filler}A month"), 90).ends_with(" A month"));
    }

    #[test]
    fn identifiers_are_found_in_each_way_of_writing_them() {
        let filler = "word ".repeat(100);
        for (query, written) in [("read_facts", "readFacts"), ("readFacts", "read facts"), ("facts", "READ_FACTS")] {
            let shown = excerpt(query, &format!("{filler}{written} {filler}"), 100);
            assert!(shown.contains(written), "{query}: {shown}");
        }
    }

    #[test]
    fn without_a_word_of_the_query_it_is_the_beginning() {
        let text = "ä".repeat(200);
        assert_eq!(excerpt("x", &text, 100), format!("{}…", "ä".repeat(98)));
        assert_eq!(excerpt("", "one two", 0), "one two");
    }

    proptest! {
        #[test]
        fn an_excerpt_is_bounded_and_has_a_word_of_the_query_if_the_text_has_one(
            words in prop::collection::vec("[a-c]{1,3}|[äß日\u{301}]{1,30}|gateOpen|the_gate|gates|x{90}|[ \n.,]{1,3}", 0..120),
            query in "gate|open|(a|b|gate_open) [a-c]{1,2}|the|[äß]",
            most in 0_usize..300,
        ) {
            let text = words.join(" ");
            let shown = excerpt(&query, &text, most);
            prop_assert!(shown.chars().count() <= most.max(FEWEST));
            prop_assert!(!has_match(&query, &text) || has_match(&query, &shown), "{shown:?}");
            let inner = shown.strip_prefix('…').unwrap_or(&shown);
            prop_assert!(text.contains(inner.strip_suffix('…').unwrap_or(inner)));
            prop_assert_eq!(shown == text, text.chars().count() <= most.max(FEWEST));
        }
    }
}
