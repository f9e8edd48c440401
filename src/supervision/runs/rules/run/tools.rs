//! The tools that the turns of a run have used, as later turns see them. Each use was journaled by the turn that knows it to be one.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::messages::state::ToolUses;
use crate::messages::{AgentName, Json};

use super::fold::Run;

/// The uses of tools, as they are stored beside a run in its snapshots.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::supervision::runs) struct Tools {
    /// Those so far.
    used: Arc<ToolUses>,
    /// Those that open turns see.
    seen: Vec<(u32, Arc<ToolUses>)>,
}

impl Run {
    /// Counts the use of a tool by an open turn.
    pub(super) fn count_tool(&mut self, turn: u32, name: &Arc<str>) {
        if self.turns.contains(turn) {
            self.tally.count_tool(name);
        }
    }

    /// The uses of tools, for a snapshot.
    pub(in crate::supervision::runs) fn tools(&self) -> Option<Tools> {
        let used = Arc::clone(self.tally.tools.as_ref()?);
        let seen = self.turns.iter().filter_map(|(number, turn)| Some((number, turn.figures()?.tools_used.clone()?)));
        Some(Tools { used, seen: seen.collect() })
    }

    /// The run with its uses of tools, from a snapshot.
    pub(in crate::supervision::runs) fn with_tools(mut self, tools: Option<Tools>) -> Self {
        let Some(Tools { used, seen }) = tools else { return self };
        // Turns that were admitted together share what they see.
        let mut last = used;
        self.tally.tools = Some(Arc::clone(&last));
        for (turn, tools) in seen.into_iter().rev() {
            if tools != last {
                last = tools;
            }
            self.turns.show_tools(turn, &last);
        }
        self
    }

    /// The record that the runtime hands to an open turn: the agent that had control before, and the channel `metrics` as the turn
    /// sees it (SEMANTICS 6); if its schema hides that channel, with the figures of now. `None` if no agent had control before, or
    /// the turn is not open.
    #[must_use]
    pub fn handed_to(&self, turn: u32) -> Option<(&AgentName, Json)> {
        let open = self.turns.get(turn)?;
        let previous = self.branch_of(open).previous_agent.as_ref()?;
        Some((previous, open.figures().map_or_else(|| self.figures().to_json(), |figures| figures.to_json())))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;
    use crate::messages::state::StateRules;
    use crate::messages::{
        Chain, Command, Intent, Order, RunEvent, RunId, SendTo, Submission, Task, Timestamp, TraceId, Verdict,
    };
    use crate::supervision::runs::rules::snapshot::read_again;
    use crate::testing::rules::play;

    const TOOLS: [&str; 3] = ["read", "search", "write"];

    fn agent() -> AgentName {
        AgentName::new("x").unwrap()
    }

    fn submitted() -> RunEvent {
        let (run, trace, at) = (RunId(Uuid::from_u128(7)), TraceId(Uuid::from_u128(8)), Timestamp::from_millis(0));
        let (task, cast, chain) = (Task::new("in").to("x"), Vec::new(), Chain::default());
        RunEvent::Submitted(Arc::new(Submission { run, trace, task, agent: agent(), cast, chain, at }))
    }

    fn event(kind: u8, turn: u32, tool: &str, is_tool: bool) -> RunEvent {
        let (at, ordinal, name, agent) = (Timestamp::from_millis(0), u32::from(kind), tool.into(), agent());
        let ended = |command: Command, agents: Vec<AgentName>| {
            let verdict = if agents.is_empty() { Verdict::Nothing } else { Verdict::Admitted(agents) };
            RunEvent::TurnEnded { turn, agent: self::agent(), attempt: 1, command: Arc::new(command), verdict, at }
        };
        match kind {
            0 | 1 => {
                let (value, is_tainted, at) = (Json::null(), false, Some(at));
                RunEvent::StepFinished { turn, ordinal, name, value, is_tainted, at, is_tool }
            }
            2 => {
                let intent = Intent::new(tool, "order 7", &Json::null());
                RunEvent::IntentRecorded { turn, ordinal, intent, at, is_tool }
            }
            3 => RunEvent::StepStarted { turn, ordinal, name, at: Some(at) },
            4 => {
                let verdict = Verdict::Admitted(vec![agent]);
                RunEvent::Delegated { turn, ordinal, order: Order::new("x", "y"), verdict, at }
            }
            5 => ended(Command::new().goto("x"), vec![agent]),
            6 => {
                ended(Command::new().goto_many([SendTo::new("x", 1), SendTo::new("x", 2)]), vec![agent.clone(), agent])
            }
            _ => ended(Command::output(1), Vec::new()),
        }
    }

    /// What a turn sees of tools; `None` if it sees nothing.
    fn seen(run: &Run, turn: u32) -> Option<Value> {
        run.seen_by(run.turn(turn).unwrap()).to_json().value()["metrics"].get("tools_used").cloned()
    }

    #[test]
    fn a_turn_sees_the_uses_of_tools_before_its_admission_live_and_replayed() {
        let branches = ["a use", "a turn that sees one", "beside others", "read from a snapshot", "ended"];
        let events = prop::collection::vec(
            (0_u8..8, any::<prop::sample::Index>(), prop::sample::select(&TOOLS[..]), any::<bool>(), any::<bool>()),
            1..30,
        );
        play("uses of tools", &branches, events, |events, marks| {
            let mut history = vec![submitted()];
            let mut run = Run::of(history.clone(), &StateRules::default()).unwrap();
            let (mut used, mut begun) = (BTreeMap::<&str, u32>::new(), BTreeMap::from([(1, None)]));
            for (kind, turn, tool, is_tool, is_read) in events {
                let open: Vec<u32> = run.open_turns().collect();
                if open.is_empty() {
                    marks.insert("ended");
                    break;
                }
                let event = event(kind, *turn.get(&open), tool, is_tool);
                if is_tool && kind < 3 {
                    *used.entry(tool).or_default() += 1;
                    marks.insert("a use");
                }
                run.step(&event);
                history.push(event);
                if is_read {
                    let again = read_again(&run);
                    prop_assert_eq!(format!("{:?}", run), format!("{:?}", again));
                    run = again;
                    marks.extend((!used.is_empty()).then_some("read from a snapshot"));
                }
                for turn in run.open_turns() {
                    let expected = begun.entry(turn).or_insert_with(|| (!used.is_empty()).then(|| json!(used)));
                    prop_assert_eq!(&seen(&run, turn), &*expected, "turn {}", turn);
                    marks.extend(expected.is_some().then_some("a turn that sees one"));
                }
                marks.extend((run.open_turns().count() > 1).then_some("beside others"));
            }
            let replayed = Run::of(history.clone(), &StateRules::default()).unwrap();
            prop_assert_eq!(format!("{:?}", run), format!("{:?}", replayed));
            // A journal of a version that did not know which steps use tools: no turn sees any.
            for event in &mut history {
                if let RunEvent::StepFinished { is_tool, .. } | RunEvent::IntentRecorded { is_tool, .. } = event {
                    *is_tool = false;
                }
            }
            let old = Run::of(history, &StateRules::default()).unwrap();
            prop_assert!(old.tools().is_none() && old.open_turns().all(|turn| seen(&old, turn).is_none()));
            Ok(())
        });
    }
}
