//! The turns of a run that are admitted and have not ended.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::messages::state::{RunFigures, ToolUses};
use crate::messages::{AgentName, EarlierAnswer, Json, Refusal, Timestamp};
use crate::supervision::runs::rules::numbered::Numbered;
use crate::supervision::runs::rules::requests::{Attempt, RequestKey};
use crate::supervision::runs::rules::small_map::SmallSet;

use super::record::{self, ChildDeltas, Kept, Record, Records};

/// The open turns of a run by their numbers, which are given in the order in which turns are admitted, from 1.
#[derive(Clone, Debug)]
pub(in crate::supervision::runs) struct OpenTurns {
    open: Numbered<Box<OpenTurn>>,
    /// The number of the next turn; every lower one has been given.
    next: u32,
    /// What of them waits for people. It follows from the phases and records of the turns, which change here alone.
    for_people: SmallSet<ForPeople>,
}

/// Something that waits for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ForPeople {
    turn: u32,
    /// The request; `None` for the turn itself, because of its phase.
    ordinal: Option<u32>,
}

impl OpenTurns {
    pub(super) fn new() -> Self {
        Self::of_parts(Numbered::new(), 1)
    }

    pub(super) fn of_parts(open: Numbered<Box<OpenTurn>>, next: u32) -> Self {
        let for_people = open.iter().flat_map(|(turn, open)| open.for_people(*turn)).collect();
        Self { open, next, for_people }
    }

    pub(super) fn parts(&self) -> (&Numbered<Box<OpenTurn>>, u32) {
        (&self.open, self.next)
    }

    /// The number that the next turn will have.
    pub(in crate::supervision::runs) fn next_number(&self) -> u32 {
        self.next
    }

    pub(in crate::supervision::runs) fn get(&self, number: u32) -> Option<&OpenTurn> {
        self.open.get(number).map(|turn| &**turn)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut OpenTurn> {
        self.open.get_mut(number).map(|turn| &mut **turn)
    }

    pub(in crate::supervision::runs) fn len(&self) -> usize {
        self.open.len()
    }

    pub(in crate::supervision::runs) fn contains(&self, number: u32) -> bool {
        self.open.get(number).is_some()
    }

    /// The numbers of the open turns, in order.
    pub(in crate::supervision::runs) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.open.iter().map(|(number, _)| *number)
    }

    /// In the order of their numbers.
    pub(in crate::supervision::runs) fn iter(&self) -> impl Iterator<Item = (u32, &OpenTurn)> {
        self.open.iter().map(|(number, turn)| (*number, &**turn))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut OpenTurn)> {
        self.open.iter_mut().map(|(number, turn)| (*number, &mut **turn))
    }

    /// Opens a turn; returns its number.
    pub(super) fn open(&mut self, turn: OpenTurn) -> u32 {
        let number = self.next;
        self.next += 1;
        self.for_people.extend(turn.for_people(number));
        self.open.insert(number, Box::new(turn));
        number
    }

    /// Removes a turn that has ended.
    pub(super) fn close(&mut self, number: u32) -> Option<Box<OpenTurn>> {
        self.forget_for_people(number);
        self.open.remove(number)
    }

    /// Sets the phase of an open turn; returns the earlier one.
    pub(super) fn set_phase(&mut self, turn: u32, phase: Phase) -> Option<Phase> {
        let open = self.open.get_mut(turn)?;
        let waits = phase.waits_for_people();
        let before = std::mem::replace(&mut open.phase, phase);
        self.note(ForPeople { turn, ordinal: None }, waits);
        Some(before)
    }

    /// Stores the record of an open turn's request; replaces an earlier record.
    pub(super) fn record(&mut self, RequestKey { turn, ordinal }: RequestKey, record: Record) {
        if let Some(open) = self.open.get_mut(turn) {
            let waits = record.waits_for_people();
            open.kept.records.insert(ordinal, Box::new(record));
            self.note(ForPeople { turn, ordinal: Some(ordinal) }, waits);
        }
    }

    /// Changes the uses of tools among the figures of an open turn, if it has figures.
    pub(super) fn show_tools(&mut self, turn: u32, tools: &Arc<ToolUses>) {
        if let Some(figures) = self.open.get_mut(turn).and_then(|open| open.kept.figures.as_mut()) {
            figures.tools_used = Some(Arc::clone(tools));
        }
    }

    /// As before turns had the figures of their run.
    #[cfg(test)]
    pub(super) fn forget_figures(&mut self, turn: u32) {
        if let Some(open) = self.open.get_mut(turn) {
            open.kept.figures = None;
        }
    }

    /// Changes the record of an open turn's request; `None` if there is none.
    pub(super) fn change_record<T>(
        &mut self,
        RequestKey { turn, ordinal }: RequestKey,
        change: impl FnOnce(&mut Record) -> T,
    ) -> Option<T> {
        let record = self.open.get_mut(turn)?.kept.records.get_mut(&ordinal)?;
        let changed = change(record);
        let waits = record.waits_for_people();
        self.note(ForPeople { turn, ordinal: Some(ordinal) }, waits);
        Some(changed)
    }

    /// Removes the records of an open turn that are wanted, and returns them in the order of the requests.
    pub(super) fn take_records(
        &mut self,
        turn: u32,
        mut is_wanted: impl FnMut(u32, &Record) -> bool,
    ) -> Vec<(u32, Record)> {
        let Some(open) = self.open.get_mut(turn) else { return Vec::new() };
        let taken = open.kept.records.extract(.., |ordinal, record| is_wanted(*ordinal, record));
        let taken: Vec<(u32, Record)> = taken.into_iter().map(|(ordinal, record)| (ordinal, *record)).collect();
        for (ordinal, _) in &taken {
            self.note(ForPeople { turn, ordinal: Some(*ordinal) }, false);
        }
        taken
    }

    /// The requests that wait for people, in the order of the turns and of their requests.
    pub(super) fn requests_for_people(&self) -> impl Iterator<Item = (RequestKey, &OpenTurn, &Record)> {
        self.for_people.iter().filter_map(|&ForPeople { turn, ordinal }| {
            let (open, ordinal) = (self.get(turn)?, ordinal?);
            Some((RequestKey { turn, ordinal }, open, open.record(ordinal)?))
        })
    }

    /// The turns that wait for people themselves, because they need attention or are interrupted.
    pub(in crate::supervision::runs) fn held_for_people(&self) -> impl Iterator<Item = (u32, &OpenTurn)> {
        let held = self.for_people.iter().filter(|waits| waits.ordinal.is_none());
        held.filter_map(|waits| Some((waits.turn, self.get(waits.turn)?)))
    }

    fn note(&mut self, what: ForPeople, waits: bool) {
        if waits {
            self.for_people.insert(what);
        } else {
            self.for_people.remove(&what);
        }
    }

    fn forget_for_people(&mut self, turn: u32) {
        let [first, last] = [None, Some(u32::MAX)].map(|ordinal| ForPeople { turn, ordinal });
        self.for_people.remove_range(first..=last);
    }
}

/// A turn that was admitted and has not ended: a lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OpenTurn {
    pub(in crate::supervision::runs) branch: u32,
    pub(in crate::supervision::runs) agent: AgentName,
    pub(in crate::supervision::runs) input: Json,
    pub(in crate::supervision::runs) attempt: Attempt,
    phase: Phase,
    /// What it has asked for, and what else is kept of it.
    kept: Kept,
    pub(in crate::supervision::runs) recoveries: u32,
    /// The run was tainted when the turn was admitted. Later events do not change this: a repeated attempt runs under the same
    /// conditions as the first.
    pub(in crate::supervision::runs) is_tainted: bool,
    /// The definitions of its dynamic agent and that agent's makers, from the one that the host created. A change counts for
    /// later turns.
    pub(in crate::supervision::runs) made: Option<Arc<[Json]>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::supervision::runs) enum Phase {
    Leased,
    Backoff {
        until: Timestamp,
    },
    NeedsAttention {
        /// The records of an earlier attempt do not match its requests.
        has_changed: bool,
        why: Arc<str>,
    },
    /// Its node starts when a person resumes it.
    Interrupted,
}

impl Phase {
    /// Whether a turn in this phase waits for people, whatever it has asked for.
    fn waits_for_people(&self) -> bool {
        match self {
            Self::NeedsAttention { .. } | Self::Interrupted => true,
            Self::Leased | Self::Backoff { .. } => false,
        }
    }
}

impl OpenTurn {
    /// A turn that is admitted, before its first request.
    pub(in crate::supervision::runs) fn new(branch: u32, agent: AgentName, input: Json, attempt: Attempt) -> Self {
        let (phase, kept) = (Phase::Leased, Kept::default());
        Self { branch, agent, input, attempt, phase, kept, recoveries: 0, is_tainted: false, made: None }
    }

    /// The turn with the figures of the run at its admission.
    pub(super) fn with_figures(mut self, figures: Option<RunFigures>) -> Self {
        self.kept.figures = figures;
        self
    }

    /// What of it waits for people.
    fn for_people(&self, turn: u32) -> impl Iterator<Item = ForPeople> {
        let itself = self.phase.waits_for_people().then_some(ForPeople { turn, ordinal: None });
        let asked = self.kept.records.iter().filter(|(_, record)| record.waits_for_people());
        itself.into_iter().chain(asked.map(move |(ordinal, _)| ForPeople { turn, ordinal: Some(*ordinal) }))
    }

    /// What it does, or waits for before it can.
    pub(in crate::supervision::runs) fn phase(&self) -> &Phase {
        &self.phase
    }

    /// Its requests with their answers, by ordinal.
    pub(in crate::supervision::runs) fn records(&self) -> &Records {
        &self.kept.records
    }

    /// See [`record::has_requests`].
    pub(in crate::supervision::runs) fn has_requests(&self) -> bool {
        record::has_requests(&self.kept.records)
    }

    /// See [`record::is_taken_elsewhere`].
    pub(in crate::supervision::runs) fn is_taken_elsewhere(&self) -> bool {
        record::is_taken_elsewhere(&self.kept.records)
    }

    /// The turn's agent.
    #[must_use]
    pub(crate) fn agent(&self) -> &AgentName {
        &self.agent
    }

    /// The record under an ordinal.
    #[must_use]
    pub(crate) fn record(&self, ordinal: u32) -> Option<&Record> {
        self.kept.records.get(&ordinal).map(|record| &**record)
    }

    /// Whether the run had read untrusted input when it was admitted.
    #[must_use]
    pub(crate) fn is_tainted(&self) -> bool {
        self.is_tainted
    }

    /// The figures of the run when it was admitted, if the schema shows them.
    #[must_use]
    pub(crate) fn figures(&self) -> Option<&RunFigures> {
        self.kept.figures.as_ref()
    }

    /// The first handoff check of the turn that was refused.
    pub(in crate::supervision::runs) fn refused_handoff(&self) -> Option<(&[Arc<str>], &Refusal)> {
        self.kept.records.values().find_map(|record| match &**record {
            Record::HandoffCheck { to, refusal: Some(refusal) } => Some((to.as_slice(), &**refusal)),
            Record::HandoffCheck { refusal: None, .. }
            | Record::StepStarted { .. }
            | Record::Step { .. }
            | Record::Delegation { .. }
            | Record::Question { .. }
            | Record::TimedQuestion { .. }
            | Record::Made { .. }
            | Record::Once(_)
            | Record::StepFailed { .. }
            | Record::Figures(_)
            | Record::TakenElsewhere
            | Record::Approval { .. } => None,
        })
    }

    /// Whether it waits for something outside of it: for people, for an answer, or for the run that takes it at another board. A recovery
    /// by a new process is then not counted.
    pub(in crate::supervision::runs) fn is_waiting(&self) -> bool {
        self.kept.records.values().any(|record| match &**record {
            Record::Delegation { order, reply, .. } => reply.is_none() && !order.is_detached,
            Record::TakenElsewhere => true,
            record => record.waits_for_people(),
        })
    }

    /// Whether an attempt of it may be executed, as far as its records show: it waits for nothing, or something that it does beside its
    /// wait has begun and has no end.
    pub(in crate::supervision::runs) fn may_be_executed(&self) -> bool {
        !self.is_waiting() || self.kept.records.values().any(|record| record.is_under_way())
    }

    /// Whether it has an unanswered delegation for which it does not wait.
    pub(in crate::supervision::runs) fn has_detached(&self) -> bool {
        let is_detached =
            |record: &Record| matches!(record, Record::Delegation { order, reply: None, .. } if order.is_detached);
        !self.kept.records.is_empty() && self.kept.records.values().any(|record| is_detached(record))
    }

    /// Whether an answer comes in a turn of its own once this one has ended, also one that is there already.
    pub(in crate::supervision::runs) fn leaves_answers(&self) -> bool {
        !self.kept.records.is_empty() && self.kept.records.values().any(|record| record.leaves_answer())
    }

    /// The answers to its delegations so far, in the order of the requests.
    pub(in crate::supervision::runs) fn earlier_answers(&self) -> Option<Arc<[EarlierAnswer]>> {
        let answered = |record: &Record| match record {
            Record::Delegation { order, reply: Some(reply), .. } => {
                let answer = Result::as_ref(reply).ok()?;
                let (to, body) = (Arc::clone(&order.to), Arc::clone(&order.body));
                Some(EarlierAnswer { to, body, answer: answer.clone() })
            }
            _ => None,
        };
        let mut answers = Vec::with_capacity(self.kept.records.len());
        answers.extend(self.kept.records.values().filter_map(|record| answered(record)));
        (!answers.is_empty()).then(|| answers.into())
    }

    /// The writes of its answered children.
    pub(in crate::supervision::runs) fn children(&self) -> Vec<ChildDeltas> {
        if self.kept.records.is_empty() {
            return Vec::new();
        }
        let answered = |record: &Record| match record {
            Record::Delegation { deltas, order, .. } if deltas.answered.is_some() && !order.is_detached => {
                Some(deltas.clone())
            }
            _ => None,
        };
        self.kept.records.values().filter_map(|record| answered(record)).collect()
    }
}
