//! How branches go on, fork, join, end and are cancelled.

use std::sync::Arc;

use crate::messages::state::{Delta, join};
use crate::messages::{
    AgentName, Alone, Answer, Command, Goto, Json, LateAnswer, Outcome, RequestId, RunResult, State, Update, Verdict,
};
use crate::supervision::runs::rules::guard::Handoff;
use crate::supervision::runs::rules::run::{
    Branch, BranchEnd, Brief, ChildDeltas, EndedTurn, HANDOFF_ORDINAL, LATE_ORDINAL, Now, OpenTurn, Origin, Outbound,
    ParkedHandoff, Record, Run,
};

use super::{Answered, Effect, WorkedOut, mark};

impl Run {
    pub(in crate::supervision::runs) fn add_branch(&mut self, branch: Branch) -> u32 {
        let id = self.next_branch;
        self.next_branch += 1;
        self.branches.insert(id, Box::new(branch));
        id
    }

    pub(super) fn turn_ended(
        &mut self,
        number: u32,
        command: &Arc<Command>,
        verdict: &Verdict,
        worked_out: WorkedOut,
        effects: &mut Vec<Effect>,
    ) {
        let Some(children) = self.turns.get(&number).map(|turn| self.children_of(turn)) else { return };
        self.keep_outbound(number);
        let Some(open) = self.close_turn(number, effects) else { return };
        if let (Some((to, refusal)), Goto::Next) = (open.refused_handoff(), &command.goto) {
            let (to, refusal) = (to.to_vec(), refusal.clone());
            self.alone.push(Alone { turn: number, agent: open.agent.clone(), to, refusal });
        }
        self.turns_ended += 1;
        let ended = EndedTurn { number, agent: open.agent, input: open.input, command: Arc::clone(command), children };
        if let Verdict::Parked(envelope) = verdict {
            effects.push(Effect::RequestApproval { turn: number, ordinal: HANDOFF_ORDINAL });
            if let Some(branch) = self.branches.get_mut(&open.branch) {
                branch.now = Now::Parked(Box::new(ParkedHandoff { ended, envelope: (**envelope).clone() }));
            }
        } else {
            self.go_on(open.branch, ended, verdict, worked_out, effects);
        }
    }

    /// What an ended turn gave away without waiting stays open with its branch.
    fn keep_outbound(&mut self, number: u32) {
        let Some(open) = self.turns.get_mut(&number) else { return };
        let (id, agent, input) = (open.branch, open.agent.clone(), open.input.clone());
        let is_detached = |record: &Record| matches!(record, Record::Delegation { order, reply, .. } if order.is_detached && !matches!(reply, Some(Err(_))));
        let ordinals: Vec<u32> =
            open.records.iter().filter(|(_, record)| is_detached(record)).map(|(ordinal, _)| *ordinal).collect();
        for ordinal in ordinals {
            let record = open.records.remove(&ordinal).map(|record| *record);
            let Some(Record::Delegation { order, reply, deltas }) = record else { continue };
            let reply = reply.and_then(Result::ok);
            let (agent, input) = (agent.clone(), input.clone());
            if let Some(branch) = self.branches.get_mut(&id) {
                branch.outbound.push(Outbound { turn: number, ordinal, agent, input, order, reply, deltas });
            }
        }
    }

    /// The asking agent gets a turn with the first answer that has come, if the branch has nothing else to do.
    fn take_answer(&mut self, id: u32, effects: &mut Vec<Effect>) {
        let request = |outbound: &Outbound| RequestId { turn: self.turn_id(outbound.turn), ordinal: outbound.ordinal };
        let Some(branch) = self.branches.get(&id).filter(|branch| matches!(branch.now, Now::Awaiting)) else { return };
        let Some(position) = branch.outbound.iter().position(|outbound| outbound.reply.is_some()) else { return };
        let request = request(&branch.outbound[position]);
        let Some(branch) = self.branches.get_mut(&id) else { return };
        let Outbound { agent, input, mut order, reply, deltas, .. } = branch.outbound.remove(position);
        let Some(answer) = reply else { return };
        let late = LateAnswer {
            request: request.to_string(),
            to: Arc::clone(&order.to),
            body: Arc::clone(&order.body),
            answer: answer.clone(),
            original_input: input,
        };
        // Every part of it is JSON already.
        let input = Json::of(late).unwrap_or_default();
        let number = self.next_turn;
        effects.push(self.start_turn(id, agent, input));
        order.is_detached = false;
        self.record(number, LATE_ORDINAL, Record::Delegation { order, reply: Some(Ok(answer)), deltas });
    }

    /// A decision about the handoff that `turn` ended with.
    pub(super) fn unpark(&mut self, turn: u32, verdict: &Verdict, effects: &mut Vec<Effect>) {
        let parked_here = |branch: &Branch| matches!(&branch.now, Now::Parked(parked) if parked.ended.number == turn);
        let Some((&id, branch)) = self.branches.iter_mut().find(|(_, branch)| parked_here(branch)) else { return };
        let Now::Parked(parked) = std::mem::replace(&mut branch.now, Now::Turn(turn)) else { return };
        self.go_on(id, parked.ended, verdict, WorkedOut::default(), effects);
    }

    /// Applies what an ended turn wrote, unless where it goes was denied, and follows where it goes.
    fn go_on(
        &mut self,
        id: u32,
        ended: EndedTurn,
        verdict: &Verdict,
        mut worked_out: WorkedOut,
        effects: &mut Vec<Effect>,
    ) {
        let EndedTurn { number, agent, input, command, mut children } = ended;
        let (nothing, mut update) = (Update::default(), &command.update);
        if matches!(verdict, Verdict::Refused(refusal) if refusal.is_denial()) {
            update = &nothing;
            children.clear();
            worked_out.settled = None;
        }
        let output = command.output.clone();
        let settled = match worked_out.settled {
            Some(settled) => Ok(settled),
            None => self.settle(number, id, &children, update),
        };
        match settled {
            Err(error) => {
                let outcome = Outcome::Failed { error: error.to_string() };
                self.conflict = Some(Box::new(error));
                return self.end_branch(id, outcome, output.unwrap_or_default(), effects);
            }
            Ok((view, deltas)) => {
                let Some(branch) = self.branches.get_mut(&id) else { return };
                branch.view = view;
                branch.deltas.extend(deltas);
                branch.previous_agent = Some(agent.clone());
                // Whoever gets control from an agent that was made is bound as that one is.
                if let Some(made) = self.made.get(&agent) {
                    branch.authority = branch.authority.and(made.authority);
                }
            }
        }
        if self.escalate(id, &command, output.clone().unwrap_or_default()) {
            return self.end_branch(id, Outcome::Finished, output.unwrap_or_default(), effects);
        }
        self.note_goto(id, &command);
        match verdict {
            Verdict::Nothing | Verdict::Parked(_) => match command.goto {
                Goto::End => self.end_scope(id, output.unwrap_or_default(), effects),
                Goto::Next if self.branches.get(&id).is_some_and(|branch| !branch.outbound.is_empty()) => {
                    if let Some(branch) = self.branches.get_mut(&id) {
                        branch.now = Now::Awaiting;
                    }
                    self.take_answer(id, effects);
                }
                Goto::Next | Goto::Agent(_) | Goto::Many(_) => {
                    self.end_branch(id, Outcome::Finished, output.unwrap_or_default(), effects);
                }
            },
            Verdict::Refused(refusal) => {
                self.end_branch(id, Outcome::refused(refusal.clone()), output.unwrap_or_default(), effects);
            }
            Verdict::Admitted(agents) => {
                self.handoffs += u32::try_from(agents.len()).unwrap_or(u32::MAX);
                match (&command.goto, agents.as_slice()) {
                    (Goto::Many(sends), agents) => {
                        let inputs = sends.iter().map(|send| send.input.clone());
                        self.fork(id, &agent, agents.iter().cloned().zip(inputs), effects);
                    }
                    (Goto::Agent(_) | Goto::Next | Goto::End, agents) => {
                        let carried = output.unwrap_or(input);
                        let Some(to) = agents.first() else { return };
                        let mark = worked_out.mark.unwrap_or_else(|| mark(&carried, &command));
                        let window = self.submission.limits().repeat_window;
                        if let Some(branch) = self.branches.get_mut(&id) {
                            branch.recent.push(Handoff { from: agent, to: to.clone(), mark });
                            let surplus = branch.recent.len().saturating_sub(window);
                            branch.recent.drain(..surplus);
                        }
                        effects.push(self.start_turn(id, to.clone(), carried));
                    }
                }
            }
        }
    }

    fn fork(
        &mut self,
        id: u32,
        from: &AgentName,
        sends: impl Iterator<Item = (AgentName, Json)>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(parent) = self.branches.get(&id) else { return };
        let sibling = Branch {
            recent: parent.recent.clone(),
            previous_agent: Some(from.clone()),
            brief: Brief { deadline: None, ..parent.brief.clone() },
            ..Branch::new(Origin::Root, parent.view.clone(), parent.chain.clone())
        };
        let mut children = Vec::new();
        for (index, (agent, input)) in sends.enumerate() {
            let origin = Origin::Fork { parent: id, index };
            let child = self.add_branch(Branch { origin, ..sibling.clone() });
            effects.push(self.start_turn(child, agent, input));
            children.push(child);
        }
        let (open, ends) = (children.len(), vec![None; children.len()]);
        if let Some(parent) = self.branches.get_mut(&id) {
            parent.now = Now::Forked { children, ends, open };
        }
        if open == 0 {
            self.end_branch(id, Outcome::Finished, Json::from(Vec::<serde_json::Value>::new()), effects);
        }
    }

    pub(super) fn turn_failed(&mut self, number: u32, outcome: Outcome, effects: &mut Vec<Effect>) {
        if let Some(open) = self.close_turn(number, effects) {
            self.turns_ended += 1;
            self.end_branch(open.branch, outcome, Json::null(), effects);
        }
    }

    /// Ends a branch, and with it whatever only waited for it: joins of forks, the run, or the answer to a delegation.
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
    fn end_scope(&mut self, id: u32, output: Json, effects: &mut Vec<Effect>) {
        let (mut child, mut open) = (id, Vec::new());
        while let Some(Origin::Fork { parent, .. }) = self.branches.get(&child).map(|branch| branch.origin) {
            let Some(branch) = self.branches.get_mut(&parent) else { break };
            let Now::Forked { children, ends, open: left } = &mut branch.now else { break };
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

    /// With `forced`, every join on the way up finishes with that output.
    fn cascade(&mut self, id: u32, outcome: Outcome, output: Json, forced: Option<&Json>, effects: &mut Vec<Effect>) {
        let (mut id, mut outcome, mut output) = (id, outcome, output);
        loop {
            self.cancel_outbound(id, effects);
            self.note_end_of(id);
            let Some(mut branch) = self.branches.remove(&id) else { return };
            let end = BranchEnd::of(&mut branch, outcome, output);
            match branch.origin {
                Origin::Node { .. } => return self.node_branch_ended(branch, end, forced.is_some()),
                Origin::Compensation { parent } => {
                    if end.outcome.is_finished() {
                        self.note_undone(parent);
                    }
                    return self.take_back_next(parent, effects);
                }
                Origin::Root => return self.finish(end.outcome, end.output, branch.view, effects),
                Origin::Delegation { turn, ordinal } => {
                    let answer = Answer { outcome: end.outcome, output: end.output };
                    return self.answered(turn, ordinal, answer, end.deltas, effects);
                }
                Origin::Fork { parent, index } => {
                    let Some(around) = self.branches.get_mut(&parent) else { return };
                    let is_map = matches!(around.origin, Origin::Node { .. });
                    // An item of a map that fails ends the map.
                    if !end.outcome.is_finished() && is_map {
                        around.has_failed_within = branch.has_failed_within;
                        return self.take_back(parent, end.outcome, effects);
                    }
                    let Now::Forked { ends, open, .. } = &mut around.now else { return };
                    ends[index] = Some(end);
                    *open -= 1;
                    if *open > 0 {
                        return;
                    }
                    let ends = std::mem::take(ends);
                    (outcome, output) = self.join_ends(parent, ends, forced);
                    if !outcome.is_finished() && is_map {
                        return self.take_back(parent, outcome, effects);
                    }
                    id = parent;
                }
            }
        }
    }

    /// A delegated branch has ended: its asking turn is told, or the branch that the turn left behind.
    pub(super) fn answered(
        &mut self,
        turn: u32,
        ordinal: u32,
        answer: Answer,
        written: Vec<Delta>,
        effects: &mut Vec<Effect>,
    ) {
        self.budget.close_purse((turn, ordinal));
        let (answered, is_marked) = (Some(self.sequence), self.is_marked);
        let (at, sequence) = (self.last_at, self.sequence);
        let told = |asker: &AgentName, to: &Arc<str>| {
            let (asker, to, answer) = (asker.clone(), Arc::clone(to), answer.clone());
            Effect::Answered(Box::new(Answered { turn, ordinal, asker, to, answer, at, sequence }))
        };
        if let Some(open) = self.turns.get_mut(&turn) {
            let record = open.records.get_mut(&ordinal).map(|record| &mut **record);
            if let Some(Record::Delegation { order, reply, deltas }) = record {
                effects.push(told(&open.agent, &order.to));
                *deltas = ChildDeltas { answered, deltas: written, is_marked, ..*deltas };
                *reply = Some(Ok(answer));
                effects.push(Effect::Reply { turn, ordinal });
            }
            return;
        }
        let is_asked = |outbound: &Outbound| (outbound.turn, outbound.ordinal) == (turn, ordinal);
        let found = self
            .branches
            .iter_mut()
            .find_map(|(id, branch)| Some((*id, branch.outbound.iter_mut().find(|outbound| is_asked(outbound))?)));
        if let Some((id, outbound)) = found {
            effects.push(told(&outbound.agent, &outbound.order.to));
            outbound.deltas = ChildDeltas { answered, deltas: written, ..outbound.deltas };
            outbound.reply = Some(answer);
            self.take_answer(id, effects);
        }
    }

    /// Nobody will take the answers to what the branch gave away.
    fn cancel_outbound(&mut self, id: u32, effects: &mut Vec<Effect>) {
        let Some(branch) = self.branches.get(&id).filter(|branch| !branch.outbound.is_empty()) else { return };
        let open = branch.outbound.iter().filter(|outbound| outbound.reply.is_none());
        let children: Vec<u32> =
            open.filter_map(|outbound| self.delegated_branch(outbound.turn, outbound.ordinal)).collect();
        for child in children {
            self.cancel_branch(child, effects);
        }
    }

    /// Joins what the children of a forked branch wrote into its view, in the order of the sends. With `forced`, only a
    /// join that fails keeps the branch from finishing with that output.
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
        let Some(branch) = self.branches.get_mut(&parent) else { return (outcome, output) };
        let writers: Vec<&[_]> = ends.iter().map(|end| end.deltas.as_slice()).collect();
        match join(&branch.view, &writers, |_, _| true, &self.rules) {
            Ok(view) => branch.view = view,
            Err(error) => {
                outcome = Outcome::Failed { error: error.to_string() };
                self.conflict = Some(Box::new(error));
            }
        }
        let is_root = branch.origin == Origin::Root;
        for mut end in ends {
            branch.reversible.append(&mut end.reversible);
            if !is_root {
                branch.deltas.append(&mut end.deltas);
            }
        }
        (outcome, output)
    }

    fn finish(&mut self, outcome: Outcome, output: Json, view: State, effects: &mut Vec<Effect>) {
        let metrics = self.metrics();
        let (alone, handoffs) = (std::mem::take(&mut self.alone), self.submission.task.handoffs);
        let (run, state) = (self.id(), view.into());
        let is_marked = self.is_marked;
        let result = RunResult { run, outcome, output, state, metrics, handoffs, is_marked, alone };
        self.result = Some(Arc::new(result));
        effects.push(Effect::Ended);
    }

    pub(super) fn stop(&mut self, outcome: Outcome, effects: &mut Vec<Effect>) {
        let view = self.state_so_far();
        self.cancel_branch(0, effects);
        self.finish(outcome, Json::null(), view, effects);
    }

    /// Takes a turn out, with everything that only it waits for.
    fn close_turn(&mut self, number: u32, effects: &mut Vec<Effect>) -> Option<Box<OpenTurn>> {
        let waiter =
            self.waiter_of(self.turns.get(&number)?.branch).map(|(asked, agent)| (asked.turn.number, agent.clone()));
        let open = self.turns.remove(&number)?;
        self.budget.end_attempt(number);
        effects.push(Effect::Close { turn: number, agent: open.agent.clone(), waiter });
        for (ordinal, record) in &open.records {
            match &**record {
                Record::Delegation { reply: None, .. } => {
                    if let Some(child) = self.delegated_branch(number, *ordinal) {
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

    /// Takes a branch out with all its turns and children.
    pub(in crate::supervision::runs) fn cancel_branch(&mut self, id: u32, effects: &mut Vec<Effect>) {
        self.note_end_of(id);
        let mut ids = vec![id];
        while let Some(id) = ids.pop() {
            self.cancel_outbound(id, effects);
            let Some(branch) = self.branches.get(&id) else { continue };
            if let Origin::Delegation { turn, ordinal } = branch.origin {
                self.budget.close_purse((turn, ordinal));
            }
            ids.extend(branch.undo.as_ref().and_then(|undo| undo.by));
            match &branch.now {
                Now::Turn(turn) => {
                    let turn = *turn;
                    self.close_turn(turn, effects);
                }
                Now::Parked(parked) => effects.push(Effect::WithdrawApproval(parked.envelope.id())),
                Now::Forked { children, .. } => ids.extend(children),
                Now::Plan(scope) => ids.extend(scope.children.values()),
                Now::Awaiting => {}
            }
            self.branches.remove(&id);
        }
    }
}
