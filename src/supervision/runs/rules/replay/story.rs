//! The history of one turn, event by event.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::messages::state::FinalState;
use crate::messages::{AgentName, Command, Failure, Json, RunEvent, Timestamp, Update, Usage, Verdict};

use super::super::run::{Phase, Run};

/// What became of one turn, gathered from the events about it. [`Replay::turn`](super::Replay::turn) returns it.
#[derive(Clone, Debug)]
pub struct TurnStory {
    /// The number of the turn in its run, from 1.
    pub number: u32,
    /// The agent that took the turn.
    pub agent: AgentName,
    /// The input of the turn, with what a fork or the person who resumed it changed.
    pub input: Json,
    /// What made the turn begin: the task, another turn, or a node of the plan.
    pub cause: Cause,
    /// The number of the last attempt, from 1. After an attempt that is retried, it is the number of the next one,
    /// which may not have begun.
    pub attempts: u32,
    /// The number of the step that admitted the turn, or of a later step that changed what it works on: a fork or a
    /// resumption.
    pub begun: usize,
    /// When the turn was admitted, by the wall clock; a fork or a resumption does not change it.
    pub begun_at: Timestamp,
    /// The number of the step after which it was over, and when that was.
    pub closed: Option<(usize, Timestamp)>,
    /// How the turn ended, or that it has not.
    pub end: TurnEnd,
    /// What the turn did before it ended, in the order of the journal and over all attempts.
    pub did: Vec<Deed>,
    /// What it has done, in a line of its agent ([`Turn::summary`](crate::actors::Turn::summary)).
    pub summary: Option<Arc<str>>,
    /// Tokens that providers reported for its calls.
    pub usage: Usage,
    pub(super) saw: FinalState,
    /// The part of its output that its node saved.
    pub(super) saved: Update,
}

/// Something that a turn did before it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It finished a step of this name, with a value or with a failure as the result.
    Step(Arc<str>),
    /// It delegated a task to these agents, and the delegation was admitted.
    Delegated(Vec<AgentName>),
    /// A delegation or a reservation of tokens was refused to it. Holds
    /// [`Refusal::name`](crate::messages::Refusal::name).
    Refused(&'static str),
    /// It asked people a question, or they were asked whether one of its effects was done.
    Asked,
    /// It asked people for an approval.
    AskedConsent,
}

/// What made a turn begin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The submission of the task: the first turn of a run without a plan.
    Task,
    /// The command of another turn, which named the agent as a target of a handoff.
    Handoff {
        /// The number of the turn that returned the command.
        from: u32,
        /// The place of the target in the command, from 0.
        target: usize,
    },
    /// A delegation by another turn.
    Delegation {
        /// The number of the turn that delegated the task.
        from: u32,
        /// The ordinal of the delegation among the requests of that turn, from 0.
        ordinal: u32,
    },
    /// A node of the run's plan could start.
    Node {
        /// The path to the node, as in [`Run::node_of`].
        node: String,
    },
    /// What a node of the run's plan has done is taken back.
    Compensation {
        /// The path to the node, as in [`Run::node_of`].
        node: String,
    },
    /// The answer to a delegation whose asking turn had ended without waiting. It came with the end of a turn, or because the
    /// delegation expired.
    Answer {
        /// The number of the turn that the event which brought the answer is about.
        from: u32,
    },
}

/// How a turn ended, or why it has not ended.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnEnd {
    /// The turn has not ended: it waits to be taken, runs, waits for its next attempt, or waits for a person to resume
    /// it.
    Open,
    /// Something is wrong, and the turn waits until a person has it begin again or its run is cancelled.
    NeedsAttention {
        /// What is wrong, as text for that person.
        why: Arc<str>,
    },
    /// The turn ended with a command.
    Command {
        /// The command that the agent returned.
        command: Arc<Command>,
        /// The verdict on where the command goes; if a person or an overwrite decided that later, the later one.
        verdict: Verdict,
    },
    /// The turn failed for good, with the failure of its last attempt, and is a dead letter.
    Failed(Failure),
    /// It was cut off by what another turn, a person or the time did.
    Cancelled,
}

impl TurnStory {
    /// A turn that a run has just begun with the step `begun`.
    pub(super) fn begin(run: &Run, number: u32, cause: Cause, begun: usize) -> Option<Self> {
        let open = run.turn(number)?;
        Some(Self {
            number,
            agent: open.agent.clone(),
            input: open.input.clone(),
            cause,
            attempts: open.attempt.0,
            begun,
            begun_at: run.last_at(),
            closed: None,
            end: TurnEnd::Open,
            did: Vec::new(),
            summary: None,
            usage: Usage::default(),
            saw: run.seen_by(open).into(),
            saved: Update::default(),
        })
    }

    /// What counts as written by it: by its command, and what its node saved of its output. Of a turn that takes back
    /// nothing does, nor of one whose handoff was denied or is not decided.
    #[must_use]
    pub fn wrote(&self) -> Update {
        let TurnEnd::Command { command, verdict } = &self.end else { return Update::default() };
        let compensates = matches!(self.cause, Cause::Compensation { .. });
        let counts = match verdict {
            Verdict::Parked(_) => false,
            Verdict::Refused(refusal) => !compensates && !refusal.is_denial(),
            Verdict::Nothing | Verdict::Admitted(_) => !compensates,
        };
        let mut wrote = if counts { command.update.clone() } else { Update::default() };
        for write in self.saved.writes() {
            wrote.push(&write.channel, write.value.clone(), write.overwrite);
        }
        wrote
    }

    /// Records an event about the turn, which `run` has already applied as the step `step`. `resumed_with` are the verdicts of
    /// overwrites.
    pub(super) fn record(
        &mut self,
        event: &RunEvent,
        run: &Run,
        step: usize,
        resumed_with: &mut BTreeMap<u32, Verdict>,
    ) {
        let is_over = self.closed.is_some();
        match event {
            RunEvent::StepFinished { name, .. } | RunEvent::StepFailed { name, .. } if !is_over => {
                self.did.push(Deed::Step(Arc::clone(name)));
            }
            RunEvent::Delegated { verdict: Verdict::Admitted(agents), .. } if !is_over => {
                self.did.push(Deed::Delegated(agents.clone()));
            }
            RunEvent::Delegated { verdict: Verdict::Refused(refusal), .. }
            | RunEvent::Reserved { verdict: Verdict::Refused(refusal), .. }
                if !is_over =>
            {
                self.did.push(Deed::Refused(refusal.name()));
            }
            RunEvent::Asked { .. } | RunEvent::AskedUntil { .. } | RunEvent::OutcomeUnknown { .. } if !is_over => {
                self.did.push(Deed::Asked);
            }
            RunEvent::ApprovalAsked { .. } if !is_over => self.did.push(Deed::AskedConsent),
            RunEvent::Settled { usage: Some(usage), .. } => self.usage += *usage,
            RunEvent::Summarized { text, .. } => self.summary = Some(Arc::clone(text)),
            RunEvent::Overwritten { turn, verdict, .. } => {
                if *verdict != Verdict::Nothing {
                    resumed_with.insert(*turn, verdict.clone());
                }
            }
            RunEvent::TurnEnded { turn, command, verdict, .. } if !is_over => {
                let verdict = resumed_with.remove(turn).unwrap_or_else(|| verdict.clone());
                self.end = TurnEnd::Command { command: Arc::clone(command), verdict };
            }
            RunEvent::Decided { verdict: decided, .. } if is_over => {
                if let TurnEnd::Command { verdict, .. } = &mut self.end
                    && matches!(verdict, Verdict::Parked(_))
                {
                    *verdict = decided.clone();
                }
            }
            RunEvent::Forked { turn, .. } | RunEvent::Resumed { turn, .. } => {
                let Some(open) = run.turn(*turn) else { return };
                self.input = open.input.clone();
                self.saw = run.seen_by(open).into();
                self.begun = step;
            }
            RunEvent::TurnFailed { failure, .. } if !is_over => self.end = TurnEnd::Failed(failure.clone()),
            RunEvent::AttemptFailed { turn, .. }
            | RunEvent::NeedsAttention { turn, .. }
            | RunEvent::TurnRestarted { turn, .. } => {
                let Some(open) = run.turn(*turn) else { return };
                self.attempts = open.attempt.0;
                self.end = match open.phase() {
                    Phase::NeedsAttention { why, .. } => TurnEnd::NeedsAttention { why: Arc::clone(why) },
                    Phase::Leased | Phase::Backoff { .. } | Phase::Interrupted => TurnEnd::Open,
                };
            }
            RunEvent::Submitted(_)
            | RunEvent::StepStarted { .. }
            | RunEvent::StepFinished { .. }
            | RunEvent::IntentRecorded { .. }
            | RunEvent::StepFailed { .. }
            | RunEvent::OutcomeUnknown { .. }
            | RunEvent::OutcomeResolved { .. }
            | RunEvent::Delegated { .. }
            | RunEvent::DelegationExpired { .. }
            | RunEvent::Reserved { .. }
            | RunEvent::Settled { .. }
            | RunEvent::Asked { .. }
            | RunEvent::AskedUntil { .. }
            | RunEvent::QuestionExpired { .. }
            | RunEvent::Answered { .. }
            | RunEvent::ApprovalAsked { .. }
            | RunEvent::Decided { .. }
            | RunEvent::HandoffChecked { .. }
            | RunEvent::AgentMade { .. }
            | RunEvent::Tainted { .. }
            | RunEvent::Noticed { .. }
            | RunEvent::TurnEnded { .. }
            | RunEvent::TurnFailed { .. }
            | RunEvent::Recovered { .. }
            | RunEvent::ConversationEntered { .. }
            | RunEvent::ConversationRead { .. }
            | RunEvent::ReferenceChanged { .. }
            | RunEvent::Stopped { .. } => {}
        }
    }

    /// Closes the turn with a step; a turn without an end of its own was cancelled.
    pub(super) fn close(&mut self, step: usize, at: Timestamp) {
        self.closed = Some((step, at));
        if matches!(self.end, TurnEnd::Open | TurnEnd::NeedsAttention { .. }) {
            self.end = TurnEnd::Cancelled;
        }
    }
}
