//! Replay of a run's journal: event by event, and turn by turn. Pure.
//!
//! A replay is the runtime's own fold, stopped at any event. It has no inputs besides the journal, runs no agent, and ends with
//! the run's result.

mod diff;
mod story;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::messages::state::{FinalState, StateChange, StateRules};
use crate::messages::{
    AgentName, Json, Outcome, RunEvent, RunMetrics, RunResult, Submission, Timestamp, Update, Verdict,
};

use super::history::from_submission;
use super::run::{Effect, LATE_ORDINAL, Origin, Run};

pub use super::history::ReplayError;
pub use diff::{Aspect, Diff, TurnDifference};
pub use story::{Cause, Deed, TurnEnd, TurnStory};

/// A run read from its journal, with what every event changed.
///
/// ```
/// use callboard::prelude::*;
/// use callboard::messages::StateRules;
/// use callboard::supervision::runs::Replay;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let board = Callboard::builder()
///     .agent("scout", |_: Turn| async { Ok(Command::update("messages", "found").goto("writer")) })
///     .agent("writer", |_: Turn| async { Ok(Command::output("done").with("messages", "written")) })
///     .start()
///     .await?;
/// let run = board.submit(Task::new("write").to("scout")).await?;
/// let result = run.result().await?;
///
/// let replay = Replay::of(run.history().await?, &StateRules::default())?;
/// let before = replay.before_turn(2).expect("there were two");
/// assert_eq!(before.state["messages"], serde_json::json!(["found"]));
/// assert_eq!(before.state["context"]["previous_agent"], "scout");
/// let after = replay.after_turn(2).expect("it has ended");
/// assert_eq!(after.state, serde_json::json!({ "messages": ["found", "written"] }));
/// assert_eq!(replay.result(), Some(&result));
/// # board.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Replay {
    rules: StateRules,
    steps: Vec<ReplayStep>,
    turns: BTreeMap<u32, TurnStory>,
    run: Run,
}

/// One event of a run, with the turns that it began and closed and the channels that it changed.
#[derive(Clone, Debug)]
pub struct ReplayStep {
    /// Its number, from 1, in the order in which events take effect: as in the journal, but for overwrites, which come
    /// before the event whose join had failed.
    pub number: usize,
    /// The event, as it was journaled.
    pub event: RunEvent,
    /// Whose turn it is about, if it is about one.
    pub agent: Option<AgentName>,
    /// The numbers of the turns that it began, also of those that wait for a person to resume them.
    pub begun: Vec<u32>,
    /// The numbers of the turns that are over with it: ended with a command, failed for good or cancelled.
    pub closed: Vec<u32>,
    /// When: its own time, or that of the last event that has one (see [`RunEvent::at`]).
    pub at: Timestamp,
    before: FinalState,
    after: FinalState,
}

/// A run at one moment, as [`Replay::at_step`], [`Replay::before_turn`] and [`Replay::after_turn`] rebuild it.
#[derive(Clone, Debug, PartialEq)]
pub struct Moment {
    /// The number of the last step before this moment ([`ReplayStep::number`]).
    pub step: usize,
    /// The channels, as the turn that the moment is about has them.
    pub state: Json,
    /// The turns that are open, with their agents.
    pub open: Vec<(u32, AgentName)>,
    /// What the run had used after that step: turns, handoffs, agents, retries, tokens and time.
    pub metrics: RunMetrics,
    /// How the run ended, if it had by then.
    pub outcome: Option<Outcome>,
}

impl Replay {
    /// Replays a journal from its beginning. `rules` are the board's: a task's own schema comes first, custom reducers are
    /// found by name.
    ///
    /// # Errors
    /// See [`ReplayError`].
    ///
    /// # Panics
    /// When a custom reducer does.
    pub fn of(history: Vec<RunEvent>, rules: &StateRules) -> Result<Self, ReplayError> {
        let (submission, events) = from_submission(history)?;
        let first = RunEvent::Submitted(Arc::clone(&submission));
        let (run, effects) = Run::begin(Arc::clone(&submission), rules.clone());
        let (at, agent) = (submission.at, Some(submission.agent.clone()));
        let mut replay = Self { rules: rules.clone(), steps: Vec::new(), turns: BTreeMap::new(), run };
        let begun: Vec<u32> = effects.iter().filter_map(Effect::begun).collect();
        for turn in &begun {
            let cause = replay.node_cause(*turn).unwrap_or(Cause::Task);
            replay.begin_turn(*turn, cause, 1);
        }
        let nothing = FinalState::from(crate::messages::State::default());
        replay.steps.push(ReplayStep {
            number: 1,
            event: first,
            agent,
            begun,
            closed: Vec::new(),
            at,
            before: nothing.clone(),
            after: nothing,
        });
        let mut resumed_with = BTreeMap::new();
        for event in events {
            replay.take(event, &mut resumed_with);
        }
        Ok(replay)
    }

    /// Returns every event with what it changed, in the order in which events take effect.
    #[must_use]
    pub fn steps(&self) -> &[ReplayStep] {
        &self.steps
    }

    /// Returns the story of every turn, in order of admission.
    pub fn turns(&self) -> impl Iterator<Item = &TurnStory> {
        self.turns.values()
    }

    /// Returns the story of the turn of this number; `None` if the run has no such turn.
    #[must_use]
    pub fn turn(&self, number: u32) -> Option<&TurnStory> {
        self.turns.get(&number)
    }

    /// Returns the run after its last event.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Returns the submission that the run began with: the task, the agents that its target and plan were resolved to,
    /// the run's id and the time.
    #[must_use]
    pub fn submission(&self) -> &Submission {
        self.run.submission()
    }

    /// Returns the result of the run; `None` if it has not ended.
    #[must_use]
    pub fn result(&self) -> Option<&RunResult> {
        self.run.result().map(|result| &**result)
    }

    /// The channels at the end: the run's own once it has ended, until then as the turn of the last step has them.
    #[must_use]
    pub fn state(&self) -> &Json {
        // There is at least one step: the submission.
        let last = &self.steps[self.steps.len() - 1];
        self.run.result().map_or(last.state(), |result| &result.state)
    }

    /// The run after a step (1 is the submission); `None` if there is no such step.
    ///
    /// # Panics
    /// When a custom reducer does.
    #[must_use]
    pub fn at_step(&self, number: usize) -> Option<Moment> {
        let step = self.steps.get(number.checked_sub(1)?)?;
        Some(self.moment(step, step.state().clone()))
    }

    /// The run when a turn began, as the turn saw it; `None` if there was no such turn.
    ///
    /// # Panics
    /// When a custom reducer does.
    #[must_use]
    pub fn before_turn(&self, number: u32) -> Option<Moment> {
        let turn = self.turns.get(&number)?;
        Some(self.moment(self.steps.get(turn.begun - 1)?, (*turn.saw).clone()))
    }

    /// The run when a turn was over, as the turn left it; `None` if there was no such turn, or it is open.
    ///
    /// # Panics
    /// When a custom reducer does.
    #[must_use]
    pub fn after_turn(&self, number: u32) -> Option<Moment> {
        let (step, _) = self.turns.get(&number)?.closed?;
        self.at_step(step)
    }

    fn moment(&self, step: &ReplayStep, state: Json) -> Moment {
        let (mut run, _) = Run::begin(Arc::clone(self.run.submission()), self.rules.clone());
        for earlier in &self.steps[1..step.number] {
            run.step(&earlier.event);
        }
        let open = run.turns().iter().map(|(number, turn)| (number, turn.agent.clone())).collect();
        let outcome = run.result().map(|result| result.outcome.clone());
        Moment { step: step.number, state, open, metrics: run.metrics(), outcome }
    }

    fn take(&mut self, event: RunEvent, resumed_with: &mut BTreeMap<u32, Verdict>) {
        let number = self.steps.len() + 1;
        let branch = event.turn().and_then(|turn| branch_at_work(&self.run, turn));
        let before = state_of(&self.run, branch);
        let agent = event.turn().and_then(|turn| Some(self.turns.get(&turn)?.agent.clone()));
        let compensates = branch.is_some_and(|branch| compensates(&self.run, branch));
        // The view is gone once its branch has ended, so it is read before.
        let left = branch.and_then(|branch| left_by(&self.run, branch, &event));
        let effects = self.run.step(&event);
        let at = event.at().unwrap_or(self.run.last_at());
        let is_gone = branch.is_some_and(|branch| !self.run.branches().contains(branch));
        let (left, saved) = left.filter(|_| is_gone).map_or((None, None), |left| (Some(left.view), left.saved));
        // The writes of compensating turns are dropped, also when the run ends with them.
        let after = match left {
            Some(left) if self.run.result().is_none() => left,
            None if is_gone && (compensates || self.run.result().is_none()) => before.clone(),
            Some(_) | None => state_of(&self.run, branch),
        };
        let is_new = |turn: &u32| !self.turns.contains_key(turn);
        let begun: Vec<u32> = effects.iter().filter_map(Effect::begun).filter(is_new).collect();
        let closed: Vec<u32> = effects.iter().filter_map(Effect::closed).collect();
        if let Some(story) = event.turn().and_then(|turn| self.turns.get_mut(&turn)) {
            story.record(&event, &self.run, number, resumed_with);
            if let Some(saved) = saved {
                story.saved = saved;
            }
        }
        for turn in &closed {
            if let Some(story) = self.turns.get_mut(turn) {
                story.close(number, at);
            }
        }
        for (target, turn) in begun.iter().enumerate() {
            let from = event.turn().unwrap_or_default();
            let is_late = self.run.turn(*turn).is_some_and(|open| open.record(LATE_ORDINAL).is_some());
            let cause = if let Some(node) = self.node_cause(*turn) {
                node
            } else if is_late {
                Cause::Answer { from }
            } else if let RunEvent::Delegated { ordinal, .. } = &event {
                Cause::Delegation { from, ordinal: *ordinal }
            } else {
                Cause::Handoff { from, target }
            };
            self.begin_turn(*turn, cause, number);
        }
        self.steps.push(ReplayStep { number, event, agent, begun, closed, at, before, after });
    }

    /// The cause of a turn that its plan begins.
    fn node_cause(&self, turn: u32) -> Option<Cause> {
        let node = self.run.node_of(turn)?;
        let compensates = self.run.is_compensation(turn);
        Some(if compensates { Cause::Compensation { node } } else { Cause::Node { node } })
    }

    fn begin_turn(&mut self, number: u32, cause: Cause, begun: usize) {
        self.turns.extend(TurnStory::begin(&self.run, number, cause, begun).map(|story| (number, story)));
    }
}

impl ReplayStep {
    /// The channels after it, as the turn that it is about has them; the run's own if it is about none, or ended the run. What
    /// a turn writes that takes back is dropped: after its end they are as it found them.
    #[must_use]
    pub fn state(&self) -> &Json {
        &self.after
    }

    /// Returns the differences between the channels before the event and those after it ([`ReplayStep::state`]).
    #[must_use]
    pub fn changes(&self) -> Vec<StateChange> {
        self.before.changes(&self.after)
    }
}

/// The branch in which a turn is open, or whose parked handoff it made.
fn branch_at_work(run: &Run, turn: u32) -> Option<u32> {
    if let Some(open) = run.turns().get(turn) {
        return Some(open.branch);
    }
    run.branches().parked_by(turn).map(|(id, _)| id)
}

/// The state that a branch sees; without a branch, that of the run.
fn state_of(run: &Run, branch: Option<u32>) -> FinalState {
    if let Some(result) = run.result() {
        return result.state.clone();
    }
    run.branches().get(branch.unwrap_or_default()).map(|branch| branch.view.clone()).unwrap_or_default().into()
}

/// Whether a branch compensates another one.
fn compensates(run: &Run, branch: u32) -> bool {
    run.branches().get(branch).is_some_and(|branch| matches!(branch.origin, Origin::Compensation { .. }))
}

/// The state and the saved output of a turn whose branch ends with it.
struct Left {
    view: FinalState,
    /// The part of its output that its node saves.
    saved: Option<Update>,
}

/// The state at the end of a turn whose branch ends with it; `None` if what it wrote is dropped.
fn left_by(run: &Run, branch: u32, event: &RunEvent) -> Option<Left> {
    let RunEvent::TurnEnded { turn, command, verdict, .. } = event else { return None };
    if compensates(run, branch) || matches!(verdict, Verdict::Refused(refusal) if refusal.is_denial()) {
        return None;
    }
    let children = run.children_of(run.turn(*turn)?);
    let (mut view, _) = run.settle(*turn, branch, &children, command).ok()?;
    // A node that does not finish saves no output.
    let origin = run.branches().get(branch)?.origin;
    let output = command.output.clone().unwrap_or_default();
    let saved = if matches!(verdict, Verdict::Refused(_)) { None } else { run.saved(origin, &output) };
    if let Some(saved) = &saved {
        view.apply(saved, run.rules()).ok()?;
    }
    Some(Left { view: view.into(), saved })
}
