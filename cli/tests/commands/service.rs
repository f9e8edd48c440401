//! `callboard serve`, and the commands that work with runs of other processes: real processes, and a model on this machine.

#![cfg(unix)]

use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::agents::{add_python_agent, add_shell_agent, searcher};
use crate::support::model::Model;
use crate::support::project::Project;
use crate::support::running::Running;
use crate::support::serving::{Serving, sent};
use crate::support::{Killed, ended, output_of, write};

/// What a server answers to a query of facts.
fn facts_of(serving: &Serving, project: &Project, query: &str) -> Value {
    let secret = fs::read_to_string(project.stores().join("service/owner-token")).unwrap();
    let token = format!("Authorization: Bearer {}", secret.trim());
    let url = format!("http://{}/v1/knowledge/default/query", serving.address());
    let query = json!({ "query": query }).to_string();
    let answered = output_of(Command::new("curl").args(["--silent", "--header", &token, "--json", &query, &url]));
    serde_json::from_str(&answered.out).expect(&answered.out)
}

#[test]
fn a_base_that_is_made_while_a_server_runs_is_served() {
    const REMARK: &str = "the server that runs for this project serves the base as well";
    let project = Project::new();
    fs::create_dir(project.folder.path().join("notes")).unwrap();
    fs::write(project.folder.path().join("notes/gate.md"), "# Gate\n\nThe gate is green.\n").unwrap();
    let mut serving = Serving::start_with(&project, &["--model", "fake"]);
    let none = facts_of(&serving, &project, "gate");
    assert!(none["detail"].as_str().is_some_and(|detail| detail.contains("there is no base of facts")), "{none}");
    let first = project.callboard(&["kb", "init", "notes"]);
    assert_eq!((first.code, first.error.matches(REMARK).count()), (Some(0), 1), "{}", first.error);
    serving.until("the base of facts that was made is served from now on");
    let found = facts_of(&serving, &project, "gate");
    assert_eq!(
        (&found["results"][0]["cite"], found["answer"].is_null()),
        (&json!("notes/gate.md:1"), false),
        "{found}"
    );
    let again = project.callboard(&["kb", "init", "notes"]);
    assert_eq!((again.code, again.error.matches(REMARK).count()), (Some(0), 0), "{}", again.error);
    let stopped = serving.stop();
    assert_eq!(stopped.code, Some(0), "{}", stopped.error);
}

#[test]
fn a_server_with_a_model_answers_queries_of_facts_with_it() {
    let project = Project::new();
    let submitted = project.callboard(&["kb", "submit", "The gate is open."]);
    assert_eq!(submitted.code, Some(0), "{}", submitted.error);
    for (options, has_answer) in [(&["--model", "fake"][..], true), (&[], false)] {
        let serving = Serving::start_with(&project, options);
        let found = facts_of(&serving, &project, "gate");
        assert_eq!(found["results"].as_array().map(Vec::len), Some(1), "{found}");
        assert_eq!(found.get("answer").is_some(), has_answer, "{found}");
        let stopped = serving.stop();
        assert_eq!(stopped.code, Some(0), "{}", stopped.error);
    }
}

#[test]
fn a_link_signs_in_to_the_pages_of_the_server() {
    let project = Project::new();
    let nobody = project.callboard(&["sign-in"]);
    assert_eq!(nobody.code, Some(6), "{}", nobody.error);
    let serving = Serving::start(&project);
    let port = serving.line.trim_end().rsplit(':').next().unwrap().to_owned();
    let printed = project.callboard(&["sign-in"]);
    let (name, secret) = printed.out.split_once(&format!(".localhost:{port}/sign-in#cbt_")).unwrap();
    assert!(name.starts_with("http://cb-") && secret.trim_end().len() == 64, "{}", printed.out);
    let scopes = "with the scopes read, delegate, approve, admin, knowledge:read, knowledge:write\n";
    assert!(
        printed.error.starts_with("signs in owner once, until ") && printed.error.ends_with(scopes),
        "{}",
        printed.error
    );
    project.callboard(&["tokens", "add", "ann", "--scope", "read"]);
    let link = project.callboard(&["sign-in", "--token", "ann", "--json"]).json();
    assert_eq!((&link["name"], &link["person"], &link["scopes"]), (&json!("ann"), &Value::Null, &json!(["read"])));
    assert!(link["url"].as_str().unwrap().starts_with(name) && link["expires_at"].as_str().unwrap().ends_with('Z'));
    let unknown = project.callboard(&["sign-in", "--token", "ben"]);
    assert_eq!((unknown.code, &*unknown.error), (Some(3), "error: there is no token ben\n"));
    assert_eq!(project.callboard(&["sign-in", "--revoke"]).out, "0 sessions and 2 links have ended\n");
    let both = project.callboard(&["sign-in", "--revoke", "--token", "ann"]);
    assert_eq!(both.code, Some(2), "{}", both.error);
    let stopped = serving.stop();
    let pages = format!("the pages are at {name}.localhost:{port}; to sign in: callboard sign-in\n");
    assert!(stopped.error.contains(&pages), "{}", stopped.error);
}

#[test]
fn a_task_is_sent_to_a_server_and_waited_for() {
    let project = Project::new();
    let serving = Serving::start(&project);
    let beginning = "1 agent running · 0 waiting for you · 0 failed          http://127.0.0.1:";
    assert!(serving.line.starts_with(beginning), "{}", serving.line);
    let id = sent(&project, "what version is myapp running?");
    project.model.request();
    let status = project.callboard(&["status", &id]);
    assert_eq!(status.out, format!("{id}  writer: open (1 turn)\n"));
    assert_eq!(project.callboard(&["status", &id, "--json"]).json()["is_stale"], false);
    let early = project.callboard(&["wait", &id, "--timeout", "0s"]);
    assert_eq!(early.code, Some(124), "{}", early.error);
    assert_eq!(
        early.error,
        format!("error: the time is over, and run {id} continues; to wait again: callboard wait {id}\n")
    );
    let waiting = project.command(&["wait", &id]).spawn().unwrap();
    project.model.answers("myapp is on v2.3.1");
    let waited = ended(waiting);
    assert_eq!((waited.code, &*waited.out), (Some(0), "myapp is on v2.3.1\n"), "{}", waited.error);
    assert_eq!(project.callboard(&["wait", "@last"]).out, "myapp is on v2.3.1\n");
    let unknown = project.callboard(&["send", "nobody", "x"]);
    let reason = "error: no agent has the name, role or capability \"nobody\"\n    the agents are capability_gap, compactor, complexity, enricher, summarizer, writer\n";
    assert_eq!((unknown.code, &*unknown.error), (Some(3), reason));
    let second = project.callboard(&["serve", "--listen", "127.0.0.1:0"]);
    assert!(
        second.code == Some(6) && second.error.contains("a server runs for these agents already"),
        "{:?} {}",
        second.code,
        second.error
    );
    // The store that `serve` prints is the project's: it has the same server and the same tokens.
    let store = project.stores().join("1");
    let same = ["--store", store.to_str().unwrap()];
    assert_eq!(project.callboard(&[&["status", &id], &same[..]].concat()).code, Some(0));
    assert!(project.callboard(&[&["agents"], &same[..]].concat()).out.contains("writer"));
    let tokens = |store: &[&str]| project.callboard(&[&["tokens", "list"], store].concat()).out;
    assert!(tokens(&[]).contains("owner") && tokens(&same) == tokens(&[]), "{}", tokens(&same));
    let again = project.callboard(&[&["serve", "--listen", "127.0.0.1:0"], &same[..]].concat());
    assert!(again.code == Some(6) && again.error.contains("a server runs for these agents already"), "{}", again.error);
    let stopped = serving.stop();
    assert_eq!(stopped.code, Some(0), "{}", stopped.error);
    let (root, stores) = (project.folder.path().to_owned(), project.stores());
    let advice = "one of another project is reached from its folder, or with its --store";
    for (store, what, line) in [
        (
            &[][..],
            format!("the project {}, whose stores are in {}", root.display(), stores.display()),
            "callboard serve",
        ),
        (&["--store", "data"], "the store data".to_owned(), "callboard serve --store data"),
    ] {
        let nobody = project.callboard(&[&["send", "writer", "x"], store].concat());
        let expected = format!("error: no server runs for {what}\n    to start one: {line}\n    {advice}\n");
        assert_eq!((nobody.code, nobody.error), (Some(6), expected));
    }
}

#[test]
fn connections_leave_a_server_the_descriptors_that_its_store_needs() {
    let project = Project::new();
    let serving = Serving::start_with_descriptors(&project, 128);
    // Those beyond the limit wait to be accepted.
    let open: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(serving.address()).unwrap()).collect();
    let id = sent(&project, "x");
    project.model.request();
    project.model.answers("done");
    assert_eq!(project.callboard(&["wait", &id]).out, "done\n");
    drop(open);
    let stopped = serving.stop();
    assert_eq!(stopped.code, Some(0), "{}", stopped.error);
}

#[test]
fn a_server_with_a_certificate_answers_https_and_its_key_is_kept_from_agents() {
    let project = Project::new();
    let files = |folder: &Path| {
        ["first.pem", "first.key"].map(|name| {
            let (from, to) =
                (Path::new("../crates/callboard-server/tests/server/certificates").join(name), folder.join(name));
            fs::write(&to, fs::read(from).unwrap()).unwrap();
            fs::set_permissions(&to, Permissions::from_mode(0o600)).unwrap();
            to.to_str().unwrap().to_owned()
        })
    };
    let [certificate, key] = files(project.state.path());
    let serving = Serving::start_with(&project, &["--tls-cert", &certificate, "--tls-key", &key]);
    let url = serving.line.trim_end().rsplit(' ').next().unwrap();
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    let curl = |trusted: &str| {
        let mut curl = Command::new("curl");
        output_of(curl.args(["--silent", "--show-error", "--cacert", trusted, &format!("{url}/v1/health")]))
    };
    let answered = curl(&certificate);
    assert!(answered.out.contains("\"status\""), "{} {}", answered.out, answered.error);
    let foreign = fs::canonicalize("../crates/callboard-server/tests/server/certificates/second.pem").unwrap();
    let foreign = foreign.to_str().unwrap();
    assert_eq!(curl(foreign).code, Some(60), "a client that trusts another certificate");
    sent(&project, "over the private socket");
    drop(serving);

    let readable = key.replace("first.key", "readable.key");
    fs::copy(&key, &readable).unwrap();
    fs::set_permissions(&readable, Permissions::from_mode(0o644)).unwrap();
    for (options, code, expected) in [
        (
            &["--tls-cert", &certificate][..],
            2,
            "error: TLS needs the key of the certificate too: name its file with --tls-key",
        ),
        (&["--tls-cert", &key, "--tls-key", &key], 2, "first.key has no certificate in PEM"),
        (&["--tls-cert", &certificate, "--tls-key", &certificate], 2, "first.pem has no private key in PEM"),
        (&["--tls-cert", foreign, "--tls-key", &key], 2, "the certificate and the key cannot be used"),
        (&["--tls-cert", "none.pem", "--tls-key", &key], 2, "TLS: none.pem: No such file"),
        (&["--tls-cert", &certificate, "--tls-key", "/dev"], 2, "TLS: /dev: it is not a file"),
        (&["--tls-cert", &certificate, "--tls-key", &readable], 4, "TLS: others may use the key: "),
        (
            &["--tls-cert", &certificate, "--tls-key", &files(project.folder.path())[1]],
            4,
            "is in the folder that tools of agents work in",
        ),
    ] {
        let refused = project.callboard(&[&["serve", "--listen", "127.0.0.1:0"], options].concat());
        assert!(refused.code == Some(code) && refused.error.contains(expected), "{:?} {}", refused.code, refused.error);
    }
}

#[test]
fn a_server_counts_all_that_waits_when_it_starts() {
    let project = Project::new();
    let serving = Serving::start_with(&project, &["--model", "fake"]);
    for _ in 0..3 {
        let id = sent(&project, r#"AskUser {"question": "Which port?"}"#);
        assert_eq!(project.callboard(&["wait", &id]).code, Some(5));
    }
    serving.stop();
    let serving = Serving::start_with(&project, &["--model", "fake"]);
    assert!(serving.line.starts_with("1 agent running · 3 waiting for you · "), "{}", serving.line);
    serving.stop();
}

#[test]
fn a_server_whose_agents_lack_a_key_says_so_when_it_starts() {
    let project = Project::new();
    let stopped = Serving::start(&project).stop();
    assert!(!stopped.error.contains("warning: "), "{}", stopped.error);
    fs::remove_file(project.folder.path().join("models.toml")).unwrap();
    let stopped = Serving::start_with(&project, &["--model", "openai/gpt-5-mini"]).stop();
    let warning =
        "warning: there is no key for openai: set OPENAI_API_KEY; without it these agents cannot work: writer\n";
    assert!(stopped.error.contains(warning), "{}", stopped.error);
}

#[test]
fn a_saved_workflow_is_started_on_a_server() {
    let project = Project::new();
    let start = |arguments: &[&str]| project.callboard(&[&["workflow", "start"], arguments].concat());
    assert_eq!(start(&["daily"]).code, Some(6), "no server runs");
    let line = r#"workflow daily: writer(input="{{ topic }}")"#;
    assert_eq!(project.callboard(&["workflow", "save", "--line", line]).code, Some(0));
    let serving = Serving::start_with(&project, &["--model", "fake"]);
    let begun = start(&["daily", "--input", "topic=tides", "--reference", "issue 7", "--json"]).json();
    assert_eq!(
        (&begun["workflow"], &begun["body"], &begun["reference"]),
        (&json!("daily"), &json!("daily"), &json!("issue 7"))
    );
    let waited = start(&["daily", "report", "--input-json", r#"{"topic": "tides"}"#, "--wait"]);
    assert!(waited.code == Some(0) && waited.out.contains("It was asked: tides"), "{} {}", waited.out, waited.error);
    let lacking = start(&["daily"]);
    assert!(lacking.code == Some(2) && lacking.error.contains("the input lacks topic"), "{}", lacking.error);
    let unknown =
        "error: no workflow daly is saved in this store; did you mean \"daily\"?\n    the saved workflows are daily\n";
    let scheduled = ["schedule", "add", "nightly", "x", "--workflow", "daly", "--every", "1h"];
    for wrong in [start(&["daly"]), project.callboard(&scheduled)] {
        assert_eq!((wrong.code, &*wrong.error), (Some(3), unknown));
    }
    let agent = project.callboard(&["schedule", "add", "nightly", "x", "--to", "witer", "--every", "1h"]);
    assert!(agent.code == Some(3) && agent.error.contains("; did you mean \"writer\"?"), "{}", agent.error);
    serving.stop();
}

#[test]
fn a_server_in_an_empty_folder_has_the_starter_team() {
    let project = Project::new();
    let empty = project.folder.path().join("empty");
    std::fs::create_dir_all(empty.join(".callboard")).unwrap();
    let there = |arguments: &[&str]| {
        let mut command = project.command(arguments);
        command.current_dir(&empty);
        command
    };
    let mut serving = Running::start(there(&["serve", "--listen", "127.0.0.1:0", "--model", "fake"]));
    let remarks = serving.until("the store is ");
    assert!(remarks.contains("so the team of `callboard init` works"), "{remarks}");
    let sent = output_of(there(&["send", "coder", "hello"]));
    assert!(sent.code == Some(0) && sent.error == "acknowledged by coder\n", "{}", sent.error);
    let waited = output_of(there(&["wait", "@last"]));
    assert!(waited.code == Some(0) && !waited.out.is_empty(), "{} {}", waited.out, waited.error);
    let task = r#"FileWrite {"path": "notes.txt", "content": "hi"}"#;
    let id = output_of(there(&["send", "coder", task])).out;
    let id = id.trim_end();
    assert_eq!(output_of(there(&["wait", id])).code, Some(5));
    serving.send(Signal::TERM);
    let stopped = serving.ended();
    assert!(
        stopped.code == Some(0) && stopped.out.starts_with("4 agents running"),
        "{} {}",
        stopped.out,
        stopped.error
    );
    // Nobody can decide now: the line that is printed continues the run, with the model that it had.
    let line = format!("run --resume {id} --model fake");
    let advice = format!("    no process works on it; to continue it, and decide then: callboard {line}\n");
    for (command, code) in [("wait", 5), ("status", 0), ("pending", 0)] {
        let printed = output_of(there(&[command, id]));
        let text = printed.out + &printed.error;
        assert!(printed.code == Some(code) && text.ends_with(&advice) && !text.contains("callboard deny"), "{text}");
    }
    let approved = output_of(there(&["approve", id]));
    assert!(approved.code == Some(6) && approved.error.ends_with(&format!("callboard {line}\n")), "{}", approved.error);
    let continued: Vec<&str> = line.split(' ').chain(["--no-input"]).collect();
    let waits = output_of(there(&continued));
    assert!(waits.code == Some(5) && waits.error.contains("target    notes.txt"), "{}", waits.error);
}

#[test]
fn a_run_that_was_left_is_continued_with_the_model_that_had_answered() {
    let project = Project::new();
    fs::remove_file(project.folder.path().join("models.toml")).unwrap();
    write(&project.folder, "agents/writer.toml", &searcher("writer"));
    let callboard = |arguments: &[&str]| {
        let mut command = project.command(arguments);
        command.env("OPENAI_API_KEY", "k").env("OPENAI_BASE_URL", format!("{}/v1", project.model.address));
        output_of(command)
    };
    project.model.calls("FileSearch", json!({ "pattern": "x" }));
    let waits = callboard(&["run", "look", "--model", "openai/gpt-5-mini", "--no-input"]);
    assert_eq!(waits.code, Some(5), "{}", waits.error);
    let status = callboard(&["status", "@last", "--json"]).json();
    let line = status["to_continue"].as_str().unwrap();
    assert!(line.ends_with(" --model openai/gpt-5-mini"), "{line}");
    let continued: Vec<&str> = line.split(' ').skip(1).chain(["--no-input"]).collect();
    let waits = callboard(&continued);
    assert!(waits.code == Some(5) && waits.error.contains("action    FileSearch"), "{}", waits.error);
}

#[test]
fn commands_in_another_folder_report_that_it_has_no_store() {
    let project = Project::new();
    let (root, state) = (project.folder.path().to_owned(), project.state.path().join("callboard"));
    for arguments in [&["pending"][..], &["status", "@last"], &["wait", "@last"], &["cancel", "req-9c41"]] {
        let printed = project.callboard(arguments);
        let begin = format!("error: the project {} has no store: none is in {}/", root.display(), state.display());
        let end = "\n    runs of another project are found from its folder, or with its --store\n";
        assert_eq!(printed.code, Some(3), "{arguments:?}");
        assert!(printed.error.starts_with(&begin) && printed.error.ends_with(end), "{}", printed.error);
    }
}

#[test]
fn what_a_delegation_waits_for_is_decided_at_another_terminal() {
    let project = Project::new();
    write(&project.folder, "agents/writer.toml", &searcher("writer"));
    let serving = Serving::start(&project);
    let id = sent(&project, "look");
    project.model.calls("FileSearch", json!({ "pattern": "x" }));
    let waited = project.callboard(&["wait", &id]);
    assert_eq!(waited.code, Some(5), "{} {}", waited.out, waited.error);
    let pending: Value = project.callboard(&["pending", "--json"]).parsed();
    let approval = pending["pending"][0]["id"].as_str().unwrap();
    let commands = format!("    callboard approve {approval}\n    callboard deny {approval}\n");
    let listed = project.callboard(&["pending"]);
    assert_eq!(waited.out, "", "it has no result");
    let shown = [(&waited.error, format!("{id} waits for a person:\n")), (&listed.out, format!("{id}  consent\n"))];
    for (text, begin) in shown {
        assert!(text.starts_with(&begin) && text.ends_with(&commands), "{text}");
        // Nobody decides about arguments that are not shown.
        assert!(text.contains("\"pattern\": \"x\""), "{text}");
    }
    let answered = project.callboard(&["answer", &id, "yes"]);
    assert!(answered.code == Some(2) && answered.error.contains("callboard approve"), "{}", answered.error);
    let code = &approval["approval:".len()..][..4];
    let by_code = project.callboard(&["approve", code]);
    let meant = format!("\n{code} is the code of a card, which is no id; write\n    {approval}\n");
    assert!(by_code.code == Some(3) && by_code.error.ends_with(&meant), "{}", by_code.error);
    let inbox = project.callboard(&["read", "writer"]).out;
    assert!(inbox.starts_with(" run ") && inbox.contains("owner  asks: look"), "tasks have no time: {inbox}");
    let denied = project.callboard(&["deny", &id, "--reason", "not now"]);
    assert!(denied.code == Some(0) && denied.out.starts_with("denied: writer wants to "), "{}", denied.error);
    project.model.calls("FileSearch", json!({ "pattern": "y" }));
    let waited = project.callboard(&["wait", &id]);
    assert_eq!(waited.code, Some(5), "{}", waited.error);
    assert_eq!(project.callboard(&["approve", approval]).code, Some(3), "it was denied");
    assert_eq!(project.callboard(&["approve", &id]).code, Some(0));
    project.model.answers("found");
    assert_eq!(project.callboard(&["wait", &id]).out, "found\n");
    assert_eq!(project.callboard(&["pending"]).out, "nothing waits for you\n");
    // What the command line decides is in the audit log, as what others decide.
    let log = std::fs::read_to_string(project.stores().join("service/audit.jsonl")).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let outcomes: Vec<Value> = lines.map(|line| line["outcome"].clone()).filter(|outcome| !outcome.is_null()).collect();
    assert_eq!(outcomes, ["denied", "approved"], "{log}");
    serving.stop();
}

#[test]
fn long_arguments_are_whole_where_a_person_decides_and_shortened_elsewhere() {
    let project = Project::new();
    write(&project.folder, "agents/writer.toml", &searcher("writer"));
    let serving = Serving::start(&project);
    let id = sent(&project, "look");
    let pattern = format!("{}\u{1b}[2Jevil\n{}", "harmless\n".repeat(400), "harmless\n".repeat(400));
    project.model.calls("FileSearch", json!({ "pattern": pattern }));
    let waited = project.callboard(&["wait", &id]);
    let pending: Value = project.callboard(&["pending", "--json"]).parsed();
    let approval = pending["pending"][0]["id"].as_str().unwrap();
    let status = project.callboard(&["status", &id]);
    for shown in [&waited.error, &status.out] {
        let advice = format!(" more bytes: callboard pending {approval}\n");
        let (begin, end) = shown.split_once(&advice).unwrap_or_else(|| panic!("{shown}"));
        let left_out: usize = begin.rsplit_once("… ").unwrap().1.parse().unwrap();
        assert!(left_out > 3_000 && !begin.contains("evil") && !end.contains("evil"), "{shown}");
    }
    for whole in [&["pending"][..], &["pending", approval], &["approvals", &id]] {
        let whole = project.callboard(whole);
        assert_eq!(whole.out.matches("│ harmless\n").count(), 800, "{}", whole.out);
        assert!(whole.out.contains("│ \\u{1b}[2Jevil\n") && !whole.out.contains("more bytes"), "{}", whole.out);
    }
    let unknown = project.callboard(&["pending", &approval.replace(|digit: char| digit.is_ascii_digit(), "a")]);
    assert!(unknown.code == Some(3) && unknown.error.contains("is not waited for"), "{}", unknown.error);
    assert_eq!(project.callboard(&["deny", &id]).code, Some(0));
    project.model.answers("found");
    assert_eq!(project.callboard(&["wait", &id]).code, Some(0));
    let nobody = project.callboard(&["pending", &id]);
    assert_eq!((nobody.code, nobody.error), (Some(3), format!("error: run {id} waits for nobody\n")));
    serving.stop();
}

#[test]
fn a_wait_ends_with_its_time_or_a_signal_while_the_process_that_has_the_store_is_suspended() {
    let project = Project::new();
    let serving = Serving::start(&project);
    let id = sent(&project, "x");
    let process = Pid::from_child(serving.process.as_ref().unwrap());
    kill_process(process, Signal::STOP).unwrap();
    let timed_out = project.callboard(&["wait", &id, "--timeout", "1s"]);
    let why = "and the run is not read yet: the process that has the store open may be suspended";
    let again = format!("to wait again: callboard wait {id}\n");
    assert_eq!((timed_out.code, timed_out.error), (Some(124), format!("error: the time is over, {why}; {again}")));
    let waiting = Running::start(project.command(&["wait", &id, "--json"]));
    // The handler of signals is installed before the store is opened, whose socket it connects to.
    waiting.until_handled(Signal::INT);
    waiting.send(Signal::INT);
    let interrupted = waiting.ended();
    kill_process(process, Signal::CONT).unwrap();
    assert_eq!((interrupted.code, &interrupted.json()["code"]), (Some(130), &130.into()), "{}", interrupted.out);
    project.model.answers("late");
    assert_eq!(project.callboard(&["wait", &id]).out, "late\n");
    serving.stop();
}

#[test]
fn a_run_of_another_process_is_cancelled_and_waited_for() {
    let project = Project::new();
    let run = project.command(&["run", "x"]).spawn().unwrap();
    project.model.request();
    let waiting = project.command(&["wait", "@last"]).spawn().unwrap();
    let cancelled = project.callboard(&["cancel", "@last", "--reason", "not needed"]);
    assert!(cancelled.code == Some(0) && cancelled.out.ends_with(" is cancelled\n"), "{}", cancelled.error);
    for process in [run, waiting] {
        let ended = ended(process);
        assert_eq!(ended.code, Some(1), "{} {}", ended.out, ended.error);
        assert!((ended.out + &ended.error).contains("not needed"));
    }
    let again = project.callboard(&["cancel", "@last"]);
    assert!(again.code == Some(1) && again.error.contains("has ended already: "), "{}", again.error);
    // One that no process works on.
    project.model.answers("never read");
    project.run_killed(&["run", "y"]);
    let waited = project.callboard(&["wait", "@last"]);
    assert_eq!(waited.code, Some(6), "{}", waited.error);
    let id = project.callboard(&["status", "@last"]).out[..16].to_owned();
    let resume = format!("callboard run --resume {id}");
    assert_eq!(
        waited.error,
        format!(
            "error: no process works on run {id}, and it has not ended\n    to continue it: {resume}\n    to cancel it: callboard cancel {id}\n"
        )
    );
    let status = project.callboard(&["status", &id]);
    assert_eq!(
        status.out,
        format!("{id}  writer: open (1 turn)\n    no process works on it; to continue it: {resume}\n")
    );
    let status = project.callboard(&["status", &id, "--json"]).json();
    assert_eq!((&status["is_worked_on"], &status["to_continue"]), (&false.into(), &resume.into()));
    assert_eq!(status["is_stale"], Value::Null);
    assert_eq!(project.callboard(&["cancel", "@last"]).code, Some(0));
    assert_eq!(project.callboard(&["status", &id, "--json"]).json()["is_worked_on"], Value::Null);
    assert_eq!(project.callboard(&["wait", "@last"]).code, Some(1));
}

#[test]
fn what_a_killed_server_had_acknowledged_is_done_by_the_next_one() {
    let project = Project::new();
    let serving = Serving::start(&project);
    let ids: Vec<String> = (0..3).map(|number| sent(&project, &format!("task {number}"))).collect();
    project.model.request();
    drop(serving);
    let open: Value = project.callboard(&["runs", "list", "--state", "open", "--json"]).parsed();
    assert_eq!(open.as_array().unwrap().len(), 3);
    // The model of the first server never answers.
    let serving = Serving::start_with(&project, &["--model", "fake"]);
    for id in &ids {
        let waited = project.callboard(&["wait", id]);
        assert!(waited.code == Some(0) && !waited.out.is_empty(), "{id}: {} {}", waited.out, waited.error);
    }
    serving.stop();
}

#[test]
fn a_run_that_was_left_is_deleted_with_its_note_and_others_are_still_listed() {
    let project = Project::new();
    project.run_killed(&["run", "x"]);
    assert_eq!(project.callboard(&["runs", "delete", "@last"]).code, Some(0));
    let pending = project.callboard(&["pending"]);
    assert_eq!((pending.code, &*pending.out, &*pending.error), (Some(0), "nothing waits for you\n", ""));
}

#[test]
fn tokens_are_made_and_revoked_at_the_terminal() {
    let project = Project::new();
    let added = project.callboard(&["tokens", "add", "ci", "--scope", "read"]);
    assert!(added.code == Some(0) && added.out.starts_with("cbt_") && added.out.len() == 69, "{}", added.error);
    let listed: Value = project.callboard(&["tokens", "list", "--json"]).parsed();
    assert_eq!((&listed["tokens"][0]["name"], &listed["tokens"][0]["scopes"]), (&"ci".into(), &json!(["read"])));
    assert_eq!(listed["tokens"][0]["namespaces"], json!([]));
    let limits = ["--owner", "ann", "--namespace", "codebase", "--namespace", "pm", "--requests-a-minute", "60"];
    let of_run = ["--tokens-per-run", "1000", "--cost-per-run", "2.50", "--agents", "2"];
    assert_eq!(project.callboard(&[&["tokens", "add", "bot"][..], &limits, &of_run].concat()).code, Some(0));
    let bot = &project.callboard(&["tokens", "list", "--json"]).parsed::<Value>()["tokens"][0];
    assert_eq!(
        (&bot["owner"], &bot["namespaces"], &bot["requests_a_minute"]),
        (&json!("ann"), &json!(["codebase", "pm"]), &json!(60))
    );
    assert_eq!(
        (&bot["tokens_per_run"], &bot["cost_per_run"], &bot["agents"]),
        (&json!(1_000), &json!("2.50"), &json!(2))
    );
    let limits =
        ["--scope", "read,delegate", "--lifetime", "7d", "--tokens-per-day", "500000", "--cost-per-day", "2.50"];
    assert_eq!(project.callboard(&[&["tokens", "add", "agent"][..], &limits].concat()).code, Some(0));
    let listed = project.callboard(&["tokens", "list"]).out;
    let rows: Vec<Vec<&str>> =
        listed.lines().map(|row| row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect();
    assert_eq!(rows[0], ["token", "owner", "scopes", "created", "expires", "limits"]);
    let [agent, bot, ci] = &rows[1..] else { panic!("{listed}") };
    assert_eq!(
        [agent[0], agent[1], agent[4]],
        ["agent", "read, delegate", "500,000 tokens a day, $2.50 a day"],
        "{listed}"
    );
    let limits = "60 requests a minute, 1,000 tokens a run, $2.50 a run, 2 agents a run, namespaces codebase pm";
    assert_eq!([bot[0], bot[1], bot[2], bot[4], bot[5]], ["bot", "ann", "read, delegate", "never", limits], "{listed}");
    assert_eq!([ci[0], ci[1], ci[3]], ["ci", "read", "never"], "{listed}");
    assert_eq!(project.callboard(&["tokens", "revoke", "agent"]).code, Some(0));
    assert_eq!(project.callboard(&["tokens", "delete", "bot"]).code, Some(0));
    assert_eq!(project.callboard(&["tokens", "add", "ci"]).code, Some(2));
    assert_eq!(project.callboard(&["tokens", "revoke", "ci"]).out, "the token ci is revoked\n");
    assert_eq!(project.callboard(&["tokens", "revoke", "ci"]).code, Some(3));
    let used = project.callboard(&["tokens", "add", "ci"]);
    let text = "error: a token ci was revoked, and its runs are still known by that name; choose another name\n";
    assert_eq!((used.code, &*used.error), (Some(2), text));
    // Before there is a store.
    assert_eq!(project.callboard(&["tokens", "add", "ci", "--store", "data"]).code, Some(0));
    project.run_with("x", &["--store", "data"]);
}

#[test]
fn an_address_that_others_reach_needs_consent() {
    let project = Project::new();
    let refused = project.callboard(&["serve", "--listen", "0.0.0.0:0"]);
    assert!(refused.code == Some(2) && refused.error.contains("there is no TLS"), "{}", refused.error);
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let refused = project.callboard(&["serve", "--listen", &address]);
    let advice = "another port: callboard serve --listen 127.0.0.1:0";
    assert!(refused.code == Some(6) && refused.error.contains(advice), "{}", refused.error);
}

#[test]
fn runs_of_programs_and_servers_share_a_store() {
    let (project, other) = (Project::new(), Model::start());
    let serving = Serving::start(&project);
    write(&project.folder, "other.toml", &other.catalog());
    let run = project.command(&["run", "beside", "--models", "other.toml"]).spawn().unwrap();
    other.request();
    let id = sent(&project, "served");
    project.model.request();
    let listed: Value = project.callboard(&["runs", "list", "--json"]).parsed();
    assert_eq!(listed.as_array().unwrap().len(), 2);
    // The server has the files open.
    drop(serving);
    other.answers("done");
    let ended = ended(run);
    assert_eq!((ended.code, &*ended.out), (Some(0), "done\n"), "{}", ended.error);
    project.model.answers("never read");
    project.model.answers("late");
    let serving = Serving::start(&project);
    assert_eq!(project.callboard(&["wait", &id]).out, "late\n");
    serving.stop();
}

/// A client that writes messages to `callboard mcp`, one a line, and reads the answers.
#[test]
fn an_mcp_client_uses_the_agents_of_a_server_as_tools() {
    let project = Project::new();
    let nobody = project.callboard(&["mcp"]);
    assert!(
        nobody.code == Some(6) && nobody.error.starts_with("error: no server runs for the project "),
        "{}",
        nobody.error
    );
    let serving = Serving::start(&project);
    let mut client = project.command(&["mcp"]).stdin(Stdio::piped()).spawn().unwrap();
    let (mut input, mut lines) = (client.stdin.take().unwrap(), BufReader::new(client.stdout.take().unwrap()).lines());
    let mut ask = |id: u32, method: &str, params: Value| -> Value {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(input, "{request}").unwrap();
        serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap()
    };
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let tools = ask(1, "tools/list", json!({ "_meta": meta }));
    let mut tools = tools["result"]["tools"].as_array().unwrap().iter();
    assert!(tools.any(|tool| tool["name"] == "agent_writer"), "{tools:?}");
    project.model.answers("hello");
    let arguments = json!({ "task": "say hello", "reference": "#7" });
    let called = ask(2, "tools/call", json!({ "name": "agent_writer", "arguments": arguments, "_meta": meta }));
    assert_eq!(called["result"]["content"][0]["text"], "hello", "{called}");
    drop(input);
    assert_eq!(ended(client).code, Some(0), "it ends with its input");
    let mut left = project.command(&["mcp"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut waiting = left.stdin.take().unwrap();
    writeln!(
        waiting,
        "{}",
        json!({ "jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": { "_meta": meta } })
    )
    .unwrap();
    let mut answer = String::new();
    BufReader::new(left.stdout.take().unwrap()).read_line(&mut answer).unwrap();
    assert!(answer.contains("2026-07-28"), "a connection that ends ends no other: {answer}");
    serving.stop();
    let left = ended(left);
    assert_eq!((left.code, &*left.error), (Some(6), "error: the server has stopped\n"));
    drop(waiting);
}

#[test]
fn a_server_logs_json_measures_and_keeps_entries() {
    let project = Project::new();
    // What a program of an agent could leave in the project: tokens of its own. This is the hash of `wrong`.
    let token = json!({
        "name": "planted", "sha256": "164833203262a61c18a0bbdc79e405657b7f494c6a5f675ea177036a3ddc4f4a",
        "scopes": ["read", "delegate", "approve", "admin"], "created_at_ms": 0, "expires_at_ms": null, "is_owner": true,
    });
    let planted = json!({ "version": 1, "tokens": [token] }).to_string();
    for place in ["", "service/", "agents/service/", ".callboard/", ".callboard/service/"] {
        write(&project.folder, &format!("{place}tokens.json"), &planted);
        write(&project.folder, &format!("{place}owner-token"), "cbt_0123456789");
    }
    let serving = Serving::start_with(&project, &["--log-format", "json", "--turns", "7"]);
    let url = format!("http://{}", serving.address());
    let id = sent(&project, "x");
    project.model.answers("done");
    assert_eq!(project.callboard(&["wait", &id]).code, Some(0));

    let printed = |arguments: &[&str]| {
        let printed = project.callboard(&[&["context"], arguments].concat());
        (printed.code, printed.out, printed.error)
    };
    let none = (Some(3), String::new(), "error: there is no entry plan in notes\n".to_owned());
    assert_eq!(printed(&["get", "notes", "plan"]), none);
    let said = |text: &str| (Some(0), text.to_owned(), String::new());
    assert_eq!(printed(&["set", "notes", "plan", "ship it", "--ttl", "1h"]), said("plan in notes is set\n"));
    assert_eq!(printed(&["get", "notes", "plan"]), said("ship it\n"));
    let listed = printed(&["list", "notes", "--prefix", "pl"]).1;
    assert!(listed.lines().count() == 2 && listed.contains("plan"), "{listed}");
    assert_eq!(printed(&["list", "notes", "--prefix", "x"]), said("there are no entries in notes\n"));
    assert_eq!(printed(&["delete", "notes", "plan"]), said("plan in notes is deleted\n"));
    assert_eq!(printed(&["remove", "notes", "plan"]), none);
    let unread = "error: no agent reads the namespace run: for agents, `run` is the namespace of their run, run:ID with its whole id; they also \
                  have memory:AGENT, and what `namespaces` in their files names\n";
    assert_eq!(printed(&["set", "run", "plan", "ship it"]), (Some(2), String::new(), unread.to_owned()));

    let secret = fs::read_to_string(project.stores().join("service/owner-token")).unwrap();
    let curl = |token: &str| {
        let token = format!("Authorization: Bearer {token}");
        output_of(Command::new("curl").args(["--silent", "--header", &token, &format!("{url}/v1/metrics")])).out
    };
    let text = curl(secret.trim());
    let figures = families(&text);
    assert_eq!(
        figures["callboard_runs_total"],
        ("counter".to_owned(), vec![("{outcome=\"finished\"}".to_owned(), 1.0)])
    );
    for name in ["callboard_turns_total", "callboard_handoffs_per_run", "callboard_board_runs"] {
        assert!(figures.contains_key(name), "{name}: {text}");
    }
    assert_eq!(figures["callboard_handoff_latency_seconds"].0, "histogram");
    assert_eq!(figures["callboard_board_free_permits"].1, [(String::new(), 7.0)], "of the pool that --turns sets");
    let wrong = "cbt_0123456789";
    curl(wrong);
    let stopped = serving.stop();
    let lines: Vec<Value> = stopped.error.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let has = |text: &str| lines.iter().any(|line| line["message"].as_str().is_some_and(|shown| shown.contains(text)));
    assert!(has("the store is ") && has("stopping: "), "{}", stopped.error);
    let refused = lines.iter().find(|line| line["status"] == 401).expect(&stopped.error);
    assert_eq!((&refused["target"], &refused["path"]), (&json!("callboard::audit"), &json!("/v1/metrics")));
    let log = fs::read_to_string(project.stores().join("service/audit.jsonl")).unwrap();
    assert!(log.contains("/v1/context/notes/plan"), "{log}");
    for text in [stopped.error, log] {
        assert!(!text.contains(wrong) && !text.contains(secret.trim()), "{text}");
    }
}

/// The families of a text for Prometheus, each with its type and its samples: labels and value. Each has one help and one type, before
/// its samples.
fn families(text: &str) -> std::collections::BTreeMap<String, (String, Vec<(String, f64)>)> {
    let mut families = std::collections::BTreeMap::new();
    let (mut helped, mut current) = (String::new(), String::new());
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(help) = line.strip_prefix("# HELP ") {
            helped = help.split_once(' ').expect("it has a text").0.to_owned();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert_eq!(name, helped, "it has no help");
            current = name.to_owned();
            let earlier = families.insert(current.clone(), (kind.to_owned(), Vec::new()));
            assert!(earlier.is_none(), "{name} is there twice");
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = sample.split_at(sample.find('{').unwrap_or(sample.len()));
            assert!(name.starts_with(&current), "{line} is not of {current}");
            let value = value.parse().unwrap_or_else(|error| panic!("{error}: {line}"));
            families.get_mut(&current).unwrap().1.push((labels.to_owned(), value));
        }
    }
    families
}

#[test]
fn a_server_does_not_use_a_squatted_folder_of_sockets_or_a_store_of_a_newer_version() {
    let (project, runtime) = (Project::new(), tempfile::tempdir().unwrap());
    let folder = runtime.path().join("callboard");
    let serve = |store: &[&str]| {
        let mut command = project.command(&[&["serve", "--listen", "127.0.0.1:0"], store].concat());
        command.env("XDG_RUNTIME_DIR", runtime.path());
        output_of(command)
    };
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    let shown = folder.display();
    let refused = serve(&[]);
    let why = format!("error: {shown} has the mode 0755; run `chmod 0700 {shown}`\n");
    assert!(refused.code == Some(4) && refused.error.ends_with(&why), "{:?} {}", refused.code, refused.error);
    let elsewhere = runtime.path().join("elsewhere");
    fs::rename(&folder, &elsewhere).unwrap();
    fs::set_permissions(&elsewhere, Permissions::from_mode(0o700)).unwrap();
    symlink(&elsewhere, &folder).unwrap();
    let refused = serve(&[]);
    let why = format!("error: {shown} is no folder; links are not followed\n");
    assert!(refused.code == Some(4) && refused.error.ends_with(&why), "{:?} {}", refused.code, refused.error);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "no socket was made");
    fs::remove_file(&folder).unwrap();

    project.run_with("one", &["--store", "data"]);
    let format = project.folder.path().join("data/format");
    let text = fs::read_to_string(&format).unwrap();
    fs::write(&format, "callboard store, format 99\n").unwrap();
    let refused = serve(&["--store", "data"]);
    assert!(refused.code == Some(1) && refused.out.is_empty(), "{:?} {}", refused.code, refused.out);
    assert!(
        refused.error.contains("it was written by a newer version of callboard (format 99; this one reads 3)"),
        "{}",
        refused.error
    );
    fs::write(&format, text).unwrap();
    assert!(project.callboard(&["runs", "list", "--store", "data"]).out.contains("one"), "it is as it was");
}

/// Reads until there is this text.
fn read_until(from: &mut impl Read, expected: &str) {
    let (mut seen, mut byte) = (Vec::new(), [0]);
    while !String::from_utf8_lossy(&seen).contains(expected) {
        assert!(from.read(&mut byte).unwrap() > 0, "{expected:?} is not in {}", String::from_utf8_lossy(&seen));
        seen.extend(byte);
    }
}

#[test]
fn a_server_waits_for_the_one_that_is_stopping_and_takes_over_its_runs() {
    let project = Project::new();
    add_python_agent(
        &project.folder,
        "asks",
        "tell(type=\"ask\", id=1, question=\"Which port?\")\nend(turn, hear()[\"value\"])\n",
    );
    // Its turn ends with its process: nobody writes to the second pipe.
    add_shell_agent(&project.folder, "slow", "while turn; do echo > began; read more < never; done\n");
    let [began, never] = ["began", "never"].map(|name| project.folder.path().join(name));
    assert!(Command::new("mkfifo").args([&began, &never]).status().unwrap().success());
    let mut first = Serving::start(&project);
    for agent in ["slow", "asks"] {
        assert_eq!(project.callboard(&["send", agent, "x"]).code, Some(0));
    }
    fs::read(&began).unwrap();
    first.until("Which port?");
    let stop = |process: &Child| kill_process(Pid::from_child(process), Signal::INT).unwrap();
    stop(first.process.as_ref().unwrap());
    first.until("stopping: turns that run have 10 s to end");
    let mut second = Killed(project.command(&["serve", "--listen", "127.0.0.1:0"]).spawn().unwrap());
    read_until(second.0.stderr.as_mut().unwrap(), "waiting until the server that is stopping has ended");
    stop(first.process.as_ref().unwrap());
    first.process.take().unwrap().wait().unwrap();
    read_until(second.0.stdout.as_mut().unwrap(), "1 waiting for you");
    // The program of the turn ends with it.
    stop(&second.0);
    read_until(second.0.stderr.as_mut().unwrap(), "stopping: turns that run");
    stop(&second.0);
    second.0.wait().unwrap();
}
