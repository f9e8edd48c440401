//! Lists of delegations, and delegations that begin from others.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use callboard::env::Env;
use callboard::messages::{AgentName, PerDay, PerRun, Refusal, Usage};
use callboard::prelude::*;
use callboard::workflow::{Node, Workflow};
use callboard_server::{Scope, Server, TokenSpec, Tokens};
use serde_json::{Value, json};

use crate::support::counted::Counted;
use crate::support::local::{Local, text_of};

/// A board with an agent that echoes, one that fails until it is repaired, one that asks, and one that uses 25 tokens.
async fn board() -> (Callboard, Arc<AtomicBool>) {
    let is_repaired = Arc::new(AtomicBool::new(false));
    let repaired = Arc::clone(&is_repaired);
    let fails = move |turn: Turn| {
        let is_repaired = repaired.load(Ordering::Relaxed);
        async move {
            if is_repaired {
                Ok(Command::output(turn.input_json().clone()))
            } else {
                Err(TurnError::terminal("it is down"))
            }
        }
    };
    let spends = |turn: Turn| async move {
        turn.reserve(25).await?.settle(Usage::of(25, 0)).await?;
        Ok(Command::output("done"))
    };
    let board = Callboard::builder()
        .agent("echo", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) })
        .agent("spends", spends)
        .agent("fails", fails)
        .agent("asker", |turn: Turn| async move { Ok(Command::output(turn.people().ask("well?").await?)) })
        .start()
        .await
        .unwrap();
    (board, is_repaired)
}

/// Delegates a task, waits for its end, and returns its id.
async fn delegate(board: &Callboard, local: &Local, task: &Value) -> String {
    let (status, created) = local.post("/v1/delegations", &[], task).await;
    assert_eq!(status, 202, "{created}");
    let id = created["request_id"].as_str().unwrap().to_owned();
    board.run(id.parse().unwrap()).result().await.unwrap();
    id
}

fn ids(page: &Value) -> Vec<String> {
    let items = page["delegations"].as_array().unwrap_or_else(|| panic!("no list: {page}"));
    items.iter().map(|item| item["request_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn delegations_are_listed_in_pages_newest_first_each_once() {
    let (board, _) = board().await;
    let local = Local::over(&board);
    assert_eq!(local.get("/v1/delegations").await, (200, json!({ "delegations": [], "next": null })));
    let mut submitted = BTreeSet::new();
    for number in 0..7 {
        // Ids of keys are hashes, and have no order.
        let (key, task) = (format!("k{number}"), json!({ "to": "echo", "body": "x" }));
        let headers: &[_] = if number % 2 == 0 { &[("Idempotency-Key", key.as_str())] } else { &[] };
        let (_, created) = local.post("/v1/delegations", headers, &task).await;
        submitted.insert(created["request_id"].as_str().unwrap().to_owned());
    }
    for path in ["/v1/delegations", "/v1/runs"] {
        let (mut listed, mut times, mut next) = (Vec::new(), Vec::new(), String::new());
        for expected in [3, 3, 1] {
            let (status, page) = local.get(&format!("{path}?limit=3{next}")).await;
            assert_eq!((status, ids(&page).len()), (200, expected), "{page}");
            times.extend(page["delegations"].as_array().unwrap().iter().map(|item| item["submitted_at"].to_string()));
            listed.extend(ids(&page));
            assert_eq!(page["next"].is_null(), expected == 1, "{page}");
            next = format!("&page={}", page["next"].as_str().unwrap_or_default());
        }
        assert!(times.is_sorted_by(|newer, older| newer >= older), "{times:?}");
        assert_eq!((listed.len(), listed.into_iter().collect::<BTreeSet<_>>()), (7, submitted.clone()));
    }
    // What is submitted after a page was read is on the first page alone.
    let (_, first) = local.get("/v1/delegations?limit=1").await;
    let late = delegate(&board, &local, &json!({ "to": "echo", "body": "late" })).await;
    let (_, second) = local.get(&format!("/v1/delegations?page={}", first["next"].as_str().unwrap())).await;
    assert_eq!((ids(&second).len(), ids(&second).contains(&late)), (6, false));
    assert_eq!(ids(&local.get("/v1/delegations").await.1).len(), 8);
    board.shutdown().await;
}

#[tokio::test]
async fn lists_are_filtered_and_a_filter_that_is_none_is_refused() {
    let (board, _) = board().await;
    let local = Local::over(&board);
    let finished = delegate(&board, &local, &json!({ "to": "echo", "body": "x" })).await;
    let failed = delegate(&board, &local, &json!({ "to": "fails", "body": "x" })).await;
    let (_, asks) = local.post("/v1/delegations", &[], &json!({ "to": "asker", "body": "x" })).await;
    board.people().next().await.unwrap();
    let asks = asks["request_id"].as_str().unwrap().to_owned();
    for (query, expected) in [
        ("state=finished", vec![&finished]),
        ("state=failed", vec![&failed]),
        ("state=waits_for_answer", vec![&asks]),
        ("state=denied", vec![]),
        ("agent=echo", vec![&finished]),
        ("agent=ech", vec![]),
        ("agent=fails&state=failed", vec![&failed]),
        ("agent=fails&state=finished", vec![]),
        ("since=2020-01-01&agent=echo", vec![&finished]),
        ("since=2999-01-01T00:00:00Z", vec![]),
    ] {
        let (status, page) = local.get(&format!("/v1/delegations?{query}")).await;
        assert_eq!((status, ids(&page)), (200, expected.into_iter().cloned().collect()), "{query}");
        assert_eq!(page["next"], Value::Null, "{query}");
    }
    for query in [
        "state=done",
        "limit=0",
        "limit=201",
        "limit=x",
        "limit=-1",
        "page=x",
        "page=1_2",
        "page=",
        "since=now",
        "since=",
        "agent=a&agent=b",
        "agents=a",
        "state",
    ] {
        let (status, problem) = local.get(&format!("/v1/delegations?{query}")).await;
        assert_eq!((status, &problem["code"]), (400, &json!("bad-request")), "{query}: {problem}");
    }
    board.shutdown().await;
}

#[tokio::test]
async fn a_turn_that_failed_for_good_is_listed_and_tried_again_once() {
    let (board, is_repaired) = board().await;
    let local = Local::over(&board);
    let failed = delegate(&board, &local, &json!({ "to": "fails", "body": "x", "input": { "a": 1 } })).await;
    let finished = delegate(&board, &local, &json!({ "to": "echo", "body": "x" })).await;
    let (_, letters) = local.get("/v1/dead-letters").await;
    let letter = &letters["dead_letters"][0];
    assert_eq!((letters["dead_letters"].as_array().unwrap().len(), &letters["next"]), (1, &Value::Null));
    assert_eq!(
        (&letter["request_id"], &letter["turn"], &letter["agent"]),
        (&json!(failed), &json!(1), &json!("fails"))
    );
    assert_eq!((&letter["input"], &letter["retried_as"]), (&json!({ "a": 1 }), &Value::Null), "{letter}");

    is_repaired.store(true, Ordering::Relaxed);
    let retry = format!("/v1/delegations/{failed}/retry");
    let response = local.send(local.request("POST", &retry, &[], "{}")).await;
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    let created: Value = serde_json::from_str(&text_of(response).await).unwrap();
    let new = created["request_id"].as_str().unwrap();
    assert_eq!(location, format!("../{new}"));
    assert_eq!(board.run(new.parse().unwrap()).result().await.unwrap().output, json!({ "a": 1 }));
    let (status, again) = local.post(&retry, &[], &json!({ "turn": 1 })).await;
    assert_eq!((status, &again["request_id"]), (202, &json!(new)), "the same turn is the same delegation");
    let (_, letters) = local.get("/v1/dead-letters").await;
    assert_eq!(letters["dead_letters"][0]["retried_as"], json!(new));
    let (status, other) = local.post(&retry, &[], &json!({ "limits": { "tokens": 7 } })).await;
    assert_eq!((status, &other["code"]), (409, &json!("conflict")), "{other}");
    let detail = format!("turn 1 was tried again before, as {new}: try that one again with `limits`");
    assert_eq!(other["detail"], json!(detail));

    let limited = json!({ "to": "spends", "body": "x", "limits": { "tokens": 20 } });
    let refused = delegate(&board, &local, &limited).await;
    let retry = format!("/v1/delegations/{refused}/retry");
    let (status, retried) = local.post(&retry, &[], &json!({ "limits": { "tokens": 30 } })).await;
    assert_eq!(status, 202, "{retried}");
    let new = board.run(retried["request_id"].as_str().unwrap().parse().unwrap());
    assert!(new.result().await.unwrap().outcome.is_finished());
    let (_, again) = local.post(&retry, &[], &json!({ "limits": { "tokens": 30 } })).await;
    assert_eq!(again["request_id"], retried["request_id"]);

    let (status, none) = local.post(&format!("/v1/delegations/{finished}/retry"), &[], &json!({})).await;
    assert_eq!((status, &none["code"]), (409, &json!("conflict")), "{none}");
    let (status, none) = local.post(&format!("/v1/delegations/{finished}/retry"), &[], &json!({ "turn": 1 })).await;
    assert_eq!((status, &none["code"]), (404, &json!("not-found")), "{none}");
    board.shutdown().await;
}

#[tokio::test]
async fn a_fork_of_a_trusted_task_takes_another_input_from_administrators_alone() {
    let (board, _) = board().await;
    let (admin, other) = (Local::over(&board), Local::with(&board, [Scope::Read, Scope::Delegate]));
    let changed = json!({ "turn": 1, "input": "changed" });
    for (giver, forker, expected) in [(&admin, &admin, 202), (&admin, &other, 403), (&other, &other, 202)] {
        let fork =
            format!("/v1/delegations/{}/fork", delegate(&board, giver, &json!({ "to": "echo", "body": "x" })).await);
        let (status, forked) = forker.post(&fork, &[], &changed).await;
        assert_eq!(status, expected, "{forked}");
        if expected == 202 {
            let run = board.run(forked["request_id"].as_str().unwrap().parse().unwrap());
            assert_eq!(run.result().await.unwrap().output, "changed");
        }
        assert_eq!(forker.post(&fork, &[], &json!({ "turn": 1 })).await.0, 202, "without a change");
        let (status, none) = forker.post(&fork, &[], &json!({ "turn": 9 })).await;
        assert_eq!((status, &none["code"]), (422, &json!("refused")), "{none}");
        assert_eq!(forker.post(&fork, &[], &json!({})).await.0, 400);
    }
    let writer = Local::with(&board, [Scope::Delegate]);
    let run = delegate(&board, &admin, &json!({ "to": "echo", "body": "secret" })).await;
    let (_, forked) = writer.post(&format!("/v1/delegations/{run}/fork"), &[], &json!({ "turn": 1 })).await;
    let keys: Vec<&String> = forked.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["request_id", "status"], "it may not read");
    board.shutdown().await;
}

#[tokio::test]
async fn a_fork_and_a_retry_count_against_the_day_of_the_token_that_asks_for_them() {
    let spends = |turn: Turn| async move {
        turn.reserve(6).await?.settle(Usage::of(6, 0)).await?;
        match turn.input_json().as_str() {
            Some("fail") => Err(TurnError::terminal("it is down")),
            _ => Ok(Command::output("done")),
        }
    };
    let limit_of = |name: &AgentName| match name.as_str() {
        "bot" => PerDay { tokens: Some(20), cost: None },
        _ => PerDay::default(),
    };
    let builder = Callboard::builder().agent("spends", spends);
    let board = builder.day_limits(|days| days.requesters(limit_of)).start().await.unwrap();
    let [ann, bot] = ["ann", "bot"].map(|name| Local::of(&board, TokenSpec::new(name, Scope::ALL)));
    let finished = delegate(&board, &ann, &json!({ "to": "spends", "body": "work" })).await;
    let failed = delegate(&board, &ann, &json!({ "to": "spends", "body": "fail" })).await;
    let (fork, retry) = (format!("/v1/delegations/{finished}/fork"), format!("/v1/delegations/{failed}/retry"));
    let begin = async |path: &str, body: Value| {
        let (status, begun) = bot.post(path, &[], &body).await;
        assert_eq!((status, &begun["from_agent"]), (202, &json!("bot")), "{begun}");
        board.run(begun["request_id"].as_str().unwrap().parse().unwrap()).result().await.unwrap().outcome
    };
    assert!(begin(&fork, json!({ "turn": 1 })).await.is_finished());
    let failed = begin(&retry, json!({})).await;
    assert!(matches!(failed, Outcome::Failed { .. }), "{failed}");
    assert!(begin(&fork, json!({ "turn": 1 })).await.is_finished());
    let refused = begin(&fork, json!({ "turn": 1 })).await;
    assert!(
        matches!(&refused, Outcome::Refused(Refusal::DayLimit { whose, used: 18, .. }) if &**whose == "bot"),
        "{refused}"
    );
    board.shutdown().await;
}

#[tokio::test]
async fn the_limits_of_a_token_bound_its_runs_and_its_day() {
    let tokens = Tokens::new(Env::system());
    let per_run = PerRun { tokens: Some(10), agents: Some(1), ..PerRun::default() };
    let spec = TokenSpec::new("bot", [Scope::Read, Scope::Delegate]).per_run(per_run);
    let secret = tokens.add(spec.per_day(PerDay { tokens: Some(15), cost: None })).unwrap();
    let [of_run, of_day] = [tokens.clone(), tokens.clone()];
    let spends = |turn: Turn| async move {
        let asked: u64 = turn.input()?;
        turn.reserve(asked).await?.settle(Usage::of(asked, 0)).await?;
        Ok(Command::output("done"))
    };
    let board = Callboard::builder()
        .agent("spends", spends)
        .agent("lead", |turn: Turn| async move { Ok(Command::output(turn.delegate("spends", "1").await?)) })
        .run_limits(move |from| from.map(|name| of_run.per_run_of(name.as_str())).unwrap_or_default())
        .day_limits(|days| days.requesters(move |name| of_day.per_day_of(name.as_str())))
        .start()
        .await
        .unwrap();
    let bot = Local { router: Server::new(board.clone(), tokens).router(), secret };
    let outcome =
        async |task: Value| bot.get(&format!("/v1/delegations/{}", delegate(&board, &bot, &task).await)).await.1;
    let spend = |tokens: u64, limits: Value| json!({ "to": "spends", "body": "x", "input": tokens, "limits": limits });
    for (task, kind) in [
        // The task may have less than the token, and not more.
        (spend(11, json!({ "tokens": 1_000 })), "token_budget"),
        (spend(6, json!({ "tokens": 5 })), "token_budget"),
        (json!({ "to": "lead", "body": "x" }), "agent_limit"),
        (spend(10, Value::Null), "finished"),
        (spend(6, Value::Null), "day_limit"),
    ] {
        let shown = outcome(task).await;
        let result = &shown["result"]["outcome"];
        let found = result["refusal"]["kind"].as_str().or(result["kind"].as_str());
        assert_eq!(found, Some(kind), "{shown}");
    }
    // The limits that hold are those that are shown, and the same request with a key is the same delegation.
    let key: &[_] = &[("Idempotency-Key", "k")];
    let task = spend(1, json!({ "tokens": 1_000 }));
    let [first, again] = [bot.post("/v1/delegations", key, &task).await, bot.post("/v1/delegations", key, &task).await];
    assert_eq!((again.0, &first.1["request_id"]), (202, &again.1["request_id"]), "{again:?}");
    board.shutdown().await;
}

#[tokio::test]
async fn a_saved_workflow_is_listed_and_started() {
    let (board, _) = board().await;
    let local = Local::over(&board);
    let workflow = Workflow::builder("twice")
        .node(Node::agent("first", "echo"))
        .node(Node::agent("second", "echo").after("first"))
        .build()
        .unwrap();
    board.workflows().save(&workflow).await.unwrap();
    let listed = json!({ "workflows": [{ "name": "twice", "version": 1 }] });
    assert_eq!(local.get("/v1/workflows").await, (200, listed));
    let id = delegate(&board, &local, &json!({ "workflow": "twice", "body": "x", "input": 5 })).await;
    let shown = local.get(&format!("/v1/delegations/{id}")).await.1;
    assert_eq!((&shown["to_agent"], &shown["workflow"]), (&json!("echo"), &json!("twice")));
    let (_, ended) = local.get(&format!("/v1/delegations/{id}")).await;
    assert_eq!((&ended["status"], &ended["body"]), (&json!("complete"), &json!("x")), "{ended}");
    for (task, status) in [
        (json!({ "workflow": "twice", "to": "echo", "body": "x" }), 400),
        (json!({ "workflow": "no", "body": "x" }), 422),
    ] {
        assert_eq!(local.post("/v1/delegations", &[], &task).await.0, status, "{task}");
    }
    board.shutdown().await;
}

#[tokio::test]
async fn a_board_is_ready_until_it_stops() {
    let (board, _) = board().await;
    let local = Local::over(&board);
    board.recovered().await;
    assert_eq!(local.get("/v1/ready").await, (200, json!({ "status": "ok" })));
    board.shutdown().await;
    assert_eq!(local.get("/v1/ready").await.0, 503);
}

#[tokio::test]
async fn the_paths_of_the_first_version_answer_the_same() {
    let (board, _) = board().await;
    let local = Local::over(&board);
    let id = delegate(&board, &local, &json!({ "to": "echo", "body": "x" })).await;
    let there = local.get(&format!("/v1/delegations/{id}")).await;
    assert_eq!(local.get(&format!("/delegation-status?id={id}")).await, there);
    let events = text_of(local.open(&format!("/v1/delegations/{id}/events?modes=debug")).await).await;
    assert_eq!(text_of(local.open(&format!("/delegation-stream?id={id}&modes=debug")).await).await, events);
    for path in ["/delegation-status", "/delegation-stream", "/delegation-status?id=a&id=b", "/delegation-status?x=1"] {
        assert_eq!(local.get(path).await.0, 400, "{path}");
    }
    assert_eq!(local.get("/delegation-status?id=x").await.0, 404);
    board.shutdown().await;
}

#[tokio::test]
async fn a_page_and_a_status_cost_the_same_with_few_and_with_many_delegations() {
    let cost = async |delegations: usize| {
        let store = Arc::new(Counted::default());
        let echo = |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) };
        let asker = |turn: Turn| async move { Ok(Command::output(turn.people().ask("well?").await?)) };
        let board = Callboard::builder().storage(store.clone()).durability(Durability::Sync);
        let board = board.agent("echo", echo).agent("asker", asker).start().await.unwrap();
        let local = Local::over(&board);
        local.post("/v1/delegations", &[], &json!({ "to": "asker", "body": "x" })).await;
        board.people().next().await.unwrap();
        let mut last = String::new();
        for _ in 0..delegations {
            last = delegate(&board, &local, &json!({ "to": "echo", "body": "x" })).await;
        }
        // The open run is read once.
        local.get("/v1/delegations?limit=1").await;
        store.reads();
        let mut reads = Vec::new();
        let mut next = String::new();
        for (query, expected) in [("limit=5", 5), ("limit=5", 5), ("state=failed", 0), ("agent=asker", 1)] {
            let page = if query == "limit=5" { next.as_str() } else { "" };
            let (status, listed) = local.get(&format!("/v1/delegations?{query}{page}")).await;
            assert_eq!((status, ids(&listed).len()), (200, expected), "{query}");
            next = format!("&page={}", listed["next"].as_str().unwrap_or_default());
            reads.push(store.reads());
        }
        local.get(&format!("/v1/delegations/{last}")).await;
        reads.push(store.reads());
        board.shutdown().await;
        reads
    };
    let few = cost(20).await;
    let many = cost(300).await;
    assert_eq!(few[..2], many[..2], "pages");
    assert_eq!(few[4], many[4], "a status");
    let passes = |reads: &[usize]| reads[2..4].iter().map(|reads| *reads <= 10).collect::<Vec<_>>();
    assert_eq!((passes(&few), passes(&many)), (vec![true, true], vec![true, true]), "{few:?} {many:?}");
}

#[tokio::test]
async fn a_page_that_finds_nothing_passes_five_thousand_runs_and_names_the_next() {
    let (board, _) = board().await;
    let local = Local::over(&board);
    let failed = delegate(&board, &local, &json!({ "to": "fails", "body": "x" })).await;
    for _ in 0..5_001 {
        board.submit(Task::new("x").to("echo")).await.unwrap().result().await.unwrap();
    }
    let (_, first) = local.get("/v1/delegations?state=failed").await;
    assert!(ids(&first).is_empty(), "{first}");
    let next = first["next"].as_str().unwrap();
    let (_, second) = local.get(&format!("/v1/delegations?state=failed&page={next}")).await;
    assert_eq!((ids(&second), &second["next"]), (vec![failed], &Value::Null));
    board.shutdown().await;
}
