//! A process that ends in the middle of a request, and one that does not reach the server.

use callboard_channels::matrix::MatrixState;
use serde_json::json;

use super::crew::Crew;
use crate::fake::{ANN, Failing};

#[tokio::test]
async fn the_next_process_sends_the_end_of_a_request_once() {
    let crew = Crew::start().await;
    let event = crew.writes(ANN, "ask");
    crew.status(&event, "notice").await;
    crew.server.received().await;
    let (server, store, folder) = crew.end().await;
    let crew = Crew::again(server, store, folder, |config| config).await;
    let run = crew.run(&crew.status(&event, "ack").await);
    crew.answer(&run, "done").await;
    assert_eq!(crew.status(&event, "complete").await["body"], "done");
    crew.server.received().await;
    assert_eq!(crew.names(&event), ["ack", "notice", "complete"]);
    assert_eq!(crew.board.runs().await.unwrap().len(), 1);
    crew.end().await;
}

#[tokio::test]
async fn a_board_that_ends_first_leaves_its_requests_to_the_next_process() {
    let crew = Crew::start().await;
    let event = crew.writes(ANN, "ask");
    let run = crew.run(&crew.status(&event, "notice").await);
    crew.board.shutdown().await;
    crew.server.received().await;
    // What is asked of it now is not refused either.
    let other = crew.writes(ANN, "look");
    let (server, store, folder) = crew.end().await;
    let crew = Crew::again(server, store, folder, |config| config).await;
    crew.answer(&crew.board.run(run.id()), "done").await;
    crew.status(&event, "complete").await;
    crew.status(&other, "complete").await;
    assert_eq!([crew.names(&event), crew.names(&other)].concat(), ["ack", "notice", "complete", "ack", "complete"]);
    crew.end().await;
}

#[tokio::test]
async fn an_event_that_was_submitted_and_not_noted_finds_its_run() {
    let crew = Crew::start().await;
    let first = crew.writes(ANN, "look");
    crew.status(&first, "complete").await;
    crew.server.received().await;
    let file = crew.folder.path().join("matrix/matrix-agents.json");
    let before = std::fs::read(&file).unwrap();
    let event = crew.writes(ANN, "ask");
    let run = crew.run(&crew.status(&event, "notice").await);
    let (server, store, folder) = crew.end().await;
    // The file is that of a process that has ended before it wrote anything of this.
    std::fs::write(&file, before).unwrap();
    let crew = Crew::again(server, store, folder, |config| config).await;
    crew.server.received().await;
    crew.answer(&crew.board.run(run.id()), "done").await;
    assert_eq!(crew.status(&event, "complete").await["run"], run.id().to_string());
    assert_eq!(crew.board.runs().await.unwrap().len(), 2);
    assert_eq!(crew.names(&event).iter().filter(|name| *name == "ack").count(), 1, "each has a transaction");
    crew.end().await;
}

#[tokio::test]
async fn a_status_whose_answer_was_lost_is_there_once_and_requests_wait_for_the_server() {
    let crew = Crew::start().await;
    crew.server.change(|served| served.failing = Failing::LosesAnswers);
    let event = crew.requests(ANN, json!({ "body": "look" }));
    // It is sent again.
    crew.server.found(|served| (served.calls.get("send") > Some(&2)).then_some(())).await;
    crew.server.change(|served| served.failing = Failing::With(502));
    crew.state(|state| matches!(state, MatrixState::Unreachable { .. })).await;
    let other = crew.requests(ANN, json!({ "body": "other" }));
    crew.server.change(|served| served.failing = Failing::No);
    crew.status(&event, "complete").await;
    crew.status(&other, "complete").await;
    assert_eq!([crew.names(&event), crew.names(&other)].concat(), ["ack", "complete", "ack", "complete"]);
    crew.end().await;
}

#[tokio::test]
async fn what_sync_leaves_out_is_read_from_the_history_of_the_room() {
    let crew = Crew::start().await;
    let first = crew.writes(ANN, "look");
    crew.status(&first, "complete").await;
    let (server, store, folder) = crew.end().await;
    let events: Vec<String> = (0..120)
        .map(|number| {
            let message = json!({ "msgtype": if number % 10 == 0 { "m.text" } else { "m.notice" }, "body": "look" });
            server.sends(ANN, super::crew::WRITER, "m.room.message", message)
        })
        .collect();
    let crew = Crew::again(server, store, folder, |config| config).await;
    for event in events.iter().step_by(10) {
        crew.status(event, "complete").await;
    }
    assert_eq!(crew.board.runs().await.unwrap().len(), 13);
    crew.end().await;
}
