//! What the events of a run tell about its turns, in one pass. Pure.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use callboard::messages::{AgentName, Json, RunEvent, Timestamp, Usage, Verdict};
use callboard::supervision::runs::Run;

/// The most steps and failures of a turn that are kept.
const MAX_STEPS: usize = 4;
const MAX_FAILURES: usize = 3;

/// A turn of a run.
#[derive(Debug)]
pub(super) struct TurnRow {
    pub(super) number: u32,
    /// `None` if no event names it yet.
    pub(super) agent: Option<AgentName>,
    /// The time of the event that admitted it; of a node of a workflow, of the event after which it began.
    pub(super) begun_at: Timestamp,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) end: End,
    /// How many attempts have failed.
    pub(super) retries: u32,
    /// When the next attempt begins, if it waits for that.
    pub(super) retry_at: Option<Timestamp>,
    pub(super) summary: Option<Arc<str>>,
    pub(super) usage: Usage,
    /// The last steps, the oldest first, and how many there were before them.
    pub(super) steps: VecDeque<Step>,
    pub(super) left_out: usize,
    /// The texts of the last failures.
    pub(super) failures: VecDeque<String>,
    /// Whether a turn has handed on to it, or delegated to it.
    pub(super) is_handed: bool,
    /// The record that it was handed, if the page has it.
    pub(super) handoff: Option<Handoff>,
    /// When its last event was.
    last_at: Timestamp,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Open,
    Ended,
    HandedOn,
    Refused,
    Failed,
    Cancelled,
}

/// A step of a turn.
#[derive(Debug)]
pub(super) struct Step {
    ordinal: u32,
    pub(super) name: Arc<str>,
    pub(super) begun_at: Timestamp,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) is_failed: bool,
}

/// The record that the runtime has handed to a turn: who had control before, and what the run had used by then.
#[derive(Debug)]
pub(super) struct Handoff {
    pub(super) previous_agent: AgentName,
    /// The channel `metrics` as the turn saw it.
    pub(super) metrics: Json,
}

/// The records of the last turns that a page shows.
#[derive(Debug)]
pub(super) struct Handoffs {
    /// The first turn that is not shown.
    before: u32,
    most: usize,
    of_turns: BTreeMap<u32, Handoff>,
}

impl Handoffs {
    /// Keeps the records of at most `most` turns below the number `before`.
    pub(super) fn new(before: Option<u32>, most: usize) -> Self {
        Self { before: before.unwrap_or(u32::MAX), most, of_turns: BTreeMap::new() }
    }

    /// Keeps the record of a turn that begins.
    pub(super) fn take(&mut self, run: &Run, turn: u32) {
        if turn >= self.before || self.of_turns.contains_key(&turn) {
            return;
        }
        let Some((previous_agent, metrics)) = run.handed_to(turn) else { return };
        self.of_turns.insert(turn, Handoff { previous_agent: previous_agent.clone(), metrics });
        if self.of_turns.len() > self.most {
            self.of_turns.pop_first();
        }
    }
}

/// The turns of a run.
#[derive(Debug)]
pub(super) struct Story {
    turns: BTreeMap<u32, TurnRow>,
    /// The number that the next turn is expected to have.
    next: u32,
    /// The time of the last event, and of the last event after which turns begin.
    last_at: Timestamp,
    turned_at: Timestamp,
}

impl Story {
    /// The turns that these events are about, the first one first, and those that are open by now.
    pub(super) fn of(history: &[RunEvent], run: &Run, handoffs: Handoffs) -> Self {
        let at = run.submission().at;
        let mut story = Self { turns: BTreeMap::new(), next: 1, last_at: at, turned_at: at };
        for event in history {
            story.take(event);
        }
        story.compare(run);
        for (number, handoff) in handoffs.of_turns {
            if let Some(turn) = story.turns.get_mut(&number) {
                turn.handoff = Some(handoff);
            }
        }
        story
    }

    /// The turns, the first one first.
    pub(super) fn turns(&self) -> impl DoubleEndedIterator<Item = &TurnRow> {
        self.turns.values()
    }

    /// Whether a turn has failed for good.
    pub(super) fn has_failed_turn(&self) -> bool {
        self.turns.values().any(|turn| turn.end == End::Failed)
    }

    fn take(&mut self, event: &RunEvent) {
        let at = event.at().unwrap_or(self.last_at);
        self.last_at = at;
        let Some(number) = event.turn() else {
            if let RunEvent::Submitted(submission) = event
                && submission.task.plan.is_none()
            {
                self.begin(submission.agent.clone(), at, false);
            }
            return;
        };
        self.record(number, at, event);
        self.pass_on(at, event);
    }

    /// Records an event about a turn.
    fn record(&mut self, number: u32, at: Timestamp, event: &RunEvent) {
        if !self.turns.contains_key(&number) {
            self.turns.insert(number, TurnRow::new(number, None, self.turned_at));
            self.next = self.next.max(number.saturating_add(1));
        }
        let Some(turn) = self.turns.get_mut(&number) else { return };
        match event {
            RunEvent::StepStarted { ordinal, name, .. } => turn.begin_step(*ordinal, name, at),
            RunEvent::IntentRecorded { ordinal, intent, .. } => turn.begin_step(*ordinal, &intent.name, at),
            RunEvent::StepFinished { ordinal, name, .. } => turn.end_step(*ordinal, name, at, false),
            RunEvent::StepFailed { ordinal, name, failure, .. } => {
                turn.end_step(*ordinal, name, at, true);
                turn.fail(failure.to_string());
            }
            RunEvent::Settled { usage: Some(usage), .. } => turn.usage += *usage,
            RunEvent::Summarized { text, .. } => turn.summary = Some(Arc::clone(text)),
            RunEvent::AttemptFailed { failure, retry_at, .. } => {
                turn.retries += 1;
                turn.retry_at = Some(*retry_at);
                turn.fail(failure.to_string());
            }
            RunEvent::NeedsAttention { why, .. } => turn.fail(why.to_string()),
            RunEvent::TurnEnded { agent, verdict, .. } => {
                turn.agent = Some(agent.clone());
                turn.close(at, end_of(verdict));
            }
            RunEvent::Decided { verdict: Verdict::Admitted(_), .. } if turn.ended_at.is_some() => {
                turn.end = End::HandedOn;
            }
            RunEvent::TurnFailed { agent, failure, .. } => {
                turn.agent = Some(agent.clone());
                turn.fail(failure.to_string());
                turn.close(at, End::Failed);
            }
            _ => {}
        }
        if !matches!(event, RunEvent::AttemptFailed { .. } | RunEvent::Settled { .. }) {
            turn.retry_at = None;
        }
        turn.last_at = at;
    }

    /// Begins the turns that an event admits.
    fn pass_on(&mut self, at: Timestamp, event: &RunEvent) {
        let verdict = match event {
            RunEvent::TurnEnded { verdict, .. }
            | RunEvent::Delegated { verdict, .. }
            | RunEvent::Decided { verdict, .. }
            | RunEvent::Overwritten { verdict, .. } => verdict,
            RunEvent::TurnFailed { .. } | RunEvent::Resumed { .. } | RunEvent::DelegationExpired { .. } => {
                self.turned_at = at;
                return;
            }
            _ => return,
        };
        self.turned_at = at;
        let Verdict::Admitted(agents) = verdict else { return };
        for agent in agents {
            self.begin(agent.clone(), at, true);
        }
    }

    fn begin(&mut self, agent: AgentName, at: Timestamp, is_handed: bool) {
        let number = self.next;
        self.next = self.next.saturating_add(1);
        self.turns.insert(number, TurnRow { is_handed, ..TurnRow::new(number, Some(agent), at) });
    }

    /// Takes over from the run which turns are open, and whose they are.
    fn compare(&mut self, run: &Run) {
        let is_over = run.result().is_some();
        let open: Vec<u32> = run.open_turns().collect();
        for number in open.iter().filter(|_| !is_over) {
            let turned_at = self.turned_at;
            let turn = self.turns.entry(*number).or_insert_with(|| TurnRow::new(*number, None, turned_at));
            if let Some(agent) = run.agent_of(*number) {
                turn.agent = Some(agent.clone());
            }
        }
        for turn in self.turns.values_mut().filter(|turn| turn.end == End::Open) {
            if is_over || !open.contains(&turn.number) {
                let at = if is_over { run.last_at() } else { turn.last_at };
                turn.close(at.max(turn.begun_at), End::Cancelled);
            }
        }
    }
}

fn end_of(verdict: &Verdict) -> End {
    match verdict {
        Verdict::Admitted(_) => End::HandedOn,
        Verdict::Refused(_) => End::Refused,
        Verdict::Nothing | Verdict::Parked(_) => End::Ended,
    }
}

impl TurnRow {
    fn new(number: u32, agent: Option<AgentName>, begun_at: Timestamp) -> Self {
        Self {
            number,
            agent,
            begun_at,
            ended_at: None,
            end: End::Open,
            retries: 0,
            retry_at: None,
            summary: None,
            usage: Usage::default(),
            steps: VecDeque::new(),
            left_out: 0,
            failures: VecDeque::new(),
            is_handed: false,
            handoff: None,
            last_at: begun_at,
        }
    }

    fn begin_step(&mut self, ordinal: u32, name: &str, at: Timestamp) {
        if self.steps.iter().any(|step| step.ordinal == ordinal && step.ended_at.is_none()) {
            return;
        }
        if self.steps.len() == MAX_STEPS {
            self.steps.pop_front();
            self.left_out += 1;
        }
        self.steps.push_back(Step { ordinal, name: name.into(), begun_at: at, ended_at: None, is_failed: false });
    }

    fn end_step(&mut self, ordinal: u32, name: &str, at: Timestamp, is_failed: bool) {
        let begun_at = self.last_at;
        let is_open = |step: &&mut Step| step.ordinal == ordinal && step.ended_at.is_none();
        if self.steps.iter_mut().find(is_open).is_none() {
            // Its begin is not journaled: it is taken to begin after the event before it.
            self.begin_step(ordinal, name, begun_at);
        }
        if let Some(step) = self.steps.iter_mut().find(is_open) {
            (step.ended_at, step.is_failed) = (Some(at), is_failed);
        }
    }

    fn fail(&mut self, text: String) {
        if self.failures.len() == MAX_FAILURES {
            self.failures.pop_front();
        }
        self.failures.push_back(text);
    }

    fn close(&mut self, at: Timestamp, end: End) {
        (self.ended_at, self.end) = (Some(at), end);
    }
}
