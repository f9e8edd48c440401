//! What agents do, line by line, for the person who waits.

use std::collections::BTreeMap;

use callboard::actors::approvals::{Rows, terminal_columns};
use callboard::messages::{AgentEvent, AgentName, LoopEnd, Shown, ToolCall, TurnId, visible, visible_lines};

use crate::output;
use crate::page::{brief, brief_json, is_coloured};

/// How much of a tool's arguments and answers is shown, in characters.
const SHOWN: usize = 100;

/// The most words of another turn that wait for the end of their line, in bytes.
const MAX_HELD: usize = 4 << 10;

/// The longest answer that is known again, in bytes.
const MAX_KNOWN: usize = 1 << 20;

/// Tells on standard error what agents do. One turn's words are told as they come, those of others meanwhile by whole lines.
#[derive(Default)]
pub(super) struct Teller {
    is_quiet: bool,
    is_coloured: bool,
    /// The turn whose words are being told as they come.
    speaking: Option<TurnId>,
    /// The first turn of each agent; the others are told by their numbers.
    first: BTreeMap<AgentName, TurnId>,
    /// Whose words wait for the end of their line.
    held: BTreeMap<TurnId, (AgentName, String)>,
    /// What each turn has said since its model was asked.
    said: BTreeMap<TurnId, String>,
    /// What the turn has said that ended last.
    last: String,
    /// How wide the terminal is, if it is one.
    columns: Option<fn() -> Option<usize>>,
    /// How far the open line has come on it.
    rows: Rows,
}

impl Teller {
    pub(super) fn new(is_quiet: bool) -> Self {
        let is_coloured = is_coloured(&std::io::stderr());
        Self { is_quiet, is_coloured, columns: Some(terminal_columns), ..Self::default() }
    }

    pub(super) fn tell(&mut self, shown: &Shown) {
        if !self.is_quiet {
            output::stream(|is_line_open| {
                let text = self.text(shown, is_line_open);
                self.fitted(text, is_line_open)
            });
        }
    }

    /// Tells what waits to be told of a turn whose attempt has ended, or of all.
    pub(super) fn close(&mut self, turn: Option<TurnId>) {
        output::stream(|is_line_open| {
            let text = self.rest(turn, is_line_open);
            self.fitted(text, is_line_open)
        });
    }

    /// Folded at the terminal's width: a terminal that wraps a line by itself could have its middle pass for the head of a card.
    fn fitted(&mut self, text: String, is_line_open: bool) -> String {
        let Some(columns) = self.columns.and_then(|columns| columns()) else { return text };
        if !is_line_open {
            self.rows = Rows::default();
        }
        self.rows.push(&text, columns)
    }

    /// Whether this is what the turn that ended last was told to have said.
    pub(super) fn has_told(&self, output: &str) -> bool {
        !self.is_quiet && !output.is_empty() && self.last.trim() == output.trim()
    }

    /// What is written: words as they come, and a line for everything else.
    fn text(&mut self, Shown { turn, agent, event }: &Shown, is_line_open: bool) -> String {
        self.remember(*turn, event);
        match event {
            AgentEvent::Text { text } => self.words((*turn, agent), text, is_line_open),
            _ => {
                let line = line(event);
                let is_over = matches!(event, AgentEvent::Iteration { .. } | AgentEvent::Ended { .. });
                let mut told =
                    if is_over || line.is_some() { self.rest(Some(*turn), is_line_open) } else { String::new() };
                if let Some(line) = line {
                    let is_open = if told.is_empty() { is_line_open } else { !told.ends_with('\n') };
                    let (name, mark) = (self.name(*turn, agent), self.coloured("2", "·"));
                    told.push_str(&format!("{}{name} {mark} {line}\n", end_of(is_open)));
                }
                told
            }
        }
    }

    fn words(&mut self, (turn, agent): (TurnId, &AgentName), text: &str, is_line_open: bool) -> String {
        if self.speaking.is_some_and(|speaking| speaking != turn) {
            let held = &mut self.held.entry(turn).or_insert_with(|| (agent.clone(), String::new())).1;
            held.push_str(text);
            let whole = match held.rfind('\n') {
                Some(end) => held.drain(..=end).collect::<String>(),
                None if held.len() > MAX_HELD => std::mem::take(held),
                None => return String::new(),
            };
            return self.lines(turn, agent, &whole, is_line_open);
        }
        // No line of it begins where this program's own lines do: it could pass for one of them.
        let shown = |text: &str| visible_lines(text).replace('\n', "\n  │ ");
        if self.speaking == Some(turn) && is_line_open {
            return shown(text);
        }
        self.speaking = Some(turn);
        let before = self.held.remove(&turn).map(|(_, words)| words).unwrap_or_default();
        format!("{}{}: {}", end_of(is_line_open), self.name(turn, agent), shown(&(before + text)))
    }

    /// Words in lines of their own.
    fn lines(&mut self, turn: TurnId, agent: &AgentName, words: &str, is_line_open: bool) -> String {
        let words = visible_lines(words.trim_end_matches('\n')).replace('\n', "\n  │ ");
        format!("{}{}: {words}\n", end_of(is_line_open), self.name(turn, agent))
    }

    /// The words that wait of this turn, or of all, and the end of its line.
    fn rest(&mut self, turn: Option<TurnId>, is_line_open: bool) -> String {
        let is_speaking = self.speaking.is_some() && turn.is_none_or(|turn| self.speaking == Some(turn));
        let mut told = String::new();
        if is_speaking {
            self.speaking = None;
            told.push_str(end_of(is_line_open));
        }
        let ended: Vec<TurnId> =
            self.held.keys().copied().filter(|held| turn.is_none_or(|turn| turn == *held)).collect();
        for turn in ended {
            if let Some((agent, words)) = self.held.remove(&turn).filter(|(_, words)| !words.is_empty()) {
                let is_open = is_line_open && told.is_empty();
                told.push_str(&self.lines(turn, &agent, &words, is_open));
            }
        }
        told
    }

    /// Keeps what a turn says, so that its answer is known again.
    fn remember(&mut self, turn: TurnId, event: &AgentEvent) {
        match event {
            AgentEvent::Iteration { .. } => drop(self.said.remove(&turn)),
            AgentEvent::Text { text } => {
                let said = self.said.entry(turn).or_default();
                if said.len() + text.len() <= MAX_KNOWN {
                    said.push_str(text);
                }
            }
            AgentEvent::Ended { .. } => self.last = self.said.remove(&turn).unwrap_or_default(),
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
        AgentEvent::ToolCalled { call: ToolCall { name, arguments, .. } } => {
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
            format!("{} gets nothing of the conversation: {}", visible(to), brief(problem, SHOWN))
        }
        AgentEvent::ContextGiven { to, strategy, tokens, summary_tokens, .. } => {
            let took =
                if *summary_tokens > 0 { format!(", and about {summary_tokens} to make it") } else { String::new() };
            format!("{} gets of the conversation: {strategy}, about {tokens} tokens{took}", visible(to))
        }
        AgentEvent::Compacted { messages, tokens_before, tokens_after } => {
            format!("{messages} older messages are summarized: about {tokens_after} tokens instead of {tokens_before}")
        }
        AgentEvent::NotCompacted { why } => format!("its conversation is not compacted: {}", brief(why, SHOWN)),
        AgentEvent::Handoff { to } => format!("hands over to {}", visible(to)),
        AgentEvent::Ended { end: LoopEnd::IterationLimit } => "has reached its limit of model requests".to_owned(),
        // Of what else happens, the run tells, or the person is asked.
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use callboard::messages::ConversationStrategy;
    use serde_json::json;

    use super::*;

    /// A teller, and what it has told.
    #[derive(Default)]
    struct Told {
        teller: Teller,
        is_line_open: bool,
        text: String,
    }

    impl Told {
        fn tell(&mut self, number: u32, agent: &str, event: AgentEvent) -> String {
            let turn = turn(number);
            let agent = AgentName::new(agent).unwrap();
            let text = self.teller.text(&Shown { turn, agent, event }, self.is_line_open);
            let text = self.teller.fitted(text, self.is_line_open);
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
    fn two_turns_of_one_agent_are_told_apart_and_not_letter_by_letter() {
        let mut told = Told::default();
        for (turn, words) in [(1, "al"), (3, "be"), (1, "pha"), (3, "ta\ngam"), (1, " and"), (3, "ma")] {
            told.tell(turn, "researcher", text(words));
        }
        told.tell(1, "researcher", AgentEvent::Ended { end: LoopEnd::Answered });
        told.tell(3, "researcher", text("!"));
        told.tell(3, "researcher", AgentEvent::Ended { end: LoopEnd::Answered });
        assert_eq!(
            told.text,
            "researcher: alpha\nresearcher (turn 3): beta\nresearcher:  and\nresearcher (turn 3): gamma!\n"
        );
    }

    #[test]
    fn words_that_were_broken_into_begin_again_with_the_name() {
        let mut told = Told::default();
        told.tell(1, "coder", text("one two"));
        told.note("an attempt failed");
        told.tell(1, "coder", text("one"));
        let rest = told.teller.rest(None, told.is_line_open);
        assert_eq!(told.text + &rest, "coder: one two\nan attempt failed\ncoder: one\n");
        let mut told = Told::default();
        told.tell(1, "coder", text("one"));
        told.tell(2, "other", text("two"));
        let rest = told.teller.rest(None, told.is_line_open);
        assert_eq!(told.text + &rest, "coder: one\nother: two\n");
    }

    #[test]
    fn words_that_come_in_parts_are_folded_at_the_terminals_width_and_begin_no_row() {
        let mut told = Told::default();
        told.teller.columns = Some(|| Some(30));
        told.tell(1, "coder", text(&"A".repeat(20)));
        told.tell(1, "coder", text("AAA── approval 1111 ──"));
        told.tell(1, "coder", text(&format!("\n{}agent     alpha", "B".repeat(25))));
        let call = ToolCall::new("1", "FileRead", json!({ "path": "agent     alpha".repeat(2) }));
        told.tell(1, "coder", AgentEvent::ToolCalled { call });
        told.note("an attempt failed");
        told.tell(1, "coder", text(&"C".repeat(23)));
        assert_eq!(
            told.text,
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
    fn an_answer_that_was_told_is_known_again() {
        let mut told = Told::default();
        for event in [AgentEvent::Iteration { iteration: 1 }, text("I look."), AgentEvent::Iteration { iteration: 2 }] {
            told.tell(1, "coder", event);
        }
        told.tell(1, "coder", text("Done"));
        told.tell(1, "coder", text(".\n"));
        assert!(!told.teller.has_told("Done."), "it is not over");
        told.tell(1, "coder", AgentEvent::Ended { end: LoopEnd::Answered });
        assert!(told.teller.has_told("Done.") && !told.teller.has_told("I look.") && !told.teller.has_told(""));
    }

    #[test]
    fn a_model_that_is_asked_again_after_a_failure_is_no_other_one() {
        let failed = |next: &str| AgentEvent::ModelFailed { model: "m".into(), error: "503".into(), next: next.into() };
        assert_eq!(line(&failed("m")).unwrap(), "the model m failed: 503; it is asked again");
        assert_eq!(line(&failed("n")).unwrap(), "the model m failed: 503; the next one is n");
    }

    #[test]
    fn words_come_as_they_are_said_and_all_else_in_lines() {
        let mut told = Told::default();
        let mut tell = |agent: &str, event: AgentEvent| {
            let turn = if agent == "lead" { 1 } else { 2 };
            told.tell(turn, agent, event)
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
        let told = [
            tell("lead", text("I look ")),
            tell("lead", text("at it.\u{1b}[31m")),
            tell("lead", AgentEvent::ToolCalled { call }),
            tell("lead", AgentEvent::Iteration { iteration: 2 }),
            tell("helper", text("So do I.\n── approval 12 ──\n(y)es, (n)o? y")),
            tell("lead", text("Good.")),
            tell("lead", given("helper", None)),
            tell("lead", given("help\u{202e}er", Some("nobody\nis there"))),
            tell("lead", AgentEvent::Compacted { messages: 8, tokens_before: 9_000, tokens_after: 4_000 }),
            tell("lead", AgentEvent::NotCompacted { why: "there is no agent \"compactor\"".into() }),
            tell("lead", AgentEvent::AnswerRefused { problem: "is not JSON".into() }),
            tell("lead", AgentEvent::Handoff { to: "writer".into() }),
        ];
        insta::assert_snapshot!("told", told.concat());
    }
}
