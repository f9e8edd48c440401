//! A task as it is stored. What came later lies where older versions wrote an `Option`, so that what they stored is read.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Handoffs, Task};
use crate::messages::state::Schema;
use crate::messages::{AgentName, Authority, Cost, Durability, Json, Limits, PlacedTurn, Plan, RunId, TraceParent};

#[derive(Serialize, Deserialize)]
#[serde(rename = "Task")]
pub(super) struct Form {
    body: Arc<str>,
    to: Option<Arc<str>>,
    input: Option<Json>,
    limits: Option<Limits>,
    deadline: Later,
    durability: Option<Durability>,
    schema: Option<Arc<Schema>>,
    plan: Option<Arc<Plan>>,
    id: Option<RunId>,
    handoffs: Handoffs,
    is_untrusted: bool,
    grant: Authority,
    #[serde(default)]
    approval_ttl: InJson<Duration>,
    #[serde(default)]
    from_agent: InJson<AgentName>,
    #[serde(default)]
    reference: InJson<Arc<str>>,
}

/// The deadline of a task, and what came later. In JSON only the deadline is here.
#[derive(Default)]
struct Later {
    deadline: Option<Duration>,
    approval_ttl: Option<Duration>,
    from_agent: Option<AgentName>,
    reference: Option<Arc<str>>,
    /// The limit of money of `limits`.
    cost: Option<Cost>,
    trace_parent: Option<TraceParent>,
    placed: Option<Box<PlacedTurn>>,
}

/// What many variants of [`StoredLater`] begin with; in a struct of its own it has the same bytes.
#[derive(Serialize, Deserialize)]
struct Asked {
    deadline: Option<Duration>,
    approval_ttl: Option<Duration>,
    from_agent: Option<AgentName>,
    reference: Option<Arc<str>>,
}

/// [`Later`] in a store. The first two variants have the bytes of an `Option`, which is what older versions wrote.
#[derive(Serialize, Deserialize)]
enum StoredLater {
    None,
    Deadline(Duration),
    Times {
        deadline: Option<Duration>,
        approval_ttl: Option<Duration>,
    },
    All(Asked),
    Money(Asked, Cost),
    Traced(Asked, Option<Cost>, TraceParent),
    TracedWithState(Asked, Option<Cost>, TraceParent, Arc<str>),
    Placed {
        asked: Asked,
        cost: Option<Cost>,
        parent: Option<(TraceParent, Option<Arc<str>>)>,
        placed: Box<PlacedTurn>,
    },
}

impl Serialize for Later {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { deadline, approval_ttl, cost, .. } = *self;
        if serializer.is_human_readable() {
            return deadline.serialize(serializer);
        }
        let (from_agent, reference) = (self.from_agent.clone(), self.reference.clone());
        let is_asked = from_agent.is_some() || reference.is_some();
        let asked = Asked { deadline, approval_ttl, from_agent, reference };
        if let Some(placed) = self.placed.clone() {
            let parent = self.trace_parent.clone().map(|parent| (parent.clone(), parent.state));
            return StoredLater::Placed { asked, cost, parent, placed }.serialize(serializer);
        }
        match (self.trace_parent.clone(), cost, deadline) {
            (Some(parent), cost, _) => match parent.state.clone() {
                None => StoredLater::Traced(asked, cost, parent),
                Some(state) => StoredLater::TracedWithState(asked, cost, parent, state),
            },
            (None, Some(cost), _) => StoredLater::Money(asked, cost),
            (None, None, _) if is_asked => StoredLater::All(asked),
            (None, None, deadline) if approval_ttl.is_some() => StoredLater::Times { deadline, approval_ttl },
            (None, None, Some(deadline)) => StoredLater::Deadline(deadline),
            (None, None, None) => StoredLater::None,
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Later {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return Ok(Self { deadline: Option::deserialize(deserializer)?, ..Self::default() });
        }
        let with = |asked, cost, trace_parent| {
            let Asked { deadline, approval_ttl, from_agent, reference } = asked;
            Self { deadline, approval_ttl, from_agent, reference, cost, trace_parent, placed: None }
        };
        Ok(match StoredLater::deserialize(deserializer)? {
            StoredLater::None => Self::default(),
            StoredLater::Deadline(deadline) => Self { deadline: Some(deadline), ..Self::default() },
            StoredLater::Times { deadline, approval_ttl } => Self { deadline, approval_ttl, ..Self::default() },
            StoredLater::All(asked) => with(asked, None, None),
            StoredLater::Money(asked, cost) => with(asked, Some(cost), None),
            StoredLater::Traced(asked, cost, parent) => with(asked, cost, Some(parent)),
            StoredLater::TracedWithState(asked, cost, parent, state) => {
                with(asked, cost, Some(TraceParent { state: Some(state), ..parent }))
            }
            StoredLater::Placed { asked, cost, parent, placed } => {
                let parent = parent.map(|(parent, state)| TraceParent { state, ..parent });
                Self { placed: Some(placed), ..with(asked, cost, parent) }
            }
        })
    }
}

/// A field of the JSON form alone; in a store it has no bytes.
struct InJson<T>(Option<T>);

impl<T> Default for InJson<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Serialize> Serialize for InJson<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { self.0.serialize(serializer) } else { serializer.serialize_unit() }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for InJson<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return Option::deserialize(deserializer).map(Self);
        }
        <()>::deserialize(deserializer).map(|()| Self(None))
    }
}

impl From<Task> for Form {
    fn from(task: Task) -> Self {
        let Task {
            body,
            to,
            input,
            limits,
            deadline,
            durability,
            schema,
            plan,
            id,
            handoffs,
            is_untrusted,
            grant,
            approval_ttl,
            conversation: _,
            from_agent,
            reference,
            trace_parent,
            placed,
        } = task;
        let in_json = (InJson(approval_ttl), InJson(from_agent.clone()), InJson(reference.clone()));
        let cost = limits.as_ref().and_then(|limits| limits.cost);
        let trace_parent = trace_parent.map(|parent| *parent);
        let deadline = Later { deadline, approval_ttl, from_agent, reference, cost, trace_parent, placed };
        let (approval_ttl, from_agent, reference) = in_json;
        Self {
            body,
            to,
            input,
            limits,
            deadline,
            durability,
            schema,
            plan,
            id,
            handoffs,
            is_untrusted,
            grant,
            approval_ttl,
            from_agent,
            reference,
        }
    }
}

impl From<Form> for Task {
    fn from(form: Form) -> Self {
        let Form { body, to, input, limits, deadline, durability, schema, plan, id, handoffs, .. } = form;
        let Later { deadline, approval_ttl, from_agent, reference, cost, trace_parent, placed } = deadline;
        let limits = limits.map(|limits| Limits { cost: cost.or(limits.cost), ..limits });
        Self {
            body,
            to,
            input,
            limits,
            deadline,
            durability,
            schema,
            plan,
            id,
            handoffs,
            is_untrusted: form.is_untrusted,
            grant: form.grant,
            approval_ttl: approval_ttl.or(form.approval_ttl.0),
            conversation: None,
            // Not read from JSON: a text of a task does not decide who it is from.
            from_agent,
            reference: reference.or(form.reference.0),
            trace_parent: trace_parent.map(Box::new),
            placed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_the_times_and_the_reference_of_a_task() {
        let [minute, hour] = [60, 3600].map(Duration::from_secs);
        for task in [
            Task::new("x"),
            Task::new("x").deadline(hour),
            Task::new("x").approval_ttl(minute).reference("group/project#7"),
            Task::new("x").deadline(hour).approval_ttl(minute),
            Task::new("x").limits(Limits { cost: Some(Cost(1)), ..Limits::default() }),
        ] {
            let json = serde_json::to_value(&task).unwrap();
            assert_eq!(serde_json::from_value::<Task>(json).unwrap(), task);
        }
    }

    #[test]
    fn a_task_that_is_read_from_json_is_from_nobody() {
        let task = Task::new("x").from_agent(AgentName::new("ann").unwrap());
        let json = serde_json::to_value(&task).unwrap();
        assert_eq!(json["from_agent"], "ann");
        assert_eq!(serde_json::from_value::<Task>(json).unwrap(), Task::new("x"));
    }
}
