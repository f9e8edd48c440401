//! The state that a turn sees, its authority, and the result of its end for its branch.

use std::sync::Arc;

use crate::messages::state::{Delta, StateError, StateRules, Writes, join, overwrite};
use crate::messages::{AgentName, Authority, Command, Goto, Json, RunEvent, State, Timestamp, Update};
use crate::supervision::runs::rules::directory::AgentDirectory;
use crate::supervision::runs::rules::history::{ReplayError, from_submission};

use super::branch::{Branch, Origin};
use super::fold::Run;
use super::record::ChildDeltas;
use super::turn::OpenTurn;

impl Run {
    /// The messages of the conversation that a turn sees. Turns that work on a delegation see none: the asking agent passes on
    /// what they need.
    pub(in crate::supervision::runs) fn conversation_of(&self, turn: &OpenTurn) -> Option<&Json> {
        let read = self.extras.conversing.as_ref()?.read.as_ref()?;
        self.delegation_of(turn).is_none().then_some(read)
    }

    /// Whether turns see in their state which agent had control before.
    pub(in crate::supervision::runs) fn shows_previous_agent(&self) -> bool {
        self.rules.schema.shows_previous_agent()
    }

    /// The state as an open turn sees it: what the turns before it wrote, and what the runtime writes (SEMANTICS 6). Every
    /// attempt of the turn sees the same.
    pub(crate) fn seen_by(&self, turn: &OpenTurn) -> State {
        let branch = self.branch_of(turn);
        let previous = branch.previous_agent.as_ref().filter(|_| self.shows_previous_agent());
        branch.view.with_runtime(previous.map(AgentName::as_str), turn.figures())
    }

    /// The writes of an open turn's children, with a person's overwrite.
    pub(in crate::supervision::runs) fn children_of(&self, turn: &OpenTurn) -> Vec<ChildDeltas> {
        let mut children = turn.children();
        self.put_overwrite(children.iter_mut().map(|child| &mut child.deltas));
        children
    }

    /// Whether a turn is taken for the run of another board, which applies its command: the run's first turn, and those with late answers
    /// to what such turns have given away.
    pub(in crate::supervision::runs) fn is_for_another_board(&self, turn: &OpenTurn) -> bool {
        self.submission.task.placed.is_some() && self.branch_of(turn).origin == Origin::Root
    }

    /// What a run of a turn for another board leaves to the run that waits for it: for each of its turns that are for that run, the
    /// writes of the delegations that it has the answers to, in the order of the requests, and its end.
    pub(crate) fn left_to_another_board(
        history: Vec<RunEvent>,
        rules: &StateRules,
    ) -> Result<Vec<(Update, Arc<Command>)>, ReplayError> {
        let (submission, events) = from_submission(history)?;
        let (mut run, _) = Self::begin(submission, rules.clone());
        let mut turns = Vec::new();
        for event in events {
            if let RunEvent::TurnEnded { turn, command, .. } = &event
                && let Some(turn) = run.turn(*turn).filter(|turn| run.is_for_another_board(turn))
            {
                let mut left = Update::default();
                for delta in turn.children().iter().flat_map(|child| &child.deltas) {
                    left.append(&delta.update);
                }
                turns.push((left, Arc::clone(command)));
            }
            run.step(&event);
        }
        Ok(turns)
    }

    /// Replaces concurrent writes by a person's overwrite.
    pub(in crate::supervision::runs) fn put_overwrite<'a>(&self, writers: impl Iterator<Item = &'a mut Vec<Delta>>) {
        if let Some(over) = &self.extras.overwrite {
            overwrite(writers, &over.written);
        }
    }

    /// The changes that the turn's end makes to its branch: the new view, and the deltas for the join. The children's writes come
    /// before the turn's own, in the order of the requests.
    pub(in crate::supervision::runs) fn settle(
        &self,
        number: u32,
        branch: u32,
        children: &[ChildDeltas],
        command: &Arc<Command>,
    ) -> Result<(State, Vec<Delta>), StateError> {
        let branch = &self.branches[branch];
        let mut view = if children.is_empty() {
            branch.view.clone()
        } else {
            let concurrent =
                |a: usize, b: usize| children[a].answered.is_none_or(|answered| answered > children[b].asked);
            join(&branch.view, children, concurrent, &self.rules)?
        };
        view.apply(&command.update, &self.rules)?;
        if branch.origin == Origin::Root {
            return Ok((view, Vec::new()));
        }
        let mut deltas: Vec<Delta> = children.iter().flat_map(|child| child.deltas.iter().cloned()).collect();
        deltas.extend(self.delta_of(number, command));
        Ok((view, deltas))
    }

    /// As [`Run::settle`]. If nothing will read the view, because the branch is a part of a fan-out or the whole item of a map and ends with
    /// the turn, the view is left as it is; only the deltas go into the join.
    pub(in crate::supervision::runs) fn settle_end(
        &self,
        number: u32,
        id: u32,
        children: &[ChildDeltas],
        command: &Arc<Command>,
    ) -> Result<(State, Vec<Delta>), StateError> {
        let branch = &self.branches[id];
        let waits_for_answers =
            !branch.extras.outbound.is_empty() || self.turns.get(number).is_some_and(OpenTurn::leaves_answers);
        let is_unread = command.goto == Goto::Next
            && children.is_empty()
            && !waits_for_answers
            && match (branch.origin, self.plan.graph()) {
                (Origin::Fork { .. }, None) => true,
                (Origin::Node { parent, .. }, Some(graph)) => self.is_whole_item(graph, parent),
                _ => false,
            };
        match is_unread.then(|| State::check(&command.update, &self.rules)).flatten() {
            Some(checked) => checked.map(|()| (branch.view.clone(), Vec::from_iter(self.delta_of(number, command)))),
            None => self.settle(number, id, children, command),
        }
    }

    /// What a turn has written itself, for the join of its branch.
    fn delta_of(&self, number: u32, command: &Arc<Command>) -> Option<Delta> {
        let delta = || Delta { turn: self.turn_id(number), update: Writes::Of(Arc::clone(command)) };
        (!command.update.is_empty()).then(delta)
    }

    /// The authority of an agent by itself: of the board's agent, or that of its host and its makers.
    pub(in crate::supervision::runs) fn own_authority(
        &self,
        agent: &AgentName,
        directory: &dyn AgentDirectory,
    ) -> Authority {
        let made = match (self.extras.agents.authority_of(agent), agent.maker()) {
            (Some(authority), _) => authority,
            // It was kept, or created by a turn that a fork has not copied.
            (None, Some(_)) => directory.kept(agent).map_or(Authority::of([]), |kept| kept.authority),
            (None, None) => Authority::ALL,
        };
        made.and(directory.authority(agent.host()))
    }

    /// The authority of an agent, which has this [one by itself](Self::own_authority), in a branch: the intersection of the run's grant, the
    /// authority of every agent in the chain, and that of agents that passed control on or created it. Also the deadline of the run, or of an
    /// enclosing delegation.
    pub(in crate::supervision::runs) fn bounds_of(
        &self,
        branch: &Branch,
        own: Authority,
        directory: &dyn AgentDirectory,
    ) -> Bounds {
        let of = |agent: &AgentName| self.own_authority(agent, directory);
        let task = &self.submission.task;
        let mut authority = task.grant.and(own);
        // The grant covers the part of the chain that led to the run.
        let own_steps = branch.chain.len() - self.submission.chain.len();
        for step in branch.chain.newest_first().take(own_steps) {
            authority = authority.and(of(&step.from)).and(of(&step.to));
        }
        let mut deadline = task.deadline.map(|deadline| self.submission.at + deadline);
        let mut next = Some(branch);
        while let Some(branch) = next {
            authority = authority.and(branch.authority);
            deadline = [deadline, branch.extras.brief.deadline].into_iter().flatten().min();
            next = self.branch_around(branch);
        }
        Bounds { authority, deadline }
    }
}

/// The bounds of an agent's turns in a branch.
pub(in crate::supervision::runs) struct Bounds {
    /// The authority of the turns.
    pub(in crate::supervision::runs) authority: Authority,
    /// The deadline, if there is one.
    pub(in crate::supervision::runs) deadline: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::messages::{Chain, Reducer, RunId, Schema, Submission, Task, TraceId, Verdict};
    use crate::workflow::{Node, Workflow};

    /// A run whose first turn has handed control to two others.
    fn forked() -> Run {
        let [lead, worker] = ["lead", "worker"].map(|name| AgentName::new(name).unwrap());
        let schema = Schema::strict().channel("list", Reducer::Append).channel("sum", Reducer::Sum);
        let id = Uuid::from_u128(7);
        let (run, trace, task) = (RunId(id), TraceId(id), Task::new("x").to("lead"));
        let (cast, chain, at) = (Vec::new(), Chain::default(), Timestamp::default());
        let submission = Submission { run, trace, task, agent: lead.clone(), cast, chain, at };
        let (mut run, _) = Run::begin(Arc::new(submission), StateRules::new(schema));
        let command = Arc::new(Command::update("list", 0).goto_many([("worker", 1), ("worker", 2)]));
        let verdict = Verdict::Admitted(vec![worker; 2]);
        run.step(&RunEvent::TurnEnded { turn: 1, agent: lead, attempt: 1, command, verdict, at });
        run
    }

    /// The end of the first turn of a map with this node, and what its view would be.
    fn item_settled(node: Node) -> [(State, Vec<Delta>); 2] {
        let plan =
            Workflow::builder("map").channel("list", Reducer::Append).node(node.for_each("[1, 2]")).build().unwrap();
        let agent = AgentName::new("x").unwrap();
        let cast = plan.plan().cast().iter().map(|_| agent.clone()).collect();
        let id = Uuid::from_u128(7);
        let (run, trace, chain, at) = (RunId(id), TraceId(id), Chain::default(), Timestamp::default());
        let submission = Submission { run, trace, task: plan.task("in"), agent, cast, chain, at };
        let (run, _) = Run::begin(Arc::new(submission), StateRules::default());
        let (branch, command) = (run.turn(1).unwrap().branch, Arc::new(Command::output(1).with("list", 1)));
        [run.settle_end(1, branch, &[], &command), run.settle(1, branch, &[], &command)].map(Result::unwrap)
    }

    #[test]
    fn all_that_a_map_does_for_an_item_leaves_the_deltas_of_its_turn_unless_its_state_is_read() {
        let node = || Node::agent("a", "x");
        for alone in [node(), Node::nodes("each", [node()])] {
            let [(view, deltas), (seen, written)] = item_settled(alone);
            assert_eq!((view.to_json(), seen.to_json()), (json!({}).into(), json!({ "list": [1] }).into()));
            assert_eq!((deltas.len(), deltas), (1, written));
        }
        let after = Node::agent("b", "x").after("a");
        for read in [vec![node().saved_to("list")], vec![node().compensated_by("x")], vec![node(), after]] {
            let [end, whole] = item_settled(Node::nodes("each", read));
            assert_eq!(end, whole);
        }
    }

    #[test]
    fn a_part_of_a_fan_out_leaves_the_deltas_of_its_turn_and_is_refused_what_its_view_would_refuse() {
        let run = forked();
        let branch = run.turn(2).unwrap().branch;
        let both = |command: Command| {
            let command = Arc::new(command);
            (run.settle_end(2, branch, &[], &command), run.settle(2, branch, &[], &command))
        };
        let (end, whole) = both(Command::update("list", json!([1, 2])));
        let ((view, deltas), (seen, written)) = (end.unwrap(), whole.unwrap());
        assert_eq!(
            (view.to_json(), seen.to_json()),
            (json!({ "list": [0] }).into(), json!({ "list": [0, 1, 2] }).into())
        );
        assert_eq!((deltas.len(), &deltas), (1, &written));
        let (end, whole) = both(Command::update("list", 1).with("lists", 2));
        assert!(end.is_err() && end == whole, "{end:?}");
        for read in [Command::update("sum", 1), Command::update("list", 1).goto("lead"), Command::update("sum", "x")] {
            let (end, whole) = both(read);
            assert_eq!(end, whole, "its view is read, or decides");
        }
    }
}
