//! Other words for what documentation says, so that a question is not its copy.

use super::synonyms::SYNONYMS;
use super::words::{content, words};

/// A number that depends on a text alone.
pub(crate) fn chance(text: &str) -> u64 {
    use sha2::{Digest, Sha256};
    let hash = Sha256::digest(text.as_bytes());
    u64::from_le_bytes(hash[..8].try_into().expect("a hash has eight bytes"))
}

/// The text with two of three words that have synonyms replaced, which ones by chance.
pub(crate) fn reworded(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        let synonym = SYNONYMS.iter().find(|(known, _)| *known == bare);
        match synonym {
            Some((_, instead)) if !chance(&format!("{text} {bare}")).is_multiple_of(3) => {
                if let Some(article) = words.last_mut().filter(|word| ["a", "an"].contains(&word.as_str())) {
                    let is_vowel = instead.starts_with(['a', 'e', 'i', 'o']);
                    *article = if is_vowel { "an" } else { "a" }.to_owned();
                }
                words.push(word.replace(bare, instead));
            }
            Some(_) | None => words.push(word.to_owned()),
        }
    }
    words.join(" ")
}

/// The text with pronouns for those of its words that are in the title, `the capacity` as `it` and `the new capacity` as `the new one`; `None`
/// if a word has no article before it or is a part of a longer name, or more than one is replaced.
pub(crate) fn with_pronouns(text: &str, is_of_title: impl Fn(&str) -> bool) -> Option<String> {
    let words: Vec<&str> = text.split(' ').collect();
    let (mut kept, mut replaced) = (Vec::<String>::new(), 0);
    for (place, word) in words.iter().enumerate() {
        if !is_of_title(word) {
            kept.push((*word).to_owned());
            continue;
        }
        match words.get(place + 1) {
            // `the lock guard`: one pronoun for both words.
            Some(next) if is_of_title(next) && is_bare(word) => continue,
            Some(next) if is_bare(word) && !follows_noun(next) => return None,
            Some(_) | None => replaced += 1,
        }
        let end = word.trim_start_matches(|c| c != ',' && c != ';');
        if word.ends_with(['.', '?', '!', ':']) {
            return None;
        }
        let pronoun_of = |place: usize| kept.len().checked_sub(place).and_then(|at| pronoun(&kept[at]));
        if let Some(pronoun) = pronoun_of(1) {
            kept.pop();
            kept.push(format!("{pronoun}{end}"));
        } else if kept.is_empty() {
            kept.push(format!("it{end}"));
        } else if pronoun_of(2).is_some() {
            kept.push(format!("one{end}"));
        } else {
            return None;
        }
    }
    (replaced <= 1).then(|| kept.join(" "))
}

/// Whether no punctuation ends the word.
pub(crate) fn is_bare(word: &str) -> bool {
    word.ends_with(char::is_alphanumeric)
}

/// Words that may follow a noun and are no noun.
const AFTER_NOUNS: &str = "is are was were has had have will would can cannot can't could does do did doesn't isn't may must should and or     of in on at to by for from with within without than that which when if while after before until because but as already not     exceeds overflows contains fails becomes belongs already exists reaches itself being into over under between about";

fn follows_noun(word: &str) -> bool {
    let word = word.trim_end_matches(|c: char| !c.is_alphanumeric());
    AFTER_NOUNS.split_whitespace().any(|after| after == word)
}

/// What stands for an article and its word.
fn pronoun(article: &str) -> Option<&'static str> {
    match article {
        "the" | "this" | "that" | "its" | "your" => Some("it"),
        "a" | "an" | "another" | "each" | "every" | "any" | "some" | "one" => Some("one"),
        _ => None,
    }
}

/// Where a text can end before its end.
const ENDS: [&str; 10] =
    [", ", " or ", " and ", " (", " because ", " so that ", " before ", " until ", " using ", "; "];

/// Words that need both of what `and` joins.
const JOINING: [&str; 3] = ["between ", "both ", "either "];

/// A beginning of the text that ends at a clause and has `fewest` words with content, or for half of the texts all of it.
pub(crate) fn shortened(text: &str, fewest: usize) -> &str {
    if chance(text).is_multiple_of(2) {
        return text;
    }
    let mut ends: Vec<usize> = ENDS.iter().flat_map(|end| text.match_indices(end)).map(|(at, _)| at).collect();
    ends.sort_unstable();
    let beginnings = ends.into_iter().map(|at| &text[..at]);
    let is_whole = |beginning: &&str| JOINING.iter().all(|joining| !beginning.contains(joining));
    beginnings.filter(is_whole).find(|beginning| content(beginning).len() >= fewest).unwrap_or(text)
}

/// The text as somebody says it of himself: `you` as `I`.
pub(crate) fn in_first_person(text: &str) -> String {
    let word = |word: &str| match word {
        "you" => "I".to_owned(),
        "your" => "my".to_owned(),
        "you're" => "I'm".to_owned(),
        "you've" => "I've".to_owned(),
        "yourself" => "myself".to_owned(),
        other => other.to_owned(),
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ").replace("I are", "I am")
}

/// Words that point to what a question leaves out.
const POINTERS: [&str; 17] = [
    "above",
    "below",
    "following",
    "described",
    "see",
    "such",
    "example",
    "these",
    "those",
    "former",
    "latter",
    "also",
    "this",
    "todo",
    "previously",
    "aforementioned",
    "mentioned",
];

/// Whether the text points to another that the question does not have.
pub(crate) fn points_elsewhere(text: &str) -> bool {
    words(text).iter().any(|word| POINTERS.contains(&word.as_str()))
}

/// The text with a small letter at its beginning, unless its first word is a name.
pub(crate) fn lowered(text: &str) -> String {
    let first = text.split(' ').next().unwrap_or_default();
    let is_name = first.chars().skip(1).any(|c| !c.is_lowercase() && c != ',' && c != '\'') && first != "I";
    let mut chars = text.chars();
    match chars.next() {
        Some(c) if !is_name => c.to_lowercase().chain(chars).collect(),
        Some(_) | None => text.to_owned(),
    }
}

/// The first of the phrases, from one by chance on, that passes.
pub(crate) fn first_that(phrases: &[String], passes: impl Fn(&str) -> bool) -> Option<String> {
    let begin = phrases.first().map_or(0, |phrase| chance(phrase) as usize % phrases.len());
    (0..phrases.len()).map(|step| &phrases[(begin + step) % phrases.len()]).find(|phrase| passes(phrase)).cloned()
}

/// Whether the text has so many words, counted without the parts of identifiers.
pub(crate) fn has_words(text: &str, range: std::ops::RangeInclusive<usize>) -> bool {
    range.contains(&text.split_whitespace().filter(|word| !words(word).is_empty()).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_capitals() {
        for (text, expected) in [
            ("The gate", "the gate"),
            ("HTTP is", "HTTP is"),
            ("MyType is", "MyType is"),
            ("If, then", "if, then"),
            ("A b", "a b"),
        ] {
            assert_eq!(lowered(text), expected);
        }
    }

    #[test]
    fn some_words_are_replaced_and_always_the_same_ones() {
        let texts: Vec<String> = (0..20).map(|number| format!("{number} contains multiple elements")).collect();
        let replaced = texts.iter().filter(|text| reworded(text) != **text).count();
        assert!((10..=20).contains(&replaced), "{replaced}");
        let articles: Vec<String> = (0..20).map(|number| reworded(&format!("{number} an invalid byte"))).collect();
        assert!(articles.iter().any(|text| text.ends_with(" a malformed byte")), "{articles:?}");
        assert!(articles.iter().any(|text| text.ends_with(" an invalid byte")), "{articles:?}");
        assert!(texts.iter().all(|text| reworded(text) == reworded(text)));
    }

    #[test]
    fn half_of_the_texts_are_cut_at_a_clause_that_has_enough_words() {
        let texts: Vec<String> =
            (0..20).map(|number| format!("lake {number} and the red gate opens, and the blue one closes")).collect();
        let cut = texts.iter().filter(|text| shortened(text, 4).ends_with("gate opens")).count();
        let whole = texts.iter().filter(|text| shortened(text, 4) == **text).count();
        assert!(cut + whole == 20 && (4..=16).contains(&cut), "{cut} and {whole}");
    }

    #[test]
    fn pronouns_stand_for_words_of_the_title() {
        for (text, expected) in [
            ("the capacity is large", Some("it is large")),
            ("the new capacity is large", Some("the new one is large")),
            ("capacity is large", Some("it is large")),
            ("a capacity guard is large", Some("one is large")),
            ("the capacity, and more", Some("it, and more")),
            ("the capacity limit is large", None),
            ("less than capacity", None),
            ("the capacity and the capacity of a guard", None),
            ("the capacity of the guard", None),
            ("nothing of it", Some("nothing of it")),
        ] {
            let found = with_pronouns(text, |word| ["capacity", "guard"].contains(&word.trim_matches(',')));
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn the_first_phrase_that_passes_is_taken() {
        let phrases = ["one".to_owned(), "two".to_owned(), "three".to_owned()];
        assert_eq!(first_that(&phrases, |phrase| phrase.starts_with("tw")).as_deref(), Some("two"));
        assert_eq!(first_that(&phrases, |_| false), None);
        assert_eq!(first_that(&[], |_| true), None);
    }
}
