//! Ranks and confidence. Pure.

use super::candidates::{Candidate, Weighed};
use super::found::{Found, Grounded, Why};

/// What the share of the query's words adds to the score, beside BM25 and the graph.
const OF_COVERAGE: f64 = 0.5;

/// Orders candidates by their scores, the best first, and scales the scores so that the best has 1.
///
/// The score of a row is its BM25 score as a share of the best one, plus half its coverage of the query's words, plus what the graph adds.
pub(super) fn rank(candidates: Vec<Candidate>, terms: &[Weighed], limit: usize) -> Vec<(Candidate, f64, Why)> {
    let whole: f64 = terms.iter().map(|term| term.weight).sum();
    let best = candidates.iter().map(|candidate| candidate.bm25).fold(f64::MIN_POSITIVE, f64::max);
    let mut ranked: Vec<(Candidate, f64, Why)> = candidates
        .into_iter()
        .map(|mut candidate| {
            let matched = candidate.matched.iter().filter_map(|place| terms.get(*place));
            let covered: f64 = matched.clone().map(|term| term.weight).sum();
            let coverage = if whole > 0.0 { covered / whole } else { 0.0 };
            let words = matched.map(|term| term.term.word.clone()).collect();
            let score = candidate.bm25 / best + OF_COVERAGE * coverage + candidate.graph;
            let graph = std::mem::take(&mut candidate.reasons);
            let why = Why { words, coverage, bm25: candidate.bm25, graph };
            (candidate, score, why)
        })
        .collect();
    ranked.sort_by(|(one, of_one, _), (other, of_other, _)| {
        of_other.total_cmp(of_one).then_with(|| one.item.cmp(&other.item))
    });
    ranked.truncate(limit);
    let best = ranked.first().map_or(1.0, |(_, score, _)| *score).max(f64::MIN_POSITIVE);
    for (_, score, _) in &mut ranked {
        *score /= best;
    }
    ranked
}

/// What the confidence of a query depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Confidence {
    /// The share of the query's words that the best result has, weighted by how rare they are, in [0, 1].
    pub coverage: f64,
    /// How far the best result's score is above the next one's, in [0, 1].
    pub margin: f64,
    /// How many places say what the best result says: a fact's sources, or the one document of a passage.
    pub sources: usize,
}

impl Confidence {
    /// Of results, best first.
    #[must_use]
    pub fn of(results: &[Grounded]) -> Self {
        let Some(best) = results.first() else { return Self::default() };
        let next = results.get(1).map_or(0.0, |next| next.score);
        let sources = match &best.found {
            Found::Fact(fact) => fact.sources.len(),
            Found::Passage { .. } => 1,
        };
        Self { coverage: best.why.coverage, margin: (best.score - next).clamp(0.0, 1.0), sources }
    }
}

/// How likely results answer a query, in [0, 1]: 0.8 of the coverage, 0.1 of the margin, and 0.1 for three sources or more (a third of it for
/// each). Without results it is 0. It grows with each of the three, and no other two make up for a coverage of zero.
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
