//! `callboard inbox`: everything that needs a person, listed and decided from the command line.

#![cfg(unix)]

use serde_json::Value;

use crate::support::agents::add_shell_agent;
use crate::support::project::Project;
use crate::support::serving::Serving;
use crate::support::write;

/// An agent that fails until there is a file.
const FAILS: &str = r#"while turn; do
    if [ -f repaired ]; then finish '"output":"done"'; else
        echo '{"type":"error","turn":"'$id'","text":"it is down","terminal":true}'
    fi
done
"#;

fn ids(project: &Project, more: &[&str]) -> Vec<String> {
    let listed = project.callboard(&[&["inbox", "--json"], more].concat()).json();
    let items = listed["items"].as_array().unwrap().clone();
    items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn failures_are_listed_with_what_unblocks_them_and_decided_one_by_one_or_together() {
    let project = Project::new();
    add_shell_agent(&project.folder, "fails", FAILS);
    let serving = Serving::start(&project);
    assert_eq!(project.callboard(&["inbox"]).out, "nothing needs you\n");
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(project.callboard(&["send", "fails", "x"]).out[..16].to_owned());
        assert_eq!(project.callboard(&["wait", "@last"]).code, Some(1));
    }
    let listed = project.callboard(&["inbox"]);
    assert!(
        listed.out.starts_with("4 dead letters\n\ndead letter      fails turn 1 failed: it is down\n"),
        "{}",
        listed.out
    );
    let all = ids(&project, &[]);
    assert_eq!(all.len(), 4, "{all:?}");
    for line in [
        format!("run {}: \"x\", from owner\n", runs[3]),
        "until somebody decides, its branch stays failed\n".to_owned(),
        format!("callboard inbox {} --do drop\n", all[0]),
    ] {
        assert!(listed.out.contains(&line), "{line} is not in {}", listed.out);
    }
    assert_eq!(ids(&project, &["--run", &runs[0]]), [&*all[3]], "the latest failure is the first");
    assert_eq!(ids(&project, &["--kind", "approval"]), [""; 0]);

    let dropped = project.callboard(&["inbox", &all[0], "--do", "drop", "--reason", "known"]);
    assert_eq!(
        (dropped.code, &*dropped.out),
        (Some(0), "dropped: fails turn 1 failed: it is down\n"),
        "{}",
        dropped.error
    );
    write(&project.folder, "repaired", "");
    let retried = project.callboard(&["inbox", &all[1], "--do", "retry", "--json"]);
    assert!(retried.json()["results"][0]["retried_as"].is_string(), "{}", retried.out);
    let refused = project.callboard(&["inbox", &all[2], "--do", "approve"]);
    assert_eq!(refused.code, Some(1), "{}", refused.out);
    assert!(refused.out.starts_with("refused: fails turn 1 failed: it is down: "), "{}", refused.out);
    let both = project.callboard(&["inbox", "--agent", "fails", "--do", "drop"]);
    assert_eq!(both.out.lines().count(), 2, "{}", both.out);
    let none = project.callboard(&["inbox", "--json"]).json();
    assert_eq!((&none["items"], &none["is_cut"]), (&serde_json::json!([]), &Value::Bool(false)));
    for (wrong, code) in [
        (&["inbox", "--do", "drop"] as &[&str], 2),
        (&["inbox", "--kind", "letters"], 2),
        (&["inbox", "--agent", "fails", "--do", "frob"], 2),
        (&["inbox", "letter:x/1"], 3),
        (&["inbox", "--reason", "why"], 2),
    ] {
        let printed = project.callboard(wrong);
        assert_eq!(printed.code, Some(code), "{wrong:?}: {}", printed.error);
    }
    serving.stop();
    let alone = project.callboard(&["inbox"]);
    assert_eq!((alone.code, &*alone.out), (Some(0), "nothing needs you\n"), "{}", alone.error);
    assert_eq!(alone.error, "no server runs: failures, agents and runs in quarantine are not listed\n");
    let log = std::fs::read_to_string(project.stores().join("service/audit.jsonl")).unwrap();
    let decided: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let dropped =
        decided.iter().find(|line| line["path"] == format!("/v1/inbox/{}", all[0])).expect("a line of its own");
    assert_eq!((&dropped["response"], &dropped["reason"]), (&Value::from("drop"), &Value::from("known")));
}
