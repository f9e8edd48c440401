//! All that needs a person, from everywhere on the board where that is known.

use std::collections::BTreeMap;

use callboard::Callboard;
use callboard::messages::{Pending, PendingId};
use tokio::sync::watch;

use crate::agent_files::AgentFiles;
use crate::problem::Problem;
use crate::tokens::{Caller, Scope};

use super::item::{Item, ItemId, ItemKind, in_order};

/// The most failures, and the most of what runs wait for, that are gathered. There may be more, which is then said.
const MAX_FAILURES: usize = 500;
const MAX_PENDING: usize = 10_000;
/// Of so many approvals it is gathered who has approved them; of the others that is read when they are shown.
const MAX_VOTED: usize = 1_000;

/// All items, in the order of the inbox, without what their runs are about.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Gathered {
    pub(crate) items: Vec<Item>,
    /// What runs wait for, whole.
    pending: BTreeMap<String, Pending>,
    /// Whether there are more.
    pub(crate) is_cut: bool,
}

impl Gathered {
    /// What a caller may see.
    pub(crate) fn seen_by(mut self, caller: &Caller) -> Self {
        self.items.retain(|item| may_see(caller, item));
        self
    }

    /// What the run of an item waits for; `None` if it is no such item.
    pub(crate) fn pending_of(&self, item: &Item) -> Option<&Pending> {
        self.pending.get(&item.id.to_string())
    }

    /// How many items there are of each kind.
    #[cfg(feature = "dashboard")]
    pub(crate) fn counts(&self) -> BTreeMap<ItemKind, usize> {
        self.items.iter().fold(BTreeMap::new(), |mut counts, item| {
            *counts.entry(item.kind).or_default() += 1;
            counts
        })
    }

    /// How many items of each kind a caller may see.
    pub(crate) fn counts_for(&self, caller: &Caller) -> BTreeMap<&'static str, usize> {
        let mut counts = BTreeMap::new();
        for item in self.items.iter().filter(|item| may_see(caller, item)) {
            *counts.entry(item.kind.name()).or_default() += 1;
        }
        counts
    }
}

/// Errors of agents and of journals name what the machine has, as the tree of supervisors does.
fn may_see(caller: &Caller, item: &Item) -> bool {
    !matches!(item.kind, ItemKind::FailedAgent | ItemKind::Quarantined) || caller.scopes.contains(&Scope::Admin)
}

/// Where items are gathered from.
#[derive(Clone)]
pub(crate) struct Sources {
    pub(crate) board: Callboard,
    pub(crate) files: Option<watch::Receiver<AgentFiles>>,
}

impl Sources {
    /// Gathers all items.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) async fn gather(&self) -> Result<Gathered, Problem> {
        let refused = self.files.as_ref().map(|files| files.borrow().refused.clone()).unwrap_or_default();
        gather(&self.board, &refused).await
    }
}

/// The same item with those who have approved it so far.
pub(super) async fn with_votes(board: &Callboard, mut item: Item) -> Result<Item, Problem> {
    if let (Some(deciding), ItemId::Pending(PendingId::Approval(id))) = (&mut item.deciding, &item.id) {
        let votes = board.people().votes(*id).await.map_err(|error| Problem::of_store(&error))?;
        (deciding.approved, deciding.missing) = (votes.approved, votes.missing);
    }
    Ok(item)
}

async fn gather(board: &Callboard, refused: &BTreeMap<String, String>) -> Result<Gathered, Problem> {
    let mut pending = board.people().pending().await;
    // Of one more it is known that there are more.
    let failures = board.dead_letters().open(None, MAX_FAILURES + 1).await;
    let mut failures = failures.map_err(|error| Problem::of_store(&error))?;
    let is_cut = pending.len() > MAX_PENDING || failures.len() > MAX_FAILURES;
    pending.truncate(MAX_PENDING);
    failures.truncate(MAX_FAILURES);
    let mut items = Vec::with_capacity(pending.len());
    for (place, open) in pending.iter().enumerate() {
        let item = Item::of_pending(open);
        items.push(if place < MAX_VOTED { with_votes(board, item).await? } else { item });
    }
    items.extend(board.agents().failed().iter().map(|(agent, error)| Item::of_failed_agent(agent, error)));
    items.extend(refused.iter().map(|(name, why)| Item::of_refused_file(name, why)));
    items.extend(board.quarantined().iter().map(|(run, why)| Item::of_quarantined(*run, why)));
    items.extend(failures.iter().map(Item::of_failure));
    in_order(&mut items);
    let pending = pending.into_iter().map(|pending| (pending.id().to_string(), pending)).collect();
    Ok(Gathered { items, pending, is_cut })
}
