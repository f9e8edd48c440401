//! `callboard watch`, `read`, `retry`, `dead-letters` and `tree`: what is seen and repeated of the runs of a server.

#![cfg(unix)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use callboard::env::Env;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::agents::{add_shell_agent, searcher};
use crate::support::project::Project;
use crate::support::serving::{Serving, sent};
use crate::support::{ended, write};

/// A process whose lines are read as they come, and that is killed when this is dropped.
struct Watching {
    process: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Watching {
    fn start(project: &Project, arguments: &[&str]) -> Self {
        let mut process = project.command(&[&["watch"], arguments].concat()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Self { process, lines }
    }

    /// The next line that has this text; those before it are passed over.
    fn line(&mut self, expected: &str) -> String {
        let mut seen = String::new();
        loop {
            let begin = seen.len();
            assert!(self.lines.read_line(&mut seen).unwrap() > 0, "{expected:?} is not printed: {seen}");
            if seen[begin..].contains(expected) {
                return seen[begin..].to_owned();
            }
        }
    }

    fn code(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        (self.process.wait().unwrap().code(), rest)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_run_is_watched_event_by_event_to_its_end_and_its_exit_code() {
    let project = Project::new();
    write(&project.folder, "agents/writer.toml", &searcher("writer"));
    let serving = Serving::start(&project);
    let id = sent(&project, "look");
    let mut text = Watching::start(&project, &[&id]);
    let mut json = Watching::start(&project, &["@last", "--json"]);
    let first = text.line("");
    assert!(first.starts_with("   1    +0.000 s  ") && first.contains("writer"), "{first:?}");
    project.model.calls("FileSearch", json!({ "pattern": "x" }));
    let asked = text.line("‖ waits for a person");
    assert!(asked.starts_with("‖ waits for a person (consent): writer wants to FileSearch"), "{asked}");
    let pending = text.line("    callboard pending ");
    let pending = project.callboard(&["pending", pending.trim().rsplit(' ').next().unwrap()]);
    assert_eq!(pending.code, Some(0), "{}", pending.error);
    assert_eq!(project.callboard(&["deny", &id]).code, Some(0));
    text.line("▶ continues");
    project.model.answers("found nothing");
    let (code, rest) = text.code();
    assert!(code == Some(0) && rest.ends_with("\ncomplete: found nothing\n"), "{code:?} {rest}");
    let (first, (code, rest)) = (json.line("\"event\""), json.code());
    let objects: Vec<Value> = (first + &rest).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!((code, kinds[0], *kinds.last().unwrap()), (Some(0), "event", "ended"), "{kinds:?}");
    let numbers: Vec<u64> = objects.iter().filter_map(|object| object["number"].as_u64()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "each event once");
    assert!(kinds.contains(&"waits") && kinds.contains(&"continues"), "{kinds:?}");
    assert_eq!(objects.last().unwrap()["result"]["output"], "found nothing");
    let again = project.callboard(&["watch", &id]);
    assert!(again.code == Some(0) && again.out.ends_with("complete: found nothing\n"), "{}", again.out);
    serving.stop();
}

#[test]
fn all_runs_of_a_server_are_watched_until_it_ends_or_a_signal_comes() {
    let project = Project::new();
    let nobody = project.callboard(&["watch"]);
    assert!(nobody.code == Some(6) && nobody.error.contains("to start one: callboard serve\n"), "{}", nobody.error);
    let serving = Serving::start(&project);
    let before = sent(&project, "begun before");
    let mut watching = Watching::start(&project, &[]);
    let line = watching.line(&before);
    assert!(line.ends_with(&format!("  {before}  ▶ writer began: begun before\n")), "{line}");
    project.model.answers("done \u{1b}[2J");
    let line = watching.line("✔");
    assert!(line.contains(&format!("  {before}  ✔ writer finished after ")), "{line}");
    assert!(line.ends_with(": done \\u{1b}[2J\n"), "{line}");
    let cancelled = sent(&project, "soon cancelled");
    watching.line("began: soon cancelled");
    assert_eq!(project.callboard(&["cancel", &cancelled, "--reason", "no"]).code, Some(0));
    assert!(watching.line("– writer cancelled after ").ends_with(": cancelled: no\n"));
    kill_process(Pid::from_child(&watching.process), Signal::INT).unwrap();
    assert_eq!(watching.code(), (Some(130), String::new()));
    let mut watching = Watching::start(&project, &["--json"]);
    project.model.answers("for the cancelled one");
    let third = sent(&project, "third");
    let object: Value = serde_json::from_str(&watching.line("\"third\"")).unwrap();
    assert_eq!((&object["kind"], &object["body"]), (&json!("began"), &json!("third")), "{third}");
    project.model.answers("3");
    let object: Value = serde_json::from_str(&watching.line("\"ended\"")).unwrap();
    let [kind, status, state] = ["kind", "status", "state"].map(|key| &object[key]);
    assert_eq!([kind, status, state], [&json!("ended"), &json!("complete"), &json!("finished")]);
    serving.stop();
    let (code, rest) = watching.code();
    let last: Value = serde_json::from_str(rest.lines().last().unwrap()).unwrap();
    assert_eq!((code, &last["code"]), (Some(6), &json!(6)), "{rest}");
}

#[test]
fn what_was_sent_is_in_the_inbox_of_the_terminals_and_of_its_agent() {
    let project = Project::new();
    let serving = Serving::start(&project);
    assert_eq!(project.callboard(&["read"]).out, "the inbox of owner has no messages\n");
    let nobody = project.callboard(&["read", "nobody"]);
    assert_eq!((nobody.code, &*nobody.error), (Some(3), "error: no agent and no token has the name \"nobody\"\n"));
    let id = sent(&project, "what \u{1b}[2J version?");
    project.model.answers("v2");
    assert_eq!(project.callboard(&["wait", &id]).code, Some(0));
    let read = project.callboard(&["read"]);
    let lines: Vec<&str> = read.out.lines().collect();
    assert!(lines[0].contains("message") && lines.len() == 3, "{}", read.out);
    assert!(lines[1].contains(&id) && lines[1].ends_with("ack"), "{}", read.out);
    assert!(lines[2].contains("writer") && lines[2].ends_with("complete: v2"), "{}", read.out);
    let read = project.callboard(&["read", "writer"]);
    assert!(read.out.contains("owner") && read.out.ends_with("asks: what \\u{1b}[2J version?\n"), "{}", read.out);
    sent(&project, "two\nlines");
    let read = project.callboard(&["read", "writer"]).out;
    let last: Vec<&str> = read.lines().rev().take(2).collect();
    let (head, message) = last[1].split_once("asks: ").unwrap();
    assert_eq!((message, last[0]), ("two", &*format!("{}lines", " ".repeat(head.chars().count()))), "{read}");
    let json = project.callboard(&["read", "--json"]).json();
    assert_eq!((&json["agent"], &json["messages"][1]["body"]), (&json!("owner"), &json!("v2")));
    drop(serving);
}

#[test]
fn a_turn_that_failed_for_good_is_listed_and_tried_again() {
    let project = Project::new();
    let fails = r#"while turn; do
    if [ -f repaired ]; then finish '"output":"done"'; else
        echo '{"type":"error","turn":"'$id'","text":"it is down","terminal":true}'
    fi
done
"#;
    add_shell_agent(&project.folder, "fails", fails);
    let serving = Serving::start(&project);
    assert_eq!(project.callboard(&["dead-letters"]).out, "there are no dead letters\n");
    let sent = project.callboard(&["send", "fails", "x"]);
    let waited = project.callboard(&["wait", "@last"]);
    assert_eq!(waited.code, Some(1), "{}", sent.error);
    let id = &sent.out[..16];
    let (why, how) =
        ("failed: terminal error: it is down", format!("to retry turn 1, in a new run: callboard retry {id}"));
    assert_eq!(waited.error, format!("fail: {why}\n{how}\n"));
    assert_eq!(project.callboard(&["status", id]).out, format!("{id}  fails: failed\n    {why}\n    {how}\n"));
    let listed = project.callboard(&["dead-letters"]);
    let letter = format!("{id}/1");
    assert!(listed.out.contains(&letter) && listed.out.contains("it is down"), "{} {}", listed.out, listed.error);
    assert_eq!(project.callboard(&["dead-letters", "list", "--json"]).json()["dead_letters"][0]["turn"], 1);
    write(&project.folder, "repaired", "");
    let retried = project.callboard(&["dead-letters", "retry", &letter]);
    assert!(retried.code == Some(0) && retried.error == format!("continues from {id}\n"), "{}", retried.error);
    let again = project.callboard(&["retry", id]);
    assert_eq!((again.code, &again.out), (Some(0), &retried.out), "it is one run");
    assert_eq!(project.callboard(&["wait", &retried.out[..16]]).out, "done\n");
    for (wrong, code) in [("x/1", 3), (&format!("{id}/one") as &str, 2), (&format!("{id}/7"), 3)] {
        let refused = project.callboard(&["dead-letters", "retry", wrong]);
        assert_eq!(refused.code, Some(code), "{wrong}: {}", refused.error);
    }
    serving.stop();
}

#[test]
fn a_run_that_a_limit_has_ended_is_tried_again_with_a_higher_one_as_its_end_says() {
    let project = Project::new();
    let serving = Serving::start_with(&project, &["--model", "fake"]);
    let limited = project.callboard(&["send", "writer", "x", "--limits", r#"{"tokens": 5}"#, "--wait"]);
    let (why, how) = limited.error.split_once('\n').unwrap();
    assert!(why.starts_with("fail: refused (TokenBudget): ") && !why.contains("--limits"), "{why}");
    let line = how.trim_end().strip_prefix("to retry turn 1 with a higher limit, in a new run: callboard ").unwrap();
    let (retry, limits) = line.split_once(" --limits ").unwrap();
    let retry: Vec<&str> = retry.split(' ').chain(["--limits", limits.trim_matches('\'')]).collect();
    let retried = project.callboard(&retry);
    assert_eq!(retried.code, Some(0), "{}", retried.error);
    let waited = project.callboard(&["wait", &retried.out[..16]]);
    assert_eq!(waited.code, Some(0), "{}", waited.error);
    let here = project.callboard(&["run", "x", "--limits", r#"{"tokens": 5}"#, "--model", "fake", "--quiet"]);
    let line = here.error.lines().next().unwrap().strip_suffix(" --model fake").unwrap();
    let later = project.callboard(&["wait", "@last"]);
    assert!(
        line.contains("callboard run --retry req-") && later.error.ends_with(&format!("\n{line}\n")),
        "{line} {}",
        later.error
    );
    let other = project.callboard(&[retry[0], retry[1], "--limits", "simple"]);
    assert!(other.code == Some(1) && other.error.contains("turn 1 was tried again before, as "), "{}", other.error);
    serving.stop();
}

#[test]
fn what_runs_have_used_is_shown_by_day_agent_model_and_who_gave_them() {
    let project = Project::new();
    // There it is 14 h later than in UTC.
    write(&project.folder, "callboard.toml", "[limits]\ntime_zone = \"Pacific/Kiritimati\"\n");
    let serving = Serving::start(&project);
    assert_eq!(project.callboard(&["usage"]).out, "nothing was used\n");
    let day = || (Env::system().now().wall + Duration::from_secs(14 * 3600)).to_string()[..10].to_owned();
    let before = day();
    for task in ["one", "two"] {
        let id = sent(&project, task);
        project.model.answers("done");
        assert_eq!(project.callboard(&["wait", &id]).code, Some(0));
    }
    let used = project.callboard(&["usage", "--since", "2026-01-01", "--json"]).json();
    assert_eq!(project.callboard(&["usage", "--since", "1d", "--json"]).json(), used);
    let row = &used["usage"][0];
    assert!([before, day()].contains(&row["day"].as_str().unwrap().to_owned()), "{row}");
    assert_eq!(
        [&row["agent"], &row["model"], &row["from_agent"], &row["delegations"]],
        [&json!("writer"), &json!("m"), &json!("owner"), &json!(2)]
    );
    let drawn = project.callboard(&["usage"]);
    assert!(drawn.out.lines().count() == 2 && drawn.out.contains("writer  m      owner"), "{}", drawn.out);
    let wrong = project.callboard(&["usage", "--since", "yester day"]);
    assert!(wrong.code == Some(2) && wrong.error.contains("write a day or a time in UTC"), "{}", wrong.error);
    serving.stop();
    let without = project.callboard(&["usage"]);
    assert_eq!((without.code, &without.out), (Some(0), &drawn.out), "without a server: {}", without.error);
}

#[test]
fn the_tree_of_a_server_is_drawn() {
    let project = Project::new();
    assert_eq!(project.callboard(&["tree"]).code, Some(6));
    let serving = Serving::start(&project);
    let drawn = project.callboard(&["tree"]);
    let begins = |begin: &str| drawn.out.lines().any(|line| line.starts_with(begin));
    assert!(begins("callboard  running") && begins("│   ├── writer  running"), "{}", drawn.out);
    assert!(drawn.out.lines().all(|line| line.contains("  running")), "{}", drawn.out);
    assert_eq!(project.callboard(&["tree", "--json"]).json()["name"], "callboard");
    serving.stop();
}

#[test]
fn a_task_that_is_sent_again_with_its_key_is_the_same_run() {
    let project = Project::new();
    let serving = Serving::start(&project);
    let send = |arguments: &[&str]| project.callboard(&[&["send", "writer", "x", "--key"], arguments].concat());
    let (first, again, other) = (send(&["a"]), send(&["a"]), send(&["b"]));
    assert_eq!((first.code, &first.out), (Some(0), &again.out), "{}", first.error);
    assert_ne!(first.out, other.out);
    let different = project.callboard(&["send", "writer", "y", "--key", "a"]);
    assert!(different.code == Some(2) && different.error.contains("choose another key"), "{}", different.error);
    assert_eq!(send(&["a b"]).code, Some(2));
    // The run's id is in the error where the output cannot be written.
    let mut full = project.command(&["send", "writer", "x", "--key", "a"]);
    let lost = ended(full.stdout(std::fs::File::options().write(true).open("/dev/full").unwrap()).spawn().unwrap());
    let named = format!("the task is journaled as {}\n", &first.out[..16]);
    assert!(lost.code == Some(1) && lost.error.ends_with(&named), "{}", lost.error);
    drop(serving);
}

#[test]
fn a_token_whose_secret_cannot_be_written_is_revoked_again() {
    let project = Project::new();
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    for (name, out) in [("ci", full()), ("other", closed.into())] {
        let lost = ended(project.command(&["tokens", "add", name]).stdout(out).spawn().unwrap());
        assert_eq!(lost.code, Some(1));
        let text = format!("; the token {name} is revoked again, and no other one gets its name\n");
        assert!(lost.error.ends_with(&text), "{}", lost.error);
        assert_eq!(project.callboard(&["tokens", "list", "--json"]).json()["tokens"], json!([]));
    }
    let never = project.callboard(&["tokens", "add", "ci", "--lifetime", "0s"]);
    assert!(never.code == Some(2) && never.error.contains("it has to be above zero"), "{}", never.error);
}

#[test]
fn a_server_answers_to_the_address_that_it_listens_on_and_is_named_to_a_second_one() {
    let project = Project::new();
    let serving = Serving::start_with(&project, &["--listen", "127.0.0.2:0"]);
    let address = serving.address().to_owned();
    for (host, status) in [(&*address, "200"), ("127.0.0.2:1", "403")] {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET /v1/health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {answer}");
    }
    let second = project.callboard(&["serve", "--listen", "127.0.0.1:0"]);
    let process = serving.process.as_ref().unwrap().id();
    let why = format!(
        "error: a server runs for these agents already (process {process}, http://{address}): stop that one first\n"
    );
    assert_eq!((second.code, second.error), (Some(6), why));
    serving.stop();
    let wrong = project.callboard(&["serve", "--listen", "localhost:0"]);
    assert!(wrong.code == Some(2) && wrong.error.contains("write the IP address too: 127.0.0.1:0"), "{}", wrong.error);
}

#[test]
fn a_store_is_backed_up_while_a_server_uses_it_and_the_copy_continues_its_runs() {
    let project = Project::new();
    let serving = Serving::start(&project);
    let done = sent(&project, "done before");
    project.model.answers("done");
    assert_eq!(project.callboard(&["wait", &done]).code, Some(0));
    let open = sent(&project, "still open");
    let copied = project.callboard(&["store", "backup", "copy"]);
    assert!(copied.code == Some(0) && copied.out.starts_with("copied: "), "{}", copied.error);
    let again = project.callboard(&["store", "backup", "copy"]);
    assert!(again.code == Some(2) && again.error.contains("copy has a store"), "{}", again.error);
    for store in [&[][..], &["--store", "copy"]] {
        let checked = project.callboard(&[&["store", "check"], store].concat());
        assert!(checked.code == Some(0) && checked.out.ends_with(": 2 runs, no damage\n"), "{}", checked.out);
    }
    project.model.answers("for the server");
    assert_eq!(project.callboard(&["wait", &open]).out, "for the server\n");
    serving.stop();
    let resumed = project.callboard(&["run", "--resume", &open, "--store", "copy", "--model", "fake"]);
    assert_eq!(resumed.code, Some(0), "{}", resumed.error);
    let listed = project.callboard(&["runs", "list", "--store", "copy", "--json"]).json();
    assert!(listed.as_array().unwrap().iter().all(|run| run["status"] == "finished"), "{listed}");
}

#[test]
fn a_run_that_began_while_its_store_was_copied_is_taken_over_in_the_copy() {
    let project = Project::new();
    project.run_killed(&["run", "x"]);
    // What a copy has whose values were read before the run began: its journal, and no note that it is open.
    let export = project.callboard(&["store", "export"]).out;
    let is_note = |line: &&str| line.starts_with("{\"key\":[\"open\",");
    let mut lines: Vec<String> = export.lines().filter(|line| !is_note(line)).map(str::to_owned).collect();
    let mut end: Value = serde_json::from_str(&lines.pop().unwrap()).unwrap();
    let removed = export.lines().filter(is_note).count() as u64;
    end["end"]["values"] = (end["end"]["values"].as_u64().unwrap() - removed).into();
    lines.push(json!({ "end": end["end"] }).to_string());
    assert_eq!(removed, 1, "{export}");
    write(&project.folder, "export", &(lines.join("\n") + "\n"));
    let imported = project.callboard(&["store", "import", "export", "--store", "bare"]);
    assert_eq!(imported.code, Some(0), "{}", imported.error);
    assert_eq!(project.callboard(&["store", "backup", "copy", "--store", "bare"]).code, Some(0));
    let serving = Serving::start_with(&project, &["--store", "copy", "--model", "fake"]);
    let waited = project.callboard(&["wait", "@last", "--store", "copy", "--timeout", "30s"]);
    assert_eq!(waited.code, Some(0), "{}", waited.error);
    serving.stop();
}

#[test]
fn a_doctor_looks_at_what_agents_and_servers_need() {
    let project = Project::new();
    let found = |printed: &crate::support::Printed, check: &str| {
        let rows = printed.json();
        let row = rows.as_array().unwrap().iter().find(|row| row["check"] == check).cloned();
        row.map(|row| (row["found"].as_str().unwrap().to_owned(), row["text"].as_str().unwrap().to_owned())).unwrap()
    };
    project.run("one");
    let well = project.callboard(&["doctor", "--json"]);
    assert_eq!(well.code, Some(0), "{}", well.out);
    for (check, text) in [
        ("store", ": 1 run"),
        ("clock", "Z"),
        ("disk", " MiB free in "),
        ("state", " is this user's alone"),
        ("sockets", "in /"),
    ] {
        let (word, shown) = found(&well, check);
        assert!(["ok", "warning"].contains(&&*word) && shown.contains(text), "{check}: {word} {shown}");
    }
    assert_eq!(found(&well, "models").0, "ok", "{}", well.out);
    let text = project.callboard(&["doctor"]).out;
    assert!(text.lines().any(|line| line.starts_with("ok       models   1 model, each with its key")), "{text}");
    project.model.answers("ok");
    let online = project.callboard(&["doctor", "--online", "--json"]);
    assert_eq!(found(&online, "online"), ("ok".to_owned(), "the model m answers".to_owned()), "{}", online.out);
    project.model.request();
    let nowhere = "[[models]]\nname = \"m\"\nprovider = \"openai-compatible\"\nurl = \"http://127.0.0.1:9/v1\"\n";
    write(&project.folder, "models.toml", nowhere);
    let offline = project.callboard(&["doctor", "--online", "--json"]);
    assert_eq!((offline.code, &*found(&offline, "online").0), (Some(1), "failed"), "{}", offline.out);
    write(&project.folder, "models.toml", "[[models]]\nname = \"m\"\nprovider = \"nobody\"\n");
    let ill = project.callboard(&["doctor", "--json"]);
    assert_eq!((ill.code, &*found(&ill, "models").0), (Some(1), "failed"), "{}", ill.out);
}
