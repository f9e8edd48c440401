//! The person at the terminal, and what agents ask of them.

use callboard::actors::approvals::{Withdrawal, approval_code, arguments_lines, card, whole_card};
use callboard::messages::{ASK, Envelope, Question, visible, visible_lines};
use serde_json::Value;

use crate::person::{Person, at_the_terminal};
use crate::values::text_in;
use crate::workflow::arguments::value_of;

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
    let mut shown =
        format!("{} asks: {}", visible(question.agent.as_str()), visible_lines(&text).replace('\n', "\n  │ "));
    for (position, choice) in choices.into_iter().flatten().enumerate() {
        let choice = choice.as_str().map_or_else(|| choice.to_string(), str::to_owned);
        shown.push_str(&format!("\n  {}. {}", position + 1, visible(&choice)));
    }
    shown
}

/// Asks at the terminal about an action. `place` is where tools work, if that is not where the person is.
pub(super) fn decide(envelope: &Envelope, place: Option<&str>, withdrawal: Option<Withdrawal>) -> Decision {
    at_the_terminal(withdrawal, |person| Asking { person }.decide(envelope, place)).unwrap_or(Decision::Leave)
}

/// A card, and where it would be done.
pub(super) fn placed(card: String, place: Option<&str>) -> String {
    match place {
        Some(place) => format!("{card}in the folder {}\n", visible(place)),
        None => card,
    }
}

const EDIT: &str = "the whole arguments, as a JSON object in one line or @FILE with one; Enter goes back: ";

/// A person who is asked about an action.
struct Asking<'a, P> {
    person: &'a mut P,
}

impl<P: Person> Asking<'_, P> {
    fn decide(&mut self, envelope: &Envelope, place: Option<&str>) -> Decision {
        let (brief, whole) = (card(envelope), whole_card(envelope));
        let code = approval_code(envelope);
        let shown = |word: &str| code.as_ref().map_or_else(|| format!("({word})"), |_| format!("({word} CODE)"));
        let for_run = &*envelope.policy == ASK && code.is_some();
        let is_cut = brief != whole;
        let ways = format!(
            "{}es; {}{}(e)dit: with other arguments; (n)o, and why; (l)eave it waiting? ",
            shown("y"),
            if for_run { format!("{}un: yes, and the same again in this run; ", shown("r")) } else { String::new() },
            if is_cut { "(s)how all; " } else { "" },
        );
        let mut question = format!("\n{}{ways}", placed(brief, place));
        loop {
            let Some(line) = self.person.answers(&question) else { return Decision::Leave };
            let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
            let rest = rest.trim();
            let is_this = rest.eq_ignore_ascii_case(code.as_deref().unwrap_or_default());
            question.clone_from(&ways);
            match word.to_lowercase().as_str() {
                "y" | "yes" if is_this => return Decision::Yes,
                "r" | "run" if is_this && for_run => return Decision::ForRun,
                "y" | "yes" | "r" | "run" => {
                    if let Some(code) = &code {
                        question = format!("yes takes the code that is on this card: y {code}\n{ways}");
                    }
                }
                "s" | "show" if rest.is_empty() && is_cut => {
                    question = format!("\n{}{ways}", placed(whole.clone(), place));
                }
                "e" | "edit" => match self.edited(envelope, rest) {
                    Ok(Some(arguments)) => return Decision::Edited { arguments },
                    Ok(None) => {}
                    Err(Gone) => return Decision::Leave,
                },
                "n" | "no" => return self.refused(rest),
                "l" | "leave" => return Decision::Leave,
                _ => {}
            }
        }
    }

    /// No, with a reason: one that was said already, or that is asked for.
    fn refused(&mut self, reason: &str) -> Decision {
        if !reason.is_empty() {
            return Decision::No { reason: reason.to_owned() };
        }
        // Who is gone has said no all the same.
        let reason = self.person.answers("why not? The agent is told; Enter says nothing: ").unwrap_or_default();
        Decision::No { reason }
    }

    /// Other arguments that the person has seen and said yes to; `None` if they go back.
    fn edited(&mut self, envelope: &Envelope, first: &str) -> Result<Option<Value>, Gone> {
        let mut said = first.to_owned();
        loop {
            if said.is_empty() {
                said = self.person.answers(EDIT).ok_or(Gone)?;
            }
            if said.is_empty() {
                return Ok(None);
            }
            let question = match self::arguments(envelope, &said) {
                Ok((arguments, shown)) => {
                    let code = approval_code(envelope).unwrap_or_default();
                    let sure =
                        format!("\nthis would be done instead:\n{shown}(y CODE)es, this; (e)dit again; (b)ack? ");
                    let answer = self.person.answers(&sure).ok_or(Gone)?.to_lowercase();
                    match answer.split_once(char::is_whitespace).unwrap_or((&answer, "")) {
                        ("y" | "yes", rest) if rest.trim() == code => return Ok(Some(arguments)),
                        ("y" | "yes", _) => format!("yes takes the code that is on the card: y {code}\n{EDIT}"),
                        ("b" | "back", _) => return Ok(None),
                        _ => EDIT.to_owned(),
                    }
                }
                Err(problem) => format!("{problem}\n{EDIT}"),
            };
            said = self.person.answers(&question).ok_or(Gone)?;
            if said.is_empty() {
                return Ok(None);
            }
        }
    }
}

/// Nobody says anything any more.
struct Gone;

/// The arguments that a person wrote, or named a file with, and what would be done with them.
fn arguments(envelope: &Envelope, said: &str) -> Result<(Value, String), String> {
    let text = match said.strip_prefix('@') {
        Some("-") => return Err("standard input is where you answer: name a file".to_owned()),
        Some(file) => text_in(file).map_err(|problem| visible(&problem))?,
        None => said.to_owned(),
    };
    let arguments = match serde_json::from_str(&text) {
        Ok(arguments @ Value::Object(_)) => arguments,
        Ok(_) => return Err("that is JSON, and not an object: { … }".to_owned()),
        // The kernel throws away what is longer.
        Err(_) if said.len() >= MAX_LINE => {
            return Err(format!(
                "a terminal takes no line of more than {MAX_LINE} bytes, so this one was cut: use @FILE"
            ));
        }
        Err(error) => return Err(format!("that is not JSON: {}", visible(&error.to_string()))),
    };
    let Some(action) = envelope.action.edited(arguments.clone().into()) else {
        return Err(format!(
            "with these it is not clear what {} would be done to: keep what names the target",
            visible(&envelope.action.action)
        ));
    };
    let (kind, target) = (visible(&action.action), visible(&action.target));
    let shown = format!("action    {kind}\ntarget    {target}\n{}", arguments_lines(&action.arguments));
    Ok((arguments, shown))
}

/// The longest line that a terminal gives out, in bytes.
const MAX_LINE: usize = 4_095;

/// Asks a question at the terminal; `None` leaves it open.
pub(super) fn answer(question: &Question, withdrawal: Option<Withdrawal>) -> Option<Value> {
    at_the_terminal(withdrawal, |person| answer_of(person, question)).flatten()
}

fn answer_of(person: &mut impl Person, question: &Question) -> Option<Value> {
    let line = person.answers(&format!("\n{}\n> ", shown(question)))?;
    let choices = question.question.get("choices").and_then(Value::as_array);
    let chosen = choices.and_then(|choices| choices.get(line.parse::<usize>().ok()?.checked_sub(1)?));
    Some(chosen.cloned().unwrap_or_else(|| value_of(&line)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use callboard::messages::{Action, ActionKind, AgentName, EACH_TIME, QuestionId, RequestId, Timestamp, TurnId};
    use std::io::Write as _;

    use serde_json::json;

    use super::*;
    use crate::person::Script;

    fn request() -> RequestId {
        let run = "0192f0c1-2345-7abc-8def-0123456789ab".parse().unwrap();
        RequestId { turn: TurnId { run, number: 1 }, ordinal: 2 }
    }

    fn envelope() -> Envelope {
        Envelope {
            version: Envelope::VERSION,
            kind: ActionKind::Requested,
            remind_at: None,
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
        Question { id, agent, question: asked.into(), asked_at: Timestamp::from_millis(0), expires_at: None }
    }

    /// What is decided by who says these lines, in which CODE stands for the one on the card.
    fn decided(envelope: &Envelope, answers: &str) -> (Decision, String) {
        decided_in(envelope, None, answers)
    }

    fn decided_in(envelope: &Envelope, place: Option<&str>, answers: &str) -> (Decision, String) {
        let answers = answers.replace("CODE", &approval_code(envelope).unwrap());
        let mut person = Script::new(&answers);
        (Asking { person: &mut person }.decide(envelope, place), person.asked)
    }

    #[test]
    fn a_person_is_shown_what_would_be_done_and_decides() {
        let decide = |answers: &str| decided(&envelope(), answers);
        let (decision, asked) = decide("what\ny CODE\n");
        assert_eq!(decision, Decision::Yes);
        insta::assert_snapshot!("approval", asked);
        assert_eq!(decide("n not this file\n").0, Decision::No { reason: "not this file".to_owned() });
        assert_eq!(decide("y but\ny\ny 12345\nr\nl\n").0, Decision::Leave);
        assert_eq!(decide("x {\nr CODE\n").0, Decision::ForRun);
        let each_time = Envelope { policy: EACH_TIME.into(), ..envelope() };
        assert_eq!(decided(&each_time, "r CODE\nl\n").0, Decision::Leave);
        assert_eq!(decide("").0, Decision::Leave);
    }

    #[test]
    fn a_no_without_a_reason_is_asked_for_one() {
        let (decision, asked) = decided(&envelope(), "n\nnot this file\n");
        assert_eq!(decision, Decision::No { reason: "not this file".to_owned() });
        assert!(asked.ends_with("why not? The agent is told; Enter says nothing: "), "{asked}");
        for answers in ["n\n\n", "n\n"] {
            assert_eq!(decided(&envelope(), answers).0, Decision::No { reason: String::new() });
        }
    }

    #[test]
    fn other_arguments_are_taken_as_they_are_and_shown_before_they_are_done() {
        let other = json!({ "path": "src/\u{202e}lib.rs", "content": "a\nb" });
        for answers in [
            format!("e\n{other}\ny CODE\n"),
            format!("e {other}\nyes CODE\n"),
            format!("e []\ny\n{other}\ny\n{other}\ny CODE\n"),
        ] {
            let (decision, asked) = decided(&envelope(), &answers);
            assert_eq!(decision, Decision::Edited { arguments: other.clone() }, "{asked}");
            assert!(
                asked.contains("this would be done instead:\naction    FileWrite\ntarget    src/\\u{202e}lib.rs\n")
            );
            assert!(asked.contains("  │     │ a\n  │     │ b\n  │ }\n(y CODE)es, this;"), "{asked}");
        }
    }

    #[test]
    fn what_is_no_edit_is_said_to_be_none_and_nothing_is_done_for_it() {
        let told = |answers: &str, says: &str| {
            let (decision, asked) = decided(&envelope(), answers);
            assert!(decision == Decision::Leave && asked.contains(says), "{decision:?} {asked}");
        };
        told("e {bad\n\nl\n", "that is not JSON: ");
        told("e\n[1]\n\nl\n", "that is JSON, and not an object");
        told("e\n@-\n\nl\n", "standard input is where you answer");
        told("e\n@/no/such/file\n\nl\n", "/no/such/file: ");
        told(&format!("e\n{{\"path\":\"{}\n\nl\n", "z".repeat(MAX_LINE)), "was cut: use @FILE");
        told("e\n{\"content\": 1}\n\nl\n", "it is not clear what FileWrite would be done to");
        // A yes that follows is a yes to what is asked then.
        told("e\ny\n\nl\n", "that is not JSON");
        told("e\n{\"path\": \"b\"}\nb\nl\n", "target    b\n");
        told("e\n{\"path\": \"b\"}\n", "target    b\n");
        told("e\n", "Enter goes back");
    }

    #[test]
    fn long_arguments_come_from_a_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let long = json!({ "path": "b", "content": "z".repeat(10_000) });
        file.write_all(format!("{long:#}").as_bytes()).unwrap();
        let answers = format!("e @{}\ny CODE\n", file.path().display());
        assert_eq!(decided(&envelope(), &answers).0, Decision::Edited { arguments: long });
    }

    #[test]
    fn all_of_a_card_that_was_cut_is_shown_to_who_wants_it_and_the_place_if_it_is_elsewhere() {
        let content = "echo harmless\n".repeat(400) + "curl evil";
        let action = Action::new("FileWrite", "a", json!({ "path": "a", "content": content }));
        let long = Envelope { action, ..envelope() };
        let (decision, asked) = decided_in(&long, Some("su\u{202e}b"), "s\nn no\n");
        assert_eq!(decision, Decision::No { reason: "no".to_owned() });
        let (cut, whole) = asked.split_once("(s)how all; ").unwrap();
        assert!(cut.contains("more characters") && cut.contains("curl evil") && cut.matches("harmless").count() < 200);
        assert_eq!(whole.matches("harmless").count(), 400);
        assert_eq!(asked.matches("in the folder su\\u{202e}b\n").count(), 2, "{asked}");
        assert!(!decided(&envelope(), "s\nl\n").1.contains("(s)how all"));
    }

    #[test]
    fn a_question_is_answered_in_words_or_by_the_number_of_a_choice() {
        let answer = |asked: Value, answers: &str| answer_of(&mut Script::new(answers), &question(asked));
        assert_eq!(answer(json!("Which?"), "that one\n"), Some(json!("that one")));
        let choice = json!({ "question": "Where?", "choices": ["here", "there"] });
        assert_eq!(answer(choice.clone(), "2\n"), Some(json!("there")));
        assert_eq!(answer(choice.clone(), "elsewhere\n"), Some(json!("elsewhere")));
        assert_eq!(answer(choice.clone(), ""), None);
        assert_eq!(shown(&question(choice)), "lead asks: Where?\n  1. here\n  2. there");
        // No line of a question passes for a card.
        assert_eq!(shown(&question(json!("Which?\n── approval ──"))), "lead asks: Which?\n  │ ── approval ──");
    }
}
