//! Events as people read them: one line each.

use std::fmt;

use callboard_text::cut;

use super::{AgentName, Command, Goto, Json, RunEvent, Verdict};

/// One line, fit for a terminal; what agents wrote is escaped and cut.
impl fmt::Display for RunEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Submitted(submission) => {
                write!(f, "submitted to {}: {}", submission.agent, cut(&submission.task.body))
            }
            Self::StepStarted { name, .. } => write!(f, "step {} started", cut(name)),
            Self::StepFinished { name, value, .. } => write!(f, "step {} gave {}", cut(name), shown(value)),
            Self::Delegated { order, verdict, .. } => match verdict {
                Verdict::Admitted(agents) => write!(f, "delegated to {}: {}", names(agents), cut(&order.body)),
                Verdict::Nothing | Verdict::Refused(_) | Verdict::Parked(_) => {
                    write!(f, "delegates to {}: {}{}", cut(&order.to), cut(&order.body), Against(verdict))
                }
            },
            Self::DelegationExpired { ordinal, .. } => write!(f, "request {ordinal} was not answered in time"),
            Self::Reserved { tokens, verdict, .. } => match verdict {
                Verdict::Admitted(_) | Verdict::Nothing => write!(f, "reserved {tokens} tokens"),
                Verdict::Refused(_) | Verdict::Parked(_) => write!(f, "asks for {tokens} tokens{}", Against(verdict)),
            },
            Self::Settled { usage: Some(usage), .. } => {
                write!(f, "used {} tokens ({} in, {} out)", usage.total(), usage.input_tokens, usage.output_tokens)
            }
            Self::Settled { usage: None, .. } => f.write_str("released its tokens"),
            Self::Asked { question, .. } | Self::AskedUntil { question, .. } => write!(f, "asked {}", shown(question)),
            Self::QuestionExpired { .. } => f.write_str("nobody answered in time"),
            Self::Answered { answer, by, .. } => write!(f, "{} answered {}", cut(by), shown(answer)),
            Self::ApprovalAsked { envelope, .. } => {
                write!(f, "asks for consent: {}", cut(&envelope.action.to_string()))
            }
            Self::Decided { decision, verdict, .. } => {
                let decided = if decision.approved { "approved" } else { "denied" };
                write!(f, "{decided} by {}", cut(&decision.by))?;
                if !decision.reason.is_empty() {
                    write!(f, ": {}", cut(&decision.reason))?;
                }
                Against(verdict).fmt(f)
            }
            Self::HandoffChecked { to, refusal: None, .. } => write!(f, "may go to {}", cut(&to.join(", "))),
            Self::HandoffChecked { to, refusal: Some(refusal), .. } => {
                write!(f, "may not go to {} ({})", cut(&to.join(", ")), refusal.name())
            }
            Self::AgentMade { name, is_change, made, .. } => {
                let what = if *is_change { "changed" } else { "made" };
                match made {
                    Ok(_) => write!(f, "{what} the agent {}", cut(name)),
                    Err(refusal) => write!(f, "has not {what} the agent {} ({})", cut(name), refusal.name()),
                }
            }
            Self::Tainted { source, .. } => write!(f, "read untrusted input: {}", cut(source)),
            Self::Noticed { text, .. } => write!(f, "says {}", cut(text)),
            Self::Summarized { text, .. } => write!(f, "sums up: {}", cut(text)),
            Self::AttemptFailed { attempt, failure, .. } => {
                write!(f, "attempt {attempt} failed: {}", cut(&failure.to_string()))
            }
            Self::TurnEnded { command, verdict, .. } => {
                write!(f, "ended{}{}", Went(command, verdict), Against(verdict))
            }
            Self::TurnFailed { failure, .. } => write!(f, "failed for good: {}", cut(&failure.to_string())),
            Self::Recovered { new_process: true, .. } => f.write_str("found unfinished by a new process"),
            Self::Recovered { new_process: false, .. } => f.write_str("read back by its supervisor"),
            Self::NeedsAttention { why, .. } => write!(f, "needs attention: {}", cut(why)),
            Self::TurnRestarted { .. } => f.write_str("restarted by a person"),
            Self::Stopped { outcome, .. } => write!(f, "stopped, {}", cut(&outcome.to_string())),
            Self::Overwritten { by, update, .. } => {
                let channels: Vec<&str> = update.writes().iter().map(|write| &*write.channel).collect();
                write!(f, "{} wrote over {}", cut(by), cut(&channels.join(", ")))
            }
            Self::Resumed { by, input, update, .. } => {
                write!(f, "resumed by {}", cut(by))?;
                if let Some(input) = input {
                    write!(f, ", with the input {}", shown(input))?;
                }
                let channels: Vec<&str> = update.writes().iter().map(|write| &*write.channel).collect();
                if channels.is_empty() { Ok(()) } else { write!(f, ", with {} written", cut(&channels.join(", "))) }
            }
            Self::IntentRecorded { intent, .. } => write!(f, "begins {intent}, which must not be repeated"),
            Self::StepFailed { name, failure, .. } => {
                write!(f, "step {} failed: {}", cut(name), cut(&failure.to_string()))
            }
            Self::OutcomeUnknown { .. } => f.write_str("asked whether what it had begun was done"),
            Self::OutcomeResolved { resolution, by, .. } => write!(f, "{} answered: {resolution}", cut(by)),
            Self::ConversationEntered { conversation, .. } => {
                write!(f, "enters conversation {}", cut(conversation.as_str()))
            }
            Self::ConversationRead { runs: 0, .. } => f.write_str("begins its conversation"),
            Self::ConversationRead { runs, left_out: 0, .. } => {
                write!(
                    f,
                    "read the messages of {runs} earlier run{} of its conversation",
                    if *runs == 1 { "" } else { "s" }
                )
            }
            Self::ConversationRead { runs, left_out, .. } => {
                write!(
                    f,
                    "read the messages of the newest {runs} of {} earlier runs of its conversation",
                    runs + left_out
                )
            }
            Self::ReferenceChanged { reference: Some(reference), .. } => write!(f, "refers to {} now", cut(reference)),
            Self::ReferenceChanged { reference: None, .. } => f.write_str("refers to nothing outside any more"),
            Self::Forked { from, input, .. } => {
                write!(f, "forked from turn {} of run {}", from.number, from.run)?;
                match input {
                    Some(input) => write!(f, ", with the input {}", shown(input)),
                    None => Ok(()),
                }
            }
        }
    }
}

fn shown(json: &Json) -> String {
    cut(&json.to_string())
}

fn names(agents: &[AgentName]) -> String {
    agents.iter().map(AgentName::as_str).collect::<Vec<_>>().join(", ")
}

/// Where a turn went.
struct Went<'a>(&'a Command, &'a Verdict);

impl fmt::Display for Went<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(command, verdict) = self;
        if let Verdict::Admitted(agents) = verdict {
            return write!(f, ", went to {}", names(agents));
        }
        match &command.goto {
            Goto::Next => Ok(()),
            Goto::End => f.write_str(" and ended its run or delegation"),
            Goto::Agent(_) | Goto::Many(_) => {
                let targets: Vec<&str> = command.goto.targets().map(|target| &**target).collect();
                write!(f, ", to go to {}", cut(&targets.join(", ")))
            }
        }
    }
}

/// The verdict, if it is not an admission.
struct Against<'a>(&'a Verdict);

impl fmt::Display for Against<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Verdict::Nothing | Verdict::Admitted(_) => Ok(()),
            Verdict::Refused(refusal) => write!(f, "; refused ({})", refusal.name()),
            Verdict::Parked(_) => f.write_str("; waits for consent"),
        }
    }
}
