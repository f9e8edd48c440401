//! Which candidates become questions: so many of each kind, from many crates, by chance that depends on the candidates alone.

use std::collections::{BTreeMap, BTreeSet};

use super::candidate::Candidate;
use super::places::Places;
use super::record::{Question, QuestionKind};
use super::wording::chance;
use crate::corpus::CrateText;

/// How many questions of a kind there are, and how many of them have their answer in the corpus of CI.
const OF_KIND: usize = 150;
const OF_KIND_IN_CI: usize = 36;

/// The most questions of a kind that a crate has.
const OF_CRATE: usize = 22;

/// The most questions of a kind that a document and a section of it have. A changelog is one document with all of a crate's versions, and an
/// error has one section for all of its messages.
fn of_source(kind: QuestionKind) -> (usize, usize) {
    match kind {
        QuestionKind::Summary => (4, 1),
        QuestionKind::Error => (8, 4),
        QuestionKind::Changelog => (OF_CRATE, 1),
        QuestionKind::Section => (8, 2),
    }
}

/// The most sections that may answer a question; a text with more is said too often to be asked for.
const MOST_ANSWERS: usize = 6;

/// How many questions are held back.
const HELD_BACK: usize = 150;

/// Another seed has other questions.
const SEED: &str = "20261127";

/// The questions that are taken, by kind.
pub(crate) fn chosen(places: &Places, crates: &[CrateText], mut candidates: Vec<Candidate>) -> Vec<Question> {
    candidates.sort_by_cached_key(|candidate| {
        let title = &places.places[candidate.place].title;
        (chance(&format!("{SEED} {title} {}", candidate.question)), candidate.question.clone(), candidate.place)
    });
    let mut questions = Vec::new();
    for kind in QuestionKind::ALL {
        let of_kind: Vec<&Candidate> = candidates.iter().filter(|candidate| candidate.kind == kind).collect();
        let mut taken =
            Taken { places, crates, kind, of: BTreeMap::new(), asked: BTreeSet::new(), questions: Vec::new() };
        let in_ci = |candidate: &&&Candidate| taken_in_ci(places, crates, candidate);
        of_kind.iter().filter(in_ci).for_each(|candidate| taken.take(candidate, OF_KIND_IN_CI));
        of_kind.iter().for_each(|candidate| taken.take(candidate, OF_KIND));
        taken.questions.sort_by(|one, other| one.id.cmp(&other.id));
        questions.append(&mut taken.questions);
    }
    questions
}

fn taken_in_ci(places: &Places, crates: &[CrateText], candidate: &Candidate) -> bool {
    candidate.accepted.iter().any(|id| crates[places.places[*id].of].listed.ci)
}

struct Taken<'c> {
    places: &'c Places,
    crates: &'c [CrateText],
    kind: QuestionKind,
    /// How many of each crate, document and section.
    of: BTreeMap<String, usize>,
    asked: BTreeSet<String>,
    questions: Vec<Question>,
}

impl Taken<'_> {
    /// Takes the candidate if there are fewer than `most` questions, not too many of its source, and no other section says the same.
    fn take(&mut self, candidate: &Candidate, most: usize) {
        let place = &self.places.places[candidate.place];
        let (of_document, of_section) = of_source(self.kind);
        let limits = [
            (format!("crate {}", place.of), OF_CRATE),
            (format!("document {}", place.document), of_document),
            (format!("section {} {}", place.document, place.title), of_section),
        ];
        let is_room = limits.iter().all(|(of, most)| self.of.get(of).is_none_or(|count| count < most));
        let texts = [candidate.kept.to_lowercase(), candidate.question.to_lowercase()];
        let is_asked = texts.iter().any(|text| self.asked.contains(text));
        if self.questions.len() >= most || !is_room || is_asked {
            return;
        }
        let answers = self.places.answers(&candidate.accepted);
        if !(1..=MOST_ANSWERS).contains(&answers.len()) {
            return;
        }
        // What code prints is not in the words of the documentation.
        let is_ambiguous = self.kind != QuestionKind::Error
            && self.places.near(&candidate.kept).iter().any(|near| !candidate.accepted.contains(near));
        if is_ambiguous {
            return;
        }
        limits.into_iter().for_each(|(of, _)| *self.of.entry(of).or_default() += 1);
        self.asked.extend(texts);
        self.questions.push(Question {
            id: format!("{}-{:08x}", self.kind.name(), chance(&format!("{} {answers:?}", candidate.question)) as u32),
            kind: self.kind,
            question: candidate.question.clone(),
            ci: taken_in_ci(self.places, self.crates, candidate),
            answers,
            held_back: false,
        });
    }
}

/// Holds back as many questions of each kind as of the others, by chance.
pub(crate) fn hold_back(questions: &mut [Question]) {
    let mut order: Vec<usize> = (0..questions.len()).collect();
    order.sort_by_key(|place| chance(&format!("{SEED} held back {}", questions[*place].id)));
    for (number, kind) in QuestionKind::ALL.into_iter().enumerate() {
        let kinds = QuestionKind::ALL.len();
        let share = HELD_BACK / kinds + usize::from(number < HELD_BACK % kinds);
        order
            .iter()
            .filter(|place| questions[**place].kind == kind)
            .take(share)
            .copied()
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|place| questions[place].held_back = true);
    }
}
