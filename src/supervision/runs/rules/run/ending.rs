//! How branches end, and what follows: joins of forks, answers to delegations, the end of the run.

use std::sync::Arc;

use crate::messages::state::{Delta, join};
use crate::messages::{AgentName, Answer, Json, Outcome, RunResult, State};
use crate::supervision::runs::rules::requests::RequestKey;

use super::branch::{BranchEnd, Forked, Now, Origin, Outbound};
use super::effect::{Answered, Effect};
use super::fold::Run;
use super::record::{ChildDeltas, Record};
use super::turn::OpenTurn;

impl Run {
    /// Ends a branch, and what waited only for it: joins of forks, the run, or the answer to a delegation.
    pub(in crate::supervision::runs) fn end_branch(
        &mut self,
        id: u32,
        outcome: Outcome,
        output: Json,
        effects: &mut Vec<Effect>,
    ) {
        self.cascade(id, outcome, output, None, effects);
    }

    /// Ends the run, or the delegation, that the branch belongs to; its siblings are cancelled and what they wrote so far
    /// is dropped.
    pub(super) fn end_scope(&mut self, id: u32, output: Json, effects: &mut Vec<Effect>) {
        let (mut child, mut open) = (id, Vec::new());
        while let Some(Origin::Fork { parent, .. }) = self.branches.get(child).map(|branch| branch.origin) {
            let Some(branch) = self.branches.get_mut(parent) else { break };
            let Now::Forked(forked) = &mut branch.now else { break };
            let Forked { children, ends, open: left } = &mut **forked;
            for (sibling, end) in children.iter().zip(ends.iter_mut()) {
                if *sibling != child && end.is_none() {
                    let outcome = Outcome::Cancelled { reason: "another branch ended the run".into() };
                    let (deltas, reversible) = (Vec::new(), Vec::new());
                    *end = Some(BranchEnd { outcome, output: Json::null(), deltas, reversible });
                    open.push(*sibling);
                }
            }
            *left = 1;
            child = parent;
        }
        for sibling in open {
            self.cancel_branch(sibling, effects);
        }
        self.cascade(id, Outcome::Finished, output.clone(), Some(&output), effects);
    }

    /// Ends branches upwards from this one; with `forced`, every join on the way finishes with that output.
    pub(super) fn cascade(
        &mut self,
        id: u32,
        outcome: Outcome,
        output: Json,
        forced: Option<&Json>,
        effects: &mut Vec<Effect>,
    ) {
        let (mut id, mut outcome, mut output) = (id, outcome, output);
        loop {
            self.cancel_outbound(id, effects);
            self.note_end_of(id);
            let Some(mut branch) = self.branches.remove(id) else { return };
            let end = BranchEnd::of(&mut branch, outcome, output);
            if forced.is_none()
                && let Some(item) = self.item_ended_by(&branch, &end)
            {
                if let Some(item) = self.branches.get_mut(item) {
                    item.deltas = end.deltas;
                }
                (id, outcome, output) = (item, end.outcome, end.output);
                continue;
            }
            match branch.origin {
                Origin::Node { .. } => return self.node_branch_ended(*branch, end, forced.is_some()),
                Origin::Compensation { parent } => {
                    if end.outcome.is_finished() {
                        self.note_undone(parent);
                    }
                    return self.compensate_next(parent, effects);
                }
                Origin::Root => return self.finish(end.outcome, end.output, branch.view, effects),
                Origin::Delegation { turn, ordinal } => {
                    let answer = Answer { outcome: end.outcome, output: end.output };
                    return self.answered(RequestKey { turn, ordinal }, answer, end.deltas, effects);
                }
                Origin::Fork { parent, index } => {
                    let Some(around) = self.branches.get_mut(parent) else { return };
                    let is_map = matches!(around.origin, Origin::Node { .. });
                    // An item of a map that fails ends the map.
                    if !end.outcome.is_finished() && is_map {
                        if branch.extras.has_failed_within {
                            around.extras.has_failed_within = true;
                        }
                        return self.compensate(parent, end.outcome, effects);
                    }
                    let Now::Forked(forked) = &mut around.now else { return };
                    let Forked { ends, open, .. } = &mut **forked;
                    ends[index] = Some(end);
                    *open -= 1;
                    if *open > 0 {
                        return;
                    }
                    let ends = std::mem::take(ends);
                    (outcome, output) = self.join_ends(parent, ends, forced);
                    if !outcome.is_finished() && is_map {
                        return self.compensate(parent, outcome, effects);
                    }
                    id = parent;
                }
            }
        }
    }

    /// Answers a delegation whose branch has ended: the answer goes to its asking turn, or to the branch that the turn left
    /// behind.
    pub(super) fn answered(
        &mut self,
        request: RequestKey,
        answer: Answer,
        written: Vec<Delta>,
        effects: &mut Vec<Effect>,
    ) {
        let RequestKey { turn, ordinal } = request;
        self.budget.close_sub_budget(request);
        let (answered, is_tainted) = (Some(self.sequence), self.is_tainted);
        let (at, sequence) = (self.last_at, self.sequence);
        let answered_to = |asker: &AgentName, to: &Arc<str>| {
            let (asker, to, answer) = (asker.clone(), Arc::clone(to), answer.clone());
            Effect::Answered(Box::new(Answered { request, asker, to, answer, at, sequence }))
        };
        if let Some(open) = self.turns.get(turn) {
            let Some(Record::Delegation { order, .. }) = open.record(ordinal) else { return };
            effects.push(answered_to(&open.agent, &order.to));
            self.turns.change_record(request, |record| {
                if let Record::Delegation { reply, deltas, .. } = record {
                    *deltas = ChildDeltas { answered, deltas: written, is_tainted, ..*deltas };
                    *reply = Some(Arc::new(Ok(answer)));
                }
            });
            effects.push(Effect::Reply(request));
            return;
        }
        let is_asked = |outbound: &Outbound| outbound.request() == request;
        let found = self.branches.iter_mut().find_map(|(id, branch)| {
            Some((id, branch.extras.get_mut()?.outbound.iter_mut().find(|outbound| is_asked(outbound))?))
        });
        if let Some((id, outbound)) = found {
            effects.push(answered_to(&outbound.agent, &outbound.order.to));
            outbound.deltas = ChildDeltas { answered, deltas: written, ..outbound.deltas };
            outbound.reply = Some(answer);
            self.take_answer(id, effects);
        }
    }

    /// Cancels the detached delegations of a branch that ends.
    pub(super) fn cancel_outbound(&mut self, id: u32, effects: &mut Vec<Effect>) {
        let Some(branch) = self.branches.get(id).filter(|branch| !branch.extras.outbound.is_empty()) else { return };
        let open = branch.extras.outbound.iter().filter(|outbound| outbound.reply.is_none());
        let children: Vec<u32> = open.filter_map(|outbound| self.branches.of_delegation(outbound.request())).collect();
        for child in children {
            self.cancel_branch(child, effects);
        }
    }

    /// Joins the writes of a forked branch's children into its view, in the order of the sends. With `forced`, the branch
    /// finishes with that output unless the join fails.
    pub(in crate::supervision::runs) fn join_ends(
        &mut self,
        parent: u32,
        ends: Vec<Option<BranchEnd>>,
        forced: Option<&Json>,
    ) -> (Outcome, Json) {
        let mut ends: Vec<BranchEnd> = ends.into_iter().flatten().collect();
        self.put_overwrite(ends.iter_mut().map(|end| &mut end.deltas));
        let outputs: Vec<serde_json::Value> = ends.iter().map(|end| end.output.value().clone()).collect();
        let mut outcome = ends
            .iter()
            .map(|end| &end.outcome)
            .find(|outcome| !outcome.is_finished())
            .cloned()
            .unwrap_or(Outcome::Finished);
        let mut output = Json::from(outputs);
        if let Some(forced) = forced {
            (outcome, output) = (Outcome::Finished, forced.clone());
        }
        let Some(branch) = self.branches.get_mut(parent) else { return (outcome, output) };
        let writers: Vec<&[_]> = ends.iter().map(|end| end.deltas.as_slice()).collect();
        match join(&branch.view, &writers, |_, _| true, &self.rules) {
            Ok(view) => branch.view = view,
            Err(error) => {
                outcome = Outcome::Failed { error: error.to_string() };
                self.extras.conflict = Some(Box::new(error));
            }
        }
        let is_root = branch.origin == Origin::Root;
        for mut end in ends {
            if !end.reversible.is_empty() {
                branch.extras.reversible.append(&mut end.reversible);
            }
            if !is_root {
                branch.deltas.append(&mut end.deltas);
            }
        }
        (outcome, output)
    }

    pub(super) fn finish(&mut self, outcome: Outcome, output: Json, view: State, effects: &mut Vec<Effect>) {
        let metrics = self.metrics();
        let alone = self.extras.get_mut().map(|extras| std::mem::take(&mut extras.alone)).unwrap_or_default();
        let handoffs = self.submission.task.handoffs;
        let (run, state) = (self.id(), view.into());
        let is_tainted = self.is_tainted;
        let result = RunResult { run, outcome, output, state, metrics, handoffs, is_tainted, alone };
        self.result = Some(Arc::new(result));
        effects.push(Effect::Ended);
    }

    pub(super) fn stop(&mut self, outcome: Outcome, effects: &mut Vec<Effect>) {
        let view = self.state_so_far();
        self.cancel_branch(0, effects);
        self.finish(outcome, Json::null(), view, effects);
    }

    /// Removes a turn, with everything that only it waits for.
    pub(super) fn close_turn(&mut self, number: u32, effects: &mut Vec<Effect>) -> Option<Box<OpenTurn>> {
        let waiter =
            self.waiter_of(self.turns.get(number)?.branch).map(|(asked, agent)| (asked.turn.number, agent.clone()));
        let open = self.turns.close(number)?;
        // What it has set aside for its run is settled with its own end.
        let is_left_elsewhere = open.is_taken_elsewhere() && self.budget.holds_for(number);
        self.budget.end_attempt(number);
        effects.push(Effect::Close { turn: number, agent: open.agent.clone(), waiter });
        if is_left_elsewhere {
            self.extras.left_elsewhere.push(number);
            effects.push(Effect::CancelElsewhere(number));
        }
        for (ordinal, record) in open.records().iter() {
            match &**record {
                Record::Delegation { reply: None, .. } => {
                    if let Some(child) = self.branches.of_delegation(RequestKey { turn: number, ordinal: *ordinal }) {
                        self.cancel_branch(child, effects);
                    }
                }
                Record::Approval { envelope, decision: None, .. } => {
                    effects.push(Effect::WithdrawApproval(envelope.id()))
                }
                _ => {}
            }
        }
        Some(open)
    }

    /// Removes a branch with all its turns and children.
    pub(in crate::supervision::runs) fn cancel_branch(&mut self, id: u32, effects: &mut Vec<Effect>) {
        self.note_end_of(id);
        let mut ids = vec![id];
        while let Some(id) = ids.pop() {
            self.cancel_outbound(id, effects);
            let Some(branch) = self.branches.get(id) else { continue };
            if let Origin::Delegation { turn, ordinal } = branch.origin {
                self.budget.close_sub_budget(RequestKey { turn, ordinal });
            }
            ids.extend(branch.extras.undo.as_ref().and_then(|undo| undo.by));
            match &branch.now {
                Now::Turn(turn) => {
                    let turn = *turn;
                    self.close_turn(turn, effects);
                }
                Now::Parked(parked) => effects.push(Effect::WithdrawApproval(parked.envelope.id())),
                Now::Forked(forked) => ids.extend(&forked.children),
                Now::Plan(scope) => ids.extend(scope.children.values()),
                Now::Awaiting => {}
            }
            self.branches.remove(id);
        }
    }
}
