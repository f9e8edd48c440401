//! Tells a run's events to people: line by line while they come, and as the way that control took at the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use callboard::messages::{AgentName, FailureKind, RunEvent, Timestamp, Verdict};

use crate::escaping::visible;

/// Knows whose turn each turn is: events name turns by their numbers, which are given in the order of admission.
#[derive(Debug, Default)]
pub(crate) struct Cast {
    agents: Vec<AgentName>,
    /// Turns that wait for the decision about their handoff.
    began: Option<Timestamp>,
}

impl Cast {
    /// Takes note of the turns that an event admits.
    pub(crate) fn follow(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Submitted(submission) => {
                self.agents.push(submission.agent.clone());
                self.began = Some(submission.at);
            }
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

/// What an event has to say for itself, and when it happened; `None` when it is not news.
pub(crate) fn line(cast: &Cast, event: &RunEvent) -> Option<(Timestamp, String)> {
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
        RunEvent::TurnFailed { turn, failure, at, .. } => (turn, at, format!("failed: {failure}")),
        RunEvent::ApprovalAsked { turn, envelope, at, .. } => {
            (turn, at, format!("asks for consent: {}", visible(&envelope.action.to_string())))
        }
        RunEvent::Decided { turn, decision, at, .. } => {
            let verdict = if decision.approved { "approved" } else { "denied" };
            let reason =
                if decision.reason.is_empty() { String::new() } else { format!(": {}", visible(&decision.reason)) };
            (turn, at, format!("{verdict} by {}{reason}", decision.by))
        }
        RunEvent::NeedsAttention { turn, why, at } => (turn, at, format!("cannot go on by itself: {why}")),
        _ => return None,
    };
    Some((*at, format!("{:<9} {text}", cast.agent(*turn))))
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

/// The way that control took, one line for each turn in the order of admission; delegated turns are indented.
pub(crate) fn flow(history: &[RunEvent]) -> String {
    let (mut cast, mut ends, mut delegated, mut retries) =
        (Cast::default(), BTreeMap::new(), BTreeMap::new(), BTreeMap::<u32, u32>::new());
    for event in history {
        if let RunEvent::Delegated { order, verdict: Verdict::Admitted(_), .. } = event {
            let about = order.input.as_str().unwrap_or_default();
            delegated.insert(cast.agents.len() as u32 + 1, visible(about));
        }
        cast.follow(event);
        match event {
            RunEvent::TurnEnded { turn, .. } | RunEvent::TurnFailed { turn, .. } => {
                let told = line(&cast, event).map(|(_, told)| told[9..].trim().to_owned());
                ends.insert(*turn, told.unwrap_or_default());
            }
            RunEvent::AttemptFailed { turn, .. } => *retries.entry(*turn).or_default() += 1,
            _ => {}
        }
    }
    let mut flow = String::new();
    for turn in 1..=cast.agents.len() as u32 {
        let indent = if delegated.contains_key(&turn) { "└ " } else { "" };
        let about = delegated.get(&turn).map_or("", String::as_str);
        let retried = retries.get(&turn).map(|count| format!(" (attempt {})", count + 1)).unwrap_or_default();
        let told = ends.get(&turn).map_or("not ended", String::as_str);
        let text = format!("{turn:>3}  {indent}{:<9} {about}{told}{retried}", cast.agent(turn));
        let _ = writeln!(flow, "{}", text.trim_end());
    }
    flow
}

/// `0.31 s`.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}
