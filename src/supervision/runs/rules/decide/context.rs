//! The inputs of decisions besides the run.

use std::time::Duration;

use crate::env::Now;
use crate::messages::{Backoff, OnUnknown};
use crate::supervision::runs::rules::directory::AgentDirectory;
use crate::supervision::runs::rules::facts::SharedFacts;

/// The facts outside the run that a decision depends on.
pub(crate) struct DecisionContext<'a> {
    /// One reading of the clock for everything that is decided together.
    pub now: Now,
    /// A random number: the nonce of a question or approval, or the jitter of a delay.
    pub random: u64,
    /// The agents of the board.
    pub directory: &'a dyn AgentDirectory,
    /// Breakers and waits.
    pub facts: &'a SharedFacts,
    /// The delays between attempts.
    pub backoff: &'a Backoff,
    /// How long an approval waits if neither policy nor task sets a time.
    pub approval_ttl: Duration,
    /// How long before its expiry people are reminded.
    pub remind_before: Duration,
    /// What follows an unknown outcome if neither tool nor agent sets a rule.
    pub on_unknown: OnUnknown,
    /// The most dynamic agents in one run (SEMANTICS 13).
    pub dynamic_agents: usize,
}
