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

use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use parking_lot::RwLock;
use tokio::sync::Notify;

use crate::env::Env;
use crate::messages::{AgentName, BoardEntry};
use crate::storage::{Journal, StorageError};

pub(crate) use actor::BoardsActor;
pub(crate) use exchange::Unreached;
pub(crate) use letter::{Ask, Reply, Sendable, letter_form};

use exchange::Exchange;

/// What a board knows of the others on its store.
pub(crate) struct Boards {
    env: Env,
    journal: Journal,
    /// The id of this board.
    id: Arc<str>,
    /// The other boards that live.
    others: RwLock<Arc<[BoardEntry]>>,
    /// Other boards that live, and whose letters this one cannot read, nor they its.
    apart: RwLock<Vec<BoardEntry>>,
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
}

impl Boards {
    pub(crate) fn new(env: Env, journal: Journal, id: Arc<str>) -> Self {
        let (others, exchange) = (RwLock::new([].into()), Exchange::default());
        let apart = RwLock::default();
        Self { env, journal, id, others, apart, exchange, host: OnceLock::new(), look_now: Notify::new() }
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
        let living = boards.filter(|board| board.info.id != self.id && !board.left.is_zero());
        let (others, apart): (Vec<_>, Vec<_>) = living.partition(|board| board.info.letters == letter_form());
        {
            let mut known = self.apart.write();
            let is_known = |board: &BoardEntry| known.iter().any(|known| known.session == board.session);
            apart.iter().filter(|board| !is_known(board)).for_each(|board| tracing::warn!("{}", why_apart(board)));
            *known = apart;
        }
        let hosted = |boards: &[BoardEntry]| -> Vec<_> {
            boards.iter().map(|board| (Arc::clone(&board.info.id), board.info.agents.clone())).collect()
        };
        let mut known = self.others.write();
        let has_changed = hosted(&known) != hosted(&others);
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
