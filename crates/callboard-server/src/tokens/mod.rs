//! Tokens: who may do what. Only hashes of their secrets are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callboard::env::Env;
use callboard::messages::{AgentName, Cost, NameError, PerDay, PerRun, Timestamp};
use callboard_text::check_name;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::watch;
use uuid::Uuid;

use crate::problem::{Problem, ProblemCode};

#[cfg(unix)]
mod file;
#[cfg(all(test, unix))]
mod tests;

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// To read delegations, their events, agents, and what waits for people.
    Read,
    /// To delegate tasks, and to cancel them.
    Delegate,
    /// To decide and answer what waits for people.
    Approve,
    /// To read the tree of supervisors. Tasks of a token with this scope are trusted, as those of a person at the terminal.
    Admin,
    /// To query the facts of the granted namespaces.
    #[serde(rename = "knowledge:read")]
    KnowledgeRead,
    /// To submit facts in the granted namespaces, and to see what a change of one would do.
    #[serde(rename = "knowledge:write")]
    KnowledgeWrite,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Delegate, Self::Approve, Self::Admin, Self::KnowledgeRead, Self::KnowledgeWrite];
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Delegate => "delegate",
            Self::Approve => "approve",
            Self::Admin => "admin",
            Self::KnowledgeRead => "knowledge:read",
            Self::KnowledgeWrite => "knowledge:write",
        })
    }
}

/// A token to add.
#[derive(Clone, Debug)]
pub struct TokenSpec {
    name: String,
    scopes: BTreeSet<Scope>,
    lifetime: Option<Duration>,
    terms: Terms,
}

impl TokenSpec {
    /// Describes a token with this name, which decisions are recorded under, and these scopes. It does not expire, and reaches
    /// no namespace of the shared context.
    #[must_use]
    pub fn new(name: &str, scopes: impl IntoIterator<Item = Scope>) -> Self {
        Self { name: name.to_owned(), scopes: scopes.into_iter().collect(), lifetime: None, terms: Terms::default() }
    }

    /// Sets the person who answers for it.
    #[must_use]
    pub fn owner(mut self, person: &str) -> Self {
        self.terms.owner = Some(person.to_owned());
        self
    }

    /// Adds namespaces of the shared context that it reads, with the scope `read`, and writes, with the scope `delegate`; and of facts, with
    /// the scopes for these.
    #[must_use]
    pub fn namespaces<'a>(mut self, namespaces: impl IntoIterator<Item = &'a str>) -> Self {
        self.terms.namespaces.extend(namespaces.into_iter().map(str::to_owned));
        self
    }

    /// Sets how many requests it may send in a minute; more are refused as `overloaded`.
    #[must_use]
    pub fn requests_a_minute(mut self, requests: u32) -> Self {
        self.terms.requests_a_minute = Some(requests);
        self
    }

    /// Sets what its delegations may use in a day: where the board asks for it ([`Tokens::per_day_of`]), more is refused.
    #[must_use]
    pub fn per_day(mut self, limit: PerDay) -> Self {
        self.terms.tokens_per_day = limit.tokens;
        self.terms.nanodollars_per_day = limit.cost.map(|cost| cost.0);
        self
    }

    /// Sets what each run that it begins may use: where the board asks for it ([`Tokens::per_run_of`]), the smaller limit of this and of
    /// the task holds.
    #[must_use]
    pub fn per_run(mut self, limit: PerRun) -> Self {
        self.terms.tokens_per_run = limit.tokens;
        self.terms.nanodollars_per_run = limit.cost.map(|cost| cost.0);
        self.terms.agents_per_run = limit.agents;
        self
    }

    /// Sets after what time, from its addition, it expires.
    #[must_use]
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = Some(lifetime);
        self
    }
}

/// What a token has beside its scopes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Terms {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) owner: Option<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    namespaces: BTreeSet<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests_a_minute: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_per_day: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nanodollars_per_day: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_per_run: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nanodollars_per_run: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agents_per_run: Option<u32>,
}

impl Terms {
    fn per_day(&self) -> PerDay {
        PerDay { tokens: self.tokens_per_day, cost: self.nanodollars_per_day.map(Cost) }
    }

    fn per_run(&self) -> PerRun {
        let cost = self.nanodollars_per_run.map(Cost);
        PerRun { tokens: self.tokens_per_run, cost, agents: self.agents_per_run }
    }
}

/// A token that is known, without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The name, under which decisions are recorded.
    pub name: String,
    /// What it allows.
    pub scopes: BTreeSet<Scope>,
    /// When it was added.
    pub created_at: Timestamp,
    /// From when on it is refused; `None` if it does not expire.
    pub expires_at: Option<Timestamp>,
    /// The person who answers for it.
    pub owner: Option<String>,
    /// The namespaces of the shared context that it reaches.
    pub namespaces: BTreeSet<String>,
    /// How many requests it may send in a minute; `None` if that is not limited.
    pub requests_a_minute: Option<u32>,
    /// What its delegations may use in a day.
    pub per_day: PerDay,
    /// What each run that it begins may use.
    pub per_run: PerRun,
    /// Whether its secret is kept for commands of the same user ([`Tokens::owner_secret`]).
    pub is_owner: bool,
}

/// Why a token was not added or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Its name, that of its owner or that of a namespace breaks a rule of names.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Its name is that of this user's own token, or of this user's MCP clients.
    #[error("{OWNER} and {MCP} are the names of this user's own processes; choose another name")]
    Reserved,
    /// Another token has its name.
    #[error("there is a token {0}; choose another name")]
    Exists(String),
    /// A token that was revoked had its name.
    #[error("a token {0} was revoked, and its runs are still known by that name; choose another name")]
    Used(String),
    /// The system gave no random bytes.
    #[error("the system gave no random bytes for a token: {0}")]
    Random(getrandom::Error),
    /// The tokens are in memory alone, where no command of this user finds a secret.
    #[error("the tokens are not kept in a file")]
    InMemory,
    /// The folder of the tokens, or a file in it, is not this user's alone, or cannot be read or written.
    #[cfg(unix)]
    #[error(transparent)]
    Folder(#[from] callboard_private::FolderError),
    /// The file was written by something else. It is not overwritten.
    #[error("{path} holds no tokens: {why}; correct it, or remove it and add tokens with other names", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// The tokens of a server. A clone is another handle to the same tokens.
#[derive(Clone)]
pub struct Tokens {
    env: Env,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    table: RwLock<Table>,
    /// Counts changes after which event streams look whether their token is still there.
    changes: watch::Sender<u64>,
    /// The secrets of webhooks, where there is no file.
    webhooks: RwLock<BTreeMap<Uuid, String>>,
    #[cfg(unix)]
    file: Option<file::TokenFile>,
}

/// The tokens, and those that there were. A name is never used again: runs, and keys of requests, are known by it.
#[derive(Clone, Default)]
struct Table {
    known: BTreeMap<Arc<str>, Known>,
    /// The tokens that were revoked, with their owners.
    revoked: BTreeMap<Arc<str>, Option<String>>,
}

#[derive(Clone)]
struct Known {
    hash: [u8; 32],
    scopes: Arc<BTreeSet<Scope>>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    is_owner: bool,
    terms: Arc<Terms>,
}

impl Known {
    fn caller(&self, name: &Arc<str>) -> Caller {
        Caller {
            name: Arc::clone(name),
            scopes: Arc::clone(&self.scopes),
            person: None,
            terms: Arc::clone(&self.terms),
            is_owner: self.is_owner,
            hash: Some(self.hash),
            session: None,
        }
    }
}

/// A token, as what outlives a request refers to it. Another token is another one, also if it has the same name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenRef {
    pub(crate) name: Arc<str>,
    /// The first 16 digits of the hash of its secret; `None` for a process of this user, which has no token.
    hash: Option<String>,
}

/// A person, or a token that is nobody's. A person and a token of the same name are two holders.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Holder {
    Person(Arc<str>),
    Token(Arc<str>),
}

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) name: Arc<str>,
    pub(crate) scopes: Arc<BTreeSet<Scope>>,
    /// The person whose token it is, if the server knows them.
    pub(crate) person: Option<Arc<str>>,
    pub(crate) terms: Arc<Terms>,
    /// Whether it is this user, who reaches all namespaces.
    is_owner: bool,
    /// The hash of the token's secret; `None` for a process of this user, which has no token.
    hash: Option<[u8; 32]>,
    /// The hash of the secret of the session, of a person in a browser.
    pub(crate) session: Option<[u8; 32]>,
}

impl Caller {
    /// This user, by a connection that only this user can have.
    pub(crate) fn owner() -> Self {
        Self { is_owner: true, ..Self::process(OWNER, Scope::ALL, []) }
    }

    /// A process of this user, by a connection that only this user can have, with these scopes and
    /// namespaces.
    pub(crate) fn process<'a>(
        name: &str,
        scopes: impl IntoIterator<Item = Scope>,
        namespaces: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let scopes = Arc::new(scopes.into_iter().collect());
        let namespaces = namespaces.into_iter().map(str::to_owned).collect();
        let terms = Arc::new(Terms { namespaces, ..Terms::default() });
        Self { name: name.into(), scopes, person: None, terms, is_owner: false, hash: None, session: None }
    }

    /// In whose name it decides: the person, or the token itself.
    pub(crate) fn by(&self) -> &Arc<str> {
        self.person.as_ref().unwrap_or(&self.name)
    }

    /// Where it decides, as decisions have it.
    pub(crate) fn via(&self) -> &'static str {
        match (&self.session, &self.hash) {
            (Some(_), _) => "dashboard",
            (None, Some(_)) => "http",
            (None, None) => "command line",
        }
    }

    /// Who is counted.
    pub(crate) fn holder(&self) -> Holder {
        match &self.person {
            Some(person) => Holder::Person(Arc::clone(person)),
            None => Holder::Token(Arc::clone(&self.name)),
        }
    }

    /// In whose name it gives tasks.
    pub(crate) fn requester(&self) -> Result<AgentName, Problem> {
        // Without a name, what the tasks use would count against no limit of the token.
        AgentName::new(&self.name).map_err(|error| Problem::internal(&error))
    }

    /// What refers to its token.
    pub(crate) fn token(&self) -> TokenRef {
        TokenRef { name: Arc::clone(&self.name), hash: self.hash.as_ref().map(beginning) }
    }

    /// Whether it reaches a namespace of the shared context.
    pub(crate) fn reaches(&self, namespace: &str) -> bool {
        self.is_owner || self.terms.namespaces.contains(namespace)
    }

    /// The namespaces of the shared context that its token was granted.
    #[cfg(feature = "dashboard")]
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.terms.namespaces.iter().map(|name| &**name)
    }

    /// Refuses a token without a scope.
    pub(crate) fn needs(&self, scope: Scope) -> Result<(), Problem> {
        if self.scopes.contains(&scope) {
            return Ok(());
        }
        let detail = format!("the token {} does not have the scope {scope}", self.name);
        Err(Problem::new(ProblemCode::MissingScope, detail))
    }

    /// How many requests it may send in a minute.
    pub(crate) fn requests_a_minute(&self) -> Option<u32> {
        self.terms.requests_a_minute
    }
}

/// The name of this user's own token, and of this user's processes.
const OWNER: &str = "owner";
/// The name of this user's clients of the Model Context Protocol, which have no token.
pub(crate) const MCP: &str = "mcp";
/// Names of processes, which no token has.
const RESERVED: [&str; 2] = [OWNER, MCP];
/// The longest name of a token, in characters: it is the requester of its delegations, and so named as agents are.
const MAX_NAME: usize = AgentName::MAX;
/// The longest name of a namespace of the shared context, in characters.
const MAX_NAMESPACE: usize = 64;
/// How often an event stream looks whether its token has expired, or another process has revoked it.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// What secrets begin with, so that scanners of leaked secrets find them.
const PREFIX: &str = "cbt_";

impl Tokens {
    /// Creates an empty set in memory, in which tokens expire by the clock of `env`.
    #[must_use]
    pub fn new(env: Env) -> Self {
        Self { env, shared: Arc::default() }
    }

    /// Opens the tokens of a file. Its folder has to be this user's alone (mode 0700), and is created so if it is missing; a
    /// missing file is one without tokens. What another process adds or revokes is noticed with the next request, and by event
    /// streams within 2 s. While the file cannot be read, all requests with a token are refused as `unavailable`.
    ///
    /// # Errors
    /// See [`TokenError`].
    #[cfg(unix)]
    pub fn open(file: &std::path::Path, env: Env) -> Result<Self, TokenError> {
        let shared = Shared { file: Some(file::TokenFile::open(file)?), ..Shared::default() };
        let tokens = Self { env, shared: Arc::new(shared) };
        tokens.refresh()?;
        Ok(tokens)
    }

    /// Adds a token, and returns its secret: `cbt_` and 64 hexadecimal digits. It is not kept, so this is the only time that it
    /// can be read.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn add(&self, spec: TokenSpec) -> Result<String, TokenError> {
        let TokenSpec { name, scopes, lifetime, terms } = spec;
        check_name("token", &name, MAX_NAME)?;
        terms.owner.iter().try_for_each(|owner| check_name("owner", owner, MAX_NAME))?;
        terms.namespaces.iter().try_for_each(|namespace| check_name("namespace", namespace, MAX_NAMESPACE))?;
        if RESERVED.contains(&&*name) {
            return Err(TokenError::Reserved);
        }
        let secret = new_secret()?;
        let created_at = self.now();
        let expires_at = lifetime.map(|lifetime| created_at + lifetime);
        let token = Known {
            hash: hash(&secret),
            scopes: scopes.into(),
            created_at,
            expires_at,
            is_owner: false,
            terms: terms.into(),
        };
        self.change(|table| {
            if table.known.contains_key(&*name) {
                return Err(TokenError::Exists(name));
            }
            if table.revoked.contains_key(&*name) {
                return Err(TokenError::Used(name));
            }
            table.known.insert(name.into(), token);
            Ok(())
        })?;
        Ok(secret)
    }

    /// Revokes a token: its requests are refused from now on, and its event streams end. `false` if there is none of this name. No
    /// token gets the name again, except that of this user ([`Tokens::owner_secret`]); the runs that it has begun stay those of its owner.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn revoke(&self, name: &str) -> Result<bool, TokenError> {
        self.change(|table| {
            let Some(token) = table.known.remove(name) else { return Ok(false) };
            if !token.is_owner {
                table.revoked.insert(name.into(), token.terms.owner.clone());
            }
            Ok(true)
        })
    }

    /// Lists the names of the tokens that were revoked.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn revoked(&self) -> Result<Vec<String>, TokenError> {
        self.refresh()?;
        Ok(self.shared.table.read().revoked.keys().map(ToString::to_string).collect())
    }

    /// Lists the tokens by name, with those that have expired.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn list(&self) -> Result<Vec<Token>, TokenError> {
        self.refresh()?;
        let token = |(name, known): (&Arc<str>, &Known)| Token {
            name: name.to_string(),
            scopes: (*known.scopes).clone(),
            created_at: known.created_at,
            expires_at: known.expires_at,
            owner: known.terms.owner.clone(),
            namespaces: known.terms.namespaces.clone(),
            requests_a_minute: known.terms.requests_a_minute,
            per_day: known.terms.per_day(),
            per_run: known.terms.per_run(),
            is_owner: known.is_owner,
        };
        Ok(self.shared.table.read().known.iter().map(token).collect())
    }

    /// Returns the secret of this user's own token, named `owner`, which has all scopes. It is kept in the file `owner-token`
    /// beside the tokens, with mode 0600, so that commands of the same user find it. The first call makes the token, as does
    /// the next one after the token was revoked or the file removed.
    ///
    /// # Errors
    /// See [`TokenError`].
    #[cfg(unix)]
    pub fn owner_secret(&self) -> Result<String, TokenError> {
        let file = self.shared.file.as_ref().ok_or(TokenError::InMemory)?;
        let locked = file.lock()?;
        self.refresh()?;
        let mut table = self.shared.table.read().clone();
        let before = table.known.get(OWNER).map(|token| token.hash);
        if let Some(secret) = file.owner_secret(&locked)?.filter(|secret| before == Some(hash(secret))) {
            return Ok(secret);
        }
        let secret = new_secret()?;
        let token = Known {
            hash: hash(&secret),
            scopes: Arc::new(Scope::ALL.into()),
            created_at: self.now(),
            expires_at: None,
            is_owner: true,
            terms: Arc::default(),
        };
        table.known.insert(OWNER.into(), token);
        file.write_owner_secret(&locked, &secret)?;
        file.write(&locked, &table)?;
        self.refresh()?;
        Ok(secret)
    }

    /// Finds a token again; the inner error is why it allows nothing any more.
    pub(crate) fn named(&self, token: &TokenRef) -> Result<Result<Caller, String>, TokenError> {
        self.refresh()?;
        let TokenRef { name, hash } = token;
        let Some(hash) = hash else {
            let is_owner = **name == *OWNER;
            return Ok(is_owner.then(Caller::owner).ok_or_else(|| format!("{name} has no token")));
        };
        let table = self.shared.table.read();
        Ok(match table.known.get(name).filter(|known| beginning(&known.hash) == *hash) {
            None => Err(format!("the token {name} was revoked")),
            Some(known) if known.expires_at.is_some_and(|at| at <= self.now()) => {
                Err(format!("the token {name} has expired"))
            }
            Some(known) => Ok(known.caller(name)),
        })
    }

    /// The first token, by name, with a scope that has not expired and `is_it`, by its name and owner.
    pub(crate) fn first_with(
        &self,
        scope: Scope,
        is_it: impl Fn(&str, Option<&str>) -> bool,
    ) -> Result<Option<Caller>, TokenError> {
        self.refresh()?;
        let (now, table) = (self.now(), self.shared.table.read());
        let may = |known: &Known| known.scopes.contains(&scope) && known.expires_at.is_none_or(|at| now < at);
        let mut found =
            table.known.iter().filter(|(name, known)| may(known) && is_it(name, known.terms.owner.as_deref()));
        Ok(found.next().map(|(name, known)| known.caller(name)))
    }

    /// What refers to the token of this name.
    #[cfg_attr(not(feature = "dashboard"), expect(dead_code, reason = "the room dashboard has sessions of tokens"))]
    pub(crate) fn token(&self, name: &str) -> Result<Option<TokenRef>, TokenError> {
        self.refresh()?;
        let table = self.shared.table.read();
        let reference = |(name, known): (&Arc<str>, &Known)| known.caller(name).token();
        Ok(table.known.get_key_value(name).map(reference))
    }

    /// The folder of the tokens; `None` if they are in memory.
    #[cfg(unix)]
    #[cfg_attr(not(feature = "dashboard"), expect(dead_code, reason = "the room dashboard keeps sessions there"))]
    pub(crate) fn folder(&self) -> Option<&std::path::Path> {
        self.shared.file.as_ref().map(file::TokenFile::folder)
    }

    /// Keeps the secret of a webhook, in clear: a signature is checked with it. With a file it has one of its own beside that, with
    /// mode 0600.
    pub(crate) fn keep_webhook_secret(&self, webhook: Uuid, secret: &str) -> Result<(), TokenError> {
        #[cfg(unix)]
        if let Some(file) = &self.shared.file {
            return file.write_webhook_secret(webhook, secret);
        }
        self.shared.webhooks.write().insert(webhook, secret.to_owned());
        Ok(())
    }

    /// The secret of a webhook; `None` if none is kept.
    pub(crate) fn webhook_secret(&self, webhook: Uuid) -> Result<Option<String>, TokenError> {
        #[cfg(unix)]
        if let Some(file) = &self.shared.file {
            return file.webhook_secret(webhook);
        }
        Ok(self.shared.webhooks.read().get(&webhook).cloned())
    }

    pub(crate) fn forget_webhook_secret(&self, webhook: Uuid) -> Result<(), TokenError> {
        #[cfg(unix)]
        if let Some(file) = &self.shared.file {
            return file.remove_webhook_secret(webhook);
        }
        self.shared.webhooks.write().remove(&webhook);
        Ok(())
    }

    /// A new id.
    pub(crate) fn id(&self) -> Uuid {
        self.env.id()
    }

    /// Returns what the delegations of the token of this name may use in a day, for
    /// [`DayLimits::requesters`](callboard::actors::DayLimits::requesters): nothing if there is no such token. Processes of this user
    /// have no token, and no limit.
    #[must_use]
    pub fn per_day_of(&self, name: &str) -> PerDay {
        // What cannot be read now has changed nothing.
        let _ = self.refresh();
        match self.shared.table.read().known.get(name) {
            Some(known) => known.terms.per_day(),
            None if RESERVED.contains(&name) => PerDay::default(),
            None => PerDay { tokens: Some(0), cost: None },
        }
    }

    /// Returns what each run of the token of this name may use, for [`Builder::run_limits`](callboard::Builder::run_limits): nothing if
    /// there is no such token, as [`Tokens::per_day_of`].
    #[must_use]
    pub fn per_run_of(&self, name: &str) -> PerRun {
        let _ = self.refresh();
        match self.shared.table.read().known.get(name) {
            Some(known) => known.terms.per_run(),
            None if RESERVED.contains(&name) => PerRun::default(),
            None => PerRun { tokens: Some(0), ..PerRun::default() },
        }
    }

    /// The person who answers for the token of this name, or did so before it was revoked.
    #[must_use]
    pub fn owner_of(&self, name: &str) -> Option<String> {
        let _ = self.refresh();
        let table = self.shared.table.read();
        table.known.get(name).map_or_else(|| table.revoked.get(name)?.clone(), |known| known.terms.owner.clone())
    }

    /// Whether somebody of this name answers for a token, or did so before it was revoked.
    pub(crate) fn is_owner(&self, name: &str) -> bool {
        let table = self.shared.table.read();
        let known = table.known.values().map(|known| &known.terms.owner);
        known.chain(table.revoked.values()).flatten().any(|owner| owner == name)
    }

    /// The time by which tokens expire.
    pub(crate) fn now(&self) -> Timestamp {
        self.env.now().wall
    }

    /// Applies a change to the tokens that are there now, and stores the result.
    fn change<T>(&self, change: impl FnOnce(&mut Table) -> Result<T, TokenError>) -> Result<T, TokenError> {
        #[cfg(unix)]
        if let Some(file) = &self.shared.file {
            let locked = file.lock()?;
            self.refresh()?;
            let mut table = self.shared.table.read().clone();
            let changed = change(&mut table)?;
            file.write(&locked, &table)?;
            self.refresh()?;
            return Ok(changed);
        }
        let changed = change(&mut self.shared.table.write())?;
        self.shared.changes.send_modify(|count| *count += 1);
        Ok(changed)
    }

    /// Reads the file again if it has changed.
    fn refresh(&self) -> Result<(), TokenError> {
        #[cfg(unix)]
        if let Some(file) = &self.shared.file {
            file.refresh(|table| {
                *self.shared.table.write() = table;
                self.shared.changes.send_modify(|count| *count += 1);
            })?;
        }
        Ok(())
    }

    /// Finds the token with this secret. All hashes are compared, each in constant time.
    pub(crate) fn caller(&self, secret: &str) -> Result<Option<Caller>, TokenError> {
        self.refresh()?;
        let (hash, now) = (hash(secret), self.now());
        let mut caller = None;
        for (name, token) in &self.shared.table.read().known {
            if bool::from(token.hash.ct_eq(&hash)) && token.expires_at.is_none_or(|at| now < at) {
                caller = Some(token.caller(name));
            }
        }
        Ok(caller)
    }

    /// Returns once the token is revoked or has expired.
    pub(crate) async fn ended(&self, caller: &Caller) {
        let Some(hash) = caller.hash else { return std::future::pending().await };
        let mut changes = self.shared.changes.subscribe();
        loop {
            // What cannot be read has not revoked anything; requests are refused meanwhile.
            let _ = self.refresh();
            let rest = match self.shared.table.read().known.get(&caller.name) {
                Some(token) if token.hash == hash => token.expires_at.map(|at| at.since(self.now())),
                Some(_) | None => return,
            };
            if rest.is_some_and(|rest| rest.is_zero()) {
                return;
            }
            // The wall clock may move meanwhile.
            let look_again = tokio::time::sleep(rest.unwrap_or(LOOK_AGAIN).min(LOOK_AGAIN));
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = look_again => {}
            }
        }
    }
}

/// Bytes for a secret.
pub(crate) fn random() -> Result<[u8; 32], TokenError> {
    let mut random = [0; 32];
    getrandom::fill(&mut random).map_err(TokenError::Random)?;
    Ok(random)
}

/// A new secret.
pub(crate) fn new_secret() -> Result<String, TokenError> {
    Ok(random()?.iter().fold(PREFIX.to_owned(), |secret, byte| format!("{secret}{byte:02x}")))
}

/// A text with `[a token]` in place of what may be secrets: a damaged request may have one in any place, and answers are logged.
pub(crate) fn without_secrets(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = lower[text.len() - rest.len()..].find(PREFIX) {
        let (before, secret) = rest.split_at(at);
        let digits = secret[PREFIX.len()..].bytes().take(64).take_while(u8::is_ascii_hexdigit).count();
        let (secret, after) = secret.split_at(PREFIX.len() + digits);
        shown += before;
        shown += if digits < 16 { secret } else { "[a token]" };
        rest = after;
    }
    shown + rest
}

/// The first 16 digits of a hash.
fn beginning(hash: &[u8; 32]) -> String {
    hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is kept of a secret.
pub(crate) fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}
