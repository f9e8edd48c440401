//! `callboard schedule`: tasks that a server starts at times.

#![cfg(unix)]

use serde_json::json;

use crate::support::project::Project;
use crate::support::serving::Serving;

#[test]
fn a_schedule_is_added_shown_paused_resumed_run_and_removed() {
    let project = Project::new();
    let schedule = |arguments: &[&str]| project.callboard(&[&["schedule"], arguments].concat());
    let nobody = schedule(&["list"]);
    assert_eq!((nobody.code, nobody.error.contains("no server runs")), (Some(6), true), "{}", nobody.error);
    let serving = Serving::start(&project);
    assert_eq!(schedule(&["list"]).out, "there are no schedules\n");
    let cron = ["--cron", "0 3 1 1 *", "--time-zone", "Europe/Berlin"];
    let added = schedule(&[&["add", "new year", "count the runs", "--to", "writer"][..], &cron].concat());
    let next = added.out.strip_prefix("new year  fires next at ").unwrap_or_else(|| panic!("{}", added.error));
    assert!(next.ends_with("-01-01 02:00:00Z\n"), "{next}");
    for (arguments, code, reason) in [
        (vec!["add", "new year", "x", "--every", "1h"], 2, "there is a schedule new year"),
        (vec!["add", "x", "x", "--cron", "0 3 31 2 *"], 2, "never fires"),
        (vec!["add", "x", "x", "--at", "2020-01-01T00:00:00Z"], 2, "has passed"),
        (vec!["add", "x", "x", "--every", "0s"], 2, "write a time from 1s to 366d"),
        (
            vec!["add", "x", "x", "--cron", "* * * * *", "--time-zone", "Europe/Berln"],
            2,
            "did you mean \"Europe/Berlin\"?",
        ),
        (vec!["add", "x", "x"], 2, "--cron"),
        (
            vec!["add", "x", "x", "--webhook", "github", "--secret", "0123456789abcdef01234567"],
            2,
            "other users and programs of agents can read the command line of a process",
        ),
        (
            vec!["add", "x", "x", "--to", "nobody", "--every", "1h"],
            3,
            "error: no agent has the name, role or capability \"nobody\"\n    the agents are capability_gap, compactor, complexity, enricher, summarizer, writer\n",
        ),
        (vec!["show", "x"], 3, "there is no schedule x"),
        (vec!["remove", "x"], 3, "there is no schedule x"),
    ] {
        let target: &[&str] =
            if arguments[0] == "add" && !arguments.contains(&"--to") { &["--to", "writer"] } else { &[] };
        let refused = schedule(&[&arguments, target].concat());
        assert_eq!(
            (refused.code, refused.error.contains(reason)),
            (Some(code), true),
            "{arguments:?} {}",
            refused.error
        );
    }
    assert_eq!(schedule(&["pause", "new year"]).out, "new year  is paused\n");
    let listed = schedule(&["list"]).out;
    let row = listed.lines().last().unwrap();
    assert!(row.contains("new year") && row.contains("paused") && row.contains("0 3 1 1 * Europe/Berlin"), "{listed}");
    let run = schedule(&["run", "new year"]);
    project.model.answers("7 runs");
    assert_eq!(run.error, "of the schedule new year\n");
    let id = run.out.trim_end();
    assert_eq!(project.callboard(&["wait", id]).out, "7 runs\n");
    assert_eq!(schedule(&["resume", "new year"]).out, added.out);
    let shown = schedule(&["show", "new year", "--json"]).json();
    assert_eq!(
        [&shown["state"], &shown["started"], &shown["owner"], &shown["task"]],
        [&json!("active"), &json!(1), &json!("owner"), &json!({ "body": "count the runs", "to": "writer" })]
    );
    let hook = schedule(&["add", "on push", "read it", "--to", "writer", "--webhook", "github"]);
    let secret = hook.out.strip_prefix("on push  receives POST /v1/webhooks/on%20push\nsecret whsec_");
    assert_eq!(secret.map(str::len), Some(45), "{} {}", hook.out, hook.error);
    assert!(schedule(&["list"]).out.contains("on push   active  webhook github"), "{}", schedule(&["list"]).out);
    assert_eq!(schedule(&["remove", "on push"]).out, "the schedule on push is deleted\n");
    let mut within = project.command(&["schedule", "delete", "new year"]);
    within.env("CALLBOARD_RUN", "x");
    assert_eq!(crate::support::output_of(within).code, Some(4), "within the turn of an agent");
    assert_eq!(schedule(&["delete", "new year", "--json"]).json(), json!({ "deleted": "new year" }));
    assert_eq!(schedule(&["list", "--json"]).json(), json!({ "schedules": [] }));
    assert_eq!(serving.stop().code, Some(0));
}
