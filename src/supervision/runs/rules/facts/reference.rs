//! The rules of circuit breakers against a model that is written from SEMANTICS 3, through the shared facts that hold the
//! breakers and the turns admitted at them.

use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::Index;

use crate::messages::Timestamp;
use crate::testing::rules::play;

use super::*;

const AGENTS: usize = 2;
const RUNS: u128 = 3;

static NAMES: LazyLock<Vec<AgentName>> =
    LazyLock::new(|| (0..AGENTS).map(|number| AgentName::new(&format!("agent-{number}")).unwrap()).collect());

#[derive(Clone, Debug)]
enum Op {
    /// A new turn asks to be admitted.
    Begin {
        agent: usize,
        run: u128,
    },
    /// An open turn asks to be tried again.
    Retry {
        turn: Index,
    },
    /// An open turn waits for a person.
    Suspend {
        turn: Index,
    },
    End {
        turn: Index,
        signal: Signal,
    },
    /// A turn ends that an earlier process had admitted.
    EndEarlier {
        agent: usize,
        signal: Signal,
    },
    /// A run is read back, and its open turns are admitted again.
    ForgetRun {
        run: u128,
    },
    Wait {
        secs: u64,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let signal = || prop_oneof![4 => Just(Signal::Failure), 2 => Just(Signal::Success), 1 => Just(Signal::Neutral)];
    let op = prop_oneof![
        10 => (0..AGENTS, 0..RUNS).prop_map(|(agent, run)| Op::Begin { agent, run }),
        3 => any::<Index>().prop_map(|turn| Op::Retry { turn }),
        2 => any::<Index>().prop_map(|turn| Op::Suspend { turn }),
        10 => (any::<Index>(), signal()).prop_map(|(turn, signal)| Op::End { turn, signal }),
        1 => (0..AGENTS, signal()).prop_map(|(agent, signal)| Op::EndEarlier { agent, signal }),
        1 => (0..RUNS).prop_map(|run| Op::ForgetRun { run }),
        4 => (1_u64..60).prop_map(|secs| Op::Wait { secs }),
    ];
    prop::collection::vec(op, 1..40)
}

fn policies() -> impl Strategy<Value = BreakerPolicy> {
    (1_u32..4, 1_u64..30, 1_u64..90).prop_map(|(threshold, cooldown, longest)| BreakerPolicy {
        threshold,
        cooldown: Duration::from_secs(cooldown),
        max_cooldown: Duration::from_secs(longest),
    })
}

#[derive(Clone, Debug)]
enum State {
    Closed,
    Open {
        until: u64,
        /// In seconds, for the next opening to double.
        cooldown: u64,
        probe: Option<TurnId>,
    },
}

#[derive(Clone, Debug)]
struct ModelBreaker {
    state: State,
    /// Consecutive failures.
    failures: u32,
    /// The time of the last failure.
    last_failure: Option<u64>,
    opened_at: Option<u64>,
}

#[derive(Clone, Debug)]
struct ModelTurn {
    id: TurnId,
    agent: usize,
    has_ticket: bool,
}

struct Model {
    policy: BreakerPolicy,
    now: u64,
    breakers: Vec<ModelBreaker>,
    turns: Vec<ModelTurn>,
    last_turn: u32,
}

impl Model {
    fn new(policy: BreakerPolicy) -> Self {
        let breakers =
            vec![ModelBreaker { state: State::Closed, failures: 0, last_failure: None, opened_at: None }; AGENTS];
        Self { policy, now: 0, breakers, turns: Vec::new(), last_turn: 0 }
    }

    /// Whether a turn may pass; if not, for how many seconds it waits.
    fn may_pass(&self, agent: usize) -> Result<(), u64> {
        match self.breakers[agent].state {
            State::Closed => Ok(()),
            State::Open { until, .. } if self.now < until => Err(until - self.now),
            State::Open { probe: Some(_), .. } => Err(self.policy.cooldown.as_secs()),
            State::Open { probe: None, .. } => Ok(()),
        }
    }

    /// A turn that goes through an open breaker is its probe.
    fn pass(&mut self, agent: usize, id: TurnId) {
        if let State::Open { probe, .. } = &mut self.breakers[agent].state {
            *probe = Some(id);
        }
    }

    fn is_probe(&self, turn: &ModelTurn) -> bool {
        matches!(self.breakers[turn.agent].state, State::Open { probe: Some(probe), .. } if probe == turn.id)
    }

    fn give_back(&mut self, turn: &ModelTurn) -> bool {
        let is_probe = self.is_probe(turn);
        if let State::Open { probe, .. } = &mut self.breakers[turn.agent].state
            && is_probe
        {
            *probe = None;
        }
        is_probe
    }

    fn end(&mut self, turn: &ModelTurn, signal: Signal) {
        let longest = self.policy.max_cooldown.as_secs();
        let is_probe = self.give_back(turn);
        let now = self.now;
        let breaker = &mut self.breakers[turn.agent];
        match signal {
            Signal::Neutral => {}
            // Only its probe closes an open breaker; turns that were admitted before it opened, or that gave up being the probe,
            // do not. A closed breaker stays closed, and a success of any turn resets the consecutive failures.
            Signal::Success if matches!(breaker.state, State::Open { .. }) && !is_probe => {}
            Signal::Success => {
                *breaker = ModelBreaker { state: State::Closed, failures: 0, last_failure: None, opened_at: None };
            }
            Signal::Failure => {
                breaker.failures += 1;
                breaker.last_failure = Some(now);
                let cooldown = match breaker.state {
                    State::Closed if breaker.failures >= self.policy.threshold => self.policy.cooldown.as_secs(),
                    State::Open { cooldown, .. } if is_probe => 2 * cooldown,
                    State::Closed | State::Open { .. } => return,
                };
                let cooldown = cooldown.min(longest);
                breaker.state = State::Open { until: now + cooldown, cooldown, probe: None };
                breaker.opened_at = Some(now);
            }
        }
    }

    fn shown(&self, agent: usize) -> BreakerState {
        match self.breakers[agent].state {
            State::Closed => BreakerState::Closed,
            State::Open { probe: None, .. } => BreakerState::Open,
            State::Open { probe: Some(_), .. } => BreakerState::HalfOpen,
        }
    }
}

fn turn(run: u128, number: u32) -> TurnId {
    TurnId { run: RunId(uuid::Uuid::from_u128(run)), number }
}

#[test]
fn a_breaker_opens_after_failures_in_a_row_and_lets_one_probe_decide() {
    let branches = [
        "opened",
        "refused while open",
        "refused beside a probe",
        "probed",
        "closed by its probe",
        "opened again for twice as long",
        "opened again for the longest time",
        "probe given back",
        "probe given back by a turn that waits",
        "probe lost with its run",
        "late success",
        "late failure",
        "failures in a row ended by a success",
        "a retry waits",
        "a retry is the probe",
    ];
    play("breaker", &branches, (policies(), ops()), |(policy, ops), seen| {
        let mut facts = AdmissionFacts { policy, ..AdmissionFacts::default() };
        let mut model = Model::new(policy);
        for op in ops {
            let now = Duration::from_secs(model.now);
            match op {
                Op::Wait { secs } => model.now += secs,
                Op::Begin { agent, run } => {
                    let expected = model.may_pass(agent);
                    prop_assert_eq!(facts.check_breaker(&NAMES[agent], now), expected.map_err(Duration::from_secs));
                    match (expected, model.shown(agent)) {
                        (Err(_), BreakerState::HalfOpen) => _ = seen.insert("refused beside a probe"),
                        (Err(_), _) => _ = seen.insert("refused while open"),
                        (Ok(()), state) => {
                            if state != BreakerState::Closed {
                                seen.insert("probed");
                            }
                            model.last_turn += 1;
                            let id = turn(run, model.last_turn);
                            facts.admit(id, &NAMES[agent], None);
                            model.pass(agent, id);
                            model.turns.push(ModelTurn { id, agent, has_ticket: true });
                        }
                    }
                }
                Op::Retry { turn } if !model.turns.is_empty() => {
                    let which = turn.index(model.turns.len());
                    let ModelTurn { id, agent, .. } = model.turns[which];
                    let is_probe = model.is_probe(&model.turns[which]);
                    let expected = if is_probe { Ok(()) } else { model.may_pass(agent) };
                    let actual = facts.readmit(id, &NAMES[agent], now);
                    prop_assert_eq!(actual, expected.map_err(Duration::from_secs));
                    if expected.is_err() {
                        seen.insert("a retry waits");
                    } else if model.shown(agent) != BreakerState::Closed && !is_probe {
                        seen.insert("a retry is the probe");
                        model.pass(agent, id);
                    }
                    model.turns[which].has_ticket = true;
                }
                Op::End { turn, signal } if !model.turns.is_empty() => {
                    let ended = model.turns.remove(turn.index(model.turns.len()));
                    facts.close(ended.id, &NAMES[ended.agent], None, signal, now);
                    let before = model.breakers[ended.agent].clone();
                    let is_probe = model.is_probe(&ended);
                    model.end(&ended, signal);
                    let is_late = matches!(before.state, State::Open { .. }) && !is_probe;
                    match (&before.state, &model.breakers[ended.agent].state, signal) {
                        (State::Closed, State::Open { .. }, _) => _ = seen.insert("opened"),
                        (State::Open { .. }, State::Closed, _) => _ = seen.insert("closed by its probe"),
                        (State::Open { cooldown: before, .. }, State::Open { cooldown, .. }, Signal::Failure)
                            if is_probe =>
                        {
                            seen.insert(match cooldown == before {
                                true => "opened again for the longest time",
                                false => "opened again for twice as long",
                            });
                        }
                        (State::Open { .. }, _, Signal::Neutral) if is_probe => _ = seen.insert("probe given back"),
                        (State::Closed, State::Closed, Signal::Success) if before.failures > 0 => {
                            seen.insert("failures in a row ended by a success");
                        }
                        (_, _, Signal::Success) if is_late => _ = seen.insert("late success"),
                        (_, _, Signal::Failure) if is_late => _ = seen.insert("late failure"),
                        (_, _, Signal::Success | Signal::Failure | Signal::Neutral) => {}
                    }
                }
                Op::Suspend { turn } if !model.turns.is_empty() => {
                    let which = turn.index(model.turns.len());
                    let suspended = model.turns[which].clone();
                    facts.suspend(suspended.id);
                    if model.give_back(&suspended) {
                        seen.insert("probe given back by a turn that waits");
                    }
                }
                Op::Retry { .. } | Op::Suspend { .. } | Op::End { .. } => {}
                Op::EndEarlier { agent, signal } => {
                    facts.close(turn(RUNS, 0), &NAMES[agent], None, signal, now);
                    let unknown = ModelTurn { id: turn(RUNS, 0), agent, has_ticket: false };
                    model.end(&unknown, signal);
                }
                Op::ForgetRun { run } => {
                    let run = RunId(uuid::Uuid::from_u128(run));
                    facts.forget_run(run);
                    let mut turns = std::mem::take(&mut model.turns);
                    for turn in turns.iter_mut().filter(|turn| turn.id.run == run) {
                        if model.give_back(turn) {
                            seen.insert("probe lost with its run");
                        }
                        turn.has_ticket = false;
                    }
                    model.turns = turns;
                }
            }
            for (agent, name) in NAMES.iter().enumerate() {
                prop_assert_eq!(facts.breaker_state(name.as_str()), model.shown(agent));
                let ModelBreaker { failures, last_failure, opened_at, .. } = model.breakers[agent];
                let wall = |secs| Timestamp::default() + Duration::from_secs(secs);
                let clock = Now { monotonic: Duration::from_secs(model.now), wall: wall(model.now) };
                let (last_failure, opened_at) = (last_failure.map(wall), opened_at.map(wall));
                let expected = BreakerStatus { state: model.shown(agent), failures, last_failure, opened_at };
                prop_assert_eq!(facts.breaker_status(name.as_str(), clock), expected);
            }
            let has_ticket = |id: &TurnId| model.turns.iter().any(|turn| turn.has_ticket && turn.id == *id);
            prop_assert!(facts.tickets.keys().all(has_ticket), "{:?}", facts.tickets);
        }
        Ok(())
    });
}
