//! The agents of a workflow on the command line: programs, run once for each turn.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use callboard::messages::visible;
use callboard::prelude::*;

use crate::page::Failure;

use super::arguments::Program;
use super::program::take_turn;

/// Where the board is found once it runs.
pub(crate) type Place = Arc<OnceLock<Callboard>>;

/// An agent for each name of the cast.
///
/// # Errors
/// One has no program, or a program has a name that nobody has.
pub(crate) fn agents(programs: &[Program], cast: &[String], board: &Place) -> Result<Vec<AgentSpec>, Failure> {
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
    let command = |agent: &String| {
        let named = programs.iter().find(|program| program.name == *agent);
        named.or_else(|| programs.iter().find(|program| program.name == "*")).map(|program| program.command.clone())
    };
    let mut seen: Vec<&String> = Vec::new();
    let (mut specs, mut missing) = (Vec::new(), Vec::new());
    for agent in cast {
        if seen.contains(&agent) {
            continue;
        }
        seen.push(agent);
        match command(agent) {
            Some(command) => specs.push(spec(agent, command, board)),
            None => missing.push(format!("  --agent {}='COMMAND'", visible(agent))),
        }
    }
    if missing.is_empty() {
        return Ok(specs);
    }
    let text = format!("no program is given for {}; add\n{}", agents_text(missing.len()), missing.join("\n"));
    Err(Failure::trouble(format!("{text}\nor --agent '*=COMMAND' for all that are not named")))
}

fn agents_text(missing: usize) -> String {
    if missing == 1 { "an agent".to_owned() } else { format!("{missing} agents") }
}

fn spec(agent: &str, command: String, board: &Place) -> AgentSpec {
    let (command, board): (Arc<str>, _) = (command.into(), Arc::clone(board));
    AgentSpec::new(agent, move |turn: Turn| {
        let (command, board) = (Arc::clone(&command), Arc::clone(&board));
        async move {
            let node = match board.get() {
                Some(board) => board.run(turn.id().run).read().await.ok().and_then(|run| run.node_of(turn.id().number)),
                None => None,
            };
            take_turn(&command, &turn, node.as_deref()).await
        }
    })
}
