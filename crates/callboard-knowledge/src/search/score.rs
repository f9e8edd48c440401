//! Scores, ranks and confidence, as the page of [`search`](super) defines them. Pure.

use super::candidates::{Candidate, TextScore, Weighed};
use super::failures::{is_failing, is_of_failure};
use super::found::{Found, Grounded, Why};
use super::matching::{Occurrences, Pattern};
use super::terms::Asked;

/// The constants of BM25: how soon further occurrences of a word add nothing, and how much the length of a row matters.
const SATURATION: f64 = 1.2;
const OF_LENGTH: f64 = 0.75;

/// What the text of a fact that holds is worth more than that of a passage.
const FACT: f64 = 1.25;

/// What a name is worth that a word of the query was expanded to, in place of that word.
pub(super) const EXPANDED: f64 = 0.5;

/// Computes the scores of texts. `average` is the length of a usual row.
pub(super) struct TextScorer<'q> {
    asked: &'q Asked,
    terms: &'q [Weighed],
    pattern: Pattern,
    average: f64,
    /// A heading of failures has the words by which the query speaks of failures.
    reads_headings: bool,
}

impl<'q> TextScorer<'q> {
    /// For the rows of a query: the average is theirs.
    pub(super) fn of(
        asked: &'q Asked,
        terms: &'q [Weighed],
        reads_headings: bool,
        candidates: &mut [Candidate],
    ) -> Self {
        let pattern = Pattern::of(asked);
        let found: Vec<Occurrences> =
            candidates.iter().map(|one| pattern.occurrences([&one.title, &one.body])).collect();
        let length: f64 = found.iter().map(|found| f64::from(found.length)).sum();
        #[expect(clippy::cast_precision_loss, reason = "there are few rows")]
        let average = (length / candidates.len().max(1) as f64).max(1.0);
        let scorer = Self { asked, terms, pattern, average, reads_headings };
        for (candidate, found) in candidates.iter_mut().zip(found) {
            candidate.text = scorer.score(&found, candidate);
        }
        scorer
    }

    /// The score of one more row.
    pub(super) fn text(&self, candidate: &Candidate) -> TextScore {
        self.score(&self.pattern.occurrences([&candidate.title, &candidate.body]), candidate)
    }

    fn score(&self, found: &Occurrences, of: &Candidate) -> TextScore {
        let long = SATURATION * (1.0 - OF_LENGTH + OF_LENGTH * f64::from(found.length) / self.average);
        let mut text = TextScore::default();
        let (mut covered, mut whole, mut covered_of_rest, mut whole_of_rest) = (0.0, 0.0, 0.0, 0.0);
        let (exact, expanded) = found.counts.split_at(self.terms.len());
        let is_of_failure = self.reads_headings && is_of_failure(&of.title);
        for (place, (term, (exact, expanded))) in self.terms.iter().zip(exact.iter().zip(expanded)).enumerate() {
            let of_rest = f64::from(u8::from(!term.term.joins));
            whole += term.weight;
            whole_of_rest += term.weight * of_rest;
            let (count, share) = match (*exact, *expanded) {
                (0, 0) if is_of_failure && is_failing(&term.term.word) => (0, 1.0),
                (0, 0) => continue,
                (0, expanded) => (expanded, EXPANDED),
                (exact, _) => (exact, 1.0),
            };
            let (weight, count) = (term.weight * share, f64::from(count));
            text.bm25 += weight * count * (SATURATION + 1.0) / (count + long);
            covered += weight;
            covered_of_rest += weight * of_rest;
            if count > 0.0 && !term.term.joins {
                text.matched.push(place);
                text.is_expanded |= *exact == 0;
            }
        }
        let weight = |place: usize| self.terms.get(place).map_or(0.0, |term| term.weight);
        let pairs = self.asked.pairs.iter().zip(&found.pairs).filter(|(_, is_found)| **is_found);
        let pairs: f64 = pairs.map(|((one, next), _)| weight(*one).min(weight(*next))).sum();
        if whole > 0.0 && whole_of_rest > 0.0 {
            let of_fact = if of.is_current_fact { FACT } else { 1.0 };
            text.score = (text.bm25 + pairs) * of_fact * covered / whole;
            text.coverage = covered_of_rest / whole_of_rest;
        }
        text
    }
}

/// The best score of texts.
pub(super) fn best_text(candidates: &[Candidate]) -> f64 {
    candidates.iter().map(|candidate| candidate.text.score).fold(f64::MIN_POSITIVE, f64::max)
}

/// Orders candidates by their scores, the best first, and scales the scores so that the best has 1.
pub(super) fn rank(candidates: Vec<Candidate>, terms: &[Weighed], limit: usize) -> Vec<(Candidate, f64, Why)> {
    let best = best_text(&candidates);
    let mut ranked: Vec<(Candidate, f64)> = candidates
        .into_iter()
        .map(|candidate| {
            let score = candidate.text.score / best + candidate.graph;
            (candidate, score)
        })
        .collect();
    ranked
        .sort_by(|(one, of_one), (other, of_other)| of_other.total_cmp(of_one).then_with(|| one.item.cmp(&other.item)));
    ranked.truncate(limit);
    let best = ranked.first().map_or(1.0, |(_, score)| *score).max(f64::MIN_POSITIVE);
    let explained = ranked.into_iter().map(|(mut candidate, score)| {
        let matched = candidate.text.matched.iter().filter_map(|place| terms.get(*place));
        let words = matched.map(|term| term.term.word.clone()).collect();
        let TextScore { bm25, coverage, .. } = candidate.text;
        let why = Why { words, coverage, bm25, graph: std::mem::take(&mut candidate.reasons) };
        (candidate, score / best, why)
    });
    explained.collect()
}

/// What the confidence of a query depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Confidence {
    /// The share of the query's words that the best result has, weighted by how rare they are, in [0, 1].
    pub coverage: f64,
    /// How far the best result's score is above the next one's, in [0, 1].
    pub margin: f64,
    /// How many trusted places say what the best result says: the sources of a fact that are not untrusted, or the one document of a passage,
    /// if it is trusted. Untrusted input can be repeated at will, so that it is repeated makes nothing more likely.
    pub sources: usize,
}

impl Confidence {
    /// Of results, best first.
    #[must_use]
    pub fn of(results: &[Grounded]) -> Self {
        let Some(best) = results.first() else { return Self::default() };
        let next = results.get(1).map_or(0.0, |next| next.score);
        let sources = match &best.found {
            Found::Fact(fact) => fact.sources.iter().filter(|source| !source.is_untrusted).count(),
            Found::Passage { .. } => usize::from(!best.is_untrusted),
        };
        Self { coverage: best.why.coverage, margin: (best.score - next).clamp(0.0, 1.0), sources }
    }
}

/// How likely results answer a query, in [0, 1]: 0.8 of the coverage, 0.1 of the margin, and 0.1 for three trusted sources or more (a third of it for
/// each); untrusted sources do not count. Without results it is 0. It grows with each of the three, and no other two make up for a coverage of zero.
///
/// ```
/// use callboard_knowledge::search::{Confidence, confidence};
/// assert_eq!(confidence(&Confidence::default()), 0.0);
/// assert_eq!(confidence(&Confidence { coverage: 1.0, margin: 1.0, sources: 3 }), 1.0);
/// assert!(confidence(&Confidence { coverage: 0.5, margin: 0.0, sources: 1 }) < 0.6);
/// ```
#[must_use]
pub fn confidence(of: &Confidence) -> f64 {
    let coverage = of.coverage.clamp(0.0, 1.0);
    if coverage == 0.0 {
        return 0.0;
    }
    let sources = [0.0, 1.0 / 3.0, 2.0 / 3.0, 1.0][of.sources.min(3)];
    (0.8 * coverage + 0.1 * of.margin.clamp(0.0, 1.0) + 0.1 * sources).min(1.0)
}
