//! Which boards can continue a run while no board works on it (SEMANTICS 16).

use std::collections::BTreeSet;

use crate::messages::{AgentName, BoardInfo};

use super::fold::Run;

impl Run {
    /// The agents that the run waits for while no board works on it, of these boards that live: those of its open turns that none of them
    /// hosts. If each is somewhere, those whose turns have made requests, unless one board hosts all of these. None if a board can continue
    /// the run, and once it has ended.
    #[must_use]
    pub fn agents_lacking<'b>(&self, boards: impl IntoIterator<Item = &'b BoardInfo>) -> BTreeSet<AgentName> {
        if self.result().is_some() {
            return BTreeSet::new();
        }
        let turns = || self.open_turns().filter_map(|number| self.turn(number));
        let staying: Vec<&BoardInfo> = boards.into_iter().filter(|board| !board.is_leaving).collect();
        let hosts = |board: &BoardInfo, agent: &AgentName| board.agent(agent.host()).is_some();
        let nowhere: BTreeSet<AgentName> = turns()
            .map(|turn| &turn.agent)
            .filter(|agent| !staying.iter().any(|board| hosts(board, agent)))
            .map(AgentName::host_name)
            .collect();
        if !nowhere.is_empty() {
            return nowhere;
        }
        // Another agent in the place of one of these would not ask for the same, so their turns stay on one board.
        let together: BTreeSet<AgentName> =
            turns().filter(|turn| turn.has_requests()).map(|turn| turn.agent.host_name()).collect();
        let is_together = staying.iter().any(|board| together.iter().all(|agent| hosts(board, agent)));
        if is_together { BTreeSet::new() } else { together }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::sync::Arc;

    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::messages::state::StateRules;
    use crate::messages::{
        BoardAgent, Chain, Json, Order, Outcome, RunEvent, RunId, Submission, Task, Timestamp, TraceId, Verdict,
    };

    const AT: Timestamp = Timestamp::from_millis(0);

    fn name(agent: &str) -> AgentName {
        AgentName::new(agent).unwrap()
    }

    fn board(agents: &[&str]) -> BoardInfo {
        let agent = |name: &&str| serde_json::from_value::<BoardAgent>(json!({ "name": name })).unwrap();
        BoardInfo { agents: agents.iter().map(agent).collect(), ..BoardInfo::default() }
    }

    /// A run whose first turn has delegated to another agent, whose turn is open.
    fn delegated() -> Vec<RunEvent> {
        let (run, trace, chain) = (RunId(Uuid::from_u128(7)), TraceId(Uuid::from_u128(8)), Chain::default());
        let (task, cast, agent) = (Task::new("in").to("lead"), Vec::new(), name("lead"));
        let (order, verdict) = (Order::new("coder~helper", "y"), Verdict::Admitted(vec![name("coder~helper")]));
        vec![
            RunEvent::Submitted(Arc::new(Submission { run, trace, task, agent, cast, chain, at: AT })),
            RunEvent::Delegated { turn: 1, ordinal: 1, order, verdict, at: AT },
        ]
    }

    #[test]
    fn a_run_waits_for_agents_that_no_board_has_and_for_one_board_that_has_those_that_have_begun() {
        let run = |events: Vec<RunEvent>| Run::of(events, &StateRules::default()).unwrap();
        let lacking = |run: &Run, boards: &[&[&str]]| {
            let boards: Vec<BoardInfo> = boards.iter().map(|agents| board(agents)).collect();
            run.agents_lacking(&boards).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let begun = run(delegated());
        assert_eq!(lacking(&begun, &[]), ["coder", "lead"], "a dynamic agent is where its maker is");
        assert_eq!(lacking(&begun, &[&["other"], &["lead"]]), ["coder"]);
        assert!(lacking(&begun, &[&["lead"], &["coder"]]).is_empty(), "the turn that has asked for nothing is placed");
        let leaving = BoardInfo { is_leaving: true, ..board(&["lead", "coder"]) };
        assert_eq!(begun.agents_lacking([&leaving, &board(&["lead"])]), BTreeSet::from([name("coder")]));

        let step = RunEvent::StepFinished {
            turn: 2,
            ordinal: 1,
            name: "read".into(),
            value: Json::null(),
            is_tainted: false,
            at: Some(AT),
            is_tool: false,
        };
        let working = run([delegated(), vec![step]].concat());
        assert_eq!(lacking(&working, &[&["lead"], &["coder"]]), ["coder", "lead"]);
        assert!(lacking(&working, &[&["lead"], &["coder", "lead"]]).is_empty());

        let reason = "not needed".into();
        let cancelled =
            run([delegated(), vec![RunEvent::Stopped { outcome: Outcome::Cancelled { reason }, at: AT }]].concat());
        assert!(lacking(&cancelled, &[]).is_empty());
    }
}
