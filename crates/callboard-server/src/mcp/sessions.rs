//! Sessions of clients of revisions before 2026-07-28: each belongs to the token that opened it, and a token has a bounded number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::transport::streamable_http_server::session::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::tokens::Caller;

/// The most sessions of a token. One more ends the one that was used least recently.
const MAX_SESSIONS: usize = 32;
/// How long a session may be unused. A call that takes longer needs that time too.
const MAX_IDLE: Duration = Duration::from_secs(60 * 60);

/// The open sessions.
#[derive(Clone)]
pub(crate) struct Sessions {
    pub(super) manager: Arc<LocalSessionManager>,
    owners: Arc<Mutex<Owners>>,
    end: CancellationToken,
}

#[derive(Default)]
struct Owners {
    sessions: BTreeMap<Arc<str>, Owned>,
    /// Counts uses.
    uses: u64,
    /// Whether the end of the server is waited for.
    is_watched: bool,
}

struct Owned {
    caller: Caller,
    last_use: u64,
}

impl Default for Sessions {
    fn default() -> Self {
        let mut config = SessionConfig::default();
        config.keep_alive = Some(MAX_IDLE);
        let mut manager = LocalSessionManager::default();
        manager.session_config = config;
        Self { manager: Arc::new(manager), owners: Arc::default(), end: CancellationToken::new() }
    }
}

impl Sessions {
    /// What ends all of them, and the answers that are not complete: the end of the server.
    pub(super) fn end(&self, context: &Context) -> CancellationToken {
        let is_first = !std::mem::replace(&mut self.owners.lock().is_watched, true);
        if is_first {
            let (mut stopping, end) = (context.is_stopping.subscribe(), self.end.clone());
            tokio::spawn(async move {
                // An error: nothing uses the server any more.
                let _ = stopping.wait_for(|is_stopping| *is_stopping).await;
                end.cancel();
            });
        }
        self.end.clone()
    }

    /// Whether a session was opened with this token.
    pub(super) fn belongs(&self, session: &str, caller: &Caller) -> bool {
        let mut owners = self.owners.lock();
        owners.uses += 1;
        let uses = owners.uses;
        match owners.sessions.get_mut(session) {
            Some(owned) if owned.caller == *caller => {
                owned.last_use = uses;
                true
            }
            Some(_) | None => false,
        }
    }

    /// Records who has opened a session, and ends what the token has too many.
    pub(super) async fn opened(&self, session: &str, caller: &Caller) {
        let live: Vec<Arc<str>> = self.manager.sessions.read().await.keys().cloned().collect();
        let surplus = {
            let mut owners = self.owners.lock();
            owners.uses += 1;
            let owned = Owned { caller: caller.clone(), last_use: owners.uses };
            owners.sessions.retain(|id, _| live.contains(id));
            owners.sessions.insert(session.into(), owned);
            let mut own: Vec<(u64, Arc<str>)> = owners
                .sessions
                .iter()
                .filter(|(_, owned)| owned.caller.name == caller.name)
                .map(|(id, owned)| (owned.last_use, Arc::clone(id)))
                .collect();
            own.sort_unstable();
            own.truncate(own.len().saturating_sub(MAX_SESSIONS));
            own.iter().for_each(|(_, id)| drop(owners.sessions.remove(id)));
            own
        };
        for (_, session) in surplus {
            if let Err(error) = self.manager.close_session(&session).await {
                tracing::debug!(%error, "a session was not closed");
            }
        }
    }
}
