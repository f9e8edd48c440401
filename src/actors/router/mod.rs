//! The delegation router: who takes a delegation, and where it stands. It is also what run supervisors dispatch through.

mod actor;
mod books;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};

use crate::env::Env;
use crate::messages::names::nearest;
use crate::messages::{
    Action, AgentName, ApprovalId, Consent, DelegationRequest, Envelope, Json, Order, Outcome, Refusal, RequestId,
    RunEvent, RunId, Status, StatusUpdate, Timestamp, TurnId, Verdict,
};
use crate::supervision::panic_text;
use crate::supervision::runs::dispatch::{Dispatch, ReadyTurn};
use crate::supervision::runs::run::Run;
use crate::supervision::runs::step::Answered;
use crate::supervision::tree::ChildRef;

pub(crate) use actor::{Posted, RouterActor};
pub use books::{InboxMessage, Standing};

use books::Books;

use super::agent::{AgentSpec, Mode};
use super::agent_actor::AgentMsg;
use super::approvals::Decider;
use super::events::Hub;
use super::floor::Floor;
use super::meters::Meters;
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

/// Who there is, and what is posted about their delegations. A restart of its actor leaves it as it is.
pub(crate) struct Router {
    agents: RwLock<BTreeMap<AgentName, Listed>>,
    pub(crate) floor: Arc<Floor>,
    pub(crate) hub: Hub,
    meters: Meters,
    decider: Decider,
    policy: ApprovalPolicy,
    env: Env,
    /// Not yet entered; the actor is woken for the first.
    posts: Mutex<Vec<InboxMessage>>,
    books: Mutex<Books>,
    actor: OnceLock<ChildRef<Posted>>,
}

/// An agent as the router knows it.
#[derive(Clone)]
pub(crate) struct Listed {
    pub(crate) role: Option<Arc<str>>,
    pub(crate) capabilities: Vec<Arc<str>>,
    pub(crate) mode: Mode,
    pub(crate) actor: ChildRef<AgentMsg>,
}

impl Router {
    pub(crate) fn new(env: Env, floor: Arc<Floor>, decider: Decider, policy: ApprovalPolicy) -> Self {
        Self {
            agents: RwLock::default(),
            floor,
            hub: Hub::default(),
            meters: Meters::default(),
            decider,
            policy,
            env,
            posts: Mutex::default(),
            books: Mutex::default(),
            actor: OnceLock::new(),
        }
    }

    /// Where the actor is, once.
    pub(crate) fn set_actor(&self, actor: ChildRef<Posted>) {
        let _ = self.actor.set(actor);
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
        self.enter_posts();
        self.books.lock().inbox(agent)
    }

    /// Where a delegation stands, as long as an inbox remembers it.
    pub(crate) fn standing(&self, request: RequestId) -> Option<Standing> {
        self.enter_posts();
        self.books.lock().standing(request, self.env.now().wall)
    }

    fn post(&self, message: InboxMessage) {
        let is_first = {
            let mut posts = self.posts.lock();
            posts.push(message);
            posts.len() == 1
        };
        if is_first && let Some(actor) = self.actor.get() {
            // An actor that is down looks for posts when it is back.
            let _ = actor.cast(Posted);
        }
    }

    /// Enters what was posted, in order: the books are locked before the posts are taken.
    fn enter_posts(&self) {
        let mut books = self.books.lock();
        for message in std::mem::take(&mut *self.posts.lock()) {
            books.enter(message);
        }
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
                self.post(InboxMessage::Request(request));
                (update.status, update.from_agent) = (Status::Ack, to_agent);
            }
            Verdict::Refused(refusal) => update.detail = refusal.to_string().into(),
            Verdict::Nothing | Verdict::Parked(_) => return,
        }
        self.post(InboxMessage::Status(update));
    }
}

impl Router {
    /// A turn reports progress; whoever delegated to it is told.
    fn noticed(&self, run: &Run, turn: u32, text: &Arc<str>, at: Timestamp) {
        let Some(turn) = run.turn(turn) else { return };
        let Some((request_id, asker)) = run.delegation_of(turn) else { return };
        self.post(InboxMessage::Status(StatusUpdate {
            request_id,
            from_agent: turn.agent().clone(),
            to_agent: asker.clone(),
            status: Status::Notice,
            detail: Arc::clone(text),
            body: Json::null(),
            at,
        }));
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

    fn abort_all_but(&self, run: RunId, open: &[TurnId]) {
        self.floor.stop_turns(|turn| turn.run == run && !open.contains(turn));
    }

    fn request_approval(&self, envelope: &Envelope) {
        self.decider.desk.request(envelope);
    }

    fn withdraw_approval(&self, approval: ApprovalId) {
        self.decider.desk.withdraw(approval);
    }

    fn journaled(&self, run: &Run, sequence: u64, event: &RunEvent) {
        self.meters.count(run, event);
        self.hub.publish(run.id(), sequence, event);
        match event {
            RunEvent::Delegated { turn, ordinal, order, verdict, .. } => {
                self.requested(run, RequestId { turn: run.turn_id(*turn), ordinal: *ordinal }, order, verdict);
            }
            RunEvent::Noticed { turn, text, at } => self.noticed(run, *turn, text, *at),
            _ => {}
        }
    }

    fn answered(&self, run: &Run, answered: &Answered) {
        let Answered { turn, ordinal, asker, to, answer } = answered;
        let is_complete = answer.outcome.is_finished();
        self.post(InboxMessage::Status(StatusUpdate {
            request_id: RequestId { turn: run.turn_id(*turn), ordinal: *ordinal },
            from_agent: AgentName::new(to).unwrap_or_else(|_| asker.clone()),
            to_agent: asker.clone(),
            status: if is_complete { Status::Complete } else { Status::Fail },
            detail: match &answer.outcome {
                Outcome::Finished => "".into(),
                outcome => outcome.to_string().into(),
            },
            body: answer.output.clone(),
            at: run.last_at(),
        }));
    }

    fn ended(&self, run: &Run) {
        self.meters.ended(run);
        self.hub.ended(run.id());
    }
}
