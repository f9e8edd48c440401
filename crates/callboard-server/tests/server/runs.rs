//! What is in runs and below them, what they have used, and the figures of the server.

use std::sync::Arc;

use axum::body::{Body, HttpBody as _, to_bytes};
use axum::http::Request;
use callboard::env::Env;
use callboard::messages::{Complexity, Durability, RunEvent, SendTo, Timestamp, Usage};
use callboard::prelude::*;
use callboard::workflow::{Node, Workflow};
use callboard_server::{Scope, Server, TokenSpec, Tokens};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::local::{Local, text_of};

/// A lead that delegates to a coder and to a workflow of it, an agent that uses tokens, and two that disagree.
async fn board() -> Callboard {
    let inner = Workflow::builder("inner").node(Node::agent("only", "coder")).build().unwrap();
    Callboard::builder()
        .agent("lead", |turn: Turn| async move {
            turn.delegate("coder", "fix").await?;
            Ok(Command::output(turn.delegate("team", "fix together").await?))
        })
        .agent("coder", |_: Turn| async { Ok(Command::output("fixed")) })
        .workflow("team", &inner, Complexity::Simple)
        .agent("spends", |turn: Turn| async move {
            turn.reserve(100).await?.settle_by("large", Usage::of(20, 10));
            turn.reserve(100).await?.settle(Usage::of(10, 2));
            Ok(Command::new())
        })
        .agent("asks", |_: Turn| async {
            Ok(Command::new().goto_many([SendTo::new("judge", "yes"), SendTo::new("judge", "no")]))
        })
        .agent("judge", |turn: Turn| async move { Ok(Command::update("verdict", turn.input_json().clone())) })
        .start()
        .await
        .unwrap()
}

async fn run(board: &Callboard, to: &str) -> RunId {
    let run = board.submit(Task::new("x").to(to)).await.unwrap();
    run.result().await.unwrap();
    run.id()
}

#[tokio::test]
async fn a_delegation_is_answered_as_json_of_a_known_length() {
    let board = board().await;
    let tokens = Tokens::new(Env::system());
    let secret = tokens.add(TokenSpec::new("ci", [Scope::Read, Scope::Delegate])).unwrap();
    let app = Server::new(board.clone(), tokens).router();
    let ended = run(&board, "coder").await;
    let (to, path) = (json!({ "to": "coder", "body": "fix" }).to_string(), format!("/v1/delegations/{ended}"));
    for request in [Request::post("/v1/delegations").body(Body::from(to)), Request::get(path).body(Body::empty())] {
        let mut request = request.unwrap();
        let headers = [("host", "localhost".to_owned()), ("authorization", format!("Bearer {secret}"))];
        for (name, value) in headers.into_iter().chain([("content-type", "application/json".to_owned())]) {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        let response = app.clone().oneshot(request).await.unwrap();
        assert!(response.status().is_success());
        assert_eq!(response.headers()["content-type"], "application/json");
        let length = response.body().size_hint().exact();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert_eq!(length, Some(body.len() as u64));
        let shown: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(shown["to_agent"], "coder");
    }
    board.shutdown().await;
}

#[tokio::test]
async fn the_tree_of_a_run_has_its_delegations_and_the_runs_of_workflows_below_it() {
    let board = board().await;
    let local = Local::over(&board);
    let id = run(&board, "lead").await;
    let (status, tree) = local.get(&format!("/v1/runs/{id}/tree")).await;
    assert_eq!((status, &tree["request_id"], &tree["is_cut"]), (200, &json!(id), &json!(false)), "{tree}");
    let of =
        |delegation: &Value| [&delegation["to_agent"], &delegation["body"], &delegation["status"]].map(Clone::clone);
    let delegations: Vec<_> = tree["delegations"].as_array().unwrap().iter().map(of).collect();
    let expected = [["coder", "fix", "complete"], ["team", "fix together", "complete"]];
    assert_eq!(delegations, expected.map(|row| row.map(Value::from)));
    let below = tree["runs"].as_array().unwrap();
    assert_eq!((below.len(), &below[0]["to_agent"], &below[0]["status"]), (1, &json!("coder"), &json!("complete")));
    assert_eq!((&below[0]["runs"], &below[0]["trace_id"]), (&json!([]), &tree["trace_id"]));
    assert_eq!(local.get("/v1/runs/019a0000-0000-7000-8000-000000000001/tree").await.0, 404);
    board.shutdown().await;
}

#[tokio::test]
async fn runs_and_agents_of_other_boards_are_shown_with_those_of_the_server() {
    let store = Arc::new(Memory::new(Env::system().clock()));
    let builder = |name| Callboard::builder().storage(Arc::clone(&store)).name(name);
    let fixed = |_: Turn| async { Ok(Command::output("fixed")) };
    let other = builder("other").agent("coder", fixed).start().await.unwrap();
    let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("coder", "fix").await?)) };
    let board = builder("served").agent("lead", lead).start().await.unwrap();
    let local = Local::over(&board);
    let id = run(&board, "lead").await;
    let (_, tree) = local.get(&format!("/v1/runs/{id}/tree")).await;
    let below = tree["runs"].as_array().unwrap();
    assert_eq!((below.len(), &below[0]["to_agent"], &below[0]["status"]), (1, &json!("coder"), &json!("complete")));
    let (_, listed) = local.get("/v1/agents").await;
    let of = |agent: &Value| json!([agent["agent"], agent["boards"], agent["is_here"]]);
    let agents: Vec<_> = listed["agents"].as_array().unwrap().iter().map(of).collect();
    assert_eq!(agents, [json!(["coder", ["other"], false]), json!(["lead", ["served"], true])]);
    for board in [board, other] {
        board.shutdown().await;
    }
}

#[tokio::test]
async fn a_delegation_waits_for_what_its_turn_at_another_board_asks_and_who_answers_too_late_reads_by_whom_it_was() {
    let store = Arc::new(Memory::new(Env::system().clock()));
    let builder = |name| Callboard::builder().storage(Arc::clone(&store)).durability(Durability::Sync).name(name);
    let asker = |turn: Turn| async move { Ok(Command::output(turn.people().ask("Which?").await?)) };
    let other = builder("other").agent("asker", asker).start().await.unwrap();
    let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("asker", "x").await?)) };
    let board = builder("served").agent("lead", lead).start().await.unwrap();
    let local = Local::over(&board);
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    let open = run.next_pending().await.unwrap().unwrap();
    let (_, shown) = local.get(&format!("/v1/delegations/{}", run.id())).await;
    let waits = &shown["pending"][0];
    assert_eq!(
        [&shown["state"], &waits["question"], &waits["request_id"], &waits["id"]],
        [&json!("waits_for_answer"), &json!("Which?"), &json!(open.run()), &json!(open.id())]
    );
    let path = format!("/v1/pending/{}", open.id().to_string().replace('/', "%2F"));
    let answer = json!({ "response": "answer", "value": "this" });
    assert_eq!(local.post(&path, &[], &answer).await.0, 200);
    assert_eq!(run.result().await.unwrap().output, "this");
    let (_, shown) = local.get(&format!("/v1/delegations/{}", run.id())).await;
    assert_eq!((&shown["state"], &shown["pending"]), (&json!("finished"), &json!([])));
    let (status, late) = local.post(&path, &[], &answer).await;
    assert!(status == 409 && late["detail"].as_str().unwrap().starts_with("already answered by "), "{late}");
    for board in [board, other] {
        board.shutdown().await;
    }
}

#[tokio::test]
async fn the_history_of_a_run_is_read_in_pages() {
    let board = board().await;
    let local = Local::over(&board);
    let notes = |turn: Turn| async move {
        (0..300).for_each(|number| turn.notice(&number.to_string()));
        Ok(Command::new())
    };
    board.agents().spawn(AgentSpec::new("notes", notes)).await.unwrap();
    let id = run(&board, "notes").await;
    let (_, first) = local.get(&format!("/v1/runs/{id}/history")).await;
    assert_eq!((first["events"].as_array().unwrap().len(), &first["events"][0]["kind"]), (200, &json!("submitted")));
    assert_eq!(first["next"], 201);
    let (_, second) = local.get(&format!("/v1/runs/{id}/history?from=201")).await;
    let events = second["events"].as_array().unwrap();
    assert_eq!((events.len(), &events[0]["sequence"], &second["next"]), (102, &json!(201), &Value::Null));
    for query in ["from=0", "from=x", "since=1"] {
        assert_eq!(local.get(&format!("/v1/runs/{id}/history?{query}")).await.0, 400, "{query}");
    }
    board.shutdown().await;
}

#[tokio::test]
async fn a_run_continues_after_a_conflict_with_the_values_of_a_person() {
    let board = board().await;
    let local = Local::with(&board, [Scope::Approve]);
    let id = run(&board, "asks").await;
    let path = format!("/v1/runs/{id}/resume");
    assert_eq!(local.post(&path, &[], &json!({ "values": { "other": 1 } })).await.0, 422);
    let (status, resumed) = local.post(&path, &[], &json!({ "values": { "verdict": "yes" } })).await;
    assert_eq!((status, resumed), (200, json!({ "request_id": id, "by": "ci" })));
    assert_eq!(board.run(id).result().await.unwrap().state, json!({ "verdict": "yes" }));
    let finished = run(&board, "coder").await;
    let (status, problem) = local.post(&format!("/v1/runs/{finished}/resume"), &[], &json!({ "values": {} })).await;
    assert_eq!((status, &problem["code"]), (409, &json!("conflict")), "{problem}");
    board.shutdown().await;
}

#[tokio::test]
async fn usage_is_added_up_by_day_agent_model_and_token() {
    let board = board().await;
    let local = Local::over(&board);
    for to in ["spends", "coder", "spends"] {
        let (_, created) = local.post("/v1/delegations", &[], &json!({ "to": to, "body": "x" })).await;
        let id: RunId = created["request_id"].as_str().unwrap().parse().unwrap();
        board.run(id).result().await.unwrap();
    }
    run(&board, "spends").await;
    let today = Env::system().now().wall.to_string()[..10].to_owned();
    let (_, page) = local.get(&format!("/v1/usage?since={today}")).await;
    let rows: Vec<Value> = page["usage"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let tokens = [&row["input_tokens"], &row["output_tokens"]];
            json!([row["agent"], row["model"], row["from_agent"], row["delegations"], tokens])
        })
        .collect();
    let expected = [
        json!(["spends", "large", "ci", 2, [40, 20]]),
        json!(["spends", "large", null, 1, [20, 10]]),
        json!(["spends", null, "ci", 2, [20, 4]]),
        json!(["spends", null, null, 1, [10, 2]]),
        json!(["coder", null, "ci", 1, [0, 0]]),
    ];
    assert_eq!((rows, &page["next"]), (expected.to_vec(), &Value::Null));
    assert_eq!(local.get("/v1/usage?since=2999-01-01").await.1["usage"], json!([]));
    assert_eq!(local.get("/v1/usage?agent=x").await.0, 400);
    board.shutdown().await;
}

#[tokio::test]
async fn usage_is_of_the_days_of_the_limits() {
    let tomorrow = |at: Timestamp| u32::try_from(at.as_millis() / 86_400_000 + 1).unwrap();
    let board = Callboard::builder()
        .agent("coder", |_: Turn| async { Ok(Command::output("fixed")) })
        .day_limits(|days| days.days(tomorrow))
        .start()
        .await
        .unwrap();
    let local = Local::over(&board);
    let id = run(&board, "coder").await;
    let at = board.run(id).read().await.unwrap().submission().at.as_millis();
    let day = |later: u64| Timestamp::from_millis(at + later * 86_400_000).to_string()[..10].to_owned();
    for (since, expected) in [(0, vec![day(1)]), (1, vec![day(1)]), (2, vec![])] {
        let (_, page) = local.get(&format!("/v1/usage?since={}", day(since))).await;
        let days: Vec<&str> = page["usage"].as_array().unwrap().iter().filter_map(|row| row["day"].as_str()).collect();
        assert_eq!(days, expected, "since {}", day(since));
    }
    board.shutdown().await;
}

#[tokio::test]
async fn figures_count_requests_and_include_what_the_process_measures() {
    let board = board().await;
    let tokens = Tokens::new(Env::system());
    let secret = tokens.add(TokenSpec::new("ci", [Scope::Read])).unwrap();
    let router = Server::new(board.clone(), tokens).measured(|| "own_total 7\n".to_owned()).router();
    let get = async |path: &str, secret: &str| {
        let request = axum::http::Request::builder().uri(path).header("Host", "localhost");
        let request = request.header("Authorization", format!("Bearer {secret}")).body(axum::body::Body::empty());
        router.clone().oneshot(request.unwrap()).await.unwrap()
    };
    get("/v1/agents", "wrong").await;
    get("/v1/agents", &secret).await;
    let response = get("/v1/metrics", &secret).await;
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let text = text_of(response).await;
    for line in [
        "callboard_http_requests_total{status=\"200\",code=\"\"} 1\n",
        "callboard_http_requests_total{status=\"401\",code=\"unauthenticated\"} 1\n",
        "callboard_board_runs 0\n",
        "own_total 7\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    board.shutdown().await;
}

#[tokio::test]
async fn only_the_requester_changes_what_a_delegation_refers_to() {
    let board = Callboard::builder()
        .agent("asker", |turn: Turn| async move {
            turn.people().ask("well?").await?;
            Ok(Command::output(turn.reference().unwrap_or("nothing")).goto("teller"))
        })
        .agent("teller", |turn: Turn| async move { Ok(Command::output(turn.reference().unwrap_or("nothing"))) })
        .start()
        .await
        .unwrap();
    let tokens = Tokens::new(Env::system());
    let scopes = [Scope::Read, Scope::Delegate];
    let [laptop, phone, bob] = ["laptop", "phone", "bob"].map(|name| tokens.add(TokenSpec::new(name, scopes)).unwrap());
    let admin = tokens.add(TokenSpec::new("admin", Scope::ALL)).unwrap();
    // Of a person with the name of another token.
    let namesake = tokens.add(TokenSpec::new("namesake", scopes).owner("bob")).unwrap();
    let office = tokens.add(TokenSpec::new("office", Scope::ALL)).unwrap();
    let people = ["laptop", "phone", "office"].map(|token| (token.to_owned(), "ann".to_owned()));
    let router = Server::new(board.clone(), tokens).people(people).router();
    let send = async |secret: &str, method: &str, path: &str, body: Value| {
        let request = Request::builder().method(method).uri(path).header("Host", "localhost");
        let request =
            request.header("Authorization", format!("Bearer {secret}")).header("Content-Type", "application/json");
        let answer = router.clone().oneshot(request.body(Body::from(body.to_string())).unwrap()).await.unwrap();
        (answer.status().as_u16(), serde_json::from_str::<Value>(&text_of(answer).await).unwrap())
    };
    let task = json!({ "to": "asker", "body": "x", "reference": "issue 7" });
    let (_, given) = send(&laptop, "POST", "/v1/delegations", task).await;
    let path = format!("/v1/delegations/{}", given["request_id"].as_str().unwrap());
    let run = board.run(given["request_id"].as_str().unwrap().parse().unwrap());
    // Its turn has begun.
    let asked = run.next_pending().await.unwrap().unwrap();
    let to = |reference: &str| json!({ "reference": reference });
    let (_, of_bob) = send(&bob, "POST", "/v1/delegations", json!({ "to": "asker", "body": "x" })).await;
    let of_bob = format!("/v1/delegations/{}", of_bob["request_id"].as_str().unwrap());
    for (other, path) in [(&bob, &path), (&admin, &path), (&namesake, &of_bob)] {
        let (status, problem) = send(other, "PATCH", path, to("issue 9")).await;
        assert_eq!((status, &problem["code"]), (403, &json!("missing-scope")), "{problem}");
    }
    for unfit in
        [json!({}), json!({ "reference": 7 }), json!({ "reference": "x", "body": "y" }), to(&"x".repeat(4_097))]
    {
        assert_eq!(send(&laptop, "PATCH", &path, unfit).await.0, 400);
    }
    assert_eq!(send(&laptop, "GET", &path, Value::Null).await.1["reference"], "issue 7");
    for (token, reference) in [(&laptop, Value::Null), (&phone, json!("issue 8"))] {
        let (status, changed) = send(token, "PATCH", &path, json!({ "reference": reference })).await;
        assert_eq!((status, &changed["reference"]), (200, &reference), "{changed}");
    }
    // A trusted task reads trusted references.
    let (_, trusted) = send(&office, "POST", "/v1/delegations", json!({ "to": "asker", "body": "x" })).await;
    let trusted = format!("/v1/delegations/{}", trusted["request_id"].as_str().unwrap());
    let statuses =
        [send(&phone, "PATCH", &trusted, to("x")).await.0, send(&office, "PATCH", &trusted, to("x")).await.0];
    assert_eq!(statuses, [403, 200]);
    board.people().answer(asked.id(), Json::null(), "ann").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, "issue 8", "a turn that begins later reads it");
    let history = run.history().await.unwrap();
    let outputs = history.iter().filter_map(|event| match event {
        RunEvent::TurnEnded { command, .. } => command.output.as_ref()?.as_str(),
        _ => None,
    });
    assert_eq!(outputs.collect::<Vec<_>>(), ["issue 7", "issue 8"], "one that has begun keeps what it has read");
    assert_eq!(send(&laptop, "PATCH", &path, to("issue 9")).await.0, 409, "it has ended");
    board.shutdown().await;
}
