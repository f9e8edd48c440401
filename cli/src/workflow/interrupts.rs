//! The person at the terminal, and what is left to one who is not there.

use callboard::actors::approvals::Withdrawal;
use callboard::messages::visible;
use callboard::supervision::runs::interrupts::Interrupt;
use serde_json::Value;

use crate::page::{brief_json, whole_json};
use crate::person::{Person, at_the_terminal};
use crate::values::value_of;

/// What a person says to a node that waits.
#[derive(Debug, PartialEq)]
pub(crate) enum Decision {
    GoOn,
    GoOnWith(Value),
    CancelTheRun,
    /// Nothing: the node waits on.
    Leave,
}

/// What is known about a node that waits.
pub(crate) fn shown(interrupt: &Interrupt) -> String {
    let head = format!("{} waits for a person", visible(&interrupt.node));
    let input = brief_json(&interrupt.input, 2000);
    format!("{head}\n  agent  {}\n  input  {input}\n  state\n{}", interrupt.agent, whole_json(&interrupt.state, "    "))
}

/// Asks at the terminal, until it is withdrawn.
pub(crate) fn ask(interrupt: &Interrupt, withdrawal: Option<Withdrawal>) -> Decision {
    at_the_terminal(withdrawal, |person| asked(person, interrupt)).unwrap_or(Decision::Leave)
}

fn asked(person: &mut impl Person, interrupt: &Interrupt) -> Decision {
    let mut question =
        format!("\n{}(g)o on, (i)nput: change it, (c)ancel the run, (l)eave it waiting? ", shown(interrupt));
    loop {
        match person.answers(&question).as_deref() {
            None | Some("l" | "leave") => return Decision::Leave,
            Some("g" | "go") => return Decision::GoOn,
            Some("c" | "cancel") => return Decision::CancelTheRun,
            Some("i" | "input") => {
                return match person.answers("the new input, JSON or text: ") {
                    Some(input) => Decision::GoOnWith(value_of(&input)),
                    None => Decision::Leave,
                };
            }
            Some(_) => question = "g, i, c or l? ".to_owned(),
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
    fn a_person_is_shown_what_waits_and_says_what_becomes_of_it() {
        let (decision, asked) = decided("what\ng\n");
        assert_eq!(decision, Decision::GoOn);
        insta::assert_snapshot!("question", asked);
        assert_eq!(decided("i\n{\"a\": 1}\n").0, Decision::GoOnWith(json!({ "a": 1 })));
        assert_eq!(decided("i\na better draft\n").0, Decision::GoOnWith(json!("a better draft")));
        assert_eq!(decided("c\n").0, Decision::CancelTheRun);
        assert_eq!(
            [decided("l\n").0, decided("").0, decided("i\n").0],
            [Decision::Leave, Decision::Leave, Decision::Leave]
        );
    }
}
