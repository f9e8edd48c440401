//! What the runs of items are about: read once for each item, as long as it waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use callboard::Callboard;
use callboard::messages::{Pending, PendingId, RunEvent, RunId, Timestamp, Verdict};
use callboard::supervision::runs::Run;
use callboard_text::cut;
use futures::StreamExt as _;
use parking_lot::Mutex;

use super::item::{About, Item, ItemId};

/// How many runs are read at a time.
const READERS: usize = 16;
/// How many items are remembered; more are read each time.
const REMEMBERED: usize = 2_000;

/// What was read of the runs of items.
#[derive(Clone, Default)]
pub(crate) struct Reading(Arc<Mutex<BTreeMap<String, About>>>);

impl Reading {
    /// The same items with what their runs are about, as far as these can be read.
    pub(crate) async fn complete(&self, board: &Callboard, items: Vec<Item>) -> Vec<Item> {
        let mut complete: Vec<(usize, Item)> = futures::stream::iter(items.into_iter().enumerate())
            .map(|(place, item)| async move { (place, self.read(board, item).await) })
            .buffer_unordered(READERS)
            .collect()
            .await;
        complete.sort_by_key(|(place, _)| *place);
        complete.into_iter().map(|(_, item)| item).collect()
    }

    async fn read(&self, board: &Callboard, item: Item) -> Item {
        let Some(run) = item.run.filter(|_| !matches!(item.id, ItemId::Quarantined(_))) else { return item };
        let id = item.id.to_string();
        let known = self.0.lock().get(&id).cloned();
        let about = match known {
            Some(about) => about,
            None => match about(board, run, &item).await {
                Some(about) => {
                    let mut remembered = self.0.lock();
                    if remembered.len() >= REMEMBERED {
                        remembered.clear();
                    }
                    remembered.insert(id, about.clone());
                    about
                }
                None => return item,
            },
        };
        item.about(about)
    }
}

async fn about(board: &Callboard, run: RunId, item: &Item) -> Option<About> {
    let handle = board.run(run);
    let fold = handle.read().await.ok()?;
    let task = &fold.submission().task;
    let since = match (&item.id, item.since) {
        (_, Some(since)) => Some(since),
        (ItemId::Pending(id @ (PendingId::Approval(_) | PendingId::Attention(_))), None) => {
            since(&handle.history().await.ok()?, id)
        }
        (_, None) => None,
    };
    let (chain, used) = (fold.chain_of(turn_of(&item.id, &fold)).to_string(), fold.metrics().usage);
    Some(About {
        chain: cut(&chain),
        tokens: used.total(),
        cost: used.cost.dollars(),
        task: task.body.to_string(),
        from_agent: task.from_agent.as_ref().map(ToString::to_string),
        since: since.or(Some(fold.last_at())),
    })
}

/// The turn that an item is about; 0 if it is about none.
fn turn_of(id: &ItemId, fold: &Run) -> u32 {
    match id {
        ItemId::Pending(PendingId::Approval(approval)) => {
            let asked = fold.pending().into_iter().find_map(|pending| match pending {
                Pending::Approval(envelope) if envelope.id() == *approval => Some(envelope.request.turn.number),
                _ => None,
            });
            asked.unwrap_or_default()
        }
        ItemId::Pending(PendingId::Question(question)) => question.request.turn.number,
        ItemId::Pending(PendingId::Node(turn) | PendingId::Attention(turn)) | ItemId::DeadLetter(turn) => turn.number,
        ItemId::Agent(_) | ItemId::File(_) | ItemId::Quarantined(_) | ItemId::Conflict(_) => 0,
    }
}

/// When a run began to wait for this, by its events.
fn since(history: &[RunEvent], id: &PendingId) -> Option<Timestamp> {
    history.iter().rev().find_map(|event| match (id, event) {
        (PendingId::Approval(id), RunEvent::ApprovalAsked { envelope, at, .. }) if envelope.id() == *id => Some(*at),
        (PendingId::Attention(turn), RunEvent::NeedsAttention { turn: number, at, .. }) if *number == turn.number => {
            Some(*at)
        }
        // A handoff waits since the end of its turn.
        (PendingId::Approval(id), RunEvent::TurnEnded { verdict: Verdict::Parked(envelope), at, .. })
            if envelope.id() == *id =>
        {
            Some(*at)
        }
        _ => None,
    })
}
