//! The guard: whether a handoff or delegation may go ahead (SEMANTICS 1 to 4). Pure; the cheapest check comes first.
//!
//! The order is: the run's switch, chain, depth, handoff limit, agent limit, budget, repeated handoff, breaker, wait-for cycle, approval.
//! The reference model of the whole order is `rules/reference.rs`; `reference.rs` beside this file has the model of chains alone.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::env::Mutant;
use crate::messages::{AgentName, Chain, Command, Consent, Handoffs, Json, Limits, POLICY, Refusal, RequestId, TurnId};

use super::budget::Budget;
use super::facts::AdmissionFacts;
use super::requests::RequestKey;
use super::small_map::SmallSet;
use super::wait_for::Waiting;

/// The kind of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind<'a> {
    /// Control passes to one agent; the handoff is compared with the branch's last ones.
    Handoff {
        /// The hash of input and update.
        fingerprint: Fingerprint,
        /// The branch's last handoffs, oldest first.
        recent: &'a [Handoff],
    },
    /// Control passes to several agents at once; their handoffs are not compared.
    FanOut,
    /// A turn delegates a task and waits for the answer.
    Delegation,
}

/// A hash over the canonical form of what a handoff carries.
pub(crate) type Fingerprint = u64;

/// The hash by which two handoffs are compared: canonical input and update, without the channels that the runtime or every turn
/// writes.
#[must_use]
pub(crate) fn fingerprint(input: &Json, command: &Command) -> Fingerprint {
    const LEFT_OUT: [&str; 3] = ["metrics", "workflow_state", "messages"];
    Json::with_scratch(|text| {
        // Of what comes before the end of a long text, which is not copied.
        let mut begun: Option<Box<Xxh3>> = None;
        let mut add = |value: &Json, text: &mut String| match value.as_long_plain_text() {
            None => value.write_canonical(text),
            Some(long) => {
                let begun = begun.get_or_insert_default();
                text.push('"');
                begun.update(text.as_bytes());
                begun.update(long.as_bytes());
                text.clear();
                text.push('"');
            }
        };
        add(input, text);
        for write in command.update.writes().iter().filter(|write| !LEFT_OUT.contains(&&*write.channel)) {
            text.push('\n');
            text.push_str(&write.channel);
            text.push('=');
            add(&write.value, text);
        }
        match begun {
            None => xxh3_64(text.as_bytes()),
            Some(mut begun) => {
                begun.update(text.as_bytes());
                begun.digest()
            }
        }
    })
}

/// A handoff that a branch remembers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handoff {
    /// Who handed off.
    pub from: AgentName,
    /// To whom.
    pub to: AgentName,
    /// What it carried.
    pub fingerprint: Fingerprint,
}

/// A request, and the facts of its run that the guard needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// What is asked for.
    pub kind: Kind<'a>,
    /// Who asks.
    pub from: &'a AgentName,
    /// Who would take it, in order.
    pub targets: &'a [AgentName],
    /// The turn that the first target would get; the others get the numbers after it.
    pub first: TurnId,
    /// The asking turn's chain.
    pub chain: &'a Chain,
    /// The delegation that waits for the new turns, and the agent of the turn that made it; `None` if no turn would wait.
    ///
    /// For a [`Kind::Delegation`] it is the request itself, and `from`. For a handoff it is the delegation that the asking
    /// turn's branch works on, because the answer will then come from the target.
    pub waiter: Option<(RequestId, &'a AgentName)>,
    /// Whether control may be passed on at all.
    pub switch: Handoffs,
    /// The run's limits.
    pub limits: &'a Limits,
    /// Handoffs that were admitted already.
    pub handoffs: u32,
    /// Agents that took part already.
    pub agents: &'a SmallSet<AgentName>,
    /// The run's tokens.
    pub budget: &'a Budget,
    /// The budget of the delegation that the asking turn works on, if it has one.
    pub sub_budget: Option<RequestKey>,
    /// The approval policy's answer; `Auto` once a person has approved.
    pub consent: &'a Consent,
    /// The clock's monotonic reading.
    pub now: Duration,
}

/// The guard's answer to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Admitted; the turns are counted at the breakers and the waits are added.
    Admit,
    /// It may not.
    Refuse(Refusal),
    /// A person decides; nothing is changed.
    Park,
}

/// Decides, and in the same step makes the changes of an admission.
#[must_use]
pub(crate) fn admit(request: &Request<'_>, facts: &mut AdmissionFacts) -> Admission {
    let admission = would_admit(request, facts);
    if admission == Admission::Admit {
        for (number, target) in (request.first.number..).zip(request.targets) {
            facts.admit(TurnId { number, ..request.first }, target, request.waiter);
        }
    }
    admission
}

/// The result of [`admit`], without its changes.
#[must_use]
pub(crate) fn would_admit(request: &Request<'_>, facts: &AdmissionFacts) -> Admission {
    match (check(request, facts), request.consent) {
        (Err(refusal), _) => Admission::Refuse(refusal),
        (Ok(()), Consent::Auto) => Admission::Admit,
        (Ok(()), Consent::Ask | Consent::AskWithin(_) | Consent::AskOf { .. }) => Admission::Park,
        (Ok(()), Consent::Deny) => Admission::Refuse(denied(request)),
    }
}

fn denied(request: &Request<'_>) -> Refusal {
    let what = match request.kind {
        Kind::Delegation => "delegation",
        Kind::Handoff { .. } | Kind::FanOut => "handoff",
    };
    let action = format!("{what} to {}", names(request.targets));
    Refusal::Denied { action, by: POLICY.into(), reason: String::new() }
}

fn check(request: &Request<'_>, facts: &AdmissionFacts) -> Result<(), Refusal> {
    check_switch(request)?;
    check_chain(request)?;
    check_limits(request)?;
    check_repetition(request)?;
    check_breakers(request, facts)?;
    check_cycle(request, facts)
}

fn check_switch(request: &Request<'_>) -> Result<(), Refusal> {
    match (request.switch, request.kind) {
        (Handoffs::Off, Kind::Handoff { .. } | Kind::FanOut) => Err(Refusal::HandoffsOff),
        (Handoffs::Off, Kind::Delegation) | (Handoffs::OrAlone | Handoffs::Strict, _) => Ok(()),
    }
}

fn check_chain(request: &Request<'_>) -> Result<(), Refusal> {
    let Request { chain, from, limits, .. } = *request;
    let is_delegation = matches!(request.kind, Kind::Delegation);
    for target in request.targets {
        let is_taken = if is_delegation { chain.would_loop(target, from) } else { chain.is_waiting(target) };
        if is_taken {
            return Err(Refusal::AlreadyInChain { agent: target.clone(), chain: chain.clone() });
        }
    }
    if is_delegation && chain.is_max_depth(limits.depth) {
        return Err(Refusal::MaxDepth { max: limits.depth, chain: chain.clone() });
    }
    Ok(())
}

fn check_limits(request: &Request<'_>) -> Result<(), Refusal> {
    let Request { limits, targets, agents, .. } = *request;
    let asked = u32::try_from(targets.len()).unwrap_or(u32::MAX);
    if request.handoffs.saturating_add(asked) > limits.handoffs {
        return Err(Refusal::HandoffLimit { max: limits.handoffs, asked });
    }
    // Fast path: most requests are within the limit even if all targets are new and differ.
    if agents.len() + targets.len() > limits.agents as usize {
        let mut newcomers: BTreeSet<&AgentName> = BTreeSet::new();
        // Of targets in a row that are one agent, the first counts.
        let rows = targets.chunk_by(|one, next| one == next).filter_map(<[_]>::first);
        for target in rows.filter(|target| !agents.contains(*target)) {
            newcomers.insert(target);
            if agents.len() + newcomers.len() > limits.agents as usize {
                return Err(Refusal::AgentLimit { max: limits.agents, agent: target.clone() });
            }
        }
    }
    request.budget.check(request.sub_budget, 1)
}

fn check_repetition(request: &Request<'_>) -> Result<(), Refusal> {
    let Kind::Handoff { fingerprint, recent } = request.kind else { return Ok(()) };
    let repeats =
        |target: &AgentName| {
            recent.iter().rev().take(request.limits.repeat_window).any(|handoff| {
                handoff.fingerprint == fingerprint && handoff.from == *request.from && handoff.to == *target
            })
        };
    match request.targets.iter().find(|target| repeats(target)) {
        Some(target) => Err(Refusal::RepeatedHandoff { from: request.from.clone(), to: target.clone() }),
        None => Ok(()),
    }
}

/// Each target's breaker must admit a turn. A half-open breaker admits one probe, so a fan-out with two turns for its agent is
/// refused as a whole.
fn check_breakers(request: &Request<'_>, facts: &AdmissionFacts) -> Result<(), Refusal> {
    if facts.breakers.is_empty() {
        return Ok(());
    }
    // A dynamic agent shares the breaker of its host, and the host's own turn may be the probe.
    let shares = |target: &&AgentName| target.maker().is_some() && target.host() == request.from.host();
    for target in request.targets.iter().filter(|target| !shares(target)) {
        facts
            .check_breaker(target, request.now)
            .map_err(|retry_after| Refusal::BreakerOpen { agent: target.clone(), retry_after })?;
    }
    let [_, _, ..] = request.targets else { return Ok(()) };
    let mut probed = BTreeSet::new();
    for target in request.targets {
        let is_half_open = facts
            .breakers
            .get(target.host())
            .is_some_and(|breaker| breaker.state() != super::breaker::BreakerState::Closed);
        if is_half_open && !probed.insert(target.host()) {
            return Err(Refusal::BreakerOpen { agent: target.clone(), retry_after: facts.policy.cooldown });
        }
    }
    Ok(())
}

fn check_cycle(request: &Request<'_>, facts: &AdmissionFacts) -> Result<(), Refusal> {
    let Some((asked, agent)) = request.waiter else { return Ok(()) };
    if facts.non_reentrant.is_empty() || Mutant::WaitInCircles.is_injected() {
        return Ok(());
    }
    let waiter = Waiting::Turn(asked.turn, agent.clone());
    for target in request.targets.iter().filter(|target| facts.non_reentrant.contains(*target)) {
        if let Some(path) = facts.waits.path(&Waiting::Slot(target.clone()), &waiter) {
            let cycle = [waiter.by(Some(asked))].into_iter().chain(path).collect();
            return Err(Refusal::WaitCycle { cycle });
        }
    }
    Ok(())
}

fn names(agents: &[AgentName]) -> String {
    agents.iter().map(AgentName::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use super::super::breaker::Signal;
    use super::*;
    use crate::messages::{RunId, Wait};

    fn agent(name: &str) -> AgentName {
        AgentName::new(name).unwrap()
    }

    fn turn(number: u32) -> TurnId {
        TurnId { run: RunId(uuid::Uuid::nil()), number }
    }

    /// A request that would be admitted; each test changes one thing in it.
    struct Case {
        from: AgentName,
        targets: Vec<AgentName>,
        chain: Chain,
        switch: Handoffs,
        limits: Limits,
        handoffs: u32,
        agents: SmallSet<AgentName>,
        budget: Budget,
        recent: Vec<Handoff>,
        facts: AdmissionFacts,
        consent: Consent,
    }

    impl Default for Case {
        fn default() -> Self {
            Self {
                from: agent("a"),
                targets: vec![agent("b")],
                chain: Chain::default(),
                switch: Handoffs::default(),
                limits: Limits::default(),
                handoffs: 0,
                agents: SmallSet::from_iter([agent("a")]),
                budget: Budget::new(10),
                recent: Vec::new(),
                facts: AdmissionFacts::default(),
                consent: Consent::Auto,
            }
        }
    }

    impl Case {
        fn ask(&mut self, kind: Kind<'_>) -> Admission {
            let request = Request {
                kind,
                from: &self.from,
                targets: &self.targets,
                first: turn(100),
                chain: &self.chain,
                waiter: matches!(kind, Kind::Delegation)
                    .then_some((RequestId { turn: turn(1), ordinal: 4 }, &self.from)),
                switch: self.switch,
                limits: &self.limits,
                handoffs: self.handoffs,
                agents: &self.agents,
                budget: &self.budget,
                sub_budget: None,
                consent: &self.consent,
                now: Duration::ZERO,
            };
            let probed = would_admit(&request, &self.facts);
            let answer = admit(&request, &mut self.facts);
            assert_eq!(probed, answer, "a question before it has the same answer");
            answer
        }

        fn handoff(&mut self) -> &'static str {
            let recent = self.recent.clone();
            named(self.ask(Kind::Handoff { fingerprint: 7, recent: &recent }))
        }

        fn delegation(&mut self) -> &'static str {
            named(self.ask(Kind::Delegation))
        }
    }

    fn named(answer: Admission) -> &'static str {
        match answer {
            Admission::Admit => "Admit",
            Admission::Refuse(refusal) => refusal.name(),
            Admission::Park => "Park",
        }
    }

    #[test]
    fn what_is_switched_off_is_refused_before_all_else_and_delegations_are_not() {
        let mut case = Case { switch: Handoffs::Off, handoffs: u32::MAX, ..Case::default() };
        let handoff = Kind::Handoff { fingerprint: 0, recent: &[] };
        assert_eq!(case.ask(handoff), Admission::Refuse(Refusal::HandoffsOff));
        assert_eq!(case.ask(Kind::FanOut), Admission::Refuse(Refusal::HandoffsOff));
        case.handoffs = 0;
        assert_eq!(case.ask(Kind::Delegation), Admission::Admit);
    }

    #[test]
    fn a_delegation_may_not_return_to_anybody_in_the_chain_but_a_handoff_may_unless_they_wait() {
        let chain = Chain::default().add_step(&agent("lead"), &agent("a"), "task");
        let case = |target: &str| Case { targets: vec![agent(target)], chain: chain.clone(), ..Case::default() };
        assert_eq!(case("lead").delegation(), "AlreadyInChain");
        assert_eq!(case("a").delegation(), "AlreadyInChain");
        assert_eq!(case("b").delegation(), "Admit");
        assert_eq!(case("lead").handoff(), "AlreadyInChain");
        assert_eq!(case("a").handoff(), "Admit");
    }

    #[test]
    fn three_steps_are_allowed_and_the_fourth_is_not() {
        let mut chain = Chain::default();
        for (step, expected) in ["Admit", "Admit", "Admit", "MaxDepth"].into_iter().enumerate() {
            let from = agent(&format!("x{step}"));
            let mut case = Case { from: from.clone(), chain: chain.clone(), ..Case::default() };
            assert_eq!(case.delegation(), expected, "step {step}");
            assert_eq!(case.handoff(), "Admit", "a handoff keeps its chain");
            chain = chain.add_step(&from, &agent(&format!("x{}", step + 1)), "task");
        }
    }

    #[test]
    fn the_limit_itself_is_allowed_and_the_next_one_is_refused() {
        let at = |handoffs| Case { handoffs, ..Case::default() }.handoff();
        assert_eq!((at(4), at(5)), ("Admit", "HandoffLimit"));
        let wide = |count: usize| {
            let targets = (0..count).map(|_| agent("a")).collect();
            named(Case { targets, ..Case::default() }.ask(Kind::FanOut))
        };
        assert_eq!((wide(5), wide(6)), ("Admit", "HandoffLimit"), "a fan-out counts each target");
        let crowd = |count: usize| {
            let agents = (0..count).map(|n| agent(&format!("x{n}"))).collect();
            Case { agents, ..Case::default() }
        };
        assert_eq!((crowd(4).handoff(), crowd(5).handoff()), ("Admit", "AgentLimit"));
        let mut known = crowd(5);
        known.targets = vec![agent("x3")];
        assert_eq!(known.handoff(), "Admit", "an agent counts once");
        assert_eq!(Case { budget: Budget::new(0), ..Case::default() }.handoff(), "TokenBudget");
    }

    #[test]
    fn a_fan_out_may_bring_in_as_many_newcomers_as_there_is_room_for() {
        let known: Vec<AgentName> = (0..4).map(|number| agent(&format!("x{number}"))).collect();
        let asked = |targets: &[&str]| {
            let targets = targets.iter().map(|name| agent(name)).collect();
            named(Case { agents: known.iter().cloned().collect(), targets, ..Case::default() }.ask(Kind::FanOut))
        };
        assert_eq!(asked(&["x0", "new"]), "Admit", "only one of them is new");
        assert_eq!(asked(&["new", "x0", "new"]), "Admit", "one newcomer twice");
        assert_eq!(asked(&["x0", "new", "newer"]), "AgentLimit");
    }

    #[test]
    fn each_turn_of_a_fan_out_takes_a_place_of_its_own() {
        let mut case = Case { targets: vec![agent("b"), agent("c")], ..Case::default() };
        // The tickets of breakers that have never opened are all the same, and are not kept.
        case.facts.policy.cooldown = Duration::ZERO;
        for target in &case.targets {
            for signal in [Signal::Failure, Signal::Failure, Signal::Failure, Signal::Success] {
                case.facts.admit(turn(7), target, None);
                case.facts.close(turn(7), target, None, signal, Duration::ZERO);
            }
        }
        assert!(case.facts.tickets.is_empty(), "{:?}", case.facts);
        assert_eq!(named(case.ask(Kind::FanOut)), "Admit");
        let mut turns: Vec<u32> = case.facts.tickets.keys().map(|turn| turn.number).collect();
        turns.sort_unstable();
        assert_eq!(turns, [100, 101]);
    }

    #[test]
    fn a_half_open_breaker_takes_one_turn_of_a_fan_out() {
        let asked = |failures: usize, targets: [&str; 2]| {
            let mut case = Case { targets: targets.map(agent).to_vec(), ..Case::default() };
            case.facts.policy.cooldown = Duration::ZERO;
            for _ in 0..failures {
                case.facts.admit(turn(7), &agent("b"), None);
                case.facts.close(turn(7), &agent("b"), None, Signal::Failure, Duration::ZERO);
            }
            named(case.ask(Kind::FanOut))
        };
        assert_eq!(asked(3, ["b", "c"]), "Admit");
        assert_eq!(asked(3, ["b", "b"]), "BreakerOpen", "one of them would not be the probe");
        assert_eq!(asked(2, ["b", "b"]), "Admit", "it has not opened");
    }

    #[test]
    fn the_same_handoff_among_the_last_three_is_refused() {
        let other = |n| Handoff { from: agent("a"), to: agent("b"), fingerprint: n };
        let same = || other(7);
        let case = |recent| Case { recent, ..Case::default() }.handoff();
        assert_eq!(case(vec![same(), other(1), other(2)]), "RepeatedHandoff");
        assert_eq!(case(vec![same(), other(1), other(2), other(3)]), "Admit");
        assert_eq!(case(vec![Handoff { from: agent("c"), ..same() }]), "Admit");
    }

    #[test]
    fn a_long_text_has_the_hash_of_its_canonical_form() {
        let long = "x".repeat(100_000);
        let command = Command::update("kept", &long).with("small", 1).with("escaped", format!("{long}\n"));
        let text = format!("\"{long}\"\nkept=\"{long}\"\nsmall=1\nescaped=\"{long}\\n\"");
        assert_eq!(fingerprint(&Json::from(long), &command), xxh3_64(text.as_bytes()));
    }

    #[test]
    fn an_open_breaker_refuses_and_a_fan_out_is_admitted_whole_or_not_at_all() {
        let mut case = Case { targets: vec![agent("c"), agent("b")], ..Case::default() };
        for _ in 0..3 {
            case.facts.admit(turn(7), &agent("b"), None);
            case.facts.close(turn(7), &agent("b"), None, Signal::Failure, Duration::ZERO);
        }
        assert_eq!(named(case.ask(Kind::FanOut)), "BreakerOpen");
        assert!(!case.facts.breakers.contains_key(&agent("c")), "nothing was taken for the other target");
    }

    #[test]
    fn waiting_for_a_slot_that_waits_for_the_asker_is_refused_and_names_every_agent_and_request() {
        let mut case = Case::default();
        let holder = Waiting::Turn(turn(9), agent("b"));
        case.facts.non_reentrant.insert(agent("b"));
        case.facts.waits.add(Waiting::Slot(agent("b")), holder.clone(), None);
        assert_eq!(case.delegation(), "Admit");
        let child = Waiting::Turn(turn(100), agent("b"));
        assert!(
            case.facts.waits.path(&Waiting::Turn(turn(1), agent("a")), &child).is_some(),
            "the wait is noted at once"
        );
        let asked = RequestId { turn: turn(9), ordinal: 2 };
        case.facts.waits.add(holder, Waiting::Turn(turn(1), agent("a")), Some(asked));
        let Admission::Refuse(Refusal::WaitCycle { cycle }) = case.ask(Kind::Delegation) else {
            panic!("no cycle found")
        };
        let expected = [
            Wait::Turn { turn: turn(1), agent: agent("a"), request: Some(RequestId { turn: turn(1), ordinal: 4 }) },
            Wait::Slot(agent("b")),
            Wait::Turn { turn: turn(9), agent: agent("b"), request: Some(asked) },
            Wait::Turn { turn: turn(1), agent: agent("a"), request: None },
        ];
        assert_eq!(cycle, expected);
        let run = uuid::Uuid::nil();
        let text = format!(
            "waiting would never end: a (turn {run}/1, request {run}/1.4) waits for the slot of b waits for \
             b (turn {run}/9, request {run}/9.2) waits for a (turn {run}/1)"
        );
        assert_eq!(Refusal::WaitCycle { cycle }.to_string(), text);
    }

    #[test]
    fn a_parked_request_takes_nothing() {
        let mut case = Case { consent: Consent::Ask, ..Case::default() };
        assert_eq!(case.handoff(), "Park");
        assert!(case.facts.breakers.is_empty());
        let mut denied = Case { consent: Consent::Deny, targets: vec![agent("b"), agent("c")], ..Case::default() };
        let Admission::Refuse(refusal) = denied.ask(Kind::FanOut) else { panic!("it was not denied") };
        assert_eq!(refusal.to_string(), "handoff to b, c was denied by policy");
    }
}
