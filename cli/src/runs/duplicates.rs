//! Runs and conversations of an import that a store of the project has already: importing them would store each twice.

use std::collections::BTreeSet;

use callboard::messages::{RunId, visible};

use crate::command_line::command_line;
use crate::page::{Failure, shown_path};
use crate::quote::quoted;
use crate::run_names::short;
use crate::stores::open::OpenStores;
use crate::stores::store::Store;

/// How many duplicates an error names.
const NAMED: usize = 3;

/// The remedy that works in every case.
const ELSEWHERE: &str = "import the export into a store of its own with --store FOLDER";

/// Refuses runs and conversations that both have, unless they are imported `again` and are the same.
pub(crate) async fn check(imported: &Store, project: &OpenStores, again: bool) -> Result<(), Failure> {
    if let Some(exit) = project.exit() {
        let unknown = "nothing is imported: whether the project has these runs already is not known".to_owned();
        return Err(Failure::new(exit, unknown).with(&project.notes()).with(&format!("or {ELSEWHERE}")));
    }
    let duplicates = Duplicates::find(imported, project).await?;
    let (refused, what, help) = if again {
        (duplicates.different, "with other content", "")
    } else {
        (duplicates.all, "already", "import it with --again to store it twice, ")
    };
    if refused.is_empty() {
        return Ok(());
    }
    let mut text = format!("nothing is imported: the project has {what}");
    text.extend(refused.iter().take(NAMED).map(|duplicate| format!("\n  {duplicate}")));
    if refused.len() > NAMED {
        text.push_str(&format!("\n  and {} more", refused.len() - NAMED));
    }
    Err(Failure::usage(format!("{text}\nremove it first, {help}or {ELSEWHERE}")))
}

/// Runs and conversations that both have: lines that name the store and the command that removes them.
#[derive(Default)]
struct Duplicates {
    all: Vec<String>,
    /// Those whose content differs.
    different: Vec<String>,
}

impl Duplicates {
    async fn find(imported: &Store, project: &OpenStores) -> Result<Self, Failure> {
        let mut duplicates = Self::default();
        let runs: BTreeSet<RunId> = imported.ids().await?.into_iter().collect();
        let conversations = imported.conversations().list().await.map_err(Failure::of)?;
        for other in &project.stores {
            let place = shown_path(other.place());
            for run in other.ids().await?.into_iter().filter(|run| runs.contains(run)) {
                let is_same = is_same_run(imported, other, run).await;
                let line = command_line(&format!("runs delete {}", short(run)), Some(other.place()));
                duplicates.note(format!("run {} in {place}: {}", short(run), visible(&line)), is_same);
            }
            for conversation in conversations.iter().map(|info| &info.id) {
                let [here, there] = [imported, other].map(Store::conversations);
                let there = there.read(conversation).await.map_err(Failure::of)?;
                if !there.is_empty() {
                    let is_same = here.read(conversation).await.map_err(Failure::of)? == there;
                    let id = conversation.as_str();
                    let line = command_line(&format!("conversations delete {}", quoted(id)), Some(other.place()));
                    duplicates.note(format!("conversation {conversation} in {place}: {}", visible(&line)), is_same);
                }
            }
        }
        Ok(duplicates)
    }

    fn note(&mut self, line: String, is_same: bool) {
        if !is_same {
            self.different.push(line.clone());
        }
        self.all.push(line);
    }
}

/// Whether both stores have the same events of a run; `false` if one of them cannot be read.
async fn is_same_run(one: &Store, other: &Store, run: RunId) -> bool {
    match (one.history(run).await, other.history(run).await) {
        (Ok(one), Ok(other)) => one == other,
        (Err(_), _) | (_, Err(_)) => false,
    }
}
