//! A stream that reports when the overview has changed.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;

use super::overview::own_agents;
use crate::context::{Context, Shared};
use crate::events::answer;
use crate::inbox::Seen;
use crate::problem::Problem;
use crate::tokens::Caller;

/// How often it looks whether agents have come or gone.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Streams an event at once, and one for each change from then on.
pub(super) async fn events(State(context): Shared, Extension(caller): Extension<Caller>) -> Result<Response, Problem> {
    let permit = context.streams.open(&caller)?;
    let inbox = context.live.watch(context.inbox_sources()).await?;
    let watching = Watching { context: Arc::clone(&context), inbox, agents: None };
    let changes = futures::stream::unfold(watching, |mut watching| async { Some((watching.next().await?, watching)) });
    Ok(answer(&context, caller, permit, changes))
}

struct Watching {
    context: Arc<Context>,
    inbox: Seen,
    /// How many agents there were; `None` before the first event.
    agents: Option<usize>,
}

impl Watching {
    /// The next change; `None` when the board has ended.
    async fn next(&mut self) -> Option<Event> {
        loop {
            let agents = Some(own_agents(&self.context).len());
            if self.agents != agents || self.inbox.has_changed().ok()? {
                self.agents = agents;
                self.inbox.mark_unchanged();
                return Some(Event::default().event("changed").data("overview"));
            }
            tokio::select! {
                changed = self.inbox.changed() => {
                    changed.ok()?;
                    self.inbox.mark_changed();
                }
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        }
    }
}
