//! The delegation router: who takes a delegation, and where it stands. It is also what run supervisors dispatch through.

mod actor;
mod derive;
mod directory;
mod history;
mod ledger;
mod posts;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use callboard_text::look_alike;
use parking_lot::{Mutex, RwLock};
use tokio::sync::broadcast;

use crate::env::Env;
use crate::messages::state::StateRules;
use crate::messages::{
    Action, ActionKind, AgentName, Announcement, ApprovalId, Authority, Consent, Envelope, Json, KeptAgent, Presence,
    Refusal, RequestId, RunEvent, RunId, TurnId,
};
use crate::storage::{Journal, StorageError};
use crate::supervision::panic_text;
use crate::supervision::runs::dispatch::{Dispatch, ReadyTurn};
use crate::supervision::runs::rules::directory::AgentDirectory;
use crate::supervision::runs::run::Run;
use crate::supervision::runs::step::Answered;
use crate::supervision::tree::ChildRef;

pub(crate) use actor::RouterActor;
pub(crate) use ledger::LedgerLimits;
pub use ledger::{InboxMessage, Standing};
pub(crate) use posts::{Description, Herald};

use directory::Directory;
use history::Unread;
use ledger::{Ledger, Placed};
use posts::{Post, Posts};

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
    /// Who wants to do it. A policy is asked for an agent that others made and for each of those, and the strictest answer
    /// counts.
    pub agent: &'a AgentName,
    /// Its mode.
    pub mode: Mode,
    /// Whether it has tools with effects outside.
    pub has_effects: bool,
    /// What kind of action it is.
    pub kind: ActionKind,
    /// What it wants to do.
    pub action: &'a Action,
    /// It wants people to be asked each time.
    pub each_time: bool,
}

/// The policy that a board has by default: handoffs and delegations go ahead, agents that only analyse are approved unless
/// people are to be asked each time, and everything else asks.
#[must_use]
pub fn default_policy(question: &PolicyQuestion<'_>) -> Consent {
    let only_analyses = question.mode.is_analysis_only() && !question.has_effects && !question.each_time;
    match question.kind {
        ActionKind::Handoff | ActionKind::Delegation => Consent::Auto,
        ActionKind::Requested if only_analyses => Consent::Auto,
        ActionKind::Requested => Consent::Ask,
    }
}

/// Who there is, and what is posted about their delegations. A restart of its actor leaves it as it is.
pub(crate) struct Router {
    /// Agents that this board hosts.
    hosted: RwLock<BTreeMap<AgentName, Listed>>,
    /// Agents as they announce themselves.
    directory: RwLock<Directory>,
    presence: broadcast::Sender<Presence>,
    pub(crate) floor: Arc<Floor>,
    pub(crate) hub: Arc<Hub>,
    meters: Meters,
    decider: Decider,
    policy: ApprovalPolicy,
    env: Env,
    journal: Journal,
    rules: StateRules,
    /// Not yet entered.
    posts: Arc<Posts>,
    ledger: Mutex<Ledger>,
    limits: LedgerLimits,
    /// `None` until somebody looks at an inbox.
    unread: tokio::sync::Mutex<Option<Unread>>,
    /// Turns that a planned fault has kept on their way to their agents, and that are still wanted there.
    delayed: Arc<Mutex<BTreeSet<TurnId>>>,
}

/// An agent that this board hosts.
#[derive(Clone)]
pub(crate) struct Listed {
    pub(crate) has_effects: bool,
    pub(crate) mode: Mode,
    pub(crate) actor: ChildRef<AgentMsg>,
}

/// What a router is made of.
pub(crate) struct RouterParts {
    pub(crate) env: Env,
    pub(crate) floor: Arc<Floor>,
    pub(crate) decider: Decider,
    pub(crate) policy: ApprovalPolicy,
    pub(crate) journal: Journal,
    pub(crate) rules: StateRules,
    pub(crate) limits: LedgerLimits,
    /// How many announcements a slow watcher may lag behind.
    pub(crate) watch_buffer: usize,
}

impl Router {
    pub(crate) fn new(parts: RouterParts) -> Self {
        let RouterParts { env, floor, decider, policy, journal, rules, limits, watch_buffer } = parts;
        Self {
            hosted: RwLock::default(),
            directory: RwLock::default(),
            presence: broadcast::Sender::new(watch_buffer.max(1)),
            hub: Arc::clone(&floor.hub),
            floor,
            meters: Meters::default(),
            decider,
            policy,
            env,
            journal,
            rules,
            posts: Arc::default(),
            ledger: Mutex::new(Ledger::new(limits)),
            limits,
            unread: tokio::sync::Mutex::default(),
            delayed: Arc::default(),
        }
    }

    pub(crate) fn list(&self, name: &AgentName, spec: &AgentSpec, actor: ChildRef<AgentMsg>) {
        self.hosted.write().insert(name.clone(), Listed { mode: spec.mode, has_effects: spec.has_effects, actor });
    }

    pub(crate) fn unlist(&self, name: &AgentName) {
        self.hosted.write().remove(name);
    }

    pub(crate) fn listed(&self, name: &str) -> Option<Listed> {
        self.hosted.read().get(name).cloned()
    }

    pub(crate) fn names(&self) -> Vec<AgentName> {
        self.hosted.read().keys().cloned().collect()
    }

    /// Who announces an agent.
    pub(crate) fn herald(&self, agent: &AgentName, description: Description) -> Herald {
        let (posts, env) = (Arc::clone(&self.posts), self.env.clone());
        Herald { agent: agent.clone(), description, posts, env }
    }

    /// What the agents that are here have announced, by name.
    pub(crate) fn present(&self) -> Vec<Announcement> {
        self.enter_posts();
        self.directory.read().present()
    }

    /// Announcements and withdrawals from now on.
    pub(crate) fn watch_presence(&self) -> broadcast::Receiver<Presence> {
        self.presence.subscribe()
    }

    /// The newest messages of an agent's inbox, oldest first, also those of earlier processes.
    pub(crate) async fn inbox(&self, agent: &str) -> Result<Vec<InboxMessage>, StorageError> {
        self.recall(agent).await?;
        self.enter_posts();
        Ok(self.ledger.lock().inbox(agent))
    }

    /// The status of a delegation.
    pub(crate) async fn standing(&self, request: RequestId) -> Result<Option<Standing>, StorageError> {
        self.enter_posts();
        let standing = self.ledger.lock().standing(request, self.env.now().wall);
        if standing.is_some() { Ok(standing) } else { self.recalled(request).await }
    }

    fn post(&self, message: Placed) {
        match self.env.fault_at("inbox.dispatch", message.message.owner().as_str()) {
            None => self.posts.add(Post::Message(message)),
            Some(fault) => {
                let posts = Arc::clone(&self.posts);
                fault.hand_over(message, move |message| posts.add(Post::Message(message)));
            }
        }
    }

    /// Enters what was posted, in order: the ledger is locked before the posts are taken.
    pub(crate) fn enter_posts(&self) {
        let mut ledger = self.ledger.lock();
        for post in self.posts.take() {
            match post {
                Post::Message(placed) => ledger.enter(placed),
                Post::Presence(presence) => {
                    self.directory.write().enter(&presence);
                    // Nobody has to watch.
                    let _ = self.presence.send(presence);
                }
            }
        }
    }
}

impl Router {
    /// The agent of this name, or the name alone if there is none; `None` if it can be nobody's.
    fn named(&self, name: &str) -> Option<AgentName> {
        let known = self.directory.read().named(name).cloned();
        known.or_else(|| AgentName::new(name).ok())
    }
}

impl AgentDirectory for Router {
    fn resolve(&self, target: &str) -> Result<AgentName, Refusal> {
        let directory = self.directory.read();
        if let Some(name) = directory.named(target) {
            return self.floor.load(name).map(|_| name.clone());
        }
        if let Some(kept) = self.floor.kept.named(target)
            && let Some(host) = directory.named(kept.host())
        {
            return self.floor.load(host).map(|_| kept);
        }
        let pick = |candidates: &mut dyn Iterator<Item = &AgentName>| {
            let loads = candidates.map(|name| self.floor.load(name).map(|load| (load, name.clone())));
            loads.reduce(|best, next| match (best, next) {
                (Ok(best), Ok(next)) => Ok(best.min(next)),
                (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
                (Err(first), Err(_)) => Err(first),
            })
        };
        let picked = pick(&mut directory.of_role(target)).or_else(|| pick(&mut directory.capable_of(target)));
        match picked {
            Some(picked) => picked.map(|(_, name)| name),
            None => Err(Refusal::UnknownAgent { target: target.to_owned(), nearest: directory.nearest(target) }),
        }
    }

    fn look_alike(&self, name: &str) -> Option<AgentName> {
        let hosted = self.hosted.read();
        look_alike(name, hosted.keys().map(AgentName::as_str)).and_then(|other| AgentName::new(other).ok())
    }

    fn check_room(&self, agent: &AgentName) -> Result<(), Refusal> {
        self.floor.check_room(agent)
    }

    fn authority(&self, agent: &str) -> Authority {
        self.floor.authority(agent)
    }

    fn check_made(&self, host: &str, drafts: &[Json]) -> Result<(), String> {
        self.floor.check_made(host, drafts)
    }

    fn consent(&self, agent: &AgentName, kind: ActionKind, action: &Action, each_time: bool) -> Consent {
        let known = self.hosted.read().get(agent.host()).map(|listed| (listed.mode, listed.has_effects));
        let (mode, has_effects) = known.unwrap_or_default();
        // What an agent may not do, nobody does that it has made.
        let makers = agent.makers().filter_map(|maker| AgentName::new(maker).ok());
        let ask =
            |agent: &AgentName| (self.policy)(&PolicyQuestion { agent, mode, has_effects, kind, action, each_time });
        let agents = || std::iter::once(agent.clone()).chain(makers);
        let strictest = || agents().map(|agent| ask(&agent)).fold(Consent::Auto, Consent::strictest);
        let consent = catch_unwind(AssertUnwindSafe(strictest)).unwrap_or_else(|panic| {
            tracing::error!(%agent, %action, panic = panic_text(&*panic), "the approval policy panicked; it is denied");
            Consent::Deny
        });
        if mode.is_analysis_only() && consent == Consent::Auto && kind == ActionKind::Requested {
            tracing::info!(%agent, %action, "approved by itself: the agent only analyses");
        }
        consent
    }

    fn kept(&self, agent: &AgentName) -> Option<KeptAgent> {
        self.floor.kept.get(agent)
    }
}

impl Dispatch for Router {
    fn start(&self, mut turn: ReadyTurn) {
        // A run knows what its own agents are; what was kept is known to the board.
        if turn.made.as_deref().is_some_and(<[Json]>::is_empty)
            && let Some(kept) = self.kept(&turn.agent)
        {
            turn.made = Some(kept.drafts.into());
        }
        match self.env.fault_at("turn.dispatch", turn.agent.as_str()) {
            None => self.floor.start(turn),
            Some(fault) => {
                self.delayed.lock().insert(turn.id);
                let (floor, delayed) = (Arc::clone(&self.floor), Arc::clone(&self.delayed));
                fault.hand_over(turn, move |turn| {
                    if delayed.lock().contains(&turn.id) {
                        floor.start(turn);
                    }
                });
            }
        }
    }

    fn abort(&self, turn: TurnId, agent: &AgentName) {
        self.delayed.lock().remove(&turn);
        self.floor.stop_turn(turn, agent, StopReason::Cancelled);
    }

    fn has_reported(&self, turn: TurnId, agent: &AgentName) -> bool {
        self.floor.has_reported(turn, agent)
    }

    fn abort_all_but(&self, run: RunId, open: &[TurnId]) {
        let is_over = |turn: &TurnId| turn.run == run && !open.contains(turn);
        self.delayed.lock().retain(|turn| !is_over(turn));
        self.floor.stop_turns(is_over);
    }

    fn request_approval(&self, envelope: &Envelope) {
        self.decider.request(envelope);
    }

    fn withdraw_approval(&self, approval: ApprovalId) {
        self.decider.withdraw(approval);
    }

    fn journaled(&self, run: &Run, sequence: u64, event: &RunEvent) {
        self.meters.count(run, event);
        self.hub.publish((run.id(), run.submission().task.plan.as_deref()), sequence, event);
        derive::of_event(run, sequence, event).into_iter().for_each(|placed| self.post(placed));
    }

    fn answered(&self, run: &Run, answered: &Answered) {
        self.post(derive::of_answer(run, answered, |name| self.named(name)));
    }

    fn ended(&self, run: &Run) {
        self.meters.ended(run);
        self.hub.ended(run.id());
    }
}
