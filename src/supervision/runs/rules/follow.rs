//! Follows a run turn by turn: the node that each event is about, and the status of the event's turn after it. Pure.

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

/// A change of the status of a turn, as [`RunHandle::turn_events`](crate::RunHandle::turn_events) and
/// [`Follower::take`] return it.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnEvent {
    /// The number of the run's event that caused it, from 1; [`Follower::catch_up`] gives that of the run's last event.
    pub sequence: u64,
    /// When that event happened, by the wall clock.
    pub at: Timestamp,
    /// The turn whose status has changed.
    pub turn: TurnId,
    /// The agent that takes the turn.
    pub agent: AgentName,
    /// The path to the node of the plan that it belongs to, as in [`Run::node_of`]; `None` for a turn that agents brought about.
    pub node: Option<Arc<str>>,
    /// Whether it takes back what the node has done.
    pub is_compensation: bool,
    /// The status of the turn after the event.
    pub status: TurnStatus,
}

/// The status of a turn after an event.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnStatus {
    /// The turn was admitted, or [`Follower::catch_up`] found it open. Its first attempt may not have begun yet.
    Started,
    /// The turn was admitted, and begins when a person resumes its node with
    /// [`Response::Resume`](crate::messages::Response::Resume).
    Interrupted,
    /// A person resumed the node of the turn, so the turn may begin.
    Resumed {
        /// The person, as the caller of [`PeopleHandle::answer`](crate::runtime::PeopleHandle::answer) named them.
        by: Arc<str>,
    },
    /// An attempt has failed, and another will be made.
    Retrying {
        /// The number of the attempt that failed, from 1.
        attempt: u32,
        /// Why the attempt failed.
        failure: Failure,
        /// When the next attempt begins at the earliest, by the wall clock.
        until: Timestamp,
    },
    /// It waits for a person, because something is wrong.
    NeedsAttention {
        /// What is wrong, as text for that person.
        why: Arc<str>,
    },
    /// A person had the turn begin again with [`Response::Restart`](crate::messages::Response::Restart), as a new
    /// attempt.
    Restarted,
    /// The turn has ended with a command.
    Finished {
        /// The command that the agent returned.
        command: Arc<Command>,
        /// For how long it was open, waits included.
        took: Duration,
    },
    /// The turn has failed for good and is a dead letter.
    Failed {
        /// Why the last attempt failed.
        failure: Failure,
        /// For how long it was open, waits included.
        took: Duration,
    },
    /// It was cancelled: what it was for is over.
    Cancelled,
}

impl Follower {
    /// Creates a follower that has taken no event yet; the first one that it takes is the submission.
    #[must_use]
    pub fn new(rules: StateRules) -> Self {
        Self { rules, run: None, open: BTreeMap::new() }
    }

    /// Returns the run after the last event that was taken; `None` before the submission was.
    #[must_use]
    pub fn run(&self) -> Option<&Run> {
        self.run.as_ref()
    }

    /// Returns the number of the event that [`Follower::take`] expects next; the submission is 1.
    #[must_use]
    pub fn next_sequence(&self) -> u64 {
        self.run.as_ref().map_or(1, |run| run.sequence() + 1)
    }

    /// The path to the node of an open turn, if it belongs to one.
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
        let status = if *begun.phase() == Phase::Interrupted { TurnStatus::Interrupted } else { TurnStatus::Started };
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
            // The other events do not change its status.
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
