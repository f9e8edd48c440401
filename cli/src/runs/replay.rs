//! `callboard replay RUN`.

use std::io::{BufRead as _, Write as _};

use callboard::messages::{Json, Schema};
use callboard_server::json::{self as shapes, stable};
use serde_json::{Value, json};

use callboard::supervision::runs::{Moment, ReplayStep};

use crate::page::{Failure, Page, brief, brief_json, count, duration, folded, lines_of, table, whole_json};
use crate::run_names::short;
use crate::runs::show::{actions, head, turn_json};
use crate::stores::store::Loaded;

/// Lists all events, each with what it changed.
pub(crate) fn whole(loaded: &Loaded) -> Page {
    let replay = &loaded.replay;
    let mut table = table(["#", "after", "turn", "agent", "what happened"], &[0, 1, 2]);
    for step in replay.steps() {
        let [number, after, turn, agent] = place(loaded, step);
        let changed: String =
            step.changes().iter().map(|change| format!("\n  {}", brief(&change.to_string(), 300))).collect();
        table.add_row([number, after, turn, agent, format!("{}{changed}", step.event)]);
    }
    let text = format!("{}\n{}{}", folded(&head(loaded)), lines_of(&table), loaded.rules.notes());
    Page::new(text, Value::from(replay.steps().iter().map(step_json).collect::<Vec<_>>()))
}

fn without_metrics(state: &Json) -> Json {
    let mut state = state.value().clone();
    if let Value::Object(channels) = &mut state {
        channels.remove(Schema::METRICS);
    }
    state.into()
}

/// Shows the run before and after a turn.
pub(crate) fn at_turn(loaded: &Loaded, number: u32) -> Result<Page, Failure> {
    let (Some(turn), Some(before)) = (loaded.replay.turn(number), loaded.replay.before_turn(number)) else {
        let turns = loaded.replay.turns().count();
        let text = format!("run {} has no turn {number}: it has {}", short(loaded.id), count(turns, "turn"));
        return Err(Failure::not_found(text));
    };
    let after = loaded.replay.after_turn(number);
    let mut text = format!(
        "turn {number}, {}, attempt {}: {}\ninput      {}\n",
        turn.agent,
        turn.attempts,
        actions(turn),
        brief_json(&turn.input, 2000)
    );
    text.push_str(&format!("\nwhen it began, {}\n", moment(loaded, &before)));
    // The metrics are in the line above.
    text.push_str(&whole_json(&without_metrics(&before.state), "  "));
    match &after {
        Some(left) => {
            text.push_str(&format!("\nwhen it was over, {}\n", moment(loaded, left)));
            text.push_str(&whole_json(&left.state, "  "));
        }
        None => text.push_str("\nit is open\n"),
    }
    text.push_str(&loaded.rules.notes());
    let json = json!({
        "turn": turn_json(turn),
        "saw": moment_json(&before),
        "left": after.as_ref().map(moment_json),
    });
    Ok(Page::new(folded(&text), json))
}

/// Shows one event at a time, and waits for Enter between them.
pub(crate) fn step_by_step(loaded: &Loaded) -> Result<Page, Failure> {
    let steps = loaded.replay.steps();
    let mut answers = std::io::stdin().lock().lines();
    let mut out = std::io::stdout().lock();
    for step in steps {
        let [number, after, turn, agent] = place(loaded, step);
        let whose = if turn.is_empty() { String::new() } else { format!("turn {turn} ({agent}) ") };
        let changed: String =
            step.changes().iter().map(|change| format!("  {}\n", brief(&change.to_string(), 300))).collect();
        let shown = format!(
            "{number}/{} {after}  {whose}{}\n{changed}state\n{}",
            steps.len(),
            step.event,
            whole_json(step.state(), "  ")
        );
        let is_asked = step.number < steps.len();
        let prompt = if is_asked { "Enter: next, q: end " } else { "" };
        if write!(out, "{}{prompt}", folded(&shown)).and_then(|()| out.flush()).is_err() {
            break;
        }
        // At the end of the input the rest is shown at once.
        if is_asked && answers.next().and_then(Result::ok).is_some_and(|answer| answer.trim() == "q") {
            break;
        }
    }
    drop(out);
    Ok(Page::new(loaded.rules.notes(), Value::Null))
}

/// The event's number, time since the submission, turn and agent.
fn place(loaded: &Loaded, step: &ReplayStep) -> [String; 4] {
    let turn = step.event.turn().map(|turn| turn.to_string()).unwrap_or_default();
    let agent = step.agent.as_ref().filter(|_| !turn.is_empty()).map(ToString::to_string).unwrap_or_default();
    let after = step.at.since(loaded.replay.submission().at);
    [step.number.to_string(), format!("+{}", duration(after)), turn, agent]
}

fn moment(loaded: &Loaded, moment: &Moment) -> String {
    let open: Vec<String> = moment.open.iter().map(|(turn, agent)| format!("{turn} {agent}")).collect();
    let open = match (&moment.outcome, open.is_empty()) {
        (Some(outcome), _) => format!("the run has ended: {}", brief(&outcome.to_string(), 200)),
        (None, true) => "no turn open".to_owned(),
        (None, false) => format!("open: {}", open.join(", ")),
    };
    let metrics = &moment.metrics;
    format!(
        "event {} of {}: {}, {}, {open}",
        moment.step,
        loaded.replay.steps().len(),
        count(metrics.turns as usize, "ended turn"),
        count(usize::try_from(metrics.tokens_spent).unwrap_or(usize::MAX), "token"),
    )
}

fn moment_json(moment: &Moment) -> Value {
    let Moment { step, state, open, metrics, outcome } = moment;
    let open: Vec<Value> = open.iter().map(|(turn, agent)| json!({ "turn": turn, "agent": agent })).collect();
    json!({
        "event": step, "state": state, "open": open, "metrics": stable(metrics), "outcome": outcome.as_ref().map(stable),
    })
}

pub(crate) fn step_json(step: &ReplayStep) -> Value {
    json!({
        "number": step.number,
        "at": shapes::time(step.at),
        "turn": step.event.turn(),
        "agent": step.agent,
        "what": step.event.to_string(),
        "event": shapes::event(&step.event),
        "begun": step.begun,
        "closed": step.closed,
        "changes": stable(&step.changes()),
    })
}
