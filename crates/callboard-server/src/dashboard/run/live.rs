//! A stream that reports when a run has changed: at most four times a second.

use std::time::Duration;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::response::sse::Event;
use callboard::actors::StreamMode;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};

use crate::context::Shared;
use crate::delegations::find;
use crate::events::{Followed, answer};
use crate::problem::Problem;
use crate::query;
use crate::tokens::Caller;

/// The least time between two reports.
const EVERY: Duration = Duration::from_millis(250);

/// Streams an event at once, one for the changes of each moment from then on, and `ended` after the run has ended.
pub(crate) async fn events(
    State(context): Shared,
    RawQuery(query): RawQuery,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    let [id] = query::values(query.as_deref(), ["id"])?;
    let run = find(&context, &id.ok_or_else(|| Problem::bad("the query has no `id`"))?)?;
    let permit = context.streams.open(&caller)?;
    // What has happened before is in the part that the page reads first.
    let last = run.read().await?.sequence();
    let events = Followed::open(run, vec![StreamMode::Debug], last).await?.into_stream().map(drop).fuse().boxed();
    let changes = futures::stream::unfold(Changes::First(events), |changes| changes.next());
    Ok(answer(&context, caller, permit, changes))
}

/// Where the stream is.
enum Changes {
    First(BoxStream<'static, ()>),
    Following(BoxStream<'static, ()>),
    Ended,
}

impl Changes {
    async fn next(self) -> Option<(Event, Self)> {
        match self {
            Self::First(events) => Some((changed("changed"), Self::Following(events))),
            Self::Following(mut events) => {
                if events.next().await.is_none() {
                    return Some((changed("ended"), Self::Ended));
                }
                tokio::time::sleep(EVERY).await;
                // What came meanwhile is in the same report.
                while let Some(Some(())) = events.next().now_or_never() {}
                Some((changed("changed"), Self::Following(events)))
            }
            Self::Ended => None,
        }
    }
}

fn changed(name: &str) -> Event {
    Event::default().event(name).data("run")
}
