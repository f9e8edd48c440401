//! Whether a query is repeated, and how wide. Pure.

use serde::{Deserialize, Serialize};

use super::envelope::IntentLoopConfig;
use crate::search::{Depth, MAX_LIMIT, Status};

/// How many times as many results each escalation asks for.
pub const WIDER: usize = 4;

/// Fewer results than these are weak.
const ENOUGH: usize = 2;

/// How a pass looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassOptions {
    /// How far.
    pub depth: Depth,
    /// For how many results.
    pub limit: usize,
}

/// What a pass gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassSummary {
    /// How it looked.
    pub options: PassOptions,
    /// How many results it has.
    pub results: usize,
    /// How many of these no earlier pass had.
    pub new: usize,
    /// Its last checkpoint.
    pub last: Option<Status>,
    /// Its confidence.
    pub confidence: f64,
}

/// What follows after some passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another pass.
    Pass(PassOptions),
    /// The result is that of the last pass.
    Stop(Stop),
}

/// Why there is no other pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The last one is not weak.
    Strong,
    /// The last one was wider than the one before, and found nothing else.
    NothingAdded,
    /// There is nothing wider.
    Widest,
    /// There were as many passes as are allowed.
    MaxIterations,
}

/// Decides what follows. `first` is how the first pass looks.
#[must_use]
pub fn next_pass(config: &IntentLoopConfig, first: PassOptions, passes: &[PassSummary]) -> Next {
    let Some(last) = passes.last() else { return Next::Pass(first) };
    if !is_weak(config, last) {
        return Next::Stop(Stop::Strong);
    }
    if passes.len() >= config.max_iterations.max(1) as usize {
        return Next::Stop(Stop::MaxIterations);
    }
    if passes.len() > 1 && last.new == 0 {
        return Next::Stop(Stop::NothingAdded);
    }
    let wider = PassOptions { depth: Depth::Deep, limit: last.options.limit.saturating_mul(WIDER).min(MAX_LIMIT) };
    if wider == last.options { Next::Stop(Stop::Widest) } else { Next::Pass(wider) }
}

fn is_weak(config: &IntentLoopConfig, pass: &PassSummary) -> bool {
    pass.results < ENOUGH
        || matches!(pass.last, Some(Status::Miss | Status::Error))
        || pass.confidence < config.confidence_threshold
}
