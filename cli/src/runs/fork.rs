//! `callboard runs fork RUN --turn N`.
//!
//! The agents are in the program that uses the store. So this command writes the first events of a run and leaves it open: that
//! program continues it at its next start, as any unfinished run.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::json;

use callboard::env::Env;
use callboard::messages::{Durability, RunId, visible};
use callboard::supervision::runs::{Fork, Replay};

use crate::agents::patterns::is_of_workflow;
use crate::command_line::command_line;
use crate::exit::Exit;
use crate::page::{Failure, Page, brief_json, count};
use crate::run_names::short;
use crate::stores::store::{Loaded, Store};
use crate::values::Setting;

/// Writes the fork of a run to the store.
pub(crate) async fn fork(
    store: &Store,
    loaded: &Loaded,
    turn: u32,
    input: Option<&serde_json::Value>,
    settings: &[Setting],
    named: Option<&Path>,
) -> Result<Page, Failure> {
    for (place, Setting { channel, .. }) in settings.iter().enumerate() {
        if settings[..place].iter().any(|before| before.channel == *channel) {
            return Err(Failure::usage(format!("--set is given twice for {channel:?}: one of them would be lost")));
        }
    }
    let env = Env::system();
    let (run, at) = (RunId(env.id()), env.now().wall);
    let mut fork =
        settings.iter().fold(Fork::new(), |fork, Setting { channel, value }| fork.set(channel, value.clone()));
    fork.input = input.map(|input| input.clone().into());
    let events = fork
        .events(&loaded.history, turn, (run, at), &loaded.rules.state)
        .map_err(|error| Failure::new(Exit::from(&error), format!("run {}: {error}", short(loaded.id))))?;
    let replay = Replay::of(events.clone(), &loaded.rules.state);
    let replay = replay.map_err(|error| Failure::failed(format!("the fork cannot be replayed: {error}")))?;
    store.begin(run, &events, Durability::Sync).await?;

    let open: Vec<_> = replay.turns().filter(|turn| turn.closed.is_none()).collect();
    let copied = replay.turns().count() - open.len();
    let mut text =
        format!("{run}\n\nforked from {} at turn {turn}; {} copied\n", short(loaded.id), count(copied, "turn"));
    for Setting { channel, value } in settings {
        text.push_str(&format!("  {} set to {}\n", visible(channel), brief_json(&value.clone().into(), 200)));
    }
    text.push_str("At its next start the program with the agents continues it, and runs\n");
    for turn in &open {
        text.push_str(&format!(
            "  turn {} ({}) with the input {}\n",
            turn.number,
            turn.agent,
            brief_json(&turn.input, 200)
        ));
    }
    text.push_str("unless it was built to cancel unfinished runs, or to leave them.\n");
    let line = if is_of_workflow(replay.submission()) { "workflow resume" } else { "run --resume" };
    let line = command_line(&format!("{line} {}", short(run)), named);
    text.push_str(&format!("If this program has its agents: {}\n", visible(&line)));
    let open: Vec<_> = open.iter().map(|turn| json!({ "turn": turn.number, "agent": turn.agent })).collect();
    let set: BTreeMap<_, _> = settings.iter().map(|Setting { channel, value }| (channel, value)).collect();
    let json = json!({
        "run": run,
        "forked_from": loaded.id,
        "turn": turn,
        "copied_turns": copied,
        "open_turns": open,
        "set": set,
    });
    Ok(Page { done: Some(format!("the fork {} is in the store", short(run))), ..Page::new(text, json) })
}
