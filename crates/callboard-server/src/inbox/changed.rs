//! The texts that actions would change, as they are now: whoever decides sees what is lost.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use callboard::messages::{Action, ApprovalId, Envelope, Timestamp};
use parking_lot::Mutex;

/// How long a text counts as that of now, in milliseconds: many pages show the same approval at once.
const FRESH: u64 = 2_000;
/// How many texts are remembered for so long.
const REMEMBERED: usize = 64;

/// The text that an action would change, or why it cannot be shown; `None` where there is none.
pub(crate) type Present = Option<Arc<Result<String, String>>>;

/// Reads the text that an action would change.
type Read = dyn Fn(&Action) -> Option<Result<String, String>> + Send + Sync;

/// What reads texts, and those that it has read last.
#[derive(Clone, Default)]
pub(crate) struct Changed {
    read: Option<Arc<Read>>,
    found: Arc<Mutex<BTreeMap<ApprovalId, (Timestamp, Present)>>>,
}

impl Changed {
    pub(crate) fn by(read: impl Fn(&Action) -> Option<Result<String, String>> + Send + Sync + 'static) -> Self {
        Self { read: Some(Arc::new(read)), found: Arc::default() }
    }

    /// The text that the action of an approval would change.
    pub(crate) async fn of(&self, envelope: &Envelope, now: Timestamp) -> Present {
        let read = Arc::clone(self.read.as_ref()?);
        let id = envelope.id();
        let is_fresh = |at: Timestamp| at.as_millis() + FRESH > now.as_millis();
        if let Some((_, text)) = self.found.lock().get(&id).filter(|(at, _)| is_fresh(*at)) {
            return text.clone();
        }
        let action = envelope.action.clone();
        let text = tokio::task::spawn_blocking(move || read(&action)).await.ok().flatten().map(Arc::new);
        let mut found = self.found.lock();
        if found.len() >= REMEMBERED {
            found.clear();
        }
        found.insert(id, (now, text.clone()));
        text
    }
}

impl fmt::Debug for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changed").field("is_read", &self.read.is_some()).finish_non_exhaustive()
    }
}
