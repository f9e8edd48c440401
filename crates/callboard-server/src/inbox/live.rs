//! The inbox for those who watch it. While somebody does, one task gathers it a few times a second, for all of them: that finds what any
//! process has changed, and merges what happens at once.

use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::response::sse::Event;
use futures::{StreamExt as _, stream};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;

use crate::context::{Context, Shared};
use crate::events::answer;
use crate::problem::Problem;
use crate::query;
use crate::tokens::Caller;

use super::gathered::{Gathered, gather};

/// How often the inbox is gathered for those who watch it.
const INTERVAL: Duration = Duration::from_millis(250);

/// What those who watch the inbox see.
pub(crate) type Seen = watch::Receiver<Arc<Gathered>>;

/// The inbox as it was gathered last, while somebody watches it.
#[derive(Clone, Default)]
pub(crate) struct Live(Arc<Mutex<Weak<watch::Sender<Arc<Gathered>>>>>);

impl Live {
    /// Begins to watch. The first value is as it is now.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) async fn watch(&self, context: &Arc<Context>) -> Result<Seen, Problem> {
        let now = Arc::new(gather(context).await?);
        let mut live = self.0.lock();
        if let Some(sender) = live.upgrade() {
            return Ok(sender.subscribe());
        }
        let (sender, seen) = watch::channel(now);
        let sender = Arc::new(sender);
        *live = Arc::downgrade(&sender);
        drop(tokio::spawn(gather_while_watched(sender, Arc::downgrade(context))));
        Ok(seen)
    }
}

/// Ends when nobody watches any more, or the server is gone.
async fn gather_while_watched(sender: Arc<watch::Sender<Arc<Gathered>>>, context: Weak<Context>) {
    loop {
        tokio::select! {
            () = sender.closed() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
        let Some(context) = context.upgrade() else { return };
        // What cannot be read now is read the next time.
        let Ok(gathered) = gather(&context).await else { continue };
        sender.send_if_modified(|seen| {
            let is_news = **seen != gathered;
            if is_news {
                *seen = Arc::new(gathered);
            }
            is_news
        });
    }
}

/// Streams an event `inbox` with the number of items of each kind whenever the inbox has changed, the first at once.
pub(crate) async fn events(
    State(context): Shared,
    RawQuery(query): RawQuery,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let [] = query::values(query.as_deref(), [])?;
    let permit = context.streams.open(&caller)?;
    let seen = context.live.watch(&context).await?;
    let who = caller.clone();
    let events = stream::unfold((seen, true), |(mut seen, is_first)| async move {
        if !is_first {
            seen.changed().await.ok()?;
        }
        let gathered = Arc::clone(&seen.borrow_and_update());
        Some((gathered, (seen, false)))
    });
    let events = events.map(move |gathered| {
        let counts = gathered.counts_for(&who);
        Event::default().event("inbox").data(json!({ "counts": counts, "is_cut": gathered.is_cut }).to_string())
    });
    Ok(answer(&context, caller, permit, events))
}
