//! The overview: what needs a person, each with what unblocks it. Texts of agents are untrusted: all of them go through `texts` here, and
//! maud escapes what is left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use callboard::actors::approvals::Card;
use callboard::messages::{
    ActionKind, AgentName, Envelope, Interrupt, Pending, Question, Rationale, Timestamp, visible_lines,
};
use callboard_text::{disguised, exact};
use maud::{Markup, html};

use super::run::texts::{json_text, short, shown_time};
use crate::context::Context;
use crate::inbox::{About, Deciding, Difference, Filter, Item, ItemKind, Page};
use crate::knowledge::reserved;
use crate::problem::Problem;
use crate::query;
use crate::tokens::{Caller, Scope};

/// The name in a query of the item after which a page begins.
const AFTER: &str = "after";
/// The most rows, and the most bytes of the text of a row and of those of all rows: a page stays small however much waits.
const MAX_ROWS: usize = 20;
const MAX_TEXT: usize = 2_000;
const MAX_TEXTS: usize = 5_000;
/// The least bytes of the text of a row, when the others have used what all may have.
const MIN_TEXT: usize = 200;
/// The most lines of the text of a row, and how many of them are its last ones.
const MAX_LINES: usize = 40;
const END_LINES: usize = 10;
/// The most characters of a word in a line, such as what an action is about.
const MAX_WORD: usize = 160;
/// The most characters of the task of a run.
const MAX_TASK: usize = 80;
/// The most choices of a question that are buttons, and the most characters of one.
const MAX_CHOICES: usize = 8;
const MAX_CHOICE: usize = 120;

/// The most words that look like others which are shown of an action.
const MAX_DISGUISED: usize = 4;
/// The most characters of what an agent says about an action.
const MAX_REASON: usize = 400;

/// The names of the agents that work and are neither built in nor those of a base of facts.
pub(super) fn own_agents(context: &Context) -> Vec<String> {
    let (files, agents) = (context.agent_files(), context.board.agents());
    let failed: BTreeSet<AgentName> = agents.failed().into_iter().map(|(name, _)| name).collect();
    let is_own = |name: &str| !files.built_in.contains(name) && !reserved::is_reserved(context, name);
    let mut names = agents.names();
    names.retain(|name| !failed.contains(name));
    names.iter().map(|name| name.as_str()).filter(|name| is_own(name)).map(str::to_owned).collect()
}

/// Whether it is something that has failed, which waits for nobody: an agent, a turn or a run.
fn is_failed(kind: ItemKind) -> bool {
    matches!(kind, ItemKind::FailedAgent | ItemKind::RefusedFile | ItemKind::DeadLetter | ItemKind::Quarantined)
}

/// The first line, as `callboard serve` prints it, and what needs a person.
pub(super) async fn overview(context: &Context, caller: &Caller, query: Option<&str>) -> Result<Markup, Problem> {
    let filter = Filter::of_query(query)?;
    let after = query::pairs(query.unwrap_or_default()).find(|(name, _)| name == AFTER).map(|(_, id)| id);
    let (own, gathered) = (own_agents(context), context.live.gather(&context.inbox_sources()).await?.seen_by(caller));
    let page = Page::of(context, caller, &gathered, &filter, (after.as_deref(), MAX_ROWS)).await?;
    let counts = gathered.counts();
    let failed = counts.iter().filter(|(kind, _)| is_failed(**kind)).map(|(_, count)| count).sum::<usize>();
    let waiting = counts.values().sum::<usize>() - failed;
    let (refusal, may_decide) = ((context.refuses_decisions)(), caller.scopes.contains(&Scope::Approve));
    let mut left = MAX_TEXTS;
    let mut rows = Vec::new();
    for item in &page.items {
        let wait = gathered.pending_of(item);
        let difference = match wait {
            Some(Pending::Approval(envelope)) => {
                Difference::of(envelope, context.changed_by(caller, envelope).await.as_deref())
            }
            _ => Difference::default(),
        };
        rows.push(row(item, wait, &difference, (refusal.is_none(), context.now()), &mut left));
    }
    Ok(html! {
        (line(own.len(), (waiting, may_decide), failed))
        p.state #state role="status" {}
        div #notes {
            @if let Some(why) = &refusal {
                p.notice { "Decisions are made at the terminal of the server: " (word(why, MAX_WORD)) }
            } @else if !may_decide {
                p.notice { "You may look on: your session does not have the scope " code { "approve" } "." }
            }
            @if !context.has_recovered() {
                p.notice { "The server still reads the runs that it found at its start: more may wait." }
            }
            @if let Some(next) = &page.next {
                p.notice { (MAX_ROWS) " are shown. " a href={ "/?" (filter.next(next)) } { "The next ones" } }
            }
            @if gathered.is_cut { p.notice { "There is more than is counted here." } }
            @if after.is_some() { p.notice { "These are not the first. " a href="/" { "Show all" } } }
        }
        h2 #waiting hidden[page.items.is_empty()] { @if may_decide { "Waiting for you" } @else { "Waiting for people" } }
        (kinds(&counts, &filter))
        ol.items #items aria-labelledby="waiting" data-cut[page.next.is_some()] {
            @for row in &rows { (row) }
        }
        @if refusal.is_none() && may_decide { (batch()) (forms()) }
        (nothing(own.first().map(String::as_str), filter.is_set(), !page.items.is_empty()))
    })
}

/// Links to the items of one kind, where there are several kinds.
fn kinds(counts: &BTreeMap<ItemKind, usize>, filter: &Filter) -> Markup {
    let chosen = filter.kind();
    html! {
        nav.filters #filters aria-label="Kinds" {
            @if counts.len() > 1 || filter.is_set() {
                a href="/" aria-current=[(!filter.is_set()).then_some("true")] { "All " (counts.values().sum::<usize>()) }
                @for (kind, count) in counts {
                    a href={ "/?kind=" (kind.name()) } aria-current=[(chosen == Some(*kind)).then_some("true")] {
                        (self::kind(*kind).0) " " (count)
                    }
                }
                @if let Some(other) = filter.other() { span.dim { "only " (word(&other, MAX_TASK)) } }
            }
        }
    }
}

/// What is done with the items that are selected; the script has its buttons.
fn batch() -> Markup {
    html! {
        form.batch #batch hidden {
            span role="status" { b data-count { "0" } " selected" }
            input.grow name="reason" maxlength="1024" autocomplete="off" aria-label="Reason" placeholder="Reason";
            span.actions data-buttons {}
            button.quiet type="button" data-all { "Select all of this kind" }
            button.quiet type="button" data-none { "Select none" }
        }
    }
}

/// The forms that buttons of items open: the script copies them.
fn forms() -> Markup {
    let form = |response: &str, label: &str, field: Markup, button: &str| {
        html! {
            template data-form=(response) {
                form.more data-response=(response) {
                    div.actions {
                        label.grow { (label) (field) }
                        button.main type="submit" { (button) }
                    }
                }
            }
        }
    };
    let line = |most: usize| html! { input name="reason" maxlength=(most) autocomplete="off"; };
    let arguments = html! { textarea name="arguments" data-json data-fill rows="6" required {} };
    let values = html! { textarea name="values" data-json rows="2" required {} };
    html! {
        (form("deny", "Why, for the agent", line(4_096), "Deny"))
        (form("edit", "The arguments that are approved in place of these, as JSON", arguments, "Approve these"))
        (form("drop", "Why, for the audit log", line(1_024), "Drop"))
        (form("overwrite", "The values of the channels, as a JSON object", values, "Write over"))
    }
}

/// `4 agents running · 1 waiting for you · 0 failed`; without `for you` to somebody who decides nothing.
fn line(running: usize, (waiting, may_decide): (usize, bool), failed: usize) -> Markup {
    let agents = if running == 1 { "agent" } else { "agents" };
    let dot = html! { span.dot { " · " } };
    html! {
        h1 #line {
            (running) " " (agents) " running" (dot)
            span.due[waiting > 0] { (waiting) " waiting" @if may_decide { " for you" } } (dot)
            span.bad[failed > 0] { (failed) " failed" }
        }
    }
}

/// What is shown where nothing waits.
fn nothing(agent: Option<&str>, is_filtered: bool, is_hidden: bool) -> Markup {
    html! {
        section.empty #empty hidden[is_hidden] {
            @match agent {
                _ if is_filtered => {
                    h2 { "None of this waits" }
                    p { "Only a part of what waits is shown here. " a href="/" { "Show all" } }
                }
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

/// The arguments of an action as JSON that a person changes: what does not show is written as an escape of JSON.
pub(super) fn arguments_to_edit(wait: &Pending) -> Option<String> {
    let Pending::Approval(envelope) = wait else { return None };
    Some(json_text(envelope.action.arguments.value()))
}

/// All of the text of what waits.
pub(super) fn whole(item: &Item, wait: Option<&Pending>) -> Markup {
    let text = wait.map_or_else(|| Some(item.what.clone()), text_of);
    let is_prose = wait.is_none_or(is_prose);
    html! {
        @if let Some(Pending::Approval(envelope)) = wait && is_line_cut(envelope) {
            pre.text dir="auto" { (exact(&envelope.action.action)) "\n" (exact(&envelope.action.target)) }
        }
        @if let Some(Pending::Approval(envelope)) = wait && let Some(reason) = &envelope.rationale.reason {
            pre.text.prose dir="auto" { (visible_lines(reason)) }
        }
        @if let Some(text) = text { pre.text.prose[is_prose] dir="auto" { (text) } }
    }
}

/// Whether the line of an action does not have all of it.
fn is_line_cut(envelope: &Envelope) -> bool {
    let is_cut = |text: &str| text.chars().nth(MAX_WORD).is_some();
    let is_reason_cut = |reason: &Arc<str>| reason.chars().nth(MAX_REASON).is_some();
    is_cut(&envelope.action.action)
        || is_cut(&envelope.action.target)
        || envelope.rationale.reason.as_ref().is_some_and(is_reason_cut)
}

/// A text of which a page has the beginning and the end: what is deceptive could be at either.
#[derive(Debug, PartialEq)]
struct Shortened<'t> {
    begin: &'t str,
    /// How many characters are between.
    left_out: usize,
    end: &'t str,
    /// How many bytes of the page it takes.
    bytes: usize,
}

/// As much of a text as a page has in so many bytes, and in lines that are seen at once.
fn shortened(text: &str, most: usize) -> Shortened<'_> {
    let (whole, bytes) = beginning(text, most);
    // What is left out takes less of the page than the note that says so.
    let is_little = text.len() - whole.len() <= MIN_TEXT;
    let (whole, bytes) = if is_little { (text, bytes + text.len() - whole.len()) } else { (whole, bytes) };
    if whole.len() == text.len() && text.matches('\n').count() < MAX_LINES {
        return Shortened { begin: text, left_out: 0, end: "", bytes };
    }
    let lines = text.match_indices('\n').nth(MAX_LINES - END_LINES - 1).map_or(text, |(at, _)| &text[..at]);
    let (begin, of_begin) = beginning(lines, most - most / 4);
    let rest = &text[begin.len()..];
    let (mut of_end, mut breaks, mut at) = (0, 0, rest.len());
    for (place, c) in rest.char_indices().rev() {
        breaks += usize::from(c == '\n');
        if of_end + width(c) > most / 4 || breaks == END_LINES {
            break;
        }
        of_end += width(c);
        at = place;
    }
    Shortened { begin, left_out: rest[..at].chars().count(), end: &rest[at..], bytes: of_begin + of_end }
}

/// An item as a row; `wait` is what its run waits for, if it does, and `difference` what that changes. `left` is how many bytes the
/// texts of all rows may have yet.
fn row(
    item: &Item,
    wait: Option<&Pending>,
    difference: &Difference,
    (may_decide, now): (bool, Timestamp),
    left: &mut usize,
) -> Markup {
    let id = item.id.to_string();
    let text = wait.and_then(text_of);
    let text = text.as_deref().map(|text| shortened(text, MAX_TEXT.min(*left).max(MIN_TEXT)));
    *left = left.saturating_sub(text.as_ref().map_or(0, |text| text.bytes));
    let is_line_cut = matches!(wait, Some(Pending::Approval(envelope)) if is_line_cut(envelope));
    let (kind, tone) = kind(item.kind);
    let can_decide = may_decide && item.may_not.is_none();
    let responses = item.actions.iter().map(|action| action.response);
    let can: Vec<&str> = responses.filter(|response| !["answer", "overwrite"].contains(response)).collect();
    let expires = item.expires_at.map(|at| (wait.map_or("Until", otherwise), at));
    html! {
        li.item tabindex="-1" id=(id) data-id=(id) data-can=[(can_decide && !can.is_empty()).then(|| can.join(" "))] {
            div.head {
                @if can_decide && !can.is_empty() { input.pick type="checkbox" data-pick aria-label="Select"; }
                span.kind.(tone) { (kind) }
                p.what { @match wait { Some(wait) => (what(wait)), None => (failure(item)) } }
                @if let Some(at) = item.since { (shown_time(at)) }
            }
            @if let Some(Pending::Approval(envelope)) = wait { (reason(envelope)) (notes(envelope, difference, left)) }
            @if let Some(Shortened { begin, left_out, end, .. }) = &text {
                @let is_prose = wait.is_some_and(is_prose);
                div data-text {
                    pre.text.prose[is_prose] dir="auto" { (begin) }
                    @if *left_out > 0 || is_line_cut {
                        p.cut {
                            @if *left_out > 0 { (left_out) " more characters. " } @else { "What is above is cut. " }
                            button.quiet type="button" data-whole { "Show all" }
                        }
                    }
                    @if !end.is_empty() { pre.text.prose[is_prose] dir="auto" { (end) } }
                }
            }
            dl.facts {
                @if let Some(about) = &item.about {
                    div { dt { "Task" } dd { bdi { (word(&about.task, MAX_TASK)) } } }
                    @if let Some(from) = &about.from_agent { div { dt { "From" } dd { bdi { (word(from, MAX_WORD)) } } } }
                    @if !about.chain.is_empty() { div { dt { "Chain" } dd { bdi { (word(&about.chain, MAX_TASK)) } } } }
                    @if about.tokens > 0 { div { dt { "So far" } dd { (used(about)) } } }
                }
                @if let Some(run) = item.run { div { dt { "Run" } dd { a href={ "/runs/" (run) } { code { (short(run)) } } } } }
                @if let Some(Pending::Approval(envelope)) = wait
                    && let Some(code) = Card::of(envelope).code() { div { dt { "Code" } dd { code { (code) } } } }
                @if let Some(Pending::Approval(envelope)) = wait { (rule(envelope)) }
                @match expires {
                    Some((otherwise, at)) => div { dt { (otherwise) } dd { (shown_time(at)) } },
                    None => div { dt { "Meanwhile" } dd { (item.otherwise) } },
                }
            }
            @if let Some(deciding) = &item.deciding { (deciders(deciding, now)) }
            @if let Some(why) = item.may_not.as_ref().filter(|_| may_decide && item.deciding.is_some()) {
                p.hint.standing { "You do not decide this: " (word(why, MAX_WORD)) }
            }
            @if can_decide {
                @match wait { Some(wait) => (controls(wait, &id)), None => (remedies(item)) }
            }
            p.result role="status" {}
        }
    }
}

/// What the agent says about why it wants to do it. Nobody has checked that, so it is marked as its own words.
fn reason(envelope: &Envelope) -> Markup {
    html! {
        @if let Some(reason) = &envelope.rationale.reason {
            p.hint { "In the agent's own words:" }
            blockquote dir="auto" { (word(&reason.split_whitespace().collect::<Vec<_>>().join(" "), MAX_REASON)) }
        }
    }
}

/// What the tool of an action may change, and by which rule people are asked.
fn rule(envelope: &Envelope) -> Markup {
    let Rationale { effect, tier, rule, .. } = &envelope.rationale;
    html! {
        @if let Some(effect) = effect {
            div { dt { "Effect" } dd { (effect.name()) @if let Some(tier) = tier { ", by a " (word(&tier.replace('_', "-"), MAX_WORD)) " agent" } } }
        } @else if envelope.kind == ActionKind::Requested {
            div { dt { "Effect" } dd { "not declared: the agent has named this action itself" } }
        }
        @if let Some(rule) = rule { div { dt { "Rule" } dd { (word(rule, MAX_WORD)) } } }
    }
}

/// What a run has used.
fn used(about: &About) -> String {
    match about.cost > 0.0 {
        true => format!("{} tokens, ${:.2}", about.tokens, about.cost),
        false => format!("{} tokens", about.tokens),
    }
}

/// What a person has to see of an action besides its arguments: words that are not what they look like, and what an edit changes.
fn notes(envelope: &Envelope, difference: &Difference, left: &mut usize) -> Markup {
    let action = &envelope.action;
    let texts = format!("{} {} {}", action.action, action.target, action.arguments.value());
    let words = disguised(&texts, MAX_DISGUISED);
    let is_to_present = difference.is_to_present;
    html! {
        @for (word, seen) in &words {
            p.cut { code { (word) } " looks like " code { (seen) } ", and is not" }
        }
        @if let Some(difference) = difference.lines.as_ref().filter(|lines| !lines.is_empty()) {
            @let (shown, bytes) = beginning(difference, MAX_TEXT.min(*left).max(MIN_TEXT));
            @let () = *left = left.saturating_sub(bytes);
            p.hint {
                "What changes in the file" @if is_to_present { ", as it is now" } ": "
                (counted(difference, '-')) " removed, " (counted(difference, '+')) " added"
            }
            pre.text.difference {
                @for line in shown.split_inclusive('\n') {
                    @match line.as_bytes().first() {
                        Some(b'-') => del { (line) },
                        Some(b'+') => ins { (line) },
                        _ => (line),
                    }
                }
            }
            @if shown.len() < difference.len() {
                p.cut {
                    (difference.chars().count() - shown.chars().count()) " more characters of these lines are not shown. "
                    @if is_to_present { code { "callboard inbox" } " shows all of them." } @else { "All of them are in the arguments." }
                }
            }
        }
        @if let Some(note) = &difference.note { p.cut { (note) } }
    }
}

/// The number of lines of a difference that begin so, in words.
fn counted(difference: &str, begin: char) -> String {
    match difference.lines().filter(|line| line.starts_with(begin)).count() {
        1 => "1 line".to_owned(),
        lines => format!("{lines} lines"),
    }
}

/// Who decides, who has approved, and how many are missing.
fn deciders(deciding: &Deciding, now: Timestamp) -> Markup {
    let Deciding { deciders, escalates, approved, missing, edited_by } = deciding;
    html! {
        p.deciders {
            "Decided by " (word(deciders, MAX_WORD))
            @for vote in approved { " · approved by " b { bdi { (word(&vote.by, MAX_WORD)) } } " " (shown_time(vote.at)) }
            @if !approved.is_empty() { " · " (missing) " more " @if *missing == 1 { "has" } @else { "have" } " to approve" }
            @if let Some((at, group)) = escalates { " · also by " (word(group, MAX_WORD)) @if *at <= now { " since " } @else { " from " } (shown_time(*at)) }
            @if let Some(editor) = edited_by { " · changed to this by " b { bdi { (word(editor, MAX_WORD)) } } }
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
fn remedies(item: &Item) -> Markup {
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
                @match &envelope.edited_by {
                    Some(editor) => { (name(&editor.by)) " has changed what " (name(envelope.agent.as_str())) " wants to do: " }
                    None => { (name(envelope.agent.as_str())) " wants to " }
                }
                code { bdi { (word(&action.action, MAX_WORD)) } }
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
        Pending::Question(question) => Some(visible_lines(&question.text())),
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
        Pending::Approval(envelope) => {
            let is_handoff = envelope.kind == ActionKind::Handoff;
            html! {
                div.actions {
                    button.main type="button" data-response="approve" { "Approve" }
                    button type="button" data-opens="deny" aria-expanded="false" { "Deny …" }
                    @if !is_handoff && &*envelope.policy == Envelope::ASK {
                        button type="button" data-response="approve" data-for-run { "Approve for this run" }
                    }
                    @if !is_handoff { button type="button" data-opens="edit" aria-expanded="false" { "Edit …" } }
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
        Some((end, _)) => format!("{}… ({} more characters)", exact(&text[..end]), text[end..].chars().count()),
    }
}

/// How many bytes of a page a character takes.
const fn width(c: char) -> usize {
    match c {
        '"' => 6,
        '&' => 5,
        '<' | '>' => 4,
        _ => c.len_utf8(),
    }
}

/// As much of a text as a page has in so many bytes, and how many these are.
fn beginning(text: &str, most: usize) -> (&str, usize) {
    let mut bytes = 0;
    for (at, c) in text.char_indices() {
        if bytes + width(c) > most {
            return (&text[..at], bytes);
        }
        bytes += width(c);
    }
    (text, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_in_its_middle_and_the_end_of_it_is_seen() {
        let all = Shortened { begin: "a\nb", left_out: 0, end: "", bytes: 3 };
        assert_eq!(shortened("a\nb", 100), all);
        let long = format!("{}END", "x".repeat(10_000));
        let shown = shortened(&long, 1_000);
        assert_eq!((shown.begin.len(), shown.left_out, shown.bytes), (750, 10_003 - 1_000, 1_000));
        assert!(shown.end.ends_with("xEND"));
        let lines = format!("echo\n{}rm -rf /", "\n".repeat(60));
        let shown = shortened(&lines, 1_000);
        assert!(shown.end.ends_with("\nrm -rf /") && shown.left_out > 10, "{shown:?}");
        let quotes = "\"".repeat(1_000);
        assert!(shortened(&quotes, 600).bytes <= 600);
    }
}
