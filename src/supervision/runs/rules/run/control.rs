//! How control continues after a turn: targets of commands, forks, and late answers.

use std::sync::Arc;

use crate::messages::{AgentName, Alone, Command, Goto, Json, LateAnswer, Outcome, Verdict};
use crate::supervision::runs::rules::guard::{Handoff, fingerprint};
use crate::supervision::runs::rules::requests::RequestKey;

use super::branch::{Branch, Brief, EndedTurn, Forked, Now, Origin, Outbound, ParkedHandoff};
use super::effect::{Effect, WorkedOut};
use super::fold::Run;
use super::record::{HANDOFF_ORDINAL, LATE_ORDINAL, Record};

impl Run {
    pub(super) fn turn_ended(
        &mut self,
        number: u32,
        command: &Arc<Command>,
        verdict: &Verdict,
        worked_out: WorkedOut,
        effects: &mut Vec<Effect>,
    ) {
        let Some(children) = self.turns.get(number).map(|turn| self.children_of(turn)) else { return };
        self.keep_outbound(number);
        let Some(open) = self.close_turn(number, effects) else { return };
        if let (Some((to, refusal)), Goto::Next) = (open.refused_handoff(), &command.goto) {
            let (to, refusal) = (to.to_vec(), refusal.clone());
            self.extras.alone.push(Alone { turn: number, agent: open.agent.clone(), to, refusal });
        }
        self.tally.turns_ended += 1;
        let ended = EndedTurn { number, agent: open.agent, input: open.input, command: Arc::clone(command), children };
        if let Verdict::Parked(envelope) = verdict {
            effects.push(Effect::RequestApproval(RequestKey { turn: number, ordinal: HANDOFF_ORDINAL }));
            self.branches.park(open.branch, ParkedHandoff { ended, envelope: (**envelope).clone() });
        } else {
            self.continue_with(open.branch, ended, verdict, worked_out, effects);
        }
    }

    /// Moves the detached delegations of an ended turn to its branch.
    fn keep_outbound(&mut self, number: u32) {
        let Some(open) = self.turns.get(number).filter(|open| open.leaves_answers()) else { return };
        let (id, agent, input) = (open.branch, open.agent.clone(), open.input.clone());
        for (ordinal, record) in self.turns.take_records(number, |_, record| record.leaves_answer()) {
            let Record::Delegation { order, reply, deltas } = record else { continue };
            let (order, reply) = (*order, reply.and_then(|reply| Arc::unwrap_or_clone(reply).ok()));
            let (agent, input) = (agent.clone(), input.clone());
            if let Some(branch) = self.branches.get_mut(id) {
                branch.extras.outbound.push(Outbound { turn: number, ordinal, agent, input, order, reply, deltas });
            }
        }
    }

    /// Begins a turn of the asking agent with the first answer that has arrived, if the branch has nothing else to do.
    pub(super) fn take_answer(&mut self, id: u32, effects: &mut Vec<Effect>) {
        let Some(branch) = self.branches.get(id).filter(|branch| matches!(branch.now, Now::Awaiting)) else { return };
        let Some(position) = branch.extras.outbound.iter().position(|outbound| outbound.reply.is_some()) else {
            return;
        };
        let request = self.request_id(branch.extras.outbound[position].request());
        let Some(branch) = self.branches.get_mut(id) else { return };
        let Outbound { agent, input, mut order, reply, deltas, .. } = branch.extras.outbound.remove(position);
        let Some(answer) = reply else { return };
        let late = LateAnswer {
            request: request.to_string(),
            to: Arc::clone(&order.to),
            body: Arc::clone(&order.body),
            answer: answer.clone(),
            original_input: input,
        };
        // Serializing it cannot fail: all its parts are JSON.
        let input = Json::of(late).unwrap_or_default();
        let number = self.turns.next_number();
        effects.push(self.start_turn(id, agent, input));
        order.is_detached = false;
        let request = RequestKey { turn: number, ordinal: LATE_ORDINAL };
        self.turns
            .record(request, Record::Delegation { order: Box::new(order), reply: Some(Arc::new(Ok(answer))), deltas });
    }

    /// A decision about the handoff that `turn` ended with.
    pub(super) fn unpark(&mut self, turn: u32, verdict: &Verdict, effects: &mut Vec<Effect>) {
        let Some((id, parked)) = self.branches.unpark(turn) else { return };
        self.continue_with(id, parked.ended, verdict, WorkedOut::default(), effects);
    }

    /// Applies the writes of an ended turn, unless its handoff was denied, and continues with the command's target.
    pub(super) fn continue_with(
        &mut self,
        id: u32,
        ended: EndedTurn,
        verdict: &Verdict,
        worked_out: WorkedOut,
        effects: &mut Vec<Effect>,
    ) {
        let EndedTurn { number, agent, input, command, children } = ended;
        let is_denied = matches!(verdict, Verdict::Refused(refusal) if refusal.is_denial());
        let output = command.output.clone();
        let settled = match worked_out.settled {
            // What it and its children have written is dropped.
            Some(_) | None if is_denied => self.settle(number, id, &[], &Arc::default()),
            Some(settled) => Ok(settled),
            None => self.settle_end(number, id, &children, &command),
        };
        match settled {
            Err(error) => {
                let outcome = Outcome::Failed { error: error.to_string() };
                self.extras.conflict = Some(Box::new(error));
                return self.end_branch(id, outcome, output.unwrap_or_default(), effects);
            }
            Ok((view, deltas)) => {
                let Some(branch) = self.branches.get_mut(id) else { return };
                branch.view = view;
                if branch.deltas.is_empty() {
                    branch.deltas = deltas;
                } else {
                    branch.deltas.extend(deltas);
                }
                branch.previous_agent = Some(agent.clone());
                // An agent that gets control from a dynamic agent has at most that one's authority.
                if let Some(authority) = self.extras.agents.authority_of(&agent) {
                    branch.authority = branch.authority.and(authority);
                }
            }
        }
        if self.escalate(id, &command, output.as_ref()) {
            return self.end_branch(id, Outcome::Finished, output.unwrap_or_default(), effects);
        }
        self.note_goto(id, &command);
        match verdict {
            Verdict::Nothing | Verdict::Parked(_) => match command.goto {
                Goto::End => self.end_scope(id, output.unwrap_or_default(), effects),
                Goto::Next if self.branches.get(id).is_some_and(|branch| !branch.extras.outbound.is_empty()) => {
                    if let Some(branch) = self.branches.get_mut(id) {
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
                self.tally.handoffs += u32::try_from(agents.len()).unwrap_or(u32::MAX);
                match (&command.goto, agents.as_slice()) {
                    (Goto::Many(sends), agents) => {
                        let inputs = sends.iter().map(|send| send.input.clone());
                        self.fork(id, &agent, agents.iter().cloned().zip(inputs), effects);
                    }
                    (Goto::Agent(_) | Goto::Next | Goto::End, agents) => {
                        let carried = output.unwrap_or(input);
                        let Some(to) = agents.first() else { return };
                        let fingerprint = worked_out.fingerprint.unwrap_or_else(|| fingerprint(&carried, &command));
                        let window = self.submission.limits().repeat_window;
                        if let Some(branch) = self.branches.get_mut(id) {
                            branch.recent.push(Handoff { from: agent, to: to.clone(), fingerprint });
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
        let Some(parent) = self.branches.get(id) else { return };
        let sibling = Branch {
            recent: parent.recent.clone(),
            previous_agent: Some(from.clone()),
            ..Branch::new(Origin::Root, parent.view.clone(), parent.chain.clone())
        };
        let sibling = sibling.with_brief(Brief { deadline: None, ..parent.extras.brief.clone() });
        let mut children = Vec::with_capacity(sends.size_hint().0);
        let mut last: Option<AgentName> = None;
        for (index, (agent, input)) in sends.enumerate() {
            let origin = Origin::Fork { parent: id, index };
            let child = self.branches.add(Branch { origin, ..sibling.clone() });
            // Of parts in a row for one agent, the first counts it.
            effects.push(match last.replace(agent.clone()) {
                Some(before) if before == agent => self.open_turn(child, agent, input),
                Some(_) | None => self.start_turn(child, agent, input),
            });
            children.push(child);
        }
        let is_empty = children.is_empty();
        if let Some(parent) = self.branches.get_mut(id) {
            parent.now = Forked::into(children);
        }
        if is_empty {
            self.end_branch(id, Outcome::Finished, Json::from(Vec::<serde_json::Value>::new()), effects);
        }
    }

    pub(super) fn turn_failed(&mut self, number: u32, outcome: Outcome, effects: &mut Vec<Effect>) {
        if let Some(open) = self.close_turn(number, effects) {
            self.tally.turns_ended += 1;
            self.end_branch(open.branch, outcome, Json::null(), effects);
        }
    }
}
