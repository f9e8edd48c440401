//! All sections of the corpus, as the asker sees them: which have a sentence, and which are about the same words.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::prose::{self, Block};
use super::record::Answer;
use super::words::{content, shares_word, stems, words};
use crate::corpus::CrateText;
use crate::corpus::text::Kind;
use crate::corpus::text::markdown::sections;

/// A section of a document.
#[derive(Debug)]
pub(crate) struct Place {
    /// The crate by its number.
    pub(crate) of: usize,
    pub(crate) document: String,
    pub(crate) kind: Kind,
    pub(crate) headings: Vec<String>,
    pub(crate) title: String,
    /// The stems of the words of its title.
    pub(crate) title_stems: BTreeSet<String>,
    pub(crate) blocks: Vec<Block>,
    /// Whether it is the beginning of an item's documentation, whose first block is the signature.
    pub(crate) is_item: bool,
    /// The stems of the content of its text.
    pub(crate) content: BTreeSet<String>,
}

impl Place {
    /// The item that it is about: the second of its headings in the document of a module.
    pub(crate) fn item(&self) -> Option<&str> {
        match self.kind {
            Kind::Module => self.headings.get(1).map(String::as_str),
            Kind::Readme | Kind::Changelog => None,
        }
    }
}

/// The sections of the corpus.
pub(crate) struct Places {
    pub(crate) places: Vec<Place>,
    /// Which sections have a sentence, by its words.
    with_sentence: HashMap<String, Vec<usize>>,
    /// Which sections have a word, by its stem.
    with_word: HashMap<String, Vec<usize>>,
}

impl Places {
    pub(crate) fn of(crates: &[CrateText]) -> Self {
        let mut places = Vec::new();
        for (of, one) in crates.iter().enumerate() {
            for document in &one.extracted.documents {
                places.extend(sections(&document.text).into_iter().map(|section| {
                    let title = section.title();
                    Place {
                        of,
                        document: document.path.clone(),
                        kind: document.kind,
                        title_stems: stems(&title),
                        is_item: document.kind == Kind::Module
                            && section.headings.len() == 2
                            && begins_with_signature(&section.text),
                        headings: section.headings,
                        title,
                        blocks: prose::blocks(&section.text),
                        content: content(&section.text),
                    }
                }));
            }
        }
        let (mut with_sentence, mut with_word) = (HashMap::new(), HashMap::new());
        for (id, place) in places.iter().enumerate() {
            let said: BTreeSet<String> =
                place.blocks.iter().flat_map(|block| &block.sentences).map(|text| key(text)).collect();
            said.into_iter().for_each(|sentence| with_sentence.entry(sentence).or_insert_with(Vec::new).push(id));
            place.content.iter().for_each(|word| with_word.entry(word.clone()).or_insert_with(Vec::new).push(id));
        }
        Self { places, with_sentence, with_word }
    }

    /// The sections that have the sentence.
    pub(crate) fn saying(&self, sentence: &str) -> &[usize] {
        self.with_sentence.get(&key(sentence)).map_or(&[], Vec::as_slice)
    }

    /// The sections with a sentence that has nearly all of the text's content: rare words count more.
    pub(crate) fn near(&self, text: &str) -> Vec<usize> {
        // Sums of the weights are in one order, so that they are the same in each run.
        let (mut shared, mut weights) = (HashMap::<usize, f64>::new(), BTreeMap::new());
        for word in content(text) {
            let with: &[usize] = self.with_word.get(&word).map_or(&[], Vec::as_slice);
            let weight = ((self.places.len() + 1) as f64 / (with.len() + 1) as f64).ln();
            with.iter().for_each(|place| *shared.entry(*place).or_default() += weight);
            weights.insert(word, weight);
        }
        let nearly_all = weights.values().sum::<f64>() * NEARLY_ALL;
        let says = |sentence: &String| {
            let shared: f64 = content(sentence).iter().filter_map(|word| weights.get(word)).sum();
            shared > nearly_all
        };
        let is_near = |place: &usize| self.places[*place].blocks.iter().any(|block| block.sentences.iter().any(says));
        let have = shared.into_iter().filter(|(_, shared)| *shared > nearly_all).map(|(place, _)| place);
        let mut near: Vec<usize> = have.filter(is_near).collect();
        near.sort_unstable();
        near
    }

    /// Whether the text has no word of the titles of sections, not even inflected.
    pub(crate) fn is_free_of_titles(&self, text: &str, sections: &[usize]) -> bool {
        sections.iter().all(|id| !shares_word(text, &self.places[*id].title_stems))
    }

    pub(crate) fn answers(&self, sections: &[usize]) -> Vec<Answer> {
        let answer = |id: &usize| {
            let place = &self.places[*id];
            Answer { document: place.document.clone(), section: place.title.clone() }
        };
        let mut answers: Vec<Answer> = sections.iter().map(answer).collect();
        answers.sort();
        answers.dedup();
        answers
    }
}

/// Whether the first line names the kind of an item, as the text of items begins.
fn begins_with_signature(text: &str) -> bool {
    let line = text.lines().next().unwrap_or_default();
    let kind = line.split_once(": `").map_or(line, |(kind, _)| kind);
    let kinds =
        ["function", "struct", "enum", "union", "constant", "static", "type alias", "module", "macro", "method"];
    kinds.contains(&kind) || kind == "trait" || kind.starts_with("trait ")
}

const NEARLY_ALL: f64 = 0.85;

fn key(sentence: &str) -> String {
    words(sentence).join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::tests::corpus_of;
    use super::*;

    #[test]
    fn sections_with_the_same_sentence_are_found_and_those_with_nearly_its_words() {
        let places = Places::of(&[corpus_of(&[
            (
                "a.md",
                "# a\n\nThe red gate opens at nine in the morning.\n\n## b\n\nMore. The red gate\nopens at nine in the morning!",
            ),
            (
                "c.md",
                "# c\n\nAt nine in the morning it is the red gate that opens, unlike others.\n\n## d\n\nBlue water.",
            ),
        ])]);
        let sentence = "The red gate opens at nine in the morning";
        assert_eq!(places.saying(sentence), [0, 1]);
        assert_eq!(places.near(sentence), [0, 1, 2]);
        assert_eq!(places.near("blue water"), [3]);
    }
}
