//! The base of facts of a server: it has one from the start, or from when a command makes one.

use std::time::Duration;

use callboard::AgentSpec;
use callboard_knowledge::KnowledgeBase;
use callboard_knowledge::intents::{IntentLoopConfig, agents_for};
use callboard_server::Server;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::knowledge::base;
use crate::stores::Stores;

/// How often it is checked whether a base was made.
const INTERVAL: Duration = Duration::from_secs(1);

/// What a base is served with.
pub(super) struct Knowing {
    /// The other agents of the board, which reach facts of the namespaces that they were granted.
    pub(super) others: Vec<AgentSpec>,
    /// The agent that answers queries from what they find.
    pub(super) provider: Option<AgentSpec>,
}

impl Knowing {
    /// The agents that a board with the base has.
    pub(super) fn agents(&self, base: &KnowledgeBase) -> impl Iterator<Item = AgentSpec> + use<> {
        agents_for(base, &self.others).into_iter().chain(self.provider.clone())
    }

    pub(super) fn config(&self) -> IntentLoopConfig {
        let provider = self.provider.as_ref().and_then(|agent| Some(agent.name().ok()?.to_string()));
        IntentLoopConfig { provider, ..IntentLoopConfig::default() }
    }

    /// Serves a base that was just made, and returns a line about it.
    pub(super) async fn open(&self, server: &Server, made: Result<KnowledgeBase, String>) -> String {
        let opened = match made {
            Ok(base) => {
                server.open_knowledge(&base, self.config(), self.agents(&base)).await.map_err(|error| error.to_string())
            }
            Err(why) => Err(why),
        };
        match opened {
            Ok(()) => "the base of facts that was made is served from now on; the agents get the tools for facts at the next start".to_owned(),
            Err(why) => format!("a base of facts was made, and cannot be served: {why}"),
        }
    }
}

/// Waits for a base that a project has not had at the start.
pub(super) struct Awaited {
    ticks: Interval,
    has_base: bool,
    /// Why the base could not be opened at the last check.
    refused: Option<String>,
}

impl Awaited {
    pub(super) fn new(has_base: bool) -> Self {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { ticks, has_base, refused: None }
    }

    /// Returns the base once there is one, or why it cannot be opened, once for each reason.
    pub(super) async fn made(&mut self, stores: &Stores) -> Result<KnowledgeBase, String> {
        if self.has_base {
            std::future::pending::<()>().await;
        }
        loop {
            self.ticks.tick().await;
            match base::open_if_there(stores) {
                Ok(None) => self.refused = None,
                Ok(Some(base)) => {
                    self.has_base = true;
                    return Ok(base);
                }
                Err(failure) if self.refused.as_deref() == Some(failure.text()) => {}
                Err(failure) => {
                    self.refused = Some(failure.text().to_owned());
                    return Err(failure.text().to_owned());
                }
            }
        }
    }
}
