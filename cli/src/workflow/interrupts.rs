//! The dialog at the terminal about interrupted nodes.

use std::io::PipeReader;

use callboard::messages::{Interrupt, Pending, visible};
use callboard::supervision::runs::Run;
use serde_json::Value;

use crate::agents::dialog::{CUT, MAX_LINE};
use crate::page::{brief_json, whole_json};
use crate::person::{Person, at_the_terminal};
use crate::values::value_of;

/// A person's decision about an interrupted node.
#[derive(Debug, PartialEq)]
pub(crate) enum Decision {
    Continue,
    ContinueWith(Value),
    CancelRun,
    /// None: the node stays interrupted.
    Leave,
}

/// The interrupted nodes of a run, in the order of their turns.
pub(crate) fn of(run: &Run) -> Vec<Interrupt> {
    let node = |open: Pending| match open {
        Pending::Node(interrupt) => Some(interrupt),
        Pending::Approval(_) | Pending::Question(_) | Pending::Attention { .. } => None,
    };
    run.pending().into_iter().filter_map(node).collect()
}

/// The text about an interrupted node.
pub(crate) fn shown(interrupt: &Interrupt) -> String {
    let head = format!("{} waits for a person", visible(&interrupt.node));
    let input = brief_json(&interrupt.input, 2000);
    format!("{head}\n  agent  {}\n  input  {input}\n  state\n{}", interrupt.agent, whole_json(&interrupt.state, "    "))
}

/// Asks at the terminal, until the question is withdrawn.
pub(crate) fn ask(interrupt: &Interrupt, withdrawal: Option<PipeReader>) -> Decision {
    at_the_terminal(withdrawal, |person| asked(person, interrupt)).unwrap_or(Decision::Leave)
}

fn asked(person: &mut impl Person, interrupt: &Interrupt) -> Decision {
    let mut question =
        format!("\n{}(g)o on, (i)nput: change it, (c)ancel the run, (l)eave it waiting? ", shown(interrupt));
    loop {
        match person.answers(&question).as_deref() {
            None | Some("l" | "leave") => return Decision::Leave,
            Some("g" | "go") => return Decision::Continue,
            Some("c" | "cancel") => return Decision::CancelRun,
            Some("i" | "input") => {
                return new_input(person);
            }
            Some(_) => question = "g, i, c or l? ".to_owned(),
        }
    }
}

/// Asks for the input until it is clear.
fn new_input(person: &mut impl Person) -> Decision {
    const PROMPT: &str = "the new input, JSON or text: ";
    let mut question = PROMPT.to_owned();
    loop {
        let Some(typed) = person.answers(&question) else { return Decision::Leave };
        let read = if typed.len() >= MAX_LINE {
            Err(format!("{CUT}: leave it waiting, and add --input @FILE to the command line that continues the run"))
        } else {
            value_of(&typed)
        };
        match read {
            Ok(input) => return Decision::ContinueWith(input),
            Err(problem) => question = format!("{problem}\n{PROMPT}"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::person::Script;
    use callboard::messages::{AgentName, TurnId};
    use serde_json::json;

    fn decided(answers: &str) -> (Decision, String) {
        let interrupt = Interrupt {
            turn: TurnId { run: "0192f0c1-2345-7abc-8def-0123456789ab".parse().unwrap(), number: 2 },
            node: "publish".to_owned(),
            agent: AgentName::new("publisher").unwrap(),
            input: "a \u{1b}[31mdraft".into(),
            state: json!({ "notes": ["one"] }).into(),
        };
        let mut person = Script::new(answers);
        (asked(&mut person, &interrupt), person.asked)
    }

    #[test]
    fn a_person_sees_the_node_and_decides() {
        let (decision, asked) = decided("what\ng\n");
        assert_eq!(decision, Decision::Continue);
        insta::assert_snapshot!("question", asked);
        assert_eq!(decided("i\n{\"a\": 1}\n").0, Decision::ContinueWith(json!({ "a": 1 })));
        assert_eq!(decided("i\na better draft\n").0, Decision::ContinueWith(json!("a better draft")));
        assert_eq!(decided("c\n").0, Decision::CancelRun);
        let (decision, asked) = decided("i\n{\"a\": 1\n{\"a\": 1, \"a\": 2}\n\"{a\"\n");
        assert_eq!(decision, Decision::ContinueWith(json!("{a")));
        assert!(asked.contains("it begins like JSON and is none: column 7: EOF while parsing an object"), "{asked}");
        assert!(asked.contains("the key \"a\" is repeated"), "{asked}");
        let (decision, asked) = decided(&format!("i\n{}\nshort\n", "x".repeat(MAX_LINE)));
        assert!(decision == Decision::ContinueWith(json!("short")) && asked.contains("so this one was cut"), "{asked}");
        assert_eq!(
            [decided("l\n").0, decided("").0, decided("i\n").0],
            [Decision::Leave, Decision::Leave, Decision::Leave]
        );
    }
}
