//! What a board says about itself to the others on its store.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{AgentName, Authority, Timestamp};

/// What a board says about itself, renewed with its lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BoardInfo {
    /// The board's id, a UUID, unique also among the boards of earlier processes.
    pub id: Arc<str>,
    /// The version of callboard that it was built with.
    #[serde(default)]
    pub build: Arc<str>,
    /// When it began.
    #[serde(default)]
    pub began_at: Timestamp,
    /// Where people and programs reach it, if it has said so ([`Builder::address`](crate::Builder::address)).
    #[serde(default)]
    pub address: Option<Arc<str>>,
    /// The agents that it hosts, by name.
    #[serde(default)]
    pub agents: Vec<BoardAgent>,
    /// Its runs in flight.
    #[serde(default)]
    pub runs: usize,
    /// The names of its channels that ask people, also about what the runs of other boards wait for
    /// ([`Channel::asks_for_other_boards`](crate::actors::approvals::Channel::asks_for_other_boards)), without those that have failed for
    /// good.
    #[serde(default)]
    pub channels: Vec<Arc<str>>,
    /// The approvals that its runs wait for.
    #[serde(default)]
    pub approvals: usize,
    /// The newest format of records that it reads. It leaves runs of newer ones to other boards.
    #[serde(default = "first_format")]
    pub reads: u32,
    /// The form of letters that it reads and writes. Boards of different forms ask each other nothing; one whose words cannot be read at all
    /// has the form 0.
    #[serde(default = "first_format")]
    pub letters: u32,
    /// The process that it is in, by which a board of the same name on the same machine sees that it is gone; `None` if that is not known.
    #[serde(default)]
    pub process: Option<Arc<str>>,
    /// It is being shut down, and leaves its runs to other boards.
    #[serde(default)]
    pub is_leaving: bool,
}

/// What boards read that do not say it.
fn first_format() -> u32 {
    1
}

/// An agent that a board hosts, as the other boards on its store know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BoardAgent {
    /// The agent's name.
    pub name: AgentName,
    /// The role that tasks may be addressed to ([`AgentSpec::role`](crate::AgentSpec::role)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Arc<str>>,
    /// Capabilities that tasks may be addressed to ([`AgentSpec::capability`](crate::AgentSpec::capability)).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub capabilities: Vec<Arc<str>>,
    /// Projects that the agent works on ([`AgentSpec::project`](crate::AgentSpec::project)).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub projects: Vec<Arc<str>>,
    /// What its turns may cause at most ([`AgentSpec::authority`](crate::AgentSpec::authority)). Its own board checks this again.
    #[serde(default = "everything", skip_serializing_if = "is_everything")]
    pub authority: Authority,
    /// The name of its [`Mode`](crate::actors::Mode).
    #[serde(default)]
    pub mode: Arc<str>,
    /// Whether it has tools with effects outside ([`AgentSpec::with_effects`](crate::AgentSpec::with_effects)).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_effects: bool,
}

/// Appends the text of a list of agents.
pub(crate) fn write_agents(agents: &[BoardAgent], bytes: &mut Vec<u8>) {
    let begin = bytes.len();
    if serde_json::to_writer(&mut *bytes, agents).is_err() {
        bytes.truncate(begin);
        bytes.extend_from_slice(b"[]");
    }
}

const fn everything() -> Authority {
    Authority::ALL
}

/// Boards may host very many agents, and most may cause everything.
fn is_everything(authority: &Authority) -> bool {
    *authority == Authority::ALL
}

impl BoardInfo {
    /// What the bytes of a session say.
    pub(crate) fn read(about: &[u8]) -> Option<Self> {
        serde_json::from_slice(about).ok()
    }

    /// What [`BoardInfo::read`] reads: this without its agents, and in their place those of the text that `write` appends, of about this
    /// length. Where they are in the bytes is returned, too.
    pub(crate) fn to_bytes_with(&self, length: usize, write: impl FnOnce(&mut Vec<u8>)) -> (Arc<[u8]>, Range<usize>) {
        // Names and texts before it are in quotes, and quotes in them are written otherwise.
        const NO_AGENTS: &[u8] = b"\"agents\":[]";
        let info = Self { agents: Vec::new(), ..self.clone() };
        let text = serde_json::to_vec(&info).unwrap_or_default();
        let found = text.windows(NO_AGENTS.len()).position(|part| part == NO_AGENTS);
        let (before, after) = text.split_at(found.map_or(0, |at| at + NO_AGENTS.len()));
        let mut bytes = Vec::with_capacity(text.len() + length);
        bytes.extend_from_slice(before.strip_suffix(b"[]").unwrap_or(before));
        let begin = bytes.len();
        write(&mut bytes);
        let agents = begin..bytes.len();
        bytes.extend_from_slice(after);
        (bytes.into(), agents)
    }

    /// As [`BoardInfo::to_bytes_with`], with its own agents.
    pub(crate) fn to_bytes(&self) -> Arc<[u8]> {
        self.to_bytes_with(0, |bytes| write_agents(&self.agents, bytes)).0
    }

    /// The agent of this name, if the board hosts it.
    #[must_use]
    pub fn agent(&self, name: &str) -> Option<&BoardAgent> {
        self.agents.iter().find(|agent| agent.name.as_str() == name)
    }

    /// Whether it has a channel of this name.
    pub(crate) fn has_channel(&self, name: &str) -> bool {
        self.channels.iter().any(|channel| **channel == *name)
    }

    /// The board that asks people by the channel of this name about what the runs of `owner` wait for, of the boards that live: the
    /// owner if it has the channel; otherwise the one with the lowest id that has, which is the one that began first (SEMANTICS 16).
    pub(crate) fn asking<'a>(
        channel: &str,
        owner: &'a Self,
        boards: impl Iterator<Item = &'a Self>,
    ) -> Option<&'a Arc<str>> {
        if owner.has_channel(channel) {
            return Some(&owner.id);
        }
        boards.filter(|board| board.has_channel(channel) && !board.is_leaving).map(|board| &board.id).min()
    }
}

/// A board on a store ([`Callboard::boards`](crate::Callboard::boards)).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BoardEntry {
    /// Its name, which no other board has whose lease lasts.
    pub name: Arc<str>,
    /// The number of its session on the store.
    pub session: u64,
    /// How long its lease lasts unless it is renewed; zero if it is gone and its runs are not all taken over.
    pub left: Duration,
    /// What it said last.
    pub info: BoardInfo,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(id: &str, channels: &[&str]) -> BoardInfo {
        let channels = channels.iter().map(|channel| Arc::from(*channel)).collect();
        BoardInfo { id: id.into(), channels, ..BoardInfo::default() }
    }

    #[test]
    fn the_owner_asks_if_it_can_and_otherwise_the_first_board_that_can() {
        let (a, b, c) = (board("a", &["post"]), board("b", &["bell", "post"]), board("c", &["bell"]));
        let asking = |channel, owner, boards: [&BoardInfo; 3]| {
            BoardInfo::asking(channel, owner, boards.into_iter()).map(|id| id.to_string())
        };
        assert_eq!(asking("bell", &a, [&a, &b, &c]).as_deref(), Some("b"));
        assert_eq!(asking("bell", &a, [&c, &b, &a]).as_deref(), Some("b"), "whatever their order");
        assert_eq!(asking("bell", &c, [&a, &b, &c]).as_deref(), Some("c"));
        assert_eq!(asking("post", &c, [&a, &b, &c]).as_deref(), Some("a"));
        assert_eq!(asking("drum", &c, [&a, &b, &c]), None);
        let leaving = BoardInfo { is_leaving: true, ..b };
        assert_eq!(asking("bell", &a, [&a, &leaving, &c]).as_deref(), Some("c"));
    }

    #[test]
    fn agents_are_written_in_their_place_whatever_else_a_board_says() {
        let agent = |name| -> BoardAgent { serde_json::from_value(serde_json::json!({ "name": name })).unwrap() };
        let text: Arc<str> = r#"","agents":[],""#.into();
        let info = BoardInfo { address: Some(Arc::clone(&text)), build: text, ..board("a", &["agents"]) };
        for agents in [vec![], vec![agent("coder")], vec![agent("coder"), agent("writer")]] {
            let with_agents = BoardInfo { agents: agents.clone(), ..info.clone() };
            let bytes = with_agents.to_bytes();
            assert_eq!(*bytes, *serde_json::to_vec(&with_agents).unwrap());
            assert_eq!(BoardInfo::read(&bytes), Some(with_agents));
            let (bytes, place) = info.to_bytes_with(0, |bytes| write_agents(&agents, bytes));
            assert_eq!(serde_json::from_slice::<Vec<BoardAgent>>(&bytes[place]).unwrap(), agents);
        }
    }

    #[test]
    fn what_is_usual_of_an_agent_is_not_written_and_is_read_as_it_was() {
        let text = r#"{"name":"clerk","mode":"build"}"#;
        let usual: BoardAgent = serde_json::from_str(text).unwrap();
        assert_eq!((usual.authority, usual.has_effects), (Authority::ALL, false));
        assert_eq!(serde_json::to_string(&usual).unwrap(), text);
        let other = BoardAgent {
            role: Some("office".into()),
            capabilities: vec!["filing".into()],
            projects: vec!["taxes".into()],
            authority: Authority::of([]),
            has_effects: true,
            ..usual
        };
        assert_eq!(serde_json::from_str::<BoardAgent>(&serde_json::to_string(&other).unwrap()).unwrap(), other);
    }

    #[test]
    fn a_board_of_an_earlier_build_has_no_channels_and_no_approvals() {
        let info = BoardInfo::read(br#"{"id":"a"}"#).unwrap();
        assert_eq!((info.channels.len(), info.approvals), (0, 0));
    }
}
