//! The rule by which a query is repeated, against a model of it that is written from the words of the documentation.

use callboard_knowledge::intents::{IntentLoopConfig, Next, PassOptions, PassSummary, Stop, next_pass};
use callboard_knowledge::search::{Depth, MAX_LIMIT, Status};
use proptest::prelude::*;

/// A base of which a pass of any width finds a part: what there is, and what each width shows of it.
#[derive(Clone, Debug)]
struct World {
    there: usize,
    shallow: usize,
    last: Option<Status>,
    confidence: f64,
    /// From this width on, the confidence is high.
    sure_from: usize,
}

impl World {
    fn pass(&self, options: PassOptions, before: usize) -> PassSummary {
        let visible = if options.depth == Depth::Deep { self.there } else { self.shallow.min(self.there) };
        let results = visible.min(options.limit);
        let confidence = if options.limit >= self.sure_from { 1.0 } else { self.confidence };
        PassSummary { options, results, new: results.saturating_sub(before), last: self.last, confidence }
    }
}

/// The limits of all passes, by the documentation: a plain loop.
fn expected(world: &World, max: u32, threshold: f64, first: PassOptions) -> (Vec<PassOptions>, &'static str) {
    let mut passes = vec![first];
    let mut seen = 0;
    loop {
        let options = passes[passes.len() - 1];
        let pass = world.pass(options, seen);
        let found_nothing_else = pass.results <= seen;
        seen = seen.max(pass.results);
        let has_failed = pass.last == Some(Status::Miss) || pass.last == Some(Status::Error);
        if pass.results >= 2 && !has_failed && pass.confidence >= threshold {
            return (passes, "strong");
        }
        if passes.len() as u32 == max.max(1) {
            return (passes, "max");
        }
        if passes.len() >= 2 && found_nothing_else {
            return (passes, "nothing");
        }
        let limit = std::cmp::min(options.limit * 4, MAX_LIMIT);
        if limit == options.limit && options.depth == Depth::Deep {
            return (passes, "widest");
        }
        passes.push(PassOptions { depth: Depth::Deep, limit });
    }
}

fn actual(world: &World, max: u32, threshold: f64, first: PassOptions) -> (Vec<PassOptions>, &'static str) {
    let config = IntentLoopConfig { max_iterations: max, confidence_threshold: threshold, provider: None };
    let (mut passes, mut seen) = (Vec::new(), 0);
    loop {
        match next_pass(&config, first, &passes) {
            Next::Pass(options) => {
                let pass = world.pass(options, seen);
                seen = seen.max(pass.results);
                passes.push(pass);
            }
            Next::Stop(stop) => {
                let why = match stop {
                    Stop::Strong => "strong",
                    Stop::NothingAdded => "nothing",
                    Stop::Widest => "widest",
                    Stop::MaxIterations => "max",
                };
                return (passes.iter().map(|pass| pass.options).collect(), why);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_query_is_repeated_as_the_documentation_says(
        there in prop_oneof![Just(0_usize), Just(1), Just(2), 0..700_usize],
        shallow in 0..30_usize,
        last in prop_oneof![Just(None), Just(Some(Status::Hit)), Just(Some(Status::Miss)), Just(Some(Status::Error))],
        confidence in prop_oneof![Just(0.0), Just(0.6), 0.0..1.0],
        sure_from in prop_oneof![Just(usize::MAX), Just(40), Just(160), Just(0)],
        max in 0..6_u32,
        threshold in prop_oneof![Just(0.6), Just(0.0), 0.0..1.0],
        is_deep: bool,
        limit in prop_oneof![Just(10_usize), Just(1), Just(MAX_LIMIT), 1..MAX_LIMIT],
    ) {
        let world = World { there, shallow, last, confidence, sure_from };
        let first = PassOptions { depth: if is_deep { Depth::Deep } else { Depth::Shallow }, limit };
        prop_assert_eq!(actual(&world, max, threshold, first), expected(&world, max, threshold, first));
    }
}
