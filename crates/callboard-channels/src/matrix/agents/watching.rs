//! Notes what becomes of requests: their news, what they wait for, and how they end.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use callboard::actors::{StreamMode, Watched};
use callboard::messages::{Pending, RunEvent, RunId};
use callboard::runtime::{RunError, RunHandle};
use futures::stream::{BoxStream, empty};
use futures::{FutureExt as _, StreamExt as _};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::ledger::{Ending, Request};
use super::{Shared, status};

impl Shared {
    /// Watches each run that is under way.
    pub(super) async fn watch(self: Arc<Self>) {
        let (mut changes, mut watched, mut watching) = (self.opened.kept.changes(), BTreeSet::new(), JoinSet::new());
        loop {
            changes.mark_unchanged();
            let under_way: Vec<_> = {
                let ledger = self.opened.kept.ledger();
                let of = |(event, request, run): (&String, &Request, RunId)| {
                    (event.clone(), run, (request.seen, request.waits_for.clone()))
                };
                ledger.under_way().map(of).collect()
            };
            watched.retain(|event| under_way.iter().any(|(open, ..)| open == event));
            for (event, run, noted) in under_way {
                if watched.insert(event.clone()) {
                    let shared = Arc::clone(&self);
                    watching.spawn(async move { shared.watch_one(&event, shared.board.run(run), noted).await });
                }
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                Some(_) = watching.join_next() => {}
            }
        }
    }

    /// Watches a run until it ends. `noted` are the number of its last event whose news are noted, and the last thing that it waits for.
    async fn watch_one(&self, event: &str, run: RunHandle, noted: (u64, Option<String>)) {
        let kept = &self.opened.kept;
        let (mut seen, mut waits_for) = noted;
        let mut told: BTreeSet<String> = waits_for.iter().cloned().collect();
        let (mut newest, mut pause) = (None, Box::pin(sleep(Duration::ZERO)));
        let mut news = news(&run, seen).await;
        let mut ended = pin!(self.ended(event, run.clone()).fuse());
        let mut is_open = true;
        loop {
            let (is_told, handle) = (told.clone(), &run);
            let pending = async move {
                let is_new = |pending: &Pending| !is_told.contains(&pending.id().to_string());
                handle.next_pending_where(is_new).await.ok().flatten()
            };
            tokio::select! {
                biased;
                () = &mut ended => return,
                Some((sequence, text)) = news.next() => {
                    seen = seen.max(sequence);
                    newest = Some(text);
                }
                pending = pending, if is_open => match pending {
                    Some(pending) => {
                        let how = (self.opened.config.how_to_answer)(&pending);
                        newest = Some(status::waits(&pending, &how));
                        waits_for = Some(pending.id().to_string());
                        told.extend(waits_for.clone());
                    }
                    None => is_open = false,
                },
                () = &mut pause, if newest.is_some() => {
                    if let Some(text) = newest.take() {
                        kept.change(|ledger| ledger.notice(event, &text, (seen, waits_for.clone())));
                    }
                    pause = Box::pin(sleep(self.opened.config.notices_every));
                }
            }
        }
    }

    /// Waits for the end of a run, and notes it; does not return where the board ends first.
    async fn ended(&self, event: &str, run: RunHandle) {
        let (kept, mut delays) = (&self.opened.kept, self.opened.kept.delays());
        let ending = loop {
            match run.result().await {
                Ok(_) => break Ending::Result,
                // The next process continues.
                Err(RunError::Stopped(_) | RunError::StoreStopped { .. }) => std::future::pending().await,
                Err(RunError::Storage(error)) => tracing::debug!(%error, "a run is looked at again"),
                Err(error) => break Ending::Refused(error.to_string()),
            }
            kept.pause(&mut delays).await;
        };
        kept.change(|ledger| ledger.end(event, ending));
    }
}

/// The notices of a run after an event, each with the number of its own.
async fn news(run: &RunHandle, seen: u64) -> BoxStream<'static, (u64, String)> {
    let Ok(events) = run.events(seen.saturating_add(1), &[StreamMode::Messages]).await else { return empty().boxed() };
    let noticed = |watched| async move {
        let Watched::Event { sequence, event, .. } = watched else { return None };
        match &*event {
            RunEvent::Noticed { text, .. } => Some((sequence, status::news(text))),
            _ => None,
        }
    };
    events.filter_map(noticed).boxed()
}
