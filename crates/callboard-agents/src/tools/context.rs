use std::cmp::Reverse;
use std::fmt::Write as _;
use std::time::Duration;

use callboard::actors::ContextAccess;
use callboard::messages::ContextEntry;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::{
    Effect, Tool, ToolError, ToolOutput, ToolScope, ToolSpec, USUAL_OUTPUT, USUAL_TIMEOUT, of_spec, tool,
};
use super::bounded::beginning;

/// The most entries that a query answers, and how many it answers by default.
const MAX_ENTRIES: usize = 100;
const USUAL_ENTRIES: usize = 20;

/// The most bytes of a value that a query shows.
const SHOWN: usize = 200;

/// An answer has room for the largest value, and the text around it.
const OUTPUT: usize = (64 << 10) + 1024;

/// The longest wait for a change.
const MAX_WAIT: Duration = Duration::from_secs(600);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Get {
    /// Where the entry lives; left out, it is your own memory. `run` is shared by the agents of this run.
    namespace: Option<String>,
    /// Its key there.
    key: String,
    /// Waits up to so many seconds until the entry is there, or until it has changed if `after_revision` is given; left out, it does not wait.
    #[schemars(range(min = 1, max = 600))]
    wait_seconds: Option<u64>,
    /// The revision that you have read; together with `wait_seconds`.
    after_revision: Option<u64>,
}

/// Reads an entry of the shared context, and has it kept for 90 days from then, as [`ContextAccess::recall`] does. It can wait for a change
/// before, as [`ContextAccess::changed`] does. Name: `ContextGet`.
#[must_use]
pub fn context_get() -> impl Tool {
    let description = "Reads an entry of the shared context, which agents and people keep between runs. What is read is kept for \
                       90 days from then. With `wait_seconds` it waits for what another agent is to write.";
    let mut spec = ToolSpec::of::<Get>("ContextGet", description, Effect::Reads);
    spec.max_output = OUTPUT;
    spec.timeout = USUAL_TIMEOUT + MAX_WAIT;
    of_spec(spec, |get: Get, scope: ToolScope| async move {
        let context = context_of(&scope)?;
        let namespace = get.namespace.unwrap_or_else(|| context.memory());
        match (get.wait_seconds, get.after_revision) {
            (Some(seconds), seen) => {
                let wait = Duration::from_secs(seconds).clamp(Duration::from_secs(1), MAX_WAIT);
                match tokio::time::timeout(wait, context.changed(&namespace, &get.key, seen)).await {
                    Ok(changed) => changed.map(drop)?,
                    Err(_) => return Ok(unchanged(&namespace, &get.key, seen, wait).into()),
                }
            }
            (None, Some(_)) => {
                return Err(ToolError("`after_revision` is what `wait_seconds` waits after: give both".to_owned()));
            }
            (None, None) => {}
        }
        match context.recall(&namespace, &get.key).await? {
            Some(entry) => Ok(ToolOutput {
                text: format!("{}\n{}", about(&entry), entry.value),
                is_untrusted: entry.is_untrusted(),
            }),
            None => Err(absent(&namespace, &get.key)),
        }
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Set {
    /// Where the entry shall live; left out, it is your own memory. `run` is shared by the agents of this run.
    namespace: Option<String>,
    /// Its key there, at most 128 characters.
    key: String,
    /// Its text, at most 64 KiB.
    value: String,
    /// After how many seconds it is forgotten; left out, it is as the namespace has it.
    #[schemars(range(min = 1))]
    ttl_seconds: Option<u64>,
    /// Whether it is kept for 90 days from now, or longer if it was to be kept longer; not together with `ttl_seconds`.
    extend: Option<bool>,
}

/// Writes an entry of the shared context, as [`ContextAccess::set`] or [`ContextAccess::set_with_extension`] does. Name:
/// `ContextSet`.
#[must_use]
pub fn context_set() -> impl Tool {
    let description = "Writes an entry of the shared context, in place of the one that has the key.";
    tool("ContextSet", description, Effect::Notes, |set: Set, scope: ToolScope| async move {
        let context = context_of(&scope)?;
        let namespace = set.namespace.unwrap_or_else(|| context.memory());
        let ttl = set.ttl_seconds.map(Duration::from_secs);
        let entry = match (set.extend.unwrap_or(false), ttl) {
            (false, ttl) => context.set(&namespace, &set.key, &set.value, ttl).await?,
            (true, None) => context.set_with_extension(&namespace, &set.key, &set.value).await?,
            (true, Some(_)) => {
                return Err(ToolError("`extend` keeps it for 90 days or longer: leave out `ttl_seconds`".to_owned()));
            }
        };
        Ok(format!("written: {}", about(&entry)).into())
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Query {
    /// Where to look; left out, it is your own memory. `run` is shared by the agents of this run.
    namespace: Option<String>,
    /// How the keys begin; left out, all are looked at.
    prefix: Option<String>,
    /// How many entries at most: 20 if left out.
    #[schemars(range(min = 1, max = 100))]
    limit: Option<usize>,
}

/// Lists entries of the shared context, newest first. Name: `ContextQuery`.
#[must_use]
pub fn context_query() -> impl Tool {
    let description = "Lists entries of the shared context, newest first, with the beginnings of their values.";
    tool("ContextQuery", description, Effect::Reads, |query: Query, scope: ToolScope| async move {
        let context = context_of(&scope)?;
        let namespace = query.namespace.unwrap_or_else(|| context.memory());
        let limit = query.limit.unwrap_or(USUAL_ENTRIES).clamp(1, MAX_ENTRIES);
        // One more entry than is shown is read, to learn whether there are more.
        let found = match &query.prefix {
            Some(prefix) => newest(context.query_by_prefix(&namespace, prefix, usize::MAX).await?, limit + 1),
            None => context.query(&namespace, limit + 1).await?,
        };
        let is_untrusted = found.iter().any(ContextEntry::is_untrusted);
        Ok(ToolOutput { text: listed(&found, limit), is_untrusted })
    })
}

fn newest(mut found: Vec<ContextEntry>, limit: usize) -> Vec<ContextEntry> {
    found.sort_by_key(|entry| Reverse((entry.updated_at, entry.revision)));
    found.truncate(limit);
    found
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Search {
    /// Where to look.
    #[schemars(length(min = 1, max = 16))]
    namespaces: Vec<String>,
    /// How many entries at most: 20 if left out.
    #[schemars(range(min = 1, max = 100))]
    limit: Option<usize>,
}

/// Lists entries of several namespaces of the shared context, newest first. Name: `ContextSearch`.
#[must_use]
pub fn context_search() -> impl Tool {
    let description =
        "Lists entries of several namespaces of the shared context, newest first, with the beginnings of their values.";
    tool("ContextSearch", description, Effect::Reads, |search: Search, scope: ToolScope| async move {
        let namespaces: Vec<&str> = search.namespaces.iter().map(String::as_str).collect();
        let limit = search.limit.unwrap_or(USUAL_ENTRIES).clamp(1, MAX_ENTRIES);
        let found = context_of(&scope)?.search(&namespaces, limit + 1).await?;
        let is_untrusted = found.iter().any(ContextEntry::is_untrusted);
        Ok(ToolOutput { text: listed(&found, limit), is_untrusted })
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Touch {
    /// Where the entry lives; left out, it is your own memory. `run` is shared by the agents of this run.
    namespace: Option<String>,
    /// Its key there.
    key: String,
    /// For how many seconds from now it is kept at least; left out, for 90 days.
    #[schemars(range(min = 1))]
    ttl_seconds: Option<u64>,
}

/// Has an entry of the shared context kept longer. Name: `ContextTouch`.
#[must_use]
pub fn context_touch() -> impl Tool {
    let description = "Has an entry of the shared context kept longer. It is never forgotten earlier for it.";
    tool("ContextTouch", description, Effect::Notes, |touch: Touch, scope: ToolScope| async move {
        let context = context_of(&scope)?;
        let namespace = touch.namespace.unwrap_or_else(|| context.memory());
        let is_there = context.touch(&namespace, &touch.key, touch.ttl_seconds.map(Duration::from_secs)).await?;
        there(is_there, &namespace, &touch.key).map(|()| "kept".to_owned().into())
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Delete {
    /// Where the entry lives; left out, it is your own memory. `run` is shared by the agents of this run.
    namespace: Option<String>,
    /// Its key there.
    key: String,
}

/// Deletes an entry of the shared context. Name: `ContextDelete`.
#[must_use]
pub fn context_delete() -> impl Tool {
    let description = "Deletes an entry of the shared context.";
    tool("ContextDelete", description, Effect::Notes, |delete: Delete, scope: ToolScope| async move {
        let context = context_of(&scope)?;
        let namespace = delete.namespace.unwrap_or_else(|| context.memory());
        let was_there = context.delete(&namespace, &delete.key).await?;
        there(was_there, &namespace, &delete.key).map(|()| "deleted".to_owned().into())
    })
}

/// The answer after a wait without a change.
fn unchanged(namespace: &str, key: &str, seen: Option<u64>, wait: Duration) -> String {
    match seen {
        Some(revision) => format!("{namespace} {key} has not changed since revision {revision}, in {wait:?}"),
        None => format!("there was no {key:?} in {namespace:?}, in {wait:?}"),
    }
}

fn there(is_there: bool, namespace: &str, key: &str) -> Result<(), ToolError> {
    if is_there { Ok(()) } else { Err(absent(namespace, key)) }
}

fn absent(namespace: &str, key: &str) -> ToolError {
    ToolError(format!("there is no {key:?} in {namespace:?}"))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use callboard::actors::ContextStore;
    use callboard::env::Env;
    use callboard::messages::{AgentName, Durability};
    use callboard::storage::Memory;

    fn access(store: &ContextStore, agent: &str) -> ToolScope {
        let granted: Arc<[Arc<str>]> = ["plans".into()].into();
        let access = ContextAccess::outside_turns(store.clone(), AgentName::new(agent).unwrap(), Some(granted));
        ToolScope {
            key: "test".into(),
            context: Some(access),
            turn: None,
            variables: None,
            trace_parent: None,
            asker: None,
        }
    }

    fn store() -> ContextStore {
        let env = Env::repeatable(7);
        let storage = Arc::new(Memory::new(env.clock()));
        ContextStore::new(storage, env, Durability::Memory, ContextStore::usual_ttls())
    }

    async fn used(tool: impl Tool, arguments: Value, scope: &ToolScope) -> Result<String, String> {
        let most = tool.spec().max_output;
        let answer = tool.call(arguments.into(), scope.clone()).await;
        let answer = answer.map(|output| output.text).map_err(|failure| failure.to_string());
        assert!(answer.as_ref().map_or_else(String::len, String::len) <= most);
        answer
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_written_is_read_and_listed() {
        let store = store();
        let scope = access(&store, "planner");
        let output =
            used(context_set(), json!({ "namespace": "plans", "key": "a/1", "value": "one\ntwo" }), &scope).await;
        assert_eq!(output.unwrap(), "written: plans a/1 (7 bytes, by planner, revision 1)");
        let output = used(context_get(), json!({ "namespace": "plans", "key": "a/1" }), &scope).await;
        assert_eq!(output.unwrap(), "plans a/1 (7 bytes, by planner, revision 1)\none\ntwo");
        used(context_set(), json!({ "namespace": "plans", "key": "b", "value": "x" }), &scope).await.unwrap();
        let all = used(context_query(), json!({ "namespace": "plans" }), &scope).await.unwrap();
        assert!(all.starts_with("plans b (1 bytes") && all.ends_with("revision 1)\n  one\n  two\n"), "{all}");
        let some = used(context_query(), json!({ "namespace": "plans", "prefix": "a/" }), &scope).await.unwrap();
        assert!(some.contains("a/1") && !some.contains("plans b"), "{some}");
        let one = used(context_query(), json!({ "namespace": "plans", "limit": 1 }), &scope).await.unwrap();
        assert!(one.ends_with("(1 are shown, and there are more; ask with another prefix or limit)"), "{one}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_begins_alike_is_listed_newest_first_and_several_namespaces_are_merged() {
        let store = store();
        let scope = access(&store, "planner");
        for (namespace, key) in [("plans", "a/2"), ("plans", "b"), ("plans", "a/1"), ("memory:planner", "m")] {
            used(context_set(), json!({ "namespace": namespace, "key": key, "value": "x" }), &scope).await.unwrap();
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let keys = |output: String| -> Vec<String> {
            output
                .lines()
                .filter(|line| line.contains(" bytes, by "))
                .map(|line| line.split(' ').nth(1).unwrap().to_owned())
                .collect()
        };
        let query = |limit: usize| json!({ "namespace": "plans", "prefix": "a/", "limit": limit });
        assert_eq!(keys(used(context_query(), query(9), &scope).await.unwrap()), ["a/1", "a/2"]);
        assert_eq!(keys(used(context_query(), query(1), &scope).await.unwrap()), ["a/1"]);
        let both = json!({ "namespaces": ["memory:planner", "plans"], "limit": 3 });
        assert_eq!(keys(used(context_search(), both, &scope).await.unwrap()), ["m", "a/1", "b"]);
        let others = json!({ "namespaces": ["plans", "memory:other"] });
        let refused = used(context_search(), others, &scope).await.unwrap_err();
        assert!(refused.starts_with("agent planner has no grant for namespace \"memory:other\""), "{refused}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_can_wait_for_a_change_and_not_for_what_is_not_granted() {
        let store = store();
        let scope = access(&store, "planner");
        let env = Env::repeatable(7);
        let elapsed = |since: Duration| (env.now().monotonic - since).as_secs();
        let begun = env.now().monotonic;
        let waits = json!({ "namespace": "plans", "key": "a", "wait_seconds": 600 });
        let nothing = used(context_get(), waits.clone(), &scope).await.unwrap();
        assert_eq!((&*nothing, elapsed(begun)), ("there was no \"a\" in \"plans\", in 600s", 600));
        let writes = async {
            tokio::time::sleep(Duration::from_secs(9)).await;
            used(context_set(), json!({ "namespace": "plans", "key": "b", "value": "x" }), &scope).await.unwrap();
            used(context_set(), json!({ "namespace": "plans", "key": "a", "value": "x" }), &scope).await.unwrap()
        };
        let (read, _) = tokio::join!(used(context_get(), waits.clone(), &scope), writes);
        assert_eq!(read.unwrap(), "plans a (1 bytes, by planner, revision 2)\nx");
        assert_eq!(elapsed(begun), 609);
        let after = json!({ "namespace": "plans", "key": "a", "wait_seconds": 1, "after_revision": 2 });
        let unchanged = used(context_get(), after, &scope).await.unwrap();
        assert_eq!(unchanged, "plans a has not changed since revision 2, in 1s");
        let after = json!({ "namespace": "plans", "key": "a", "wait_seconds": 1, "after_revision": 1 });
        assert_eq!(used(context_get(), after, &scope).await.unwrap(), "plans a (1 bytes, by planner, revision 2)\nx");
        let alone = json!({ "namespace": "plans", "key": "a", "after_revision": 1 });
        assert!(used(context_get(), alone, &scope).await.unwrap_err().ends_with("give both"));
        for namespace in ["security", "memory:other", "memory:", "run"] {
            let begun = env.now().monotonic;
            let waits = json!({ "namespace": namespace, "key": "a", "wait_seconds": 600 });
            let refused = used(context_get(), waits, &scope).await.unwrap_err();
            assert!(refused.starts_with("agent planner has no grant for namespace"), "{refused}");
            assert_eq!(elapsed(begun), 0, "{namespace}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_read_or_touched_is_kept_for_ninety_days_and_what_is_deleted_is_gone() {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        let store = store();
        let scope = access(&store, "planner");
        for key in ["read", "touched", "left"] {
            used(context_set(), json!({ "key": key, "value": "x", "ttl_seconds": 60 }), &scope).await.unwrap();
        }
        used(context_get(), json!({ "key": "read" }), &scope).await.unwrap();
        used(context_touch(), json!({ "key": "touched" }), &scope).await.unwrap();
        tokio::time::advance(89 * DAY).await;
        for (key, is_there) in [("read", true), ("touched", true), ("left", false)] {
            let touched = used(context_touch(), json!({ "key": key, "ttl_seconds": 1 }), &scope).await;
            assert_eq!(touched.is_ok(), is_there, "{key}: {touched:?}");
        }
        used(context_delete(), json!({ "key": "read" }), &scope).await.unwrap();
        let again = used(context_delete(), json!({ "key": "read" }), &scope).await.unwrap_err();
        assert_eq!(again, "there is no \"read\" in \"memory:planner\"");
        tokio::time::advance(2 * DAY).await;
        let expired = used(context_get(), json!({ "key": "touched" }), &scope).await.unwrap_err();
        assert_eq!(expired, "there is no \"touched\" in \"memory:planner\"");
        let set = json!({ "key": "touched", "value": "y", "ttl_seconds": 60 });
        used(context_set(), set, &scope).await.unwrap();
        used(context_set(), json!({ "key": "touched", "value": "z", "extend": true }), &scope).await.unwrap();
        tokio::time::advance(89 * DAY).await;
        used(context_get(), json!({ "key": "touched" }), &scope).await.unwrap();
        let both = json!({ "key": "touched", "value": "z", "extend": true, "ttl_seconds": 60 });
        let refused = used(context_set(), both, &scope).await.unwrap_err();
        assert_eq!(refused, "`extend` keeps it for 90 days or longer: leave out `ttl_seconds`");
        for (tool, namespace) in [(true, "security"), (false, "memory:other")] {
            let entry = json!({ "namespace": namespace, "key": "k" });
            let refused = if tool {
                used(context_touch(), entry, &scope).await
            } else {
                used(context_delete(), entry, &scope).await
            };
            let refused = refused.unwrap_err();
            let why = format!("agent planner has no grant for namespace {namespace:?}");
            assert!(refused.starts_with(&why), "{refused}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_ones_own_and_other_namespaces_are_granted() {
        let store = store();
        let (one, other) = (access(&store, "one"), access(&store, "other"));
        used(context_set(), json!({ "key": "k", "value": "mine" }), &one).await.unwrap();
        assert!(used(context_get(), json!({ "key": "k" }), &one).await.unwrap().ends_with("\nmine"));
        assert_eq!(
            used(context_get(), json!({ "key": "k" }), &other).await.unwrap_err(),
            "there is no \"k\" in \"memory:other\""
        );
        assert_eq!(used(context_query(), json!({}), &other).await.unwrap(), "(there are none)");
        for namespace in ["memory:one", "security", "plans/x", "", "\u{202e}"] {
            let why = format!("agent other has no grant for namespace {namespace:?}");
            let refused = |output: Result<String, String>| {
                let refused = output.unwrap_err();
                assert!(refused.starts_with(&why), "{refused}");
            };
            let get = json!({ "namespace": namespace, "key": "k" });
            refused(used(context_get(), get, &other).await);
            let set = json!({ "namespace": namespace, "key": "k", "value": "x" });
            refused(used(context_set(), set, &other).await);
            let query = json!({ "namespace": namespace });
            refused(used(context_query(), query, &other).await);
        }
        assert!(used(context_get(), json!({ "key": "k" }), &one).await.unwrap().ends_with("\nmine"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_much_is_refused_and_the_largest_value_fits() {
        let store = store();
        let scope = access(&store, "writer");
        let largest = "x".repeat(64 << 10);
        used(context_set(), json!({ "key": "k", "value": largest, "ttl_seconds": u64::MAX }), &scope).await.unwrap();
        assert!(used(context_get(), json!({ "key": "k" }), &scope).await.unwrap().ends_with(&largest));
        let larger = json!({ "key": "k", "value": largest.clone() + "x" });
        assert_eq!(
            used(context_set(), larger, &scope).await.unwrap_err(),
            "the value of memory:writer/k has 65537 bytes; at most 65536 are allowed"
        );
        let longer = used(context_set(), json!({ "key": "k".repeat(129), "value": "" }), &scope).await.unwrap_err();
        assert!(longer.ends_with("has 129 characters; at most 128 are allowed"), "{longer}");
        for number in 0..150 {
            let value = "ä".repeat(1000);
            used(context_set(), json!({ "key": format!("n{number}"), "value": value }), &scope).await.unwrap();
        }
        let all = used(context_query(), json!({ "prefix": "n", "limit": 100_000 }), &scope).await.unwrap();
        assert!(all.contains("n149 ") && all.contains("(100 are shown"), "{}", all.len());
    }

    #[tokio::test]
    async fn without_a_board_there_is_none() {
        let scope = ToolScope {
            key: "test".into(),
            context: None,
            turn: None,
            variables: None,
            trace_parent: None,
            asker: None,
        };
        let output = used(context_get(), json!({ "key": "k" }), &scope).await.unwrap_err();
        assert_eq!(output, "there is no shared context here, outside a board");
    }
}
