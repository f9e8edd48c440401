//! `guard`, `decide` and `step` against a small reference model, over random sequences of handoffs, fan-outs and
//! delegations in several runs that share breakers and waits.
//!
//! The model is written from SEMANTICS 1 to 5 with lists and loops: it derives the wait-for graph from the open turns for each
//! question, and shares no structure with the engine. It predicts the answer to each request by the name of the refusal, in the
//! order of the rules; afterwards both must agree on open turns, counters and breakers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::breaker::{BreakerPolicy, BreakerState, Signal};
use super::decide::{DecisionContext, on_delegation, on_outcome, on_parked_decision};
use super::directory::AgentDirectory;
use super::facts::SharedFacts;
use super::requests::{Attempt, RequestKey, TurnOutcome};
use super::retry;
use super::run::{Effect, Run, WorkedOut};
use super::wait_for::Waiting;
use crate::env::Now;
use crate::messages::state::{Schema, StateRules};
use crate::messages::{
    Action, ActionKind, AgentName, Authority, Backoff, Chain, Command, Consent, Decision, Failure, FailureKind, Json,
    Limits, OnUnknown, Order, Pending, Reducer, Refusal, RunEvent, RunId, SendTo, Submission, Task, Terms, Timestamp,
    TraceId, TurnId, Verdict,
};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

const AGENTS: usize = 4;
const RUNS: usize = 4;
const POLICY: BreakerPolicy =
    BreakerPolicy { threshold: 2, cooldown: Duration::from_secs(10), max_cooldown: Duration::from_secs(40) };

/// The fixed configuration of a case.
#[derive(Clone, Debug)]
struct World {
    limits: Limits,
    /// The first agent of each run.
    first: Vec<usize>,
    /// The policy's consent for handoffs to each agent.
    consent: Vec<Consent>,
    non_reentrant: Vec<bool>,
}

/// An operation. Indexes choose among the open turns.
#[derive(Clone, Debug)]
enum Op {
    Handoff { turn: Index, to: usize, content: Content },
    FanOut { turn: Index, to: Vec<usize> },
    Delegate { turn: Index, to: usize },
    End { turn: Index },
    Fail { turn: Index, is_terminal: bool },
    Spend { turn: Index, tokens: u64 },
    Wait { secs: u64 },
    Decide { parked: Index, approved: bool },
}

/// The content of a handoff: two handoffs are equal if input and reason are; `chatter` is not compared.
#[derive(Clone, Copy, Debug)]
struct Content {
    input: u8,
    reason: u8,
    chatter: u8,
}

// ---------------------------------------------------------------------------------------------------------------- model

/// A run and the number of one of its turns.
type Key = (usize, u32);

#[derive(Clone, Debug)]
struct Model {
    world: World,
    now: u64,
    runs: Vec<Counters>,
    turns: BTreeMap<Key, ModelTurn>,
    branches: BTreeMap<Key, ModelBranch>,
    next_branch: u32,
    breakers: Vec<ModelBreaker>,
    /// The turns of each non-reentrant agent; the first has the slot.
    slot_queues: Vec<Vec<Key>>,
}

#[derive(Clone, Debug, Default)]
struct Counters {
    handoffs: u32,
    agents: BTreeSet<usize>,
    spent: u64,
    turns: u32,
}

#[derive(Clone, Debug)]
struct ModelTurn {
    agent: usize,
    branch: u32,
}

#[derive(Clone, Debug)]
struct ModelBranch {
    parent: Parent,
    /// The links from the run's start: which agent gave a task to which.
    chain: Vec<(usize, usize)>,
    handoffs: Vec<(usize, usize, (u8, u8))>,
    parked: Option<Parked>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Parent {
    Root,
    /// A turn that waits for this branch's answer.
    Waits(u32),
    /// A branch that forked into this one.
    Fork(u32),
}

#[derive(Clone, Debug)]
struct Parked {
    turn: u32,
    ask: Ask,
}

/// A request as the guard sees it.
#[derive(Clone, Debug)]
struct Ask {
    from: usize,
    targets: Vec<usize>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Handoff((u8, u8)),
    FanOut,
    /// A delegation by this turn.
    Delegation(u32),
}

#[derive(Clone, Debug, Default)]
struct ModelBreaker {
    failures: u32,
    /// When it opened, and for how long.
    open: Option<(u64, u64)>,
    probe: Option<Key>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Node {
    Turn(Key),
    Slot(usize),
}

impl Model {
    fn new(world: World) -> Self {
        let mut model = Self {
            now: 0,
            runs: vec![Counters::default(); RUNS],
            turns: BTreeMap::new(),
            branches: BTreeMap::new(),
            next_branch: 0,
            breakers: vec![ModelBreaker::default(); AGENTS],
            slot_queues: vec![Vec::new(); AGENTS],
            world,
        };
        for run in 0..RUNS {
            let branch = model.add_branch(run, Parent::Root, Vec::new(), Vec::new());
            model.start(run, branch, model.world.first[run]);
        }
        model
    }

    /// Predicts the guard's answer by name: the first rule that does not hold.
    fn predict(&self, run: usize, branch: u32, ask: &Ask, is_approved: bool) -> &'static str {
        let ModelBranch { chain, handoffs, .. } = &self.branches[&(run, branch)];
        let (limits, counters) = (&self.world.limits, &self.runs[run]);
        let is_delegation = matches!(ask.kind, Kind::Delegation(_));
        let waits_in_chain = |agent: &usize| chain.iter().any(|(from, _)| from == agent);
        let is_in_chain =
            |agent: &usize| *agent == ask.from || chain.iter().any(|(from, to)| from == agent || to == agent);
        if ask.targets.iter().any(|target| if is_delegation { is_in_chain(target) } else { waits_in_chain(target) }) {
            return "AlreadyInChain";
        }
        if is_delegation && chain.len() + 1 > limits.depth {
            return "MaxDepth";
        }
        if counters.handoffs as usize + ask.targets.len() > limits.handoffs as usize {
            return "HandoffLimit";
        }
        let agents: BTreeSet<usize> = counters.agents.iter().chain(&ask.targets).copied().collect();
        if agents.len() > counters.agents.len() && agents.len() > limits.agents as usize {
            return "AgentLimit";
        }
        if counters.spent >= limits.tokens {
            return "TokenBudget";
        }
        if let Kind::Handoff(content) = ask.kind {
            let last = handoffs.iter().rev().take(limits.repeat_window);
            if last.into_iter().any(|handoff| *handoff == (ask.from, ask.targets[0], content)) {
                return "RepeatedHandoff";
            }
        }
        for (position, target) in ask.targets.iter().enumerate() {
            let breaker = &self.breakers[*target];
            let Some((since, cooldown)) = breaker.open else { continue };
            let is_second = ask.targets[..position].contains(target);
            if self.now < since + cooldown || breaker.probe.is_some() || is_second {
                return "BreakerOpen";
            }
        }
        let waiter = match ask.kind {
            Kind::Delegation(turn) => Some((run, turn)),
            Kind::Handoff(_) | Kind::FanOut => self.waiter(run, branch),
        };
        if let Some(waiter) = waiter
            && ask.targets.iter().any(|target| self.world.non_reentrant[*target] && self.reaches(*target, waiter))
        {
            return "WaitCycle";
        }
        let consents = ask.targets.iter().map(|target| self.world.consent[*target].clone());
        let consents: Vec<Consent> = if is_approved || is_delegation { Vec::new() } else { consents.collect() };
        if consents.contains(&Consent::Deny) {
            "Denied"
        } else if consents.contains(&Consent::Ask) {
            "Park"
        } else {
            "Admit"
        }
    }

    /// Whether the turn that waits for the agent's slot waits, directly or not, for the turn.
    fn reaches(&self, agent: usize, turn: Key) -> bool {
        let mut edges = Vec::new();
        for (key, open) in &self.turns {
            if let Some(waiter) = self.waiter(key.0, open.branch) {
                edges.push((Node::Turn(waiter), Node::Turn(*key)));
            }
        }
        for (agent, queue) in self.slot_queues.iter().enumerate() {
            for (position, key) in queue.iter().enumerate() {
                let (turn, slot) = (Node::Turn(*key), Node::Slot(agent));
                edges.push(if position == 0 { (slot, turn) } else { (turn, slot) });
            }
        }
        let mut reached = vec![Node::Slot(agent)];
        loop {
            let next = edges.iter().find(|(from, to)| reached.contains(from) && !reached.contains(to));
            match next {
                Some((_, to)) => reached.push(*to),
                None => return reached.contains(&Node::Turn(turn)),
            }
        }
    }

    /// The turn that waits for the branch's answer.
    fn waiter(&self, run: usize, mut branch: u32) -> Option<Key> {
        loop {
            match self.branches[&(run, branch)].parent {
                Parent::Root => return None,
                Parent::Waits(turn) => return Some((run, turn)),
                Parent::Fork(parent) => branch = parent,
            }
        }
    }

    fn add_branch(
        &mut self,
        run: usize,
        parent: Parent,
        chain: Vec<(usize, usize)>,
        handoffs: Vec<(usize, usize, (u8, u8))>,
    ) -> u32 {
        self.next_branch += 1;
        self.branches.insert((run, self.next_branch), ModelBranch { parent, chain, handoffs, parked: None });
        self.next_branch
    }

    fn start(&mut self, run: usize, branch: u32, agent: usize) {
        let counters = &mut self.runs[run];
        counters.turns += 1;
        counters.agents.insert(agent);
        let key = (run, counters.turns);
        let breaker = &mut self.breakers[agent];
        if breaker.open.is_some() {
            breaker.probe = Some(key);
        }
        self.turns.insert(key, ModelTurn { agent, branch });
        if self.world.non_reentrant[agent] {
            self.slot_queues[agent].push(key);
        }
    }

    /// Applies an answer of the guard to the model, after a turn has ended with the request or asked for a delegation.
    fn follow(&mut self, run: usize, branch: u32, ask: &Ask, answer: &str) {
        match (answer, ask.kind) {
            ("Admit", kind) => {
                self.runs[run].handoffs += ask.targets.len() as u32;
                let ModelBranch { chain, handoffs, .. } = self.branches[&(run, branch)].clone();
                match kind {
                    Kind::Handoff(content) => {
                        let handoffs = &mut self.branches.get_mut(&(run, branch)).unwrap().handoffs;
                        handoffs.push((ask.from, ask.targets[0], content));
                        self.start(run, branch, ask.targets[0]);
                    }
                    Kind::FanOut => {
                        for target in &ask.targets {
                            let child = self.add_branch(run, Parent::Fork(branch), chain.clone(), handoffs.clone());
                            self.start(run, child, *target);
                        }
                    }
                    Kind::Delegation(turn) => {
                        let chain = [chain, vec![(ask.from, ask.targets[0])]].concat();
                        let child = self.add_branch(run, Parent::Waits(turn), chain, Vec::new());
                        self.start(run, child, ask.targets[0]);
                    }
                }
            }
            (_, Kind::Delegation(_)) => {}
            (_, Kind::Handoff(_) | Kind::FanOut) => self.end_branch(run, branch),
        }
    }

    fn close(&mut self, key: Key, signal: Signal) {
        let Some(turn) = self.turns.remove(&key) else { return };
        self.slot_queues[turn.agent].retain(|waiting| *waiting != key);
        let (now, breaker) = (self.now, &mut self.breakers[turn.agent]);
        let was_probe = breaker.probe == Some(key);
        if was_probe {
            breaker.probe = None;
        }
        match signal {
            Signal::Neutral => {}
            // Only its probe closes an open breaker; while it is closed, a success of any turn resets the consecutive failures.
            Signal::Success if breaker.open.is_some() && !was_probe => {}
            Signal::Success => (breaker.failures, breaker.open) = (0, None),
            Signal::Failure => {
                breaker.failures += 1;
                let doubled = breaker.open.map_or(10, |(_, cooldown)| (2 * cooldown).min(40));
                if was_probe || breaker.open.is_none() && breaker.failures >= POLICY.threshold {
                    breaker.open = Some((now, doubled));
                }
            }
        }
        let children =
            self.branches.iter().filter(|((run, _), branch)| *run == key.0 && branch.parent == Parent::Waits(key.1));
        let children: Vec<u32> = children.map(|((_, child), _)| *child).collect();
        children.into_iter().for_each(|child| self.cancel(key.0, child));
    }

    fn cancel(&mut self, run: usize, branch: u32) {
        let here: Vec<Key> = self
            .turns
            .iter()
            .filter(|(key, turn)| key.0 == run && turn.branch == branch)
            .map(|(key, _)| *key)
            .collect();
        here.into_iter().for_each(|key| self.close(key, Signal::Neutral));
        self.branches.remove(&(run, branch));
        let forked = self.branches.iter().filter(|((of, _), child)| *of == run && child.parent == Parent::Fork(branch));
        let forked: Vec<u32> = forked.map(|((_, child), _)| *child).collect();
        forked.into_iter().for_each(|child| self.cancel(run, child));
    }

    /// Ends a branch, and every fork above it of which it was the last open branch.
    fn end_branch(&mut self, run: usize, branch: u32) {
        let Some(ended) = self.branches.remove(&(run, branch)) else { return };
        if let Parent::Fork(parent) = ended.parent
            && !self.branches.iter().any(|((of, _), other)| *of == run && other.parent == ended.parent)
        {
            self.end_branch(run, parent);
        }
    }

    fn breaker_state(&self, agent: usize) -> BreakerState {
        match &self.breakers[agent] {
            ModelBreaker { open: None, .. } => BreakerState::Closed,
            ModelBreaker { probe: Some(_), .. } => BreakerState::HalfOpen,
            ModelBreaker { .. } => BreakerState::Open,
        }
    }

    fn turn(&self, index: &Index) -> Option<(Key, ModelTurn)> {
        let open: Vec<(Key, ModelTurn)> = self.turns.iter().map(|(key, turn)| (*key, turn.clone())).collect();
        (!open.is_empty()).then(|| index.get(&open).clone())
    }

    fn parked(&self) -> Vec<(usize, u32, Parked)> {
        let parked = self.branches.iter().filter_map(|((run, id), branch)| Some((*run, *id, branch.parked.clone()?)));
        parked.collect()
    }
}

// --------------------------------------------------------------------------------------------------------------- engine

/// The engine with a scheduler that only counts slots.
struct Engine {
    runs: Vec<Run>,
    facts: SharedFacts,
    directory: Directory,
    now: Duration,
    requests: u32,
    /// As in the model.
    slot_queues: Vec<Vec<TurnId>>,
}

/// Resolves names, and answers with the policy of the case.
struct Directory(World);

fn agent(number: usize) -> AgentName {
    AgentName::new(&format!("agent-{number}")).unwrap()
}

fn number(name: &str) -> usize {
    name.strip_prefix("agent-").unwrap().parse().unwrap()
}

impl AgentDirectory for Directory {
    fn resolve(&self, target: &str) -> Result<AgentName, Refusal> {
        Ok(agent(number(target)))
    }

    fn check_room(&self, _: &AgentName) -> Result<(), Refusal> {
        Ok(())
    }

    fn consent(&self, _: &AgentName, kind: ActionKind, action: &Action, _: bool) -> Consent {
        match kind {
            // The model's delegations ask for no consent, as by the default policy.
            ActionKind::Delegation => Consent::Auto,
            ActionKind::Handoff | ActionKind::Requested => self.0.consent[number(&action.target)].clone(),
        }
    }

    fn hosts(&self, _: &AgentName) -> bool {
        true
    }

    fn look_alike(&self, _: &str) -> Option<AgentName> {
        None
    }

    fn authority(&self, _: &str) -> Authority {
        Authority::ALL
    }

    fn check_made(&self, _: &str, _: &[Json]) -> Result<(), String> {
        Ok(())
    }
}

impl Engine {
    fn new(world: &World) -> Self {
        let facts = SharedFacts::new(POLICY);
        facts.lock().non_reentrant = (0..AGENTS).filter(|number| world.non_reentrant[*number]).map(agent).collect();
        let (directory, slot_queues) = (Directory(world.clone()), vec![Vec::new(); AGENTS]);
        let mut engine = Self { runs: Vec::new(), facts, directory, now: Duration::ZERO, requests: 0, slot_queues };
        for first in world.first.iter().copied() {
            let id = uuid::Uuid::from_u128(engine.runs.len() as u128);
            let task = Task::new("x").limits(world.limits.clone());
            let submission = Submission {
                cast: Vec::new(),
                run: RunId(id),
                trace: TraceId(id),
                task,
                agent: agent(first),
                chain: Chain::default(),
                at: Timestamp::from_millis(0),
            };
            // Reasons append, so that no join fails.
            let schema = Schema::swarm().channel("reason", Reducer::Append);
            let rules = StateRules { schema: Arc::new(schema), ..StateRules::default() };
            engine.facts.lock().admit(TurnId { run: RunId(id), number: 1 }, &agent(first), None);
            let (run, start) = Run::begin(Arc::new(submission), rules);
            engine.runs.push(run);
            engine.perform(engine.runs.len() - 1, start, None);
        }
        engine
    }

    fn context(&self) -> DecisionContext<'_> {
        static BACKOFF: Backoff = Backoff { first: Duration::ZERO, max: Duration::ZERO };
        let now = Now { monotonic: self.now, wall: self.wall() };
        let approval_ttl = Duration::from_secs(1_000_000);
        DecisionContext {
            now,
            random: 7,
            directory: &self.directory,
            facts: &self.facts,
            backoff: &BACKOFF,
            approval_ttl,
            remind_before: Duration::ZERO,
            on_unknown: OnUnknown::Ask,
            dynamic_agents: 16,
        }
    }

    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(0) + self.now
    }

    /// Ends a turn; returns the guard's answer about its handoff by name.
    fn outcome(&mut self, (run, turn): Key, outcome: TurnOutcome) -> &'static str {
        let (event, worked_out) = on_outcome(&self.runs[run], turn, Attempt::FIRST, outcome, &self.context()).unwrap();
        self.apply(run, &event, worked_out)
    }

    fn delegate(&mut self, (run, number): Key, to: usize) -> &'static str {
        self.requests += 1;
        let name = agent(to);
        let order = Order { input: 1.into(), ..Order::new(name.as_str(), "x") };
        let turn = self.runs[run].turn(number).unwrap();
        let request = RequestKey { turn: number, ordinal: self.requests };
        let event = on_delegation(&self.runs[run], turn, request, order, &self.context());
        self.apply(run, &event, WorkedOut::default())
    }

    fn spend(&mut self, (run, turn): Key, tokens: u64) {
        self.requests += 1;
        let verdict = Verdict::Admitted(Vec::new());
        let reserved = RunEvent::Reserved {
            turn,
            ordinal: self.requests,
            tokens,
            verdict,
            at: None,
            cost: None,
            charged: None,
            is_share: false,
        };
        self.apply(run, &reserved, WorkedOut::default());
    }

    fn decide(&mut self, (run, turn): Key, approved: bool) -> &'static str {
        let parked = |open: Pending| match open {
            Pending::Approval(envelope) if envelope.request.turn.number == turn => Some(envelope),
            _ => None,
        };
        let envelope = self.runs[run].pending().into_iter().find_map(parked).unwrap();
        let decision = Decision {
            approved,
            by: "ann".into(),
            reason: "".into(),
            at: self.wall(),
            terms: Terms::Once,
            votes: Vec::new(),
            via: "".into(),
        };
        let event = on_parked_decision(&self.runs[run], &envelope, decision, &self.context()).unwrap();
        self.apply(run, &event, WorkedOut::default())
    }

    /// Applies an event as the run supervisor does: first the fold, then its effects.
    fn apply(&mut self, run: usize, event: &RunEvent, worked_out: WorkedOut) -> &'static str {
        // Replay computes everything again and must have the same result.
        let mut replayed = self.runs[run].clone();
        let mut effects = Vec::new();
        self.runs[run].step_with(event, worked_out, &mut effects);
        assert_eq!(replayed.step(event), effects);
        assert_eq!(format!("{replayed:?}"), format!("{:?}", self.runs[run]));
        let ender = match event {
            RunEvent::TurnEnded { turn, .. } => Some((*turn, Signal::Success)),
            RunEvent::TurnFailed { turn, failure, .. } => Some((*turn, retry::signal(failure.kind))),
            _ => None,
        };
        self.perform(run, effects, ender);
        let verdict = match event {
            RunEvent::TurnEnded { verdict, .. }
            | RunEvent::Delegated { verdict, .. }
            | RunEvent::Decided { verdict, .. } => verdict,
            _ => return "Nothing",
        };
        match verdict {
            Verdict::Nothing => "Nothing",
            Verdict::Admitted(_) => "Admit",
            Verdict::Refused(refusal) => refusal.name(),
            Verdict::Parked(_) => "Park",
        }
    }

    fn perform(&mut self, run: usize, effects: Vec<Effect>, ender: Option<(u32, Signal)>) {
        for effect in effects {
            match effect {
                Effect::Start(turn) => {
                    let name = self.runs[run].turn(turn).unwrap().agent().clone();
                    if self.directory.0.non_reentrant[number(name.as_str())] {
                        self.slot_queues[number(name.as_str())].push(self.runs[run].turn_id(turn));
                    }
                }
                Effect::Close { turn, agent, waiter } => {
                    let signal =
                        ender.filter(|(ended, _)| *ended == turn).map_or(Signal::Neutral, |(_, signal)| signal);
                    let id = self.runs[run].turn_id(turn);
                    let waiter = waiter.as_ref().map(|(waiter, agent)| (self.runs[run].turn_id(*waiter), agent));
                    self.facts.lock().close(id, &agent, waiter, signal, self.now);
                    let slot = Waiting::Slot(agent.clone());
                    self.facts.lock().waits.remove(&slot, &Waiting::Turn(id, agent.clone()));
                    self.slot_queues[number(agent.as_str())].retain(|waiting| *waiting != id);
                }
                _ => {}
            }
        }
        // The first turn of an agent's wait queue has the slot.
        for (number, queue) in self.slot_queues.iter().enumerate() {
            if let Some(first) = queue.first() {
                let (slot, turn) = (Waiting::Slot(agent(number)), Waiting::Turn(*first, agent(number)));
                let waits = &mut self.facts.lock().waits;
                waits.remove(&turn, &slot);
                waits.add(slot, turn, None);
            }
        }
    }
}

// ----------------------------------------------------------------------------------------------------------------- both

type Seen = BTreeMap<&'static str, u32>;

/// Plays a case on both, and counts the answers by name.
fn play(world: &World, ops: &[Op], seen: &mut Seen) -> Result<(), TestCaseError> {
    let (mut model, mut engine) = (Model::new(world.clone()), Engine::new(world));
    agree(&model, &engine)?;
    for op in ops {
        if let Some((expected, actual)) = play_one(&mut model, &mut engine, op) {
            prop_assert_eq!(actual, expected, "{:?}", op);
            *seen.entry(actual).or_default() += 1;
        }
        agree(&model, &engine)?;
    }
    while let Some((key, turn)) = model.turns.first_key_value().map(|(key, turn)| (*key, turn.clone())) {
        engine.outcome(key, TurnOutcome::Command(Command::new()));
        model.close(key, Signal::Success);
        model.end_branch(key.0, turn.branch);
        agree(&model, &engine)?;
    }
    for (run, branch, parked) in model.parked() {
        prop_assert_eq!(engine.decide((run, parked.turn), false), "Denied");
        model.end_branch(run, branch);
    }
    prop_assert!(engine.runs.iter().all(|run| run.result().is_some()), "every run has ended");
    let facts = engine.facts.lock();
    prop_assert!(facts.waits.is_empty() && facts.tickets.is_empty(), "{:?}", facts);
    Ok(())
}

/// The predicted and the actual answer, if the operation made a request.
fn play_one(model: &mut Model, engine: &mut Engine, op: &Op) -> Option<(&'static str, &'static str)> {
    match op {
        Op::Handoff { turn, to, content } => {
            let (key, open) = model.turn(turn)?;
            let Content { input, reason, chatter } = *content;
            let command = Command::output(u64::from(input)).with("reason", u64::from(reason));
            let command = command.with("messages", u64::from(chatter)).goto(agent(*to).as_str());
            let ask = Ask { from: open.agent, targets: vec![*to], kind: Kind::Handoff((input, reason)) };
            Some(hand_on(model, engine, key, &open, ask, command))
        }
        Op::FanOut { turn, to } => {
            let (key, open) = model.turn(turn)?;
            let command = Command::new().goto_many(to.iter().map(|to| SendTo::new(agent(*to).as_str(), 1)));
            let ask = Ask { from: open.agent, targets: to.clone(), kind: Kind::FanOut };
            Some(hand_on(model, engine, key, &open, ask, command))
        }
        Op::Delegate { turn, to } => {
            let (key, open) = model.turn(turn)?;
            let ask = Ask { from: open.agent, targets: vec![*to], kind: Kind::Delegation(key.1) };
            let expected = model.predict(key.0, open.branch, &ask, false);
            let actual = engine.delegate(key, *to);
            model.follow(key.0, open.branch, &ask, expected);
            Some((expected, actual))
        }
        Op::End { turn } => {
            let (key, open) = model.turn(turn)?;
            let actual = engine.outcome(key, TurnOutcome::Command(Command::output(1)));
            model.close(key, Signal::Success);
            model.end_branch(key.0, open.branch);
            Some(("Nothing", actual))
        }
        Op::Fail { turn, is_terminal } => {
            let (key, open) = model.turn(turn)?;
            let (kind, signal) = match is_terminal {
                true => (FailureKind::Terminal, Signal::Neutral),
                false => (FailureKind::Transient, Signal::Failure),
            };
            engine.outcome(key, TurnOutcome::Failed(Failure::new(kind, "broken")));
            model.close(key, signal);
            model.end_branch(key.0, open.branch);
            None
        }
        Op::Spend { turn, tokens } => {
            let (key, _) = model.turn(turn)?;
            let spent = &mut model.runs[key.0].spent;
            let fits = *tokens.min(&(model.world.limits.tokens - *spent));
            *spent += fits;
            engine.spend(key, fits);
            None
        }
        Op::Wait { secs } => {
            model.now += secs;
            engine.now += Duration::from_secs(*secs);
            None
        }
        Op::Decide { parked, approved } => {
            let all = model.parked();
            if all.is_empty() {
                return None;
            }
            let (run, branch, Parked { turn, ask }) = parked.get(&all).clone();
            let expected = if *approved { model.predict(run, branch, &ask, true) } else { "Denied" };
            let actual = engine.decide((run, turn), *approved);
            if let Some(branch) = model.branches.get_mut(&(run, branch)) {
                branch.parked = None;
            }
            model.follow(run, branch, &ask, expected);
            Some((expected, actual))
        }
    }
}

/// A turn ends with a request: admitted turns begin before the turn is closed.
fn hand_on(
    model: &mut Model,
    engine: &mut Engine,
    key: Key,
    open: &ModelTurn,
    ask: Ask,
    command: Command,
) -> (&'static str, &'static str) {
    let expected = model.predict(key.0, open.branch, &ask, false);
    let actual = engine.outcome(key, TurnOutcome::Command(command));
    if expected == "Park" {
        model.close(key, Signal::Success);
        let branch = model.branches.get_mut(&(key.0, open.branch)).unwrap();
        branch.parked = Some(Parked { turn: key.1, ask });
    } else if expected == "Admit" {
        model.follow(key.0, open.branch, &ask, expected);
        model.close(key, Signal::Success);
    } else {
        model.close(key, Signal::Success);
        model.follow(key.0, open.branch, &ask, expected);
    }
    (expected, actual)
}

fn agree(model: &Model, engine: &Engine) -> Result<(), TestCaseError> {
    for (number, run) in engine.runs.iter().enumerate() {
        let open: Vec<(u32, AgentName)> =
            run.open_turns().map(|turn| (turn, run.turn(turn).unwrap().agent().clone())).collect();
        let expected = model.turns.iter().filter(|((of, _), _)| *of == number);
        let expected: Vec<(u32, AgentName)> = expected.map(|((_, turn), open)| (*turn, agent(open.agent))).collect();
        prop_assert_eq!(open, expected, "open turns of run {}", number);
        let (counters, metrics) = (&model.runs[number], run.metrics());
        prop_assert_eq!(metrics.handoffs, counters.handoffs);
        prop_assert_eq!(metrics.agents as usize, counters.agents.len());
        prop_assert_eq!(metrics.tokens_spent, counters.spent);
        let is_over = !model.branches.keys().any(|(of, _)| *of == number);
        prop_assert_eq!(run.result().is_some(), is_over, "run {}", number);
    }
    let facts = engine.facts.lock();
    for number in 0..AGENTS {
        prop_assert_eq!(facts.breaker_state(agent(number).as_str()), model.breaker_state(number), "agent {}", number);
    }
    Ok(())
}

/// Limits are mostly high enough for the later rules to be reached.
fn worlds() -> impl Strategy<Value = World> {
    let handoffs = prop_oneof![1 => 0_u32..4, 4 => 4_u32..20];
    let agents = prop_oneof![1 => 1_u32..4, 4 => Just(4_u32)];
    let depth = prop_oneof![1 => 0_usize..2, 3 => 2_usize..5];
    let tokens = prop_oneof![1 => 0_u64..3, 9 => 20_u64..60];
    let limits = (handoffs, agents, depth, 0_usize..5, tokens);
    let limits = limits.prop_map(|(handoffs, agents, depth, repeat_window, tokens)| Limits {
        handoffs,
        tokens,
        agents,
        depth,
        repeat_window,
        attempts: 1,
        cost: None,
    });
    let consent = prop_oneof![12 => Just(Consent::Auto), 1 => Just(Consent::Ask), 1 => Just(Consent::Deny)];
    let consent = prop::collection::vec(consent, AGENTS);
    let non_reentrant = prop::collection::vec(any::<bool>(), AGENTS);
    let first = prop::collection::vec(0..AGENTS, RUNS);
    (limits, first, consent, non_reentrant).prop_map(|(limits, first, consent, non_reentrant)| World {
        limits,
        first,
        consent,
        non_reentrant,
    })
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let turn = any::<Index>;
    let content = (prop_oneof![4 => Just(0_u8), 1 => Just(1)], prop_oneof![4 => Just(0_u8), 1 => Just(1)], any::<u8>());
    let content = content.prop_map(|(input, reason, chatter)| Content { input, reason, chatter });
    let op = prop_oneof![
        5 => (turn(), 0..AGENTS, content).prop_map(|(turn, to, content)| Op::Handoff { turn, to, content }),
        3 => (turn(), prop::collection::vec(0..AGENTS, 1..4)).prop_map(|(turn, to)| Op::FanOut { turn, to }),
        6 => (turn(), 0..AGENTS).prop_map(|(turn, to)| Op::Delegate { turn, to }),
        1 => turn().prop_map(|turn| Op::End { turn }),
        3 => (turn(), prop::bool::weighted(0.1)).prop_map(|(turn, is_terminal)| Op::Fail { turn, is_terminal }),
        1 => (turn(), 0_u64..30).prop_map(|(turn, tokens)| Op::Spend { turn, tokens }),
        1 => (1_u64..25).prop_map(|secs| Op::Wait { secs }),
        2 => (turn(), any::<bool>()).prop_map(|(parked, approved)| Op::Decide { parked, approved }),
    ];
    prop::collection::vec(op, 1..60)
}

proptest! {
    #![proptest_config(Config { cases: 500, ..Config::default() })]

    #[test]
    fn the_engine_answers_as_the_model_predicts(world in worlds(), ops in ops()) {
        play(&world, &ops, &mut Seen::new())?;
    }
}

/// Runs the same cases each time, enough of them that every answer occurs.
#[test]
fn the_model_is_asked_about_every_answer() {
    let mut seen = Seen::new();
    let mut runner = TestRunner::deterministic();
    for _ in 0..1_000 {
        let case = (worlds(), ops()).new_tree(&mut runner).unwrap().current();
        play(&case.0, &case.1, &mut seen).unwrap();
    }
    let expected = [
        "Admit",
        "AgentLimit",
        "AlreadyInChain",
        "BreakerOpen",
        "Denied",
        "HandoffLimit",
        "MaxDepth",
        "Nothing",
        "Park",
        "RepeatedHandoff",
        "TokenBudget",
        "WaitCycle",
    ];
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), expected, "{seen:?}");
    assert!(seen.values().all(|count| *count >= 10), "{seen:?}");
}
