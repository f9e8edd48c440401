//! Questions about the corpus whose answers are known. The page of [`super`] says how they are made.

mod candidate;
mod changes;
mod choice;
mod conditions;
mod failures;
mod places;
mod prose;
pub mod record;
mod requests;
mod summaries;
mod synonyms;
mod wording;
mod words;

use super::CrateText;
use places::Places;
use record::Question;

/// The questions about a corpus. The same corpus has the same questions.
#[must_use]
pub fn questions(crates: &[CrateText]) -> Vec<Question> {
    let places = Places::of(crates);
    let mut candidates = summaries::candidates(&places);
    candidates.extend(failures::candidates(&places, crates));
    candidates.extend(changes::candidates(&places));
    candidates.extend(conditions::candidates(&places));
    let mut questions = choice::chosen(&places, crates, candidates);
    choice::hold_back(&mut questions);
    questions
}

/// Whether a word of the question is one of a title of its answers, or an inflection of one.
#[must_use]
pub fn has_word_of_title(question: &Question) -> bool {
    let title = question.answers.iter().flat_map(|answer| words::stems(&answer.section)).collect();
    words::shares_word(&question.question, &title)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::list::{self, Listed};
    use super::super::text::{Document, Extracted, Kind};
    use super::record::{Answer, QuestionKind};
    use super::*;

    /// The committed questions and list.
    fn committed() -> (Vec<Question>, String, Vec<Listed>) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/callboard-knowledge/tests/quality/");
        let read = |name| std::fs::read_to_string(format!("{folder}{name}")).unwrap();
        let text = read("questions.jsonl");
        (record::read(&text).unwrap(), text, list::read(&read("corpus.toml")).unwrap())
    }

    #[test]
    fn no_word_of_a_committed_question_is_in_a_title_of_its_answers() {
        let (questions, _, _) = committed();
        let with_words: Vec<&Question> = questions.iter().filter(|question| has_word_of_title(question)).collect();
        assert_eq!(with_words, Vec::<&Question>::new());
        let mut changed = questions[0].clone();
        changed.question += &format!(" {}", changed.answers[0].section.to_lowercase());
        assert!(has_word_of_title(&changed));
    }

    #[test]
    fn there_are_enough_committed_questions_of_each_kind_and_for_each_use() {
        let (questions, text, _) = committed();
        let count = |is_counted: &dyn Fn(&Question) -> bool| questions.iter().filter(|one| is_counted(one)).count();
        assert!(questions.len() >= 450 && text.len() < 300_000, "{} in {}", questions.len(), text.len());
        assert_eq!(count(&|question| question.held_back), 150);
        assert!(count(&|question| question.ci) >= 100);
        for kind in QuestionKind::ALL {
            assert!(count(&|question| question.kind == kind) >= 100, "{kind:?}");
            assert!(count(&|question| question.kind == kind && question.held_back) >= 37, "{kind:?}");
            assert!(count(&|question| question.kind == kind && question.ci && !question.held_back) >= 10, "{kind:?}");
        }
    }

    #[test]
    fn committed_questions_differ_and_their_answers_are_of_listed_crates() {
        let (questions, _, list) = committed();
        let mut seen = BTreeSet::new();
        for question in &questions {
            assert!(seen.insert(&question.id) && seen.insert(&question.question), "{question:?}");
            let of = |answer: &Answer| list.iter().find(|one| answer.document.starts_with(&format!("{}/", one.name)));
            let of: Vec<&Listed> = question.answers.iter().map(|answer| of(answer).unwrap()).collect();
            assert_eq!(of.iter().any(|one| one.ci), question.ci, "{question:?}");
            assert!((1..=6).contains(&of.len()), "{question:?}");
        }
    }

    #[test]
    fn the_same_corpus_has_the_same_questions() {
        let animals = ["heron", "otter", "badger", "lynx", "falcon", "marten", "beaver", "stoat", "raven", "hare"];
        let item = |(number, animal)| {
            format!(
                "## item{number}\n\nfunction: `fn f()`\n\nSpawns watchers that look for the red {animal} near the lake.\n\n"
            )
        };
        let items: String = animals.iter().enumerate().map(item).collect();
        let corpus = corpus_of(&[("a/x.md", &format!("# yard\n\n{items}"))]);
        let made = questions(std::slice::from_ref(&corpus));
        assert_eq!(made.len(), 4, "no more of one document");
        assert_eq!(questions(&[corpus]), made);
    }

    /// A crate with these documents.
    pub(super) fn corpus_of(documents: &[(&str, &str)]) -> CrateText {
        let listed = Listed { name: "a".to_owned(), version: "1.0.0".to_owned(), sha256: String::new(), ci: true };
        let document = |(path, text): &(&str, &str)| Document {
            path: (*path).to_owned(),
            kind: if path.contains("CHANGELOG") { Kind::Changelog } else { Kind::Module },
            text: (*text).to_owned(),
        };
        let documents = documents.iter().map(document).collect();
        CrateText { listed, extracted: Extracted { documents, messages: Vec::new() } }
    }
}
