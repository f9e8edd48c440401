//! Events that nobody should have sent, or a server should not have: they start nothing.

use std::os::unix::fs::PermissionsExt as _;

use callboard_channels::matrix::AgentRooms;
use serde_json::json;

use super::crew::{Crew, REQUEST, WRITER, config, server, statuses};
use crate::fake::{ANN, BOB, BOT, EVE};
use crate::logs::Logs;

/// How many runs there are.
async fn runs(crew: &Crew) -> usize {
    crew.board.runs().await.unwrap().len()
}

#[tokio::test]
async fn who_is_not_listed_or_has_no_such_token_gets_a_failure_whoever_the_content_names() {
    let (logs, _guard) = Logs::start();
    let crew = Crew::start().await;
    let claims = json!({ "body": "look", "from_agent": "ann", "sender": ANN, "person": "ann", "request_id": "req-1" });
    let event = crew.requests(EVE, claims.clone());
    let fail = crew.status(&event, "fail").await;
    assert_eq!((&fail["detail"], &fail["to_agent"]), (&json!("this account may not give tasks here"), &json!(EVE)));
    assert_eq!((&fail["request_id"], &fail["run"]), (&json!("req-1"), &json!(null)));
    let event = crew.writes(EVE, "look");
    assert_eq!(crew.status(&event, "fail").await["body"], "failed: this account may not give tasks here");
    let event = crew.requests(BOB, claims);
    let why = "bob has no token with the scope delegate for writer";
    assert_eq!(crew.status(&event, "fail").await["detail"], why);
    for account in ["@ann:example.com", "@Ann:example.org", "@ann:example.org:8448", "ann"] {
        let event = crew.requests(account, json!({ "body": "look" }));
        crew.status(&event, "fail").await;
    }
    // The account itself.
    let own = crew.writes(BOT, "look");
    crew.server.received().await;
    assert!(crew.names(&own).is_empty());
    assert_eq!(runs(&crew).await, 0);
    let text = logs.text();
    let audit: Vec<&str> = text.lines().filter(|line| line.contains("callboard::audit")).collect();
    assert!(
        audit.iter().any(|line| line.contains("refused") && line.contains(&format!("account=\"{EVE}\""))),
        "{text}"
    );
    assert!(audit.iter().any(|line| line.contains("refused") && line.contains(why)), "{text}");
    crew.end().await;
}

#[tokio::test]
async fn edits_redactions_replies_and_states_change_and_start_nothing() {
    let crew = Crew::start().await;
    let event = crew.writes(ANN, "ask");
    let run = crew.run(&crew.status(&event, "ack").await);
    let sends = |kind: &str, content| crew.server.sends(ANN, WRITER, kind, content);
    let edit = json!({ "rel_type": "m.replace", "event_id": event });
    let message = json!({ "msgtype": "m.text", "body": "other" });
    sends(
        "m.room.message",
        json!({ "msgtype": "m.text", "body": "* other", "m.new_content": message, "m.relates_to": edit }),
    );
    sends(REQUEST, json!({ "body": "other", "m.relates_to": edit }));
    sends("m.room.redaction", json!({ "redacts": event }));
    sends(
        "m.room.message",
        json!({ "msgtype": "m.text", "body": "ok", "m.relates_to": { "m.in_reply_to": { "event_id": event } } }),
    );
    sends("m.room.message", json!({ "msgtype": "m.notice", "body": "other" }));
    crew.server.change(|served| {
        served.add(WRITER, json!({ "type": REQUEST, "state_key": "", "sender": ANN, "content": { "body": "x" } }));
        let redacted = json!({ "redacted_because": { "type": "m.room.redaction" } });
        served.add(WRITER, json!({ "type": REQUEST, "sender": ANN, "content": {}, "unsigned": redacted }));
        // In a room that is no agent's.
        served.join("!other:example.org");
        served.add("!other:example.org", json!({ "type": REQUEST, "sender": ANN, "content": { "body": "x" } }));
    });
    crew.server.received().await;
    crew.answer(&run, "done").await;
    assert_eq!(crew.status(&event, "complete").await["body"], "done");
    assert_eq!(runs(&crew).await, 1);
    assert_eq!(crew.names(&event), ["ack", "notice", "complete"]);
    assert_eq!(crew.server.state.lock().sent.len(), 3, "the others are not answered either");
    crew.end().await;
}

#[tokio::test]
async fn a_server_that_repeats_everything_starts_nothing_twice_and_answers_nothing_twice() {
    let crew = Crew::start().await;
    let events = [crew.writes(ANN, "look"), crew.requests(EVE, json!({ "body": "look" }))];
    crew.status(&events[0], "complete").await;
    crew.status(&events[1], "fail").await;
    crew.server.received().await;
    let sent = crew.server.state.lock().calls["send"];
    crew.server.change(|served| served.repeats = true);
    let before = crew.server.state.lock().calls["sync"];
    crew.server.found(|served| (served.calls["sync"] > before + 3).then_some(())).await;
    assert_eq!(crew.server.state.lock().calls["send"], sent);
    assert_eq!(runs(&crew).await, 1);
    assert_eq!([crew.names(&events[0]), crew.names(&events[1])].concat(), ["ack", "complete", "fail"]);
    crew.end().await;
}

#[tokio::test]
async fn what_was_written_before_the_account_has_joined_is_no_request() {
    let server = server();
    let early = server.sends(ANN, WRITER, "m.room.message", json!({ "msgtype": "m.text", "body": "early" }));
    let crew = Crew::on(server, |config| config).await;
    let first = crew.writes(ANN, "look");
    crew.status(&first, "complete").await;
    crew.server.received().await;
    // It leaves, somebody writes, and it is back: one answer has all of it.
    let between = crew.server.change(|served| {
        served.joined.remove(WRITER);
        let message =
            json!({ "type": "m.room.message", "sender": ANN, "content": { "msgtype": "m.text", "body": "x" } });
        let between = served.add(WRITER, message);
        served.join(WRITER);
        between
    });
    let later = crew.writes(ANN, "later");
    crew.status(&later, "complete").await;
    assert!(crew.names(&early).is_empty() && crew.names(&between).is_empty());
    assert_eq!(runs(&crew).await, 2);
    crew.end().await;
}

#[tokio::test]
async fn what_cannot_be_read_or_is_too_large_fails_with_what_is_wrong_with_it() {
    let crew = Crew::start().await;
    for (content, expected) in [
        (json!({}), "it has no text `body`"),
        (json!([7]), "it has no text `body`"),
        (json!({ "body": "" }), "its `body` is empty"),
        (json!({ "body": "a".repeat(40_000) }), "its `body` has 40000 bytes, and 32768 are the most"),
        (json!({ "body": "a".repeat(70_000) }), "its content cannot be read"),
        (json!({ "body": "a", "request_id": "\u{7}" }), "its `request_id` is not a line of 1 to 200 bytes"),
    ] {
        let event = crew.requests(ANN, content);
        assert_eq!(crew.status(&event, "fail").await["detail"], expected);
    }
    assert_eq!(runs(&crew).await, 0);
    crew.end().await;
}

#[tokio::test]
async fn a_flood_leaves_open_requests_and_refusals_bounded_and_others_are_served() {
    let crew = Crew::start().await;
    let asking: Vec<String> = (0..40).map(|_| crew.writes(ANN, "ask")).collect();
    let why = "too many requests of this account are open: 32 are the most";
    let refused = crew.server.found(|served| {
        let fails = |event: &&String| statuses(served, event).iter().any(|status| status["detail"] == why);
        let refused = asking.iter().filter(fails).count();
        (refused == 8).then_some(refused)
    });
    refused.await;
    for _ in 0..400 {
        crew.requests(EVE, json!({ "body": "x".repeat(1_000) }));
    }
    crew.server.received().await;
    assert_eq!(runs(&crew).await, 32);
    let run = crew.run(&crew.status(&asking[0], "ack").await);
    crew.answer(&run, "done").await;
    crew.status(&asking[0], "complete").await;
    let last = crew.writes(ANN, "look");
    crew.status(&last, "complete").await;
    let kept = crew.folder.path().join("matrix/matrix-agents.json");
    assert!(kept.metadata().unwrap().len() < 300_000);
    crew.end().await;
}

#[tokio::test]
async fn a_board_that_is_full_refuses_with_that_reason() {
    let crew = Crew::of_one_run().await;
    let first = crew.writes(ANN, "ask");
    let run = crew.run(&crew.status(&first, "ack").await);
    let second = crew.writes(ANN, "look");
    let fail = crew.status(&second, "fail").await;
    assert!(fail["detail"].as_str().unwrap().starts_with("the board is overloaded"), "{fail}");
    crew.answer(&run, "done").await;
    crew.status(&first, "complete").await;
    assert_eq!(crew.names(&second), ["fail"]);
    crew.end().await;
}

#[tokio::test]
async fn hostile_texts_are_shown_as_what_they_are() {
    let crew = Crew::start().await;
    let hostile = "<b>done</b> <a href=\"https://evil.example\">@ann</a> \u{202e}\u{200b}\u{1b}[31m";
    let event = crew.requests(ANN, json!({ "body": "x", "input": hostile }));
    let complete = crew.status(&event, "complete").await;
    let shown = "<b>done</b> <a href=\"https://evil.example\">@ann</a> \\u{202e}\\u{200b}\\u{1b}[31m";
    assert_eq!(complete["body"], shown);
    let event = crew.writes(ANN, hostile);
    assert_eq!(crew.status(&event, "complete").await["body"], shown);
    let sent = crew.server.state.lock().sent.clone();
    assert!(
        sent.iter().all(|sent| sent.content.get("formatted_body").is_none() && sent.content.get("format").is_none())
    );
    crew.end().await;
}

#[tokio::test]
async fn what_is_kept_is_of_this_user_alone_and_has_no_token() {
    let crew = Crew::start().await;
    let event = crew.writes(ANN, "look");
    crew.status(&event, "complete").await;
    let folder = crew.folder.path().join("matrix");
    let file = folder.join("matrix-agents.json");
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&file)), (0o700, 0o600));
    assert!(!std::fs::read_to_string(&file).unwrap().contains("CANARY"));
    let (server, _, folder) = crew.end().await;
    std::fs::write(&file, "{").unwrap();
    let refused = AgentRooms::open(config(&server, folder.path())).unwrap_err().to_string();
    assert!(
        refused.contains("matrix-agents.json") && refused.ends_with("requests that are open are not answered"),
        "{refused}"
    );
}
