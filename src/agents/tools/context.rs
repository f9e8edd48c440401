use std::fmt::Write as _;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::super::{Effect, Tool, ToolError, ToolScope, ToolSpec, USUAL_OUTPUT, of_spec, tool};
use super::beginning;
use crate::actors::context::ContextAccess;
use crate::messages::ContextEntry;

/// The most entries that a query answers, and what it answers if nothing is said.
const MAX_ENTRIES: usize = 100;
const USUAL_ENTRIES: usize = 20;

/// How much of a value a query shows, in bytes.
const SHOWN: usize = 200;

/// An answer holds the largest value, and what is said about it.
const OUTPUT: usize = (64 << 10) + 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Get {
    /// Where the entry lives; left out, it is your own memory.
    namespace: Option<String>,
    /// Its key there.
    key: String,
}

/// Reads an entry of the shared context. Name: `context_get`.
#[must_use]
pub fn context_get() -> impl Tool {
    let description = "Reads an entry of the shared context, which agents and people keep between runs.";
    let mut spec = ToolSpec::of::<Get>("context_get", description, Effect::Reads);
    spec.max_output = OUTPUT;
    of_spec(spec, |get: Get, scope: ToolScope| async move {
        let context = context_of(&scope)?;
        let namespace = get.namespace.unwrap_or_else(|| context.memory());
        match context.get(&namespace, &get.key).await? {
            Some(entry) => Ok(format!("{}\n{}", about(&entry), entry.value).into()),
            None => Err(ToolError(format!("there is no {:?} in {namespace:?}", get.key))),
        }
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Set {
    /// Where the entry shall live; left out, it is your own memory.
    namespace: Option<String>,
    /// Its key there, at most 128 characters.
    key: String,
    /// Its text, at most 64 KiB.
    value: String,
    /// After how many seconds it is forgotten; left out, it is as the namespace has it.
    #[schemars(range(min = 1))]
    ttl_seconds: Option<u64>,
}

/// Writes an entry of the shared context. Name: `context_set`.
#[must_use]
pub fn context_set() -> impl Tool {
    let description = "Writes an entry of the shared context, in place of the one that has the key.";
    tool("context_set", description, Effect::Notes, |set: Set, scope: ToolScope| async move {
        let context = context_of(&scope)?;
        let namespace = set.namespace.unwrap_or_else(|| context.memory());
        let ttl = set.ttl_seconds.map(Duration::from_secs);
        let entry = context.set(&namespace, &set.key, &set.value, ttl).await?;
        Ok(format!("written: {}", about(&entry)).into())
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Query {
    /// Where to look; left out, it is your own memory.
    namespace: Option<String>,
    /// How the keys begin; left out, all are looked at.
    prefix: Option<String>,
    /// How many entries at most: 20 if left out.
    #[schemars(range(min = 1, max = 100))]
    limit: Option<usize>,
}

/// Lists entries of the shared context, newest first. Name: `context_query`.
#[must_use]
pub fn context_query() -> impl Tool {
    let description = "Lists entries of the shared context, newest first, with the beginnings of their values.";
    tool("context_query", description, Effect::Reads, |query: Query, scope: ToolScope| async move {
        let context = context_of(&scope)?;
        let namespace = query.namespace.unwrap_or_else(|| context.memory());
        let limit = query.limit.unwrap_or(USUAL_ENTRIES).clamp(1, MAX_ENTRIES);
        // One more than is shown tells whether there are more.
        let found = match &query.prefix {
            Some(prefix) => context.query_by_prefix(&namespace, prefix, limit + 1).await?,
            None => context.query(&namespace, limit + 1).await?,
        };
        Ok(listed(&found, limit).into())
    })
}

fn listed(found: &[ContextEntry], limit: usize) -> String {
    let mut answer = String::new();
    let mut shown = 0;
    for entry in found.iter().take(limit) {
        let value = beginning(&entry.value, SHOWN);
        let more = if value.len() < entry.value.len() { "…" } else { "" };
        let lines = format!("{}\n  {}{more}\n", about(entry), value.replace('\n', "\n  "));
        if answer.len() + lines.len() > USUAL_OUTPUT - 200 {
            break;
        }
        answer.push_str(&lines);
        shown += 1;
    }
    if found.is_empty() {
        answer.push_str("(there are none)");
    } else if shown < found.len() {
        let _ = write!(answer, "({shown} are shown, and there are more; ask with another prefix or limit)");
    }
    answer
}

fn about(entry: &ContextEntry) -> String {
    let ContextEntry { namespace, key, agent, value, revision, .. } = entry;
    format!("{namespace} {key} ({} bytes, by {agent}, revision {revision})", value.len())
}

fn context_of(scope: &ToolScope) -> Result<&ContextAccess, ToolError> {
    scope.context.as_ref().ok_or_else(|| ToolError("there is no shared context here, outside a board".to_owned()))
}
