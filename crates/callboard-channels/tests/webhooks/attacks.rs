//! Deliveries that nobody should have sent: nothing is decided, and the audit log has why.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use callboard::messages::{ApprovalId, PendingId};
use callboard::prelude::*;
use callboard_channels::webhooks::{Refused, Webhook, WebhookChannel, WebhookSecret};
use serde_json::{Value, json};

use crate::logs::Logs;
use crate::relay::Relay;
use crate::team::{OTHER, SECRET, Team, config, decision, headers, new_id, now, send_as, webhook};

/// The events of the audit log about deliveries.
fn refusals(logs: &Logs) -> Vec<String> {
    let text = logs.text();
    text.lines()
        .filter(|line| line.contains("callboard::audit") && line.contains("refused"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn a_forged_signature_is_refused() {
    let team = Team::start().await;
    let (_, asked) = team.ask("order 1", json!({})).await;
    let body = decision(&team.relay.opened("order 1").await, "ann", true).to_string();
    let at = now().as_millis() / 1_000;
    let sound = headers(SECRET, "m", at, body.as_bytes());
    assert!(team.receiver.check("relay", &sound, body.as_bytes(), now()).is_ok());
    assert!(team.receiver.check("nobody", &sound, body.as_bytes(), now()).is_err());
    assert!(team.receiver.check("relay", &sound, body.replace("ann", "bob").as_bytes(), now()).is_err());
    for (secret, id, signed) in [(OTHER, "m", &*body), (SECRET, "n", &*body), (SECRET, "m", "{}")] {
        let mut forged = headers(secret, id, at, signed.as_bytes());
        forged.insert("webhook-id", "m".parse().unwrap());
        let refused = team.receiver.check("relay", &forged, body.as_bytes(), now());
        assert_eq!(refused, Err("webhook-signature has no signature of this delivery"));
    }
    // A name without a webhook has the key of nobody.
    let nobodys = callboard_signatures::secret_of([0; 32]);
    let forged = headers(&nobodys, "m", at, body.as_bytes());
    assert!(team.receiver.check("nobody", &forged, body.as_bytes(), now()).is_err());
    assert_eq!(team.decision(&asked).await, None);
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_time_that_is_not_that_of_the_clock_is_refused() {
    let team = Team::start().await;
    let (_, asked) = team.ask("order 1", json!({})).await;
    let body = decision(&team.relay.opened("order 1").await, "ann", true).to_string();
    let (clock, at) = (now(), now().as_millis() / 1_000);
    for (time, is_accepted) in [(at - 290, true), (at + 290, true), (at - 310, false), (at + 310, false)] {
        let signed = headers(SECRET, "m", time, body.as_bytes());
        let checked = team.receiver.check("relay", &signed, body.as_bytes(), clock);
        assert_eq!(checked.is_ok(), is_accepted, "{checked:?}");
    }
    assert_eq!(team.decision(&asked).await, None);
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_repeated_delivery_is_refused_and_by_the_next_process_too() {
    let (logs, _guard) = Logs::start();
    let team = Team::start().await;
    let (_, first) = team.ask("order 1", json!({})).await;
    let (_, second) = team.ask("order 2", json!({})).await;
    let (one, two) = (team.relay.opened("order 1").await, team.relay.opened("order 2").await);
    let id = new_id();
    let send = async |body: &Value| send_as(&team.receiver, ("relay", SECRET), &id, body).await;
    assert!(send(&decision(&one, "ann", true)).await.unwrap().is_decided);
    for body in [decision(&one, "ann", true), decision(&two, "ann", true)] {
        assert!(matches!(send(&body).await, Err(Refused::Repeated)));
    }
    assert_eq!(team.decision(&second).await, None);
    assert!(refusals(&logs).iter().all(|line| line.contains("a delivery with this id was received before")));
    assert_eq!(refusals(&logs).len(), 2);
    team.board.shutdown().await;
    let relay = &team.relay;
    let next = WebhookChannel::open(config(team.folder.path()).webhook(webhook("relay", relay))).unwrap();
    let again = send_as(&next.receiver(), ("relay", SECRET), &id, &decision(&one, "ann", true)).await;
    assert!(matches!(again, Err(Refused::Repeated)), "{again:?}");
    let late = send_as(&next.receiver(), ("relay", SECRET), &new_id(), &decision(&one, "ann", false)).await;
    assert!(matches!(&late, Err(Refused::Closed(outcome)) if outcome.contains("approved by ann")), "{late:?}");
    assert!(first.expires_at > now());
}

#[tokio::test]
async fn a_delivery_that_the_board_could_not_take_may_be_repeated() {
    let team = Team::start().await;
    team.ask("order 1", json!({})).await;
    let body = decision(&team.relay.opened("order 1").await, "ann", true);
    team.ask("order 2", json!({})).await;
    team.relay.opened("order 2").await;
    // A process that has not started its board yet.
    let relay = &team.relay;
    let next = tempfile::tempdir().unwrap();
    std::fs::create_dir(next.path().join("webhooks")).unwrap();
    std::fs::set_permissions(next.path().join("webhooks"), std::fs::Permissions::from_mode(0o700)).unwrap();
    let file = "webhooks/webhooks.json";
    std::fs::copy(team.folder.path().join(file), next.path().join(file)).unwrap();
    let next = WebhookChannel::open(config(next.path()).webhook(webhook("relay", relay))).unwrap();
    for _ in 0..2 {
        let refused = send_as(&next.receiver(), ("relay", SECRET), "again", &body).await;
        assert!(matches!(refused, Err(Refused::Unavailable)), "{refused:?}");
    }
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_webhook_speaks_for_its_own_people_alone() {
    let (logs, _guard) = Logs::start();
    let (relay, other) = (Relay::start(SECRET), Relay::start(OTHER));
    let of_other = Webhook::new("other", &other.url(), WebhookSecret::new(OTHER).unwrap()).person("carl");
    let team = Team::with(&relay, |config| config.webhook(webhook("relay", &relay)).webhook(of_other)).await;
    let (_, asked) = team.ask("order 1", json!({})).await;
    let (mine, theirs) = (relay.opened("order 1").await, other.opened("order 1").await);
    for person in ["carl", "eve", "", "ANN", "ann ", "owner", "expiry"] {
        let refused = team.send(&decision(&mine, person, true)).await;
        assert!(matches!(refused, Err(Refused::Unlisted)), "{person:?}: {refused:?}");
    }
    // The nonce of one webhook is not that of another.
    let crossed = send_as(&team.receiver, ("other", OTHER), &new_id(), &decision(&mine, "carl", true)).await;
    assert!(matches!(crossed, Err(Refused::Unknown)), "{crossed:?}");
    assert_eq!(team.decision(&asked).await, None);
    let audit = refusals(&logs);
    assert!(
        audit.iter().any(|line| line.contains("person=\"eve\"") && line.contains("webhook=\"relay\"")),
        "{audit:?}"
    );
    let decided = send_as(&team.receiver, ("other", OTHER), &new_id(), &decision(&theirs, "carl", false)).await;
    assert!(decided.unwrap().is_decided);
    assert_eq!(&*team.decision(&asked).await.unwrap().by, "carl");
    team.board.shutdown().await;
}

#[tokio::test]
async fn the_hash_and_the_nonce_are_those_of_one_message() {
    let (logs, _guard) = Logs::start();
    let team = Team::start().await;
    let (_, first) = team.ask("order 1", json!({})).await;
    let (_, second) = team.ask("order 2", json!({})).await;
    let one = decision(&team.relay.opened("order 1").await, "ann", true);
    let two = decision(&team.relay.opened("order 2").await, "ann", true);
    let with = |key: &str, value: Value| {
        let mut body = one.clone();
        body[key] = value;
        body
    };
    let mut guessed = one["nonce"].as_str().unwrap().to_owned();
    guessed.replace_range(..1, if guessed.starts_with('0') { "1" } else { "0" });
    let unknown = PendingId::Approval(ApprovalId([7; 32])).to_string();
    for body in [
        with("approval", two["approval"].clone()),
        with("nonce", two["nonce"].clone()),
        with("nonce", guessed.into()),
        with("nonce", "".into()),
        with("approval", unknown.into()),
    ] {
        let refused = team.send(&body).await;
        assert!(matches!(refused, Err(Refused::Unknown)), "{body}: {refused:?}");
    }
    assert_eq!((team.decision(&first).await, team.decision(&second).await), (None, None));
    let audit = refusals(&logs);
    assert!(
        audit.len() == 5 && audit.iter().all(|line| line.contains("was not sent an approval with this")),
        "{audit:?}"
    );
    team.board.shutdown().await;
}

#[tokio::test]
async fn bodies_of_another_form_are_refused_with_what_is_wrong() {
    let team = Team::start().await;
    let (_, asked) = team.ask("order 1", json!({})).await;
    let sound = decision(&team.relay.opened("order 1").await, "ann", true);
    let with = |key: &str, value: Value| {
        let mut body = sound.clone();
        body[key] = value;
        body
    };
    for (body, expected) in [
        (json!([]), "invalid length 0"),
        (json!({}), "missing field `approval`"),
        (with("response", "maybe".into()), "unknown variant `maybe`"),
        (with("response", json!(true)), "invalid type: boolean"),
        (with("approval", "order 1".into()), "`approval` is none, as messages have it"),
        (with("approval", format!("node:{}/1", asked.request.turn.run).into()), "`approval` is none"),
        (with("reason", "since".into()), "a `reason` is that of a denial"),
        (with("for_run", json!(true)), "unknown field `for_run`"),
        (with("\u{202e}", json!(1)), "unknown field `\\u{202e}`"),
    ] {
        let refused = team.send(&body).await;
        let Err(Refused::Malformed(why)) = &refused else { panic!("{body}: {refused:?}") };
        assert!(why.contains(expected), "{body}: {why}");
    }
    let mut long = with("response", "deny".into());
    long["reason"] = "x".repeat(5_000).into();
    assert!(matches!(team.send(&long).await, Err(Refused::Answer(_))));
    assert_eq!(team.decision(&asked).await, None);
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_late_decision_is_answered_with_what_came_of_it() {
    let (logs, _guard) = Logs::start();
    let team = Team::start().await;
    let mut task = Task::new("pay").input(json!(["order 1", {}]));
    task.approval_ttl = Some(Duration::from_secs(2));
    let (run, asked) = team.submit(task, "order 1").await;
    let message = team.relay.opened("order 1").await;
    run.result().await.unwrap();
    team.relay.closed("order 1").await;
    let refused = team.send(&decision(&message, "ann", true)).await;
    assert!(matches!(&refused, Err(Refused::Closed(outcome)) if outcome.starts_with("expired at ")), "{refused:?}");
    assert!(!team.decision(&asked).await.unwrap().approved);
    let (run, _) = team.ask("order 2", json!({})).await;
    let message = team.relay.opened("order 2").await;
    assert!(run.cancel("no longer needed").await.unwrap());
    team.relay.closed("order 2").await;
    let refused = team.send(&decision(&message, "ann", true)).await;
    assert!(matches!(&refused, Err(Refused::Closed(outcome)) if outcome.starts_with("withdrawn")), "{refused:?}");
    assert_eq!(refusals(&logs).iter().filter(|line| line.contains("it is closed already")).count(), 2);
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_doubled_decision_counts_once() {
    let team = Team::start().await;
    let (run, asked) = team.ask("order 1", json!({})).await;
    let body = decision(&team.relay.opened("order 1").await, "ann", true);
    let both = tokio::join!(team.send(&body), team.send(&body));
    let decided = [&both.0, &both.1].into_iter().filter(|sent| sent.is_ok()).count();
    assert_eq!(decided, 1, "{both:?}");
    let third = team.send(&body).await;
    assert!(matches!(&third, Err(Refused::Closed(outcome)) if outcome.contains("approved by ann")), "{third:?}");
    assert_eq!(&*team.decision(&asked).await.unwrap().by, "ann");
    assert_eq!(run.result().await.unwrap().output, json!("paid"));
    team.board.shutdown().await;
}

#[tokio::test]
async fn a_decision_that_contradicts_the_first_changes_nothing() {
    let (logs, _guard) = Logs::start();
    let team = Team::start().await;
    let (_, asked) = team.ask("order 1", json!({})).await;
    let message = team.relay.opened("order 1").await;
    let denied = team.send(&decision(&message, "bob", false)).await.unwrap();
    assert!(denied.outcome.starts_with("denied by bob at ") && denied.outcome.ends_with(", on webhooks"), "{denied:?}");
    let refused = team.send(&decision(&message, "ann", true)).await;
    assert!(matches!(&refused, Err(Refused::Closed(outcome)) if outcome.contains("denied by bob")), "{refused:?}");
    let decided = team.decision(&asked).await.unwrap();
    assert_eq!((decided.approved, &*decided.by), (false, "bob"));
    let text = logs.text();
    let audit: Vec<&str> = text.lines().filter(|line| line.contains("callboard::audit")).collect();
    assert!(audit.iter().any(|line| line.contains("decision") && line.contains("person=\"bob\"")), "{audit:?}");
    assert!(audit.iter().any(|line| line.contains("refused") && line.contains("person=\"ann\"")), "{audit:?}");
    team.board.shutdown().await;
}

#[tokio::test]
async fn what_is_kept_is_of_this_user_alone() {
    let team = Team::start().await;
    team.ask("order 1", json!({})).await;
    team.relay.opened("order 1").await;
    let folder = team.folder.path().join("webhooks");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join("webhooks.json"))), (0o700, 0o600));
    team.board.shutdown().await;
    std::fs::write(folder.join("webhooks.json"), "{").unwrap();
    let refused = WebhookChannel::open(config(team.folder.path())).unwrap_err().to_string();
    assert!(refused.contains("webhooks.json") && refused.ends_with("open questions are sent again"), "{refused}");
}
