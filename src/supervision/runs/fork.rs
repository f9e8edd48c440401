//! A fork: the beginning of a new run that is an old one up to a turn that failed for good. Pure.
//!
//! What the failed turn caused is left out, and everything that did not come from it is copied, whenever it happened: the
//! cause decides, not the time. So a sibling of the failed turn that ended after it is not done again, and the turns that
//! wait for the failed one begin again with what they had asked for before. A turn that failed beside it, and whose
//! failure nobody has been told, runs again too: it has no answer to copy.
//!
//! Not copied are tokens (the fork has a budget of its own), failed attempts, open questions, and any consent that a turn
//! asked for while it ran: an approval binds to its run. A turn that has ended is not asked about again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::messages::state::StateRules;
use crate::messages::{Goto, RunEvent, Submission, Verdict};

use super::reopen::in_order_of_effect;
use super::run::{HANDOFF_ORDINAL, Now, Origin, Run};

/// The first events of the run that `submission` begins, forked from `history` where turn `dead` failed; the turn is open
/// again in it, with nothing recorded. `None` if the history does not begin with a submission or has no such failure.
///
/// # Panics
/// When a custom reducer does.
#[must_use]
pub fn fork(history: &[RunEvent], dead: u32, submission: Submission, rules: &StateRules) -> Option<Vec<RunEvent>> {
    let history = &*in_order_of_effect(history.to_vec());
    let RunEvent::Submitted(original) = history.first()? else { return None };
    let end = history.iter().position(|event| matches!(event, RunEvent::TurnFailed { turn, .. } if *turn == dead))?;
    let told = ToldBy::at(end, history, Arc::clone(original), rules);
    let submission = Arc::new(submission);
    let (new, _) = Run::begin(Arc::clone(&submission), rules.clone());
    let (old, _) = Run::begin(Arc::clone(original), rules.clone());
    let mut copy = Copy {
        old,
        new,
        names: BTreeMap::from([(1, 1)]),
        parked: BTreeMap::new(),
        events: vec![RunEvent::Submitted(submission)],
    };
    for (position, event) in history.iter().enumerate().skip(1) {
        let is_after = position >= end;
        let is_wanted = match event.turn() {
            Some(turn) => turn != dead && !(is_after && told.waiting.contains(&turn)),
            None => false,
        };
        let is_wanted = is_wanted && match event {
            RunEvent::TurnFailed { turn, .. } => !is_after && !told.untold.contains(turn),
            // It would cancel the turn that is to run.
            RunEvent::TurnEnded { command, .. } => !is_after || !matches!(command.goto, Goto::End),
            RunEvent::Answered { .. }
            | RunEvent::StepStarted { .. }
            | RunEvent::StepFinished { .. }
            | RunEvent::Delegated { .. }
            | RunEvent::DelegationExpired { .. }
            | RunEvent::TurnRestarted { .. }
            | RunEvent::Overwritten { .. } => true,
            RunEvent::Asked { turn, ordinal, .. } => history[position..].iter().enumerate().any(|(later, event)| {
                let is_copied = position + later < end || !told.waiting.contains(turn);
                is_copied
                    && matches!(event, RunEvent::Answered { turn: t, ordinal: o, .. } if (t, o) == (turn, ordinal))
            }),
            RunEvent::Decided { ordinal, .. } => *ordinal == HANDOFF_ORDINAL,
            RunEvent::Submitted(_)
            | RunEvent::Reserved { .. }
            | RunEvent::Settled { .. }
            | RunEvent::ApprovalAsked { .. }
            | RunEvent::Noticed { .. }
            | RunEvent::AttemptFailed { .. }
            | RunEvent::Recovered { .. }
            | RunEvent::NeedsAttention { .. }
            | RunEvent::Stopped { .. } => false,
        };
        copy.follow(event, is_wanted, is_after);
    }
    copy.names.contains_key(&dead).then_some(copy.events)
}

/// Who was told of the failure, and whose failures nobody was told of by then.
struct ToldBy {
    /// The turns that the failed one works for, near and far.
    waiting: BTreeSet<u32>,
    /// Failed siblings in forks that have not joined.
    untold: BTreeSet<u32>,
}

impl ToldBy {
    fn at(end: usize, history: &[RunEvent], original: Arc<Submission>, rules: &StateRules) -> Self {
        let (mut run, _) = Run::begin(original, rules.clone());
        let mut failed = Vec::new();
        for event in &history[1..end] {
            if let RunEvent::TurnFailed { turn, .. } = event
                && let Some(branch) = run.turns.get(turn).and_then(|open| run.branches.get(&open.branch))
                && let Origin::Fork { parent, .. } = branch.origin
            {
                failed.push((*turn, parent));
            }
            run.step(event);
        }
        let is_open = |parent: &u32| matches!(run.branches.get(parent).map(|fork| &fork.now), Some(Now::Forked { .. }));
        let untold = failed.iter().filter(|(_, parent)| is_open(parent)).map(|(turn, _)| *turn).collect();
        let dead = history[end].turn().and_then(|dead| run.turns.get(&dead));
        let waiting = dead.map(|dead| waiting_above(&run, dead.branch)).unwrap_or_default();
        Self { waiting, untold }
    }
}

/// The open turns that a branch works for.
fn waiting_above(run: &Run, mut branch: u32) -> BTreeSet<u32> {
    let mut waiting = BTreeSet::new();
    while let Some(here) = run.branches.get(&branch) {
        branch = match here.origin {
            Origin::Root => break,
            Origin::Fork { parent, .. } => parent,
            Origin::Delegation { turn, ordinal } => match run.turns.get(&turn) {
                Some(open) => {
                    waiting.insert(turn);
                    open.branch
                }
                None => match run.branches.iter().find(|(_, branch)| branch.outbound(turn, ordinal).is_some()) {
                    Some((asking, _)) => {
                        if let Now::Turn(turn) = run.branches[asking].now {
                            waiting.insert(turn);
                        }
                        *asking
                    }
                    None => break,
                },
            },
        };
    }
    waiting
}

/// Both runs, side by side: turns have other numbers in the new one.
struct Copy {
    old: Run,
    new: Run,
    /// The new number of each turn that was copied.
    names: BTreeMap<u32, u32>,
    /// Turns that ended with a question about their handoff: they end, in the fork, with what was decided.
    parked: BTreeMap<u32, RunEvent>,
    events: Vec<RunEvent>,
}

impl Copy {
    /// Takes the old run one event on, and the new one with it.
    fn follow(&mut self, event: &RunEvent, is_wanted: bool, is_after: bool) {
        let first_of_old = self.old.next_turn;
        self.old.step(event);
        let Some(copied) = event.turn().filter(|_| is_wanted).and_then(|turn| self.copied(turn, event)) else { return };
        let first_of_new = self.new.next_turn;
        self.new.step(&copied);
        self.events.push(copied);
        for (old, new) in (first_of_old..self.old.next_turn).zip(first_of_new..self.new.next_turn) {
            // From the failure on, the two runs may go on differently.
            if !is_after || self.begin_alike(old, new) {
                self.names.insert(old, new);
            }
        }
    }

    fn begin_alike(&self, old: u32, new: u32) -> bool {
        match (self.old.turns.get(&old), self.new.turns.get(&new)) {
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
            // The time that an answer may take begins anew.
            *at = self.new.submission().at;
        }
        *copied.turn_mut()? = name;
        Some(copied)
    }
}
