//! The description of the routes as OpenAPI 3.1: docs/openapi.json, which is also served.

use axum::Json;
use serde_json::{Map, Value, json};

use crate::access::Access;
use crate::inbox::ItemKind;
use crate::problem::ProblemCode;
use crate::routes::{Route, Server};
use crate::tokens::Scope;

/// Answers with the description.
pub(crate) async fn get() -> Json<Value> {
    Json(document())
}

/// What is said of a route beside its method, its path and its scope.
struct Operation {
    summary: &'static str,
    /// The parameters of the query, each with whether it is required.
    query: &'static [(&'static str, bool)],
    /// The schema of the body.
    body: Option<Value>,
    status: u16,
    /// Whether it has the headers `If-Match` and `If-None-Match`.
    is_conditional: bool,
    /// The schema of the answer.
    answer: Answer,
}

enum Answer {
    Json(Value),
    /// Plain text.
    Text,
    /// Server-sent events, with whether they end with a delegation.
    Events {
        is_of_one: bool,
    },
}

impl Operation {
    fn of(summary: &'static str, answer: Value) -> Self {
        Self { summary, query: &[], body: None, status: 200, is_conditional: false, answer: Answer::Json(answer) }
    }

    fn query(self, query: &'static [(&'static str, bool)]) -> Self {
        Self { query, ..self }
    }

    fn body(self, body: Value) -> Self {
        Self { body: Some(body), ..self }
    }

    fn changing(self) -> Self {
        Self { is_conditional: true, ..self }
    }

    fn accepted(self) -> Self {
        Self { status: 202, ..self }
    }

    /// The events of one delegation.
    fn events(self) -> Self {
        Self { answer: Answer::Events { is_of_one: true }, ..self }
    }

    /// The events of many.
    fn endless_events(self) -> Self {
        Self { answer: Answer::Events { is_of_one: false }, ..self }
    }
}

fn schema(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required })
}

/// A body: other keys than these are refused.
fn body(properties: &Value, required: &[&str]) -> Value {
    let mut body = object(properties, required);
    body["additionalProperties"] = false.into();
    body
}

fn list(of: Value) -> Value {
    json!({ "type": "array", "items": of })
}

/// The operation of a route; `None` if it has no description, which a test refuses.
fn operation(route: &Route) -> Option<Operation> {
    let text = || json!({ "type": "string" });
    let any = || json!({});
    let number = || json!({ "type": "integer", "minimum": 1 });
    let limits = || json!({ "anyOf": [{ "enum": ["simple", "medium", "complex"] }, { "type": "object" }] });
    let page = |name: &str, of: Value| {
        object(&json!({ name: list(of), "next": { "type": ["string", "null"] } }), &[name, "next"])
    };
    let health = || object(&json!({ "status": { "const": "ok" } }), &["status"]);
    Some(match (route.method, route.path) {
        ("GET", "/v1/health") => Operation::of("Whether the board works", health()),
        ("GET", "/v1/ready") => Operation::of("Whether the board works and has read the runs of its store", health()),
        ("GET", "/v1/openapi.json") => Operation::of("This description", json!({ "type": "object" })),
        ("GET", "/v1/agents") => {
            let refusals = json!({ "type": "object", "additionalProperties": text() });
            let agents = json!({
                "agents": list(json!({ "type": "object" })), "refused_files": list(text()), "refusals": refusals,
            });
            let agents = object(&agents, &["agents", "refused_files", "refusals"]);
            Operation::of("The agents and what they announce", agents)
        }
        ("POST", "/v1/agents/{name}/restart") => {
            Operation::of("Makes the value of an agent again", json!({ "type": "object" }))
                .body(body(&json!({ "reason": text() }), &[]))
        }
        ("POST", "/v1/agents/{name}/stop") => {
            Operation::of("Stops an agent", json!({ "type": "object" })).body(body(&json!({ "reason": text() }), &[]))
        }
        ("GET", "/v1/agents/{name}/inbox") => {
            let messages = object(
                &json!({ "agent": text(), "messages": list(json!({ "type": "object" })) }),
                &["agent", "messages"],
            );
            Operation::of("The newest messages of an agent's inbox", messages)
        }
        ("GET", "/v1/tree") => Operation::of("The supervisors and actors", json!({ "type": "object" })),
        ("GET", "/v1/agents/{name}/events") => Operation::of("The events of the turns of an agent", Value::Null)
            .query(&[("modes", false)])
            .endless_events(),
        ("GET", "/v1/tree/events") => {
            Operation::of("What happens in the tree, and the events of all runs", Value::Null)
                .query(&[("modes", false)])
                .endless_events()
        }
        ("GET", "/v1/workflows") => {
            let workflow =
                object(&json!({ "name": text(), "version": { "type": ["integer", "null"] } }), &["name", "version"]);
            Operation::of("The saved workflows", object(&json!({ "workflows": list(workflow) }), &["workflows"]))
        }
        ("PUT", "/v1/workflows/{name}") => {
            let saved = object(&json!({ "name": text(), "version": number() }), &["name", "version"]);
            let definitions = json!({ "oneOf": [
                body(&json!({ "toml": text() }), &["toml"]),
                body(&json!({ "line": text() }), &["line"]),
            ]});
            Operation::of("Saves the next version of a workflow", saved).body(definitions).changing()
        }
        ("GET", "/v1/workflows/{name}/versions") => {
            let versions = object(&json!({ "name": text(), "versions": list(number()) }), &["name", "versions"]);
            Operation::of("The versions of a workflow", versions)
        }
        ("GET", "/v1/workflows/{name}/drawing") => {
            let drawn = json!({ "name": text(), "version": number(), "mermaid": text(), "svg": text() });
            let drawn = object(&drawn, &["name", "version", "mermaid", "svg"]);
            Operation::of("A workflow, drawn", drawn).query(&[("version", false)])
        }
        ("GET", "/v1/context/{namespace}") => {
            let entries = json!({ "entries": list(schema("Entry")), "has_more": { "type": "boolean" } });
            Operation::of(
                "The entries of a namespace, without their values",
                object(&entries, &["entries", "has_more"]),
            )
            .query(&[("prefix", false)])
        }
        ("GET", "/v1/context/{namespace}/{key}") => Operation::of("An entry of the shared context", schema("Entry")),
        ("PUT", "/v1/context/{namespace}/{key}") => {
            let entry = json!({ "value": text(), "ttl_secs": { "type": "integer", "minimum": 0 } });
            Operation::of("Writes an entry", schema("Entry")).body(body(&entry, &["value"])).changing()
        }
        ("DELETE", "/v1/context/{namespace}/{key}") => {
            Operation { status: 204, ..Operation::of("Deletes an entry", Value::Null) }.changing()
        }
        ("GET", "/v1/delegations" | "/v1/runs") => {
            let page = page("delegations", schema("Brief"));
            Operation::of("A page of delegations, newest first", page).query(&[
                ("limit", false),
                ("page", false),
                ("agent", false),
                ("state", false),
                ("workflow", false),
                ("text", false),
                ("since", false),
            ])
        }
        ("GET", "/v1/runs/{id}/history") => {
            let events =
                json!({ "events": list(json!({ "type": "object" })), "next": { "type": ["integer", "null"] } });
            Operation::of("A page of what has happened in a run", object(&events, &["events", "next"]))
                .query(&[("from", false)])
        }
        ("GET", "/v1/runs/{id}/tree") => {
            Operation::of("A run with its delegations and the runs below it", schema("Brief"))
        }
        ("POST", "/v1/runs/{id}/resume") => {
            let resumed = object(&json!({ "request_id": text(), "by": text() }), &["request_id", "by"]);
            Operation::of("Has a run continue that ended because of concurrent writes", resumed)
                .body(body(&json!({ "values": { "type": "object" } }), &["values"]))
        }
        ("GET", "/v1/usage") => {
            let page = page("usage", schema("Usage"));
            Operation::of("What delegations have used, by day, agent, model and token", page)
                .query(&[("page", false), ("since", false)])
        }
        ("GET", "/v1/metrics") => {
            Operation { answer: Answer::Text, ..Operation::of("Figures for Prometheus", Value::Null) }
        }
        ("GET", "/v1/dead-letters") => {
            let page = page("dead_letters", schema("DeadLetter"));
            Operation::of("A page of turns that failed for good", page).query(&[("page", false)])
        }
        ("POST", "/v1/delegations") => {
            let task = json!({
                "to": text(), "workflow": text(), "body": text(), "input": any(), "limits": limits(),
                "deadline_ms": { "type": "integer", "minimum": 0 }, "reference": text(), "is_untrusted": { "type": "boolean" },
            });
            Operation::of("Delegates a task", schema("Delegation")).body(body(&task, &["body"])).accepted()
        }
        ("GET", "/v1/delegations/{id}" | "/v1/runs/{id}") => Operation::of("A delegation", schema("Delegation")),
        ("PATCH", "/v1/delegations/{id}") => {
            let change = json!({ "reference": { "type": ["string", "null"] } });
            Operation::of("Changes what a delegation refers to", schema("Delegation"))
                .body(body(&change, &["reference"]))
        }
        ("POST", "/v1/delegations/{id}/cancel") => {
            Operation::of("Cancels a delegation", schema("Delegation")).body(body(&json!({ "reason": text() }), &[]))
        }
        ("POST", "/v1/delegations/{id}/retry") => {
            Operation::of("Tries a turn that failed for good again", schema("Delegation"))
                .body(body(&json!({ "turn": number(), "limits": limits(), "reason": text() }), &[]))
                .accepted()
        }
        ("POST", "/v1/delegations/{id}/fork") => {
            let set = json!({ "type": "object" });
            let fork = json!({ "turn": number(), "input": any(), "set": set, "limits": limits(), "reason": text() });
            Operation::of("Continues a delegation from a turn", schema("Delegation"))
                .body(body(&fork, &["turn"]))
                .accepted()
        }
        ("GET", "/v1/delegations/{id}/events" | "/v1/runs/{id}/events") => {
            Operation::of("The events of a delegation", Value::Null).query(&[("modes", false)]).events()
        }
        ("GET", "/delegation-status") => Operation::of("A delegation", schema("Delegation")).query(&[("id", true)]),
        ("GET", "/delegation-stream") => {
            Operation::of("The events of a delegation", Value::Null).query(&[("id", true), ("modes", false)]).events()
        }
        ("GET", "/v1/schedules") => {
            Operation::of("The schedules", object(&json!({ "schedules": list(schema("Schedule")) }), &["schedules"]))
        }
        ("POST", "/v1/schedules") => {
            let definition = json!({
                "name": text(), "cron": text(), "time_zone": text(), "at": text(),
                "every_ms": { "type": "integer", "minimum": 0 }, "webhook": { "enum": ["standard", "github"] },
                "secret": text(), "task": { "type": "object" },
                "overlap": { "enum": ["skip", "queue", "replace"] }, "missed": { "enum": ["run_once", "run_all", "skip"] },
                "max_missed": number(),
            });
            let created = Operation::of("Creates a schedule", schema("Schedule"));
            Operation { status: 201, ..created.body(body(&definition, &["name", "task"])) }
        }
        ("POST", "/v1/webhooks/{name}") => {
            let started = json!({ "request_id": { "type": ["string", "null"] }, "status": { "const": "ack" } });
            Operation::of("Delivers to a webhook, with a signature", object(&started, &["request_id", "status"]))
                .body(any())
                .accepted()
        }
        ("POST", "/v1/channels/webhooks/{name}") => {
            let decision = json!({
                "approval": text(), "nonce": text(), "response": { "enum": ["approve", "deny"] }, "reason": text(), "person": text(),
            });
            let decided = json!({
                "approval": text(), "by": text(), "decided": { "type": "boolean" }, "outcome": text(),
            });
            Operation::of(
                "Decides about an approval, with a signature",
                object(&decided, &["approval", "by", "decided", "outcome"]),
            )
            .body(body(&decision, &["approval", "nonce", "response", "person"]))
        }
        ("GET", "/v1/schedules/{name}") => Operation::of("A schedule", schema("Schedule")),
        ("DELETE", "/v1/schedules/{name}") => {
            Operation { status: 204, ..Operation::of("Deletes a schedule", Value::Null) }
        }
        ("POST", "/v1/schedules/{name}/pause") => {
            Operation::of("Pauses a schedule", schema("Schedule")).body(body(&json!({}), &[]))
        }
        ("POST", "/v1/schedules/{name}/resume") => {
            Operation::of("Resumes a schedule", schema("Schedule")).body(body(&json!({}), &[]))
        }
        ("POST", "/v1/schedules/{name}/run") => {
            Operation::of("Starts a run of a schedule now", schema("Delegation")).body(body(&json!({}), &[])).accepted()
        }
        ("GET", "/v1/inbox") => {
            let counts = json!({ "type": "object", "additionalProperties": { "type": "integer" } });
            let page = json!({
                "items": list(schema("InboxItem")), "counts": counts, "is_cut": { "type": "boolean" },
                "next": { "type": ["string", "null"] },
            });
            Operation::of("What needs a person", object(&page, &["items", "counts", "is_cut", "next"])).query(&[
                ("kind", false),
                ("agent", false),
                ("run", false),
                ("limit", false),
                ("page", false),
            ])
        }
        ("GET", "/v1/inbox/{id}") => Operation::of("One item of the inbox, whole", schema("InboxItem")),
        ("GET", "/v1/inbox/events") => {
            Operation::of("An event whenever the inbox has changed", Value::Null).endless_events()
        }
        ("POST", "/v1/inbox/decisions") => {
            let mut decision = object(&json!({ "id": text(), "response": text() }), &["id", "response"]);
            decision["additionalProperties"] = true.into();
            let mut decisions = list(decision);
            decisions["maxItems"] = 100.into();
            let result = object(&json!({ "id": text(), "by": text(), "problem": { "type": "object" } }), &["id"]);
            let results = object(&json!({ "results": list(result) }), &["results"]);
            Operation::of("Decides about items of the inbox", results)
                .body(body(&json!({ "decisions": decisions }), &["decisions"]))
        }
        ("GET", "/v1/pending") => {
            let pending = object(&json!({ "pending": list(schema("Pending")) }), &["pending"]);
            Operation::of("What waits for people", pending)
        }
        ("POST", "/v1/pending/{id}") => {
            let response = |kind: &str, more: &Value, required: &[&str]| {
                let mut properties = Map::from_iter([("response".to_owned(), json!({ "const": kind }))]);
                properties.extend(more.as_object().cloned().unwrap_or_default());
                body(&properties.into(), &[&["response"], required].concat())
            };
            let responses = json!({ "oneOf": [
                response("approve", &json!({ "for_run": { "type": "boolean" } }), &[]),
                response("edit", &json!({ "arguments": any() }), &["arguments"]),
                response("deny", &json!({ "reason": text() }), &[]),
                response("answer", &json!({ "value": any() }), &["value"]),
                response("resume", &json!({ "input": any() }), &[]),
                response("restart", &json!({}), &[]),
            ]});
            let answered = json!({
                "id": text(), "by": text(), "decided": { "type": "boolean" }, "missing": { "type": "integer" },
                "approved_by": list(json!({ "type": "object" })),
            });
            let answered = object(&answered, &["id", "by"]);
            Operation::of("Responds to what waits for people", answered).body(responses)
        }
        ("POST", "/v1/knowledge/{namespace}/query") => {
            let query = json!({
                "query": text(), "discovery_depth": { "enum": ["shallow", "deep"] },
                "limit": { "type": "integer", "minimum": 1, "maximum": 640 },
                "as_of": { "type": "string", "format": "date-time" }, "answer": { "type": "boolean" },
            });
            let found = object(
                &json!({
                    "results": list(json!({ "type": "object" })), "checkpoints": list(json!({ "type": "object" })),
                    "confidence": { "type": "number" }, "iterations": { "type": "integer" },
                    "escalated": { "type": "boolean" }, "answer": any(),
                }),
                &["results", "checkpoints", "confidence", "iterations", "escalated"],
            );
            Operation::of("What is known about a question", found).body(body(&query, &["query"]))
        }
        ("POST", "/v1/knowledge/{namespace}/facts") => {
            let statement = json!({
                "statement": text(), "subject": text(), "predicate": text(), "value": text(),
                "is_single": { "type": "boolean" }, "place": text(),
                "on_contradiction": { "enum": ["dispute", "refuse", "supersede"] },
            });
            let submitted = object(
                &json!({
                    "fact": schema("Fact"), "is_new": { "type": "boolean" },
                    "contradictions": list(json!({ "type": "object" })), "superseded": list(text()),
                    "similar": list(json!({ "type": "object" })), "lacks_parts": { "type": "boolean" },
                    "has_other_words": { "type": "boolean" }, "was_invalid": { "type": "object" },
                }),
                &["fact", "is_new", "contradictions", "superseded", "similar"],
            );
            Operation::of("Submits a fact", submitted).body(body(&statement, &["statement"]))
        }
        ("GET", "/v1/knowledge/{namespace}/facts/{fact}") => {
            let known = json!({ "fact": schema("Fact"), "history": list(json!({ "type": "object" })) });
            Operation::of("A fact with its history", object(&known, &["fact", "history"]))
        }
        ("POST", "/v1/knowledge/{namespace}/facts/{fact}/invalidate") => {
            let change = json!({ "kind": { "enum": ["invalidate", "accept"] }, "reason": text(), "apply": text() });
            let shown = json!({
                "kind": { "enum": ["invalidate", "accept"] }, "facts": list(json!({ "type": "object" })),
                "deleted_edges": list(json!({ "type": "object" })), "hash": text(),
            });
            let shown = object(&shown, &["facts", "deleted_edges"]);
            Operation::of("Shows or applies a change of a fact", shown).body(body(&change, &[]))
        }
        ("GET", "/mcp") => {
            Operation::of("The notifications of a session of the Model Context Protocol", Value::Null).endless_events()
        }
        ("POST", "/mcp") => Operation::of("A message of the Model Context Protocol", json!({ "type": "object" }))
            .body(json!({ "type": "object" })),
        ("DELETE", "/mcp") => Operation::of("Ends a session of the Model Context Protocol", Value::Null),
        _ => return None,
    })
}

fn schemas() -> Value {
    let text = json!({ "type": "string" });
    let or_null = json!({ "type": ["string", "null"] });
    let codes: Vec<&str> = ProblemCode::ALL.iter().map(|code| code.as_str()).collect();
    let brief = json!({
        "request_id": { "type": "string", "format": "uuid" },
        "trace_id": { "type": "string", "format": "uuid" },
        "from_agent": { "type": ["string", "null"] },
        "reference": { "type": ["string", "null"] },
        "to_agent": text, "workflow": or_null, "body": text,
        "submitted_at": { "type": "string", "format": "date-time" },
        "status": { "enum": ["ack", "complete", "fail"] },
        "state": text,
        "metrics": { "type": "object" },
    });
    let mut delegation = brief.clone();
    delegation["is_stale"] = json!({ "type": "boolean" });
    delegation["pending"] = list(schema("Pending"));
    delegation["result"] = json!({ "type": ["object", "null"] });
    json!({
        "Brief": object(&brief, &["request_id", "status"]),
        "Delegation": object(&delegation, &["request_id", "status"]),
        "DeadLetter": object(&json!({
            "request_id": text, "turn": { "type": "integer" }, "agent": text, "input": {}, "attempts": { "type": "integer" },
            "failure": { "type": "object" }, "at": { "type": "string", "format": "date-time" }, "retried_as": or_null,
        }), &["request_id", "turn"]),
        "Entry": object(&json!({
            "namespace": text, "key": text, "agent": text, "created_at": { "type": "string", "format": "date-time" },
            "updated_at": { "type": "string", "format": "date-time" }, "expires_at": or_null, "revision": { "type": "integer" },
            "is_untrusted": { "type": "boolean" }, "value": text,
        }), &["namespace", "key", "agent", "revision", "is_untrusted"]),
        "Fact": object(&json!({
            "id": text, "namespace": text, "statement": text, "subject": text, "predicate": text, "value": text,
            "sources": list(json!({ "type": "object" })), "state": { "enum": ["current", "disputed", "invalid"] },
            "valid_from": { "type": "string", "format": "date-time" }, "revision": { "type": "integer" },
        }), &["id", "namespace", "statement", "sources", "state", "valid_from", "revision"]),
        "Usage": object(&json!({
            "day": { "type": "string", "format": "date" }, "agent": text, "model": or_null, "from_agent": or_null, "delegations": { "type": "integer" },
            "input_tokens": { "type": "integer" }, "output_tokens": { "type": "integer" }, "cost_nanodollars": { "type": "integer" },
        }), &["day", "agent", "model", "from_agent", "delegations", "input_tokens", "output_tokens", "cost_nanodollars"]),
        "Schedule": object(&json!({
            "name": text, "state": { "enum": ["active", "paused", "stopped", "ended"] }, "reason": or_null, "cron": text,
            "time_zone": text, "at": { "type": "string", "format": "date-time" }, "every_ms": { "type": "integer" },
            "webhook": { "enum": ["standard", "github"] }, "secret": text,
            "overlap": { "enum": ["skip", "queue", "replace"] }, "missed": { "enum": ["run_once", "run_all", "skip"] },
            "max_missed": { "type": ["integer", "null"] }, "owner": text,
            "created_at": { "type": "string", "format": "date-time" }, "next_at": or_null, "waiting": { "type": "integer" },
            "started": { "type": "integer" }, "skipped": { "type": "integer" }, "last": { "type": ["object", "null"] },
            "task": { "type": "object" },
        }), &["name", "state", "reason", "owner", "next_at", "waiting", "started", "skipped", "last"]),
        "InboxItem": object(&json!({
            "id": text, "kind": { "enum": ItemKind::ALL.map(ItemKind::name) }, "request_id": or_null, "agent": or_null,
            "what": text, "left_out": { "type": "integer" }, "task": or_null, "from_agent": or_null, "since": or_null,
            "expires_at": or_null, "otherwise": text,
            "actions": list(object(&json!({ "response": text, "command": text }), &["response", "command"])),
            "pending": { "type": "object" }, "card": or_null,
        }), &["id", "kind", "what", "otherwise", "actions"]),
        "Pending": object(&json!({
            "id": text, "kind": { "enum": ["approval", "question", "node", "attention"] }, "request_id": text,
            "expires_at": or_null, "missing": { "type": "integer" }, "approved_by": list(json!({ "type": "object" })),
        }), &["id", "kind", "request_id", "expires_at"]),
        "Problem": object(&json!({
            "type": text, "title": text, "status": { "type": "integer" }, "code": { "enum": codes }, "detail": text,
            "reason": text, "contradictions": list(json!({ "type": "object" })),
        }), &["type", "title", "status", "code", "detail"]),
    })
}

/// The routes that clients have over the network.
fn of_clients() -> impl Iterator<Item = Route> {
    Server::routes().filter(|route| route.access != Access::Private)
}

/// The description. A route without one is left out.
pub(crate) fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in of_clients() {
        let Some(operation) = operation(&route) else { continue };
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = described(&route, operation);
    }
    let scopes: Vec<String> = Scope::ALL.iter().map(Scope::to_string).collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "callboard",
            "version": "1",
            "summary": "Delegations to the agents of a board, their events, and what waits for people",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": { "token": {
                "type": "http",
                "scheme": "bearer",
                "description": format!("A token with the scope in `x-scope` of the operation: {}", scopes.join(", ")),
            }},
            "responses": { "Problem": {
                "description": "Why the request was not carried out",
                "content": { "application/problem+json": { "schema": schema("Problem") } },
            }},
        },
    })
}

fn described(route: &Route, operation: Operation) -> Value {
    let Operation { summary, query, body, status, is_conditional, answer } = operation;
    let parameter = |name: &str, place: &str, required: bool| json!({ "name": name, "in": place, "required": required, "schema": { "type": "string" } });
    let in_path = route.path.split(['{', '}']).skip(1).step_by(2).map(|name| parameter(name, "path", true));
    let in_query = query.iter().map(|(name, required)| parameter(name, "query", *required));
    let conditions: &[&str] = if is_conditional { &["If-Match", "If-None-Match"] } else { &[] };
    let in_headers = conditions.iter().map(|name| parameter(name, "header", false));
    let may_be_over = matches!(answer, Answer::Events { is_of_one: true });
    let content = match answer {
        Answer::Json(schema) => json!({ "application/json": { "schema": schema } }),
        Answer::Text => json!({ "text/plain": { "schema": { "type": "string" } } }),
        Answer::Events { .. } => json!({ "text/event-stream": { "schema": { "type": "string" } } }),
    };
    let mut answered = json!({ "description": summary });
    if status != 204 {
        answered["content"] = content;
    }
    let mut described = json!({
        "operationId": operation_id(route),
        "summary": summary,
        "parameters": in_path.chain(in_query).chain(in_headers).collect::<Vec<_>>(),
        "responses": {
            status.to_string(): answered,
            "default": { "$ref": "#/components/responses/Problem" },
        },
    });
    if may_be_over {
        described["responses"]["204"] =
            json!({ "description": "The delegation has ended, and nothing is left to send" });
    }
    if let Some(body) = body {
        described["requestBody"] = json!({ "content": { "application/json": { "schema": body } } });
    }
    match route.access {
        Access::Open | Access::Signature | Access::Private => described["security"] = json!([]),
        Access::Scope(scope) => described["x-scope"] = scope.to_string().into(),
    }
    described
}

/// `get_v1_delegations_id` of `GET /v1/delegations/{id}`.
fn operation_id(route: &Route) -> String {
    let words = route.path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.fold(route.method.to_ascii_lowercase(), |id, word| format!("{id}_{word}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn every_route_is_described() {
        for route in of_clients() {
            assert!(operation(&route).is_some(), "src/openapi.rs does not describe {} {}", route.method, route.path);
        }
    }

    /// With `UPDATE_OPENAPI=1` the file is written.
    #[test]
    fn the_committed_description_is_that_of_the_routes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        let described = format!("{:#}\n", document());
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(path, &described).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(committed == described, "docs/openapi.json is not that of the routes; write it with UPDATE_OPENAPI=1");
    }
}
