//! A run that is followed, turn by turn: which node each event is about, and the status of its turn after it. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::messages::state::StateRules;
use crate::messages::{AgentName, Command, Failure, RunEvent, Timestamp, TurnId};

use super::run::{Phase, Run};

/// The fold of a run over the events that were passed to it.
#[derive(Debug)]
pub struct Follower {
    rules: StateRules,
    run: Option<Run>,
    open: BTreeMap<u32, Open>,
}

/// A turn that is open.
#[derive(Debug)]
struct Open {
    agent: AgentName,
    node: Option<Arc<str>>,
    is_compensation: bool,
    since: Timestamp,
}

/// Something that happened to a turn.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnEvent {
    /// The number of the run's event.
    pub sequence: u64,
    /// When.
    pub at: Timestamp,
    /// The turn.
    pub turn: TurnId,
    /// Whose it is.
    pub agent: AgentName,
    /// The way to the node of the plan that it belongs to, as in [`Run::node_of`]; `None` for a turn that agents brought about.
    pub node: Option<Arc<str>>,
    /// Whether it takes back what the node has done.
    pub is_compensation: bool,
    /// Its status.
    pub status: TurnStatus,
}

/// The status of a turn after an event.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnStatus {
    /// It may be taken.
    Started,
    /// Its node waits for a person.
    Interrupted,
    /// A person has let it begin.
    Resumed {
        /// Who.
        by: Arc<str>,
    },
    /// An attempt has failed, and another will be made.
    Retrying {
        /// The attempt that failed.
        attempt: u32,
        /// Why.
        failure: Failure,
        /// When the next begins.
        until: Timestamp,
    },
    /// It waits for a person, because something is wrong.
    NeedsAttention {
        /// What is wrong.
        why: Arc<str>,
    },
    /// A person has had it begin again.
    Restarted,
    /// It has returned its command.
    Finished {
        /// What it returned.
        command: Arc<Command>,
        /// For how long it was open, waits included.
        took: Duration,
    },
    /// It has failed for good.
    Failed {
        /// Why.
        failure: Failure,
        /// For how long it was open, waits included.
        took: Duration,
    },
    /// It was cancelled: what it was for is over.
    Cancelled,
}

impl Follower {
    /// Nothing is known yet: the first event is the submission.
    #[must_use]
    pub fn new(rules: StateRules) -> Self {
        Self { rules, run: None, open: BTreeMap::new() }
    }

    /// The run, as far as it is known.
    #[must_use]
    pub fn run(&self) -> Option<&Run> {
        self.run.as_ref()
    }

    /// The number of the next event.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.run.as_ref().map_or(1, |run| run.sequence() + 1)
    }

    /// The way to the node of an open turn, if it belongs to one.
    #[must_use]
    pub fn node_of(&self, turn: u32) -> Option<&str> {
        self.open.get(&turn)?.node.as_deref()
    }

    /// Continues from `run` where events are missing in between; returns the turns that have begun meanwhile and are open.
    #[must_use]
    pub fn catch_up(&mut self, run: Run) -> Vec<TurnEvent> {
        let known: Vec<u32> = run.open_turns().collect();
        self.open.retain(|turn, _| known.contains(turn));
        self.run = Some(run);
        known.into_iter().filter_map(|turn| self.begin(turn)).collect()
    }

    /// Takes the event of this number, which is to be the next; one that was taken already returns nothing.
    ///
    /// # Panics
    /// When a custom reducer or a predicate does.
    #[must_use]
    pub fn take(&mut self, sequence: u64, event: &RunEvent) -> Vec<TurnEvent> {
        if sequence < self.next_sequence() {
            return Vec::new();
        }
        let effects = match (&mut self.run, event) {
            (None, RunEvent::Submitted(submission)) => {
                let (run, effects) = Run::begin(Arc::clone(submission), self.rules.clone());
                self.run = Some(run);
                effects
            }
            (None, _) => return Vec::new(),
            (Some(run), event) => run.step(event),
        };
        let mut events: Vec<TurnEvent> = self.status_after(event).into_iter().collect();
        for effect in effects {
            events.extend(match (effect.begun(), effect.closed()) {
                (Some(turn), _) => self.begin(turn),
                (None, Some(turn)) => {
                    self.open.remove(&turn).and_then(|open| self.event(turn, &open, TurnStatus::Cancelled))
                }
                (None, None) => None,
            });
        }
        events
    }

    fn begin(&mut self, turn: u32) -> Option<TurnEvent> {
        let run = self.run.as_ref()?;
        let begun = run.turn(turn).filter(|_| !self.open.contains_key(&turn))?;
        let status = if begun.phase == Phase::Interrupted { TurnStatus::Interrupted } else { TurnStatus::Started };
        let (agent, node) = (begun.agent().clone(), run.node_of(turn).map(Arc::from));
        let open = Open { agent, node, is_compensation: run.is_compensation(turn), since: run.last_at() };
        let event = self.event(turn, &open, status);
        self.open.insert(turn, open);
        event
    }

    /// The status that an event itself gives its turn.
    fn status_after(&mut self, event: &RunEvent) -> Option<TurnEvent> {
        let turn = event.turn()?;
        let since = self.open.get(&turn)?.since;
        let (status, is_over) = match event {
            RunEvent::TurnEnded { command, at, .. } => {
                (TurnStatus::Finished { command: Arc::clone(command), took: at.since(since) }, true)
            }
            RunEvent::TurnFailed { failure, at, .. } => {
                (TurnStatus::Failed { failure: failure.clone(), took: at.since(since) }, true)
            }
            RunEvent::AttemptFailed { attempt, failure, retry_at, .. } => {
                (TurnStatus::Retrying { attempt: *attempt, failure: failure.clone(), until: *retry_at }, false)
            }
            RunEvent::NeedsAttention { why, .. } => (TurnStatus::NeedsAttention { why: Arc::clone(why) }, false),
            RunEvent::Resumed { by, .. } => (TurnStatus::Resumed { by: Arc::clone(by) }, false),
            RunEvent::TurnRestarted { .. } => (TurnStatus::Restarted, false),
            // The others do not change its status.
            _ => return None,
        };
        if is_over {
            let open = self.open.remove(&turn)?;
            return self.event(turn, &open, status);
        }
        self.event(turn, self.open.get(&turn)?, status)
    }

    fn event(&self, turn: u32, open: &Open, status: TurnStatus) -> Option<TurnEvent> {
        let run = self.run.as_ref()?;
        let (sequence, at, turn) = (run.sequence(), run.last_at(), run.turn_id(turn));
        let Open { agent, node, is_compensation, .. } = open;
        let (agent, node, is_compensation) = (agent.clone(), node.clone(), *is_compensation);
        Some(TurnEvent { sequence, at, turn, agent, node, is_compensation, status })
    }
}
