//! Dynamic agents that people have approved to outlive their run: stored under their host, and found by their names.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

use crate::messages::{AgentName, Durability, KeptAgent};
use crate::storage::codec::{self, Stored};
use crate::storage::{Delete, Key, Put, Storage, StorageError};

const ROOT: &str = "kept-agent";
const PAGE: usize = 256;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StoredAgent(KeptAgent);

impl Stored for StoredAgent {
    const SCHEMA: u16 = 21;
    const VERSION: u16 = 1;
    const NAME: &'static str = "kept-agent";
}

/// The kept agents of a board's hosts.
#[derive(Debug)]
pub(crate) struct KeptAgents {
    storage: Arc<dyn Storage>,
    agents: RwLock<BTreeMap<AgentName, KeptAgent>>,
}

fn key_of(agent: &AgentName) -> Key {
    Key::new([ROOT, agent.host(), agent.as_str()])
}

impl KeptAgents {
    pub(super) fn new(storage: Arc<dyn Storage>) -> Self {
        Self { storage, agents: RwLock::default() }
    }

    /// Reads the kept agents of a host.
    pub(crate) async fn read(&self, host: &AgentName) -> Result<Vec<KeptAgent>, StorageError> {
        let (prefix, mut after) = (Key::new([ROOT, host.as_str()]).children(), None);
        let mut agents = Vec::new();
        loop {
            let page = self.storage.scan(&prefix, after.as_ref(), PAGE).await?;
            for (key, entry) in &page {
                let StoredAgent(kept) = codec::decode(&entry.value)
                    .map_err(|error| StorageError::Corrupt { key: key.clone(), detail: error.to_string() })?;
                agents.push(kept);
            }
            match page.last() {
                Some((key, _)) if page.len() == PAGE => after = Some(key.clone()),
                _ => return Ok(agents),
            }
        }
    }

    /// Adds agents that were read.
    pub(crate) fn add(&self, agents: Vec<KeptAgent>) {
        self.agents.write().extend(agents.into_iter().map(|kept| (kept.agent.clone(), kept)));
    }

    /// Stores an agent, or replaces its definition. It is on disk when this returns.
    pub(super) async fn keep(&self, kept: KeptAgent) -> Result<(), StorageError> {
        let (key, value) = (key_of(&kept.agent), codec::encode_shared(&StoredAgent(kept.clone())));
        let put = Put::new(key, value);
        self.storage.put_if_revision(put).await?;
        self.agents.write().insert(kept.agent.clone(), kept);
        Ok(())
    }

    /// Removes an agent. `false` if there is none of this name.
    pub(crate) async fn remove(&self, name: &str) -> Result<bool, StorageError> {
        let Some(agent) = self.named(name) else { return Ok(false) };
        let key = key_of(&agent);
        while let Some(entry) = self.storage.get(&key).await? {
            match self.storage.delete_if_revision(Delete::new(key.clone(), entry.revision, Durability::Sync)).await {
                Ok(()) => break,
                Err(StorageError::WrongRevision { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.agents.write().remove(&agent).is_some())
    }

    /// The kept agent with this name.
    pub(crate) fn named(&self, name: &str) -> Option<AgentName> {
        let agents = self.agents.read();
        agents.values().find(|kept| kept.name() == name || kept.agent.as_str() == name).map(|kept| kept.agent.clone())
    }

    pub(crate) fn get(&self, agent: &AgentName) -> Option<KeptAgent> {
        agent.maker()?;
        self.agents.read().get(agent).cloned()
    }

    pub(crate) fn all(&self) -> Vec<KeptAgent> {
        self.agents.read().values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Authority, Effect, Json, RunId, Timestamp};

    #[test]
    fn the_bytes_of_a_kept_agent_are_golden() {
        let kept = KeptAgent {
            agent: AgentName::new("lead~helper").unwrap(),
            drafts: vec![Json::from(serde_json::json!({ "name": "helper" }))],
            authority: Authority::of([Effect::Reads]),
            run: RunId(uuid::Uuid::from_u128(7)),
            at: Timestamp::from_millis(1000),
        };
        assert_eq!(kept.name(), "helper");
        crate::testing::golden::check(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"), &StoredAgent(kept));
    }
}
