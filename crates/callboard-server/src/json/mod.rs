//! Runs as JSON, in the shapes that docs/json-output.md describes: what the command line prints and HTTP answers.

use std::time::Duration;

use serde::ser::{Serialize, SerializeStruct as _, Serializer};
use serde_json::{Map, Value, json};

use callboard::messages::{
    Interrupt, Outcome, Pending, PendingId, RunEvent, RunMetrics, RunResult, Submission, Task, Timestamp, TurnId,
    Usage, Votes, visible,
};
use callboard::supervision::runs::Run;

mod stable;
mod status;

pub use stable::{stable, time};
pub use status::Status;

/// Returns the status of the run at `now`, in one word: that of its outcome, or of what it waits for.
#[must_use]
pub fn status(run: &Run, now: Timestamp) -> &'static str {
    match run.result() {
        Some(result) => result.outcome.name(),
        None => Status::of(run, now).word(),
    }
}

/// Returns the status of a run as a delegation: `ack` until it has ended, then `complete` or `fail`.
#[must_use]
pub fn delegation_status(run: &Run) -> &'static str {
    match run.result() {
        None => "ack",
        Some(result) if result.outcome.is_finished() => "complete",
        Some(_) => "fail",
    }
}

/// Returns the result of a run.
#[must_use]
pub fn result(result: &RunResult) -> Value {
    json!(Shape(result))
}

/// A value that is serialized as its JSON directly. Responses to most requests are made of these.
pub(crate) struct Shape<'a, T>(pub(crate) &'a T);

impl Serialize for Shape<'_, RunResult> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let RunResult { run, outcome, output, state, metrics, handoffs, is_tainted, alone } = self.0;
        let mut shape = serializer.serialize_struct("", 10)?;
        shape.serialize_field("run", run)?;
        shape.serialize_field("status", outcome.name())?;
        shape.serialize_field("error", &error(outcome))?;
        shape.serialize_field("outcome", &stable(outcome))?;
        shape.serialize_field("output", output)?;
        shape.serialize_field("state", state)?;
        shape.serialize_field("metrics", &Shape(metrics))?;
        shape.serialize_field("handoffs", &stable(handoffs))?;
        shape.serialize_field("is_tainted", is_tainted)?;
        shape.serialize_field("alone", &stable(alone))?;
        shape.end()
    }
}

/// As [`stable`] has it.
impl Serialize for Shape<'_, RunMetrics> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let RunMetrics { turns, handoffs, agents, retries, usage, tokens_spent, overrun, elapsed } = self.0;
        let mut shape = serializer.serialize_struct("", 8)?;
        shape.serialize_field("turns", turns)?;
        shape.serialize_field("handoffs", handoffs)?;
        shape.serialize_field("agents", agents)?;
        shape.serialize_field("retries", retries)?;
        shape.serialize_field("usage", &Shape(usage))?;
        shape.serialize_field("spent_tokens", tokens_spent)?;
        shape.serialize_field("overrun_tokens", overrun)?;
        shape.serialize_field("elapsed_ms", &millis(*elapsed))?;
        shape.end()
    }
}

/// As [`stable`] has it.
impl Serialize for Shape<'_, Usage> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Usage { input_tokens, output_tokens, cost } = self.0;
        let mut shape = serializer.serialize_struct("", 3)?;
        shape.serialize_field("input_tokens", input_tokens)?;
        shape.serialize_field("output_tokens", output_tokens)?;
        shape.serialize_field("cost_usd", &cost.dollars())?;
        shape.end()
    }
}

/// Why the run did not finish; `None` if it did.
fn error(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Finished => None,
        Outcome::Failed { error } => Some(error.clone()),
        Outcome::Refused(refusal) => Some(refusal.to_string()),
        Outcome::Denied { reason } | Outcome::Cancelled { reason } => Some(reason.clone()),
    }
}

/// Returns the submission of a run. A workflow is represented by its name: the text is in its file.
#[must_use]
pub fn submission(submission: &Submission) -> Value {
    let Submission { run, trace, task, agent, cast, chain, at } = submission;
    let Task {
        body,
        to,
        input,
        limits,
        deadline,
        durability,
        schema,
        plan,
        id: _,
        handoffs,
        is_untrusted,
        grant,
        approval_ttl,
        // The event `conversation_entered` names it.
        conversation: _,
        from_agent,
        reference,
        // Of the program that asked.
        trace_parent: _,
        placed,
    } = task;
    let schema = schema.as_ref().or_else(|| plan.as_ref().map(|plan| &plan.schema));
    let channels: Map<String, Value> = schema
        .iter()
        .flat_map(|schema| {
            schema.declared().filter_map(|name| Some((name.to_owned(), stable(schema.reducer(name).ok()?))))
        })
        .collect();
    let mut shown = json!({
        "run": run,
        "trace": trace,
        "submitted_at": time(*at),
        "agent": agent,
        "cast": cast,
        "chain": stable(chain),
        "task": {
            "body": body,
            "to": to,
            "input": input,
            "limits": limits,
            "deadline_ms": deadline.map(millis),
            "approval_ttl_ms": approval_ttl.map(millis),
            "from_agent": from_agent,
            "reference": reference,
            "durability": durability,
            "handoffs": handoffs,
            "is_untrusted": is_untrusted,
            "grant": grant.effects().map(|effect| stable(&effect)).collect::<Vec<_>>(),
            "workflow": plan.as_ref().map(|plan| &plan.name),
            "channels": channels,
        },
    });
    if let Some(placed) = placed {
        shown["task"]["placed"] = json!(placed.turn.to_string());
    }
    shown
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns an event of a run.
#[must_use]
pub fn event(event: &RunEvent) -> Value {
    match event {
        RunEvent::Submitted(begun) => json!({ "kind": "submitted", "submission": submission(begun) }),
        RunEvent::Reserved { cost, .. } => {
            let mut shape = stable(event);
            shape["cost_usd"] = json!(cost.map(|cost| cost.dollars()));
            shape
        }
        RunEvent::Settled { model, .. } => {
            let mut shape = stable(event);
            shape["model"] = json!(model);
            shape
        }
        RunEvent::StepFinished { is_tool, .. } | RunEvent::IntentRecorded { is_tool, .. } => {
            let mut shape = stable(event);
            shape["is_tool"] = json!(is_tool);
            shape
        }
        other => stable(other),
    }
}

/// Returns something that waits for a person.
#[must_use]
pub fn pending(pending: &Pending) -> Value {
    let mut shape = match pending {
        Pending::Approval(envelope) => json!({
            "kind": "approval",
            "agent": envelope.agent,
            "action": envelope.action.action,
            "target": envelope.action.target,
            "arguments": envelope.action.arguments,
            "action_kind": envelope.kind,
            "policy": envelope.policy,
            "deciders": stable(&envelope.deciders),
            "requester": envelope.requester,
            "escalates_at": envelope.escalates_at.map(time),
            "edited_by": envelope.edited_by.as_ref().map(|vote| &vote.by),
            "rationale": stable(&envelope.rationale),
        }),
        Pending::Question(question) => {
            json!({ "kind": "question", "agent": question.agent, "question": question.question })
        }
        Pending::Node(Interrupt { node, agent, input, state, .. }) => {
            json!({ "kind": "node", "node": node, "agent": agent, "input": input, "state": state })
        }
        Pending::Attention { node, is_compensation, why, .. } => {
            json!({ "kind": "attention", "node": node, "is_compensation": is_compensation, "why": why })
        }
    };
    shape["id"] = json!(pending.id());
    shape["expires_at"] = json!(pending.expires_at().map(time));
    shape
}

/// Returns how people have closed something that waited for them, by the event that has it, such as `answered by ann at TIME`; `None` for
/// any other event.
#[must_use]
pub fn closed(event: &RunEvent) -> Option<String> {
    match event {
        RunEvent::Decided { decision, .. } => Some(decision.to_string()),
        RunEvent::Answered { by, at, .. } => Some(format!("answered by {} at {at}", visible(by))),
        RunEvent::Resumed { by, at, .. } => Some(format!("continued by {} at {at}", visible(by))),
        RunEvent::TurnRestarted { at, .. } => Some(format!("started again at {at}")),
        _ => None,
    }
}

/// As [`closed`], by an event of the run of what has this id; `None` if it has closed something else.
#[must_use]
pub fn closed_of(event: &RunEvent, id: &PendingId) -> Option<String> {
    let is_of_it = match (id, event) {
        (PendingId::Approval(id), RunEvent::Decided { approval, .. }) => approval == id,
        (PendingId::Question(question), RunEvent::Answered { turn, ordinal, .. }) => {
            (*turn, *ordinal) == (question.request.turn.number, question.request.ordinal)
        }
        (PendingId::Node(of), RunEvent::Resumed { turn, .. })
        | (PendingId::Attention(of), RunEvent::TurnRestarted { turn, .. }) => *turn == of.number,
        _ => false,
    };
    if is_of_it { closed(event) } else { None }
}

/// Returns who has approved an approval, and how many more people have to: keys beside those of [`pending()`].
#[must_use]
pub fn votes(votes: &Votes) -> Value {
    let approved = votes.approved.iter().map(|vote| json!({ "by": vote.by, "at": time(vote.at) }));
    json!({ "approved_by": approved.collect::<Vec<_>>(), "missing": votes.missing })
}

/// Returns a turn, with its run.
#[must_use]
pub fn turn_of(turn: TurnId) -> Value {
    json!({ "run": turn.run, "turn": turn.number })
}

#[cfg(test)]
pub(crate) mod tests;
