//! The person at the terminal, and what is left to one who is not there.

use std::path::Path;

use callboard::actors::approvals::Withdrawal;
use callboard::messages::{RunId, visible};
use callboard::supervision::runs::interrupts::Interrupt;
use serde_json::Value;

use crate::agents::hints::{flags, store_flag};
use crate::page::{brief_json, whole_json};
use crate::person::{Person, at_the_terminal};
use crate::quoting::{quoted, quoted_path};

use super::arguments::{Going, value_of};

/// What a person says to a node that waits.
#[derive(Debug, PartialEq)]
pub(crate) enum Decision {
    GoOn,
    GoOnWith(Value),
    CancelTheRun,
    /// Nothing: the node waits on.
    Leave,
}

/// Who decides here, as the journal has it.
pub(crate) fn name() -> String {
    let name = std::env::var("USER").ok().filter(|name| !name.is_empty() && name.chars().count() <= 128);
    name.unwrap_or_else(|| "the command line".to_owned())
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

/// The command line that continues a run.
pub(crate) fn resumption(run: RunId, store: Option<&Path>, going: &Going) -> String {
    continuation(&format!("resume {run}"), store, going)
}

/// The command line that does what failed in a run again, in a run of its own, with these limits if others than before.
pub(crate) fn retrial(run: RunId, limits: Option<&str>, store: Option<&Path>, going: &Going) -> String {
    let limits = limits.map(|limits| format!(" --limits {}", quoted(limits))).unwrap_or_default();
    continuation(&format!("retry {run}{limits}"), store, going)
}

fn continuation(how: &str, store: Option<&Path>, going: &Going) -> String {
    let mut line = format!("callboard workflow {how}{}", store_flag(store));
    for program in &going.agent {
        line.push_str(&format!(" --agent {}", quoted(&format!("{}={}", program.name, program.command))));
    }
    if let Some(files) = going.thinkers.files(&[]) {
        line.push_str(&format!(" --agents {}", quoted_path(&files.agents)));
        line.push_str(&flags(&files, going.thinkers.model.as_deref()));
    }
    if going.watch {
        line.push_str(" --watch");
    }
    line
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
