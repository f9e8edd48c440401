//! The base of facts over HTTP and MCP: who may do what, in whose name, and where.

use std::path::Path;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use callboard::env::Env;
use callboard::prelude::*;
use callboard::runtime::{AgentError, Builder};
use callboard_knowledge::KnowledgeBase;
use callboard_knowledge::facts::{FactId, FactState};
use callboard_knowledge::intents::{IntentLoopConfig, LOOP_AGENT, PASS_AGENT, PROVIDER_AGENT, agents};
use callboard_knowledge::search::MAX_LIMIT;
use callboard_server::{Scope, Server, TokenSpec, Tokens};
use serde_json::{Value, json};

use crate::hostile_queries;
use crate::mcp::messages::{ACCEPT, message};
use crate::support::local::Local;

/// A server over a board with the agents of a base.
struct Known {
    base: KnowledgeBase,
    board: Callboard,
    tokens: Tokens,
    router: Router,
    _folder: tempfile::TempDir,
}

const QUERY: &str = "/v1/knowledge/default/query";
const FACTS: &str = "/v1/knowledge/default/facts";

fn base_in(folder: &Path) -> KnowledgeBase {
    KnowledgeBase::create(&folder.join("facts.db"), &Env::system()).unwrap()
}

impl Known {
    async fn start() -> Self {
        Self::with(|server| server).await
    }

    async fn with(change: impl FnOnce(Server) -> Server) -> Self {
        Self::with_model(None, change).await
    }

    /// With the agent `model`, which answers queries.
    async fn with_model(model: Option<AgentSpec>, change: impl FnOnce(Server) -> Server) -> Self {
        let config =
            IntentLoopConfig { provider: model.as_ref().map(|_| "model".to_owned()), ..IntentLoopConfig::default() };
        let folder = tempfile::tempdir().unwrap();
        let base = base_in(folder.path());
        let echo = |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) };
        let builder =
            agents(&base).into_iter().chain(model).fold(Callboard::builder().agent("echo", echo), Builder::with);
        let board = builder.start().await.unwrap();
        let tokens = Tokens::new(Env::system());
        let server = Server::new(board.clone(), tokens.clone()).knowledge(&base, config);
        let router = change(server).router();
        Self { base, board, tokens, router, _folder: folder }
    }

    /// A client with a new token, which was granted the namespace `default`.
    fn client(&self, name: &str, scopes: impl IntoIterator<Item = Scope>) -> Local {
        self.of(TokenSpec::new(name, scopes).namespaces(["default"]))
    }

    fn of(&self, spec: TokenSpec) -> Local {
        Local { router: self.router.clone(), secret: self.tokens.add(spec).unwrap() }
    }

    async fn state(&self, fact: &str) -> FactState {
        self.base.fact(fact.parse::<FactId>().unwrap()).await.unwrap().state
    }
}

async fn submit(client: &Local, body: Value) -> Value {
    let (status, submitted) = client.post(FACTS, &[], &body).await;
    assert_eq!(status, 200, "{submitted}");
    submitted
}

fn id_of(submitted: &Value) -> &str {
    submitted["fact"]["id"].as_str().unwrap()
}

fn change_of(fact: &str) -> String {
    format!("{FACTS}/{fact}/invalidate")
}

fn is_refused((status, problem): (u16, Value), expected: u16, code: &str) {
    assert_eq!((status, &problem["code"]), (expected, &json!(code)), "{problem}");
}

#[tokio::test]
async fn a_fact_is_submitted_found_read_and_invalidated_as_it_was_shown() {
    let known = Known::start().await;
    let admin = known.client("root", Scope::ALL);
    let submitted = submit(&admin, json!({ "statement": "The gate opens at nine.", "place": "notices.md:3" })).await;
    assert_eq!((&submitted["is_new"], &submitted["fact"]["state"]), (&json!(true), &json!("current")), "{submitted}");
    let fact = id_of(&submitted).to_owned();
    let (status, found) = admin.post(QUERY, &[], &json!({ "query": "gate", "limit": 3 })).await;
    assert_eq!((status, &found["results"][0]["cite"]), (200, &json!(fact)), "{found}");
    assert!(found["confidence"].is_number() && found["checkpoints"].is_array() && found["answer"].is_null(), "{found}");
    assert!(found["iterations"].is_number() && found["escalated"].is_boolean(), "{found}");

    let (status, shown) = admin.post(&change_of(&fact), &[], &json!({ "reason": "it opens at ten" })).await;
    assert_eq!((status, &shown["facts"][0]["to"]), (200, &json!("invalid")), "{shown}");
    assert_eq!(known.state(&fact).await, FactState::Current, "a preview changes nothing");
    let apply = json!({ "reason": "it opens at ten", "apply": "0" });
    let refused = admin.post(&change_of(&fact), &[], &apply).await;
    assert_eq!(refused.1["reason"], "changed", "{}", refused.1);
    is_refused(refused, 409, "conflict");
    let apply = json!({ "reason": "it opens at ten", "apply": shown["hash"] });
    let (status, applied) = admin.post(&change_of(&fact), &[], &apply).await;
    assert_eq!((status, &applied["facts"][0]["state"]), (200, &json!("invalid")), "{applied}");
    is_refused(admin.post(&change_of(&fact), &[], &json!({})).await, 409, "conflict");

    let (status, read) = admin.get(&format!("{FACTS}/{fact}")).await;
    assert_eq!((status, &read["fact"]["id"]), (200, &json!(fact)), "{read}");
    let changes: Vec<&str> =
        read["history"].as_array().unwrap().iter().map(|it| it["change"].as_str().unwrap()).collect();
    assert_eq!(changes, ["submitted", "invalidated"]);
    assert_eq!((&read["history"][1]["by"], &read["history"][1]["reason"]), (&json!("root"), &json!("it opens at ten")));
    known.board.shutdown().await;
}

#[tokio::test]
async fn a_model_answers_from_what_is_found_unless_no_answer_is_asked_for() {
    let model = AgentSpec::new("model", |turn: Turn| async move {
        let asked = turn.input_json().value();
        let claims: Vec<Value> = match asked["task"].as_str() {
            Some(task) if task.starts_with("Answer") => {
                vec![json!({ "text": "It opens at nine.", "cites": [asked["results"][0]["cite"]] })]
            }
            _ => return Ok(Command::output(json!({}))),
        };
        Ok(Command::output(json!({ "claims": claims })))
    });
    let known = Known::with_model(Some(model), |server| server).await;
    let admin = known.client("root", Scope::ALL);
    let fact = id_of(&submit(&admin, json!({ "statement": "The gate opens at nine." })).await).to_owned();
    let answer = json!({ "known": { "claims": [{ "text": "It opens at nine.", "cites": [fact] }] } });
    for asked in [None, Some(true), Some(false)] {
        let mut query = json!({ "query": "gate" });
        if let Some(asked) = asked {
            query["answer"] = asked.into();
        }
        let expected = if asked == Some(false) { &Value::Null } else { &answer };
        let (status, found) = admin.post(QUERY, &[], &query).await;
        assert_eq!((status, &found["answer"]), (200, expected), "{found}");
        let called = call(&admin, "query_truth", query).await;
        assert_eq!(called["result"]["structuredContent"]["answer"], *expected, "{called}");
    }
    // The model is asked in the run of the query.
    for run in known.board.runs().await.unwrap() {
        assert_eq!(run.read().await.unwrap().submission().agent.as_str(), LOOP_AGENT);
    }
    known.board.shutdown().await;

    let known = Known::start().await;
    let reader = known.client("reader", [Scope::KnowledgeRead]);
    let refused = reader.post(QUERY, &[], &json!({ "query": "gate", "answer": true })).await;
    assert_eq!(refused.1["reason"], "no_model", "{}", refused.1);
    is_refused(refused, 422, "refused");
    known.board.shutdown().await;
}

#[tokio::test]
async fn each_route_needs_its_scope() {
    let known = Known::start().await;
    let root = known.client("root", Scope::ALL);
    let fact = id_of(&submit(&root, json!({ "statement": "The gate opens at nine." })).await).to_owned();
    for scope in Scope::ALL {
        let client = known.client(&format!("only {scope}").replace(':', "-"), [scope]);
        let query = client.post(QUERY, &[], &json!({ "query": "gate" })).await;
        let read = client.get(&format!("{FACTS}/{fact}")).await;
        for answer in [query, read] {
            if scope == Scope::KnowledgeRead {
                assert_eq!(answer.0, 200)
            } else {
                is_refused(answer, 403, "missing-scope")
            }
        }
        let submitted = client.post(FACTS, &[], &json!({ "statement": "The wall is high." })).await;
        let preview = client.post(&change_of(&fact), &[], &json!({})).await;
        for answer in [submitted, preview] {
            if scope == Scope::KnowledgeWrite {
                assert_eq!(answer.0, 200)
            } else {
                is_refused(answer, 403, "missing-scope")
            }
        }
    }
    known.board.shutdown().await;
}

#[tokio::test]
async fn a_token_reaches_the_facts_of_its_namespaces_alone() {
    let known = Known::start().await;
    let root = known.client("root", Scope::ALL);
    let fact = id_of(&submit(&root, json!({ "statement": "The gate opens at nine." })).await).to_owned();
    let other = known.of(TokenSpec::new("other", Scope::ALL).namespaces(["others"]));
    is_refused(other.post(QUERY, &[], &json!({ "query": "gate" })).await, 403, "not-granted");
    is_refused(other.post(FACTS, &[], &json!({ "statement": "x is y" })).await, 403, "not-granted");
    is_refused(other.get(&format!("{FACTS}/{fact}")).await, 403, "not-granted");
    is_refused(other.post(&change_of(&fact), &[], &json!({})).await, 403, "not-granted");
    // Its own namespace has none of that.
    let (_, found) = other.post("/v1/knowledge/others/query", &[], &json!({ "query": "gate" })).await;
    assert_eq!(found["results"], json!([]), "{found}");
    is_refused(other.get(&format!("/v1/knowledge/others/facts/{fact}")).await, 404, "not-found");
    let change = format!("/v1/knowledge/others/facts/{fact}/invalidate");
    is_refused(other.post(&change, &[], &json!({})).await, 404, "not-found");
    known.board.shutdown().await;
}

#[tokio::test]
async fn the_agents_of_the_base_take_no_task_that_was_not_checked() {
    let known = Known::start().await;
    let root = known.of(TokenSpec::new("root", Scope::ALL));
    let envelope = json!({ "envelope": {
        "intent": "query_truth", "payload": { "query": "gate" }, "principal": "ann", "namespace": "default",
    } });
    for agent in [LOOP_AGENT, PASS_AGENT, PROVIDER_AGENT] {
        let task = json!({ "to": agent, "body": "x", "input": envelope });
        is_refused(root.post("/v1/delegations", &[], &task).await, 422, "refused");
    }
    let (status, _, _) =
        root.change("PUT", "/v1/workflows/asks", &[], &json!({ "line": "workflow asks: knowledge" })).await;
    assert_eq!(status, 200);
    let task = json!({ "workflow": "asks", "body": "x", "input": envelope });
    is_refused(root.post("/v1/delegations", &[], &task).await, 422, "refused");

    let reader = known.client("reader", [Scope::KnowledgeRead]);
    assert_eq!(reader.post(QUERY, &[], &json!({ "query": "gate" })).await.0, 200);
    let run = known.board.runs().await.unwrap()[0].id();
    let fork = root.post(&format!("/v1/delegations/{run}/fork"), &[], &json!({ "turn": 1, "input": envelope })).await;
    is_refused(fork, 422, "refused");
    is_refused(root.post(&format!("/v1/delegations/{run}/fork"), &[], &json!({ "turn": 1 })).await, 422, "refused");
    is_refused(root.post(&format!("/v1/delegations/{run}/retry"), &[], &json!({})).await, 422, "refused");
    assert_eq!(known.board.runs().await.unwrap().len(), 1);
    known.board.shutdown().await;
}

#[tokio::test]
async fn who_submits_is_the_token_and_nobody_that_the_body_names() {
    let known = Known::start().await;
    let client = known.client("ci", [Scope::KnowledgeWrite]);
    for forged in ["principal", "by", "from_agent", "is_untrusted", "namespace"] {
        let mut body = json!({ "statement": "The wall is high." });
        body[forged] = json!("root");
        is_refused(client.post(FACTS, &[], &body).await, 400, "bad-request");
    }
    let submitted = submit(&client, json!({ "statement": "The wall is high." })).await;
    assert_eq!(submitted["fact"]["sources"][0]["by"], "ci", "{submitted}");
    assert_eq!(submitted["fact"]["sources"][0]["is_untrusted"], true, "{submitted}");
    known.board.shutdown().await;
}

#[tokio::test]
async fn what_a_token_submits_is_disputed_unless_it_is_an_administrators() {
    let known = Known::start().await;
    for (name, scopes, expected) in [
        ("ci", vec![Scope::KnowledgeWrite], "disputed"),
        ("ann", vec![Scope::KnowledgeWrite, Scope::Approve], "disputed"),
        ("root", vec![Scope::KnowledgeWrite, Scope::Admin], "current"),
    ] {
        let client = known.client(name, scopes);
        let submitted = submit(&client, json!({ "statement": format!("The wall of {name} is high.") })).await;
        assert_eq!(submitted["fact"]["state"], expected, "{name}: {submitted}");
    }
    known.board.shutdown().await;
}

#[tokio::test]
async fn a_contradiction_is_reported_and_refused_where_that_was_asked_for() {
    let known = Known::start().await;
    let root = known.client("root", Scope::ALL);
    let colour = |value: &str, then: &str| {
        json!({
            "statement": format!("The gate is {value}."), "subject": "gate", "predicate": "colour", "value": value,
            "is_single": true, "on_contradiction": then,
        })
    };
    let green = submit(&root, colour("green", "dispute")).await;
    let (status, refused) = root.post(FACTS, &[], &colour("red", "refuse")).await;
    assert_eq!(
        (status, &refused["code"], &refused["reason"]),
        (409, &json!("conflict"), &json!("contradicts")),
        "{refused}"
    );
    assert_eq!(refused["contradictions"][0]["fact"], green["fact"]["id"], "{refused}");
    let red = submit(&root, colour("red", "dispute")).await;
    assert_eq!(red["fact"]["state"], "disputed", "{red}");
    assert_eq!(red["contradictions"][0]["fact"], green["fact"]["id"], "{red}");
    let (status, refused) = root.post(FACTS, &[], &json!({ "statement": " . " })).await;
    assert_eq!(
        (status, &refused["code"], &refused["reason"]),
        (422, &json!("refused"), &json!("bad_statement")),
        "{refused}"
    );
    for fact in ["none", "fact-00000000000000000000000000000000"] {
        is_refused(root.get(&format!("{FACTS}/{fact}")).await, 404, "not-found");
        is_refused(root.post(&change_of(fact), &[], &json!({})).await, 404, "not-found");
    }
    known.board.shutdown().await;
}

#[tokio::test]
async fn a_disputed_fact_is_accepted_with_the_scope_to_decide_alone() {
    let known = Known::start().await;
    let ci = known.client("ci", [Scope::KnowledgeWrite]);
    let fact = id_of(&submit(&ci, json!({ "statement": "The wall is high." })).await).to_owned();
    let accept = json!({ "kind": "accept" });
    is_refused(ci.post(&change_of(&fact), &[], &accept).await, 403, "missing-scope");
    let admin = known.client("admin", [Scope::KnowledgeWrite, Scope::Admin]);
    is_refused(admin.post(&change_of(&fact), &[], &accept).await, 403, "missing-scope");
    let ann = known.client("ann", [Scope::KnowledgeWrite, Scope::Approve]);
    let (status, shown) = ann.post(&change_of(&fact), &[], &accept).await;
    assert_eq!((status, &shown["facts"][0]["to"]), (200, &json!("current")), "{shown}");
    let apply = json!({ "kind": "accept", "apply": shown["hash"] });
    for other in [&ci, &admin] {
        is_refused(other.post(&change_of(&fact), &[], &apply).await, 403, "missing-scope");
    }
    assert_eq!(known.state(&fact).await, FactState::Disputed);
    assert_eq!(ann.post(&change_of(&fact), &[], &apply).await.0, 200);
    assert_eq!(known.state(&fact).await, FactState::Current);

    // An agent's token sees what a change would do, and does not make it.
    let (_, shown) = ci.post(&change_of(&fact), &[], &json!({})).await;
    let apply = json!({ "apply": shown["hash"] });
    is_refused(ci.post(&change_of(&fact), &[], &apply).await, 403, "missing-scope");
    assert_eq!(known.state(&fact).await, FactState::Current);
    assert_eq!(admin.post(&change_of(&fact), &[], &apply).await.0, 200);
    assert_eq!(known.state(&fact).await, FactState::Invalid);
    known.board.shutdown().await;
}

#[tokio::test]
async fn where_decisions_are_refused_no_fact_is_accepted() {
    let known = Known::with(|server| server.refuse_decisions(|| Some("programs could send them".to_owned()))).await;
    let ann = known.client("ann", [Scope::KnowledgeWrite, Scope::Approve]);
    let fact = id_of(&submit(&ann, json!({ "statement": "The wall is high." })).await).to_owned();
    let (_, shown) = ann.post(&change_of(&fact), &[], &json!({ "kind": "accept" })).await;
    let apply = json!({ "kind": "accept", "apply": shown["hash"] });
    is_refused(ann.post(&change_of(&fact), &[], &apply).await, 403, "decisions-refused");
    let (_, shown) = ann.post(&change_of(&fact), &[], &json!({})).await;
    is_refused(ann.post(&change_of(&fact), &[], &json!({ "apply": shown["hash"] })).await, 403, "decisions-refused");
    assert_eq!(known.state(&fact).await, FactState::Disputed);
    known.board.shutdown().await;
}

#[tokio::test]
async fn the_same_idempotency_key_is_the_same_submission() {
    let known = Known::start().await;
    let client = known.client("ci", [Scope::KnowledgeWrite]);
    let body = json!({ "statement": "The wall is high." });
    let key = [("Idempotency-Key", "k1")];
    let (_, first) = client.post(FACTS, &key, &body).await;
    let (status, again) = client.post(FACTS, &key, &body).await;
    assert_eq!((status, &again), (200, &first));
    assert_eq!(again["is_new"], true, "it was not submitted a second time");
    is_refused(
        client.post(FACTS, &key, &json!({ "statement": "The wall is low." })).await,
        422,
        "idempotency-key-reused",
    );
    assert_eq!(known.board.runs().await.unwrap().len(), 1);
    known.board.shutdown().await;
}

#[tokio::test]
async fn without_a_base_the_routes_say_how_to_make_one() {
    let echo = |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) };
    let board = Callboard::builder().agent("echo", echo).start().await.unwrap();
    let local = Local::of(&board, TokenSpec::new("root", Scope::ALL).namespaces(["default"]));
    for (path, body) in [(QUERY, json!({ "query": "gate" })), (FACTS, json!({ "statement": "x is y" }))] {
        let (status, problem) = local.post(path, &[], &body).await;
        assert_eq!((status, &problem["code"]), (404, &json!("not-found")), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains("callboard kb init PATH"), "{problem}");
    }
    is_refused(local.get(&format!("{FACTS}/none")).await, 404, "not-found");
    is_refused(local.post(&change_of("none"), &[], &json!({})).await, 404, "not-found");
    board.shutdown().await;
}

/// Sends a message of the Model Context Protocol, and returns the answer.
async fn ask(client: &Local, method: &str, params: &Value) -> Value {
    let message = message(method, params, &json!({}));
    let mut headers = vec![ACCEPT, ("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)];
    let name = params["name"].as_str().unwrap_or_default();
    if !name.is_empty() {
        headers.push(("Mcp-Name", name));
    }
    let request: Request<Body> = client.request("POST", "/mcp", &headers, &message.to_string());
    let text = crate::support::local::text_of(client.send(request).await).await;
    let data = text.lines().find_map(|line| line.strip_prefix("data: ").filter(|data| data.starts_with('{')));
    serde_json::from_str(data.unwrap_or(&text)).unwrap_or_else(|error| panic!("{error}: {text}"))
}

async fn call(client: &Local, tool: &str, arguments: Value) -> Value {
    ask(client, "tools/call", &json!({ "name": tool, "arguments": arguments })).await
}

async fn names(client: &Local) -> Vec<String> {
    let listed = ask(client, "tools/list", &json!({})).await;
    let tools = listed["result"]["tools"].as_array().unwrap().clone();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_server_gets_a_base_while_it_serves_and_reserves_the_names_of_its_agents() {
    let folder = tempfile::tempdir().unwrap();
    let base = base_in(folder.path());
    let echo = |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) };
    let board = Callboard::builder().agent(PASS_AGENT, echo).start().await.unwrap();
    let tokens = Tokens::new(Env::system());
    let server = Server::new(board.clone(), tokens.clone());
    let secret = tokens.add(TokenSpec::new("root", Scope::ALL).namespaces(["default"])).unwrap();
    let root = Local { router: server.clone().router(), secret };
    let (query, task) = (json!({ "query": "gate" }), json!({ "to": PASS_AGENT, "body": "x" }));
    is_refused(root.post(QUERY, &[], &query).await, 404, "not-found");

    // Another agent has the name of one of the base's: then there is no base, and that agent takes tasks as before.
    let opened = server.open_knowledge(&base, IntentLoopConfig::default(), agents(&base)).await;
    assert!(matches!(opened, Err(AgentError::NameInUse { .. })), "{opened:?}");
    is_refused(root.post(QUERY, &[], &query).await, 404, "not-found");
    assert_eq!(board.agents().names().len(), 1);
    assert_eq!(root.post("/v1/delegations", &[], &task).await.0, 202);
    assert_eq!(names(&root).await, [format!("agent_{PASS_AGENT}"), "run_result".to_owned()]);

    board.agents().stop(PASS_AGENT).await.unwrap();
    server.open_knowledge(&base, IntentLoopConfig::default(), agents(&base)).await.unwrap();
    assert_eq!(root.post(QUERY, &[], &query).await.0, 200);
    is_refused(root.post("/v1/delegations", &[], &task).await, 422, "refused");
    assert_eq!(names(&root).await, ["invalidate_fact", "query_truth", "run_result", "submit_fact"]);
    // A second base is refused, and the first one is served.
    assert!(server.open_knowledge(&base, IntentLoopConfig::default(), agents(&base)).await.is_err());
    assert_eq!(root.post(QUERY, &[], &query).await.0, 200);
    board.shutdown().await;
}

#[tokio::test]
async fn facts_are_tools_for_clients_with_the_scopes() {
    let known = Known::start().await;
    let root = known.client("root", Scope::ALL);
    assert_eq!(names(&root).await, ["agent_echo", "invalidate_fact", "query_truth", "run_result", "submit_fact"]);
    let reader = known.client("reader", [Scope::Read, Scope::KnowledgeRead]);
    assert_eq!(names(&reader).await, ["query_truth"]);
    let refused = call(&reader, "submit_fact", json!({ "statement": "The wall is high." })).await;
    assert_eq!(refused["error"]["data"]["code"], "missing-scope", "{refused}");

    // Also of an administrator: what such a client sends is untrusted.
    let submitted = call(&root, "submit_fact", json!({ "statement": "The wall is high." })).await;
    let submitted = &submitted["result"]["structuredContent"];
    assert_eq!(
        (&submitted["fact"]["state"], &submitted["fact"]["sources"][0]["by"]),
        (&json!("disputed"), &json!("root"))
    );
    let fact = submitted["fact"]["id"].clone();
    let found = call(&reader, "query_truth", json!({ "query": "wall" })).await;
    assert_eq!(found["result"]["structuredContent"]["results"][0]["cite"], fact, "{found}");
    let other = call(&reader, "query_truth", json!({ "query": "wall", "namespace": "others" })).await;
    assert_eq!(other["result"]["structuredContent"]["code"], "not-granted", "{other}");

    let shown = call(&root, "invalidate_fact", json!({ "fact": fact })).await;
    let hash = shown["result"]["structuredContent"]["hash"].clone();
    assert!(hash.is_string(), "{shown}");
    let apply = json!({ "fact": fact, "apply": hash });
    let refused = call(&root, "invalidate_fact", apply.clone()).await;
    assert_eq!(refused["result"]["structuredContent"]["code"], "decisions-refused", "it is nobody's token: {refused}");
    let ann = TokenSpec::new("ann", [Scope::Read, Scope::Approve, Scope::KnowledgeWrite]);
    let ann = known.of(ann.owner("Ann").namespaces(["default"]));
    let accept = json!({ "fact": fact, "kind": "accept" });
    let refused = call(&ann, "invalidate_fact", accept).await;
    assert_eq!(refused["result"]["structuredContent"]["code"], "decisions-refused", "{refused}");
    assert_eq!(known.state(fact.as_str().unwrap()).await, FactState::Disputed);
    let applied = call(&ann, "invalidate_fact", apply).await;
    assert_eq!(applied["result"]["structuredContent"]["facts"][0]["state"], "invalid", "{applied}");
    known.board.shutdown().await;
}

#[tokio::test]
async fn a_query_for_no_result_or_for_too_many_is_refused_with_the_bound() {
    let known = Known::start().await;
    let reader = known.client("reader", [Scope::Read, Scope::KnowledgeRead]);
    for limit in [0, MAX_LIMIT + 1, usize::MAX] {
        let query = json!({ "query": "wall", "limit": limit });
        let (status, problem) = reader.post(QUERY, &[], &query).await;
        let called = call(&reader, "query_truth", query).await;
        let called = &called["result"]["structuredContent"];
        let expected = format!("`limit` is {limit}, and 1 to 640 results can be asked for");
        for problem in [&problem, called] {
            assert!(problem["detail"].as_str().unwrap().ends_with(&expected), "{problem}");
            assert_eq!((status, &problem["code"]), (400, &json!("bad-request")), "{problem}");
        }
    }
    let (status, answer) = reader.post(QUERY, &[], &json!({ "query": "wall", "limit": MAX_LIMIT })).await;
    assert_eq!(status, 200, "{answer}");
    let described = reader.get("/v1/openapi.json").await.1;
    let body = &described["paths"]["/v1/knowledge/{namespace}/query"]["post"]["requestBody"]["content"];
    assert_eq!(body["application/json"]["schema"]["properties"]["limit"]["maximum"], MAX_LIMIT, "{body}");
    known.board.shutdown().await;
}

#[tokio::test]
async fn a_hostile_query_is_answered_or_refused_and_changes_nothing() {
    let known = Known::start().await;
    let root = known.client("root", Scope::ALL);
    submit(&root, json!({ "statement": "The gate is green." })).await;
    let content = async || known.base.export(Vec::new()).await.unwrap().0;
    let before = content().await;
    let reader = known.client("reader", [Scope::KnowledgeRead]);
    let mut found = 0;
    let written = hostile_queries::WRITTEN.iter().step_by(3).map(|query| (*query).to_owned());
    for query in written.chain(hostile_queries::large()).chain(["x".repeat(2 << 20)]) {
        let body = json!({ "query": query, "limit": 3 });
        let is_too_large = body.to_string().len() > 1 << 20;
        let (status, answer) = reader.post(QUERY, &[], &body).await;
        let begins = query.chars().take(40).collect::<String>();
        assert_eq!(status, if is_too_large { 413 } else { 200 }, "{}: {answer}", begins.escape_debug());
        found += usize::from(answer["results"].as_array().is_some_and(|results| !results.is_empty()));
    }
    assert!(found > 20, "{found} found the fact");
    // What is no JSON, or no text.
    for body in [
        r#"{"query":"\ud800"}"#,
        r#"{"query":"\udfff\ud800 gate"}"#,
        "{\"query\":\"gate\u{0}\"}",
        r#"{"query":"gate"#,
        r#"{"query":["gate"]}"#,
        r#"{"query":null}"#,
        r#"{"query":"gate","query":"wall"}"#,
        r#"{"query":"gate","limit":-1}"#,
        r#"{"query":"gate","limit":1e99}"#,
        r#"{"query":"gate","as_of":"' OR 1=1 --"}"#,
        r#"{"query":"gate","namespace":"other"}"#,
        "gate",
        "",
    ] {
        let response = reader.send(reader.request("POST", QUERY, &[], body)).await;
        assert!(response.status().is_client_error(), "{body}: {}", response.status());
    }
    for namespace in ["other", "default'--", "default%00", "%2e%2e", "default%2f..%2fother", "%e2%80%aedefault", "*"] {
        let path = format!("/v1/knowledge/{namespace}/query");
        let (status, problem) = reader.post(&path, &[], &json!({ "query": "gate" })).await;
        assert!((400..500).contains(&status), "{namespace}: {status} {problem}");
    }
    assert!(content().await == before, "a query has changed the base");
}
