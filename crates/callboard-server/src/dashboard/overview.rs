//! The overview: what needs a person, each with what unblocks it. Texts of agents are untrusted: all of them go through `texts` here, and
//! maud escapes what is left.

use callboard::actors::approvals::Card;
use callboard::messages::{Envelope, Interrupt, Pending, Question, RunId, Timestamp, visible_lines};
use callboard_text::exact;
use maud::{Markup, html};

use crate::context::Context;
use crate::inbox::{Filter, Item, ItemKind, Page};
use crate::knowledge::reserved;
use crate::problem::Problem;
use crate::tokens::{Caller, Scope};

/// The most rows, and the most bytes of the text of a row and of those of all rows: a page stays small however much waits.
const MAX_ROWS: usize = 20;
const MAX_TEXT: usize = 2_000;
const MAX_TEXTS: usize = 5_000;
/// The least bytes of the text of a row, when the others have used what all may have.
const MIN_TEXT: usize = 200;
/// The most characters of a word in a line, such as what an action is about.
const MAX_WORD: usize = 160;
/// The most characters of the task of a run.
const MAX_TASK: usize = 80;
/// The most choices of a question that are buttons, and the most characters of one.
const MAX_CHOICES: usize = 8;
const MAX_CHOICE: usize = 120;

/// The names of the agents that are neither built in nor those of a base of facts.
pub(super) fn own_agents(context: &Context) -> Vec<String> {
    let files = context.agent_files();
    let is_own = |name: &str| !files.built_in.contains(name) && !reserved::is_reserved(context, name);
    let names = context.board.agents().names();
    names.iter().map(|name| name.as_str()).filter(|name| is_own(name)).map(str::to_owned).collect()
}

/// Whether it is an agent that does not run as it should, which no run waits for.
fn is_failed_agent(kind: ItemKind) -> bool {
    matches!(kind, ItemKind::FailedAgent | ItemKind::RefusedFile)
}

/// The first line, as `callboard serve` prints it, and what needs a person.
pub(super) async fn overview(context: &Context, caller: &Caller) -> Result<Markup, Problem> {
    let (own, gathered) = (own_agents(context), context.inbox_sources().gather().await?.seen_by(caller));
    let page = Page::of(context, &gathered, &Filter::default(), (None, MAX_ROWS)).await?;
    let failed = page.counts.iter().filter(|(kind, _)| is_failed_agent(**kind)).map(|(_, count)| count).sum::<usize>();
    let waiting = page.counts.values().sum::<usize>() - failed;
    let refusal = (context.refuses_decisions)();
    let mut left = MAX_TEXTS;
    Ok(html! {
        (line(own.len(), waiting, failed))
        p.state #state role="status" {}
        div #notes {
            @if let Some(why) = &refusal {
                p.notice { "Decisions are made at the terminal of the server: " (word(why, MAX_WORD)) }
            } @else if !caller.scopes.contains(&Scope::Approve) {
                p.notice { "You may look on: your session does not have the scope " code { "approve" } "." }
            }
            @if page.next.is_some() {
                p.notice { "The first " (MAX_ROWS) " are shown; " code { "callboard inbox" } " lists all." }
            }
        }
        h2 #waiting hidden[page.items.is_empty()] { "Waiting for you" }
        ol.items #items aria-labelledby="waiting" data-cut[page.next.is_some()] {
            @for item in &page.items {
                @let may_decide = refusal.is_none() && item.id.scope().is_some_and(|scope| caller.scopes.contains(&scope));
                (row(item, gathered.pending_of(item), may_decide, &mut left))
            }
        }
        (nothing(own.first().map(String::as_str), !page.items.is_empty()))
    })
}

/// `4 agents running · 1 waiting for you · 0 failed`.
fn line(running: usize, waiting: usize, failed: usize) -> Markup {
    let agents = if running == 1 { "agent" } else { "agents" };
    let dot = html! { span.dot { " · " } };
    html! {
        h1 #line {
            (running) " " (agents) " running" (dot)
            span.due[waiting > 0] { (waiting) " waiting for you" } (dot)
            span.bad[failed > 0] { (failed) " failed" }
        }
    }
}

/// What is shown where nothing waits.
fn nothing(agent: Option<&str>, is_hidden: bool) -> Markup {
    html! {
        section.empty #empty hidden[is_hidden] {
            @match agent {
                Some(agent) => {
                    h2 { "Nothing waits for you" }
                    p { "What an agent asks, and what it may not do alone, appears here at once. To give one a task:" }
                    pre { code { "callboard send " (word(agent, MAX_WORD)) " 'what is to be done'" } }
                }
                None => {
                    h2 { "There are no agents yet" }
                    p { "This makes a folder with four of them; start the server again after it:" }
                    pre { code { "callboard init" } }
                }
            }
        }
    }
}

/// All of the text of what waits.
pub(super) fn whole(item: &Item, wait: Option<&Pending>) -> Markup {
    let text = wait.map_or_else(|| Some(item.what.clone()), text_of);
    let is_prose = wait.is_none_or(is_prose);
    html! { @if let Some(text) = text { pre.text.prose[is_prose] dir="auto" { (text) } } }
}

/// An item as a row; `wait` is what its run waits for, if it does. `left` is how many bytes the texts of all rows may have yet.
fn row(item: &Item, wait: Option<&Pending>, may_decide: bool, left: &mut usize) -> Markup {
    let id = item.id.to_string();
    let text = wait.and_then(text_of).map(|text| {
        let (shown, bytes) = beginning(&text, MAX_TEXT.min(*left).max(MIN_TEXT));
        *left = left.saturating_sub(bytes);
        (text.chars().count() - shown.chars().count(), shown.to_owned())
    });
    let (kind, tone) = kind(item.kind);
    let expires = item.expires_at.map(|at| (wait.map_or("Until", otherwise), at));
    html! {
        li.item tabindex="-1" data-id=(id) {
            div.head {
                span.kind.(tone) { (kind) }
                p.what { @match wait { Some(wait) => (what(wait)), None => (failure(item)) } }
                @if let Some(at) = item.since { (shown_time(at)) }
            }
            @if let Some((more, shown)) = &text {
                pre.text.prose[wait.is_some_and(is_prose)] dir="auto" { (shown) }
                @if *more > 0 {
                    p.cut { (more) " more characters. " button.quiet type="button" data-whole { "Show all" } }
                }
            }
            dl.facts {
                @if let Some(about) = &item.about {
                    div { dt { "Task" } dd { bdi { (word(&about.task, MAX_TASK)) } } }
                    @if let Some(from) = &about.from_agent { div { dt { "From" } dd { bdi { (word(from, MAX_WORD)) } } } }
                }
                @if let Some(run) = item.run { div { dt { "Run" } dd { code { (short(run)) } } } }
                @if let Some(Pending::Approval(envelope)) = wait
                    && let Some(code) = Card::of(envelope).code() { div { dt { "Code" } dd { code { (code) } } } }
                @match expires {
                    Some((otherwise, at)) => div { dt { (otherwise) } dd { (shown_time(at)) } },
                    None => div { dt { "Meanwhile" } dd { (item.otherwise) } },
                }
            }
            @if may_decide {
                @match wait { Some(wait) => (controls(wait, &id)), None => (remedies(item, &id)) }
            }
            p.result role="status" {}
        }
    }
}

/// What has failed, in a line.
fn failure(item: &Item) -> Markup {
    html! {
        @if let Some(agent) = &item.agent { b { bdi { (word(agent, MAX_WORD)) } } " " }
        bdi { (item.what) }
        @if item.left_out > 0 { " … " (item.left_out) " more characters" }
    }
}

/// What a person can do about a failure: the first unblocks it.
fn remedies(item: &Item, id: &str) -> Markup {
    html! {
        div.actions {
            @for (place, action) in item.actions.iter().enumerate() {
                @match action.response {
                    "drop" | "overwrite" => button.main[place == 0] type="button" data-opens=(action.response) aria-expanded="false" {
                        @if action.response == "drop" { "Drop …" } @else { "Write over …" }
                    },
                    response => button.main[place == 0] type="button" data-response=(response) {
                        @match response { "retry" => "Try again", "read_again" => "Read again", _ => "Start again" }
                    },
                }
            }
        }
        @for action in &item.actions {
            @let field = format!("{}-{id}", action.response);
            @match action.response {
                "drop" => form.more data-form="drop" data-response="drop" hidden {
                    label for=(field) { "Why, for the audit log" }
                    div.actions {
                        input.grow id=(field) name="reason" maxlength="1024" autocomplete="off";
                        button.main type="submit" { "Drop" }
                    }
                },
                "overwrite" => form.more data-form="overwrite" data-response="overwrite" hidden {
                    label for=(field) { "The values of the channels, as a JSON object" }
                    div.actions {
                        textarea.grow id=(field) name="values" data-json rows="2" required {}
                        button.main type="submit" { "Write over" }
                    }
                },
                _ => {},
            }
        }
    }
}

fn kind(kind: ItemKind) -> (&'static str, &'static str) {
    match kind {
        ItemKind::Approval => ("Approval", "warn"),
        ItemKind::UnknownOutcome => ("Unknown outcome", "bad"),
        ItemKind::Question => ("Question", "info"),
        ItemKind::Node => ("Workflow", "info"),
        ItemKind::Attention => ("Needs attention", "bad"),
        ItemKind::FailedAgent => ("Failed agent", "bad"),
        ItemKind::RefusedFile => ("Refused file", "bad"),
        ItemKind::Quarantined => ("Quarantined", "bad"),
        ItemKind::Conflict => ("Conflict", "bad"),
        ItemKind::DeadLetter => ("Dead letter", "bad"),
    }
}

/// Who asks for what, in a line.
fn what(wait: &Pending) -> Markup {
    let name = |name: &str| html! { b { bdi { (word(name, MAX_WORD)) } } };
    match wait {
        Pending::Approval(envelope) => {
            let action = &envelope.action;
            html! {
                (name(envelope.agent.as_str())) " wants to " code { bdi { (word(&action.action, MAX_WORD)) } }
                @if !action.target.is_empty() { " " code { bdi { (word(&action.target, MAX_WORD)) } } }
            }
        }
        Pending::Question(question) => html! { (name(question.agent.as_str())) " asks" },
        Pending::Node(Interrupt { node, agent, .. }) => html! {
            "The node " code { bdi { (word(node, MAX_WORD)) } } " of " (name(agent.as_str())) " waits to be continued"
        },
        Pending::Attention { turn, .. } => html! { "Turn " (turn.number) " cannot continue by itself" },
    }
}

/// The text of what waits, for reading; `None` if it has none.
fn text_of(wait: &Pending) -> Option<String> {
    match wait {
        Pending::Approval(envelope) => Some(arguments(envelope)),
        Pending::Question(question) => Some(visible_lines(&question_of(question))),
        Pending::Node(Interrupt { input, .. }) => {
            Some(visible_lines(&serde_json::to_string_pretty(input.value()).unwrap_or_default()))
        }
        Pending::Attention { why, .. } => Some(visible_lines(why)),
    }
}

/// Whether its text is a sentence, and no code.
fn is_prose(wait: &Pending) -> bool {
    match wait {
        Pending::Question(_) | Pending::Attention { .. } => true,
        Pending::Approval(_) | Pending::Node(_) => false,
    }
}

/// The arguments as the card of the terminal has them, each line without its bar.
fn arguments(envelope: &Envelope) -> String {
    let framed = Card::of(envelope).arguments();
    let lines = framed.lines().map(|line| line.strip_prefix("  │ ").unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

fn question_of(question: &Question) -> String {
    let text = question.question.get("question").and_then(serde_json::Value::as_str).or(question.question.as_str());
    text.map_or_else(|| question.question.to_string(), str::to_owned)
}

fn is_outcome(question: &Question) -> bool {
    question.question.get("outcome_unknown").is_some()
}

/// What happens when its time is over.
fn otherwise(wait: &Pending) -> &'static str {
    match wait {
        Pending::Approval(_) => "Denied without a decision by",
        Pending::Question(question) if is_outcome(question) => "Given up without an answer by",
        Pending::Question(_) => "Continues without an answer at",
        Pending::Node(_) | Pending::Attention { .. } => "Waits until",
    }
}

/// What a person can do: the first unblocks it.
fn controls(wait: &Pending, id: &str) -> Markup {
    let one = |response: &str, label: &str| {
        html! {
            div.actions { button.main type="button" data-response=(response) { (label) } }
        }
    };
    match wait {
        Pending::Approval(_) => {
            let field = format!("reason-{id}");
            html! {
                div.actions {
                    button.main type="button" data-response="approve" { "Approve" }
                    button type="button" data-opens="deny" aria-expanded="false" { "Deny …" }
                }
                form.more data-form="deny" data-response="deny" hidden {
                    label for=(field) { "Why, for the agent" }
                    div.actions {
                        input.grow id=(field) name="reason" maxlength="4096" autocomplete="off";
                        button.main type="submit" { "Deny" }
                    }
                }
            }
        }
        Pending::Question(question) => {
            let field = format!("answer-{id}");
            let choices = choices(question);
            html! {
                @if !choices.is_empty() {
                    div.actions {
                        @for choice in &choices { button type="button" data-value=(choice) { (word(choice, MAX_CHOICE)) } }
                    }
                }
                @if is_outcome(question) {
                    form.more data-response="answer" {
                        label for=(field) { "It was done: its result, as JSON" }
                        div.actions {
                            textarea.grow id=(field) name="value" data-json rows="1" required { "{\"done\": null}" }
                            button.main type="submit" { "It was done" }
                        }
                    }
                } @else {
                    form.more data-response="answer" {
                        label for=(field) { "Answer" }
                        div.actions {
                            textarea.grow id=(field) name="value" rows="1" required {}
                            button.main type="submit" { "Answer" }
                        }
                    }
                }
            }
        }
        Pending::Node(_) => one("resume", "Continue"),
        Pending::Attention { .. } => one("restart", "Start again"),
    }
}

/// The choices of a question that a button can have as they are: texts without characters that a page does not keep.
fn choices(question: &Question) -> Vec<&str> {
    let choices = question.question.get("choices").and_then(serde_json::Value::as_array);
    let texts = choices.into_iter().flatten().filter_map(serde_json::Value::as_str);
    texts.filter(|text| exact(text) == **text).take(MAX_CHOICES).collect()
}

/// A text in a line: exact, because people decide by it, and cut.
fn word(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => exact(text),
        Some((end, _)) => exact(&text[..end]) + "…",
    }
}

/// As much of a text as a page has in so many bytes, and how many these are.
fn beginning(text: &str, most: usize) -> (&str, usize) {
    let mut bytes = 0;
    for (at, c) in text.char_indices() {
        let length = match c {
            '"' => 6,
            '&' => 5,
            '<' | '>' => 4,
            _ => c.len_utf8(),
        };
        if bytes + length > most {
            return (&text[..at], bytes);
        }
        bytes += length;
    }
    (text, bytes)
}

/// The short id of a run.
fn short(run: RunId) -> String {
    let id = run.to_string();
    format!("req-{}", id.rsplit('-').next().unwrap_or_default())
}

/// A time, which the script shows in the zone of the reader.
fn shown_time(at: Timestamp) -> Markup {
    let shown = at.to_string();
    html! { time datetime=(shown) { (shown.get(..16).unwrap_or_default().replace('T', " ")) " UTC" } }
}
