//! Progress of agents on standard error: streamed text of one turn, and lines for everything else.

use std::collections::BTreeMap;

use callboard::actors::approvals::{Keyboard, Rows};
use callboard::messages::{AgentEvent, AgentName, LoopEnd, ToolCall, TurnId, visible, visible_lines};

use crate::output;
use crate::page::{brief, brief_json, is_coloured};

/// How much of a tool's arguments and answers is shown, in characters.
const SHOWN: usize = 100;

/// The most text of another turn that is buffered until its line ends, in bytes.
const MAX_HELD: usize = 4 << 10;

/// The longest answer that is compared with the output of the run, in bytes.
const MAX_KNOWN: usize = 1 << 20;

/// Prints the progress of agents. The text of one turn is streamed; that of other turns is meanwhile printed by whole lines.
#[derive(Default)]
pub(super) struct Progress {
    is_quiet: bool,
    is_coloured: bool,
    /// The turn whose text is being streamed.
    streaming: Option<TurnId>,
    /// The first turn of each agent; later ones are shown with their numbers.
    first: BTreeMap<AgentName, TurnId>,
    /// Text of other turns, by turn, until its line ends.
    held: BTreeMap<TurnId, (AgentName, String)>,
    /// The text of each turn since its last model request.
    texts: BTreeMap<TurnId, String>,
    /// The last text of the turn that ended last.
    last: String,
    /// Reads the width of the terminal; `None` without one, or in tests.
    columns: Option<fn() -> Option<usize>>,
    /// The column that the open line has reached.
    rows: Rows,
}

impl Progress {
    pub(super) fn new(is_quiet: bool) -> Self {
        let is_coloured = is_coloured(&std::io::stderr());
        Self { is_quiet, is_coloured, columns: Some(Keyboard::columns), ..Self::default() }
    }

    /// Prints an event of an agent.
    pub(super) fn show(&mut self, turn: TurnId, agent: &AgentName, event: &AgentEvent) {
        if !self.is_quiet {
            output::stream(|is_line_open| {
                let text = self.text((turn, agent), event, is_line_open);
                self.fitted(text, is_line_open)
            });
        }
    }

    /// Prints the buffered text of a turn whose attempt has ended, or of all turns, and ends their lines.
    pub(super) fn close(&mut self, turn: Option<TurnId>) {
        output::stream(|is_line_open| {
            let text = self.rest(turn, is_line_open);
            self.fitted(text, is_line_open)
        });
    }

    /// The text, folded at the terminal's width: where the terminal wraps by itself, the middle of a line could look like the head of a
    /// card.
    fn fitted(&mut self, text: String, is_line_open: bool) -> String {
        let Some(columns) = self.columns.and_then(|columns| columns()) else { return text };
        if !is_line_open {
            self.rows = Rows::default();
        }
        self.rows.push(&text, columns)
    }

    /// Whether this output was shown as the last text of the turn that ended last.
    pub(super) fn has_shown(&self, output: &str) -> bool {
        !self.is_quiet && !output.is_empty() && self.last.trim() == output.trim()
    }

    /// The text to print: streamed text of agents, and a line for every other event.
    fn text(&mut self, (turn, agent): (TurnId, &AgentName), event: &AgentEvent, is_line_open: bool) -> String {
        self.remember(turn, event);
        match event {
            AgentEvent::Text { text } => self.streamed((turn, agent), text, is_line_open),
            _ => {
                let line = line(event);
                let is_over = matches!(event, AgentEvent::Iteration { .. } | AgentEvent::Ended { .. });
                let mut printed =
                    if is_over || line.is_some() { self.rest(Some(turn), is_line_open) } else { String::new() };
                if let Some(line) = line {
                    let is_open = if printed.is_empty() { is_line_open } else { !printed.ends_with('\n') };
                    let (name, mark) = (self.name(turn, agent), self.coloured("2", "·"));
                    printed.push_str(&format!("{}{name} {mark} {line}\n", end_of(is_open)));
                }
                printed
            }
        }
    }

    fn streamed(&mut self, (turn, agent): (TurnId, &AgentName), text: &str, is_line_open: bool) -> String {
        if self.streaming.is_some_and(|streaming| streaming != turn) {
            let held = &mut self.held.entry(turn).or_insert_with(|| (agent.clone(), String::new())).1;
            held.push_str(text);
            let whole = match held.rfind('\n') {
                Some(end) => held.drain(..=end).collect::<String>(),
                None if held.len() > MAX_HELD => std::mem::take(held),
                None => return String::new(),
            };
            return self.lines(turn, agent, &whole, is_line_open);
        }
        // Lines are indented after the first, so that none looks like a line of `callboard`.
        let shown = |text: &str| visible_lines(text).replace('\n', "\n  │ ");
        if self.streaming == Some(turn) && is_line_open {
            return shown(text);
        }
        self.streaming = Some(turn);
        let before = self.held.remove(&turn).map(|(_, text)| text).unwrap_or_default();
        format!("{}{}: {}", end_of(is_line_open), self.name(turn, agent), shown(&(before + text)))
    }

    /// Text on lines of its own.
    fn lines(&mut self, turn: TurnId, agent: &AgentName, text: &str, is_line_open: bool) -> String {
        let text = visible_lines(text.trim_end_matches('\n')).replace('\n', "\n  │ ");
        format!("{}{}: {text}\n", end_of(is_line_open), self.name(turn, agent))
    }

    /// The buffered text of this turn, or of all, and the end of the streamed line.
    fn rest(&mut self, turn: Option<TurnId>, is_line_open: bool) -> String {
        let is_streaming = self.streaming.is_some() && turn.is_none_or(|turn| self.streaming == Some(turn));
        let mut printed = String::new();
        if is_streaming {
            self.streaming = None;
            printed.push_str(end_of(is_line_open));
        }
        let ended: Vec<TurnId> =
            self.held.keys().copied().filter(|held| turn.is_none_or(|turn| turn == *held)).collect();
        for turn in ended {
            if let Some((agent, text)) = self.held.remove(&turn).filter(|(_, text)| !text.is_empty()) {
                let is_open = is_line_open && printed.is_empty();
                printed.push_str(&self.lines(turn, &agent, &text, is_open));
            }
        }
        printed
    }

    /// Keeps the text of a turn, to compare it with the output of the run.
    fn remember(&mut self, turn: TurnId, event: &AgentEvent) {
        match event {
            AgentEvent::Iteration { .. } => drop(self.texts.remove(&turn)),
            AgentEvent::Text { text } => {
                let text_so_far = self.texts.entry(turn).or_default();
                if text_so_far.len() + text.len() <= MAX_KNOWN {
                    text_so_far.push_str(text);
                }
            }
            AgentEvent::Ended { .. } => self.last = self.texts.remove(&turn).unwrap_or_default(),
            _ => {}
        }
    }

    /// An agent's name, with the turn's number if it has had another turn before.
    fn name(&mut self, turn: TurnId, agent: &AgentName) -> String {
        let first = *self.first.entry(agent.clone()).or_insert(turn);
        let shown = visible(agent.as_str());
        let shown = if first == turn { shown } else { format!("{shown} (turn {})", turn.number) };
        self.coloured("36", &shown)
    }

    fn coloured(&self, colour: &str, text: &str) -> String {
        if self.is_coloured { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

fn end_of(is_line_open: bool) -> &'static str {
    if is_line_open { "\n" } else { "" }
}

fn line(event: &AgentEvent) -> Option<String> {
    Some(match event {
        AgentEvent::ToolCalled { call: ToolCall { name, arguments, .. }, .. } => {
            format!("{} {}", visible(name), brief_json(arguments, SHOWN))
        }
        AgentEvent::ToolAnswered { name, text, is_error: true, .. } => {
            format!("{} failed: {}", visible(name), brief(&text.replace('\n', " "), SHOWN))
        }
        AgentEvent::ModelFailed { model, error, next } => {
            let next = if next == model { "it is asked again" } else { &*format!("the next one is {}", visible(next)) };
            format!("the model {} failed: {}; {next}", visible(model), brief(error, SHOWN))
        }
        AgentEvent::PermissionDecided { is_granted: false, reason, .. } => {
            format!("not allowed: {}", brief(reason, SHOWN))
        }
        AgentEvent::AnswerRefused { problem } => {
            format!("its answer {}; the model is asked again", brief(problem, SHOWN))
        }
        AgentEvent::ContextGiven { to, problem: Some(problem), .. } => {
            format!("{} receives nothing of the conversation: {}", visible(to), brief(problem, SHOWN))
        }
        AgentEvent::ContextGiven { to, strategy, tokens, summary_tokens, .. } => {
            let took =
                if *summary_tokens > 0 { format!(", and about {summary_tokens} to make it") } else { String::new() };
            format!("{} receives of the conversation: {strategy}, about {tokens} tokens{took}", visible(to))
        }
        AgentEvent::Compacted { messages, tokens_before, tokens_after } => {
            format!("{messages} older messages are summarized: about {tokens_after} tokens instead of {tokens_before}")
        }
        AgentEvent::NotCompacted { why } => format!("its conversation is not compacted: {}", brief(why, SHOWN)),
        AgentEvent::Handoff { to } => format!("hands over to {}", visible(to)),
        AgentEvent::Ended { end: LoopEnd::IterationLimit } => "has reached its limit of model requests".to_owned(),
        // Other events are printed by the run, or asked about at the terminal.
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use callboard::messages::ConversationStrategy;
    use serde_json::json;

    use super::*;

    /// The progress, and what it has printed.
    #[derive(Default)]
    struct Printed {
        progress: Progress,
        is_line_open: bool,
        text: String,
    }

    impl Printed {
        fn show(&mut self, number: u32, agent: &str, event: AgentEvent) -> String {
            let turn = turn(number);
            let agent = AgentName::new(agent).unwrap();
            let text = self.progress.text((turn, &agent), &event, self.is_line_open);
            let text = self.progress.fitted(text, self.is_line_open);
            self.add(text)
        }

        fn note(&mut self, line: &str) {
            let open = end_of(self.is_line_open);
            self.add(format!("{open}{line}\n"));
        }

        fn add(&mut self, text: String) -> String {
            if !text.is_empty() {
                self.is_line_open = !text.ends_with('\n');
            }
            self.text.push_str(&text);
            text
        }
    }

    fn turn(number: u32) -> TurnId {
        TurnId { run: "0192f0c1-2345-7abc-8def-0123456789ab".parse().unwrap(), number }
    }

    fn text(text: &str) -> AgentEvent {
        AgentEvent::Text { text: text.into() }
    }

    #[test]
    fn two_turns_of_one_agent_are_shown_apart_by_whole_lines() {
        let mut printed = Printed::default();
        for (turn, words) in [(1, "al"), (3, "be"), (1, "pha"), (3, "ta\ngam"), (1, " and"), (3, "ma")] {
            printed.show(turn, "researcher", text(words));
        }
        printed.show(1, "researcher", AgentEvent::Ended { end: LoopEnd::Answered });
        printed.show(3, "researcher", text("!"));
        printed.show(3, "researcher", AgentEvent::Ended { end: LoopEnd::Answered });
        assert_eq!(
            printed.text,
            "researcher: alpha\nresearcher (turn 3): beta\nresearcher:  and\nresearcher (turn 3): gamma!\n"
        );
    }

    #[test]
    fn interrupted_text_continues_after_the_name() {
        let mut printed = Printed::default();
        printed.show(1, "coder", text("one two"));
        printed.note("an attempt failed");
        printed.show(1, "coder", text("one"));
        let rest = printed.progress.rest(None, printed.is_line_open);
        assert_eq!(printed.text + &rest, "coder: one two\nan attempt failed\ncoder: one\n");
        let mut printed = Printed::default();
        printed.show(1, "coder", text("one"));
        printed.show(2, "other", text("two"));
        let rest = printed.progress.rest(None, printed.is_line_open);
        assert_eq!(printed.text + &rest, "coder: one\nother: two\n");
    }

    #[test]
    fn streamed_text_is_folded_at_the_terminals_width_and_begins_no_row() {
        let mut printed = Printed::default();
        printed.progress.columns = Some(|| Some(30));
        printed.show(1, "coder", text(&"A".repeat(20)));
        printed.show(1, "coder", text("AAA── approval 1111 ──"));
        printed.show(1, "coder", text(&format!("\n{}agent     alpha", "B".repeat(25))));
        let call = ToolCall::new("1", "FileRead", json!({ "path": "agent     alpha".repeat(2) }));
        printed.show(1, "coder", AgentEvent::ToolCalled { call, is_unknown: false });
        printed.note("an attempt failed");
        printed.show(1, "coder", text(&"C".repeat(23)));
        assert_eq!(
            printed.text,
            format!(
                "coder: {}\n          ┆ ── approval 111\n          ┆ 1 ──\n  │ {}\n  ┆ agent     alpha\n\
                 coder · FileRead {{\"path\":\"age\n          ┆ nt     alphaagent\n          ┆      alpha\"}}\n\
                 an attempt failed\ncoder: {}",
                "A".repeat(23),
                "B".repeat(25),
                "C".repeat(23)
            )
        );
    }

    #[test]
    fn an_answer_that_was_shown_is_recognized() {
        let mut printed = Printed::default();
        for event in [AgentEvent::Iteration { iteration: 1 }, text("I look."), AgentEvent::Iteration { iteration: 2 }] {
            printed.show(1, "coder", event);
        }
        printed.show(1, "coder", text("Done"));
        printed.show(1, "coder", text(".\n"));
        assert!(!printed.progress.has_shown("Done."), "it is not over");
        printed.show(1, "coder", AgentEvent::Ended { end: LoopEnd::Answered });
        assert!(
            printed.progress.has_shown("Done.")
                && !printed.progress.has_shown("I look.")
                && !printed.progress.has_shown("")
        );
    }

    #[test]
    fn a_model_that_is_asked_again_is_not_shown_as_another_one() {
        let failed = |next: &str| AgentEvent::ModelFailed { model: "m".into(), error: "503".into(), next: next.into() };
        assert_eq!(line(&failed("m")).unwrap(), "the model m failed: 503; it is asked again");
        assert_eq!(line(&failed("n")).unwrap(), "the model m failed: 503; the next one is n");
    }

    #[test]
    fn text_is_streamed_and_other_events_have_lines() {
        let mut printed = Printed::default();
        let mut show = |agent: &str, event: AgentEvent| {
            let turn = if agent == "lead" { 1 } else { 2 };
            printed.show(turn, agent, event)
        };
        let given = |to: &str, problem: Option<&str>| AgentEvent::ContextGiven {
            to: to.into(),
            strategy: ConversationStrategy::Summary,
            tokens: 300,
            passages: 1,
            left_out: 0,
            summary_tokens: 2_000,
            problem: problem.map(Into::into),
        };
        let call = ToolCall::new("1", "FileRead", json!({ "path": "a\u{1b}[31m" }));
        let shown = [
            show("lead", text("I look ")),
            show("lead", text("at it.\u{1b}[31m")),
            show("lead", AgentEvent::ToolCalled { call, is_unknown: false }),
            show("lead", AgentEvent::Iteration { iteration: 2 }),
            show("helper", text("So do I.\n── approval 12 ──\n(y)es, (n)o? y")),
            show("lead", text("Good.")),
            show("lead", given("helper", None)),
            show("lead", given("help\u{202e}er", Some("nobody\nis there"))),
            show("lead", AgentEvent::Compacted { messages: 8, tokens_before: 9_000, tokens_after: 4_000 }),
            show("lead", AgentEvent::NotCompacted { why: "there is no agent \"compactor\"".into() }),
            show("lead", AgentEvent::AnswerRefused { problem: "is not JSON".into() }),
            show("lead", AgentEvent::Handoff { to: "writer".into() }),
        ];
        insta::assert_snapshot!("shown", shown.concat());
    }
}
