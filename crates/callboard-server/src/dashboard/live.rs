//! A stream that reports when the overview has changed.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;
use callboard::actors::{StreamMode, Watched};
use callboard::messages::PendingId;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};

use super::overview::Shown;
use crate::context::{Context, Shared};
use crate::events::answer;
use crate::problem::Problem;
use crate::tokens::Caller;

/// How long events are gathered: many come together.
const TOGETHER: Duration = Duration::from_millis(100);
/// How often it looks without an event: what waits also expires, and files of agents change.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Streams an event at once, and one for each change from then on.
pub(super) async fn events(State(context): Shared, Extension(caller): Extension<Caller>) -> Result<Response, Problem> {
    let permit = context.streams.open(&caller)?;
    let events = context.board.watch(&[StreamMode::Debug]).boxed();
    let watching = Watching { context: Arc::clone(&context), events, shown: None };
    let changes = futures::stream::unfold(watching, |mut watching| async { Some((watching.next().await?, watching)) });
    Ok(answer(&context, caller, permit, changes))
}

struct Watching {
    context: Arc<Context>,
    events: BoxStream<'static, Watched>,
    shown: Option<(usize, usize, Vec<PendingId>)>,
}

impl Watching {
    /// The next change; `None` when the board has ended.
    async fn next(&mut self) -> Option<Event> {
        loop {
            let shown = Some(Shown::read(&self.context).await.identity());
            if shown != self.shown {
                self.shown = shown;
                return Some(Event::default().event("changed").data("overview"));
            }
            tokio::select! {
                event = self.events.next() => { event?; }
                () = tokio::time::sleep(LOOK_AGAIN) => continue,
            }
            tokio::time::sleep(TOGETHER).await;
            while self.events.next().now_or_never().flatten().is_some() {}
        }
    }
}
