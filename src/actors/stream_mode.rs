//! The mapping of a run's events to streams. Pure.

use crate::messages::{Plan, RunEvent};

/// Which events a watcher gets. [`Callboard::watch`](crate::Callboard::watch) and
/// [`RunHandle::events`](crate::RunHandle::events) take a list of modes, and report an event that any of them includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamMode {
    /// Updates of the state's channels: turns that ended with an update, outputs that a workflow saves in channels (of a workflow
    /// that saves any, every output), and what people write over channels.
    Values,
    /// The progress of runs, such as submissions, turns and attempts that end, delegations, decisions about approvals,
    /// and what people change.
    Updates,
    /// What agents report: notices, steps, questions, answers.
    Messages,
    /// What agents do while their turns run: words as a model streams them, tools as they are used. It is sent to those who watch
    /// at that moment, and not stored.
    Live,
    /// Everything that is journaled.
    Debug,
    /// No events: the stream stays empty until it ends with the run or the board.
    None,
}

impl StreamMode {
    /// Whether an event belongs to this mode, in a run with this plan.
    #[must_use]
    pub fn includes_in(self, plan: Option<&Plan>, event: &RunEvent) -> bool {
        let is_saved = || match event {
            RunEvent::TurnEnded { command, .. } => command.output.is_some() && plan.is_some_and(Plan::saves_outputs),
            _ => false,
        };
        self.includes(event) || (self == Self::Values && is_saved())
    }

    /// Whether an event belongs to this mode, whatever the plan of its run saves; see [`StreamMode::includes_in`].
    #[must_use]
    pub fn includes(self, event: &RunEvent) -> bool {
        match event {
            RunEvent::Submitted(_)
            | RunEvent::AttemptFailed { .. }
            | RunEvent::TurnFailed { .. }
            | RunEvent::Delegated { .. }
            | RunEvent::DelegationExpired { .. }
            | RunEvent::Decided { .. }
            | RunEvent::HandoffChecked { .. }
            | RunEvent::AgentMade { .. }
            | RunEvent::Tainted { .. }
            | RunEvent::NeedsAttention { .. }
            | RunEvent::TurnRestarted { .. }
            | RunEvent::Recovered { .. }
            | RunEvent::ConversationEntered { .. }
            | RunEvent::ConversationRead { .. }
            | RunEvent::ReferenceChanged { .. }
            | RunEvent::Stopped { .. } => matches!(self, Self::Updates | Self::Debug),
            RunEvent::Overwritten { update, .. }
            | RunEvent::Resumed { update, .. }
            | RunEvent::Forked { update, .. } => match self {
                Self::Values => !update.is_empty(),
                Self::Updates | Self::Debug => true,
                Self::Messages | Self::Live | Self::None => false,
            },
            RunEvent::TurnEnded { command, .. } => match self {
                Self::Values => !command.update.is_empty(),
                Self::Updates | Self::Debug => true,
                Self::Messages | Self::Live | Self::None => false,
            },
            RunEvent::StepFinished { .. }
            | RunEvent::StepFailed { .. }
            | RunEvent::OutcomeUnknown { .. }
            | RunEvent::OutcomeResolved { .. }
            | RunEvent::Noticed { .. }
            | RunEvent::Summarized { .. }
            | RunEvent::Asked { .. }
            | RunEvent::AskedUntil { .. }
            | RunEvent::QuestionExpired { .. }
            | RunEvent::Answered { .. }
            | RunEvent::ApprovalAsked { .. } => matches!(self, Self::Messages | Self::Debug),
            RunEvent::StepStarted { .. }
            | RunEvent::IntentRecorded { .. }
            | RunEvent::Reserved { .. }
            | RunEvent::Settled { .. } => self == Self::Debug,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::messages::{AgentName, Block, Command, PlanNode, Schema, Timestamp, Update, Usage, Verdict, Work};

    use super::*;

    const MODES: [StreamMode; 6] = [
        StreamMode::Values,
        StreamMode::Updates,
        StreamMode::Messages,
        StreamMode::Live,
        StreamMode::Debug,
        StreamMode::None,
    ];

    /// A plan of one node, within another if it `is_nested`.
    fn plan(saves: Option<&str>, is_nested: bool) -> Plan {
        let node = |work, saves: Option<&str>| PlanNode { saves: saves.map(Into::into), ..PlanNode::new("node", work) };
        let block = |node| Block { nodes: vec![node], output: None };
        let mut body = block(node(Work::Agent("lead".into()), saves));
        if is_nested {
            body = block(node(Work::Block { body, is_closed: false }, None));
        }
        Plan::new("plan", Arc::new(Schema::default()), body)
    }

    fn ended(command: Command) -> RunEvent {
        let agent = AgentName::new("lead").unwrap();
        let (command, at) = (Arc::new(command), Timestamp::default());
        RunEvent::TurnEnded { turn: 1, agent, attempt: 1, command, verdict: Verdict::Nothing, at }
    }

    /// The modes that include the event in a run with this plan.
    fn modes(plan: Option<&Plan>, event: &RunEvent) -> Vec<StreamMode> {
        MODES.into_iter().filter(|mode| mode.includes_in(plan, event)).collect()
    }

    #[test]
    fn a_turn_that_ends_with_an_update_changes_values() {
        let updated = ended(Command::update("notes", "new"));
        assert_eq!(modes(None, &updated), [StreamMode::Values, StreamMode::Updates, StreamMode::Debug]);
        assert_eq!(modes(None, &ended(Command::new())), [StreamMode::Updates, StreamMode::Debug]);
    }

    #[test]
    fn an_output_is_a_value_if_the_plan_of_its_run_saves_outputs_anywhere() {
        let output = ended(Command::output("done"));
        for saving in [plan(Some("notes"), false), plan(Some("notes"), true)] {
            assert_eq!(modes(Some(&saving), &output), [StreamMode::Values, StreamMode::Updates, StreamMode::Debug]);
            assert!(!StreamMode::Values.includes(&output), "the plan is asked by `includes_in` alone");
            assert_eq!(modes(Some(&saving), &ended(Command::new())), [StreamMode::Updates, StreamMode::Debug]);
        }
        for plan in [None, Some(&plan(None, true))] {
            assert_eq!(modes(plan, &output), [StreamMode::Updates, StreamMode::Debug]);
        }
    }

    #[test]
    fn what_a_person_changes_is_a_value_unless_nothing_is_written() {
        let at = Timestamp::default();
        let written =
            |update| RunEvent::Overwritten { turn: 1, update, verdict: Verdict::Nothing, by: "ann".into(), at };
        let update: Update = Command::update("notes", "new").update;
        assert_eq!(modes(None, &written(update)), [StreamMode::Values, StreamMode::Updates, StreamMode::Debug]);
        assert_eq!(modes(None, &written(Update::default())), [StreamMode::Updates, StreamMode::Debug]);
    }

    #[test]
    fn reports_of_agents_are_messages_and_their_tokens_are_for_debugging() {
        let at = Timestamp::default();
        let notice = RunEvent::Noticed { turn: 1, text: "half done".into(), at };
        assert_eq!(modes(None, &notice), [StreamMode::Messages, StreamMode::Debug]);
        let settled = RunEvent::Settled {
            turn: 1,
            ordinal: 0,
            usage: Some(Usage::of(1, 1)),
            at: Some(at),
            model: None,
            is_of_run: false,
        };
        assert_eq!(modes(None, &settled), [StreamMode::Debug]);
        let recovered = RunEvent::Recovered { at, new_process: true };
        assert_eq!(modes(None, &recovered), [StreamMode::Updates, StreamMode::Debug]);
    }
}
