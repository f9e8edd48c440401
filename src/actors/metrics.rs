//! The board's metrics, all of them, through the `metrics` facade with the feature of that name. Install a recorder before the
//! board starts; without one they cost almost nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use foldhash::HashMap;
use parking_lot::{Mutex, RwLock};

use crate::messages::{AgentName, Outcome, Refusal, RunEvent, RunId, Verdict};
use crate::supervision::runs::run::Run;

use super::instruments::{self, Counter, Histogram};

/// Runs that ended, by `outcome`. Counter.
pub(crate) const RUNS: &str = "callboard_runs_total";
/// Handoffs and delegations of a run, recorded at its end. Histogram.
pub(crate) const HANDOFFS_PER_RUN: &str = "callboard_handoffs_per_run";
/// Turns that ended, by `agent`. Counter.
pub(crate) const TURNS: &str = "callboard_turns_total";
/// Attempts that failed, by `agent`. Counter.
pub(crate) const FAILED_ATTEMPTS: &str = "callboard_failed_attempts_total";
/// Tokens that providers reported, by `agent`. Counter.
pub(crate) const TOKENS: &str = "callboard_tokens_total";
/// From a turn's admission to its beginning, by `agent`, in seconds. Histogram.
pub(crate) const HANDOFF_LATENCY: &str = "callboard_handoff_latency_seconds";
/// Refusals, by `refusal` (`WaitCycle` counts the circles of waits). Counter.
pub(crate) const REFUSALS: &str = "callboard_refusals_total";
/// Letters of other boards that were refused, by `reason`. Counter.
pub(crate) const LETTERS_REFUSED: &str = "callboard_letters_refused_total";
/// Rebuilds of an agent's value, by `agent`. Gauge.
pub(crate) const RESTARTS: &str = "callboard_agent_restarts";
/// Ready turns that wait for an agent, by `agent`. Gauge.
pub(crate) const MAILBOX_DEPTH: &str = "callboard_mailbox_depth";
/// An agent's circuit breaker: 0 closed, 1 half-open, 2 open, by `agent`. Gauge.
pub(crate) const BREAKER_STATE: &str = "callboard_breaker_state";
/// Permits of the pool that nobody holds. Gauge.
pub(crate) const FREE_PERMITS: &str = "callboard_free_permits";

/// The key of a call: its run, its turn, and its number in the turn.
type Call = (RunId, u32, u32);

/// The counters that events change; each is looked up once.
#[derive(Default)]
pub(crate) struct Counters {
    agents: RwLock<HashMap<AgentName, Arc<AgentCounters>>>,
    /// Runs that ended, by outcome ([`place_of`]).
    outcomes: [OnceLock<Counter>; 5],
    /// The counters of calls under way: a call may report just as its turn ends.
    calls: Mutex<BTreeMap<Call, Arc<AgentCounters>>>,
}

struct AgentCounters {
    turns: Counter,
    failed_attempts: Counter,
    tokens: Counter,
}

impl Counters {
    /// No counters yet. The recorder of the process gets the descriptions of all metrics.
    pub(crate) fn described() -> Self {
        for (name, text) in [
            (RUNS, "Runs that ended, by outcome."),
            (TURNS, "Turns that ended, by agent."),
            (FAILED_ATTEMPTS, "Attempts that failed, by agent."),
            (TOKENS, "Tokens that providers reported, by agent."),
            (REFUSALS, "Refusals, by kind."),
            (LETTERS_REFUSED, "Letters of other boards that were refused, by reason."),
        ] {
            instruments::describe_counter(name, text);
        }
        for (name, text) in [
            (HANDOFFS_PER_RUN, "Handoffs and delegations of a run."),
            (HANDOFF_LATENCY, "Seconds from a turn's admission to its beginning, by agent."),
        ] {
            instruments::describe_histogram(name, text);
        }
        for (name, text) in [
            (RESTARTS, "How often an agent was rebuilt."),
            (MAILBOX_DEPTH, "Ready turns that wait for an agent."),
            (BREAKER_STATE, "An agent's circuit breaker: 0 closed, 1 half-open, 2 open."),
            (FREE_PERMITS, "Permits of the pool that nobody holds."),
        ] {
            instruments::describe_gauge(name, text);
        }
        Self::default()
    }

    /// The counters of an agent. Those of the agents that it makes are its own: a model chooses their names.
    fn agent(&self, name: &AgentName) -> Arc<AgentCounters> {
        if name.maker().is_some() {
            return self.agent(&name.host_name());
        }
        if let Some(counters) = self.agents.read().get(name) {
            return Arc::clone(counters);
        }
        let label = || name.to_string();
        let counters = Arc::new(AgentCounters {
            turns: instruments::counter(TURNS, "agent", label()),
            failed_attempts: instruments::counter(FAILED_ATTEMPTS, "agent", label()),
            tokens: instruments::counter(TOKENS, "agent", label()),
        });
        self.agents.write().insert(name.clone(), Arc::clone(&counters));
        counters
    }

    /// Counts a journaled event.
    pub(crate) fn count(&self, run: &Run, event: &RunEvent) {
        match event {
            RunEvent::TurnEnded { agent, verdict, .. } => {
                self.agent(agent).turns.increment(1);
                count_refusal(verdict);
            }
            RunEvent::TurnFailed { agent, .. } => {
                let counters = self.agent(agent);
                counters.turns.increment(1);
                counters.failed_attempts.increment(1);
            }
            RunEvent::AttemptFailed { turn, .. } => {
                if let Some(turn) = run.turn(*turn) {
                    self.agent(turn.agent()).failed_attempts.increment(1);
                }
            }
            RunEvent::Reserved { turn: turn_number, ordinal, verdict, .. } => {
                count_refusal(verdict);
                if let (Some(turn), Verdict::Admitted(_)) = (run.turn(*turn_number), verdict) {
                    let call = (run.id(), *turn_number, *ordinal);
                    self.calls.lock().insert(call, self.agent(turn.agent()));
                }
            }
            RunEvent::Settled { turn, ordinal, usage, .. } => {
                let call = self.calls.lock().remove(&(run.id(), *turn, *ordinal));
                if let (Some(counters), Some(usage)) = (call, usage) {
                    counters.tokens.increment(usage.total());
                }
            }
            RunEvent::Delegated { verdict, .. } | RunEvent::Decided { verdict, .. } => count_refusal(verdict),
            _ => {}
        }
    }

    /// Counts the end of a run.
    pub(crate) fn ended(&self, run: &Run) {
        let mut calls = self.calls.lock();
        let of_run = (run.id(), 0, 0)..=(run.id(), u32::MAX, u32::MAX);
        while let Some(call) = calls.range(of_run.clone()).next().map(|(call, _)| *call) {
            calls.remove(&call);
        }
        drop(calls);
        let Some(result) = run.result() else { return };
        let outcome = &result.outcome;
        let counter = || instruments::counter(RUNS, "outcome", outcome.name());
        self.outcomes[place_of(outcome)].get_or_init(counter).increment(1);
        instruments::record(HANDOFFS_PER_RUN, f64::from(result.metrics.handoffs));
    }
}

/// The place of an outcome among the counters of runs.
fn place_of(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Finished => 0,
        Outcome::Failed { .. } => 1,
        Outcome::Refused(_) => 2,
        Outcome::Denied { .. } => 3,
        Outcome::Cancelled { .. } => 4,
    }
}

fn count_refusal(verdict: &Verdict) {
    if let Verdict::Refused(refusal) = verdict {
        count_refused(refusal);
    }
}

/// Counts a refusal that is not an event, such as that of a submission.
pub(crate) fn count_refused(refusal: &Refusal) {
    instruments::counter(REFUSALS, "refusal", refusal.name()).increment(1);
}

/// Counts a letter of another board that was refused.
pub(crate) fn count_refused_letter(reason: &'static str) {
    instruments::counter(LETTERS_REFUSED, "reason", reason).increment(1);
}

/// The histogram of an agent's handoff latency.
pub(crate) fn latency_of(agent: &AgentName) -> Histogram {
    instruments::histogram_of(HANDOFF_LATENCY, agent.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_whose_names_models_choose_have_the_counters_of_their_makers() {
        let (counters, lead) = (Counters::default(), AgentName::new("lead").unwrap());
        let (of_lead, helper) = (counters.agent(&lead), lead.of_made("helper").unwrap());
        assert!(Arc::ptr_eq(&of_lead, &counters.agent(&helper)));
        assert!(Arc::ptr_eq(&of_lead, &counters.agent(&helper.of_made("other").unwrap())));
    }
}
