//! Tokens: who may do what. Only hashes of their secrets are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use callboard::env::Env;
use callboard::messages::{NameError, Timestamp};
use callboard_text::check_name;
use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::watch;

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// To read delegations, their events, agents, and what waits for people.
    Read,
    /// To delegate tasks, and to cancel them.
    Delegate,
    /// To decide and answer what waits for people.
    Approve,
    /// To read the tree of supervisors. Tasks of a token with this scope are trusted, as those of a person at the terminal.
    Admin,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 4] = [Self::Read, Self::Delegate, Self::Approve, Self::Admin];
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Delegate => "delegate",
            Self::Approve => "approve",
            Self::Admin => "admin",
        })
    }
}

/// A token to add.
#[derive(Clone, Debug)]
pub struct TokenSpec {
    name: String,
    scopes: BTreeSet<Scope>,
    lifetime: Option<Duration>,
}

impl TokenSpec {
    /// Describes a token with this name, which decisions are recorded under, and these scopes. It does not expire.
    #[must_use]
    pub fn new(name: &str, scopes: impl IntoIterator<Item = Scope>) -> Self {
        Self { name: name.to_owned(), scopes: scopes.into_iter().collect(), lifetime: None }
    }

    /// Sets after what time, from its addition, it expires.
    #[must_use]
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = Some(lifetime);
        self
    }
}

/// Why a token was not added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Its name breaks a rule of names.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Another token has its name.
    #[error("there is a token {0}; revoke it first, or choose another name")]
    Exists(String),
    /// The system gave no random bytes.
    #[error("the system gave no random bytes for a token: {0}")]
    Random(getrandom::Error),
}

/// The tokens of a server. A clone is another handle to the same tokens.
#[derive(Clone)]
pub struct Tokens {
    env: Env,
    known: Arc<RwLock<BTreeMap<Arc<str>, Known>>>,
    /// Counts revocations.
    revocations: Arc<watch::Sender<u64>>,
}

struct Known {
    hash: [u8; 32],
    scopes: BTreeSet<Scope>,
    expires_at: Option<Timestamp>,
}

/// Who sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) name: Arc<str>,
    pub(crate) scopes: BTreeSet<Scope>,
    hash: [u8; 32],
}

/// The longest name of a token, in characters.
const MAX_NAME: usize = 64;
/// How often an event stream looks whether its token has expired.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// What secrets begin with, so that scanners of leaked secrets find them.
const PREFIX: &str = "cbt_";

impl Tokens {
    /// Creates an empty set, in which tokens expire by the clock of `env`.
    #[must_use]
    pub fn new(env: Env) -> Self {
        Self { env, known: Arc::default(), revocations: Arc::new(watch::Sender::new(0)) }
    }

    /// Adds a token, and returns its secret: `cbt_` and 64 hexadecimal digits. It is not kept, so this is the only time that it
    /// can be read.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn add(&self, spec: TokenSpec) -> Result<String, TokenError> {
        let TokenSpec { name, scopes, lifetime } = spec;
        check_name("token", &name, MAX_NAME)?;
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(TokenError::Random)?;
        let secret = random.iter().fold(PREFIX.to_owned(), |secret, byte| format!("{secret}{byte:02x}"));
        let expires_at = lifetime.map(|lifetime| self.env.now().wall + lifetime);
        let token = Known { hash: hash(&secret), scopes, expires_at };
        let mut known = self.known.write();
        if known.contains_key(&*name) {
            return Err(TokenError::Exists(name));
        }
        known.insert(name.into(), token);
        Ok(secret)
    }

    /// Revokes a token: its requests are refused from now on, and its event streams end. `false` if there is none of this name.
    pub fn revoke(&self, name: &str) -> bool {
        let is_known = self.known.write().remove(name).is_some();
        if is_known {
            self.revocations.send_modify(|count| *count += 1);
        }
        is_known
    }

    /// Finds the token with this secret. All hashes are compared, each in constant time.
    pub(crate) fn caller(&self, secret: &str) -> Option<Caller> {
        let (hash, now) = (hash(secret), self.env.now().wall);
        let mut caller = None;
        for (name, token) in &*self.known.read() {
            if bool::from(token.hash.ct_eq(&hash)) && token.expires_at.is_none_or(|at| now < at) {
                caller = Some(Caller { name: Arc::clone(name), scopes: token.scopes.clone(), hash });
            }
        }
        caller
    }

    /// Returns once the token is revoked or has expired.
    pub(crate) async fn ended(&self, caller: &Caller) {
        let mut revocations = self.revocations.subscribe();
        loop {
            let rest = match self.known.read().get(&caller.name) {
                Some(token) if token.hash == caller.hash => token.expires_at.map(|at| at.since(self.env.now().wall)),
                Some(_) | None => return,
            };
            let expired = async {
                match rest {
                    // The wall clock may move meanwhile.
                    Some(rest) => tokio::time::sleep(rest.min(LOOK_AGAIN)).await,
                    None => std::future::pending().await,
                }
            };
            if rest.is_some_and(|rest| rest.is_zero()) {
                return;
            }
            tokio::select! {
                changed = revocations.changed() => if changed.is_err() { return },
                () = expired => {}
            }
        }
    }
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn a_secret_is_known_until_its_token_is_revoked_or_expires() {
        let tokens = Tokens::new(Env::system());
        let secret = tokens.add(TokenSpec::new("ann", [Scope::Read])).unwrap();
        assert!(secret.starts_with(PREFIX) && secret.len() == PREFIX.len() + 64);
        let caller = tokens.caller(&secret).unwrap();
        assert_eq!((&*caller.name, caller.scopes.contains(&Scope::Read), caller.scopes.len()), ("ann", true, 1));
        for wrong in ["", "cbt_", &secret[1..], &secret.to_uppercase(), &format!("{secret} ")] {
            assert_eq!(tokens.caller(wrong), None, "{wrong:?}");
        }
        assert!(matches!(tokens.add(TokenSpec::new("ann", [])), Err(TokenError::Exists(name)) if name == "ann"));
        assert!(matches!(tokens.add(TokenSpec::new("a\u{202e}b", [])), Err(TokenError::Name(_))));
        assert!(tokens.revoke("ann") && !tokens.revoke("ann"));
        assert_eq!(tokens.caller(&secret), None);

        let short = tokens.add(TokenSpec::new("bob", Scope::ALL).lifetime(Duration::ZERO)).unwrap();
        assert_eq!(tokens.caller(&short), None);
    }
}
