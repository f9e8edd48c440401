//! The other boards on the store: which there are, what they host, and letters to and from them.
//!
//! A letter is a value under a key of its receiver, who watches these keys, and looks at them at intervals as well. Each question has
//! one reply. A board that is gone replies nothing: its callers notice that it is gone, and ask whoever has its runs then.
//!
//! - `letter`: what boards write to each other. `exchange`: questions, replies, and who waits for them.
//! - `actor`: takes what arrives, and looks at which boards there are. `share`: this board's part of what all may use together.
mod actor;
mod exchange;
mod letter;
mod share;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::RwLock;
use tokio::sync::Notify;

use crate::env::Env;
use crate::messages::{AgentName, BoardEntry, BoardInfo};
use crate::storage::{Journal, StorageError};

pub(crate) use actor::BoardsActor;
pub(crate) use exchange::{Address, Question, Unreached};
pub(crate) use letter::{Ask, Reply, Sendable, letter_form};
pub use share::{BoardShare, ShareReading};

use exchange::Exchange;

/// What a board knows of the others on its store.
pub(crate) struct Boards {
    env: Env,
    journal: Journal,
    /// The id of this board.
    id: Arc<str>,
    /// The other boards that live.
    others: RwLock<Arc<[BoardEntry]>>,
    /// Its part of what all boards may use together, and how often each looks how many there are.
    share: (BoardShare, Duration),
    /// Looks that have begun, and the last one whose result is known: of an earlier one that ends later, nothing is taken.
    looks: (AtomicU64, AtomicU64),
    /// Whether another board was there at any look.
    has_met_others: AtomicBool,
    /// Other boards that live, and whose letters this one cannot read, nor they its.
    apart: RwLock<Vec<BoardEntry>>,
    exchange: Exchange,
    host: OnceLock<Box<dyn Host>>,
    /// Wakes the delivery: the board is made, or it is time to look.
    look_now: Notify,
    /// Wakes what deletes letters that were read.
    has_read: Notify,
}

/// The board itself, for others on its store.
pub(crate) trait Host: Send + Sync {
    /// Does what another board asks for. The reply goes to the address; `None` if it was written with a record.
    fn answer(&self, ask: Ask, address: Address) -> BoxFuture<'static, Option<Reply>>;

    /// The other boards have changed, or what they host.
    fn others_changed(&self) -> BoxFuture<'static, ()>;

    /// The board has looked at the others. Does not wait for letters.
    fn looked(&self);
}

impl Boards {
    pub(crate) fn new(env: Env, journal: Journal, id: Arc<str>, share: (BoardShare, Duration)) -> Self {
        let (others, exchange) = (RwLock::new([].into()), Exchange::default());
        let (looks, host) = Default::default();
        let (has_met_others, look_now, has_read) = (AtomicBool::new(false), Notify::new(), Notify::new());
        let apart = RwLock::default();
        Self { env, journal, id, others, apart, share, looks, has_met_others, exchange, host, look_now, has_read }
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

    /// Whether another board of this id lives, also one that cannot be asked.
    pub(crate) fn lives(&self, id: &str) -> bool {
        self.others.read().iter().any(|board| *board.info.id == *id) || self.apart(id).is_some()
    }

    /// Why a board that lives cannot be asked, if it is so.
    fn apart(&self, id: &str) -> Option<String> {
        self.apart.read().iter().find(|board| *board.info.id == *id).map(why_apart)
    }

    /// A board that hosts an agent, and is not being shut down: of two that are drawn, the one with fewer runs.
    pub(crate) fn hosting(&self, agent: &AgentName) -> Option<BoardEntry> {
        let others = self.others();
        let hosting: Vec<&BoardEntry> =
            others.iter().filter(|board| !board.info.is_leaving && board.info.agent(agent.host()).is_some()).collect();
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
        let look = self.looks.0.fetch_add(1, Ordering::Relaxed) + 1;
        let boards = self.journal.boards().await?;
        let hosts = |board: &&BoardEntry| !board.info.agents.is_empty();
        // Of boards that begin at the same time, all but the first one that is written see another here.
        let me = boards.iter().filter(hosts).any(|board| board.info.id == self.id);
        let living: Vec<_> =
            boards.into_iter().filter(|board| board.info.id != self.id && !board.left.is_zero()).collect();
        let hosting = living.iter().filter(hosts).count();
        let (others, apart): (Vec<_>, Vec<_>) =
            living.into_iter().partition(|board| board.info.letters == letter_form());
        let hosted = |boards: &[BoardEntry]| -> Vec<_> {
            let hosted = |info: &BoardInfo| (Arc::clone(&info.id), info.is_leaving, info.agents.clone());
            boards.iter().map(|board| hosted(&board.info)).collect()
        };
        let mut known = self.others.write();
        if self.looks.1.fetch_max(look, Ordering::Relaxed) > look {
            return Ok(false);
        }
        {
            let mut known = self.apart.write();
            let is_known = |board: &BoardEntry| known.iter().any(|known| known.session == board.session);
            apart.iter().filter(|board| !is_known(board)).for_each(|board| tracing::warn!("{}", why_apart(board)));
            *known = apart;
        }
        let (share, look_every) = &self.share;
        share.look(hosting, me.then_some(&self.id), *look_every);
        let has_changed = hosted(&known) != hosted(&others);
        self.has_met_others.fetch_or(!others.is_empty(), Ordering::Relaxed);
        *known = others.into();
        Ok(has_changed)
    }
}

/// Why this board and another one leave each other alone.
fn why_apart(BoardEntry { name, info, .. }: &BoardEntry) -> String {
    let (own, build) = (letter_form(), env!("CARGO_PKG_VERSION"));
    match info.letters {
        0 => format!(
            "board {name} on the store cannot be read by this one (build {build}), which asks it nothing and leaves its runs alone; have both \
             run the newer build"
        ),
        letters => format!(
            "board {name} on the store (build {}) writes letters of form {letters}, and this one (build {build}) those of form {own}: neither \
             asks the other anything; have both run the newer build",
            info.build
        ),
    }
}
