//! What is mailed, and to whom.

use std::sync::Arc;
use std::time::Duration;

use callboard::messages::{AgentName, Consent, Deciders, Escalation, Groups};
use callboard::prelude::*;
use serde_json::json;

use crate::team::{ANN, BOB, Team};

const LEA: &str = "lea@example.org";

#[tokio::test]
async fn each_person_gets_one_mail_with_the_page_and_then_who_decided_in_the_same_thread() {
    let team = Team::start().await;
    let (run, asked) = team.ask("order 7", json!({ "amount": "70 CANARY" })).await;
    let mail = team.smtp.asked(ANN, "order 7").await;
    let text = mail.text();
    for part in [
        "clerk asks whether it may do pay order 7, in the run ",
        &format!("── approval {} ──\nagent     clerk\naction    pay\ntarget    order 7\n", asked.id()),
        &format!("\nTo decide, sign in at\nhttps://board.example.org/?run={}\n", run.id()),
        &format!("\nAt a terminal of the server: callboard pending approval:{}\n", asked.id()),
        "\nIf nobody has decided by 20",
        " UTC, it is denied.\n",
        "\nNothing can be decided by an answer to this mail",
        "\n(The arguments are not in this mail; they are shown where it is decided.)\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert!(!text.contains("CANARY") && !text.contains("amount"), "{text}");
    assert_eq!((&*mail.from, &*mail.header("To")), ("board@example.org", ANN));
    let id = format!("<{}.asked@example.org>", asked.id());
    assert_eq!(
        (mail.header("Message-ID"), mail.header("Subject")),
        (id.clone(), "Approval: pay order 7 by clerk".into())
    );
    assert_eq!(mail.header("Auto-Submitted"), "auto-generated");
    assert_eq!(mail.header("Content-Type"), "text/plain; charset=utf-8");
    assert!(mail.header("From").contains("the board") && mail.header("Date").ends_with(" +0000"), "{}", mail.raw);
    team.smtp.asked(BOB, "order 7").await;

    team.board.people().deny(asked.id(), "ann", "not on a Friday\u{202e}").await.unwrap();
    for to in [ANN, BOB] {
        let closed = team.smtp.closed(to, "order 7").await;
        assert!(closed.text().starts_with("denied by ann at 20"), "{}", closed.text());
        assert!(closed.text().contains(": not on a Friday\\u{202e}\n"), "{}", closed.text());
        assert_eq!((closed.header("In-Reply-To"), closed.header("References")), (id.clone(), id.clone()));
        assert_eq!(closed.header("Subject"), "Re: Approval: pay order 7 by clerk");
        assert_eq!(closed.header("Message-ID"), format!("<{}.closed@example.org>", asked.id()));
    }
    assert_eq!(team.smtp.served.lock().mails.len(), 4);
    team.board.shutdown().await;
}

#[tokio::test]
async fn arguments_are_mailed_where_that_is_wanted() {
    let team = Team::with(|config| config.with_arguments(), |board| board).await;
    team.ask("order 8", json!({ "amount": "70\u{202e}" })).await;
    let text = team.smtp.asked(ANN, "order 8").await.text();
    assert!(text.contains("\"amount\": \"70\\u{202e}\"") && !text.contains("not in this mail"), "{text}");
    team.board.shutdown().await;
}

/// A board whose approvals are decided by the group `ops`, after this time also by `leads`, and by nobody who has asked for it.
async fn team_of_ops(after: Duration) -> Team {
    let escalation = Some(Escalation { after, group: "leads".into() });
    let deciders = Arc::new(Deciders { excludes_requester: true, escalation, ..Deciders::of("ops") });
    let groups = Groups::default().group("ops", ["ann", "bob"]).group("leads", ["lea"]);
    Team::with(
        |config| config.person(LEA, "lea").person("eve@example.org", "eve"),
        |board| {
            board
                .groups(groups)
                .approval_policy(move |_| Consent::AskOf { deciders: Arc::clone(&deciders), within: None })
        },
    )
    .await
}

#[tokio::test]
async fn only_those_who_may_decide_are_asked() {
    let team = team_of_ops(Duration::from_secs(3600)).await;
    let task = Task::new("pay").input(json!(["order 9", {}])).from_agent(AgentName::new("bob").unwrap());
    let (_, asked) = team.submit(task, "order 9").await;
    let mail = team.smtp.asked(ANN, "order 9").await;
    assert!(mail.text().contains(", which bob has asked for.\n"), "{}", mail.text());
    team.board.people().approve(asked.id(), "ann").await.unwrap();
    team.smtp.closed(ANN, "approved by ann").await;
    let to: Vec<String> = team.smtp.served.lock().mails.iter().map(|mail| mail.to.clone()).collect();
    assert_eq!(to, [ANN, ANN], "bob has asked for it, and the others are in no such group");
    team.board.shutdown().await;
}

#[tokio::test]
async fn the_people_of_the_next_group_are_asked_when_they_may_decide() {
    let team = team_of_ops(Duration::from_millis(100)).await;
    let (_, asked) = team.ask("order 10", json!({})).await;
    for to in [ANN, BOB, LEA] {
        team.smtp.asked(to, "order 10").await;
    }
    team.board.people().approve(asked.id(), "lea").await.unwrap();
    for to in [ANN, BOB, LEA] {
        team.smtp.closed(to, "approved by lea").await;
    }
    let mails = team.smtp.served.lock().mails.len();
    assert_eq!(mails, 6, "each of them once, and none to anybody else");
    team.board.shutdown().await;
}
