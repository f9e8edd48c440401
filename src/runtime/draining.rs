//! Draining: while the turns that have begun finish, a board that is shut down gives its other runs to boards that can continue them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::actors::boards::Ask;
use crate::messages::{AgentName, BoardEntry, RunId};
use crate::storage::{StorageError, newest_format};
use crate::supervision::runs::queue::{HandingOver, ShardMessage};

use super::handle::Callboard;

/// Between two looks for runs whose turns have ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long a shutdown waits for the store to take what is given away.
const GIVEN_WITHIN: Duration = Duration::from_secs(5);

/// Notes that are changed at the same time, and runs in a letter.
const AT_ONCE: usize = 256;

impl Callboard {
    /// Waits until the turns that have begun have finished, at most for the grace of a shutdown, and gives runs to other boards meanwhile.
    pub(super) async fn drain(&self) {
        let board = &self.board;
        let mut settled = pin!(timeout(board.settings.grace, board.scheduler.settled()));
        if board.boards.others().is_empty() {
            let _ = settled.await;
            return;
        }
        // Others give it no more tasks.
        self.say_what_is_here().await;
        let mut has_settled = false;
        loop {
            // What is left of a store that does not answer is taken over when this board has ended.
            let handed_over = timeout(GIVEN_WITHIN, self.hand_over()).await;
            if has_settled || handed_over.is_err() {
                break;
            }
            has_settled = timeout(LOOK_EVERY, &mut settled).await.is_ok();
        }
        if !has_settled {
            let _ = settled.await;
        }
    }

    /// Gives the runs to other boards of which no turn is at work.
    async fn hand_over(&self) {
        let board = &self.board;
        let can_take = |other: &&BoardEntry| !other.info.is_leaving && other.info.reads >= newest_format();
        let heirs: Vec<BoardEntry> = board.boards.others().iter().filter(can_take).cloned().collect();
        if heirs.is_empty() {
            return;
        }
        let choose = Box::new(chooser(heirs));
        let handing_over = Arc::new(HandingOver { begun: board.scheduler.begun(), choose });
        for shard in board.shards.all() {
            let handing_over = Arc::clone(&handing_over);
            let going = self.ask_queue(shard, |reply| ShardMessage::HandOver { handing_over, reply }).await;
            self.give(going.unwrap_or_default()).await;
        }
    }

    /// Lets boards take these runs over. What does not succeed is taken over when this board has ended.
    async fn give(&self, going: Vec<(RunId, Arc<str>)>) {
        let board = &self.board;
        let noted = stream::iter(going).map(|(run, to)| async move {
            let noted = board.ownership.give(run, &to).await;
            noted.map(|()| (to, run))
        });
        let mut letters: BTreeMap<Arc<str>, Vec<RunId>> = BTreeMap::new();
        for noted in noted.buffered(AT_ONCE).collect::<Vec<_>>().await {
            match noted {
                Ok((to, run)) => letters.entry(to).or_default().push(run),
                Err(error) => not_given(&error),
            }
        }
        for (to, runs) in &letters {
            for runs in runs.chunks(AT_ONCE) {
                // The reply is not waited for: the board may be frozen.
                if let Err(error) = board.boards.question(to).send(Ask::TakeOver { runs: runs.to_vec() }).await {
                    not_given(&error);
                }
            }
        }
    }
}

fn not_given(error: &StorageError) {
    tracing::warn!(%error, "runs are not given to other boards; these take them over when this board has ended");
}

/// Chooses the board for a run with these agents: of those with the newest build, the one with the fewest runs, with those that it is
/// given.
fn chooser(heirs: Vec<BoardEntry>) -> impl Fn(&BTreeSet<AgentName>) -> Option<Arc<str>> + Send + Sync {
    let given = Mutex::new(vec![0_usize; heirs.len()]);
    move |agents| {
        let mut given = given.lock();
        let hosts_all =
            |(_, heir): &(usize, &BoardEntry)| agents.iter().all(|agent| heir.info.agent(agent.host()).is_some());
        let order =
            |(at, heir): &(usize, &BoardEntry)| (version(&heir.info.build), Reverse(heir.info.runs + given[*at]));
        let (at, heir) = heirs.iter().enumerate().filter(hosts_all).max_by_key(order)?;
        given[at] += 1;
        Some(Arc::clone(&heir.info.id))
    }
}

/// The numbers of a version, to be compared one by one.
fn version(build: &str) -> Vec<u64> {
    build.split(['.', '-', '+']).map_while(|part| part.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{BoardAgent, BoardInfo};

    fn heir(id: &str, build: &str, runs: usize, agents: &[&str]) -> BoardEntry {
        let agent = |name: &&str| serde_json::from_value(serde_json::json!({ "name": name })).unwrap();
        let agents: Vec<BoardAgent> = agents.iter().map(agent).collect();
        let info = BoardInfo { id: id.into(), build: build.into(), runs, agents, ..BoardInfo::default() };
        BoardEntry { name: id.into(), session: 1, left: Duration::from_secs(1), info }
    }

    #[test]
    fn runs_go_to_the_newest_build_that_has_their_agents_and_are_spread() {
        let choose = chooser(vec![
            heir("old", "0.9.12", 0, &["coder", "writer"]),
            heir("new", "0.10.0", 5, &["coder"]),
            heir("newer", "0.10.0", 6, &["coder"]),
        ]);
        let needs = |agents: &[&str]| agents.iter().map(|name| AgentName::new(name).unwrap()).collect();
        let chosen: Vec<_> = (0..4).map(|_| choose(&needs(&["coder"])).unwrap()).collect();
        assert_eq!(chosen.iter().filter(|id| &***id == "new").count(), 2, "{chosen:?}");
        assert_eq!(chosen.iter().filter(|id| &***id == "newer").count(), 2, "{chosen:?}");
        assert_eq!(choose(&needs(&["coder", "writer"])).as_deref(), Some("old"));
        assert_eq!(choose(&needs(&["reviewer"])), None);
    }
}
