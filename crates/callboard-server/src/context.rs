//! What handlers use.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use callboard::Callboard;
use callboard::messages::{Envelope, Timestamp};
use futures::FutureExt as _;
use tokio::sync::watch;
use uuid::Uuid;

use crate::agent_files::AgentFiles;
use crate::arriving::Arriving;
use crate::audit::Audit;
use crate::dashboard::state::Dashboard;
use crate::decisions::receiver::Receiver;
use crate::figures::{Answered, Measured};
use crate::inbox::{Changed, Live, Present, Reading, Sources};
use crate::index::Index;
use crate::knowledge::base::FactsCell;
use crate::limits::HttpLimits;
use crate::origins::Origins;
use crate::proxies::Network;
use crate::rates::Rates;
use crate::schedules::Firings;
use crate::streams::Streams;
use crate::tokens::{Caller, Scope, Tokens};

/// The board and the settings of the server.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) board: Callboard,
    pub(crate) tokens: Tokens,
    pub(crate) origins: Origins,
    pub(crate) streams: Streams,
    pub(crate) arriving: Arriving,
    pub(crate) index: Index,
    pub(crate) reading: Reading,
    /// What actions would change.
    pub(crate) changed: Changed,
    pub(crate) live: Live,
    pub(crate) rates: Rates,
    pub(crate) firings: Firings,
    pub(crate) answered: Answered,
    pub(crate) measured: Option<Measured>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) limits: HttpLimits,
    pub(crate) proxies: Arc<[Network]>,
    /// The people, by the names of their tokens.
    pub(crate) people: Arc<BTreeMap<String, Arc<str>>>,
    /// Where the agents are from, if the server was given it.
    pub(crate) files: Option<watch::Receiver<AgentFiles>>,
    /// The base of facts, if the board has its agents.
    pub(crate) facts: Arc<FactsCell>,
    /// What takes the decisions that are sent back by webhooks.
    #[allow(dead_code, reason = "the room decisions reads it, where its feature is on")]
    pub(crate) receiver: Receiver,
    /// The pages for people, if the server has them.
    pub(crate) dashboard: Option<Arc<Dashboard>>,
    /// Why decisions are refused, if they are.
    pub(crate) refuses_decisions: fn() -> Option<String>,
    /// Whether event streams are to end.
    pub(crate) is_stopping: watch::Sender<bool>,
}

impl Context {
    /// Where the agents are from, as far as the server was given it.
    pub(crate) fn agent_files(&self) -> AgentFiles {
        self.files.as_ref().map(|files| files.borrow().clone()).unwrap_or_default()
    }

    /// Where the items of the inbox are gathered from.
    pub(crate) fn inbox_sources(&self) -> Sources {
        Sources { board: self.board.clone(), files: self.files.clone() }
    }

    pub(crate) fn new(board: Callboard, tokens: Tokens, origins: Origins) -> Self {
        let (streams, arriving, index, rates, firings, answered, measured, audit, limits, proxies, people) =
            Default::default();
        Self {
            board,
            tokens,
            origins,
            streams,
            arriving,
            index,
            reading: Reading::default(),
            changed: Changed::default(),
            live: Live::default(),
            rates,
            firings,
            answered,
            measured,
            audit,
            limits,
            proxies,
            people,
            files: None,
            facts: Arc::default(),
            receiver: Receiver::default(),
            dashboard: None,
            refuses_decisions: || None,
            is_stopping: watch::Sender::new(false),
        }
    }

    /// The text that an action would change, for a caller who may decide about it.
    pub(crate) async fn changed_by(&self, caller: &Caller, envelope: &Envelope) -> Present {
        if !caller.scopes.contains(&Scope::Approve) {
            return None;
        }
        self.changed.of(envelope, self.now()).await
    }

    /// The same with these origins, and with event streams that end by themselves.
    pub(crate) fn renewed(&self, origins: Origins) -> Self {
        Self { origins, is_stopping: watch::Sender::new(false), ..self.clone() }
    }

    /// Whether a token is the caller's or another one of their person, by what the server knows and by the owners of both tokens, also
    /// of one that was revoked. Names of people and of tokens are not compared with each other.
    pub(crate) fn is_of_person(&self, token: &str, caller: &Caller) -> bool {
        let owner = self.tokens.owner_of(token);
        let theirs = [self.people.get(token).map(|person| &**person), owner.as_deref()];
        let own = [caller.person.as_deref(), caller.terms.owner.as_deref()];
        token == &*caller.name || theirs.iter().flatten().any(|name| own.contains(&Some(name)))
    }

    /// Returns once the token of a caller, or the session in a browser, has ended.
    pub(crate) fn ended(&self, caller: Caller) -> impl Future<Output = ()> + Send + use<> {
        let (tokens, dashboard) = (self.tokens.clone(), self.dashboard.clone());
        async move {
            let session = async {
                match dashboard.as_deref().zip(caller.session.as_ref()) {
                    Some((dashboard, session)) => dashboard.ended(session).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = tokens.ended(&caller) => {}
                () = session => {}
            }
        }
    }

    /// Whether the unfinished runs that the board found at its start have been read.
    pub(crate) fn has_recovered(&self) -> bool {
        self.board.recovered().now_or_never().is_some()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.tokens.now()
    }

    /// A new id.
    pub(crate) fn id(&self) -> Uuid {
        self.tokens.id()
    }
}

/// The context, as handlers extract it.
pub(crate) type Shared = State<Arc<Context>>;
