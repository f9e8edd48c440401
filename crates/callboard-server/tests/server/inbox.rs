//! The inbox: one list of everything that needs a person, and decisions about it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use callboard::env::Env;
use callboard::messages::{Action, SendTo};
use callboard::prelude::*;
use callboard::workflow::{Node, Workflow};
use callboard_server::{AgentFiles, Scope, Server, TokenSpec, Tokens};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::local::Local;

/// A board with an agent for each kind of what needs a person.
async fn board() -> (Callboard, Arc<AtomicBool>) {
    let is_repaired = Arc::new(AtomicBool::new(false));
    let repaired = Arc::clone(&is_repaired);
    let fails = move |_: Turn| {
        let is_repaired = repaired.load(Ordering::Relaxed);
        async move { if is_repaired { Ok(Command::new()) } else { Err(TurnError::terminal("the service is\ndown")) } }
    };
    let judge = |turn: Turn| async move { Ok(Command::update("verdict", turn.input_json().clone())) };
    let board = Callboard::builder()
        .env(Env::repeatable(1))
        .agent("asker", |turn: Turn| async move { Ok(Command::output(turn.people().ask("well?").await?)) })
        .agent("clerk", |turn: Turn| async move {
            let action = Action::new("write_file", "a\u{202e}b.txt", json!({ "text": "hello" }));
            Ok(Command::output(turn.people().approve(action).await?.arguments))
        })
        .agent("fails", fails)
        .agent("lead", |_: Turn| async {
            Ok(Command::new().goto_many([SendTo::new("strict", "reject"), SendTo::new("kind", "accept")]))
        })
        .agent("strict", judge)
        .agent("kind", judge)
        .start()
        .await
        .unwrap();
    (board, is_repaired)
}

/// A client of a server over it, whose token has these scopes.
fn local_of(board: &Callboard, scopes: &[Scope]) -> Local {
    let tokens = Tokens::new(Env::repeatable(2));
    let secret = tokens.add(TokenSpec::new("ann", scopes.iter().copied())).unwrap();
    let files = AgentFiles { refused: [("broken.md".into(), "no name".into())].into(), ..AgentFiles::default() };
    let server = Server::new(board.clone(), tokens).agent_files(watch::Sender::new(files).subscribe());
    Local { router: server.router(), secret }
}

async fn ends(board: &Callboard, to: &str) -> String {
    let run = board.submit(Task::new("x").to(to)).await.unwrap();
    run.result().await.unwrap();
    run.id().to_string()
}

fn kinds(inbox: &Value) -> Vec<&str> {
    inbox["items"].as_array().unwrap().iter().map(|item| item["kind"].as_str().unwrap()).collect()
}

fn item<'v>(inbox: &'v Value, kind: &str) -> &'v Value {
    let items = inbox["items"].as_array().unwrap();
    items.iter().find(|item| item["kind"] == kind).unwrap_or_else(|| panic!("no {kind} in {inbox:#}"))
}

async fn decide(local: &Local, decisions: Value) -> Vec<Value> {
    let (status, answer) = local.post("/v1/inbox/decisions", &[], &json!({ "decisions": decisions })).await;
    assert_eq!(status, 200, "{answer:#}");
    answer["results"].as_array().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn everything_that_needs_a_person_is_one_list_in_which_it_is_decided() {
    let (board, is_repaired) = board().await;
    let local = local_of(&board, &Scope::ALL);
    let asks = board.submit(Task::new("ask somebody").to("asker")).await.unwrap();
    asks.next_pending().await.unwrap();
    let writes = board.submit(Task::new("write a file").to("clerk")).await.unwrap();
    writes.next_pending().await.unwrap();
    let publish = Workflow::builder("publish").node(Node::agent("out", "fails").interrupted()).build().unwrap();
    let node = board.submit(publish.task("a draft")).await.unwrap();
    node.next_pending().await.unwrap();
    let (failed, conflict) = (ends(&board, "fails").await, ends(&board, "lead").await);

    let (status, inbox) = local.get("/v1/inbox").await;
    assert_eq!(status, 200, "{inbox:#}");
    assert_eq!(kinds(&inbox), ["approval", "question", "node", "refused_file", "conflict", "dead_letter"], "{inbox:#}");
    assert_eq!(inbox["counts"]["dead_letter"], 1);
    assert_eq!((&inbox["next"], &inbox["is_cut"]), (&Value::Null, &json!(false)));
    let approval = item(&inbox, "approval");
    assert_eq!(approval["what"], "wants to write_file a\\u{202e}b.txt");
    assert_eq!((&approval["task"], &approval["agent"]), (&json!("write a file"), &json!("clerk")));
    assert_eq!(approval["otherwise"], "it is denied");
    assert!(approval["since"].is_string() && approval["expires_at"].is_string(), "{approval:#}");
    let command = format!("callboard approve {}", approval["id"].as_str().unwrap());
    assert_eq!(approval["actions"][0], json!({ "response": "approve", "command": command }));
    let letter = item(&inbox, "dead_letter");
    assert_eq!(letter["what"], "turn 1 failed: the service is ⏎ down");
    assert_eq!(letter["actions"][0]["command"], json!(format!("callboard retry {failed} --turn 1")));
    let (_, whole) = local.get(&format!("/v1/inbox/{}", approval["id"].as_str().unwrap())).await;
    assert!(whole["card"].as_str().unwrap().contains("target    a\\u{202e}b.txt"), "{whole:#}");
    let (_, only) = local.get("/v1/inbox?kind=question").await;
    assert_eq!(kinds(&only), ["question"]);
    let (_, of_run) = local.get(&format!("/v1/inbox?run={failed}")).await;
    assert_eq!(kinds(&of_run), ["dead_letter"]);
    let (_, first) = local.get("/v1/inbox?limit=4").await;
    let (_, rest) = local.get(&format!("/v1/inbox?page={}", first["next"].as_str().unwrap())).await;
    assert_eq!((kinds(&first).len(), kinds(&rest)), (4, vec!["conflict", "dead_letter"]));

    is_repaired.store(true, Ordering::Relaxed);
    let id = |kind: &str| item(&inbox, kind)["id"].clone();
    let results = decide(
        &local,
        json!([
            { "id": id("approval"), "response": "deny", "reason": "not now" },
            { "id": id("question"), "response": "answer", "value": "fine", "reason": "in the audit log alone" },
            { "id": id("node"), "response": "resume" },
            { "id": id("conflict"), "response": "overwrite", "values": { "verdict": "accept" } },
            { "id": id("dead_letter"), "response": "retry" },
            { "id": id("refused_file"), "response": "restart" },
            { "id": id("question"), "response": "answer", "value": "again" },
            { "id": "nonsense", "response": "approve" },
            { "id": id("approval"), "response": "drop" },
        ]),
    )
    .await;
    let problems: Vec<&Value> = results.iter().map(|result| &result["problem"]["code"]).collect();
    let none = &Value::Null;
    let expected = [
        none,
        none,
        none,
        none,
        none,
        &json!("refused"),
        &json!("conflict"),
        &json!("not-found"),
        &json!("bad-request"),
    ];
    assert_eq!(problems, expected, "{results:#?}");
    assert_eq!(results[0]["by"], "ann");
    board.run(results[4]["retried_as"].as_str().unwrap().parse().unwrap()).result().await.unwrap();
    assert_eq!(asks.result().await.unwrap().output, json!("fine"));
    assert!(matches!(writes.result().await.unwrap().outcome, Outcome::Failed { .. } | Outcome::Denied { .. }));
    let resumed = board.run(conflict.parse().unwrap()).result().await.unwrap();
    assert_eq!(resumed.state, json!({ "verdict": "accept" }));
    node.result().await.unwrap();
    let (_, left) = local.get("/v1/inbox").await;
    assert_eq!(kinds(&left), ["refused_file"], "{left:#}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn letters_and_conflicts_are_dropped_and_an_agent_that_has_failed_is_restarted() {
    let (board, _) = board().await;
    let fragile = AgentSpec::new("fragile", |_: Turn| async { panic!("out of luck") });
    board.agents().spawn(fragile.restarts(0, Duration::from_secs(60))).await.unwrap();
    let local = local_of(&board, &Scope::ALL);
    ends(&board, "fails").await;
    ends(&board, "lead").await;
    let (_, inbox) = local.get("/v1/inbox").await;
    let ids = ["conflict", "dead_letter"].map(|kind| item(&inbox, kind)["id"].clone());
    let drop = json!(ids.each_ref().map(|id| json!({ "id": id, "response": "drop", "reason": "known" })));
    for code in [Value::Null, json!("not-found")] {
        let results = decide(&local, drop.clone()).await;
        assert!(results.iter().all(|result| result["problem"]["code"] == code), "{results:#?}");
    }
    let panicked = ends(&board, "fragile").await;
    let (_, left) = local.get("/v1/inbox").await;
    assert_eq!(kinds(&left), ["failed_agent", "refused_file", "dead_letter"]);
    let agent = item(&left, "failed_agent");
    assert_eq!(agent["id"], "agent:fragile");
    assert!(agent["what"].as_str().unwrap().contains("out of luck"), "{agent:#}");
    let results = decide(
        &local,
        json!([
            { "id": "agent:fragile", "response": "restart" },
            { "id": format!("letter:{panicked}/1"), "response": "drop" },
            { "id": "agent:nobody", "response": "restart" },
        ]),
    )
    .await;
    assert_eq!(results[2]["problem"]["code"], "not-found", "{results:#?}");
    let (_, left) = local.get("/v1/inbox").await;
    assert_eq!(kinds(&left), ["refused_file"], "{results:#?}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_token_decides_what_its_scopes_allow() {
    let (board, _) = board().await;
    let run = board.submit(Task::new("ask somebody").to("asker")).await.unwrap();
    run.next_pending().await.unwrap();
    ends(&board, "fails").await;
    let local = local_of(&board, &[Scope::Read]);
    let (_, inbox) = local.get("/v1/inbox").await;
    let decisions = json!([
        { "id": item(&inbox, "question")["id"], "response": "answer", "value": 1 },
        { "id": item(&inbox, "dead_letter")["id"], "response": "drop" },
        { "id": "agent:fails", "response": "restart" },
        { "id": format!("quarantine:{}", run.id()), "response": "read_again" },
    ]);
    let results = decide(&local, decisions).await;
    assert!(results.iter().all(|result| result["problem"]["code"] == "missing-scope"), "{results:#?}");
    let many: Vec<Value> = (0..101).map(|_| json!({ "id": "x", "response": "approve" })).collect();
    assert_eq!(local.post("/v1/inbox/decisions", &[], &json!({ "decisions": many })).await.0, 400);
    for malformed in
        [json!({}), json!({ "id": "x" }), json!({ "response": "drop" }), json!({ "id": 1, "response": "drop" })]
    {
        assert_eq!(
            local.post("/v1/inbox/decisions", &[], &json!({ "decisions": [malformed] })).await.0,
            400,
            "{malformed}"
        );
    }
    for path in ["/v1/inbox?kind=x", "/v1/inbox?run=x", "/v1/inbox?limit=0", "/v1/inbox?page=x", "/v1/inbox?q=1"] {
        assert_eq!(local.get(path).await.0, 400, "{path}");
    }
    assert_eq!(local.get("/v1/inbox/x").await.0, 404);
    board.shutdown().await;
}
