//! The named reasons why something may not go ahead.

use std::time::Duration;

use callboard_text::{cut, did_you_mean, quoted, visible_lines};
use serde::{Deserialize, Serialize};

use super::{AgentName, Chain, Cost, Wait};

/// Why a handoff, delegation, submission or reservation may not go ahead. A refusal is a value with a name, not a
/// failure: what was asked for has not happened, and the text has what to change. A handoff is refused after its turn has
/// ended, so the output and the update that came with it stand, unless it was denied or named an agent that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The target is already a participant of the chain (SEMANTICS 1).
    #[error("{agent} is already in the delegation chain{}; give the task to an agent outside it", shown(chain))]
    AlreadyInChain {
        /// The agent that the delegation or handoff was to go to.
        agent: AgentName,
        /// The chain of the asking turn; empty if an agent outside any delegation delegates to itself.
        chain: Chain,
    },
    /// The chain is at its greatest depth (SEMANTICS 1).
    #[error("delegation depth {max} is used up{}; split the task differently, or {}", by(chain), raise(self.needed_limit()))]
    MaxDepth {
        /// The limit of the run ([`Limits::depth`](super::Limits::depth)), in steps.
        max: usize,
        /// The chain of the asking turn, which another step would make too long.
        chain: Chain,
    },
    /// The run has used up its handoffs (SEMANTICS 2).
    #[error(
        "the run has used its {max} handoffs and delegations, and {asked} more {} asked for; {}",
        if *asked == 1 { "is" } else { "are" }, raise(self.needed_limit())
    )]
    HandoffLimit {
        /// The limit of the run ([`Limits::handoffs`](super::Limits::handoffs)).
        max: u32,
        /// How many were asked for at once: a fan-out counts each target.
        asked: u32,
    },
    /// The run has as many agents as it may have (SEMANTICS 2).
    #[error(
        "{agent} would be more than the {max} agents that the run may use; {}", raise(self.needed_limit())
    )]
    AgentLimit {
        /// The limit of the run ([`Limits::agents`](super::Limits::agents)).
        max: u32,
        /// The first target beyond the limit.
        agent: AgentName,
    },
    /// The tokens that were asked for do not fit what is left of the budget (SEMANTICS 2).
    #[error(
        "{asked} tokens do not fit the budget of {budget} ({spent} spent{}, {reserved} reserved); {}{}",
        if *unsettled > 0 { format!(", of which {unsettled} by calls that never reported") } else { String::new() },
        if *unsettled > 0 { "settle or release them before the attempt ends, or " } else { "" },
        if *is_delegated { "raise the tokens of the delegation".to_owned() } else { raise(self.needed_limit()) }
    )]
    TokenBudget {
        /// Tokens that may be used in all: the run's limit, or that of the delegation if `is_delegated`.
        budget: u64,
        /// Tokens that are used up, `unsettled` included.
        spent: u64,
        /// The part of `spent` that was set aside for calls that never reported, by attempts that are over.
        unsettled: u64,
        /// Tokens set aside for calls of attempts that are under way.
        reserved: u64,
        /// Tokens that were to be reserved; 1 for a handoff or delegation, which needs a budget that is not used up.
        asked: u64,
        /// The budget is that of a delegation, not the run's.
        is_delegated: bool,
    },
    /// The same handoff with the same content came just before (SEMANTICS 4).
    #[error("{from} has just handed the same content to {to}; change the input or the reason, or end the branch")]
    RepeatedHandoff {
        /// The agent that hands off.
        from: AgentName,
        /// The target, to which that agent has handed the same content within the branch's last handoffs
        /// ([`Limits::repeat_window`](super::Limits::repeat_window)).
        to: AgentName,
    },
    /// The target has failed too often lately (SEMANTICS 3).
    #[error("the circuit breaker of {agent} is open; try again in {retry_after:?} or choose another agent")]
    BreakerOpen {
        /// The target. A dynamic agent shares the breaker of its host.
        agent: AgentName,
        /// How long from now until the breaker may admit a probe; the cooldown of the policy if another turn is the
        /// probe.
        retry_after: Duration,
    },
    /// Waiting would close a circle of waits, a deadlock (SEMANTICS 4).
    #[error("waiting would never end: {}", visible_lines(&shown_cycle(cycle)))]
    WaitCycle {
        /// Every agent and every request in the cycle: each waits for the next one, and the last is the first again.
        cycle: Vec<Wait>,
    },
    /// A person or a policy denied it (SEMANTICS 9).
    #[error("{} was denied by {}{}", cut(action), cut(by), because(reason))]
    Denied {
        /// The kind of the action and what it is done to, such as `handoff to writer`.
        action: String,
        /// The person that denied it, or `policy`.
        by: String,
        /// The reason that was given; may be empty.
        reason: String,
    },
    /// It was not decided in time (SEMANTICS 9).
    #[error("the approval of {} expired before anybody decided", cut(action))]
    ApprovalExpired {
        /// The kind of the action and what it is done to, such as `write_file notes.md`.
        action: String,
    },
    /// A queue is full right now (SEMANTICS 10).
    #[error("{} is overloaded; try again in {retry_after:?}", cut(what))]
    Overloaded {
        /// What is full: `the board`, which has as many runs in flight as it may have, or `agent` and a name, whose
        /// queue is full.
        what: String,
        /// How long to wait before another try; a suggestion, which does not depend on the load.
        retry_after: Duration,
    },
    /// The run was submitted with [`Handoffs::Off`](super::Handoffs::Off). Its agents may delegate.
    #[error("handoffs are switched off for this run; the agent finishes alone, or delegates")]
    HandoffsOff,
    /// An agent may not make another, or not this one (SEMANTICS 13).
    #[error("agent {} cannot be made: {}", quoted(name), visible_lines(why))]
    AgentNotMade {
        /// The name that the agent was to have, or has if it was to be changed or kept.
        name: String,
        /// Why the agent was not made, changed or kept.
        why: String,
    },
    /// No agent has this name, role or capability.
    #[error("no agent has the name, role or capability {}{}", quoted(target), did_you_mean(nearest.as_deref()))]
    UnknownAgent {
        /// The name, role or capability that was asked for.
        target: String,
        /// The most similar name, role or capability of the board; `None` if none is similar.
        nearest: Option<String>,
    },
    /// A command goes to a node that its own node does not declare (SEMANTICS 5).
    #[error(
        "node {} may not go to {}{}; declare it among the `goto` of the node", quoted(node), quoted(target), did_you_mean(nearest.as_deref())
    )]
    UnknownNode {
        /// The node that the command names.
        target: String,
        /// The node that does not declare the target: that of the turn, or of a command to
        /// [`Scope::Parent`](super::Scope::Parent) the node around its workflow.
        node: String,
        /// The most similar declared target; `None` if none is similar.
        nearest: Option<String>,
    },
    /// A loop would begin more often than its author allows (SEMANTICS 7).
    #[error("the loop {} has begun {max} times and is not done; raise its `max`", quoted(node))]
    LoopLimit {
        /// The loop, or the node with which it begins if commands that go back make it.
        node: String,
        /// How many times the loop may begin, and has begun.
        max: u32,
    },
    /// A map was given more items than its author allows (SEMANTICS 2).
    #[error("a map was given {items} items and takes {max}; raise its `max`")]
    MapLimit {
        /// How many items the map takes at most.
        max: u32,
        /// How many items the map was given.
        items: u32,
    },
    /// The agent crashed more often than its restart window allows, or was stopped.
    #[error("agent {agent} does not take work: {}", visible_lines(why))]
    Unavailable {
        /// The agent that takes no work.
        agent: AgentName,
        /// The reason: the agent was stopped, failed too often (with its last error) or is not registered.
        why: String,
    },
    /// The deadline of the run or of the delegation has passed (SEMANTICS 2).
    #[error("the deadline has passed; give the task or the delegation more time with `.deadline(…)`")]
    DeadlinePassed,
    /// The runtime is shutting down and admits nothing new.
    #[error("the board is shutting down and takes no new work")]
    ShuttingDown,
    /// A question was not answered in the time that it had (SEMANTICS 9).
    #[error("nobody answered {} before it expired", cut(question))]
    QuestionExpired {
        /// The question, as JSON text.
        question: String,
    },
    /// What a call may cost does not fit what is left of the run's limit of money, or is not known (SEMANTICS 2).
    #[error("{}", too_expensive(self))]
    CostBudget {
        /// What the run may cost in all ([`Limits::cost`](super::Limits::cost)).
        budget: Cost,
        /// What is spent, `unsettled` included.
        spent: Cost,
        /// The part of `spent` that was set aside for calls that never reported, by attempts that are over.
        unsettled: Cost,
        /// What is set aside for calls of attempts that are under way.
        reserved: Cost,
        /// The most that the call may cost; `None` if that is not known.
        asked: Option<Cost>,
    },
    /// A call does not fit what is left of a limit of the day, or what it may cost is not known (SEMANTICS 2).
    #[error("{}", over_a_day(self))]
    DayLimit {
        /// `the board`, `agent` and a name, or the name of a requester outside the board.
        whose: Box<str>,
        /// The day, as `2026-01-31`.
        day: Box<str>,
        /// How many tokens may be used in a day, or billionths of a dollar.
        limit: u64,
        /// What is used of it, with what boards have set aside for their calls.
        used: u64,
        /// The most that the call may use; `None` if what it may cost is not known.
        asked: Option<u64>,
        /// The limit is one of money.
        is_money: bool,
    },
    /// A call does not fit what is left of what its agent may use in a run, or what it may cost is not known (SEMANTICS 2).
    #[error("{}", over_a_run(self))]
    AgentBudget {
        /// The agent whose turns, and those of agents that it made, are limited.
        agent: AgentName,
        /// How many tokens they may use in a run, or billionths of a dollar.
        limit: u64,
        /// What they have used of it, with what is set aside for calls that have not reported.
        used: u64,
        /// The most that the call may use; `None` if what it may cost is not known.
        asked: Option<u64>,
        /// The limit is one of money.
        is_money: bool,
    },
}

/// The part of the text of [`Refusal::DayLimit`] about whose limit it is, and where that is raised.
fn over_a_day(refusal: &Refusal) -> String {
    let Refusal::DayLimit { whose, day, limit, used, asked, is_money } = refusal else { return String::new() };
    let place = match &**whose {
        "the board" => ("raise", "in [limits] of callboard.toml (Builder::day_limits in Rust)"),
        agent if agent.starts_with("agent ") => ("raise", "in [agent.limits] of its file (AgentSpec::per_day in Rust)"),
        // The limits of a token are not changed.
        _ => ("use another token with a higher", "(`callboard tokens add`)"),
    };
    let whose = cut(whose);
    if !is_money && *limit == 0 {
        return format!("{whose} may use no tokens: its limit of a day is 0, as that of a token that was revoked");
    }
    let text = over(&whose, ("a day", &format!("on {day}"), "per_day"), (*limit, *used, *asked, *is_money), place);
    if asked.is_none() { text } else { format!("{text}, or try again the next day") }
}

fn over_a_run(refusal: &Refusal) -> String {
    let Refusal::AgentBudget { agent, limit, used, asked, is_money } = refusal else { return String::new() };
    let place = ("raise", "in [agent.limits] of its file (AgentSpec::per_run in Rust)");
    over(&format!("agent {agent}"), ("in a run", "in this one", "per_run"), (*limit, *used, *asked, *is_money), place)
}

/// What does not fit a limit of a time, and where that is raised.
fn over(
    whose: &str,
    (time, now, key): (&str, &str, &str),
    (limit, used, asked, is_money): (u64, u64, Option<u64>, bool),
    (verb, place): (&str, &str),
) -> String {
    match (is_money, asked) {
        (true, None) => format!(
            "{whose} may cost {} {time}, and what this may cost is not known: give the model prices",
            Cost(limit)
        ),
        (true, Some(asked)) => {
            let [limit, used, asked] = [limit, used, asked].map(Cost);
            format!(
                "{whose} may cost {limit} {time}, and {now} it has cost or set aside {used}: {asked} more does not fit; {verb} \
                 `cost_{key}` {place}"
            )
        }
        (false, asked) => format!(
            "{whose} may use {limit} tokens {time}, and {now} it has used or set aside {used}: {} more do not fit; {verb} \
             `tokens_{key}` {place}",
            asked.unwrap_or_default()
        ),
    }
}

fn too_expensive(refusal: &Refusal) -> String {
    let Refusal::CostBudget { budget, spent, unsettled, reserved, asked } = refusal else { return String::new() };
    let Some(asked) = asked else {
        return format!(
            "the run may cost {budget}, and what this may cost is not known: give the model prices, or the workflow a `cost` \
             among its limits"
        );
    };
    let (never_reported, settle) = match unsettled {
        Cost(0) => (String::new(), ""),
        _ => (
            format!(", of which {unsettled} by calls that never reported"),
            "settle or release them before the attempt ends, or ",
        ),
    };
    format!(
        "{asked} more does not fit the {budget} that the run may cost ({spent} spent{never_reported}, {reserved} reserved); \
         {settle}{}",
        raise(refusal.needed_limit())
    )
}

fn shown_cycle(cycle: &[Wait]) -> String {
    cycle.iter().map(Wait::to_string).collect::<Vec<_>>().join(" waits for ")
}

/// The lines that raise a limit of a task to what is asked for.
fn raise(needed: Option<(&'static str, u64)>) -> String {
    let Some((limit, to)) = needed else { return String::new() };
    let (json, rust) = match limit {
        "cost" => (format!("\"{}\"", Cost(to).decimal()), format!("Some(Cost({to}))")),
        _ => (to.to_string(), to.to_string()),
    };
    format!(
        "raise `limits.{limit}` of the task to at least this: --limits '{{\"{limit}\": {json}}}' on the command line, \
         .limits(Limits {{ {limit}: {rust}, ..Limits::default() }}) in Rust"
    )
}

/// A chain after a word; nothing if the requester is its only participant.
fn by(chain: &Chain) -> String {
    if chain.is_empty() { String::new() } else { format!(" by {chain}") }
}

fn shown(chain: &Chain) -> String {
    if chain.is_empty() { String::new() } else { format!(" {chain}") }
}

impl Refusal {
    /// The limit of the run that was too low, by the name of its field in [`Limits`](super::Limits), and how high it has to be for
    /// what was asked; `cost` in billionths of a dollar. `None` if no limit of the run was why.
    #[must_use]
    pub fn needed_limit(&self) -> Option<(&'static str, u64)> {
        match self {
            Self::MaxDepth { max, .. } => Some(("depth", *max as u64 + 1)),
            Self::HandoffLimit { max, asked } => Some(("handoffs", u64::from(max.saturating_add(*asked)))),
            Self::AgentLimit { max, .. } => Some(("agents", u64::from(max.saturating_add(1)))),
            Self::TokenBudget { spent, reserved, asked, is_delegated: false, .. } => {
                Some(("tokens", spent.saturating_add(*reserved).saturating_add(*asked)))
            }
            Self::CostBudget { spent, reserved, asked: Some(asked), .. } => {
                Some(("cost", spent.0.saturating_add(reserved.0).saturating_add(asked.0)))
            }
            Self::DayLimit { .. }
            | Self::AgentBudget { .. }
            | Self::CostBudget { asked: None, .. }
            | Self::TokenBudget { is_delegated: true, .. }
            | Self::AlreadyInChain { .. }
            | Self::RepeatedHandoff { .. }
            | Self::BreakerOpen { .. }
            | Self::WaitCycle { .. }
            | Self::Denied { .. }
            | Self::ApprovalExpired { .. }
            | Self::Overloaded { .. }
            | Self::HandoffsOff
            | Self::AgentNotMade { .. }
            | Self::UnknownAgent { .. }
            | Self::UnknownNode { .. }
            | Self::LoopLimit { .. }
            | Self::MapLimit { .. }
            | Self::Unavailable { .. }
            | Self::DeadlinePassed
            | Self::ShuttingDown
            | Self::QuestionExpired { .. } => None,
        }
    }

    /// Whether a person or a policy denied it, or it was not answered in time.
    #[must_use]
    pub const fn is_denial(&self) -> bool {
        matches!(self, Self::Denied { .. } | Self::ApprovalExpired { .. })
    }

    /// The variant's name, for metrics and for programs that read events.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::AlreadyInChain { .. } => "AlreadyInChain",
            Self::MaxDepth { .. } => "MaxDepth",
            Self::HandoffLimit { .. } => "HandoffLimit",
            Self::AgentLimit { .. } => "AgentLimit",
            Self::TokenBudget { .. } => "TokenBudget",
            Self::RepeatedHandoff { .. } => "RepeatedHandoff",
            Self::BreakerOpen { .. } => "BreakerOpen",
            Self::WaitCycle { .. } => "WaitCycle",
            Self::Denied { .. } => "Denied",
            Self::ApprovalExpired { .. } => "ApprovalExpired",
            Self::Overloaded { .. } => "Overloaded",
            Self::UnknownAgent { .. } => "UnknownAgent",
            Self::UnknownNode { .. } => "UnknownNode",
            Self::LoopLimit { .. } => "LoopLimit",
            Self::MapLimit { .. } => "MapLimit",
            Self::Unavailable { .. } => "Unavailable",
            Self::HandoffsOff => "HandoffsOff",
            Self::AgentNotMade { .. } => "AgentNotMade",
            Self::DeadlinePassed => "DeadlinePassed",
            Self::ShuttingDown => "ShuttingDown",
            Self::QuestionExpired { .. } => "QuestionExpired",
            Self::CostBudget { .. } => "CostBudget",
            Self::DayLimit { .. } => "DayLimit",
            Self::AgentBudget { .. } => "AgentBudget",
        }
    }
}

fn because(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(": {}", visible_lines(reason)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Complexity, Limits};

    #[test]
    fn a_depth_of_zero_is_used_up_by_no_chain() {
        let text = Refusal::MaxDepth { max: 0, chain: Chain::default() }.to_string();
        assert!(text.starts_with("delegation depth 0 is used up; split the task differently, or raise "), "{text}");
    }

    #[test]
    fn a_refused_limit_names_the_line_that_raises_it_far_enough() {
        let usual = Limits::of(Complexity::Complex);
        let refusal = Refusal::HandoffLimit { max: usual.handoffs, asked: 2 };
        assert_eq!(
            refusal.to_string(),
            "the run has used its 5 handoffs and delegations, and 2 more are asked for; raise `limits.handoffs` of the task to at least this: \
             --limits '{\"handoffs\": 7}' on the command line, .limits(Limits { handoffs: 7, ..Limits::default() }) in Rust"
        );
        let refusal = Refusal::AgentLimit { max: usual.agents, agent: AgentName::new("sixth").unwrap() };
        let text = refusal.to_string();
        assert!(text.contains("--limits '{\"agents\": 6}'") && text.contains("Limits { agents: 6, .."), "{text}");
        // What stands between the quotes is what the command line takes.
        let json = text.split('\'').nth(1).unwrap();
        let limits: Limits = serde_json::from_str(json).unwrap();
        assert_eq!(limits, Limits { agents: 6, ..usual });
        let tokens = |is_delegated| Refusal::TokenBudget {
            budget: 10,
            spent: 6,
            unsettled: 0,
            reserved: 1,
            asked: 5,
            is_delegated,
        };
        let needed =
            [refusal, tokens(false), tokens(true), Refusal::DeadlinePassed].map(|refusal| refusal.needed_limit());
        assert_eq!(needed, [Some(("agents", 6)), Some(("tokens", 12)), None, None]);
    }
}
