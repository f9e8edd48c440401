//! `callboard workflow history RUN`.

use serde_json::{Value, json};

use callboard::messages::{AgentName, Pending, visible};
use callboard::supervision::runs::{Cause, TurnEnd, TurnStory};
use callboard_server::json as shapes;

use crate::page::{self, Page, brief, brief_json, count, duration, folded, lines_of, table};
use crate::runs::show::{ending, head};
use crate::stores::store::Loaded;

/// How much of a value the table shows, in characters.
const SHOWN: usize = 200;

/// Lists every turn: ended ones in the order in which they ended, each a checkpoint, then open ones.
pub(crate) fn history(loaded: &Loaded) -> Page {
    let replay = &loaded.replay;
    let mut turns: Vec<&TurnStory> = replay.turns().collect();
    turns.sort_by_key(|turn| (turn.closed.map_or(usize::MAX, |(step, _)| step), turn.number));
    let mut table = table(["turn", "node", "agent", "took", "result", "wrote", "state after"], &[0, 3]);
    let mut rows = Vec::new();
    for turn in &turns {
        let step = turn.closed.and_then(|(step, _)| replay.steps().get(step - 1));
        let wrote: Vec<String> =
            step.iter().flat_map(|step| step.changes()).map(|change| brief(&change.to_string(), SHOWN)).collect();
        let took = turn.closed.map(|(_, at)| duration(at.since(turn.begun_at))).unwrap_or_default();
        table.add_row([
            turn.number.to_string(),
            visible(&shown_node(turn)),
            turn.agent.to_string(),
            took,
            ended(loaded, turn),
            wrote.join("\n"),
            step.map(|step| brief_json(step.state(), SHOWN)).unwrap_or_default(),
        ]);
        rows.push(row(loaded, turn, step.map(|step| json!(step.state()))));
    }
    let plan = replay.submission().task.plan.as_ref();
    let name = plan.map(|plan| format!("workflow   {}\n", brief(&plan.name, SHOWN))).unwrap_or_default();
    let text = format!(
        "{name}{}\n{}{}\n{}",
        folded(&head(loaded)),
        lines_of(&table),
        count(turns.iter().filter(|turn| turn.closed.is_some()).count(), "checkpoint"),
        loaded.rules.notes()
    );
    let json = json!({
        "run": loaded.id,
        "workflow": plan.map(|plan| &plan.name),
        "result": replay.result().map(shapes::result),
        "checkpoints": rows,
    });
    Page::new(text, json)
}

fn node(turn: &TurnStory) -> String {
    match &turn.cause {
        Cause::Node { node } | Cause::Compensation { node } => node.clone(),
        Cause::Task | Cause::Handoff { .. } | Cause::Delegation { .. } | Cause::Answer { .. } => String::new(),
    }
}

fn is_compensation(turn: &TurnStory) -> bool {
    matches!(turn.cause, Cause::Compensation { .. })
}

fn shown_node(turn: &TurnStory) -> String {
    page::shown_node(&node(turn), is_compensation(turn))
}

fn ended(loaded: &Loaded, turn: &TurnStory) -> String {
    let is_it = |open: &Pending| matches!(open, Pending::Node(interrupt) if interrupt.turn.number == turn.number);
    let is_interrupted = loaded.replay.run().pending().iter().any(is_it);
    if is_interrupted { "waits for a person".to_owned() } else { ending(&turn.end) }
}

fn row(loaded: &Loaded, turn: &TurnStory, state: Option<Value>) -> Value {
    let (output, writes) = match &turn.end {
        TurnEnd::Command { command, .. } => (command.output.clone(), shapes::stable(&turn.wrote())),
        TurnEnd::Open | TurnEnd::NeedsAttention { .. } | TurnEnd::Failed(_) | TurnEnd::Cancelled => (None, Value::Null),
    };
    let agent: &AgentName = &turn.agent;
    json!({
        "turn": turn.number,
        "node": node(turn),
        "is_compensation": is_compensation(turn),
        "agent": agent,
        "attempts": turn.attempts,
        "input": turn.input,
        "what": ended(loaded, turn),
        "output": output,
        "wrote": writes,
        "state": state,
        "begun_at": shapes::time(turn.begun_at),
        "closed_at": turn.closed.map(|(_, at)| shapes::time(at)),
    })
}
