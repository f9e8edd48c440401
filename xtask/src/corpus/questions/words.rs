//! The asker's words: how a text is cut, and which two words are inflections of one. The searches that are measured have their own.

use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;

/// The words of a text in lower case: each run of letters and digits, and its parts if it is an identifier.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for run in text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|run| !run.is_empty()) {
        let parts = parts(run);
        if parts.len() > 1 {
            found.push(run.to_lowercase());
        }
        found.extend(parts);
    }
    found
}

/// The parts of an identifier, between underscores, changes of case, and letters and digits.
fn parts(run: &str) -> Vec<String> {
    let (mut parts, mut part) = (Vec::new(), String::new());
    let mut chars = run.chars().peekable();
    let mut before: Option<char> = None;
    while let Some(c) = chars.next() {
        let begins = before.is_some_and(|before| {
            let is_capital = c.is_uppercase()
                && (before.is_lowercase() || (before.is_uppercase() && chars.peek().is_some_and(|c| c.is_lowercase())));
            is_capital || before.is_numeric() != c.is_numeric()
        });
        if begins || c == '_' {
            parts.extend((!part.is_empty()).then(|| std::mem::take(&mut part)));
        }
        if c != '_' {
            part.extend(c.to_lowercase());
        }
        before = Some(c);
    }
    parts.extend((!part.is_empty()).then_some(part));
    parts
}

/// Endings that a word loses, longest first.
const ENDINGS: [&str; 14] =
    ["ings", "ions", "ing", "ion", "ers", "ors", "ies", "ied", "er", "or", "ed", "es", "ly", "s"];

/// What remains of a word without the endings of its inflections: `locked`, `locking` and `locks` are `lock`.
pub(crate) fn stem(word: &str) -> String {
    // What is left has some letters of the word.
    let without = |word: &str, ending: &str, left: usize| {
        word.strip_suffix(ending).filter(|rest| rest.chars().count() >= left).map(str::to_owned)
    };
    let stem = ENDINGS.iter().find_map(|ending| without(word, ending, 3)).unwrap_or_else(|| word.to_owned());
    let stem = ["e", "y", "i"].iter().find_map(|ending| without(&stem, ending, 3)).unwrap_or(stem);
    // `allocated` and `allocation`: `alloc`.
    let mut stem = without(&stem, "at", 4).unwrap_or(stem);
    // `dropped`: `drop`.
    let mut last = stem.chars().rev();
    if stem.chars().count() > 3 && last.next() == last.next() {
        stem.pop();
    }
    stem
}

/// The stems of all words of a text.
pub(crate) fn stems(text: &str) -> BTreeSet<String> {
    words(text).iter().map(|word| stem(word)).collect()
}

/// Words that say nothing about what a text is about.
const EMPTY: &str = "a about after all also although always an and another any are as at be because been before being both but by call \
    called calls can cannot could did do does doing done each either else even ever example examples false for from function get gets \
    given had has have having here how however i if in into is it item its itself just like made make makes many may me method might \
    more most much must my need needs new no non none not note of off on once one only onto or other otherwise our out over own \
    provided return returned returning returns same see set sets shall should since so some specified still such take takes than that \
    the their them then there these they thing this those through thus to too true try trying type up upon use used uses using value \
    values very via want was way we were what when where whether which while who whose why will with within without would yet you your";

/// The stems of the words of a text that say what it is about.
pub(crate) fn content(text: &str) -> BTreeSet<String> {
    static WITHOUT: LazyLock<HashSet<&str>> = LazyLock::new(|| EMPTY.split_whitespace().collect());
    let is_content = |word: &String| word.chars().count() > 2 && !WITHOUT.contains(word.as_str());
    words(text).iter().filter(|word| is_content(word)).map(|word| stem(word)).collect()
}

/// Whether a word of the text is an inflection of a word of a title.
pub(crate) fn shares_word(text: &str, title: &BTreeSet<String>) -> bool {
    words(text).iter().any(|word| title.contains(&stem(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_words_whole_and_in_parts() {
        assert_eq!(
            words("HTTPServer::read_line(2)"),
            ["httpserver", "http", "server", "read_line", "read", "line", "2"]
        );
        assert_eq!(words("utf8 don't"), ["utf8", "utf", "8", "don", "t"]);
    }

    #[test]
    fn inflections_of_a_word_have_one_stem() {
        for words in [
            &["lock", "locks", "locked", "locking", "locker"][..],
            &["drop", "drops", "dropped", "dropping"],
            &["cache", "caches", "cached", "caching"],
            &["empty", "empties", "emptied"],
            &["error", "errors"],
            &["allocate", "allocates", "allocation", "allocator", "allocated", "allocating"],
            &["iterate", "iterator", "iterators", "iteration"],
            &["create", "creates", "created", "creation", "creator"],
            &["locate", "located", "location"],
            &["implement", "implementation", "implements"],
            &["configure", "configured", "configuration"],
            &["panic", "panics"],
            &["entry", "entries"],
        ] {
            let stems: BTreeSet<String> = words.iter().map(|word| stem(word)).collect();
            assert_eq!(stems.len(), 1, "{words:?}: {stems:?}");
        }
        assert_ne!(stem("time"), stem("tick"));
    }

    #[test]
    fn a_text_shares_a_word_with_a_title_also_as_a_part_or_inflected() {
        let title = stems("tokio::sync::mutex > Mutex::try_lock > Errors");
        for text in ["is locked", "the TryFrom", "an error", "Mutexes", "try_it"] {
            assert!(shares_word(text, &title), "{text}");
        }
        assert!(!shares_word("another thread holds the guard", &title));
    }

    #[test]
    fn words_without_content_are_left_out() {
        assert_eq!(
            content("Returns the number of elements in it"),
            BTreeSet::from(["element".to_owned(), "numb".to_owned()])
        );
    }
}
