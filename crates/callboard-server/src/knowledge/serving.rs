//! How a server gets its base.

use std::sync::Arc;

use callboard::AgentSpec;
use callboard::messages::AgentName;
use callboard::runtime::AgentError;
use callboard_knowledge::KnowledgeBase;
use callboard_knowledge::intents::IntentLoopConfig;

use super::base::{Facts, FactsCell};
use crate::context::Context;
use crate::routes::Server;

impl Server {
    /// Answers requests about the facts of a base, whose agents ([`agents`](callboard_knowledge::intents::agents)) the board has to have.
    /// Without it, the routes below `/v1/knowledge` answer that there is no base. With it, tasks that name these agents are refused, since
    /// the namespaces of a token would not hold for them. A server that serves already gets a base by [`Server::open_knowledge`].
    #[must_use]
    pub fn knowledge(self, base: &KnowledgeBase, config: IntentLoopConfig) -> Self {
        let renewed = self.context.renewed(self.context.origins.clone());
        let facts = Arc::new(FactsCell::of(Facts { base: base.clone(), config }));
        Self { context: Arc::new(Context { facts, ..renewed }) }
    }

    /// Spawns the agents of a base on the board, and answers requests about its facts from then on, as [`Server::knowledge`] does; so do the
    /// clones of this server that serve already.
    ///
    /// # Errors
    /// An agent cannot be spawned, for example because another one has its name, as all have if the server has a base. Then those that were
    /// spawned are stopped, and the server stays as it was.
    pub async fn open_knowledge(
        &self,
        base: &KnowledgeBase,
        config: IntentLoopConfig,
        agents: impl IntoIterator<Item = AgentSpec>,
    ) -> Result<(), AgentError> {
        let Context { facts, board, .. } = &*self.context;
        let opening = facts.open();
        let mut spawned: Vec<AgentName> = Vec::new();
        for agent in agents {
            let name = agent.name();
            if let Err(error) = board.agents().spawn(agent).await {
                for name in spawned {
                    // One that does not stop has taken no task from a client.
                    let _ = board.agents().stop(name.as_str()).await;
                }
                return Err(error);
            }
            spawned.extend(name);
        }
        opening.set(Facts { base: base.clone(), config });
        Ok(())
    }
}
