//! Schedules on virtual time.

use std::collections::BTreeSet;
use std::time::Duration;

use callboard::prelude::*;
use callboard_server::{Scope, Server, TokenSpec};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::world::{Service, World};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

#[tokio::test(start_paused = true)]
async fn a_schedule_fires_at_its_times_and_shows_what_became_of_them() {
    let world = World::new();
    let service = world.serve().await;
    let created = service.create(&json!({ "cron": "30 */2 * * *" })).await;
    assert_eq!(
        (&created["state"], &created["next_at"], &created["time_zone"], &created["task"]["to"]),
        (&json!("active"), &json!("2026-03-28T00:30:00.000Z"), &json!("UTC"), &json!("echo"))
    );
    sleep(5 * HOUR).await;
    assert_eq!(world.times(&service).await, ["03-28T00:30:00", "03-28T02:30:00", "03-28T04:30:00"]);
    let (_, run) = world.runs(&service).await.pop().unwrap();
    assert_eq!(
        (&run["from_agent"], &run["body"], &run["state"]),
        (&json!("ann"), &json!("report"), &json!("finished"))
    );
    let (_, list) = service.get("/v1/schedules").await;
    let shown = &list["schedules"][0];
    let last = json!({
        "planned_at": "2026-03-28T04:30:00.000Z", "at": "2026-03-28T04:30:00.000Z", "request_id": run["request_id"], "refused": null,
    });
    assert_eq!(
        (&shown["next_at"], &shown["started"], &shown["skipped"], &shown["last"]),
        (&json!("2026-03-28T06:30:00.000Z"), &json!(3), &json!(0), &last)
    );
    assert_eq!(shown["task"], Value::Null, "a list is without the tasks");
    service.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_time_on_the_day_of_the_change_fires_once_after_the_gap() {
    let world = World::new();
    let service = world.serve().await;
    service.create(&json!({ "cron": "30 2 * * *", "time_zone": "Europe/Berlin" })).await;
    sleep(72 * HOUR).await;
    assert_eq!(world.times(&service).await, ["03-28T01:30:00", "03-29T01:00:00", "03-30T00:30:00"]);
    service.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_time_fires_once_and_the_schedule_has_ended() {
    let world = World::new();
    let service = world.serve().await;
    let created = service.create(&json!({ "at": "2026-03-28T03:00", "time_zone": "Europe/Berlin" })).await;
    assert_eq!(created["at"], json!("2026-03-28T02:00:00.000Z"));
    sleep(5 * HOUR).await;
    let shown = service.shown().await;
    assert_eq!((&shown["state"], &shown["next_at"], &shown["started"]), (&json!("ended"), &Value::Null, &json!(1)));
    assert_eq!(world.times(&service).await, ["03-28T02:00:00"]);
    assert_eq!(service.post("/v1/schedules/daily/resume", &json!({})).await.0, 409);
    service.end().await;
}

#[tokio::test(start_paused = true)]
async fn several_servers_and_restarts_start_each_time_once() {
    let world = World::new();
    let (mut first, second) = (world.serve().await, world.serve().await);
    first.create(&json!({ "every_ms": 10 * 60_000 })).await;
    for _ in 0..4 {
        sleep(25 * MINUTE).await;
        first.end().await;
        first = world.serve().await;
    }
    sleep(25 * MINUTE).await;
    let times = world.times(&first).await;
    assert_eq!(times.len(), 12, "{times:?}");
    assert_eq!(times.iter().collect::<BTreeSet<_>>().len(), 12);
    let shown = first.shown().await;
    assert_eq!((&shown["started"], &shown["skipped"]), (&json!(12), &json!(0)));
    first.end().await;
    second.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_start_that_was_not_recorded_is_the_same_run() {
    let world = World::new();
    let service = world.serve().await;
    service.create(&json!({ "every_ms": 60_000 })).await;
    let before = {
        use callboard::storage::{Key, Storage as _};
        world.store.get(&Key::new(["schedule", "daily"])).await.unwrap().unwrap()
    };
    sleep(MINUTE + Duration::from_secs(1)).await;
    assert_eq!(world.times(&service).await.len(), 1);
    service.end().await;
    // As after a crash between the two.
    {
        use callboard::storage::{Key, Put, Storage as _};
        let (key, value) = (Key::new(["schedule", "daily"]), before.value);
        let put = Put { durability: Durability::Memory, ..Put::new(key, value) };
        world.store.put_if_revision(put).await.unwrap();
    }
    let service = world.serve().await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(world.times(&service).await.len(), 1);
    assert_eq!(service.shown().await["started"], json!(1));
    service.end().await;
}

/// The runs of a schedule with an agent that takes 90 s, and times each minute.
async fn overlapping(overlap: &str) -> (Vec<(String, String)>, Value) {
    let world = World::new();
    let service = world.serve().await;
    service.create(&json!({ "every_ms": 60_000, "overlap": overlap, "task": { "to": "slow", "body": "x" } })).await;
    sleep(4 * MINUTE + Duration::from_secs(15)).await;
    let (states, shown) = (world.states(&service).await, service.shown().await);
    service.end().await;
    (states, shown)
}

fn states(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(at, state)| (format!("03-28T00:0{at}"), (*state).to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_time_is_skipped_while_the_last_run_has_not_ended() {
    let (runs, shown) = overlapping("skip").await;
    assert_eq!(runs, states(&[("1:00", "finished"), ("3:00", "open")]));
    assert_eq!((&shown["skipped"], &shown["waiting"]), (&json!(2), &json!(0)));
}

#[tokio::test(start_paused = true)]
async fn a_time_waits_until_the_last_run_has_ended() {
    let (runs, shown) = overlapping("queue").await;
    assert_eq!(runs, states(&[("1:00", "finished"), ("2:30", "finished"), ("4:00", "open")]));
    assert_eq!((&shown["skipped"], &shown["waiting"]), (&json!(0), &json!(1)));
    assert_eq!(shown["last"]["planned_at"], json!("2026-03-28T00:03:00.000Z"));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_has_not_ended_is_replaced() {
    let (runs, shown) = overlapping("replace").await;
    let cancelled = |at| (at, "cancelled");
    assert_eq!(runs, states(&[cancelled("1:00"), cancelled("2:00"), cancelled("3:00"), ("4:00", "open")]));
    assert_eq!((&shown["skipped"], &shown["started"]), (&json!(0), &json!(4)));
}

/// When the runs of an hourly schedule were submitted that no server fired from 1:30 to 5:30.
async fn after_a_pause(more: &Value) -> (Vec<String>, Value) {
    let world = World::new();
    let service = world.serve().await;
    let mut definition = json!({ "cron": "0 * * * *" });
    definition.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    service.create(&definition).await;
    sleep(HOUR + 30 * MINUTE).await;
    service.end().await;
    sleep(4 * HOUR).await;
    let service = world.serve().await;
    sleep(HOUR).await;
    let (times, shown) = (world.times(&service).await, service.shown().await);
    service.end().await;
    (times.iter().map(|at| at[6..11].to_owned()).collect(), shown["skipped"].clone())
}

#[tokio::test(start_paused = true)]
async fn times_that_were_missed_are_run_once_all_up_to_a_bound_or_skipped() {
    let times = |of: &[&str]| of.iter().map(|at| (*at).to_owned()).collect::<Vec<_>>();
    assert_eq!(after_a_pause(&json!({})).await, (times(&["01:00", "05:30", "06:00"]), json!(3)));
    assert_eq!(after_a_pause(&json!({ "missed": "skip" })).await, (times(&["01:00", "06:00"]), json!(4)));
    let all = json!({ "missed": "run_all", "overlap": "queue", "max_missed": 3 });
    assert_eq!(after_a_pause(&all).await, (times(&["01:00", "05:30", "05:30", "05:30", "06:00"]), json!(1)));
}

#[tokio::test(start_paused = true)]
async fn a_schedule_stops_with_the_token_of_its_owner_and_says_why() {
    let world = World::new();
    let service = world.serve().await;
    let spec = |name: &str| TokenSpec::new(name, [Scope::Read, Scope::Delegate]);
    let secrets = [
        ("revoked", world.tokens.add(spec("revoked")).unwrap()),
        ("expired", world.tokens.add(spec("expired").lifetime(90 * MINUTE)).unwrap()),
    ];
    for (name, secret) in &secrets {
        let body = json!({ "name": name, "cron": "0 * * * *", "task": { "to": "echo", "body": "x" } });
        assert_eq!(service.send_as(secret, "POST", "/v1/schedules", &body).await.0, 201);
    }
    sleep(HOUR + MINUTE).await;
    world.tokens.revoke("revoked").unwrap();
    let (_, shown) = service.get("/v1/schedules/revoked").await;
    let stopped = (json!("stopped"), json!("the token revoked was revoked"), Value::Null);
    assert_eq!((&shown["state"], &shown["reason"], &shown["next_at"]), (&stopped.0, &stopped.1, &stopped.2));
    assert!(world.tokens.add(spec("revoked")).is_err(), "no other token gets the name");
    sleep(2 * HOUR).await;
    let (_, list) = service.get("/v1/schedules").await;
    let reasons = list["schedules"].as_array().unwrap().iter().map(|it| [&it["name"], &it["reason"], &it["started"]]);
    assert_eq!(
        reasons.collect::<Vec<_>>(),
        [
            [&json!("expired"), &json!("the token expired has expired"), &json!(1)],
            [&json!("revoked"), &json!("the token revoked was revoked"), &json!(1)],
        ]
    );
    assert_eq!(world.times(&service).await.len(), 2);
    let (status, problem) = service.post("/v1/schedules/revoked/resume", &json!({})).await;
    assert_eq!((status, &problem["detail"]), (409, &json!("the token revoked was revoked")));
    assert_eq!(service.post("/v1/schedules/revoked/run", &json!({})).await.0, 409);
    service.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_is_trusted_if_the_token_of_the_owner_is() {
    let world = World::new();
    let service = world.serve().await;
    let secret = world.tokens.add(TokenSpec::new("ci", [Scope::Read, Scope::Delegate])).unwrap();
    let body = |name: &str| json!({ "name": name, "every_ms": 60_000, "task": { "to": "echo", "body": name } });
    assert_eq!(service.post("/v1/schedules", &body("of ann")).await.0, 201);
    assert_eq!(service.send_as(&secret, "POST", "/v1/schedules", &body("of ci")).await.0, 201);
    sleep(MINUTE + Duration::from_secs(1)).await;
    let mut found = BTreeSet::new();
    for run in service.board.runs().await.unwrap() {
        let task = run.read().await.unwrap().submission().task.clone();
        found.insert((task.body.to_string(), task.is_untrusted));
    }
    assert_eq!(found, BTreeSet::from([("of ann".to_owned(), false), ("of ci".to_owned(), true)]));
    service.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_schedule_is_paused_resumed_run_by_hand_and_deleted_by_its_owner_or_an_admin() {
    let world = World::new();
    let service = world.serve().await;
    let secret = |name: &str| world.tokens.add(TokenSpec::new(name, [Scope::Read, Scope::Delegate])).unwrap();
    let (ci, other) = (secret("ci"), secret("other"));
    let body = json!({ "name": "a/b", "cron": "0 * * * *", "task": { "to": "echo", "body": "x" } });
    assert_eq!(service.send_as(&ci, "POST", "/v1/schedules", &body).await.0, 201);
    assert_eq!(service.send_as(&ci, "POST", "/v1/schedules", &body).await.0, 409, "the name is taken");
    let path = "/v1/schedules/a%2Fb";
    for (method, path) in [
        ("POST", format!("{path}/pause")),
        ("POST", format!("{path}/resume")),
        ("POST", format!("{path}/run")),
        ("DELETE", path.to_owned()),
    ] {
        let (status, problem) = service.send_as(&other, method, &path, &Value::Null).await;
        assert_eq!((status, &problem["code"]), (403, &json!("missing-scope")), "{method} {path}");
    }
    let (status, paused) = service.send_as(&ci, "POST", &format!("{path}/pause"), &json!({})).await;
    assert_eq!((status, &paused["state"], &paused["next_at"]), (200, &json!("paused"), &Value::Null));
    sleep(3 * HOUR + 30 * MINUTE).await;
    let (status, run) = service.send_as(&ci, "POST", &format!("{path}/run"), &Value::Null).await;
    assert_eq!((status, &run["to_agent"]), (202, &json!("echo")));
    let (status, resumed) = service.post(&format!("{path}/resume"), &json!({})).await;
    assert_eq!(
        (status, &resumed["state"], &resumed["next_at"]),
        (200, &json!("active"), &json!("2026-03-28T04:00:00.000Z"))
    );
    sleep(HOUR).await;
    assert_eq!(world.times(&service).await, ["03-28T03:30:00", "03-28T04:00:00"], "what a pause covers is not missed");
    assert_eq!(service.send_as(&service.secret, "DELETE", path, &Value::Null).await.0, 204);
    assert_eq!(service.get(path).await.0, 404);
    sleep(2 * HOUR).await;
    assert_eq!(world.times(&service).await.len(), 2);
    service.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_by_hand_waits_for_the_last_one_unless_it_replaces_it() {
    let world = World::new();
    let service = world.serve().await;
    for overlap in ["skip", "queue", "replace"] {
        let task = json!({ "to": "slow", "body": "x" });
        let body = json!({ "name": overlap, "cron": "0 0 1 1 *", "overlap": overlap, "task": task });
        assert_eq!(service.post("/v1/schedules", &body).await.0, 201);
        let path = format!("/v1/schedules/{overlap}/run");
        assert_eq!(service.post(&path, &json!({})).await.0, 202);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(service.post(&path, &json!({})).await.0, if overlap == "replace" { 202 } else { 409 }, "{overlap}");
    }
    service.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_task_is_shown_and_a_full_board_is_tried_again() {
    let world = World::new();
    let service = world.serve_with(1).await;
    service.create(&json!({ "every_ms": 60_000, "task": { "to": "nobody", "body": "x" } })).await;
    sleep(MINUTE + Duration::from_secs(1)).await;
    let shown = service.shown().await;
    assert_eq!((&shown["state"], &shown["started"]), (&json!("active"), &json!(0)));
    assert!(shown["last"]["refused"].as_str().unwrap().contains("nobody"), "{shown}");
    service.send_as(&service.secret, "DELETE", "/v1/schedules/daily", &Value::Null).await;

    let (status, _) = service.post("/v1/delegations", &json!({ "to": "slow", "body": "90 s" })).await;
    assert_eq!(status, 202);
    service.create(&json!({ "at": "2026-03-28T00:02:00Z" })).await;
    sleep(2 * MINUTE).await;
    let shown = service.shown().await;
    assert_eq!(shown["last"]["planned_at"], json!("2026-03-28T00:02:00.000Z"), "{shown}");
    let at = shown["last"]["at"].as_str().unwrap();
    assert!(("2026-03-28T00:02:31".."2026-03-28T00:02:40").contains(&at), "{at}");
    service.end().await;
}

#[tokio::test(start_paused = true)]
async fn definitions_that_cannot_work_are_refused() {
    let world = World::new();
    let service = world.serve().await;
    let task = json!({ "to": "echo", "body": "x" });
    let refused = [
        (json!({ "name": "x", "task": task }), 422),
        (json!({ "name": "", "every_ms": 1000, "task": task }), 422),
        (json!({ "name": "x", "every_ms": 999, "task": task }), 422),
        (json!({ "name": "x", "every_ms": 1000, "task": task, "missed": "run_all" }), 422),
        (
            json!({ "name": "x", "every_ms": 1000, "task": task, "missed": "run_all", "overlap": "queue", "max_missed": 101 }),
            422,
        ),
        (json!({ "name": "x", "every_ms": 1000, "task": task, "max_missed": 1 }), 422),
        (json!({ "name": "x", "every_ms": 1000, "task": { "workflow": "none", "body": "x" } }), 422),
        (json!({ "name": "x", "every_ms": 1000, "task": { "to": "echo", "body": "y".repeat(65_536) } }), 422),
        (json!({ "name": "x", "every_ms": 1000, "task": { "to": "echo" } }), 400),
        (json!({ "name": "x", "every_ms": 1000, "task": { "to": "echo", "body": "x", "more": 1 } }), 400),
        (json!({ "name": "x", "every_ms": 1000, "task": task, "overlap": "never" }), 400),
        (json!({ "name": "x", "every_ms": -1, "task": task }), 400),
        (json!({ "every_ms": 1000, "task": task }), 400),
    ];
    for (body, expected) in refused {
        let (status, problem) = service.post("/v1/schedules", &body).await;
        assert_eq!(status, expected, "{problem}");
    }
    let router = Server::new(service.board.clone(), world.tokens.clone()).router();
    let silent = Service { router, ..world.serve().await };
    let (status, problem) = silent.post("/v1/schedules", &json!({ "name": "x", "every_ms": 1000, "task": task })).await;
    assert_eq!((status, &problem["code"]), (503, &json!("unavailable")), "no task of this server starts runs");
    assert_eq!(service.get("/v1/schedules").await.1, json!({ "schedules": [] }));
    silent.end().await;
    service.end().await;
}
