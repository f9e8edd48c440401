//! How the values of dynamic agents are built: each by its maker, from the draft in the run's journal.

use std::sync::Arc;

use crate::messages::{AgentName, Json};

use super::AgentValue;

/// The value of a dynamic agent.
pub(in crate::actors) struct DynamicValue {
    pub(in crate::actors) value: Arc<dyn AgentValue>,
    pub(in crate::actors) namespaces: Option<Arc<[Arc<str>]>>,
}

/// The value that takes a turn of this agent: its host's value, or for a dynamic agent the one that the host's builds from the
/// drafts.
pub(in crate::actors) fn value_for(
    agent: &AgentName,
    host: &Arc<dyn AgentValue>,
    drafts: Option<&[Json]>,
) -> Result<DynamicValue, String> {
    let drafts = drafts.unwrap_or_default();
    // If a draft were missing, the host's value would take the turn.
    if drafts.len() != agent.makers().count() {
        return Err("the run does not know what it is".to_owned());
    }
    dynamic_value(host, drafts)
}

/// The namespaces that both makers grant. A maker without a list grants all that it has.
fn granted_by_both(one: Option<Arc<[Arc<str>]>>, other: Option<Arc<[Arc<str>]>>) -> Option<Arc<[Arc<str>]>> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.iter().filter(|name| other.contains(name)).cloned().collect()),
        (one, other) => one.or(other),
    }
}

/// The value of the last of several nested dynamic agents: the host builds the first, and each builds the next.
pub(in crate::actors) fn dynamic_value(host: &Arc<dyn AgentValue>, drafts: &[Json]) -> Result<DynamicValue, String> {
    let mut built = DynamicValue { value: Arc::clone(host), namespaces: None };
    for draft in drafts {
        let spec = built.value.make(draft)?;
        let source = spec.source();
        let namespaces = granted_by_both(built.namespaces, source.config.namespaces.clone());
        built = DynamicValue { value: (source.factory)()?, namespaces };
    }
    Ok(built)
}
