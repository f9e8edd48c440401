//! The base that a server has.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use callboard_knowledge::KnowledgeBase;
use callboard_knowledge::intents::IntentLoopConfig;

/// A base, and how queries of it are repeated.
#[derive(Clone)]
pub(crate) struct Facts {
    pub(crate) base: KnowledgeBase,
    pub(crate) config: IntentLoopConfig,
}

/// The base of a server, which it may get while it serves.
#[derive(Default)]
pub(crate) struct FactsCell {
    facts: OnceLock<Facts>,
    /// How many bases are being opened.
    opening: AtomicUsize,
}

impl FactsCell {
    /// With a base from the start.
    pub(super) fn of(facts: Facts) -> Self {
        Self { facts: OnceLock::from(facts), opening: AtomicUsize::default() }
    }

    pub(crate) fn get(&self) -> Option<&Facts> {
        self.facts.get()
    }

    /// Whether the names of the base's agents are reserved: they are before the first of the agents takes tasks.
    pub(super) fn reserves(&self) -> bool {
        self.get().is_some() || self.opening.load(Ordering::SeqCst) > 0
    }

    /// Reserves the names while a base is opened.
    pub(super) fn open(&self) -> Opening<'_> {
        self.opening.fetch_add(1, Ordering::SeqCst);
        Opening(self)
    }
}

/// The names of a base's agents are reserved as long as this lives, and then if the base was set.
pub(super) struct Opening<'c>(&'c FactsCell);

impl Opening<'_> {
    pub(super) fn set(self, facts: Facts) {
        // Who has a base keeps it: its agents cannot be spawned twice.
        let _ = self.0.facts.set(facts);
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.0.opening.fetch_sub(1, Ordering::SeqCst);
    }
}
