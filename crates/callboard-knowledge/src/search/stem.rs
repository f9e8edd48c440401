//! The stem of an English word, as the `porter` tokenizer of the full-text index cuts it, so that a word of a row is compared with a word of a
//! query without asking the index. Pure.
//!
//! The rules are those of M. F. Porter, "An algorithm for suffix stripping", 1980, with those of its later notes that SQLite has.

/// The shortest and longest words, in bytes, that have a stem; others are their own.
const STEMMED: std::ops::RangeInclusive<usize> = 3..=64;

/// Endings with what takes their places, the longest of a group first.
const STEP_2: &[(&str, &str)] = &[
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("logi", "log"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
];
const STEP_3: &[(&str, &str)] =
    &[("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", "")];
const STEP_4: &[&str] = &[
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti",
    "ous", "ive", "ize",
];

/// The stem of a word in lower case.
pub(super) fn stem(word: &str) -> String {
    if !word.is_ascii() || !STEMMED.contains(&word.len()) {
        return word.to_owned();
    }
    let mut word = word.to_owned();
    plural(&mut word);
    past_or_progressive(&mut word);
    if word.ends_with('y') && has_vowel(&word[..word.len() - 1]) {
        replace(&mut word, 1, "i");
    }
    first_of(&mut word, STEP_2);
    first_of(&mut word, STEP_3);
    without_suffix(&mut word);
    without_last_e(&mut word);
    word
}

fn plural(word: &mut String) {
    if (word.len() > 4 && word.ends_with("sses")) || (word.len() > 3 && word.ends_with("ies")) {
        replace(word, 2, "");
    } else if word.ends_with('s') && !word.ends_with("ss") {
        replace(word, 1, "");
    }
}

fn past_or_progressive(word: &mut String) {
    if word.len() > 3 && word.ends_with("eed") {
        if measure(&word[..word.len() - 3]) > 0 {
            replace(word, 1, "");
        }
        return;
    }
    let ending = if word.ends_with("ed") { 2 } else { 3 };
    if !(ending == 2 || word.ends_with("ing")) || !has_vowel(&word[..word.len() - ending]) {
        return;
    }
    replace(word, ending, "");
    if word.ends_with("at") || word.ends_with("bl") || word.ends_with("iz") {
        word.push('e');
    } else if ends_double(word) && !word.ends_with(['l', 's', 'z']) {
        word.pop();
    } else if measure(word) == 1 && ends_short(word) {
        word.push('e');
    }
}

/// Replaces the longest ending that the word has, if something is before it.
fn first_of(word: &mut String, endings: &[(&str, &str)]) {
    let has = endings.iter().filter(|(ending, _)| word.ends_with(ending));
    if let Some((ending, with)) = has.max_by_key(|(ending, _)| ending.len())
        && measure(&word[..word.len() - ending.len()]) > 0
    {
        replace(word, ending.len(), with);
    }
}

fn without_suffix(word: &mut String) {
    let has = STEP_4.iter().filter(|ending| word.ends_with(**ending));
    if let Some(ending) = has.max_by_key(|ending| ending.len()) {
        let rest = &word[..word.len() - ending.len()];
        if measure(rest) > 1 && (*ending != "ion" || rest.ends_with(['s', 't'])) {
            replace(word, ending.len(), "");
        }
    }
}

fn without_last_e(word: &mut String) {
    if let Some(rest) = word.strip_suffix('e') {
        let measure = measure(rest);
        if measure > 1 || (measure == 1 && !ends_short(rest)) {
            word.pop();
        }
    }
    if word.ends_with("ll") && measure(word) > 1 {
        word.pop();
    }
}

fn replace(word: &mut String, bytes: usize, with: &str) {
    word.truncate(word.len() - bytes);
    word.push_str(with);
}

/// Whether each letter is a vowel; `y` is one after a consonant.
fn vowels(word: &str) -> impl Iterator<Item = bool> {
    word.bytes().scan(true, |after_vowel, letter| {
        let is_vowel = matches!(letter, b'a' | b'e' | b'i' | b'o' | b'u') || (letter == b'y' && !*after_vowel);
        *after_vowel = is_vowel;
        Some(is_vowel)
    })
}

fn has_vowel(word: &str) -> bool {
    vowels(word).any(|is_vowel| is_vowel)
}

/// How often a consonant follows a vowel.
fn measure(word: &str) -> usize {
    vowels(word).zip(vowels(word).skip(1)).filter(|(one, next)| *one && !*next).count()
}

fn ends_double(word: &str) -> bool {
    let mut last = word.bytes().rev();
    matches!((last.next(), last.next()), (Some(one), Some(other)) if one == other) && vowels(word).last() == Some(false)
}

/// Whether the word ends in consonant, vowel and a consonant other than `w`, `x` and `y`.
fn ends_short(word: &str) -> bool {
    let vowels: Vec<bool> = vowels(word).collect();
    vowels.ends_with(&[false, true, false]) && !word.ends_with(['w', 'x', 'y'])
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn stems_are_those_of_the_full_text_index() {
        let texts = [
            include_str!("../../../../ARCHITECTURE.md"),
            include_str!("../../../../docs/semantics.md"),
            include_str!("../../../../CHANGELOG.md"),
            "caresses ponies ties caress cats feed agreed plastered bled motoring sing conflated troubled sized hopping \
             tanned falling hissing fizzed failing filing happy sky relational conditional rational valenci hesitanci \
             digitizer conformabli radicalli differentli vileli analogousli vietnamization predication operator feudalism \
             decisiveness hopefulness callousness formaliti sensitiviti sensibiliti triplicate formative formalize \
             electriciti electrical hopeful goodness revival allowance inference airliner gyroscopic adjustable defensible \
             irritant replacement adjustment dependent adoption homologou communism activate angulariti homologous effective \
             bowdlerize probate rate cease controll roll yes ies sses eed ing analogies geology oxen by syzygy",
        ];
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(
                "CREATE VIRTUAL TABLE stems USING fts5 (word, tokenize = 'porter unicode61 remove_diacritics 2');
                 CREATE VIRTUAL TABLE read USING fts5vocab ('stems', 'instance')",
            )
            .unwrap();
        let lower = texts.join(" ").to_lowercase();
        let mut words: Vec<&str> = lower.split(|c: char| !c.is_ascii_alphabetic()).filter(|w| !w.is_empty()).collect();
        words.sort_unstable();
        words.dedup();
        for (row, word) in words.iter().enumerate() {
            connection.execute("INSERT INTO stems (rowid, word) VALUES (?1, ?2)", (row, word)).unwrap();
        }
        let mut read = connection.prepare("SELECT doc, term FROM read").unwrap();
        let stems = read.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let stems: Vec<(usize, String)> = stems.collect::<Result<_, _>>().unwrap();
        assert!(stems.len() > 2_000 && stems.len() == words.len(), "{} of {}", stems.len(), words.len());
        let others: Vec<(&str, String, String)> = stems
            .into_iter()
            .filter(|(row, expected)| stem(words[*row]) != *expected)
            .map(|(row, expected)| (words[row], stem(words[row]), expected))
            .collect();
        assert_eq!(others, [], "word, stem, stem of the index");
    }
}
