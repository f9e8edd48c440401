//! How a server gets its base.

use std::sync::Arc;

use callboard_knowledge::KnowledgeBase;
use callboard_knowledge::intents::IntentLoopConfig;

use super::base::Facts;
use crate::context::Context;
use crate::routes::Server;

impl Server {
    /// Answers requests about the facts of a base, whose agents ([`agents`](callboard_knowledge::intents::agents)) the board has to have.
    /// Without it, the routes below `/v1/knowledge` answer that there is no base. With it, tasks that name these agents are refused, since
    /// the namespaces of a token would not hold for them.
    #[must_use]
    pub fn knowledge(self, base: &KnowledgeBase, config: IntentLoopConfig) -> Self {
        let renewed = self.context.renewed(self.context.origins.clone());
        Self { context: Arc::new(Context { facts: Some(Facts { base: base.clone(), config }), ..renewed }) }
    }
}
