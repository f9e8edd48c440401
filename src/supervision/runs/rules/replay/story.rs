//! The history of one turn, event by event.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::messages::state::FinalState;
use crate::messages::{AgentName, Command, Failure, Json, RunEvent, Timestamp, Update, Usage, Verdict};

use super::super::run::{Phase, Run};

/// What became of one turn.
#[derive(Clone, Debug)]
pub struct TurnStory {
    /// Its number in the run.
    pub number: u32,
    /// Whose it was.
    pub agent: AgentName,
    /// What it worked on.
    pub input: Json,
    /// Why it was there.
    pub cause: Cause,
    /// How many attempts have begun.
    pub attempts: u32,
    /// The number of the step that began it; in a fork, of that which changed it.
    pub begun: usize,
    /// When that was.
    pub begun_at: Timestamp,
    /// The number of the step after which it was over, and when that was.
    pub closed: Option<(usize, Timestamp)>,
    /// How it ended.
    pub end: TurnEnd,
    /// What it did before it ended, in order.
    pub did: Vec<Deed>,
    /// Tokens that providers reported for its calls.
    pub usage: Usage,
    pub(super) saw: FinalState,
    /// What its node saved of its output.
    pub(super) saved: Update,
}

/// Something that a turn did before it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It finished a step of this name.
    Step(Arc<str>),
    /// It gave a task to these agents.
    Delegated(Vec<AgentName>),
    /// It was refused to: the refusal's name.
    Refused(&'static str),
    /// It asked people something.
    Asked,
    /// It asked for consent.
    AskedConsent,
}

/// What a turn comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The task itself.
    Task,
    /// A turn's command, as one of its targets.
    Handoff {
        /// The turn.
        from: u32,
        /// Which of the targets.
        target: usize,
    },
    /// A turn's request.
    Delegation {
        /// The turn.
        from: u32,
        /// Which of its requests.
        ordinal: u32,
    },
    /// A node of the run's plan could start.
    Node {
        /// The way to the node, as in [`Run::node_of`].
        node: String,
    },
    /// What a node of the run's plan has done is taken back.
    Compensation {
        /// The way to the node, as in [`Run::node_of`].
        node: String,
    },
    /// The answer to a delegation whose asking turn had ended without waiting; the turn whose end brought it.
    Answer {
        /// The turn.
        from: u32,
    },
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnEnd {
    /// It has not.
    Open,
    /// It waits for a person.
    NeedsAttention {
        /// Why.
        why: Arc<str>,
    },
    /// With a command.
    Command {
        /// What it returned.
        command: Arc<Command>,
        /// The last verdict about where it goes.
        verdict: Verdict,
    },
    /// It failed for good.
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
        let takes_back = matches!(self.cause, Cause::Compensation { .. });
        let counts = match verdict {
            Verdict::Parked(_) => false,
            Verdict::Refused(refusal) => !takes_back && !refusal.is_denial(),
            Verdict::Nothing | Verdict::Admitted(_) => !takes_back,
        };
        let mut wrote = if counts { command.update.clone() } else { Update::default() };
        for write in self.saved.writes() {
            wrote.push(&write.channel, write.value.clone(), write.overwrite);
        }
        wrote
    }

    /// Enters an event about the turn, which `run` has taken already as the step `step`. `resumed_with` are the verdicts that
    /// overwrites brought along.
    pub(super) fn tell(&mut self, event: &RunEvent, run: &Run, step: usize, resumed_with: &mut BTreeMap<u32, Verdict>) {
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
                self.end = match &open.phase {
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
            | RunEvent::Stopped { .. } => {}
        }
    }

    /// The turn is over with a step; without an end of its own it was cancelled.
    pub(super) fn close(&mut self, step: usize, at: Timestamp) {
        self.closed = Some((step, at));
        if matches!(self.end, TurnEnd::Open | TurnEnd::NeedsAttention { .. }) {
            self.end = TurnEnd::Cancelled;
        }
    }
}
