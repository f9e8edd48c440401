//! Questions whose answer is the page of an item: its summary as a request, or a later sentence of its documentation.

use super::candidate::Candidate;
use super::places::{Place, Places};
use super::record::QuestionKind;
use super::requests::request;
use super::wording::{first_that, has_words, in_first_person, lowered, points_elsewhere, reworded, shortened};
use super::words::content;

/// The fewest words with content that a question needs.
const FEWEST: usize = 4;

/// How a sentence about an item begins that can be asked for by leaving out the subject.
const SUBJECTS: [&str; 21] = [
    "this method ",
    "this function ",
    "this type ",
    "this struct ",
    "this trait ",
    "this macro ",
    "this iterator ",
    "this adapter ",
    "this adaptor ",
    "this enum ",
    "this option ",
    "this module ",
    "this error ",
    "this operation ",
    "this routine ",
    "this future ",
    "this stream ",
    "this layer ",
    "this extractor ",
    "this middleware ",
    "this setting ",
];

/// What may follow the subject.
const PREDICATES: [&str; 20] = [
    "will", "can", "must", "is", "does", "should", "may", "returns", "has", "only", "can't", "allows", "takes", "uses",
    "requires", "provides", "ensures", "waits", "acts", "works",
];

/// The candidates of all items.
pub(crate) fn candidates(places: &Places) -> Vec<Candidate> {
    let items = places.places.iter().enumerate().filter(|(_, place)| place.is_item);
    items.flat_map(|(id, place)| of_item(places, id, place)).collect()
}

fn of_item(places: &Places, id: usize, place: &Place) -> Vec<Candidate> {
    // The first block is the signature.
    let blocks = place.blocks.iter().skip(1).filter(|block| !block.is_listed);
    let sentences = blocks.flat_map(|block| &block.sentences).enumerate();
    let asked = sentences.filter_map(|(number, sentence)| {
        let asked = if number == 0 { of_summary(sentence) } else { of_later(sentence) };
        Some((sentence, asked?))
    });
    let candidate = |(sentence, asked): (&String, Asked)| {
        let accepted = places.saying(sentence).to_vec();
        let kept = shortened(&asked.text, FEWEST).to_owned();
        let phrases: Vec<String> = asked.begins.iter().map(|begin| reworded(&format!("{begin}{kept}"))).collect();
        let question = first_that(&phrases, |phrase| places.is_free_of_titles(phrase, &accepted))?;
        let is_whole = !points_elsewhere(&kept) && !kept.contains(", but it ");
        let is_asked = has_words(&question, 6..=26) && content(&kept).len() >= FEWEST && is_whole;
        is_asked.then_some(Candidate { kind: QuestionKind::Summary, place: id, accepted, kept, question })
    };
    asked.filter_map(candidate).collect()
}

/// What is asked of a sentence, and how a question with it may begin.
struct Asked {
    text: String,
    begins: &'static [&'static str],
}

fn of_summary(sentence: &str) -> Option<Asked> {
    if let Some(text) = request(sentence) {
        let begins = &["how do I ", "how can I ", "how to ", "what do I use to ", "I want to ", "is there a way to "];
        return Some(Asked { text, begins });
    }
    let lower = sentence.to_lowercase();
    let is_thing = ["a ", "an "].iter().any(|article| lower.starts_with(article));
    let is_described = [" that ", " which ", " for ", " to ", " of ", " with "].iter().any(|word| lower.contains(word));
    let begins = &["I need ", "is there ", "looking for "];
    (is_thing && is_described).then(|| Asked { text: lowered(sentence), begins })
}

/// The same of a sentence after the summary.
fn of_later(sentence: &str) -> Option<Asked> {
    let lower = sentence.to_lowercase();
    let after = |begin: &str| sentence.get(begin.len()..).filter(|_| lower.starts_with(begin));
    if let Some(rest) = ["if ", "when "].iter().find_map(|begin| after(begin)) {
        // A condition with a comma of its own would be cut within.
        let (condition, _) = rest.split_once(", ")?;
        let text = in_first_person(condition);
        let begins: &[&str] = if text == condition {
            &["what happens if ", "what is the result when "]
        } else {
            &["what should I do if ", "what is right when "]
        };
        return Some(Asked { text, begins });
    }
    let rest = SUBJECTS.iter().find_map(|subject| after(subject))?;
    let predicate = rest.split(' ').next().unwrap_or_default();
    let begins = &["what ", "which one ", "is there something that "];
    PREDICATES.contains(&predicate).then(|| Asked { text: rest.to_owned(), begins })
}

#[cfg(test)]
mod tests {
    use super::super::tests::corpus_of;
    use super::*;

    fn asked(text: &str) -> Vec<String> {
        let document = format!("# yard::gate\n\n## Gate::open\n\nmethod: `pub fn open()`\n\n{text}");
        let places = Places::of(&[corpus_of(&[("a/gate.md", &document)])]);
        candidates(&places).into_iter().map(|candidate| candidate.question).collect()
    }

    #[test]
    fn summaries_and_later_sentences_are_asked_for() {
        for (text, kept) in [
            (
                "Spawns a thread that watches the red door at night.",
                "start a thread that watches the red door at night",
            ),
            (
                "X. This method waits until every visitor has left the inner court.",
                "waits until every visitor has left the inner court",
            ),
            ("X. If the wind closes both doors early, it panics.", "the wind closes both doors early"),
            ("A handle to the lock of the outer door.", "a handle to the lock of the outer door"),
        ] {
            let asked = asked(text);
            assert!(asked.len() == 1 && asked[0].ends_with(kept), "{asked:?}");
        }
    }

    #[test]
    fn sentences_with_words_of_the_title_are_not_asked() {
        for text in [
            "Spawns a thread that watches the opened door at night.",
            "Spawns a thread that watches several gates at night.",
            "Always right in the middle of the night at the lake.",
            "Returns the b.",
        ] {
            assert_eq!(asked(text), Vec::<String>::new(), "{text}");
        }
    }
}
