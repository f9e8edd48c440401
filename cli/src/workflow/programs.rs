//! The agents of a workflow on the command line: programs, run once for each turn.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callboard::messages::visible;
use callboard::prelude::*;

use crate::agents::load::{self, Thinkers};
use crate::agents::watch::Watch;
use crate::page::Failure;
use crate::quote::quoted;

use super::arguments::{Going, Program};
use super::program::take_turn;

/// Agents for a board.
pub(crate) struct Agents {
    pub(crate) specs: Vec<AgentSpec>,
    /// Has those that think be as their files say; there is none without a folder.
    pub(crate) watch: Option<Watch>,
}

/// An agent for each name of the cast: the program that is named for it, else one that thinks, else the program for all others.
/// Of those that think, all are there whose names no program has: they may give tasks to each other.
///
/// # Errors
/// One has neither, or a program has a name that nobody has.
pub(crate) async fn agents(
    (going, workflows): (&Going, &[PathBuf]),
    store: Option<&Path>,
    cast: &[String],
) -> Result<Agents, Failure> {
    let thinkers = thinkers(going, workflows, store).await?;
    let known = thinkers.as_ref().map(|thinkers| &thinkers.names);
    let is_known = |agent: &str| known.is_some_and(|known| known.contains(agent));
    let is_named = |agent: &String| going.agent.iter().any(|program| program.name == *agent || program.name == "*");
    if let Some(thinkers) = &thinkers {
        let missing = cast.iter().filter(|agent| !thinkers.names.contains(*agent) && !is_named(agent));
        missing.into_iter().try_for_each(|agent| thinkers.broken.check(agent))?;
    }
    let mut specs = programs(&going.agent, cast, is_known)?;
    let watch = thinkers.map(|thinkers| {
        specs.extend(thinkers.specs);
        thinkers.watch
    });
    Ok(Agents { specs, watch })
}

/// The agents of the folder that is named, if one is, but for those that are programs. No tool of theirs sees the store.
async fn thinkers(going: &Going, workflows: &[PathBuf], store: Option<&Path>) -> Result<Option<Thinkers>, Failure> {
    let Some(files) = going.thinkers.files(workflows) else { return Ok(None) };
    let programs: Vec<&str> = going.agent.iter().map(|program| &*program.name).collect();
    load::load(&files, store, going.thinkers.model.as_deref(), &programs).await.map(Some)
}

fn programs(programs: &[Program], cast: &[String], is_known: impl Fn(&str) -> bool) -> Result<Vec<AgentSpec>, Failure> {
    for (position, program) in programs.iter().enumerate() {
        let name = &program.name;
        if programs[..position].iter().any(|before| before.name == *name) {
            return Err(Failure::trouble(format!("--agent is given twice for {}", visible(name))));
        }
        if name != "*" && !cast.contains(name) {
            let known: BTreeSet<String> = cast.iter().map(|agent| visible(agent)).collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            let text = format!("the workflow has no agent {}; it has {known}", visible(name));
            return Err(Failure::trouble(text));
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
    Err(Failure::trouble(format!(
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
