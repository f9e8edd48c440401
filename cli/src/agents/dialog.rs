//! The dialog at the terminal: cards of actions that need approval, and questions of agents.

use std::io::PipeReader;

use callboard::actors::approvals::Card;
use callboard::messages::{Envelope, Question, visible};
use callboard_documents::json::{self, JsonError};
use serde_json::Value;

use crate::person::{Person, at_the_terminal};
use crate::values::{text_in, value_of};

/// A person's decision about an action.
#[derive(Debug, PartialEq)]
pub(super) enum Decision {
    Yes,
    /// Yes, also for equal actions later in this run.
    ForRun,
    /// Yes, with these arguments in place of the agent's.
    Edited {
        arguments: Value,
    },
    No {
        reason: String,
    },
    /// None: the approval stays open.
    Leave,
}

/// A question as people see it: its text, its code if it has one, and its choices.
pub(crate) fn shown(question: &Question) -> String {
    let choices = match question.question.get("question") {
        Some(Value::String(_)) => question.question.get("choices").and_then(Value::as_array),
        Some(_) | None => None,
    };
    let lines: Vec<_> = question.text().split('\n').map(visible).collect();
    let mut shown = format!("{} asks: {}", visible(question.agent.as_str()), lines.join("\n  │ "));
    if let Some(code) = question.outcome_code() {
        // Its choices cannot be answered by number: one of them repeats an effect, and takes the code.
        shown.push_str(&format!("\ncode      {code}"));
        return shown;
    }
    for (position, choice) in choices.into_iter().flatten().enumerate() {
        let choice = choice.as_str().map_or_else(|| choice.to_string(), str::to_owned);
        shown.push_str(&format!("\n  {}. {}", position + 1, visible(&choice)));
    }
    shown
}

/// Asks at the terminal about an action. `place` is the folder of the tools, if it is not the current one.
pub(super) fn decide(envelope: &Envelope, place: Option<&str>, withdrawal: Option<PipeReader>) -> Decision {
    at_the_terminal(withdrawal, |person| Dialog { person }.decide(envelope, place)).unwrap_or(Decision::Leave)
}

/// A card, with the folder in which the action would happen.
pub(crate) fn placed(card: String, place: Option<&str>) -> String {
    match place {
        Some(place) => format!("{card}in the folder {}\n", visible(place)),
        None => card,
    }
}

/// The prompt for other arguments.
const EDIT: &str = "the whole arguments, as a JSON object in one line or @FILE with one; Enter goes back: ";

/// The dialog about one action.
struct Dialog<'a, P> {
    person: &'a mut P,
}

impl<P: Person> Dialog<'_, P> {
    fn decide(&mut self, envelope: &Envelope, place: Option<&str>) -> Decision {
        let (brief, whole) = (Card::of(envelope).brief(), Card::of(envelope).whole());
        let code = Card::of(envelope).code();
        let shown = |word: &str| code.as_ref().map_or_else(|| format!("({word})"), |_| format!("({word} CODE)"));
        let for_run = &*envelope.policy == Envelope::ASK && code.is_some();
        let is_cut = brief != whole;
        let choices = format!(
            "{}es; {}{}(e)dit: with other arguments; (n)o, and why; (l)eave it waiting? ",
            shown("y"),
            if for_run { format!("{}un: yes, and the same again in this run; ", shown("r")) } else { String::new() },
            if is_cut { "(s)how all; " } else { "" },
        );
        let mut question = format!("\n{}{choices}", placed(brief, place));
        loop {
            let Some(line) = self.person.answers(&question) else { return Decision::Leave };
            let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
            let rest = rest.trim();
            let is_this = rest.eq_ignore_ascii_case(code.as_deref().unwrap_or_default());
            question.clone_from(&choices);
            match word.to_lowercase().as_str() {
                "y" | "yes" if is_this => return Decision::Yes,
                "r" | "run" if is_this && for_run => return Decision::ForRun,
                "y" | "yes" | "r" | "run" => {
                    if let Some(code) = &code {
                        question = format!("yes takes the code that is on this card: y {code}\n{choices}");
                    }
                }
                "s" | "show" if rest.is_empty() && is_cut => {
                    question = format!("\n{}{choices}", placed(whole.clone(), place));
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

    /// A refusal with its reason, which is asked for if it was not typed with the `no`.
    fn refused(&mut self, reason: &str) -> Decision {
        if !reason.is_empty() {
            return Decision::No { reason: reason.to_owned() };
        }
        // At the end of the input it stays a refusal, without a reason.
        let reason =
            self.person.answers("why not? The agent receives the reason; Enter gives none: ").unwrap_or_default();
        Decision::No { reason }
    }

    /// Asks whether the edited arguments are to be used, until the answer is clear.
    fn is_sure(&mut self, Edited { shown, code, .. }: &Edited) -> Result<Sure, Gone> {
        const CHOICES: &str = "(y CODE)es, this; (e)dit again; (b)ack? ";
        let mut question = format!("\nthis would be done instead:\n{shown}{CHOICES}");
        loop {
            let answer = self.person.answers(&question).ok_or(Gone)?.to_lowercase();
            let (word, rest) = answer.split_once(char::is_whitespace).unwrap_or((&answer, ""));
            match word {
                "y" | "yes" if rest.trim() == code => return Ok(Sure::Yes),
                "y" | "yes" => question = format!("yes takes the code that is on this card: y {code}\n{CHOICES}"),
                "e" | "edit" if rest.is_empty() => return Ok(Sure::EditAgain),
                "b" | "back" => return Ok(Sure::Back),
                _ => CHOICES.clone_into(&mut question),
            }
        }
    }

    /// Edited arguments that the person has seen and approved; `None` if they return to the card.
    fn edited(&mut self, envelope: &Envelope, first: &str) -> Result<Option<Value>, Gone> {
        let mut typed = first.to_owned();
        loop {
            if typed.is_empty() {
                typed = self.person.answers(EDIT).ok_or(Gone)?;
            }
            if typed.is_empty() {
                return Ok(None);
            }
            let question = match self::arguments(envelope, &typed) {
                Ok(edited) => match self.is_sure(&edited)? {
                    Sure::Yes => return Ok(Some(edited.arguments)),
                    Sure::Back => return Ok(None),
                    Sure::EditAgain => EDIT.to_owned(),
                },
                Err(problem) => format!("{problem}\n{EDIT}"),
            };
            typed = self.person.answers(&question).ok_or(Gone)?;
            if typed.is_empty() {
                return Ok(None);
            }
        }
    }
}

/// The input has ended, or the prompt was withdrawn.
struct Gone;

/// A person's decision about arguments that they have edited.
enum Sure {
    Yes,
    EditAgain,
    Back,
}

/// Arguments that a person has typed, or read from a file, and the action with them.
struct Edited {
    arguments: Value,
    shown: String,
    /// The code of the action with these arguments, which differs from that of the first card.
    code: String,
}

fn arguments(envelope: &Envelope, typed: &str) -> Result<Edited, String> {
    let text = match typed.strip_prefix('@') {
        Some("-") => return Err("standard input is where you answer: name a file".to_owned()),
        Some(file) => text_in(file).map_err(|problem| visible(&problem))?,
        None => typed.to_owned(),
    };
    let arguments = match json::parse(text.as_bytes()) {
        Ok(arguments @ Value::Object(_)) => arguments,
        Ok(_) => return Err("that is JSON, and not an object: { … }".to_owned()),
        Err(_) if typed.len() >= MAX_LINE => return Err(format!("{CUT}: use @FILE")),
        Err(JsonError::Syntax(problem)) => return Err(format!("that is not JSON: {}", visible(&problem))),
        Err(JsonError::Repeated(problem)) => return Err(format!("that is not clear: {}", visible(&problem))),
    };
    let Some(action) = envelope.action.edited(arguments.clone().into()) else {
        return Err(format!(
            "with these it is not clear what {} would be done to: keep what names the target",
            visible(&envelope.action.action)
        ));
    };
    let edited = Envelope { action, ..envelope.clone() };
    let code = Card::of(&edited).code().unwrap_or_default();
    let (kind, target) = (visible(&edited.action.action), visible(&edited.action.target));
    let lines = Card::of(&edited).arguments();
    let shown = format!("action    {kind}\ntarget    {target}\ncode      {code}\n{lines}");
    Ok(Edited { arguments, shown, code })
}

/// The longest line that the kernel's line editing passes on, in bytes; it discards the rest of a longer one.
pub(crate) const MAX_LINE: usize = 4_095;

/// The problem of a line of this length.
pub(crate) const CUT: &str = "a terminal takes no line of more than 4095 bytes, so this one was cut";

/// Asks a question at the terminal; `None` leaves it open.
pub(super) fn answer(question: &Question, withdrawal: Option<PipeReader>) -> Option<Value> {
    at_the_terminal(withdrawal, |person| answer_of(person, question)).flatten()
}

fn answer_of(person: &mut impl Person, question: &Question) -> Option<Value> {
    if let Some(code) = question.outcome_code() {
        return outcome(person, question, &code);
    }
    let choices = question.question.get("choices").and_then(Value::as_array);
    let mut asked = format!("\n{}\n> ", shown(question));
    loop {
        let line = person.answers(&asked)?;
        let chosen = choices.and_then(|choices| choices.get(line.parse::<usize>().ok()?.checked_sub(1)?));
        let read = || if line.len() >= MAX_LINE { Err(format!("{CUT}: write less")) } else { value_of(&line) };
        match chosen.cloned().map_or_else(read, Ok) {
            Ok(answer) => return Some(answer),
            Err(problem) => asked = format!("{problem}\n> "),
        }
    }
}

/// The outcome of an effect that may have happened. Repeating it takes the code, so that input that was typed before the question was
/// shown does not repeat an effect.
fn outcome(person: &mut impl Person, question: &Question, code: &str) -> Option<Value> {
    const CHOICES: &str = "(r CODE)un it again; (g)ive up; {\"done\": RESULT} if it was done; (l)eave it open? ";
    let mut asked = format!("\n{}\n{CHOICES}", shown(question));
    loop {
        let line = person.answers(&asked)?;
        let lower = line.to_lowercase();
        let again = ["run it again", "run", "r", "1"].into_iter().find_map(|word| lower.strip_prefix(word));
        match (&*lower, again.map(str::trim)) {
            (_, Some(rest)) if rest == code => return Some(AGAIN.into()),
            (_, Some(_)) => {
                asked = format!("running it again takes the code that is on this card: r {code}\n{CHOICES}")
            }
            ("g" | "give up", None) => return Some(GIVE_UP.into()),
            ("l" | "leave", None) => return None,
            (_, None) => match json::parse(line.as_bytes()) {
                Ok(done @ Value::Object(_)) => return Some(done),
                Err(problem) if line.starts_with('{') => {
                    asked = format!("{}\n{CHOICES}", visible(&problem.to_string()))
                }
                Ok(_) | Err(_) => CHOICES.clone_into(&mut asked),
            },
        }
    }
}

/// The answers to the question about an effect that may have happened.
const AGAIN: &str = "run it again";
const GIVE_UP: &str = "give up";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use callboard::messages::{Action, ActionKind, AgentName, QuestionId, Rationale, RequestId, Timestamp, TurnId};
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
            policy: Envelope::ASK.into(),
            deciders: callboard::messages::Deciders::default(),
            requester: None,
            escalates_at: None,
            edited_by: None,
            rationale: Rationale::default(),
            nonce: 7,
            expires_at: Timestamp::from_millis(1_000),
        }
    }

    fn question(asked: Value) -> Question {
        let id = QuestionId { request: request(), nonce: 3 };
        let agent = AgentName::new("lead").unwrap();
        Question { id, agent, question: asked.into(), asked_at: Timestamp::from_millis(0), expires_at: None }
    }

    /// The decision of a person who types these lines, in which CODE stands for the code of the card.
    fn decided(envelope: &Envelope, answers: &str) -> (Decision, String) {
        decided_in(envelope, None, answers)
    }

    fn decided_in(envelope: &Envelope, place: Option<&str>, answers: &str) -> (Decision, String) {
        let answers = answers.replace("CODE", &Card::of(envelope).code().unwrap());
        let mut person = Script::new(&answers);
        (Dialog { person: &mut person }.decide(envelope, place), person.asked)
    }

    #[test]
    fn a_person_sees_the_action_and_decides() {
        let decide = |answers: &str| decided(&envelope(), answers);
        let (decision, asked) = decide("what\ny CODE\n");
        assert_eq!(decision, Decision::Yes);
        insta::assert_snapshot!("approval", asked);
        assert_eq!(decide("n not this file\n").0, Decision::No { reason: "not this file".to_owned() });
        assert_eq!(decide("y but\ny\ny 12345\nr\nl\n").0, Decision::Leave);
        assert_eq!(decide("x {\nr CODE\n").0, Decision::ForRun);
        let each_time = Envelope { policy: Envelope::EACH_TIME.into(), ..envelope() };
        assert_eq!(decided(&each_time, "r CODE\nl\n").0, Decision::Leave);
        assert_eq!(decide("").0, Decision::Leave);
    }

    #[test]
    fn a_no_without_a_reason_is_asked_for_one() {
        let (decision, asked) = decided(&envelope(), "n\nnot this file\n");
        assert_eq!(decision, Decision::No { reason: "not this file".to_owned() });
        assert!(asked.ends_with("why not? The agent receives the reason; Enter gives none: "), "{asked}");
        for answers in ["n\n\n", "n\n"] {
            assert_eq!(decided(&envelope(), answers).0, Decision::No { reason: String::new() });
        }
    }

    #[test]
    fn edited_arguments_are_used_unchanged_after_they_were_shown() {
        let other = json!({ "path": "src/\u{202e}lib.rs", "content": "a\nb" });
        let edited = arguments(&envelope(), &other.to_string()).map_err(|problem| panic!("{problem}")).unwrap();
        let own = edited.code;
        for answers in [
            format!("e\n{other}\ny {own}\n"),
            format!("e {other}\nyes {own}\n"),
            format!("e []\ny\n{other}\ny\ny CODE\ny {own}\n"),
            format!("e {{\"path\": \"b\"}}\ny {own}\nwhat\ne\n{other}\ny {own}\n"),
        ] {
            let (decision, asked) = decided(&envelope(), &answers);
            assert_eq!(decision, Decision::Edited { arguments: other.clone() }, "{asked}");
            assert!(
                asked.contains("this would be done instead:\naction    FileWrite\ntarget    src/\\u{202e}lib.rs\n")
            );
            assert!(asked.contains("  │     │ a\n  │     │ b\n  │ }\n(y CODE)es, this;"), "{asked}");
            assert!(asked.contains(&format!("\ncode      {own}\n  │ {{")), "{asked}");
        }
        // The prompt names the code that has to be typed.
        let (_, asked) = decided(&envelope(), &format!("e {other}\ny\n"));
        assert!(asked.contains(&format!("yes takes the code that is on this card: y {own}\n(y CODE)es,")), "{asked}");
    }

    #[test]
    fn invalid_edits_are_reported_and_decide_nothing() {
        let refused = |answers: &str, why: &str| {
            let (decision, asked) = decided(&envelope(), answers);
            assert!(decision == Decision::Leave && asked.contains(why), "{decision:?} {asked}");
        };
        refused("e {bad\n\nl\n", "that is not JSON: ");
        refused("e\n[1]\n\nl\n", "that is JSON, and not an object");
        refused(
            "e\n{\"path\": \"b\", \"path\": \"c\"}\n\nl\n",
            "that is not clear: column 20: the key \"path\" is repeated",
        );
        refused("e\n@-\n\nl\n", "standard input is where you answer");
        refused("e\n@/no/such/file\n\nl\n", "/no/such/file: ");
        refused(&format!("e\n{{\"path\":\"{}\n\nl\n", "z".repeat(MAX_LINE)), "was cut: use @FILE");
        refused("e\n{\"content\": 1}\n\nl\n", "it is not clear what FileWrite would be done to");
        // A yes at the prompt for arguments is not a yes to the action.
        refused("e\ny\n\nl\n", "that is not JSON");
        refused("e\n{\"path\": \"b\"}\nb\nl\n", "target    b\n");
        refused("e\n{\"path\": \"b\"}\n", "target    b\n");
        refused("e\n", "Enter goes back");
    }

    #[test]
    fn long_arguments_come_from_a_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let long = json!({ "path": "b", "content": "z".repeat(10_000) });
        file.write_all(format!("{long:#}").as_bytes()).unwrap();
        let code = arguments(&envelope(), &long.to_string()).map_err(|problem| panic!("{problem}")).unwrap().code;
        let answers = format!("e @{}\ny {code}\n", file.path().display());
        assert_eq!(decided(&envelope(), &answers).0, Decision::Edited { arguments: long });
    }

    #[test]
    fn a_shortened_card_is_shown_whole_on_request_with_the_folder_of_the_tools() {
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
    fn a_question_is_answered_with_text_or_the_number_of_a_choice() {
        let answer = |asked: Value, answers: &str| answer_of(&mut Script::new(answers), &question(asked));
        assert_eq!(answer(json!("Which?"), "that one\n"), Some(json!("that one")));
        let choice = json!({ "question": "Where?", "choices": ["here", "there"] });
        assert_eq!(answer(choice.clone(), "2\n"), Some(json!("there")));
        assert_eq!(answer(choice.clone(), "elsewhere\n"), Some(json!("elsewhere")));
        assert_eq!(answer(choice.clone(), ""), None);
        assert_eq!(answer(json!("Which?"), "{\"a\": 1\n{\"a\": 1, \"a\": 1}\n{\"a\": 1}\n"), Some(json!({ "a": 1 })));
        assert_eq!(answer(json!("Which?"), "[x\n\"[x\"\n"), Some(json!("[x")));
        assert_eq!(answer(json!("Which?"), &format!("{}\nshort\n", "x".repeat(MAX_LINE))), Some(json!("short")));
        assert_eq!(shown(&question(choice)), "lead asks: Where?\n  1. here\n  2. there");
        let odd = json!({ "question": "a\tb\u{202e}\n\u{301}c", "choices": ["d\u{200b}\te", "f\n  2. g"] });
        assert_eq!(
            shown(&question(odd)),
            "lead asks: a\\u{9}b\\u{202e}\n  │ \\u{301}c\n  1. d\\u{200b}\\u{9}e\n  2. f\\u{a}  2. g"
        );
        // No line of a question looks like a card.
        assert_eq!(shown(&question(json!("Which?\n── approval ──"))), "lead asks: Which?\n  │ ── approval ──");
    }

    #[test]
    fn an_effect_that_may_have_happened_is_repeated_only_with_the_code() {
        let asked = json!({
            "question": "ShellExec was begun, and its result was lost",
            "choices": [AGAIN, GIVE_UP],
            "outcome_unknown": { "name": "ShellExec" },
        });
        let lost = question(asked.clone());
        let code = lost.outcome_code().unwrap();
        let answer = |answers: &str| {
            let mut person = Script::new(answers);
            (answer_of(&mut person, &lost), person.asked)
        };
        for typed in ["1", "r", "run it again", "r 0", "1 x", "yes", "", "2"] {
            assert_eq!(answer(&format!("{typed}\n")).0, None, "{typed}");
        }
        let (_, printed) = answer("1\n");
        assert!(printed.contains(&format!("\ncode      {code}\n(r CODE)un it again; ")), "{printed}");
        assert!(printed.contains(&format!("takes the code that is on this card: r {code}\n")), "{printed}");
        for typed in [format!("1\nr {code}"), format!("run it again {}", code.to_uppercase())] {
            assert_eq!(answer(&format!("{typed}\n")).0, Some(json!(AGAIN)));
        }
        assert_eq!(answer("g\n").0, Some(json!(GIVE_UP)));
        assert_eq!(answer("{\"done\": 7}\n").0, Some(json!({ "done": 7 })));
        assert_eq!(answer("l\n").0, None);
        // Another question has another code.
        let other = Question { id: QuestionId { nonce: 4, ..lost.id }, ..question(asked) };
        assert_ne!(other.outcome_code(), Some(code));
    }
}
