//! Ranks texts by a full-text query, with Okapi BM25.
//!
//! It is implemented here, because the only crate for it depends on an unmaintained hash function.

use std::collections::BTreeMap;

/// BM25's usual parameters: how fast the weight of a repeated word levels off, and how much the length of a text reduces its
/// rank.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// The indices of the texts that have words of the query, the best first; of equal ones, the later first.
pub(super) fn ranked<'a>(query: &str, texts: impl Iterator<Item = &'a str>) -> Vec<usize> {
    let texts: Vec<Vec<String>> = texts.map(words).collect();
    let wanted: BTreeMap<String, f64> = {
        let mut query = words(query);
        query.sort_unstable();
        query.dedup();
        query.into_iter().map(|word| (rarity(&word, &texts), word)).map(|(rarity, word)| (word, rarity)).collect()
    };
    let mean = texts.iter().map(Vec::len).sum::<usize>().max(1) as f64 / texts.len().max(1) as f64;
    let mut found: Vec<(u64, usize)> = texts
        .iter()
        .enumerate()
        .map(|(place, text)| (score(&wanted, text, mean), place))
        .filter(|(score, _)| *score > 0)
        .collect();
    found.sort_unstable_by(|one, other| other.cmp(one));
    found.into_iter().map(|(_, place)| place).collect()
}

/// The score of a text, in millionths; smaller differences count as equal.
fn score(wanted: &BTreeMap<String, f64>, text: &[String], mean: f64) -> u64 {
    let mut counts: BTreeMap<&str, f64> = BTreeMap::new();
    for word in text.iter().filter(|word| wanted.contains_key(*word)) {
        *counts.entry(word).or_default() += 1.0;
    }
    let length = K1 * (1.0 - B + B * text.len() as f64 / mean);
    let sum: f64 = counts.into_iter().map(|(word, count)| wanted[word] * count * (K1 + 1.0) / (count + length)).sum();
    (sum * 1e6).round() as u64
}

/// The weight of a word: the fewer texts have it, the higher. It is above zero even if all texts have it.
fn rarity(word: &str, texts: &[Vec<String>]) -> f64 {
    let all = texts.len() as f64;
    let having = texts.iter().filter(|text| text.iter().any(|other| other == word)).count() as f64;
    (1.0 + (all - having + 0.5) / (having + 0.5)).ln()
}

/// Words in lower case. In scripts without spaces each character is one.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut close = |word: &mut String| {
        if !word.is_empty() {
            words.push(std::mem::take(word));
        }
    };
    for c in text.chars() {
        if !c.is_alphanumeric() {
            close(&mut word);
        } else if is_a_word(c) {
            close(&mut word);
            word.push(c);
            close(&mut word);
        } else {
            word.extend(c.to_lowercase());
        }
    }
    close(&mut word);
    words
}

/// Han, Hiragana and Katakana, which are written without spaces.
fn is_a_word(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(query: &str, texts: &[&str]) -> Vec<usize> {
        ranked(query, texts.iter().copied())
    }

    #[test]
    fn what_has_more_and_rarer_words_comes_first_and_what_has_none_not_at_all() {
        let texts = ["the cat sat", "the dog sat on the cat", "the weather is fine", "Dog, DOG and dog"];
        assert_eq!(of("dog", &texts), [3, 1]);
        assert_eq!(of("the dog", &texts)[..2], [3, 1]);
        assert_eq!(of("zebra", &texts), [0_usize; 0]);
        assert_eq!(of("", &texts), [0_usize; 0]);
        assert_eq!(of("dog", &[]), [0_usize; 0]);
    }

    #[test]
    fn a_word_that_all_have_still_counts_and_a_short_text_more_than_a_long_one() {
        assert_eq!(of("cat", &["cat"]), [0]);
        assert_eq!(of("cat", &["a cat in a very long text about much else", "a cat"]), [1, 0]);
        assert_eq!(of("cat", &["a cat", "a cat"]), [1, 0]);
    }

    #[test]
    fn words_are_parted_at_signs_and_in_scripts_without_spaces_at_each_character() {
        assert_eq!(words("read_file(Path::NEW)"), ["read", "file", "path", "new"]);
        assert_eq!(words("x漢字y"), ["x", "漢", "字", "y"]);
        assert_eq!(of("漢字", &["これは漢字です", "ひらがな"]), [0]);
    }

    /// Figures worked out by hand from the formula of Robertson and Zaragoza (2009), with the rarity of Lucene.
    #[test]
    fn the_score_is_that_of_the_formula() {
        let texts = [vec!["a".to_owned(), "b".to_owned()], vec!["b".to_owned(), "b".to_owned()]];
        let rarity_a = (1.0_f64 + 1.5 / 1.5).ln();
        assert!((rarity("a", &texts) - rarity_a).abs() < 1e-12);
        let wanted = BTreeMap::from([("a".to_owned(), rarity_a)]);
        // One of two words, of mean length: ln 2 · 1 · 2.2 / (1 + 1.2).
        assert_eq!(score(&wanted, &texts[0], 2.0), 693_147);
        assert_eq!(score(&wanted, &texts[1], 2.0), 0);
    }
}
