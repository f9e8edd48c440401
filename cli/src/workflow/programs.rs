//! The agents of a workflow on the command line: programs, run once for each turn.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use callboard::messages::visible;
use callboard::prelude::*;
use callboard_agents::Models;

use crate::agents::load::{self, LoadedAgents};
use crate::agents::watch::Watch;
use crate::config::{self, limits};
use crate::knowledge::base;
use crate::page::Failure;
use crate::quote::quoted;
use crate::stores::Stores;

use super::arguments::{Execution, Program};
use super::program::take_turn;

/// Agents for a board.
pub(crate) struct Agents {
    pub(crate) specs: Vec<AgentSpec>,
    /// Reloads the agents of the folder when their files change; `None` without a folder.
    pub(crate) watch: Option<Watch>,
    /// What may be used in a day.
    pub(crate) limits: limits::Section,
    /// The models of the folder's agents.
    pub(crate) models: Option<Models>,
}

/// An agent for each name of the cast: its program on the command line, else the folder's agent of this name, else the program for all
/// others. All other agents of the folder are included too: they may delegate to each other.
///
/// # Errors
/// A name has none of these, or a program has a name that the workflow does not have.
pub(crate) async fn agents(
    (execution, workflows): (&Execution, &[PathBuf]),
    stores: Option<&Stores>,
    cast: &[String],
) -> Result<Agents, Failure> {
    let folder = folder_agents(execution, workflows, stores).await?;
    let known = folder.as_ref().map(|loaded| &loaded.names);
    let is_known = |agent: &str| known.is_some_and(|known| known.contains(agent));
    let is_named = |agent: &String| execution.agent.iter().any(|program| program.name == *agent || program.name == "*");
    if let Some(loaded) = &folder {
        let missing = cast.iter().filter(|agent| !loaded.names.contains(*agent) && !is_named(agent));
        missing.into_iter().try_for_each(|agent| loaded.invalid.check(agent))?;
    }
    let mut specs = programs(&execution.agent, cast, is_known)?;
    let limits = match execution.folder.files(workflows).filter(|_| folder.is_some()) {
        Some(files) => {
            let config = config::read(&files)??;
            config.check_prices(folder.as_ref().map(|loaded| &*loaded.unpriced).unwrap_or_default())?;
            config.limits
        }
        None => limits::Section::default(),
    };
    let (watch, models) = folder.map_or((None, None), |loaded| {
        specs.extend(loaded.specs);
        (loaded.watch, loaded.models)
    });
    Ok(Agents { specs, watch, limits, models })
}

/// The agents of the folder, without those whose names programs of the command line have; `None` without a folder. Their tools may not
/// access the store.
async fn folder_agents(
    execution: &Execution,
    workflows: &[PathBuf],
    stores: Option<&Stores>,
) -> Result<Option<LoadedAgents>, Failure> {
    let Some(files) = execution.folder.files(workflows) else { return Ok(None) };
    let programs: Vec<&str> = execution.agent.iter().map(|program| &*program.name).collect();
    let facts = stores.map(base::open_if_there).transpose()?.flatten();
    let hidden = stores.map(Stores::folder);
    load::load(&files, hidden, facts.as_ref(), execution.folder.model.as_deref(), &programs).await.map(Some)
}

fn programs(programs: &[Program], cast: &[String], is_known: impl Fn(&str) -> bool) -> Result<Vec<AgentSpec>, Failure> {
    for (position, program) in programs.iter().enumerate() {
        let name = &program.name;
        if programs[..position].iter().any(|before| before.name == *name) {
            return Err(Failure::usage(format!("--agent is given twice for {}", visible(name))));
        }
        if name != "*" && !cast.contains(name) {
            let known: BTreeSet<String> = cast.iter().map(|agent| visible(agent)).collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            let text = format!("the workflow has no agent {}; it has {known}", visible(name));
            return Err(Failure::usage(text));
        }
    }
    let program =
        |name: &str| programs.iter().find(|program| program.name == name).map(|program| program.command.clone());
    let mut seen: Vec<&String> = Vec::new();
    let (mut specs, mut missing) = (Vec::new(), Vec::new());
    for agent in cast {
        if seen.contains(&agent) {
            continue;
        }
        seen.push(agent);
        let is_known = is_known(agent);
        match program(agent).or_else(|| program("*").filter(|_| !is_known)) {
            Some(command) => specs.push(spec(agent, command)),
            None if is_known => {}
            None => missing.push(format!("  --agent {}='COMMAND'", visible(&quoted(agent)))),
        }
    }
    if missing.is_empty() {
        return Ok(specs);
    }
    let text = format!("no program is given for {}; add\n{}", agents_text(missing.len()), missing.join("\n"));
    Err(Failure::usage(format!(
        "{text}\nor --agent '*=COMMAND' for all that are not named, or --agents FOLDER with agents in files"
    )))
}

fn agents_text(missing: usize) -> String {
    if missing == 1 { "an agent".to_owned() } else { format!("{missing} agents") }
}

fn spec(agent: &str, command: String) -> AgentSpec {
    let command: Arc<str> = command.into();
    AgentSpec::new(agent, move |turn: Turn| {
        let command = Arc::clone(&command);
        async move { take_turn(&command, &turn).await }
    })
}
