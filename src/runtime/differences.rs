//! Agents that this board and others declare differently: each uses its own, and the log has that once.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::messages::{AgentName, BoardAgent, BoardEntry};

/// The differences that the log has.
#[derive(Default)]
pub(super) struct Differences {
    /// By the id of the other board and the agent: how this board declares it, and how the other one does.
    known: BTreeMap<(Arc<str>, AgentName), [BoardAgent; 2]>,
}

impl Differences {
    /// Notes how the boards that live declare agents, and logs what differs and is not in the log, or was otherwise then.
    pub(super) fn log(&mut self, here: &[BoardAgent], others: &[BoardEntry]) {
        for (board, [here, there]) in self.take_new(here, others) {
            tracing::warn!(
                agent = %here.name, board = &*board.name, ?here, ?there,
                "another board declares the agent differently; each board uses its own"
            );
        }
    }

    /// The differences that were not there the last time, with the other board.
    fn take_new<'b>(
        &mut self,
        here: &[BoardAgent],
        others: &'b [BoardEntry],
    ) -> Vec<(&'b BoardEntry, [BoardAgent; 2])> {
        let (mut now, mut new) = (BTreeMap::new(), Vec::new());
        for board in others {
            for there in &board.info.agents {
                let Some(here) = here.iter().find(|here| here.name == there.name && *here != there) else { continue };
                let (key, both) = ((Arc::clone(&board.info.id), here.name.clone()), [here.clone(), there.clone()]);
                if self.known.get(&key) != Some(&both) {
                    new.push((board, both.clone()));
                }
                now.insert(key, both);
            }
        }
        self.known = now;
        new
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::messages::BoardInfo;

    fn agent(name: &str, role: &str) -> BoardAgent {
        serde_json::from_value(json!({ "name": name, "role": role })).unwrap()
    }

    fn board(name: &str, agents: &[BoardAgent]) -> BoardEntry {
        let info = BoardInfo { id: name.into(), agents: agents.to_vec(), ..BoardInfo::default() };
        BoardEntry { name: name.into(), session: 1, left: Duration::from_secs(1), info }
    }

    #[test]
    fn a_difference_is_reported_once_for_each_board_and_again_when_it_has_changed() {
        let mut differences = Differences::default();
        let mut new = |here: &[BoardAgent], others: &[BoardEntry]| -> Vec<String> {
            differences.take_new(here, others).iter().map(|(board, _)| board.name.to_string()).collect()
        };
        let here = [agent("coder", "author"), agent("clerk", "author")];
        let same = board("a", &[agent("coder", "author"), agent("other", "author")]);
        assert!(new(&here, std::slice::from_ref(&same)).is_empty());
        let differs = board("b", &[agent("coder", "critic")]);
        assert_eq!(new(&here, &[same.clone(), differs.clone()]), ["b"]);
        let client = board("client", &[]);
        assert!(new(&here, &[client, same, differs.clone()]).is_empty(), "other boards come and go");
        let third = board("c", &[agent("coder", "critic")]);
        assert_eq!(new(&here, &[differs.clone(), third]), ["c"]);
        let changed = board("b", &[agent("coder", "judge")]);
        assert_eq!(new(&here, std::slice::from_ref(&changed)), ["b"]);
        assert_eq!(new(&[agent("coder", "critic")], std::slice::from_ref(&changed)), ["b"], "this board has changed");
        assert!(new(&[agent("coder", "judge")], &[changed]).is_empty());
        assert_eq!(new(&here, &[differs]), ["b"]);
    }
}
