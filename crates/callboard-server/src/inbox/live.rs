//! The inbox for those who watch it. While somebody does, one task gathers it a few times a second, for all of them: that finds what any
//! process has changed, and merges what happens at once.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::problem::Problem;

use super::gathered::{Gathered, Sources};

/// How often the inbox is gathered for those who watch it.
const INTERVAL: Duration = Duration::from_millis(250);

/// What those who watch the inbox see.
pub(crate) type Seen = watch::Receiver<Arc<Gathered>>;

/// The inbox as it was gathered last, while somebody watches it.
#[derive(Clone, Default)]
pub(crate) struct Live(Arc<Mutex<Weak<watch::Sender<Arc<Gathered>>>>>);

impl Live {
    /// Begins to watch. The first value is as it is now, or as it was gathered last for those who watch already.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) async fn watch(&self, sources: Sources) -> Result<Seen, Problem> {
        let watched = |live: &Weak<watch::Sender<_>>| live.upgrade().map(|sender| sender.subscribe());
        if let Some(seen) = watched(&self.0.lock()) {
            return Ok(seen);
        }
        let now = Arc::new(sources.gather().await?);
        let mut live = self.0.lock();
        if let Some(seen) = watched(&live) {
            return Ok(seen);
        }
        let (sender, seen) = watch::channel(now);
        let sender = Arc::new(sender);
        *live = Arc::downgrade(&sender);
        drop(tokio::spawn(gather_while_watched(sender, sources)));
        Ok(seen)
    }

    /// The inbox as it is now. Those who watch see it too: otherwise one who has read it here would not learn that it is again as it was
    /// gathered before.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) async fn gather(&self, sources: &Sources) -> Result<Gathered, Problem> {
        let gathered = sources.gather().await?;
        if let Some(sender) = self.0.lock().upgrade() {
            show(&sender, gathered.clone());
        }
        Ok(gathered)
    }
}

/// Shows the inbox to those who watch it, if it has changed.
fn show(sender: &watch::Sender<Arc<Gathered>>, gathered: Gathered) {
    sender.send_if_modified(|seen| {
        let is_news = **seen != gathered;
        if is_news {
            *seen = Arc::new(gathered);
        }
        is_news
    });
}

/// Ends when nobody watches any more.
async fn gather_while_watched(sender: Arc<watch::Sender<Arc<Gathered>>>, sources: Sources) {
    loop {
        tokio::select! {
            () = sender.closed() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
        // What cannot be read now is read the next time.
        let Ok(gathered) = sources.gather().await else { continue };
        show(&sender, gathered);
    }
}
