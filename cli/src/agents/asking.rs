//! The person at the terminal, and what agents ask of them.

use std::io::{BufRead, IsTerminal as _, Write};

use callboard::actors::approvals::card;
use callboard::messages::{ASK, Envelope, Question, visible, visible_lines};
use rustix::termios::{QueueSelector, tcflush};
use serde_json::Value;

use crate::workflow::arguments::value_of;

/// Whether there is somebody to ask.
pub(super) fn is_anybody_here(no_input: bool) -> bool {
    !no_input && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// What a person says to an action.
#[derive(Debug, PartialEq)]
pub(super) enum Decision {
    Yes,
    /// Yes, and the same again in this run.
    ForRun,
    /// The same with these arguments.
    Edited {
        arguments: Value,
    },
    No {
        reason: String,
    },
    /// Nothing: it waits on.
    Leave,
}

/// What is asked, as people see it.
pub(super) fn shown(question: &Question) -> String {
    let (text, choices) = match question.question.get("question").and_then(Value::as_str) {
        Some(text) => (text.to_owned(), question.question.get("choices").and_then(Value::as_array)),
        None => (question.question.as_str().map_or_else(|| question.question.to_string(), str::to_owned), None),
    };
    let mut shown = format!("{} asks: {}", visible(question.agent.as_str()), visible_lines(&text));
    for (position, choice) in choices.into_iter().flatten().enumerate() {
        let choice = choice.as_str().map_or_else(|| choice.to_string(), str::to_owned);
        shown.push_str(&format!("\n  {}. {}", position + 1, visible(&choice)));
    }
    shown
}

/// Throws away what was typed before a question was shown: it cannot have been meant for it.
fn forget_what_was_typed() {
    // What is no terminal has nobody at it who could type too early.
    let _ = tcflush(std::io::stdin(), QueueSelector::IFlush);
}

/// Asks at the terminal about an action.
pub(super) fn decide(envelope: &Envelope) -> Decision {
    forget_what_was_typed();
    decide_over(envelope, &mut std::io::stdin().lock(), &mut std::io::stderr())
}

fn decide_over(envelope: &Envelope, answers: &mut impl BufRead, out: &mut impl Write) -> Decision {
    let for_run = if &*envelope.policy == ASK { "(r)un: yes, and the same again in this run; " } else { "" };
    let ways = format!("(y)es; {for_run}(e)dit: with other arguments; (n)o, and why; (l)eave it waiting? ");
    let mut question = format!("\n{}{ways}", card(envelope));
    loop {
        let Some(line) = said(&question, answers, out) else { return Decision::Leave };
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
        match word.to_lowercase().as_str() {
            "y" | "yes" if rest.is_empty() => return Decision::Yes,
            "r" | "run" if rest.is_empty() && !for_run.is_empty() => return Decision::ForRun,
            "e" | "edit" => match serde_json::from_str(rest) {
                Ok(arguments @ Value::Object(_)) => return Decision::Edited { arguments },
                Ok(_) | Err(_) => question = "e and the whole arguments as a JSON object, in one line? ".to_owned(),
            },
            "n" | "no" => return Decision::No { reason: rest.trim().to_owned() },
            "l" | "leave" => return Decision::Leave,
            _ => question = ways.clone(),
        }
    }
}

/// Asks a question at the terminal; `None` leaves it open.
pub(super) fn answer(question: &Question) -> Option<Value> {
    forget_what_was_typed();
    answer_over(question, &mut std::io::stdin().lock(), &mut std::io::stderr())
}

fn answer_over(question: &Question, answers: &mut impl BufRead, out: &mut impl Write) -> Option<Value> {
    let line = said(&format!("\n{}\n> ", shown(question)), answers, out)?;
    let choices = question.question.get("choices").and_then(Value::as_array);
    let chosen = choices.and_then(|choices| choices.get(line.parse::<usize>().ok()?.checked_sub(1)?));
    Some(chosen.cloned().unwrap_or_else(|| value_of(&line)))
}

fn said(question: &str, answers: &mut impl BufRead, out: &mut impl Write) -> Option<String> {
    let _ = write!(out, "{question}").and_then(|()| out.flush());
    let mut line = String::new();
    match answers.read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use callboard::messages::{Action, AgentName, EACH_TIME, QuestionId, RequestId, Timestamp, TurnId};
    use serde_json::json;

    use super::*;

    fn request() -> RequestId {
        let run = "0192f0c1-2345-7abc-8def-0123456789ab".parse().unwrap();
        RequestId { turn: TurnId { run, number: 1 }, ordinal: 2 }
    }

    fn envelope() -> Envelope {
        Envelope {
            request: request(),
            agent: AgentName::new("coder").unwrap(),
            action: Action::new(
                "FileWrite",
                "src/\u{202e}lib.rs",
                json!({ "path": "src/\u{202e}lib.rs", "content": "x" }),
            ),
            policy: ASK.into(),
            nonce: 7,
            expires_at: Timestamp::from_millis(1_000),
        }
    }

    fn question(asked: Value) -> Question {
        let id = QuestionId { request: request(), nonce: 3 };
        let agent = AgentName::new("lead").unwrap();
        Question { id, agent, question: asked.into(), asked_at: Timestamp::from_millis(0) }
    }

    #[test]
    fn a_person_is_shown_what_would_be_done_and_decides() {
        let decide = |answers: &str| {
            let mut out = Vec::new();
            (decide_over(&envelope(), &mut answers.as_bytes(), &mut out), String::from_utf8(out).unwrap())
        };
        let (decision, asked) = decide("what\ny\n");
        assert_eq!(decision, Decision::Yes);
        insta::assert_snapshot!("approval", asked);
        assert_eq!(decide("n not this file\n").0, Decision::No { reason: "not this file".to_owned() });
        assert_eq!(decide("y but\nl\n").0, Decision::Leave);
        assert_eq!(decide("e {\nr\n").0, Decision::ForRun);
        assert_eq!(decide("e {\"path\": \"b\"}\n").0, Decision::Edited { arguments: json!({ "path": "b" }) });
        let each_time = Envelope { policy: EACH_TIME.into(), ..envelope() };
        assert_eq!(decide_over(&each_time, &mut "r\nl\n".as_bytes(), &mut Vec::new()), Decision::Leave);
        assert_eq!(decide("").0, Decision::Leave);
    }

    #[test]
    fn a_question_is_answered_in_words_or_by_the_number_of_a_choice() {
        let answer =
            |asked: Value, answers: &str| answer_over(&question(asked), &mut answers.as_bytes(), &mut Vec::new());
        assert_eq!(answer(json!("Which?"), "that one\n"), Some(json!("that one")));
        let choice = json!({ "question": "Where?", "choices": ["here", "there"] });
        assert_eq!(answer(choice.clone(), "2\n"), Some(json!("there")));
        assert_eq!(answer(choice.clone(), "elsewhere\n"), Some(json!("elsewhere")));
        assert_eq!(answer(choice.clone(), ""), None);
        assert_eq!(shown(&question(choice)), "lead asks: Where?\n  1. here\n  2. there");
    }
}
