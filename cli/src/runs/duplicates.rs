//! Runs and conversations of an import that a store of the project has already: read in once more, each would be there twice.

use std::collections::BTreeSet;

use callboard::messages::RunId;

use crate::page::{Failure, shown_path};
use crate::quote::quoted;
use crate::stores::open::Open;
use crate::stores::store::{self, Store};

/// How many doubles are named.
const NAMED: usize = 3;

/// The way out that is always there.
const ELSEWHERE: &str = "read the export into a store of its own with --store FOLDER";

/// Refuses what is in both, unless it is to be read `again` and is the same.
pub(crate) async fn check(imported: &Store, project: &Open, again: bool) -> Result<(), Failure> {
    if !project.closed.is_empty() {
        let unknown = "nothing is imported: whether the project has these runs already is not known".to_owned();
        return Err(Failure::trouble(unknown).with(&project.notes()).with(&format!("or {ELSEWHERE}")));
    }
    let doubles = Doubles::find(imported, project).await?;
    let (refused, what, help) = if again {
        (doubles.different, "with other content", "")
    } else {
        (doubles.all, "already", "import it with --again to have it double, ")
    };
    if refused.is_empty() {
        return Ok(());
    }
    let mut text = format!("nothing is imported: the project has {what}");
    text.extend(refused.iter().take(NAMED).map(|double| format!("\n  {double}")));
    if refused.len() > NAMED {
        text.push_str(&format!("\n  and {} more", refused.len() - NAMED));
    }
    Err(Failure::trouble(format!("{text}\nremove it first, {help}or {ELSEWHERE}")))
}

/// What is in both, as lines that say where and how it is removed.
#[derive(Default)]
struct Doubles {
    all: Vec<String>,
    /// Those that are not the same in both.
    different: Vec<String>,
}

impl Doubles {
    async fn find(imported: &Store, project: &Open) -> Result<Self, Failure> {
        let mut doubles = Self::default();
        let runs: BTreeSet<RunId> = imported.ids().await?.into_iter().collect();
        let conversations = imported.conversations().list().await.map_err(store::trouble)?;
        for other in &project.stores {
            let place = shown_path(other.folder());
            for run in other.ids().await?.into_iter().filter(|run| runs.contains(run)) {
                let is_same = is_same_run(imported, other, run).await;
                doubles.note(format!("run {run} in {place}: callboard runs delete {run}"), is_same);
            }
            for conversation in conversations.iter().map(|info| &info.id) {
                let [here, there] = [imported, other].map(Store::conversations);
                let there = there.read(conversation).await.map_err(store::trouble)?;
                if !there.is_empty() {
                    let is_same = here.read(conversation).await.map_err(store::trouble)? == there;
                    let id = conversation.as_str();
                    let line = format!("callboard conversations delete {}", quoted(id));
                    doubles.note(format!("conversation {conversation} in {place}: {line}"), is_same);
                }
            }
        }
        Ok(doubles)
    }

    fn note(&mut self, line: String, is_same: bool) {
        if !is_same {
            self.different.push(line.clone());
        }
        self.all.push(line);
    }
}

/// Whether both stores have the same events of a run. One that cannot be read is not known to be.
async fn is_same_run(one: &Store, other: &Store, run: RunId) -> bool {
    match (one.history(run).await, other.history(run).await) {
        (Ok(one), Ok(other)) => one == other,
        (Err(_), _) | (_, Err(_)) => false,
    }
}
