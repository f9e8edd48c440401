//! Waits that close a cycle.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{AgentName, RequestId, RunId, TurnId};

/// One of those that wait for each other in a [`Refusal::WaitCycle`](super::Refusal::WaitCycle). It is stored as its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
#[non_exhaustive]
pub enum Wait {
    /// A turn that takes part in the cycle.
    Turn {
        /// The id of the turn. The turns of a cycle may belong to several runs.
        turn: TurnId,
        /// The agent that takes the turn.
        agent: AgentName,
        /// The delegation whose answer it waits for; `None` of the last one, with which the cycle closes, and of a turn that
        /// waits for a slot.
        request: Option<RequestId>,
    },
    /// The only slot of an agent that takes one turn at a time, waiting or not.
    Slot(AgentName),
    /// As it was written by a version that named it otherwise.
    Other(String),
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turn { turn, agent, request: None } => write!(f, "{agent} (turn {turn})"),
            Self::Turn { turn, agent, request: Some(request) } => {
                write!(f, "{agent} (turn {turn}, request {request})")
            }
            Self::Slot(agent) => write!(f, "the slot of {agent}"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl From<Wait> for String {
    fn from(wait: Wait) -> Self {
        wait.to_string()
    }
}

impl From<String> for Wait {
    fn from(text: String) -> Self {
        turn_in(&text).or_else(|| slot_in(&text)).unwrap_or(Self::Other(text))
    }
}

fn slot_in(text: &str) -> Option<Wait> {
    AgentName::new(text.strip_prefix("the slot of ")?).ok().map(Wait::Slot)
}

fn turn_in(text: &str) -> Option<Wait> {
    let (agent, rest) = text.strip_suffix(')')?.split_once(" (turn ")?;
    let (turn, request) = match rest.split_once(", request ") {
        Some((turn, request)) => (turn, Some(request_id(request)?)),
        None => (rest, None),
    };
    Some(Wait::Turn { turn: turn_id(turn)?, agent: AgentName::new(agent).ok()?, request })
}

pub(super) fn turn_id(text: &str) -> Option<TurnId> {
    let (run, number) = text.split_once('/')?;
    Some(TurnId { run: run.parse::<RunId>().ok()?, number: number.parse().ok()? })
}

pub(super) fn request_id(text: &str) -> Option<RequestId> {
    let (turn, ordinal) = text.rsplit_once('.')?;
    Some(RequestId { turn: turn_id(turn)?, ordinal: ordinal.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_read_back_from_its_text_and_so_is_what_earlier_versions_wrote() {
        let turn = TurnId { run: RunId(uuid::Uuid::from_u128(7)), number: 3 };
        let agent = || AgentName::new("lead").unwrap();
        let request = Some(RequestId { turn, ordinal: 2 });
        let waits = [
            Wait::Turn { turn, agent: agent(), request },
            Wait::Turn { turn, agent: agent(), request: None },
            Wait::Slot(agent()),
            Wait::Other("somebody (turn of the tide)".into()),
        ];
        for wait in waits {
            assert_eq!(Wait::from(wait.to_string()), wait);
        }
        let before = format!("lead (turn {turn})");
        assert_eq!(Wait::from(before), Wait::Turn { turn, agent: agent(), request: None });
    }
}
