//! The base that a server has.

use callboard_knowledge::KnowledgeBase;
use callboard_knowledge::intents::IntentLoopConfig;

/// A base, and how queries of it are repeated.
#[derive(Clone)]
pub(crate) struct Facts {
    pub(crate) base: KnowledgeBase,
    pub(crate) config: IntentLoopConfig,
}
