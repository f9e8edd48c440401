//! The page of a turn: what it was given, what it did, what it changed, and a form that forks the run there.

use axum::extract::{Path, Request, State};
use axum::response::Response;
use callboard::messages::{Json, RunEvent, Schema, StateChange, Verdict};
use callboard::runtime::RunHandle;
use callboard::supervision::runs::{Cause, Moment, Replay, ReplayStep, TurnEnd, TurnStory};
use maud::{Markup, html};
use serde_json::Value;

use super::query::is_failure;
use super::replayed::{changes, folded, replayed};
use super::texts::{cut_lines, json_text, line, lines, short, shown_time, span, tokens};
use super::view::{because, waits_for};
use super::{named, waits};
use crate::context::{Context, Shared};
use crate::dashboard::pages::{self, Reader};
use crate::problem::Problem;
use crate::tokens::{Caller, Scope};

/// The most events of the page, and the most characters of an event, a name, a message and an input that is changed here.
const MAX_EVENTS: usize = 100;
const MAX_EVENT: usize = 160;
const MAX_NAME: usize = 80;
const MAX_MESSAGE: usize = 20_000;
const MAX_INPUT: usize = 16_000;
/// How many bytes a text has that is not folded.
const SHORT: usize = 400;
/// The most channels that are proposed.
const MAX_CHANNELS: usize = 50;

/// The page of a turn.
pub(in crate::dashboard) async fn page(
    State(context): Shared,
    Path((id, number)): Path<(String, String)>,
    request: Request,
) -> Response {
    let (caller, csrf) = match pages::reader_of(&context, &request, "Turn of a run") {
        Ok(reader) => reader,
        Err(answer) => return answer,
    };
    let contents = async {
        let none = || Problem::not_found(format!("the run has no turn {}", line(&number, MAX_NAME)));
        let number = number.parse().map_err(|_| none())?;
        shown(&context, &caller, &named(&context, &id).await?, number).await
    };
    let contents = contents.await;
    pages::answer("Turn of a run", "/runs", &Reader { caller: &caller, csrf }, contents)
}

async fn shown(context: &Context, caller: &Caller, run: &RunHandle, number: u32) -> Result<Markup, Problem> {
    let replay = replayed(context, run).await?;
    let none = || Problem::not_found(format!("the run has no turn {number}: it has {}", replay.turns().count()));
    let turn = replay.turn(number).ok_or_else(none)?;
    let before = replay.before_turn(number).ok_or_else(none)?;
    let after = replay.after_turn(number);
    let may_change = caller.scopes.contains(&Scope::Delegate);
    let (waits, _) = waits(context, caller, &run.read().await?, |wait| wait.turn().number == number).await;
    Ok(html! {
        p.under { a href={ "/runs/" (run.id()) } { "Run " code { (short(run.id())) } } }
        (head(context, turn))
        @if !waits.is_empty() { ul.waits { @for item in &waits { (waits_for(run.id(), item)) } } }
        section { (given(turn)) }
        section { (did(&replay, turn)) }
        section { (states(&before, after.as_ref())) }
        @if may_change { section.actions-of-turn { (fork(&replay, turn, &before)) } }
    })
}

fn head(context: &Context, turn: &TurnStory) -> Markup {
    let until = turn.closed.map_or_else(|| context.now(), |(_, at)| at);
    html! {
        h1.title { "Turn " (turn.number) " of " bdi { (line(turn.agent.as_str(), MAX_NAME)) } }
        @if let Some(summary) = &turn.summary { p.summary dir="auto" { (line(summary, 200)) } }
        dl.facts {
            div { dt { "Begun" } dd { (shown_time(turn.begun_at)) } }
            div { dt { "Took" } dd { (span(until.since(turn.begun_at))) } }
            div { dt { "Attempts" } dd { (turn.attempts) } }
            div { dt { "Used" } dd { (tokens(turn.usage).unwrap_or_else(|| "no tokens".to_owned())) } }
            div { dt { "Because of" } dd { (cause(&turn.cause)) } }
        }
        (end(&turn.end))
    }
}

fn cause(cause: &Cause) -> Markup {
    html! {
        @match cause {
            Cause::Task => { "the task" }
            Cause::Handoff { from, .. } => { "the handoff of turn " (from) }
            Cause::Delegation { from, .. } => { "a delegation of turn " (from) }
            Cause::Node { node } => { "the node " code { bdi { (line(node, MAX_NAME)) } } }
            Cause::Compensation { node } => { "the compensation of " code { bdi { (line(node, MAX_NAME)) } } }
            Cause::Answer { from } => { "an answer, by turn " (from) }
        }
    }
}

/// How it ended, with its output.
fn end(end: &TurnEnd) -> Markup {
    html! {
        @match end {
            TurnEnd::Open => { p.state { "It is open." } }
            TurnEnd::NeedsAttention { why } => { p.state.warn dir="auto" { "It needs attention: " (line(why, MAX_MESSAGE)) } }
            TurnEnd::Cancelled => { p.state { "It was cancelled." } }
            TurnEnd::Failed(failure) => { p.state { "It failed:" } pre.text dir="auto" { (lines(&failure.to_string(), MAX_MESSAGE)) } }
            TurnEnd::Command { command, verdict } => {
                p.state {
                    @match verdict {
                        Verdict::Nothing => { "It ended." }
                        Verdict::Admitted(agents) => {
                            @let names = agents.iter().map(|agent| agent.as_str()).collect::<Vec<_>>().join(", ");
                            "It handed on to " bdi { (line(&names, 4 * MAX_NAME)) } "."
                        }
                        Verdict::Refused(refusal) => { "It was refused: " (line(&refusal.to_string(), MAX_MESSAGE)) }
                        Verdict::Parked(_) => { "Its handoff waits for people." }
                    }
                }
                @if let Some(output) = &command.output { (value("output", "Its output", output)) }
            }
        }
    }
}

/// A value that is folded: a text as it is, anything else as JSON.
fn value(key: &str, title: &str, value: &Json) -> Markup {
    match value.as_str() {
        Some(text) => html! {
            details data-key=(key) open[text.len() <= SHORT] { summary { (title) } pre.text.prose dir="auto" { (cut_lines(text, MAX_MESSAGE)) } }
        },
        None => folded(key, title, value.value()),
    }
}

fn given(turn: &TurnStory) -> Markup {
    html! { h2 { "What it was given" } (value("input", "Its input", &turn.input)) }
}

/// The events of the turn, each with the value or the message that came of it.
fn did(replay: &Replay, turn: &TurnStory) -> Markup {
    let of_turn: Vec<&ReplayStep> =
        replay.steps().iter().filter(|step| step.event.turn() == Some(turn.number)).collect();
    let left_out = of_turn.len().saturating_sub(MAX_EVENTS);
    let run = replay.submission().run;
    html! {
        h2 { "What it did" }
        @if of_turn.is_empty() { p.dim { "Nothing yet." } }
        @if left_out > 0 { p.dim { (left_out) " earlier events are on " a href={ "/runs/" (run) "?all=1#run-events" } { "the page of the run" } "." } }
        ol.events {
            @for step in &of_turn[left_out..] {
                li.bad[is_failure(&step.event)] {
                    a.number href={ "/runs/" (run) "/journal?event=" (step.number) } title="The run after this event" { (step.number) }
                    bdi { (line(&step.event.to_string(), MAX_EVENT)) }
                    (shown_time(step.at))
                    @if let RunEvent::StepFinished { name, value, .. } = &step.event { (came_of(step.number, name, value)) }
                }
            }
        }
    }
}

/// What came of a step: of a call of a model or a tool, its message.
fn came_of(number: usize, name: &str, came: &Json) -> Markup {
    if came.is_null() {
        return html! {};
    }
    let key = format!("step-{number}");
    let message = came.value().as_object().and_then(|fields| {
        let text = fields.get("text")?.as_str()?;
        let calls = fields.get("calls").and_then(Value::as_array).filter(|calls| !calls.is_empty());
        Some((text, calls))
    });
    let Some((text, calls)) = message else { return value(&key, &format!("What {} gave", line(name, MAX_NAME)), came) };
    html! {
        details data-key=(key) {
            summary { "Message of " bdi { (line(name, MAX_NAME)) } }
            @if !text.is_empty() { pre.text.prose dir="auto" { (cut_lines(text, MAX_MESSAGE)) } }
            @if let Some(calls) = calls { pre.text dir="auto" { (cut_lines(&json_text(calls), MAX_MESSAGE)) } }
        }
    }
}

fn states(before: &Moment, after: Option<&Moment>) -> Markup {
    let saw = without_metrics(&before.state);
    html! {
        h2 { "State" }
        (folded("saw", "What it found", saw.value()))
        @if let Some(after) = after {
            @let changed = StateChange::between(&saw, &after.state);
            @if changed.is_empty() { p.dim { "It changed no channel." } } @else { h2 { "What it changed" } (changes(&changed)) }
            (folded("left", "What it left", after.state.value()))
        }
    }
}

/// The state without what the runtime writes of its figures.
fn without_metrics(state: &Json) -> Json {
    let mut state = state.value().clone();
    if let Value::Object(channels) = &mut state {
        channels.remove(Schema::METRICS);
    }
    state.into()
}

/// The forms that have the turn begin again in a run of its own.
fn fork(replay: &Replay, turn: &TurnStory, before: &Moment) -> Markup {
    let (run, number) = (replay.submission().run, turn.number);
    let input = json_text(turn.input.value());
    let saw = without_metrics(&before.state);
    let channels = saw.value().as_object().into_iter().flat_map(|channels| channels.keys());
    // A name that does not show as it is cannot be proposed.
    let channels = channels.filter(|name| line(name, MAX_NAME) == **name);
    html! {
        @if matches!(turn.end, TurnEnd::Failed(_)) {
            details.more data-key="retry" {
                summary { "Try again …" }
                form data-run-action={ "/v1/delegations/" (run) "/retry" } data-turn=(number) {
                    p { "The turn begins again, in a run of its own." }
                    (because("retry-reason", "Try the turn again"))
                    p.result role="status" {}
                }
            }
        }
        details.more data-key="fork" {
            summary { "Fork here …" }
            form data-run-action={ "/v1/delegations/" (run) "/fork" } data-turn=(number) {
                p { "A new run copies what came before this turn, and runs the turn and what comes after it. This run stays as it is." }
                @if input.len() <= MAX_INPUT {
                    label for="input" { "Its input, as JSON" }
                    textarea #input name="input" data-json rows="4" { (input) }
                } @else {
                    p.dim { "Its input is too long to be changed here: it stays as it is." }
                }
                label for="channel" { "A channel of the state to change, and its value as JSON" }
                div.actions {
                    input.grow #channel name="channel" list="channels" autocomplete="off" aria-label="Channel";
                    datalist #channels { @for name in channels.take(MAX_CHANNELS) { option value=(name) {} } }
                    textarea.grow name="value" data-json rows="1" aria-label="Value of the channel, as JSON" {}
                }
                (because("fork-reason", "Fork the run"))
                p.result role="status" {}
            }
        }
    }
}
