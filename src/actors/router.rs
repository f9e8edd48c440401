//! The delegation router: who takes a delegation, and where it stands. It is also what run supervisors dispatch through.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::messages::names::nearest;
use crate::messages::{
    Action, AgentName, ApprovalId, Consent, DelegationRequest, Envelope, Json, Order, Outcome, Refusal, RequestId,
    RunEvent, RunId, Status, StatusUpdate, TurnId, Verdict,
};
use crate::supervision::panic_text;
use crate::supervision::runs::dispatch::{Dispatch, ReadyTurn};
use crate::supervision::runs::run::{Record, Run};
use crate::supervision::tree::ChildRef;

use super::agent::{AgentSpec, Mode};
use super::agent_actor::AgentMsg;
use super::approvals::Decider;
use super::events::Hub;
use super::floor::Floor;
use super::turn::StopReason;

/// Decides before anybody is asked: may this agent do this, must a person consent, or is it out of the question?
pub type ApprovalPolicy = Arc<dyn Fn(&PolicyQuestion<'_>) -> Consent + Send + Sync>;

/// What an approval policy is asked.
#[derive(Clone, Copy, Debug)]
pub struct PolicyQuestion<'a> {
    /// Who wants to do it.
    pub agent: &'a AgentName,
    /// Its mode.
    pub mode: Mode,
    /// What it wants to do.
    pub action: &'a Action,
}

/// The policy that a board has when nobody says otherwise: handoffs go ahead, agents that only analyse are approved, and
/// everything else asks.
#[must_use]
pub fn default_policy(question: &PolicyQuestion<'_>) -> Consent {
    if &*question.action.action == "handoff" || question.mode.is_analysis_only() { Consent::Auto } else { Consent::Ask }
}

/// Messages that an agent's inbox keeps in memory.
const INBOX: usize = 200;

/// What an agent's inbox holds.
#[derive(Clone, Debug, PartialEq)]
pub enum InboxMessage {
    /// A task for the agent.
    Request(DelegationRequest),
    /// News of a task that the agent gave away.
    Status(StatusUpdate),
}

/// The router's books. A restart of its actor leaves them as they are.
pub(crate) struct Router {
    agents: RwLock<BTreeMap<AgentName, Listed>>,
    pub(crate) floor: Arc<Floor>,
    pub(crate) hub: Hub,
    decider: Decider,
    policy: ApprovalPolicy,
    delegations: Mutex<Delegations>,
}

/// An agent as the router knows it.
#[derive(Clone)]
pub(crate) struct Listed {
    pub(crate) role: Option<Arc<str>>,
    pub(crate) capabilities: Vec<Arc<str>>,
    pub(crate) mode: Mode,
    pub(crate) actor: ChildRef<AgentMsg>,
}

#[derive(Default)]
struct Delegations {
    statuses: HashMap<RequestId, Status>,
    inboxes: HashMap<AgentName, VecDeque<InboxMessage>>,
}

impl Router {
    pub(crate) fn new(floor: Arc<Floor>, decider: Decider, policy: ApprovalPolicy) -> Self {
        let (agents, delegations) = (RwLock::default(), Mutex::default());
        Self { agents, floor, hub: Hub::default(), decider, policy, delegations }
    }

    pub(crate) fn list(&self, name: &AgentName, spec: &AgentSpec, actor: ChildRef<AgentMsg>) {
        let (role, capabilities, mode) = (spec.role.clone(), spec.capabilities.clone(), spec.mode);
        self.agents.write().insert(name.clone(), Listed { role, capabilities, mode, actor });
    }

    pub(crate) fn unlist(&self, name: &AgentName) {
        self.agents.write().remove(name);
    }

    pub(crate) fn listed(&self, name: &str) -> Option<Listed> {
        self.agents.read().get(name).cloned()
    }

    pub(crate) fn names(&self) -> Vec<AgentName> {
        self.agents.read().keys().cloned().collect()
    }

    /// The last messages of an agent's inbox, oldest first.
    pub(crate) fn inbox(&self, agent: &str) -> Vec<InboxMessage> {
        self.delegations.lock().inboxes.get(agent).map(|inbox| inbox.iter().cloned().collect()).unwrap_or_default()
    }

    /// Where a delegation stands, as long as an inbox remembers it.
    pub(crate) fn status(&self, request: RequestId) -> Option<Status> {
        self.delegations.lock().statuses.get(&request).copied()
    }

    /// Statuses only move forward; one that does not is dropped.
    fn post(&self, update: StatusUpdate) {
        let mut delegations = self.delegations.lock();
        match delegations.statuses.get_mut(&update.request_id) {
            Some(before) if before.may_become(update.status) => *before = update.status,
            Some(_) => return,
            None => drop(delegations.statuses.insert(update.request_id, update.status)),
        }
        let asker = update.to_agent.clone();
        delegations.keep(&asker, InboxMessage::Status(update));
    }

    fn requested(&self, run: &Run, request_id: RequestId, order: &Order, verdict: &Verdict) {
        let Some(asker) = run.turn(request_id.turn.number).map(|turn| turn.agent().clone()) else { return };
        let trace_id = run.submission().trace;
        let at = run.last_at();
        let mut update = StatusUpdate {
            request_id,
            from_agent: asker.clone(),
            to_agent: asker.clone(),
            status: Status::Fail,
            detail: "".into(),
            body: Json::null(),
            at,
        };
        match verdict {
            Verdict::Admitted(agents) => {
                let Some(to_agent) = agents.first().cloned() else { return };
                let request = DelegationRequest {
                    request_id,
                    from_agent: asker,
                    to_agent: to_agent.clone(),
                    trace_id,
                    body: Arc::clone(&order.body),
                    input: order.input.clone(),
                    reference: order.reference.clone(),
                };
                self.delegations.lock().keep(&to_agent, InboxMessage::Request(request));
                (update.status, update.from_agent) = (Status::Ack, to_agent);
            }
            Verdict::Refused(refusal) => update.detail = refusal.to_string().into(),
            Verdict::Nothing | Verdict::Parked(_) => return,
        }
        self.post(update);
    }
}

impl Delegations {
    fn keep(&mut self, agent: &AgentName, message: InboxMessage) {
        let inbox = match self.inboxes.get_mut(agent) {
            Some(inbox) => inbox,
            None => self.inboxes.entry(agent.clone()).or_default(),
        };
        inbox.push_back(message);
        if inbox.len() > INBOX
            && let Some(InboxMessage::Status(forgotten)) = inbox.pop_front()
            && forgotten.status.is_terminal()
        {
            self.statuses.remove(&forgotten.request_id);
        }
    }
}

impl Dispatch for Router {
    fn resolve(&self, target: &str) -> Result<AgentName, Refusal> {
        let agents = self.agents.read();
        if let Some((name, _)) = agents.get_key_value(target) {
            return self.floor.load(name).map(|_| name.clone());
        }
        let is_capable = |listed: &Listed| listed.capabilities.iter().any(|capability| **capability == *target);
        let has_role = |listed: &Listed| listed.role.as_deref() == Some(target);
        let pick = |fits: &dyn Fn(&Listed) -> bool| {
            let candidates = agents.iter().filter(|(_, listed)| fits(listed));
            let loads = candidates.map(|(name, _)| self.floor.load(name).map(|load| (load, name)));
            loads.reduce(|best, next| match (best, next) {
                (Ok(best), Ok(next)) => Ok(best.min(next)),
                (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
                (Err(first), Err(_)) => Err(first),
            })
        };
        if let Some(picked) = pick(&has_role).or_else(|| pick(&is_capable)) {
            return picked.map(|(_, name)| name.clone());
        }
        let known = agents.iter().flat_map(|(name, listed)| {
            [Some(name.as_str()), listed.role.as_deref()]
                .into_iter()
                .flatten()
                .chain(listed.capabilities.iter().map(AsRef::as_ref))
        });
        Err(Refusal::UnknownAgent { target: target.to_owned(), nearest: nearest(target, known) })
    }

    fn check_room(&self, agent: &AgentName) -> Result<(), Refusal> {
        self.floor.check_room(agent)
    }

    fn consent(&self, agent: &AgentName, action: &Action) -> Consent {
        let mode = self.agents.read().get(agent).map(|listed| listed.mode).unwrap_or_default();
        let question = PolicyQuestion { agent, mode, action };
        let consent = catch_unwind(AssertUnwindSafe(|| (self.policy)(&question))).unwrap_or_else(|panic| {
            tracing::error!(%agent, %action, panic = panic_text(&*panic), "the approval policy panicked; it is denied");
            Consent::Deny
        });
        if mode.is_analysis_only() && consent == Consent::Auto && &*action.action != "handoff" {
            tracing::info!(%agent, %action, "approved by itself: the agent only analyses");
        }
        consent
    }

    fn start(&self, turn: ReadyTurn) {
        self.floor.start(turn);
    }

    fn abort(&self, turn: TurnId, agent: &AgentName) {
        self.floor.stop_turn(turn, agent, StopReason::Cancelled);
    }

    fn request_approval(&self, envelope: &Envelope) {
        self.decider.desk.request(envelope);
    }

    fn withdraw_approval(&self, approval: ApprovalId) {
        self.decider.desk.withdraw(approval);
    }

    fn journaled(&self, run: &Run, sequence: u64, event: &RunEvent) {
        self.hub.publish(run.id(), sequence, event);
        if let RunEvent::Delegated { turn, ordinal, order, verdict, .. } = event {
            self.requested(run, RequestId { turn: run.turn_id(*turn), ordinal: *ordinal }, order, verdict);
        }
    }

    fn replied(&self, run: &Run, request: RequestId) {
        let Some(turn) = run.turn(request.turn.number) else { return };
        let Some(Record::Delegation { order, reply: Some(Ok(answer)), .. }) = turn.record(request.ordinal) else {
            return;
        };
        let is_complete = answer.outcome.is_finished();
        let from_agent = AgentName::new(&order.to).unwrap_or_else(|_| turn.agent().clone());
        self.post(StatusUpdate {
            request_id: request,
            from_agent,
            to_agent: turn.agent().clone(),
            status: if is_complete { Status::Complete } else { Status::Fail },
            detail: match &answer.outcome {
                Outcome::Finished => "".into(),
                outcome => outcome.to_string().into(),
            },
            body: answer.output.clone(),
            at: run.last_at(),
        });
    }

    fn ended(&self, run: RunId) {
        self.hub.ended(run);
    }
}
