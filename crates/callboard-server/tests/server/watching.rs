//! Event streams of agents and of the whole tree.

use axum::body::BodyDataStream;
use axum::response::Response;
use callboard::Builder;
use callboard::prelude::*;
use callboard_server::Scope;
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::support::local::{self, Local};

/// A board whose lead notes something and delegates to a coder, which notes something too.
fn builder() -> Builder {
    Callboard::builder()
        .agent("lead", |turn: Turn| async move {
            turn.notice("begun");
            Ok(Command::output(turn.delegate("coder", "fix").await?))
        })
        .agent("coder", |turn: Turn| async move {
            turn.notice("fixing");
            Ok(Command::output("fixed"))
        })
}

/// An event as a client receives it.
#[derive(Debug, PartialEq)]
struct Received {
    kind: String,
    id: Option<String>,
    data: Value,
}

struct Events {
    body: BodyDataStream,
    text: String,
}

impl Events {
    fn new(response: Response) -> Self {
        assert_eq!(response.status().as_u16(), 200);
        Self { body: response.into_body().into_data_stream(), text: String::new() }
    }

    async fn next(&mut self) -> Received {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    event.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))).map(str::to_owned)
                };
                let received = Received {
                    kind: field("event").unwrap(),
                    id: field("id"),
                    data: serde_json::from_str(&field("data").unwrap()).unwrap(),
                };
                self.text = rest.to_owned();
                return received;
            }
            let bytes = self.body.next().await.expect("the stream has ended").unwrap();
            self.text += std::str::from_utf8(&bytes).unwrap();
        }
    }
}

#[tokio::test]
async fn the_stream_of_an_agent_has_the_events_of_its_turns_in_all_runs() {
    let board = builder().start().await.unwrap();
    let local = Local::with(&board, [Scope::Read]);
    let mut events = Events::new(local.open("/v1/agents/coder/events?modes=debug").await);
    let mut runs = Vec::new();
    for to in ["lead", "coder"] {
        let run = board.submit(Task::new("x").to(to)).await.unwrap();
        run.result().await.unwrap();
        runs.push(run.id().to_string());
    }
    for (run, kinds) in
        [(&runs[0], vec!["noticed", "turn_ended"]), (&runs[1], vec!["submitted", "noticed", "turn_ended"])]
    {
        for kind in kinds {
            let event = events.next().await;
            assert_eq!((event.kind.as_str(), &event.data["run"]), (kind, &json!(run)), "{event:?}");
            let (of, number) = event.id.as_deref().unwrap().split_once('/').unwrap();
            assert_eq!(of, run);
            // Its number in the stream of its run.
            let there = board.run(run.parse().unwrap()).history().await.unwrap();
            assert_eq!(
                there[number.parse::<usize>().unwrap() - 1].turn(),
                event.data["turn"].as_u64().map(|it| it as u32)
            );
        }
    }
    board.shutdown().await;
}

#[tokio::test]
async fn the_stream_of_the_tree_has_what_its_supervisors_do_and_the_events_of_all_runs() {
    let board = builder().start().await.unwrap();
    let local = Local::over(&board);
    let mut events = Events::new(local.open("/v1/tree/events?modes=messages").await);
    board.agents().spawn(AgentSpec::new("late", |_: Turn| async { Ok(Command::new()) })).await.unwrap();
    let started = events.next().await;
    assert_eq!((started.kind.as_str(), &started.id), ("tree", &None));
    assert_eq!(
        (&started.data["path"], &started.data["what"], &started.data["text"], &started.data["generation"]),
        (&json!("callboard/agents/late"), &json!("started"), &json!("started"), &json!(1))
    );
    board.submit(Task::new("x").to("lead")).await.unwrap().result().await.unwrap();
    let texts = [events.next().await.data["text"].clone(), events.next().await.data["text"].clone()];
    assert_eq!(texts, ["begun", "fixing"]);
    board.shutdown().await;
}

#[tokio::test]
async fn a_client_that_connects_again_learns_that_it_may_have_missed_events() {
    let board = builder().start().await.unwrap();
    let local = Local::over(&board);
    let id = "019a0000-0000-7000-8000-000000000001/7";
    for path in ["/v1/agents/coder/events", "/v1/tree/events"] {
        let again = local.request("GET", path, &[("Last-Event-ID", id)], "");
        let first = Events::new(local.send(again).await).next().await;
        assert_eq!(first, Received { kind: "missed".into(), id: None, data: json!({ "missed": null }) }, "{path}");
        for wrong in ["7", "x/7", "019a0000-0000-7000-8000-000000000001/x"] {
            let request = local.request("GET", path, &[("Last-Event-ID", wrong)], "");
            assert_eq!(local.send(request).await.status().as_u16(), 400, "{path} {wrong}");
        }
        assert_eq!(local.get(&format!("{path}?modes=all")).await.0, 400);
    }
    let (status, problem) = local.get("/v1/agents/nobody/events").await;
    assert_eq!((status, &problem["detail"]), (404, &json!("there is no agent nobody")));
    board.shutdown().await;
}

#[tokio::test]
async fn a_slow_client_of_an_agent_receives_how_many_events_it_missed_and_then_those_that_follow() {
    let board = builder().capacity(|it| it.watch_buffer(2)).start().await.unwrap();
    let local = Local::over(&board);
    let mut events = Events::new(local.open("/v1/agents/coder/events?modes=messages").await);
    for _ in 0..5 {
        board.submit(Task::new("x").to("coder")).await.unwrap().result().await.unwrap();
    }
    let mut kinds = Vec::new();
    for _ in 0..3 {
        let event = events.next().await;
        kinds.push(if event.kind == "missed" { event.data["missed"].to_string() } else { event.kind });
    }
    assert_eq!(kinds, ["noticed", "noticed", "3"]);
    board.submit(Task::new("x").to("coder")).await.unwrap().result().await.unwrap();
    assert_eq!(events.next().await.kind, "noticed");
    board.shutdown().await;
}

#[tokio::test]
async fn the_streams_of_agents_and_of_the_tree_end_with_the_board() {
    let board = builder().start().await.unwrap();
    let local = Local::over(&board);
    let streams = [local.open("/v1/agents/coder/events").await, local.open("/v1/tree/events").await];
    board.shutdown().await;
    for stream in streams {
        local::text_of(stream).await;
    }
}
