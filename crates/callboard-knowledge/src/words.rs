//! Words of texts and queries: how they are cut, and which form of a statement decides whether two are the same. Pure.

use callboard_text::is_unseen;
use unicode_normalization::UnicodeNormalization;

/// The most characters of a word that count; the rest of a longer one is ignored.
pub const MAX_WORD: usize = 64;

/// Returns the words of a text in the order in which they occur: runs of letters, digits and underscores, as written.
///
/// ```
/// use callboard_knowledge::words::words;
/// assert_eq!(words("Does read_facts() retry?").collect::<Vec<_>>(), ["Does", "read_facts", "retry"]);
/// ```
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    placed_words(text).map(|(_, word)| word)
}

/// As [`words`], each with the place in bytes where it begins.
pub(crate) fn placed_words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut place = 0;
    let runs = std::iter::from_fn(move || {
        let begin = run_end(text, place, false);
        place = run_end(text, begin, true);
        text.get(begin..place).filter(|run| !run.is_empty()).map(|run| (begin, run))
    });
    runs.filter(|(_, word)| word.chars().any(char::is_alphanumeric)).map(|(begin, word)| (begin, bounded(word)))
}

/// What a byte is a part of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Other,
    Word,
    NotAscii,
}

/// A table, since every byte of every row that is compared is looked up.
static CLASSES: [Class; 256] = {
    let mut classes = [Class::NotAscii; 256];
    let mut byte = 0_u8;
    while byte.is_ascii() {
        let is_of_word = byte.is_ascii_alphanumeric() || byte == b'_';
        classes[byte as usize] = if is_of_word { Class::Word } else { Class::Other };
        byte += 1;
    }
    classes
};

/// Where the characters from a place on that are of words, or are not, end.
fn run_end(text: &str, from: usize, are_of_word: bool) -> usize {
    let (mut place, wanted) = (from, if are_of_word { Class::Word } else { Class::Other });
    loop {
        let rest = text.as_bytes().get(place..).unwrap_or_default();
        place += rest.iter().take_while(|byte| CLASSES[usize::from(**byte)] == wanted).count();
        match text.get(place..).and_then(|rest| rest.chars().next()) {
            Some(c) if !c.is_ascii() && is_of_word(c) == are_of_word => place += c.len_utf8(),
            _ => return place,
        }
    }
}

fn is_of_word(c: char) -> bool {
    // Combining marks continue the letter before them.
    c.is_alphanumeric() || unicode_normalization::char::is_combining_mark(c)
}

fn bounded(word: &str) -> &str {
    if word.len() <= MAX_WORD {
        return word;
    }
    word.char_indices().nth(MAX_WORD).map_or(word, |(end, _)| &word[..end])
}

/// Cuts an identifier at underscores, at changes of case and between letters and digits, in lower case. A word that is no such identifier is
/// one part.
///
/// ```
/// use callboard_knowledge::words::parts;
/// assert_eq!(parts("HTTPServer_v2"), ["http", "server", "v", "2"]);
/// assert_eq!(parts("word"), ["word"]);
/// ```
#[must_use]
pub fn parts(word: &str) -> Vec<String> {
    let chars: Vec<char> = word.chars().collect();
    let mut parts = Vec::new();
    let mut part = String::new();
    for (place, &c) in chars.iter().enumerate() {
        let before = place.checked_sub(1).map(|before| chars[before]);
        let after = chars.get(place + 1);
        let begins = before.is_some_and(|before| {
            (c.is_uppercase() && (before.is_lowercase() || after.is_some_and(|after| after.is_lowercase())))
                || (c.is_numeric() != before.is_numeric())
        });
        if (c == '_' || begins) && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
        }
        if c != '_' {
            part.extend(c.to_lowercase());
        }
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

/// Whether a word is written as identifiers of programs are: with an underscore within, or with a change of case that is more than a
/// capital at its beginning.
#[must_use]
pub fn is_identifier(word: &str) -> bool {
    let within = word.trim_matches('_');
    within.contains('_')
        || within.chars().zip(within.chars().skip(1)).any(|(one, next)| one.is_lowercase() && next.is_uppercase())
}

/// Returns the form of a statement by which two are the same: Unicode NFKC in lower case, with single spaces, without characters that nobody
/// sees, and without punctuation at the end.
///
/// ```
/// use callboard_knowledge::words::normalised;
/// assert_eq!(normalised("The  gate opens\nat 9."), normalised("the gate opens at 9"));
/// assert_ne!(normalised("a < b"), normalised("a > b"));
/// ```
#[must_use]
pub fn normalised(statement: &str) -> String {
    let seen = statement.nfkc().filter(|c| !is_unseen(*c));
    let lower = seen.collect::<String>().to_lowercase();
    // Lower case can undo the composition of a letter.
    let composed: String = lower.nfkc().collect();
    let mut form = String::with_capacity(composed.len());
    for word in composed.split_whitespace() {
        if !form.is_empty() {
            form.push(' ');
        }
        form.push_str(word);
    }
    form.truncate(form.trim_end_matches(['.', '!', '…', ';', ',', ' ']).len());
    form
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_cut_at_case_underscore_and_digits() {
        for (word, expected) in [
            ("run_intent_loop", &["run", "intent", "loop"][..]),
            ("runIntentLoop", &["run", "intent", "loop"]),
            ("RunIntentLoop", &["run", "intent", "loop"]),
            ("XMLHttpRequest2", &["xml", "http", "request", "2"]),
            ("__init__", &["init"]),
            ("SHA256", &["sha", "256"]),
            ("Äußerung", &["äußerung"]),
            ("___", &[]),
        ] {
            assert_eq!(parts(word), expected, "{word}");
        }
    }

    #[test]
    fn words_are_runs_of_letters_digits_underscores_and_combining_marks() {
        let texts = ["", "a", " a ", "__ a_b -- c1", "Z\u{65}\u{301}ro—é!x", "\u{301}", "日本語 text", "a\u{200b}b"];
        for text in texts {
            let is_of_word = |c: char| c == '_' || is_of_word(c);
            let expected = text.split(|c| !is_of_word(c)).filter(|word| word.chars().any(char::is_alphanumeric));
            assert_eq!(words(text).collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{text:?}");
        }
    }

    #[test]
    fn only_words_of_programs_are_identifiers() {
        for word in ["run_loop", "runLoop", "HttpServer", "_a_b"] {
            assert!(is_identifier(word), "{word}");
        }
        for word in ["Word", "word", "HTTP", "_word", "2026"] {
            assert!(!is_identifier(word), "{word}");
        }
    }

    #[test]
    fn the_normal_form_is_its_own_normal_form() {
        for text in ["İstanbul", "ﬁne — print.", "A\u{301} b", "x . . ,", "a\u{200b}b \u{202e}c", "ẞ", "\u{fb01}!"]
        {
            let once = normalised(text);
            assert_eq!(normalised(&once), once, "{text}");
        }
    }
}
