//! Runs that no process works on: what they wait for, and what continues them.

use std::collections::BTreeSet;

use callboard::Callboard;
use callboard::messages::{AgentName, RunId, visible};
use callboard::runtime::RunHandle;

use crate::agents::hints;
use crate::command_line::command_line;
use crate::page::{Failure, note};
use crate::run_names::short;
use crate::runs::list;
use crate::stores::Stores;
use crate::stores::store::Store;

/// An open run that no process works on.
pub(crate) struct Left {
    /// Of a database, the agents without which no board takes it over. It continues by itself once a board has them.
    pub(super) agents: BTreeSet<AgentName>,
    /// The command line that continues it, with the agents of this project.
    pub(super) to_continue: String,
    /// The one that starts a server on its store.
    serve: String,
}

impl Left {
    /// The run, whether a process works on it or not.
    pub(super) async fn of(store: &Store, run: RunId, stores: &Stores) -> Result<Self, Failure> {
        let history = store.history(run).await.map_err(Failure::of)?;
        let fold =
            list::folded(history.clone()).map_err(|why| Failure::failed(format!("run {}: {why}", short(run))))?;
        Ok(Self {
            agents: store.agents_lacking(&fold, None).await?,
            to_continue: hints::resumption_of_left(&fold, &history, stores.named()),
            serve: command_line("serve", stores.named()),
        })
    }

    /// The run, if no process works on it; `None` also of a copy of a store, where that is not known.
    pub(super) async fn if_left(store: &Store, run: RunId, stores: &Stores) -> Result<Option<Self>, Failure> {
        match store.is_copy() || store.board_of(run).await?.is_some() {
            true => Ok(None),
            false => Self::of(store, run, stores).await.map(Some),
        }
    }

    /// Why it does not continue by itself.
    pub(super) fn why(&self) -> String {
        match self.agents.is_empty() {
            true => "no process works on it".to_owned(),
            false => format!("waits for a board that has {}", all_of(&self.agents)),
        }
    }

    /// What continues it. `then` is what else is possible after that.
    pub(super) fn remedy(&self, then: &str) -> String {
        match self.agents.is_empty() {
            true => format!("to continue it{then}: {}", visible(&self.to_continue)),
            false => to_serve(&self.agents, then, &self.serve),
        }
    }

    /// Both, where what it waits for cannot be decided before.
    pub(super) fn undecided(&self) -> String {
        format!("{}; {}", self.why(), self.remedy(", and decide then"))
    }
}

/// The agents of a run, as a person reads them.
fn all_of(agents: &BTreeSet<AgentName>) -> String {
    let names: Vec<String> = agents.iter().map(|agent| format!("`{}`", visible(agent.as_str()))).collect();
    names.join(" and ")
}

/// What has a board with these agents continue a run. `then` is what is possible after that, and `serve` the command line of a server.
pub(super) fn to_serve(agents: &BTreeSet<AgentName>, then: &str, serve: &str) -> String {
    let them = if agents.len() == 1 { "it" } else { "them" };
    format!("to start one{then}, in the project that declares {them}: {}", visible(serve))
}

/// Has a board of this process continue a run of its store. If neither this board nor another one has its agents, a line on standard error
/// names them: the run waits, and continues where a board has them.
pub(crate) async fn take_up(board: &Callboard, run: RunId, (stores, store): (&Stores, &Store)) -> RunHandle {
    let run = board.take_up(run).await;
    let lacking = async { store.agents_lacking(&run.read().await.map_err(Failure::of)?, None).await };
    // What the store reports, the run does as well.
    let agents = lacking.await.unwrap_or_default();
    if !agents.is_empty() {
        let (id, names) = (short(run.id()), all_of(&agents));
        let here = if agents.len() == 1 { "which is not here" } else { "which are not all here" };
        let how = to_serve(&agents, "", &command_line("serve", stores.named()));
        note(&format!("run {id} waits for a board that has {names}, {here}; {how}"));
    }
    run
}
