//! Questions whose answer is a section `Errors` or `Panics`: when something goes wrong.

use super::candidate::Candidate;
use super::places::{Place, Places};
use super::record::QuestionKind;
use super::requests::request;
use super::wording::{
    first_that, has_words, in_first_person, lowered, points_elsewhere, reworded, shortened, with_pronouns,
};
use super::words::content;

/// The headings of such sections.
pub(crate) const HEADINGS: [&str; 4] = ["Errors", "Error", "Panics", "Panic"];

/// The fewest words with content that a condition needs.
const FEWEST: usize = 3;

/// The candidates of all such sections.
pub(crate) fn candidates(places: &Places) -> Vec<Candidate> {
    let all = places.places.iter().enumerate();
    all.filter(|(_, place)| is_of_failures(place)).flat_map(|(id, place)| of_section(places, id, place)).collect()
}

/// Whether it says when an item fails.
pub(crate) fn is_of_failures(place: &Place) -> bool {
    place.item().is_some()
        && place.headings.len() > 2
        && place.headings.last().is_some_and(|heading| HEADINGS.contains(&heading.trim_end_matches(':')))
}

fn of_section(places: &Places, id: usize, place: &Place) -> Vec<Candidate> {
    let context = context(&places.places[..id], place);
    let candidate = |sentence: &String| {
        let (word, condition) = condition(sentence)?;
        let mut accepted = places.saying(sentence).to_vec();
        if !is_askable(places, &condition, &accepted) {
            return None;
        }
        let without_titles =
            |text: &str, accepted: &[usize]| with_pronouns(text, |word| !places.is_free_of_titles(word, accepted));
        let asked = without_titles(shortened(&in_first_person(&condition), FEWEST), &accepted)?;
        // What says the same in nearly the same words is an answer too.
        accepted.extend(places.near(&asked).into_iter().filter(|near| places.places[*near].of == place.of));
        accepted.sort_unstable();
        accepted.dedup();
        let context = context.as_deref().and_then(|context| without_titles(context, &accepted));
        let context = context.filter(|context| !context.starts_with("it ") && content(context).len() > 1);
        let phrases = phrases(word, &asked, context.as_deref());
        let phrases: Vec<String> = phrases.iter().map(|phrase| reworded(phrase)).collect();
        let question = first_that(&phrases, |phrase| places.is_free_of_titles(phrase, &accepted))?;
        let is_asked = has_words(&question, 7..=34) && content(&asked).len() >= FEWEST && !points_elsewhere(&asked);
        is_asked.then_some(Candidate { kind: QuestionKind::Section, place: id, accepted, kept: asked, question })
    };
    place.blocks.iter().flat_map(|block| &block.sentences).filter_map(candidate).collect()
}

/// Whether it can be asked without the words of the titles, before the sections that are near are known.
fn is_askable(places: &Places, condition: &str, accepted: &[usize]) -> bool {
    let is_of_title = |word: &str| !places.is_free_of_titles(word, accepted);
    content(condition).len() >= FEWEST && with_pronouns(condition, is_of_title).is_some()
}

/// What the item of a section is for, as a request. Its page is among the sections before it.
fn context(before: &[Place], place: &Place) -> Option<String> {
    let mut of_document = before.iter().rev().take_while(|other| other.document == place.document);
    let item = of_document.find(|other| other.is_item && other.item() == place.item())?;
    let summary = item.blocks.get(1)?.sentences.first()?;
    request(summary).filter(|request| has_words(request, 3..=14) && !request.contains('('))
}

/// The condition of a sentence, without the consequence, and the word that it begins with.
fn condition(sentence: &str) -> Option<(&'static str, String)> {
    let lower = sentence.to_lowercase();
    let begins = [("if ", "if"), ("when ", "when"), ("unless ", "unless")];
    let (word, condition) = match begins.iter().find(|(begin, _)| lower.starts_with(begin)) {
        Some((begin, word)) => (*word, sentence.get(begin.len()..)?.split_once(", ")?.0),
        None => {
            let within = [(" if ", "if"), (" when ", "when"), (" unless ", "unless")];
            let found = within.iter().filter_map(|(found, word)| Some((lower.find(found)?, *found, *word)));
            let (at, found, word) = found.min_by_key(|found| found.0)?;
            // `Returns Ok if`, `no panic if`, `only if`.
            let is_failure = !lower.get(..at)?.split(' ').any(|word| SUCCESSES.contains(&word));
            (word, sentence.get(at + found.len()..).filter(|_| is_failure)?.trim_end_matches(','))
        }
    };
    // `if and only if`, `when set, must be`, `if you want`
    let is_whole = !condition.ends_with(':')
        && !condition.starts_with("and ")
        && [" if ", " will ", " must ", ", a ", ", an ", ", the "].iter().all(|other| !condition.contains(other));
    let is_advice = ["you want", "you need", "you would", "you wish", "you'd", "you're", "you are looking", "instead"];
    let is_said = is_whole && is_advice.iter().all(|part| !condition.contains(part));
    is_said.then(|| (word, lowered(condition)))
}

/// Words after which a condition is none of a failure.
const SUCCESSES: [&str; 7] = ["ok", "not", "no", "never", "true", "only", "even"];

fn phrases(word: &str, condition: &str, context: Option<&str>) -> Vec<String> {
    let alone = [
        format!("what goes wrong {word} {condition}"),
        format!("which call does not work {word} {condition}"),
        format!("what breaks {word} {condition}"),
    ];
    let Some(context) = context else { return alone.to_vec() };
    let mut phrases = vec![
        format!("I {context}, what goes wrong {word} {condition}"),
        format!("I want to {context}: does that work {word} {condition}"),
        format!("{context}: why does it not work {word} {condition}"),
    ];
    // Without the context if that has words of the title.
    if content(condition).len() > FEWEST {
        phrases.extend(alone);
    }
    phrases
}

#[cfg(test)]
mod tests {
    use super::super::tests::corpus_of;
    use super::*;

    #[test]
    fn conditions_are_cut_from_what_follows_of_them() {
        for (sentence, expected) in [
            ("Panics if the lock is held", Some(("if", "the lock is held"))),
            ("An error is returned when X is full", Some(("when", "x is full"))),
            ("This fails unless a runtime is there", Some(("unless", "a runtime is there"))),
            ("If there is no runtime, this panics", Some(("if", "there is no runtime"))),
            ("Returns Ok if there is one", None),
            ("Panics if and only if it is full", None),
            ("Panics", None),
        ] {
            let expected = expected.map(|(word, condition)| (word, condition.to_owned()));
            let found = condition(sentence).map(|(word, condition)| (word, condition.to_lowercase()));
            assert_eq!(found, expected, "{sentence}");
        }
    }

    #[test]
    fn the_question_has_the_condition_and_what_the_item_is_for() {
        let text = "# yard\n\n## Gate::open\n\nmethod: `fn open()`\n\nSpawns a watch at the door.\n\n### Panics\n\nPanics if the night is moonless and the lamp is dark.\n\n### Notes\n\nPanics if the day is long and the lake is dry.";
        let places = Places::of(&[corpus_of(&[("a/gate.md", text)])]);
        let candidates = candidates(&places);
        assert_eq!(candidates.len(), 1);
        assert!(candidates[0].question.contains("if the night is moonless and the lamp is dark"));
        assert_eq!(places.places[candidates[0].place].title, "yard > Gate::open > Panics");
    }
}
