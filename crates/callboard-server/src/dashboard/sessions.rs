//! Sessions of people in browsers, by the hashes of their secrets, in memory and in a file beside the tokens.

use std::time::Duration;

use axum::http::HeaderMap;
use callboard::messages::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;
use tokio::sync::watch;

use super::kept::Kept;
use super::origin::foreign;
use crate::origins::text;
use crate::problem::Problem;
use crate::tokens::{TokenError, TokenRef, Tokens, hash, new_secret};

/// After what time without a request a session ends.
const IDLE: Duration = Duration::from_secs(12 * 3600);
/// After what time it ends in any case.
pub(super) const LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);
/// The most sessions. One more takes the place of the one that was not used for the longest time.
const MAX_SESSIONS: usize = 64;
/// How much later a session was used than the file has it, at most: it is not written for each request.
const WRITTEN_AGAIN: Duration = Duration::from_secs(600);
/// How often a stream looks whether its session has expired: the wall clock may move meanwhile.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// The file, and the version of its format.
const FILE: &str = "sessions.json";
const VERSION: u32 = 1;
/// The header with the text that a page has, and pages of others cannot read.
const CSRF: &str = "x-callboard-csrf";

/// What names a session: the hash of its secret.
pub(super) type SessionId = [u8; 32];

/// The sessions of a server.
pub(super) struct BrowserSessions {
    kept: Kept,
    open: Mutex<Vec<BrowserSession>>,
    /// Counts those that have ended.
    changes: watch::Sender<u64>,
}

#[derive(Clone)]
struct BrowserSession {
    id: SessionId,
    token: TokenRef,
    began_at: Timestamp,
    used_at: Timestamp,
    /// What the file has as `used_at`.
    written_at: Timestamp,
}

impl BrowserSession {
    /// When it ends if no request comes.
    fn ends_at(&self) -> Timestamp {
        (self.used_at + IDLE).min(self.began_at + LIFETIME)
    }

    fn is_open(&self, now: Timestamp) -> bool {
        now < self.ends_at()
    }
}

impl BrowserSessions {
    /// Opens those of the file. If that is damaged, nobody is signed in.
    pub(super) fn open(tokens: &Tokens) -> Result<Self, TokenError> {
        let kept = Kept::beside(tokens);
        let open = kept.read(FILE)?.map(|bytes| parse(&bytes)).unwrap_or(Some(Vec::new()));
        let open = open.unwrap_or_else(|| {
            tracing::warn!(file = FILE, "the sessions of browsers are damaged: people have to sign in again");
            Vec::new()
        });
        Ok(Self { kept, open: Mutex::new(open), changes: watch::Sender::new(0) })
    }

    /// Begins a session, and returns its secret. That of the browser before, if it had one, ends.
    pub(super) fn begin(&self, token: TokenRef, before: Option<&str>, now: Timestamp) -> Result<String, TokenError> {
        let (secret, before) = (new_secret()?, before.map(hash));
        self.change(|open| {
            open.retain(|session| session.is_open(now) && Some(session.id) != before);
            while open.len() >= MAX_SESSIONS
                && let Some(oldest) = open.iter().enumerate().min_by_key(|(_, session)| session.used_at)
            {
                let index = oldest.0;
                open.remove(index);
            }
            open.push(BrowserSession { id: hash(&secret), token, began_at: now, used_at: now, written_at: now });
        })?;
        Ok(secret)
    }

    /// Finds the session with this secret, and counts as a use of it. All hashes are compared, each in constant time.
    pub(super) fn find(&self, secret: &str, now: Timestamp) -> Option<(SessionId, TokenRef)> {
        let (id, mut open) = (hash(secret), self.open.lock());
        let mut found = None;
        for session in &mut *open {
            if bool::from(session.id.ct_eq(&id)) && session.is_open(now) {
                found = Some(session);
            }
        }
        let session = found?;
        session.used_at = session.used_at.max(now);
        let (token, is_due) = (session.token.clone(), now >= session.written_at + WRITTEN_AGAIN);
        if is_due {
            for session in &mut *open {
                session.written_at = session.used_at;
            }
            // The session is there all the same; after a restart it ends earlier.
            if let Err(error) = self.kept.write(FILE, &document(&open)) {
                tracing::warn!(%error, "when sessions were used last is not written");
            }
        }
        Some((id, token))
    }

    /// Ends a session.
    pub(super) fn end(&self, id: &SessionId) -> Result<(), TokenError> {
        self.change(|open| open.retain(|session| session.id != *id))
    }

    /// Ends all sessions, and returns how many there were.
    pub(super) fn end_all(&self, now: Timestamp) -> Result<usize, TokenError> {
        let mut count = 0;
        self.change(|open| {
            open.retain(|session| session.is_open(now));
            count = std::mem::take(open).len();
        })?;
        Ok(count)
    }

    /// Returns once a session has ended.
    pub(super) async fn ended(&self, id: &SessionId, now: impl Fn() -> Timestamp) {
        let mut changes = self.changes.subscribe();
        loop {
            let now = now();
            let ends_at = self.open.lock().iter().find(|session| session.id == *id).map(BrowserSession::ends_at);
            let Some(ends_at) = ends_at.filter(|at| now < *at) else { return };
            let look_again = tokio::time::sleep(ends_at.since(now).min(LOOK_AGAIN));
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = look_again => {}
            }
        }
    }

    /// Changes the sessions. In memory they are changed also if the file cannot be written: what has ended stays so while the server runs.
    fn change(&self, change: impl FnOnce(&mut Vec<BrowserSession>)) -> Result<(), TokenError> {
        let mut open = self.open.lock();
        change(&mut open);
        for session in &mut *open {
            session.written_at = session.used_at;
        }
        let written = self.kept.write(FILE, &document(&open));
        drop(open);
        self.changes.send_modify(|count| *count += 1);
        written
    }
}

/// The text that the pages of a session have, from which its secret does not follow.
pub(super) fn csrf(secret: &str) -> String {
    digits(&hash(&format!("callboard-csrf {secret}")))
}

/// Refuses a request of a session without the text of its pages.
pub(super) fn check_csrf(secret: &str, headers: &HeaderMap) -> Result<(), Problem> {
    let is_one = headers.get_all(CSRF).iter().count() == 1;
    let sent = text(headers, CSRF).filter(|_| is_one).unwrap_or_default();
    if bool::from(csrf(secret).as_bytes().ct_eq(sent.as_bytes())) {
        return Ok(());
    }
    Err(foreign(
        "a request with a session that changes something has the header X-Callboard-Csrf with the text of its page",
    ))
}

fn digits(hash: &[u8; 32]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    sessions: Vec<Entry>,
}

/// A session, as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    sha256: String,
    token: TokenRef,
    began_at_ms: u64,
    used_at_ms: u64,
}

fn document(open: &[BrowserSession]) -> Vec<u8> {
    let entry = |session: &BrowserSession| Entry {
        sha256: digits(&session.id),
        token: session.token.clone(),
        began_at_ms: session.began_at.as_millis(),
        used_at_ms: session.used_at.as_millis(),
    };
    let document = Document { version: VERSION, sessions: open.iter().map(entry).collect() };
    serde_json::to_vec_pretty(&document).unwrap_or_default()
}

/// The sessions of a file; `None` if it is damaged.
fn parse(bytes: &[u8]) -> Option<Vec<BrowserSession>> {
    let document: Document = serde_json::from_slice(bytes).ok()?;
    let session = |entry: Entry| {
        let used_at = Timestamp::from_millis(entry.used_at_ms);
        let id = bytes_of(&entry.sha256)?;
        let began_at = Timestamp::from_millis(entry.began_at_ms);
        Some(BrowserSession { id, token: entry.token, began_at, used_at, written_at: used_at })
    };
    (document.version == VERSION).then(|| document.sessions.into_iter().map(session).collect())?
}

/// The bytes of 64 digits.
fn bytes_of(digits: &str) -> Option<[u8; 32]> {
    if digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (number, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * number..2 * number + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use callboard::env::Env;

    use super::*;
    use crate::tokens::Caller;

    const HOUR: Duration = Duration::from_secs(3600);

    fn owner() -> TokenRef {
        Caller::owner().token()
    }

    fn begin() -> Timestamp {
        Timestamp::from_millis(1_000_000)
    }

    fn in_memory() -> BrowserSessions {
        BrowserSessions::open(&Tokens::new(Env::repeatable(1))).unwrap()
    }

    #[test]
    fn a_session_ends_without_use_and_after_a_week_in_any_case() {
        let (sessions, mut now) = (in_memory(), begin());
        let secret = sessions.begin(owner(), None, now).unwrap();
        while now < begin() + LIFETIME {
            assert!(sessions.find(&secret, now).is_some(), "{now}");
            now = now + HOUR * 11;
        }
        assert!(sessions.find(&secret, now).is_none(), "it is a week old");
        let idle = sessions.begin(owner(), None, begin()).unwrap();
        assert!(sessions.find(&idle, begin() + IDLE).is_none());
    }

    #[test]
    fn the_session_that_was_idle_longest_makes_room() {
        let sessions = in_memory();
        let secrets: Vec<String> = (0..MAX_SESSIONS).map(|_| sessions.begin(owner(), None, begin()).unwrap()).collect();
        let later = begin() + HOUR;
        for secret in secrets.iter().skip(1) {
            assert!(sessions.find(secret, later).is_some());
        }
        sessions.begin(owner(), None, later).unwrap();
        assert!(sessions.find(&secrets[0], later).is_none());
        assert!(secrets[1..].iter().all(|secret| sessions.find(secret, later).is_some()));
    }

    #[test]
    fn a_browser_that_signs_in_again_has_another_session() {
        let sessions = in_memory();
        let first = sessions.begin(owner(), None, begin()).unwrap();
        let second = sessions.begin(owner(), Some(&first), begin()).unwrap();
        assert_ne!(first, second);
        assert!(sessions.find(&first, begin()).is_none() && sessions.find(&second, begin()).is_some());
    }

    #[cfg(unix)]
    #[test]
    fn sessions_are_kept_as_hashes_and_a_damaged_file_has_none() {
        use std::os::unix::fs::PermissionsExt as _;

        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("own").join(FILE);
        let tokens = Tokens::open(&file.with_file_name("tokens.json"), Env::repeatable(1)).unwrap();
        let open = || BrowserSessions::open(&tokens).unwrap();
        let first = open();
        let [kept, ended] = [(); 2].map(|()| first.begin(owner(), None, begin()).unwrap());
        let (id, _) = first.find(&ended, begin()).unwrap();
        first.end(&id).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains(&kept) && !text.contains(kept.trim_start_matches("cbt_")));
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let again = open();
        assert!(again.find(&kept, begin()).is_some() && again.find(&ended, begin()).is_none());
        // When it was used is written, if that is longer ago.
        assert!(again.find(&kept, begin() + IDLE.saturating_sub(HOUR)).is_some());
        assert!(open().find(&kept, begin() + IDLE + HOUR).is_some());
        for damage in [&text[..text.len() / 2], "", "{}", &text.replace("\"version\": 1", "\"version\": 2")] {
            std::fs::write(&file, damage).unwrap();
            assert!(open().find(&kept, begin()).is_none(), "{damage:?}");
        }
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(BrowserSessions::open(&tokens).is_err(), "others can read it");
    }
}
