//! Requests, and what becomes of them.

use std::time::Duration;

use callboard::messages::RunId;
use serde_json::json;

use super::crew::{Crew, REQUEST, STATUS, WRITER, server};
use crate::fake::ANN;

#[tokio::test]
async fn a_request_of_a_program_is_acknowledged_and_completed_in_the_name_of_the_token_of_its_person() {
    let crew = Crew::start().await;
    let content = json!({
        "request_id": "req-1", "from_agent": "root", "to_agent": "admin", "trace_id": "t-1", "body": "look", "gitlab_ref": "a/b#1",
        "input": { "page": 7 },
    });
    let event = crew.requests(ANN, content);
    let complete = crew.status(&event, "complete").await;
    assert_eq!(crew.names(&event), ["ack", "complete"]);
    let expected = json!({
        "request_id": "req-1", "from_agent": "writer", "to_agent": "ann", "status": "complete", "detail": "finished",
        "run": complete["run"], "trace_id": "t-1", "body": "{\n  \"page\": 7\n}",
        "m.relates_to": { "rel_type": "m.reference", "event_id": event },
    });
    assert_eq!(complete, expected);
    let run = crew.run(&complete).read().await.unwrap();
    let task = &run.submission().task;
    assert_eq!(task.from_agent.as_ref().map(|name| name.as_str()), Some("laptop"));
    assert_eq!((&*task.body, task.reference.as_deref(), task.is_untrusted), ("look", Some("a/b#1"), true));
    assert_eq!((task.to.as_deref(), run.submission().agent.as_str()), (Some("writer"), "writer"));
    crew.end().await;
}

#[tokio::test]
async fn requests_and_statuses_are_those_of_the_guide() {
    let guide = include_str!("../../../../../docs/matrix.md");
    let mut blocks = guide.split("```json\n").skip(2).map(|rest| rest.split("```").next().unwrap());
    let mut block = || serde_json::from_str::<serde_json::Value>(blocks.next().unwrap()).unwrap();
    let (request, mut expected) = (block(), block());
    let crew = Crew::start().await;
    let event = crew.requests(ANN, request.clone());
    let complete = crew.status(&event, "complete").await;
    for key in ["run", "body", "m.relates_to", "from_agent"] {
        assert!(!expected[key].is_null());
        expected[key] = complete[key].clone();
    }
    assert_eq!(complete, expected);
    let run = crew.run(&complete).read().await.unwrap();
    assert_eq!(run.submission().task.reference.as_deref(), request["reference"].as_str());
    crew.end().await;
}

#[tokio::test]
async fn a_message_is_a_task_too_and_is_answered_by_replies() {
    let crew = Crew::start().await;
    let event = crew.writes(ANN, "write a poem");
    let complete = crew.status(&event, "complete").await;
    assert_eq!((&complete["body"], &complete["msgtype"]), (&json!("write a poem"), &json!("m.notice")));
    assert_eq!((&complete["request_id"], &complete["to_agent"]), (&json!(event), &json!("ann")));
    let run = complete["run"].as_str().unwrap();
    let ack = crew.status(&event, "ack").await;
    assert_eq!(ack["body"], format!("writer has accepted it as run {run}"));
    let mentions = crew.server.state.lock().sent[0].content["m.mentions"].clone();
    assert_eq!(mentions, json!({}), "nobody is notified by a name in it");
    crew.end().await;
}

#[tokio::test]
async fn news_and_what_a_run_waits_for_are_notices_and_a_failure_has_its_reason() {
    let crew = Crew::start().await;
    let event = crew.writes(ANN, "ask");
    let notice = crew.status(&event, "notice").await;
    let run = crew.run(&notice);
    let asked = run.next_pending().await.unwrap().unwrap();
    let expected =
        format!("waits for a decision: writer asks: Which \\u{{202e}}one?\ncallboard pending {}", asked.id());
    assert_eq!(notice["body"], expected);
    crew.answer(&run, "this one").await;
    assert_eq!(crew.status(&event, "complete").await["body"], "this one");
    assert_eq!(crew.names(&event), ["ack", "notice", "complete"]);

    let event = crew.requests(ANN, json!({ "body": "fail" }));
    let fail = crew.status(&event, "fail").await;
    assert!(
        fail["body"].as_str().unwrap().starts_with("failed: ")
            && fail["detail"].as_str().unwrap().contains("no \\u{202e}paper"),
        "{fail}"
    );
    assert_eq!(fail["request_id"], event, "it has no id of its own");
    let event = crew.writes(ANN, "nothing");
    assert_eq!(crew.status(&event, "complete").await["body"], "finished, without an output");
    crew.end().await;
}

#[tokio::test]
async fn of_many_news_the_newest_is_sent_once_in_a_while() {
    let crew = Crew::on(server(), |config| config.notices_every(Duration::from_secs(3_600))).await;
    let event = crew.writes(ANN, "report");
    let notice = crew.status(&event, "notice").await;
    let run = crew.run(&notice);
    crew.answer(&run, "yes").await;
    run.next_pending().await.unwrap().unwrap();
    crew.server.received().await;
    crew.answer(&run, "yes").await;
    crew.status(&event, "complete").await;
    assert_eq!(crew.names(&event), ["ack", "notice", "complete"]);
    crew.end().await;

    let crew = Crew::start().await;
    let event = crew.writes(ANN, "report");
    for question in ["Go on?", "Enough?"] {
        let newest = crew.server.found(|served| {
            let statuses = super::crew::statuses(served, &event);
            statuses.into_iter().find(|status| status["body"].as_str().is_some_and(|body| body.contains(question)))
        });
        let run = crew.run(&newest.await);
        crew.answer(&run, "yes").await;
    }
    crew.status(&event, "complete").await;
    crew.end().await;
}

#[tokio::test]
async fn a_long_output_is_cut_and_says_where_all_of_it_is() {
    let crew = Crew::on(server(), |config| config.how_to_see(|run: &RunId| format!("see {run}"))).await;
    let event = crew.requests(ANN, json!({ "body": "x", "input": "ab".repeat(15_000) }));
    let complete = crew.status(&event, "complete").await;
    let (body, run) = (complete["body"].as_str().unwrap(), complete["run"].as_str().unwrap());
    assert!(
        body.chars().count() < 12_500 && body.contains(&format!("more characters; all of it: see {run}")),
        "{body}"
    );
    crew.end().await;
}

#[tokio::test]
async fn the_types_of_events_are_those_of_the_settings() {
    let crew = Crew::on(server(), |config| config.event_prefix("org.example")).await;
    let ignored = crew.requests(ANN, json!({ "body": "x" }));
    let event = crew.server.sends(ANN, WRITER, "org.example.request", json!({ "body": "x" }));
    let answered = |kind: &str| {
        let kind = kind.to_owned();
        crew.server.found(move |served| served.sent.iter().filter(|sent| sent.kind == kind).nth(1).cloned())
    };
    assert_eq!(answered("org.example.status").await.content["m.relates_to"]["event_id"], event);
    assert!(crew.names(&ignored).is_empty() && REQUEST != STATUS);
    let role =
        crew.server.found(|served| served.states.keys().find(|[_, kind, _]| kind == "org.example.role").cloned());
    assert_eq!(role.await[0], WRITER);
    crew.end().await;
}
