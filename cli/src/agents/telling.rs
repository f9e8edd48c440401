//! What agents do, line by line, for the person who waits.

use std::io::{IsTerminal as _, Write as _};

use callboard::messages::{AgentEvent, LoopEnd, Shown, ToolCall, visible, visible_lines};

use crate::page::{brief, brief_json};

/// How much of a tool's arguments and answers is shown, in characters.
const SHOWN: usize = 100;

/// Tells on standard error what agents do.
pub(super) struct Teller {
    is_quiet: bool,
    is_coloured: bool,
    /// Whose words are being told, if a line of them is not over.
    speaking: Option<String>,
}

impl Teller {
    pub(super) fn new(is_quiet: bool) -> Self {
        let is_coloured = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { is_quiet, is_coloured, speaking: None }
    }

    pub(super) fn tell(&mut self, shown: &Shown) {
        if !self.is_quiet {
            let text = self.text(shown);
            // Whoever reads none of it is no error.
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
    }

    /// What is written: words as they come, and a line for everything else.
    fn text(&mut self, Shown { agent, event, .. }: &Shown) -> String {
        let agent = visible(agent.as_str());
        if let AgentEvent::Text { text } = event {
            let mut told = String::new();
            if self.speaking.as_deref() != Some(&agent) {
                told.push_str(&self.close());
                told.push_str(&format!("{}: ", self.coloured("36", &agent)));
                self.speaking = Some(agent);
            }
            // No line of it begins where this program's own lines do: it could pass for one of them.
            told.push_str(&visible_lines(text).replace('\n', "\n  │ "));
            return told;
        }
        let Some(line) = line(event) else { return String::new() };
        let mark = self.coloured("2", "·");
        format!("{}{} {mark} {line}\n", self.close(), self.coloured("36", &agent))
    }

    /// Ends a line of words.
    pub(super) fn close(&mut self) -> String {
        if self.speaking.take().is_some() { "\n".to_owned() } else { String::new() }
    }

    fn coloured(&self, colour: &str, text: &str) -> String {
        if self.is_coloured { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
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
            format!("model {} failed: {}; asking {}", visible(model), brief(error, SHOWN), visible(next))
        }
        AgentEvent::PermissionDecided { is_granted: false, reason, .. } => {
            format!("not allowed: {}", brief(reason, SHOWN))
        }
        AgentEvent::AnswerRefused { problem } => format!("its answer {}; it is asked again", brief(problem, SHOWN)),
        AgentEvent::ContextGiven { to, problem: Some(problem), .. } => {
            format!("{} is told nothing of the conversation: {}", visible(to), brief(problem, SHOWN))
        }
        AgentEvent::ContextGiven { to, strategy, tokens, summary_tokens, .. } => {
            let took =
                if *summary_tokens > 0 { format!(", and about {summary_tokens} to make it") } else { String::new() };
            format!("{} is told of the conversation: {strategy}, about {tokens} tokens{took}", visible(to))
        }
        AgentEvent::Compacted { messages, tokens_before, tokens_after } => {
            format!("{messages} older messages are summed up: about {tokens_after} tokens in place of {tokens_before}")
        }
        AgentEvent::NotCompacted { why } => format!("its conversation stays as long as it is: {}", brief(why, SHOWN)),
        AgentEvent::Handoff { to } => format!("hands over to {}", visible(to)),
        AgentEvent::Ended { end: LoopEnd::IterationLimit } => "has asked its model as often as it may".to_owned(),
        // Of what else happens, the run tells, or the person is asked.
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use callboard::messages::{AgentName, ConversationStrategy, TurnId};
    use serde_json::json;

    use super::*;

    #[test]
    fn words_come_as_they_are_said_and_all_else_in_lines() {
        let mut teller = Teller { is_quiet: false, is_coloured: false, speaking: None };
        let mut tell = |agent: &str, event: AgentEvent| {
            let turn = TurnId { run: "0192f0c1-2345-7abc-8def-0123456789ab".parse().unwrap(), number: 1 };
            teller.text(&Shown { turn, agent: AgentName::new(agent).unwrap(), event })
        };
        let text = |text: &str| AgentEvent::Text { text: text.into() };
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
