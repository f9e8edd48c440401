//! The delegation router: resolves the targets of delegations, and records their statuses. Run supervisors dispatch through it.

// - `hosted`, `directory`, `policy`: who is known by name, who has announced what, and what needs consent. `dispatch`: what run supervisors have carried out.
// - `described`, `written`: what other boards are to know of the agents.
// - `ledger`: statuses and inboxes. `derive`, `history`: the same from the events of runs, and from their journals.
// - `outbox`, `actor`: what waits to be entered, outside of the actor, and the actor that enters it.
mod actor;
mod derive;
mod described;
mod directory;
mod dispatch;
mod history;
mod hosted;
mod ledger;
mod outbox;
mod policy;
mod written;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::sync::broadcast;

use crate::env::Env;
use crate::messages::state::StateRules;
use crate::messages::{
    Action, ActionKind, AgentName, Authority, Consent, Json, KeptAgent, Presence, Refusal, RequestId, RunId, TurnId,
};
use crate::storage::{Journal, StorageError};
use crate::supervision::panic_text;
use crate::supervision::runs::rules::directory::AgentDirectory;
use crate::supervision::tree::ChildRef;

pub(crate) use actor::RouterActor;
pub(crate) use ledger::LedgerLimits;
pub use ledger::{DelegationStatus, InboxMessage};
pub(crate) use outbox::PresenceHandle;
pub(crate) use policy::ApprovalPolicy;
pub use policy::PolicyQuestion;
use policy::allows_all_by_default;

use directory::{Announced, Directory};
use history::Recalled;
use hosted::Hosted;
use ledger::{DelegationLedger, Placed};
use outbox::{Entry, Outbox};
use written::Written;

use super::agent::{AgentMsg, AgentSpec, Description, Mode, Source};
use super::approvals::Decider;
use super::events::Hub;
use super::metrics::Counters;
use super::scheduler::Scheduler;

/// The agents of the board, and the statuses of delegations. A restart of the router's actor does not change it.
pub(crate) struct Router {
    /// Agents that are known by name.
    hosted: RwLock<Hosted>,
    /// The agents of other boards that live and are not being shut down.
    living_elsewhere: RwLock<BTreeSet<AgentName>>,
    /// The announced agents.
    directory: RwLock<Directory>,
    /// What was written last for other boards.
    written: Mutex<Option<Written>>,
    presence: broadcast::Sender<Presence>,
    /// Sends the runs that have begun to wait for a person, or were read back and may wait for one.
    asked: broadcast::Sender<RunId>,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) hub: Arc<Hub>,
    counters: Counters,
    decider: Decider,
    policy: Option<ApprovalPolicy>,
    env: Env,
    journal: Journal,
    rules: StateRules,
    /// Entries that are not applied yet.
    outbox: Arc<Outbox>,
    ledger: Mutex<DelegationLedger>,
    limits: LedgerLimits,
    /// Which inboxes were read from the journals.
    recalled: tokio::sync::Mutex<Recalled>,
    /// Turns whose delivery a planned fault delays, and which their agents still wait for.
    delayed: Arc<Mutex<BTreeSet<TurnId>>>,
}

/// An agent that this board hosts.
#[derive(Clone)]
pub(crate) struct HostedAgent {
    pub(crate) has_effects: bool,
    pub(crate) mode: Mode,
    pub(crate) authority: Authority,
    /// Its actor, if it has one.
    pub(crate) actor: Option<ChildRef<AgentMsg>>,
    /// Another board hosts it: this one has its turns taken there.
    pub(crate) is_elsewhere: bool,
}

/// The parts of a router.
pub(crate) struct RouterParts {
    pub(crate) env: Env,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) decider: Decider,
    /// `None` is the policy that a board has by default.
    pub(crate) policy: Option<ApprovalPolicy>,
    pub(crate) journal: Journal,
    pub(crate) rules: StateRules,
    pub(crate) limits: LedgerLimits,
    /// The number of announcements by which a slow watcher may lag behind.
    pub(crate) watch_buffer: usize,
}

impl Router {
    /// Receives the runs that begin to wait for a person from now on, and those that are read back and may wait for one.
    pub(crate) fn asked(&self) -> broadcast::Receiver<RunId> {
        self.asked.subscribe()
    }

    pub(crate) fn new(parts: RouterParts) -> Self {
        let RouterParts { env, scheduler, decider, policy, journal, rules, limits, watch_buffer } = parts;
        Self {
            hosted: RwLock::default(),
            living_elsewhere: RwLock::default(),
            directory: RwLock::default(),
            written: Mutex::default(),
            presence: broadcast::Sender::new(watch_buffer.max(1)),
            asked: broadcast::Sender::new(watch_buffer.max(1)),
            hub: Arc::clone(scheduler.hub()),
            scheduler,
            counters: Counters::described(),
            decider,
            policy,
            env,
            journal,
            rules,
            outbox: Arc::default(),
            ledger: Mutex::new(DelegationLedger::new(limits)),
            limits,
            recalled: tokio::sync::Mutex::default(),
            delayed: Arc::default(),
        }
    }

    /// Lists an agent, of which `source` is made.
    pub(crate) fn list(&self, name: &AgentName, spec: &AgentSpec, source: &Source, actor: Option<ChildRef<AgentMsg>>) {
        let AgentSpec { mode, has_effects, is_elsewhere, .. } = *spec;
        let authority = source.config.authority;
        self.hosted.write().insert(name.clone(), HostedAgent { mode, has_effects, authority, actor, is_elsewhere });
    }

    /// Lists dormant agents of this board that are alike. The actors of those that are listed already stay.
    pub(crate) fn list_dormant(&self, names: &[AgentName], source: &Source) {
        let mut hosted = self.hosted.write();
        for name in names {
            hosted.insert_dormant(name, source);
        }
    }

    /// Announces dormant agents, which have no actors that do so.
    pub(crate) fn announce_dormant(&self, names: &[AgentName], source: &Source) {
        // An agent of the name may have withdrawn.
        self.drain_outbox();
        let at = self.env.now().wall;
        let mut ledger = self.ledger.lock();
        let mut directory = self.directory.write();
        for name in names {
            let instance = directory.announced(name.as_str()).map_or(0, |known| known.instance);
            let announced =
                Announced { description: Arc::clone(&source.description), instance, is_available: true, at };
            directory.enter(name, &announced);
            ledger.acknowledge(name, at);
            self.publish(name, &announced);
        }
    }

    /// Sets the actor of an agent that is listed, or that it has none.
    pub(crate) fn set_actor(&self, name: &AgentName, actor: Option<ChildRef<AgentMsg>>) {
        self.hosted.write().set_actor(name, actor);
    }

    /// Withdraws the announcement of an agent whose actor has not done so, because it had none.
    pub(crate) fn withdraw(&self, name: &AgentName) {
        self.drain_outbox();
        let mut directory = self.directory.write();
        let Some(known) = directory.announced(name.as_str()).filter(|known| known.is_available) else { return };
        let announced = Announced { is_available: false, at: self.env.now().wall, ..known.clone() };
        directory.enter(name, &announced);
        self.publish(name, &announced);
    }

    /// Withdraws the announcements of all agents that have not withdrawn: the board has ended.
    pub(crate) fn withdraw_all(&self) {
        self.drain_outbox();
        let at = self.env.now().wall;
        self.directory.write().withdraw_all(at, |agent, announced| self.publish(agent, announced));
    }

    fn publish(&self, agent: &AgentName, announced: &Announced) {
        if self.presence.receiver_count() > 0 {
            let _ = self.presence.send(announced.presence(agent));
        }
    }

    pub(crate) fn unlist(&self, name: &AgentName) {
        self.hosted.write().remove(name);
    }

    pub(crate) fn listed(&self, name: &str) -> Option<HostedAgent> {
        self.hosted.read().get(name).cloned()
    }

    /// The number of agents that this board hosts.
    pub(crate) fn hosted_here(&self) -> usize {
        self.hosted.read().here()
    }

    /// Notes which agents the other boards have that live and are not being shut down.
    pub(crate) fn know_living(&self, agents: BTreeSet<AgentName>) {
        *self.living_elsewhere.write() = agents;
    }

    pub(crate) fn names(&self) -> Vec<AgentName> {
        self.names_where(|agent| !agent.is_elsewhere)
    }

    /// The agents of other boards that are known here.
    pub(crate) fn names_elsewhere(&self) -> Vec<AgentName> {
        self.names_where(|agent| agent.is_elsewhere)
    }

    fn names_where(&self, is_wanted: impl Fn(&HostedAgent) -> bool) -> Vec<AgentName> {
        let hosted = self.hosted.read();
        hosted.iter().filter(|(_, agent)| is_wanted(agent)).map(|(name, _)| name.clone()).collect()
    }

    /// Whether this board hosts an agent that is there.
    pub(super) fn has_present(&self, agent: &str) -> bool {
        let is_here = self.hosted.read().get(agent).is_some_and(|hosted| !hosted.is_elsewhere);
        is_here && self.directory.read().is_present(agent)
    }

    /// Whether another board hosts the agent, and this one does not.
    pub(crate) fn is_elsewhere(&self, agent: &AgentName) -> bool {
        self.hosted.read().get(agent.host()).is_some_and(|hosted| hosted.is_elsewhere)
    }

    /// The handle that announces and withdraws an agent.
    pub(crate) fn presence_handle(&self, agent: &AgentName, description: Arc<Description>) -> PresenceHandle {
        let (outbox, env) = (Arc::clone(&self.outbox), self.env.clone());
        PresenceHandle { agent: agent.clone(), description, outbox, env }
    }

    /// The announcements of present agents, by name.
    pub(crate) fn present(&self) -> Vec<Presence> {
        self.drain_outbox();
        self.directory.read().present()
    }

    /// Announcements and withdrawals from now on.
    pub(crate) fn watch_presence(&self) -> broadcast::Receiver<Presence> {
        self.presence.subscribe()
    }

    /// The newest messages of an agent's inbox, oldest first, also those of earlier processes.
    pub(crate) async fn inbox(&self, agent: &str) -> Result<Vec<InboxMessage>, StorageError> {
        self.recall(agent).await?;
        self.drain_outbox();
        Ok(self.ledger.lock().inbox(agent))
    }

    /// The status of a delegation; `None` if there is none, or nobody has acknowledged it yet.
    pub(crate) async fn status(&self, request: RequestId) -> Result<Option<DelegationStatus>, StorageError> {
        self.drain_outbox();
        let status = self.ledger.lock().status(request, self.env.now().wall);
        if status.is_some() { Ok(status) } else { self.recalled(request).await }
    }

    /// Applies the entries of the outbox, in order: the ledger is locked before the outbox is emptied.
    pub(crate) fn drain_outbox(&self) {
        let mut ledger = self.ledger.lock();
        for entry in self.outbox.take() {
            match entry {
                Entry::Message(placed) => self.enter(&mut ledger, placed),
                Entry::Continued(run) => ledger.reopen(RequestId::of_run(run)),
                Entry::Presence(agent, announced) => {
                    self.directory.write().enter(&agent, &announced);
                    if announced.is_available {
                        ledger.acknowledge(&agent, announced.at);
                    }
                    self.publish(&agent, &announced);
                }
            }
        }
    }
}

impl Router {
    /// Enters a message. An acknowledgement waits until the actor of its agent has announced that it is there.
    fn enter(&self, ledger: &mut DelegationLedger, placed: Placed) {
        match placed.acknowledged_by() {
            Some(agent) if !self.directory.read().is_present(agent.host()) => ledger.hold(placed),
            Some(_) | None => ledger.enter(placed),
        }
    }

    /// The agent of this name, or the name alone if there is none; `None` if it is no valid name.
    fn named(&self, name: &str) -> Option<AgentName> {
        let known = self.directory.read().named(name).cloned();
        known.or_else(|| AgentName::new(name).ok())
    }
}

impl AgentDirectory for Router {
    fn resolve(&self, target: &str) -> Result<AgentName, Refusal> {
        let directory = self.directory.read();
        if let Some(name) = directory.named(target) {
            return self.scheduler.load(name).map(|_| name.clone());
        }
        if let Some(kept) = self.scheduler.kept_agents().named(target)
            && let Some(host) = directory.named(kept.host())
        {
            return self.scheduler.load(host).map(|_| kept);
        }
        let pick = |candidates: &mut dyn Iterator<Item = &AgentName>| {
            // Those of this board come first.
            let loads =
                candidates.map(|name| self.scheduler.load(name).map(|load| ((!self.hosts(name), load), name.clone())));
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

    fn hosts(&self, agent: &AgentName) -> bool {
        self.hosted.read().get(agent.host()).is_some_and(|hosted| !hosted.is_elsewhere)
    }

    fn reaches(&self, agent: &AgentName) -> bool {
        let hosted = self.hosted.read();
        let is_here = hosted.get(agent.host()).map(|found| !found.is_elsewhere);
        is_here.is_some_and(|is_here| is_here || hosted.here() > 0)
    }

    fn reaches_now(&self, agent: &AgentName) -> bool {
        self.hosts(agent) || self.reaches(agent) && self.living_elsewhere.read().contains(agent.host())
    }

    fn look_alike(&self, name: &str) -> Option<AgentName> {
        self.hosted.write().look_alike(name)
    }

    fn check_room(&self, agent: &AgentName) -> Result<(), Refusal> {
        self.scheduler.check_capacity(agent)
    }

    fn acts_through_steps(&self, agent: &AgentName) -> bool {
        self.scheduler.acts_through_steps(agent)
    }

    fn authority(&self, agent: &str) -> Authority {
        self.scheduler.authority(agent)
    }

    fn check_made(&self, host: &str, drafts: &[Json]) -> Result<(), String> {
        self.scheduler.check_dynamic(host, drafts)
    }

    fn consent(&self, agent: &AgentName, kind: ActionKind, action: &Action, each_time: bool) -> Consent {
        let known = self.hosted.read().get(agent.host()).map(|listed| (listed.mode, listed.has_effects));
        let (mode, has_effects) = known.unwrap_or_default();
        // What an agent may not do, its dynamic agents may not do either.
        let makers = agent.makers().filter_map(|maker| AgentName::new(maker).ok());
        let ask = |agent: &AgentName| {
            let question = PolicyQuestion { agent, mode, has_effects, kind, action, each_time };
            self.policy.as_ref().map_or_else(|| question.default_consent(), |policy| policy(&question))
        };
        let agents = || std::iter::once(agent.clone()).chain(makers);
        let strictest = || agents().map(|agent| ask(&agent)).fold(Consent::Auto, Consent::strictest);
        catch_unwind(AssertUnwindSafe(strictest)).unwrap_or_else(|panic| {
            tracing::error!(%agent, %action, panic = panic_text(&*panic), "the approval policy panicked; it is denied");
            Consent::Deny
        })
    }

    fn allows_all(&self, kind: ActionKind) -> bool {
        self.policy.is_none() && allows_all_by_default(kind)
    }

    fn only_analyses(&self, agent: &AgentName) -> bool {
        self.hosted.read().get(agent.host()).is_some_and(|listed| listed.mode.is_analysis_only())
    }

    fn kept(&self, agent: &AgentName) -> Option<KeptAgent> {
        self.scheduler.kept_agents().get(agent)
    }
}
