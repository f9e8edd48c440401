//! Sets the states by which visitors find agents: the role in the room of each, and the rooms in the space.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use callboard::messages::{AgentName, Presence, visible};
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::Shared;
use crate::matrix::api::CallError;

const CHILD: &str = "m.space.child";
const PARENT: &str = "m.space.parent";

/// What was set, or refused, since the process or the room's powers have begun.
#[derive(Debug, Default)]
pub(super) struct Announced {
    /// The roles, by the rooms.
    roles: BTreeMap<String, Value>,
    /// The rooms that the space has.
    in_space: BTreeSet<String>,
}

impl Announced {
    /// Has the states of a room set again.
    pub(super) fn retry(&mut self, room: &str) {
        self.roles.remove(room);
        self.in_space.remove(room);
    }

    /// Has the rooms set in the space again.
    pub(super) fn retry_space(&mut self) {
        self.in_space.clear();
    }
}

impl Shared {
    /// Sets the states of rooms that can be used, and again when an agent comes or goes.
    pub(super) async fn announce(self: Arc<Self>) {
        let (kept, following) = (&self.opened.kept, &self.opened.following);
        let (mut delays, mut changes, mut presence) = (kept.delays(), kept.changes(), self.board.agents().presence());
        loop {
            changes.mark_unchanged();
            match self.announce_all().await {
                Ok(()) => delays = kept.delays(),
                Err(error) => {
                    tracing::debug!(%error, "the role of an agent is not set on Matrix yet");
                    following.wait(kept, &error, &mut delays).await;
                    continue;
                }
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                came = presence.recv() => if matches!(came, Err(RecvError::Closed)) { return },
            }
        }
    }

    /// # Errors
    /// A call is to be made again.
    async fn announce_all(&self) -> Result<(), CallError> {
        let (ready, roster) = (self.opened.following.rooms.lock().ready().clone(), self.board.agents().roster());
        let space = self.opened.config.space.as_ref().filter(|space| ready.contains(*space));
        for (room, agent) in self.opened.agents.iter().filter(|(room, _)| ready.contains(*room)) {
            let role = role(agent, &roster);
            if self.opened.announced.lock().roles.get(room) != Some(&role) {
                let kind = format!("{}.role", self.opened.config.prefix);
                self.set(room, (&kind, ""), &role, |there| *there == role).await?;
                self.opened.announced.lock().roles.insert(room.clone(), role);
            }
            if let Some(space) = space.filter(|_| !self.opened.announced.lock().in_space.contains(room)) {
                let account = self.opened.following.api.account().await?;
                let via = json!([account.split_once(':').map_or("", |(_, server)| server)]);
                // What people have set there stays.
                let is_set = |there: &Value| there["via"].is_array();
                self.set(space, (CHILD, room), &json!({ "via": via }), is_set).await?;
                self.set(room, (PARENT, space), &json!({ "via": via, "canonical": true }), is_set).await?;
                self.opened.announced.lock().in_space.insert(room.clone());
            }
        }
        Ok(())
    }

    /// Sets a state of a room, unless it is as wanted; where the room does not take it, that is reported.
    async fn set(
        &self,
        room: &str,
        (kind, key): (&str, &str),
        content: &Value,
        is_set: impl Fn(&Value) -> bool,
    ) -> Result<(), CallError> {
        let following = &self.opened.following;
        let set = async {
            if following.api.state(room, (kind, key)).await?.is_some_and(|there| is_set(&there)) {
                return Ok(());
            }
            following.api.set_state(room, (kind, key), content).await
        };
        let refused = match set.await {
            Ok(()) => None,
            Err(error) => Some(error.of_room()?),
        };
        let lacking = refused.map(|why| {
            let (room, kind) = (visible(room), visible(kind));
            format!("the account may not set the state {kind} in the room {room} ({why}): let it, or do without")
        });
        if following.rooms.lock().set_lacking(&format!("{room} {kind} {key}"), lacking) {
            following.report_rooms();
        }
        Ok(())
    }
}

/// What an agent announces of itself, as its room has it.
fn role(agent: &AgentName, roster: &[Presence]) -> Value {
    let presence = roster.iter().find(|presence| presence.agent == *agent);
    json!({
        "role": presence.and_then(|presence| presence.role.as_deref()),
        "capabilities": presence.map(|presence| &*presence.capabilities).unwrap_or_default(),
        "projects": presence.map(|presence| &*presence.projects).unwrap_or_default(),
        "instance_name": agent,
        "is_available": presence.is_some_and(|presence| presence.is_available),
    })
}
