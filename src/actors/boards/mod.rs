//! The other boards on the store: which there are, what they host, and letters to and from them.
//!
//! A letter is a value under a key of its receiver, who watches these keys, and looks at them at intervals as well. Each question has
//! one reply. A board that is gone replies nothing: its callers notice that it is gone, and ask whoever has its runs then.
//!
//! - `letter`: what boards write to each other. `exchange`: questions, replies, and who waits for them.
//! - `actor`: takes what arrives, and looks at which boards there are.
mod actor;
mod exchange;
mod letter;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use parking_lot::RwLock;
use tokio::sync::Notify;

use crate::env::Env;
use crate::messages::{AgentName, BoardEntry};
use crate::storage::{Journal, StorageError};

pub(crate) use actor::BoardsActor;
pub(crate) use exchange::Unreached;
pub(crate) use letter::{Ask, Reply, Sendable};

use exchange::Exchange;

/// What a board knows of the others on its store.
pub(crate) struct Boards {
    env: Env,
    journal: Journal,
    /// The id of this board.
    id: Arc<str>,
    /// The other boards that live.
    others: RwLock<Arc<[BoardEntry]>>,
    /// Whether another board was there at any look.
    has_met_others: AtomicBool,
    exchange: Exchange,
    host: OnceLock<Box<dyn Host>>,
    /// Wakes the delivery: the board is made, or it is time to look.
    look_now: Notify,
}

/// The board itself, for others on its store.
pub(crate) trait Host: Send + Sync {
    /// Does what another board asks for.
    fn answer(&self, ask: Ask) -> BoxFuture<'static, Reply>;

    /// The other boards have changed, or what they host.
    fn others_changed(&self) -> BoxFuture<'static, ()>;

    /// The board has looked at the others. Does not wait for letters.
    fn looked(&self);
}

impl Boards {
    pub(crate) fn new(env: Env, journal: Journal, id: Arc<str>) -> Self {
        let (others, exchange) = (RwLock::new([].into()), Exchange::default());
        let has_met_others = AtomicBool::new(false);
        Self { env, journal, id, others, has_met_others, exchange, host: OnceLock::new(), look_now: Notify::new() }
    }

    /// Whether another board has worked on the store while this one did: the store may have what this board has not seen happen.
    pub(crate) fn has_met_others(&self) -> bool {
        self.has_met_others.load(Ordering::Relaxed)
    }

    /// Sets the board, once it is made: no letter is read before.
    pub(crate) fn serve(&self, host: Box<dyn Host>) {
        let _ = self.host.set(host);
        self.look_now.notify_one();
    }

    /// The other boards that live, as of the last look.
    pub(crate) fn others(&self) -> Arc<[BoardEntry]> {
        Arc::clone(&self.others.read())
    }

    /// Whether another board of this id lives.
    pub(crate) fn lives(&self, id: &str) -> bool {
        self.others.read().iter().any(|board| *board.info.id == *id)
    }

    /// A board that hosts an agent: of two that are drawn, the one with fewer runs.
    pub(crate) fn hosting(&self, agent: &AgentName) -> Option<BoardEntry> {
        let others = self.others();
        let hosting: Vec<&BoardEntry> =
            others.iter().filter(|board| board.info.agent(agent.host()).is_some()).collect();
        let drawn = || hosting.get(self.env.random() as usize % hosting.len().max(1));
        let one = drawn()?;
        let two = if hosting.len() > 1 { drawn()? } else { one };
        let less = if two.info.runs < one.info.runs { two } else { one };
        Some((*less).clone())
    }

    /// Looks at which boards there are; whether others, or what they host, have changed.
    ///
    /// # Errors
    /// What the store reports.
    pub(crate) async fn look(&self) -> Result<bool, StorageError> {
        let boards = self.journal.boards().await?.into_iter();
        let others: Vec<_> = boards.filter(|board| board.info.id != self.id && !board.left.is_zero()).collect();
        let hosted = |boards: &[BoardEntry]| -> Vec<_> {
            boards.iter().map(|board| (Arc::clone(&board.info.id), board.info.agents.clone())).collect()
        };
        let mut known = self.others.write();
        let has_changed = hosted(&known) != hosted(&others);
        self.has_met_others.fetch_or(!others.is_empty(), Ordering::Relaxed);
        *known = others.into();
        Ok(has_changed)
    }
}
