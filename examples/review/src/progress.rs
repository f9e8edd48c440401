//! Tells a run's events to people, line by line while they come.

use std::time::Duration;

use callboard::messages::{AgentName, FailureKind, RunEvent, Timestamp, Verdict};

use crate::escaping::visible;

/// Knows whose turn each turn is: events name turns by their numbers, which are given in the order of admission.
#[derive(Debug, Default)]
pub(crate) struct Cast {
    agents: Vec<AgentName>,
}

impl Cast {
    /// Takes note of the turns that an event admits.
    pub(crate) fn follow(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Submitted(submission) => self.agents.push(submission.agent.clone()),
            RunEvent::TurnEnded { verdict: Verdict::Admitted(agents), .. }
            | RunEvent::Delegated { verdict: Verdict::Admitted(agents), .. }
            | RunEvent::Decided { verdict: Verdict::Admitted(agents), .. } => self.agents.extend_from_slice(agents),
            _ => {}
        }
    }

    pub(crate) fn agent(&self, turn: u32) -> &str {
        let index = usize::try_from(turn).unwrap_or_default().wrapping_sub(1);
        self.agents.get(index).map_or("?", AgentName::as_str)
    }
}

/// What happened in which turn and when, for people; `None` when it is not news.
pub(crate) fn news(event: &RunEvent) -> Option<(u32, Timestamp, String)> {
    let (turn, at, text) = match event {
        RunEvent::Noticed { turn, text, at } => (turn, at, text.to_string()),
        RunEvent::TurnEnded { turn, command, verdict, at, .. } => {
            let reason = command.update.writes().iter().find(|write| &*write.channel == "reason");
            let reason = reason.and_then(|write| write.value.as_str()).map(|reason| format!("{}: ", visible(reason)));
            (turn, at, format!("{}{}", reason.unwrap_or_default(), shown(verdict)?))
        }
        RunEvent::Delegated { turn, order, verdict, at, .. } => {
            let about = order.input.as_str().map(|about| format!(": {}", visible(about))).unwrap_or_default();
            (turn, at, format!("{}{about}", shown(verdict)?))
        }
        RunEvent::AttemptFailed { turn, attempt, failure, at, .. } => {
            let again = match failure.kind {
                FailureKind::Panic => "its agent is restarted, and the turn begins again",
                _ => "the turn begins again",
            };
            (turn, at, format!("attempt {attempt} failed ({failure}); {again}"))
        }
        RunEvent::TurnFailed { turn, failure, at, .. } => match failure.kind {
            FailureKind::Denied => (turn, at, "ends without it".to_owned()),
            _ => (turn, at, format!("failed: {failure}")),
        },
        RunEvent::ApprovalAsked { turn, envelope, at, .. } => {
            (turn, at, format!("asks for consent: {}", visible(&envelope.action.to_string())))
        }
        RunEvent::Decided { turn, decision, at, .. } => {
            let verdict = if decision.approved { "approved" } else { "denied" };
            let reason =
                if decision.reason.is_empty() { String::new() } else { format!(": {}", visible(&decision.reason)) };
            (turn, at, format!("{verdict} by {}{reason}", decision.by))
        }
        RunEvent::NeedsAttention { turn, why, at, .. } => (turn, at, format!("cannot go on by itself: {why}")),
        _ => return None,
    };
    Some((*turn, *at, text))
}

fn shown(verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Admitted(agents) => {
            let names: Vec<&str> = agents.iter().map(AgentName::as_str).collect();
            Some(format!("→ {}", names.join(", ")))
        }
        Verdict::Refused(refusal) => Some(format!("refused ({}): {refusal}", refusal.name())),
        Verdict::Nothing | Verdict::Parked(_) => None,
    }
}

/// Whose turns are open at the end of this history.
pub(crate) fn at_work(history: &[RunEvent]) -> Vec<String> {
    let mut cast = Cast::default();
    history.iter().for_each(|event| cast.follow(event));
    let has_ended = |turn: u32| {
        history.iter().any(|event| {
            matches!(event, RunEvent::TurnEnded { .. } | RunEvent::TurnFailed { .. }) && event.turn() == Some(turn)
        })
    };
    let open = (1..=cast.agents.len() as u32).filter(|turn| !has_ended(*turn));
    let mut names: Vec<String> = open.map(|turn| cast.agent(turn).to_owned()).collect();
    names.dedup();
    names
}

/// `0.31 s`.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}
