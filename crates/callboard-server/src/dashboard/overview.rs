//! The overview: what needs a person, each with what unblocks it. Texts of agents are untrusted: all of them go through `texts` here, and
//! maud escapes what is left.

use callboard::actors::approvals::Card;
use callboard::messages::{Envelope, Interrupt, Pending, PendingId, Question, Timestamp, visible_lines};
use callboard_text::exact;
use maud::{Markup, html};

use crate::context::Context;
use crate::knowledge::reserved;
use crate::tokens::{Caller, Scope};

/// The most rows, and the most bytes of the text of a row and of those of all rows: a page stays small however much waits.
const MAX_ROWS: usize = 20;
const MAX_TEXT: usize = 2_000;
const MAX_TEXTS: usize = 10_000;
/// The least bytes of the text of a row, when the others have used what all may have.
const MIN_TEXT: usize = 200;
/// The most characters of a word in a line, such as what an action is about.
const MAX_WORD: usize = 160;
/// The most choices of a question that are buttons, and the most characters of one.
const MAX_CHOICES: usize = 8;
const MAX_CHOICE: usize = 120;

/// What the overview is made of.
pub(super) struct Shown {
    /// The agents that are neither built in nor those of a base of facts.
    own: Vec<String>,
    pending: Vec<Pending>,
    /// How many files of agents are not used as they are.
    failed: usize,
}

impl Shown {
    pub(super) async fn read(context: &Context) -> Self {
        let files = context.agent_files();
        let is_own = |name: &str| !files.built_in.contains(name) && !reserved::is_reserved(context, name);
        let names = context.board.agents().names();
        let own = names.iter().map(|name| name.as_str()).filter(|name| is_own(name)).map(str::to_owned).collect();
        Self { own, pending: context.board.people().pending().await, failed: files.refused.len() }
    }

    /// What is another one if the overview is.
    pub(super) fn identity(&self) -> (usize, usize, Vec<PendingId>) {
        (self.own.len(), self.failed, self.pending.iter().map(Pending::id).collect())
    }
}

/// The first line, as `callboard serve` prints it, and what needs a person.
pub(super) async fn overview(context: &Context, caller: &Caller) -> Markup {
    let Shown { own, pending, failed } = Shown::read(context).await;
    let refusal = (context.refuses_decisions)();
    let may_decide = caller.scopes.contains(&Scope::Approve) && refusal.is_none();
    let mut left = MAX_TEXTS;
    html! {
        (line(own.len(), pending.len(), failed))
        p.state #state role="status" {}
        div #notes {
            @if let Some(why) = refusal {
                p.notice { "Decisions are made at the terminal of the server: " (word(&why, MAX_TEXT)) }
            } @else if !caller.scopes.contains(&Scope::Approve) {
                p.notice { "You may look on: your session does not have the scope " code { "approve" } "." }
            }
            @if pending.len() > MAX_ROWS {
                p.notice { "The first " (MAX_ROWS) " are shown; " code { "callboard pending" } " lists all." }
            }
        }
        h2 #waiting hidden[pending.is_empty()] { "Waiting for you" }
        ol.items #items aria-labelledby="waiting" data-cut[pending.len() > MAX_ROWS] {
            @for wait in pending.iter().take(MAX_ROWS) { (row(wait, may_decide, &mut left)) }
        }
        (nothing(own.first().map(String::as_str), !pending.is_empty()))
    }
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
pub(super) fn whole(wait: &Pending) -> Markup {
    html! { @if let Some(text) = text_of(wait) { pre.text.prose[is_prose(wait)] dir="auto" { (text) } } }
}

/// What waits, as a row. `left` is how many bytes the texts of all rows may have yet.
fn row(wait: &Pending, may_decide: bool, left: &mut usize) -> Markup {
    let id = wait.id().to_string();
    let text = text_of(wait).map(|text| {
        let (shown, bytes) = beginning(&text, MAX_TEXT.min(*left).max(MIN_TEXT));
        *left = left.saturating_sub(bytes);
        (text.chars().count() - shown.chars().count(), shown.to_owned())
    });
    let (kind, tone) = kind(wait);
    html! {
        li.item tabindex="-1" data-id=(id) {
            div.head {
                span.kind.(tone) { (kind) }
                p.what { (what(wait)) }
                @if let Some(at) = since(wait) { (shown_time(at)) }
            }
            @if let Some((more, shown)) = &text {
                pre.text.prose[is_prose(wait)] dir="auto" { (shown) }
                @if *more > 0 {
                    p.cut { (more) " more characters. " button.quiet type="button" data-whole { "Show all" } }
                }
            }
            dl.facts {
                div { dt { "Run" } dd { code { (short(wait)) } } }
                @if let Pending::Approval(envelope) = wait
                    && let Some(code) = Card::of(envelope).code() { div { dt { "Code" } dd { code { (code) } } } }
                @if let Some(at) = wait.expires_at() { div { dt { (otherwise(wait)) } dd { (shown_time(at)) } } }
            }
            @if may_decide { (controls(wait, &id)) }
            p.result role="status" {}
        }
    }
}

fn kind(wait: &Pending) -> (&'static str, &'static str) {
    match wait {
        Pending::Approval(_) => ("Approval", "warn"),
        Pending::Question(question) if is_outcome(question) => ("Unknown outcome", "bad"),
        Pending::Question(_) => ("Question", "info"),
        Pending::Node(_) => ("Workflow", "info"),
        Pending::Attention { .. } => ("Needs attention", "bad"),
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

fn since(wait: &Pending) -> Option<Timestamp> {
    match wait {
        Pending::Question(question) => Some(question.asked_at),
        Pending::Approval(_) | Pending::Node(_) | Pending::Attention { .. } => None,
    }
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
                @if !is_outcome(question) {
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

/// The short id of the run.
fn short(wait: &Pending) -> String {
    let id = wait.run().to_string();
    format!("req-{}", id.rsplit('-').next().unwrap_or_default())
}

/// A time, which the script shows in the zone of the reader.
fn shown_time(at: Timestamp) -> Markup {
    let shown = at.to_string();
    html! { time datetime=(shown) { (shown.get(..16).unwrap_or_default().replace('T', " ")) " UTC" } }
}
