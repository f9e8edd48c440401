//! A task as it is stored. What came later lies where older versions wrote an `Option`, so that what they stored is read.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Handoffs, Task};
use crate::messages::state::Schema;
use crate::messages::{Authority, Durability, Json, Limits, Plan, RunId};

#[derive(Serialize, Deserialize)]
#[serde(rename = "Task")]
pub(super) struct Form {
    body: Arc<str>,
    to: Option<Arc<str>>,
    input: Option<Json>,
    limits: Option<Limits>,
    deadline: Times,
    durability: Option<Durability>,
    schema: Option<Arc<Schema>>,
    plan: Option<Arc<Plan>>,
    id: Option<RunId>,
    handoffs: Handoffs,
    is_untrusted: bool,
    grant: Authority,
    #[serde(default)]
    approval_ttl: ApprovalTtl,
}

/// The times of a task. In JSON only the deadline is here.
struct Times {
    deadline: Option<Duration>,
    approval_ttl: Option<Duration>,
}

/// The times in a store. The first two variants have the bytes of an `Option`, which is what older versions wrote.
#[derive(Serialize, Deserialize)]
enum StoredTimes {
    None,
    Deadline(Duration),
    All { deadline: Option<Duration>, approval_ttl: Option<Duration> },
}

impl Serialize for Times {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { deadline, approval_ttl } = *self;
        if serializer.is_human_readable() {
            return deadline.serialize(serializer);
        }
        match (deadline, approval_ttl) {
            (None, None) => StoredTimes::None,
            (Some(deadline), None) => StoredTimes::Deadline(deadline),
            (deadline, approval_ttl) => StoredTimes::All { deadline, approval_ttl },
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Times {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return Ok(Self { deadline: Option::deserialize(deserializer)?, approval_ttl: None });
        }
        Ok(match StoredTimes::deserialize(deserializer)? {
            StoredTimes::None => Self { deadline: None, approval_ttl: None },
            StoredTimes::Deadline(deadline) => Self { deadline: Some(deadline), approval_ttl: None },
            StoredTimes::All { deadline, approval_ttl } => Self { deadline, approval_ttl },
        })
    }
}

/// In JSON, how long approvals wait; in a store it has no bytes.
#[derive(Default)]
struct ApprovalTtl(Option<Duration>);

impl Serialize for ApprovalTtl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { self.0.serialize(serializer) } else { serializer.serialize_unit() }
    }
}

impl<'de> Deserialize<'de> for ApprovalTtl {
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
        } = task;
        let deadline = Times { deadline, approval_ttl };
        let approval_ttl = ApprovalTtl(approval_ttl);
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
        }
    }
}

impl From<Form> for Task {
    fn from(form: Form) -> Self {
        let Form { body, to, input, limits, deadline, durability, schema, plan, id, handoffs, .. } = form;
        let Times { deadline, approval_ttl } = deadline;
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_the_times_of_a_task() {
        let [minute, hour] = [60, 3600].map(Duration::from_secs);
        for task in [
            Task::new("x"),
            Task::new("x").deadline(hour),
            Task::new("x").approval_ttl(minute),
            Task::new("x").deadline(hour).approval_ttl(minute),
        ] {
            let json = serde_json::to_value(&task).unwrap();
            assert_eq!(serde_json::from_value::<Task>(json).unwrap(), task);
        }
    }
}
