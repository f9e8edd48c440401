//! Forks: the first events of a new run that repeats an old one up to one of its turns. Pure.
//!
//! Everything that the turn caused is left out, and everything else is copied, whenever it happened: the cause decides, not the
//! time. So a sibling that ended after the turn does not run again, and the turns that wait for it begin again with the records
//! of their earlier requests. A turn that failed beside it, and whose failure has reached no other turn, runs again too: it has
//! no answer to copy.
//!
//! Not copied are tokens (the fork has a budget of its own), failed attempts, open questions, and any consent that a turn
//! asked for while it ran: an approval binds to its run. A turn that has ended is not asked about again.
//!
//! A turn that failed for good is a dead letter, and its retry is a fork. [`Fork::events`] forks at any turn, and can change the
//! turn's input.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::messages::state::{StateError, StateRules};
use crate::messages::{
    AgentName, Goto, Json, Limits, OverLimit, Plan, Refusal, RunEvent, RunId, Submission, Timestamp, TurnId,
    Unacknowledged, Update, Verdict,
};
use crate::storage::StorageError;

use super::errors::SubmitError;
use super::history::in_order_of_effect;
use super::requests::{MAX_COMMAND, RequestKey};
use super::run::{HANDOFF_ORDINAL, Now, Origin, Run};

/// What is different about a fork, and about the turn that it begins at; by default nothing.
///
/// ```
/// use callboard::supervision::runs::Fork;
/// let fork = Fork::new().input("the short version").set("verdict", "accept");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fork {
    /// The input of the turn; `None` keeps the input that it had.
    pub input: Option<Json>,
    /// Writes to the channels that its branch sees, as if they had been made before it.
    pub update: Update,
    /// What the fork may use; `None` keeps the limits of the run.
    pub limits: Option<Limits>,
    /// The fork leaves its messages in the conversation of the run, if that has one, after those that are there when it ends.
    pub is_in_conversation: bool,
    /// Who asks for the fork from outside of the board, as [`Task::from_agent`](crate::messages::Task::from_agent) of a task: the
    /// requester of the run that is forked did not ask for the fork, which neither counts against their limits of a day nor
    /// reports to them.
    pub from_agent: Option<AgentName>,
}

/// Why [`Callboard::fork`](crate::Callboard::fork), [`Callboard::migrate`](crate::Callboard::migrate) or
/// [`DeadLettersHandle::retry`](crate::runtime::DeadLettersHandle::retry) began no new run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ForkError {
    /// The store does not know the run.
    #[error("there is no run {0}")]
    Unknown(RunId),
    /// A run in memory has forgotten its first turns, so that nothing can be copied from it.
    #[error("the journal does not go back to the run's beginning")]
    Trimmed,
    /// A dead letter that is to be retried: the turn did not fail for good, its letter was dropped, or its run is forgotten.
    #[error("there is no dead letter {0}")]
    NoLetter(TurnId),
    /// The run has no turn of the number that was asked for.
    #[error("the run has no turn {turn}; its last is {last}")]
    NoTurn {
        /// The number asked for.
        turn: u32,
        /// The number of the run's last turn.
        last: u32,
    },
    /// What led to the turn is not copied, so it cannot begin.
    #[error("turn {0} cannot start again: what led to it is not copied")]
    NotReached(u32),
    /// A channel does not take what was changed.
    #[error(transparent)]
    State(#[from] StateError),
    /// What was changed is larger than a command may be.
    #[error("the input and the writes have {size} bytes; at most {MAX_COMMAND} are allowed")]
    TooLarge {
        /// The size of the input, the written values and the names of their channels, in bytes.
        size: usize,
    },
    /// The fork would begin beyond one of its limits.
    #[error("the turns that are copied have used {used} {limit}, and the fork may use {given}: give it {used} or more")]
    LimitUsed {
        /// Which limit: `handoffs` or `agents`.
        limit: &'static str,
        /// The value that [`Fork::limits`] gave it.
        given: u32,
        /// How much of it the turns that are copied have used.
        used: u32,
    },
    /// A value is nested too deeply to be stored.
    #[error(transparent)]
    OverLimit(#[from] OverLimit),
    /// The board takes no new work, because it shuts down.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The run that is to continue by another definition was not cancelled, because this board does not work on it: another board owns
    /// it, it is quarantined, or the board has stopped.
    #[error("this board does not work on run {0}; have it migrated by the board that does")]
    NotHere(RunId),
    /// The new definition of a run's workflow cannot start: it is invalid, the run's input does not fit it, or the
    /// board refuses one of its agents.
    #[error(transparent)]
    Submit(Box<SubmitError>),
    /// The store could not be read or written.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// It is not known whether the fork was journaled.
    #[error(transparent)]
    Unacknowledged(#[from] Unacknowledged),
}

impl Fork {
    /// Creates a fork that changes nothing: the turn begins with the input and the state that it had.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the input of the turn that the fork begins at.
    #[must_use]
    pub fn input(mut self, input: impl Into<Json>) -> Self {
        self.input = Some(input.into());
        self
    }

    /// Changes what the turn finds in a channel, past the channel's reducer.
    #[must_use]
    pub fn set(mut self, channel: &str, value: impl Into<Json>) -> Self {
        self.update.push(channel, value.into(), true);
        self
    }

    /// Adds a write to a channel, which its reducer combines with what the turn would find there.
    #[must_use]
    pub fn with(mut self, channel: &str, value: impl Into<Json>) -> Self {
        self.update.push(channel, value.into(), false);
        self
    }

    /// Gives the fork limits of its own. Tokens are counted from its beginning; handoffs and agents of the turns that are copied
    /// count.
    #[must_use]
    pub fn limits(mut self, limits: impl Into<Limits>) -> Self {
        self.limits = Some(limits.into());
        self
    }

    /// Has the fork leave its messages in the conversation of the run, as the retry of a dead letter does (SEMANTICS 15).
    #[must_use]
    pub fn in_conversation(mut self) -> Self {
        self.is_in_conversation = true;
        self
    }

    /// Sets who asks for the fork from outside of the board ([`Fork::from_agent`]).
    #[must_use]
    pub fn from_agent(mut self, name: AgentName) -> Self {
        self.from_agent = Some(name);
        self
    }

    /// The first events of the run `run`, forked from `history` at a turn, whether that has ended or not: the turn is open in it,
    /// with nothing recorded and with what this changes. `at` is the time of the fork.
    ///
    /// # Errors
    /// See [`ForkError`].
    ///
    /// # Panics
    /// When a custom reducer does.
    pub fn events(
        &self,
        history: &[RunEvent],
        turn: u32,
        (run, at): (RunId, Timestamp),
        rules: &StateRules,
    ) -> Result<Vec<RunEvent>, ForkError> {
        self.check_size()?;
        let history = &*in_order_of_effect(history.to_vec());
        let Some(RunEvent::Submitted(original)) = history.first() else { return Err(ForkError::Trimmed) };
        let (end, last) = end_of(history, turn, original, rules);
        if !(1..=last).contains(&turn) {
            return Err(ForkError::NoTurn { turn, last });
        }
        let from = TurnId { run: original.run, number: turn };
        let mut submission = submission(original, (run, at), self.from_agent.clone());
        if let Some(limits) = &self.limits {
            submission.task.limits = Some(limits.clone());
        }
        let copy = copy_around(history, turn, end, submission, rules).ok_or(ForkError::Trimmed)?;
        let (Some(name), mut events) = (copy.names.get(&turn).copied(), copy.events) else {
            return Err(ForkError::NotReached(turn));
        };
        let open = copy.new.turn(name).ok_or(ForkError::NotReached(turn))?;
        copy.new.branch_of(open).view.clone().apply(&self.update, copy.new.rules())?;
        if self.limits.is_some() {
            check_limits(&copy.new)?;
        }
        let Fork { input, update, limits: _, is_in_conversation, from_agent: _ } = self.clone();
        events.push(RunEvent::Forked { turn: name, from, input, update, at });
        if is_in_conversation {
            events.extend(entry(history));
        }
        Ok(events)
    }

    fn check_size(&self) -> Result<(), ForkError> {
        let values = || self.input.iter().chain(self.update.writes().iter().map(|write| &write.value));
        if values().any(Json::is_too_deep) {
            return Err(OverLimit::depth("a value").into());
        }
        let channels: usize = self.update.writes().iter().map(|write| write.channel.len()).sum();
        let size = channels + values().map(Json::size).sum::<usize>();
        if size > MAX_COMMAND { Err(ForkError::TooLarge { size }) } else { Ok(()) }
    }
}

/// The submission of a fork that `from_agent` asks for.
#[must_use]
pub(crate) fn submission(
    original: &Submission,
    (run, at): (RunId, Timestamp),
    from_agent: Option<AgentName>,
) -> Submission {
    let mut submission = Submission { run, at, ..original.clone() };
    // The span was that of the other requester.
    submission.task.trace_parent = submission.task.trace_parent.filter(|_| submission.task.from_agent == from_agent);
    (submission.task.id, submission.task.from_agent) = (None, from_agent);
    submission
}

/// The first events of the run that `submission` begins, forked from `history` where the turn of a letter failed; the turn is open
/// again in it, with nothing recorded.
///
/// # Errors
/// [`ForkError::NoLetter`] if the history does not begin with a submission or has no such failure; [`ForkError::LimitUsed`] if the submission
/// has other limits than the run had, and the turns that are copied have used more.
///
/// # Panics
/// When a custom reducer does.
pub(crate) fn fork(
    history: &[RunEvent],
    letter: TurnId,
    submission: Submission,
    rules: &StateRules,
) -> Result<Vec<RunEvent>, ForkError> {
    let history = &*in_order_of_effect(history.to_vec());
    let dead = letter.number;
    let end = history.iter().position(|event| matches!(event, RunEvent::TurnFailed { turn, .. } if *turn == dead));
    let has_other_limits =
        matches!(history.first(), Some(RunEvent::Submitted(original)) if original.limits() != submission.limits());
    let copy = end.and_then(|end| copy_around(history, dead, end, submission, rules));
    let copy = copy.filter(|copy| copy.names.contains_key(&dead)).ok_or(ForkError::NoLetter(letter))?;
    if has_other_limits {
        check_limits(&copy.new)?;
    }
    Ok(copy.events)
}

/// The event with which the run entered its conversation, if it is in one.
pub(crate) fn entry(history: &[RunEvent]) -> Option<RunEvent> {
    history.iter().find(|event| matches!(event, RunEvent::ConversationEntered { .. })).cloned()
}

/// Checks that the copied turns are within the limits of the fork.
fn check_limits(copied: &Run) -> Result<(), ForkError> {
    let limits = copied.submission().limits();
    let agents = u32::try_from(copied.tally().agents().len()).unwrap_or(u32::MAX);
    for (limit, given, used) in
        [("handoffs", limits.handoffs, copied.tally().handoffs()), ("agents", limits.agents, agents)]
    {
        if used > given {
            return Err(ForkError::LimitUsed { limit, given, used });
        }
    }
    Ok(())
}

/// The first events of the run `run`, which continues with another plan: turns that ended in `history` and are the same in both
/// plans keep their answers. Failed turns run again.
///
/// # Errors
/// See [`ForkError`].
///
/// # Panics
/// When a custom reducer does.
pub(crate) fn migrate(
    history: &[RunEvent],
    (plan, cast): (Arc<Plan>, Vec<AgentName>),
    (run, at): (RunId, Timestamp),
    rules: &StateRules,
) -> Result<Vec<RunEvent>, ForkError> {
    let continues = |event: &RunEvent| !matches!(event, RunEvent::TurnFailed { .. } | RunEvent::Stopped { .. });
    let mut history = in_order_of_effect(history.to_vec());
    history.retain(continues);
    let Some(RunEvent::Submitted(original)) = history.first() else { return Err(ForkError::Trimmed) };
    // It continues for whoever asked for the run.
    let from_agent = original.task.from_agent.clone();
    let mut submission = Submission { cast, ..submission(original, (run, at), from_agent) };
    submission.task.plan = Some(plan);
    // No turn has this number, so only turns that do not begin alike are left out.
    let copy = copy_around(&history, 0, history.len(), submission, rules).ok_or(ForkError::Trimmed)?;
    Ok(copy.events)
}

/// The position of the event that closes a turn, or the history's length; and the number of the last turn.
fn end_of(history: &[RunEvent], turn: u32, original: &Arc<Submission>, rules: &StateRules) -> (usize, u32) {
    let (mut run, _) = Run::begin(Arc::clone(original), rules.clone());
    let mut end = None;
    for (position, event) in history.iter().enumerate().skip(1) {
        let was_open = run.turns().contains(turn);
        run.step(event);
        if was_open && !run.turns().contains(turn) {
            end = Some(position);
        }
    }
    (end.unwrap_or(history.len()), run.turns().next_number() - 1)
}

/// Copies everything that was not caused by turn `dead`, which the event at `end` closed.
fn copy_around(
    history: &[RunEvent],
    dead: u32,
    end: usize,
    submission: Submission,
    rules: &StateRules,
) -> Option<Copy> {
    let RunEvent::Submitted(original) = history.first()? else { return None };
    let reached = Reached::at(end, history, dead, Arc::clone(original), rules);
    let mut copy = Copy::new(Arc::clone(original), submission, rules);
    for (position, event) in history.iter().enumerate().skip(1) {
        let is_after = position >= end;
        let is_wanted = match event.turn() {
            // Changes that an earlier fork made to the turn are not the turn's own events.
            Some(turn) if turn == dead => matches!(event, RunEvent::Forked { .. }),
            Some(turn) => !(is_after && reached.waiting.contains(&turn)),
            None => false,
        };
        let is_wanted = is_wanted && match event {
            RunEvent::TurnFailed { turn, .. } => !is_after && !reached.unseen.contains(turn),
            // This command would cancel the turn that is to run.
            RunEvent::TurnEnded { command, .. } => !is_after || !matches!(command.goto, Goto::End),
            RunEvent::Answered { .. }
            | RunEvent::QuestionExpired { .. }
            | RunEvent::StepStarted { .. }
            | RunEvent::StepFinished { .. }
            | RunEvent::StepFailed { .. }
            | RunEvent::IntentRecorded { .. }
            | RunEvent::OutcomeResolved { .. }
            | RunEvent::Delegated { .. }
            | RunEvent::DelegationExpired { .. }
            | RunEvent::HandoffChecked { .. }
            | RunEvent::AgentMade { .. }
            | RunEvent::Tainted { .. }
            | RunEvent::Summarized { .. }
            | RunEvent::TurnRestarted { .. }
            | RunEvent::Overwritten { .. }
            | RunEvent::Resumed { .. }
            | RunEvent::Forked { .. } => true,
            RunEvent::Asked { turn, ordinal, .. } | RunEvent::AskedUntil { turn, ordinal, .. } => {
                history[position..].iter().enumerate().any(|(later, event)| {
                    let is_copied = position + later < end || !reached.waiting.contains(turn);
                    is_copied
                        && matches!(
                            event,
                            RunEvent::Answered { turn: t, ordinal: o, .. }
                                | RunEvent::QuestionExpired { turn: t, ordinal: o, .. } if (t, o) == (turn, ordinal)
                        )
                })
            }
            // Without an answer, the copied turn asks again.
            RunEvent::OutcomeUnknown { turn, ordinal, .. } => {
                history[position..].iter().enumerate().any(|(later, event)| {
                    let is_copied = position + later < end || !reached.waiting.contains(turn);
                    is_copied
                        && matches!(event, RunEvent::OutcomeResolved { turn: t, ordinal: o, .. } if (t, o) == (turn, ordinal))
                })
            }
            RunEvent::Decided { ordinal, .. } => *ordinal == HANDOFF_ORDINAL,
            RunEvent::Submitted(_)
            | RunEvent::Reserved { .. }
            | RunEvent::Settled { .. }
            | RunEvent::ApprovalAsked { .. }
            | RunEvent::Noticed { .. }
            | RunEvent::AttemptFailed { .. }
            | RunEvent::Recovered { .. }
            | RunEvent::NeedsAttention { .. }
            | RunEvent::ConversationEntered { .. }
            | RunEvent::ConversationRead { .. }
            | RunEvent::ReferenceChanged { .. }
            | RunEvent::Stopped { .. } => false,
        };
        copy.follow(event, is_wanted, is_after);
    }
    Some(copy)
}

/// The turns that wait for the turn's end, and the failures that had reached no other turn by then.
struct Reached {
    /// The turns that wait for it, directly or through others.
    waiting: BTreeSet<u32>,
    /// Failed siblings in forks that have not joined.
    unseen: BTreeSet<u32>,
}

impl Reached {
    fn at(end: usize, history: &[RunEvent], dead: u32, original: Arc<Submission>, rules: &StateRules) -> Self {
        let (mut run, _) = Run::begin(original, rules.clone());
        let mut failed = Vec::new();
        for event in &history[1..end] {
            if let RunEvent::TurnFailed { turn, .. } = event
                && let Some(branch) = run.turns().get(*turn).and_then(|open| run.branches().get(open.branch))
                && let Origin::Fork { parent, .. } = branch.origin
            {
                failed.push((*turn, parent));
            }
            run.step(event);
        }
        let is_open = |parent: &u32| matches!(run.branches().get(*parent).map(|fork| &fork.now), Some(Now::Forked(_)));
        let unseen = failed.iter().filter(|(_, parent)| is_open(parent)).map(|(turn, _)| *turn).collect();
        let waiting = run.turns().get(dead).map(|dead| waiting_above(&run, dead.branch)).unwrap_or_default();
        Self { waiting, unseen }
    }
}

/// The open turns that a branch works for.
fn waiting_above(run: &Run, mut branch: u32) -> BTreeSet<u32> {
    let mut waiting = BTreeSet::new();
    while let Some(here) = run.branches().get(branch) {
        branch = match here.origin {
            Origin::Root => break,
            Origin::Fork { parent, .. } | Origin::Node { parent, .. } | Origin::Compensation { parent } => parent,
            Origin::Delegation { turn, ordinal } => match run.turns().get(turn) {
                Some(open) => {
                    waiting.insert(turn);
                    open.branch
                }
                None => match run.branches().with_outbound(RequestKey { turn, ordinal }) {
                    Some((asking, _)) => {
                        if let Now::Turn(turn) = run.branches()[asking].now {
                            waiting.insert(turn);
                        }
                        asking
                    }
                    None => break,
                },
            },
        };
    }
    waiting
}

/// Both runs at the same event; turns have other numbers in the new run.
struct Copy {
    old: Run,
    new: Run,
    /// The new number of each turn that was copied.
    names: BTreeMap<u32, u32>,
    /// Decisions of turns that ended with a parked handoff: in the fork, the turns end with these decisions.
    parked: BTreeMap<u32, RunEvent>,
    events: Vec<RunEvent>,
    /// The new run has another plan: only turns that begin alike are copied.
    is_changed: bool,
}

impl Copy {
    fn new(original: Arc<Submission>, submission: Submission, rules: &StateRules) -> Self {
        let submission = Arc::new(submission);
        let (new, _) = Run::begin(Arc::clone(&submission), rules.clone());
        let (old, _) = Run::begin(original, rules.clone());
        let is_changed = old.submission().task.plan != submission.task.plan;
        let (names, parked, events) = (BTreeMap::new(), BTreeMap::new(), vec![RunEvent::Submitted(submission)]);
        let mut copy = Self { old, new, names, parked, events, is_changed };
        copy.name_turns(1, 1, is_changed);
        copy
    }

    /// Applies an event of the old run to it and, if wanted, its copy to the new one.
    fn follow(&mut self, event: &RunEvent, is_wanted: bool, is_after: bool) {
        let first_of_old = self.old.turns().next_number();
        self.old.step(event);
        // The fork sees what the run has read, and leaves no messages itself. It refers to what the run referred to.
        if matches!(event, RunEvent::ConversationRead { .. } | RunEvent::ReferenceChanged { .. }) {
            self.new.step(event);
            self.events.push(event.clone());
        }
        let Some(copied) = event.turn().filter(|_| is_wanted).and_then(|turn| self.copied(turn, event)) else { return };
        let first_of_new = self.new.turns().next_number();
        self.new.step(&copied);
        self.events.push(copied);
        self.name_turns(first_of_old, first_of_new, is_after || self.is_changed);
    }

    /// Maps the turns that the old run has begun to those of the new run.
    fn name_turns(&mut self, first_of_old: u32, first_of_new: u32, may_differ: bool) {
        let new_turns = first_of_new..self.new.turns().next_number();
        for (old, beside) in (first_of_old..self.old.turns().next_number()).zip(first_of_new..) {
            // In a plan, one event may begin several nodes in another order.
            let new = match self.old.node_of(old) {
                Some(node) => new_turns.clone().find(|new| self.new.node_of(*new).as_ref() == Some(&node)),
                None => new_turns.contains(&beside).then_some(beside),
            };
            let Some(new) = new else { continue };
            // After the end of the turn, the two runs may differ.
            if !may_differ || self.begin_alike(old, new) {
                self.names.insert(old, new);
            }
        }
    }

    fn begin_alike(&self, old: u32, new: u32) -> bool {
        match (self.old.turn(old), self.new.turn(new)) {
            (Some(old), Some(new)) => (&old.agent, &old.input) == (&new.agent, &new.input),
            (Some(_) | None, _) => false,
        }
    }

    /// The event as the new run has it.
    fn copied(&mut self, turn: u32, event: &RunEvent) -> Option<RunEvent> {
        let name = *self.names.get(&turn)?;
        let mut copied = match event {
            RunEvent::TurnEnded { verdict: Verdict::Parked(_), .. } => {
                self.parked.insert(turn, event.clone());
                return None;
            }
            RunEvent::Decided { verdict: decided, .. } => {
                let mut ended = self.parked.remove(&turn)?;
                if let RunEvent::TurnEnded { verdict, .. } = &mut ended {
                    *verdict = decided.clone();
                }
                ended
            }
            event => event.clone(),
        };
        if let RunEvent::Delegated { at, order, .. } = &mut copied
            && order.deadline.is_some()
        {
            // The deadline of the answer starts again.
            *at = self.new.submission().at;
        }
        *copied.turn_mut()? = name;
        Some(copied)
    }
}
