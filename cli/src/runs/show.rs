//! `callboard runs show RUN`.

use serde_json::{Value, json};

use callboard::env::Env;
use callboard::messages::{AgentName, Cost, Flow, Json, RunEvent, Usage, Verdict, visible};
use callboard::supervision::runs::{Cause, Deed, Replay, Run, TurnEnd, TurnStory};
use callboard_server::json::{self as shapes, stable};

use crate::page::{
    Failure, Page, brief, brief_json, brief_lines, count, duration, folded, grouped, lines_of, table, time, whole_json,
};
use crate::run_names::{both, short};
use crate::runs::list::status;
use crate::stores::store::Loaded;
use crate::waits;

/// How many names or actions one line lists.
const SHOWN: usize = 10;

/// Shows one run.
pub(crate) fn show(loaded: &Loaded) -> Result<Page, Failure> {
    let Loaded { id, replay, history, rules } = loaded;
    let now = Env::system().now().wall;
    let flow = Flow::of(history, Run::late_turns(history, &rules.state));
    let mut text = folded(&head(loaded));
    text.push_str(&format!("\n{}", lines_of(&turns_table(replay))));
    let drawn = flow.to_string();
    if !drawn.is_empty() {
        text.push_str(&folded(&format!("\nflow\n{}", indented(&drawn))));
    }
    let state = replay.state();
    text.push_str(&folded(&format!("\nstate\n{}{}", whole_json(state, "  "), rules.notes())));
    let json = json!({
        "run": id,
        "submission": shapes::submission(replay.submission()),
        "status": shapes::status(replay.run(), now),
        "waits_for": waits::all_json(replay.run(), now),
        "result": replay.result().map(shapes::result),
        "metrics": stable(&replay.run().metrics()),
        "state": state,
        "turns": replay.turns().map(turn_json).collect::<Vec<_>>(),
        "flow": drawn,
    });
    Ok(Page::new(text, json))
}

/// The lines with the run's task, outcome, usage and waits.
pub(crate) fn head(loaded: &Loaded) -> String {
    let Loaded { id, replay, .. } = loaded;
    let now = Env::system().now().wall;
    let (submission, metrics) = (replay.submission(), replay.run().metrics());
    let mut lines = vec![("run", both(*id)), ("task", brief(&submission.task.body, 400))];
    lines.extend(submission.task.input.as_ref().map(|input| ("input", brief_json(input, 400))));
    lines.push(("agent", submission.agent.to_string()));
    lines.push(("submitted", time(submission.at)));
    lines.extend(replay.steps().iter().rev().find_map(|step| match &step.event {
        RunEvent::Forked { from, .. } => Some(("forked", format!("from turn {} of {}", from.number, short(from.run)))),
        _ => None,
    }));
    let outcome = match replay.result() {
        Some(result) => brief(&result.outcome.to_string(), 400),
        None => status(replay.run(), now),
    };
    lines.push(("outcome", format!("{outcome}, after {}", duration(metrics.elapsed))));
    let result = replay.result().filter(|result| !result.output.is_null());
    lines.extend(result.map(|result| ("output", output(&result.output))));
    let limits = submission.limits();
    lines.push((
        "spent",
        format!(
            "{} of {} tokens{}, {} of {}",
            grouped(metrics.tokens_spent),
            grouped(limits.tokens),
            cost(metrics.usage),
            metrics.handoffs,
            count(limits.handoffs as usize, "handoff")
        ),
    ));
    lines.extend(replay.run().pending().iter().map(|wait| waits::line(wait, now)));
    lines.into_iter().map(|(name, value)| format!("{name:<10} {value}\n")).collect()
}

/// A text keeps its lines, behind a bar that tells them from those of this page; anything else is in one line.
fn output(output: &Json) -> String {
    match output.as_str() {
        Some(text) => brief_lines(text, 400).replace('\n', "\n  │ "),
        None => brief_json(output, 400),
    }
}

fn turns_table(replay: &Replay) -> comfy_table::Table {
    let mut table = table(["turn", "agent", "try", "what it did", "tokens", "began", "took"], &[0, 2, 4, 5, 6]);
    for turn in replay.turns() {
        let began = turn.begun_at.since(replay.submission().at);
        table.add_row([
            turn.number.to_string(),
            turn.agent.to_string(),
            turn.attempts.to_string(),
            actions(turn),
            tokens_and_cost(turn.usage),
            format!("+{}", duration(began)),
            turn.closed.map(|(_, at)| duration(at.since(turn.begun_at))).unwrap_or_default(),
        ]);
    }
    table
}

/// `15 tokens ($0.00002)`.
pub(crate) fn tokens_used(usage: Usage) -> String {
    let tokens = usage.total();
    format!("{} {}{}", grouped(tokens), if tokens == 1 { "token" } else { "tokens" }, cost(usage))
}

/// Tokens, and their cost if it is known.
fn tokens_and_cost(usage: Usage) -> String {
    grouped(usage.total()) + &cost(usage)
}

fn cost(usage: Usage) -> String {
    if usage.cost == Cost::default() { String::new() } else { format!(" ({})", usage.cost) }
}

/// What a turn did and how it ended, in a few words.
pub(crate) fn actions(turn: &TurnStory) -> String {
    let mut parts: Vec<String> = match &turn.cause {
        Cause::Compensation { node } => vec![format!("compensates {}", brief(node, 80))],
        Cause::Task | Cause::Handoff { .. } | Cause::Delegation { .. } | Cause::Node { .. } | Cause::Answer { .. } => {
            Vec::new()
        }
    };
    let steps: Vec<String> = turn.did.iter().filter_map(step_name).collect();
    match steps.as_slice() {
        [] => {}
        [first, second, _, _, ..] => parts.push(format!("did {first}, {second} and {} more steps", steps.len() - 2)),
        few => parts.push(format!("did {}", few.join(", "))),
    }
    let mut others = turn.did.iter().filter_map(|deed| match deed {
        Deed::Step(_) => None,
        Deed::Delegated(agents) => Some(format!("delegated to {}", names(agents))),
        Deed::Refused(refusal) => Some(format!("was refused ({refusal})")),
        Deed::Asked => Some("asked a question".to_owned()),
        Deed::AskedConsent => Some("asked for consent".to_owned()),
    });
    parts.extend(others.by_ref().take(SHOWN));
    match others.count() {
        0 => {}
        more => parts.push(format!("and {more} more")),
    }
    parts.push(ending(&turn.end));
    let done = parts.join("; ");
    match &turn.summary {
        Some(summary) => format!("{}: {done}", brief(summary, 200)),
        None => done,
    }
}

fn step_name(deed: &Deed) -> Option<String> {
    match deed {
        Deed::Step(name) => Some(brief(name, 40)),
        Deed::Delegated(_) | Deed::Refused(_) | Deed::Asked | Deed::AskedConsent => None,
    }
}

/// How a turn ended, in a few words.
pub(crate) fn ending(end: &TurnEnd) -> String {
    match end {
        TurnEnd::Open => "is open".to_owned(),
        TurnEnd::NeedsAttention { why } => format!("needs attention: {}", brief(why, 80)),
        TurnEnd::Cancelled => "was cancelled".to_owned(),
        TurnEnd::Failed(failure) => format!("failed: {}", brief(&failure.to_string(), 80)),
        TurnEnd::Command { command, verdict } => match verdict {
            Verdict::Admitted(agents) => format!("handed to {}", names(agents)),
            Verdict::Refused(refusal) => format!("was refused ({})", refusal.name()),
            Verdict::Parked(envelope) => format!("waits for consent to {}", brief(&envelope.action.to_string(), 80)),
            Verdict::Nothing => match &command.output {
                Some(output) => format!("gave {}", brief_json(output, 60)),
                None => "ended".to_owned(),
            },
        },
    }
}

pub(crate) fn turn_json(turn: &TurnStory) -> Value {
    json!({
        "turn": turn.number,
        "agent": turn.agent,
        "attempts": turn.attempts,
        "input": turn.input,
        "what": actions(turn),
        "summary": turn.summary,
        "usage": stable(&turn.usage),
        "begun_at": shapes::time(turn.begun_at),
        "closed_at": turn.closed.map(|(_, at)| shapes::time(at)),
        "is_open": matches!(turn.end, TurnEnd::Open | TurnEnd::NeedsAttention { .. }),
    })
}

fn names(agents: &[AgentName]) -> String {
    let shown = agents.iter().take(SHOWN).map(AgentName::as_str).collect::<Vec<_>>().join(", ");
    match agents.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {}\n", visible(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_keeps_its_lines_behind_a_bar() {
        assert_eq!(output(&Json::from("one\ntwo \u{1b}[2J")), "one\n  │ two \\u{1b}[2J");
        assert_eq!(output(&Json::from(serde_json::json!({ "a": "b\nc" }))), r#"{"a":"b\nc"}"#);
    }
}
