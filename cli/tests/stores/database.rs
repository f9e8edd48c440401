//! Stores in PostgreSQL: real processes, each in a project and a state folder of its own as on a machine of its own, on a real server.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::postgres::{Server, connect};
use crate::support::agents::add_python_agent;
use crate::support::project::Project;
use crate::support::serving::Serving;
use crate::support::{Printed, output_of};

/// The URL of a new database, without a schema. `user` may have a password, which the server does not ask for.
pub(crate) fn database(name: &str, user: &str) -> String {
    let server = Server::of_this_process();
    let create = async {
        let client = connect(&server.url()).await;
        client.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(create);
    format!("postgres://{user}@/{name}?host={}", server.folder.display())
}

/// A project with this agent, a Python program.
pub(crate) fn project(agent: &str, body: &str) -> Project {
    let project = Project::new();
    add_python_agent(&project.folder, agent, body);
    project
}

/// `callboard ARGUMENTS` on the store, which finds the sockets of its own machine alone.
pub(crate) fn command_on(project: &Project, store: &str, arguments: &[&str]) -> Command {
    let mut command = project.command(arguments);
    command.env("CALLBOARD_STORE", store).env("XDG_RUNTIME_DIR", project.state.path());
    command
}

/// The output of `callboard ARGUMENTS` on the store.
pub(crate) fn on(project: &Project, store: &str, arguments: &[&str]) -> Printed {
    output_of(command_on(project, store, arguments))
}

pub(crate) fn done(printed: &Printed) -> &Printed {
    assert_eq!(printed.code, Some(0), "{} {}", printed.out, printed.error);
    printed
}

/// Serves the agents of a project as the board of this name.
pub(crate) fn serve(project: &Project, store: &str, name: &str) -> Serving {
    Serving::of(command_on(project, store, &["serve", "--listen", "127.0.0.1:0", "--name", name]))
}

/// Asks until there is an answer.
pub(crate) fn until<T>(mut asked: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(answer) = asked() {
            return answer;
        }
        std::thread::yield_now();
    }
}

/// The boards that are listed, each with its agents that are not built in, and whether it is gone.
pub(crate) fn boards(project: &Project, store: &str) -> Vec<(String, bool, bool)> {
    let listed = on(project, store, &["boards", "--json"]);
    let listed: Vec<Value> = done(&listed).parsed();
    let has_coder = |board: &Value| board["agents"].as_array().unwrap().iter().any(|agent| agent == "coder");
    let row = |board: &Value| {
        (board["board"].as_str().unwrap().to_owned(), has_coder(board), board["is_gone"].as_bool().unwrap())
    };
    listed.iter().map(row).collect()
}

#[test]
fn the_runs_of_a_board_that_was_killed_continue_on_a_board_of_another_machine() {
    let store = database("two_boards", "postgres");
    // Its turn lasts until the board that has started it is gone.
    let a = project("coder", "open('begun', 'w')\nhear()\n");
    // Of an agent that no other board has, the run waits until its board is back.
    add_python_agent(&a.folder, "lone", "end(turn, 'done at a') if os.path.exists('again') else hear()\n");
    let b = project("coder", "end(turn, 'done at b')\n");
    let unmigrated = on(&a, &store, &["runs", "list"]);
    assert!(unmigrated.error.contains("callboard store migrate"), "{}", unmigrated.error);
    done(&on(&a, &store, &["store", "migrate"]));
    let mut first = serve(&a, &store, "a");
    let second = serve(&b, &store, "b");
    until(|| {
        let both = [("a".to_owned(), true, false), ("b".to_owned(), true, false)];
        (boards(&b, &store) == both).then_some(())
    });
    let taken = output_of(project("coder", "").command(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--name",
        "a",
        "--store",
        &store,
    ]));
    let address = first.address();
    assert!(taken.code == Some(6) && taken.error.contains(address), "{:?} {}", taken.code, taken.error);
    let [run, lone] = ["coder", "lone"].map(|agent| {
        let sent = on(&a, &store, &["send", agent, "work"]);
        done(&sent).out.trim().to_owned()
    });
    until(|| a.folder.path().join("begun").exists().then_some(()));
    let shown = |run: &str| {
        let shown = on(&b, &store, &["runs", "show", run, "--json"]);
        done(&shown).json()
    };
    let ended = |run: &str| until(|| Some(shown(run)).filter(|run| run["status"] != "open"));
    assert_eq!(shown(&run)["status"], "open");
    first.process.as_mut().unwrap().kill().unwrap();
    let result = ended(&run);
    assert_eq!(result["result"]["output"], "done at b", "{result}");
    assert!(!boards(&b, &store).contains(&("a".to_owned(), true, false)), "its lease is over");
    assert_eq!(shown(&lone)["status"], "open");
    fs::write(a.folder.path().join("again"), "").unwrap();
    // The name is free again.
    let again = serve(&a, &store, "a");
    let result = ended(&lone);
    assert_eq!(result["result"]["output"], "done at a", "{result}");
    drop(first);
    again.stop();
    second.stop();
}

/// The id of a new run of this agent.
pub(crate) fn sent(project: &Project, store: &str, agent: &str) -> String {
    let sent = on(project, store, &["send", agent, "work"]);
    done(&sent).out.trim().to_owned()
}

/// Waits until a server knows an agent of another board.
pub(crate) fn until_known(project: &Project, store: &str, agent: &str) {
    until(|| {
        let listed = done(&on(project, store, &["agents", "--json"])).json();
        listed["agents"].as_array().unwrap().iter().any(|listed| listed["agent"] == agent).then_some(())
    });
}

pub(crate) const ASKS: &str = "end(turn, ask(type='ask', question='Which?')['value'])\n";
pub(crate) const PUBLISHES: &str =
    "end(turn, ask(type='approve', action='publish', target='WORDS.md', arguments={})['type'])\n";

#[test]
fn tasks_and_decisions_reach_the_boards_of_other_machines_from_everywhere() {
    let store = database("reached", "postgres");
    let a = project("lone", "end(turn, 'done at a')\n");
    let b = project("asker", ASKS);
    add_python_agent(&b.folder, "clerk", PUBLISHES);
    // No server runs there.
    let c = Project::new();
    done(&on(&a, &store, &["store", "migrate"]));
    let unserved = on(&c, &store, &["send", "asker", "work"]);
    assert!(unserved.code == Some(6) && unserved.error.contains("no server runs for the store"), "{}", unserved.error);
    let (first, second) = (serve(&a, &store, "a"), serve(&b, &store, "b"));
    let unknown = on(&c, &store, &["send", "askr", "work"]);
    assert!(unknown.code == Some(3) && unknown.error.contains("asker"), "{:?} {}", unknown.code, unknown.error);
    until_known(&a, &store, "asker");
    for from in [&a, &b, &c] {
        let listed = on(from, &store, &["agents"]);
        let row = |agent: &str| done(&listed).out.lines().find(|line| line.trim_start().starts_with(agent)).unwrap();
        let [lone, asker] = ["lone", "asker"].map(|agent| row(agent).split_whitespace().nth(1).unwrap());
        assert_eq!((lone, asker), ("a", "b"), "{}", listed.out);
        let lone = sent(from, &store, "lone");
        assert_eq!(done(&on(from, &store, &["wait", &lone])).out, "done at a\n");
        let asked = sent(from, &store, "asker");
        let waits = on(from, &store, &["wait", &asked]);
        assert_eq!(waits.code, Some(5), "{}", waits.error);
        let watch = command_on(from, &store, &["watch", &asked]).spawn().unwrap();
        for other in [&a, &b, &c] {
            let pending = on(other, &store, &["pending", &asked]);
            assert!(done(&pending).out.contains("Which?"), "{}", pending.out);
        }
        let unfit = on(from, &store, &["approve", &asked]);
        assert!(unfit.code == Some(2) && unfit.error.contains("`callboard answer`"), "{}", unfit.error);
        let answered = on(from, &store, &["answer", &asked, "this one"]);
        assert!(done(&answered).out.starts_with("answered: "), "{}", answered.out);
        assert_eq!(done(&on(from, &store, &["wait", &asked])).out, "this one\n");
        let watched: Printed = watch.wait_with_output().unwrap().into();
        assert!(done(&watched).out.ends_with("complete: this one\n"), "{}", watched.out);
        for (decision, output) in [("approve", "result"), ("deny", "failed")] {
            let clerk = sent(from, &store, "clerk");
            assert_eq!(on(from, &store, &["wait", &clerk]).code, Some(5));
            let decided = on(from, &store, &[decision, &clerk]);
            assert!(done(&decided).out.contains("WORDS.md"), "{}", decided.out);
            assert_eq!(done(&on(from, &store, &["wait", &clerk])).out, format!("{output}\n"));
        }
        let listed = sent(from, &store, "clerk");
        assert_eq!(on(from, &store, &["wait", &listed]).code, Some(5));
        let decided = on(from, &store, &["inbox", &listed, "--do", "approve"]);
        assert!(done(&decided).out.starts_with("approved: clerk"), "{} {}", decided.out, decided.error);
        let unneeded = sent(from, &store, "asker");
        let cancelled = on(from, &store, &["cancel", &unneeded, "--reason", "not needed"]);
        assert!(done(&cancelled).out.contains("is cancelled"), "{}", cancelled.out);
        let status = on(from, &store, &["status", &unneeded, "--json"]);
        assert_eq!(done(&status).json()["state"], "cancelled");
    }
    first.stop();
    second.stop();
}

/// As README.md has it, which a test of the pages compares.
const SHOWN: &str = r#"
$ callboard store migrate
postgres://ann@db.example.org/callboard has the schema of this callboard
$ callboard serve --model fake --name a                                              # on machine 1
$ callboard serve --model fake --name b                                              # on machine 2
$ callboard boards
board  agents                                                                                                 runs  lease  up       build  address
a      capability_gap, coder, compactor, complexity, coordinator, enricher, researcher, reviewer, summarizer     0  14 s   0.372 s  0.1.0  http://127.0.0.1:7420
b      capability_gap, coder, compactor, complexity, coordinator, enricher, researcher, reviewer, summarizer     0  14 s   0.187 s  0.1.0  http://127.0.0.1:7420
$ callboard send coder 'FileWrite {"path": "notes.txt", "content": "hi"}'            # on machine 1
req-b5a69c35aa9c  acknowledged by coder
$ kill -9 4711                                                                       # the process of a
$ callboard approve req-b5a6
approved: coder wants to FileWrite notes.txt
$ callboard wait req-b5a6
complete: The fake model does not think; it only shows how things go. It was asked: FileWrite {"path": "notes.txt", "content": "hi"}
- FileWrite answered: notes.txt is new: 1 lines
"#;

/// The commands, each with what is shown below it.
fn shown_steps() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut steps: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in SHOWN.trim().lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push((command, Vec::new())),
            (None, Some((_, shown))) => shown.push(line),
            (None, None) => panic!("no command is above {line}"),
        }
    }
    steps
}

/// Lines with single spaces, and the same in place of ids and figures.
fn without_figures<'l>(lines: impl IntoIterator<Item = &'l str>) -> Vec<String> {
    let word = |word: &str| match word.starts_with("req-") {
        true => "ID".to_owned(),
        false => word
            .split(|c: char| c.is_ascii_digit() || c == '.')
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("0"),
    };
    let lines = lines.into_iter().filter(|line| !line.trim().is_empty());
    lines.map(|line| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn the_tour_of_the_readme_survives_the_death_of_a_machine() {
    let store = database("tour", "postgres");
    let machines = [Project::new(), Project::new(), Project::new()];
    let mut served: Vec<Serving> = Vec::new();
    let mut id = String::new();
    for (line, shown) in shown_steps() {
        let (command, place) = line.split_once("  # ").unwrap_or((line, ""));
        let machine = match place {
            "on machine 1" => 0,
            "on machine 2" => 1,
            _ => 2,
        };
        let folder = machines[machine].folder.path().join("empty");
        fs::create_dir_all(folder.join(".callboard")).unwrap();
        // As a shell reads it, in a folder without agents.
        let of_shell = |command: &str| {
            let program = command_on(&machines[machine], &store, &[]);
            let mut shell = Command::new("sh");
            shell.args(["-c", &command.replace("callboard ", "exec \"$0\" ").replace("req-b5a6", &id)]);
            shell.arg(program.get_program()).current_dir(&folder).env_clear();
            shell.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
            shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            shell
        };
        if command.starts_with("kill ") {
            // It waits for a person: nothing of it is under way.
            until(|| (on(&machines[2], &store, &["wait", &id]).code == Some(5)).then_some(()));
            served[0].process.as_mut().unwrap().kill().unwrap();
        } else if command.starts_with("callboard serve ") {
            served.push(Serving::of(of_shell(&format!("{} --listen 127.0.0.1:0", command.trim()))));
        } else {
            let printed = until(|| {
                let printed = output_of(of_shell(command));
                // While the board is not taken over, nobody takes decisions.
                (printed.code == Some(0) || !command.starts_with("callboard approve")).then_some(printed)
            });
            done(&printed);
            if command.starts_with("callboard send ") {
                id = printed.out.trim().to_owned();
            }
            let both = format!("{} {}", printed.out.trim_end(), printed.error);
            let printed = both.replace(&store, "postgres://ann@db.example.org/callboard");
            // On a terminal the output has a mark.
            let shown = shown.iter().map(|line| line.trim_start_matches("complete: "));
            assert_eq!(without_figures(printed.lines()), without_figures(shown), "{command}: {printed}");
        }
    }
    let written = |machine: usize| machines[machine].folder.path().join("empty/notes.txt").exists();
    assert_eq!([written(0), written(1)], [false, true], "the board that lives has written it");
}

#[test]
fn a_database_of_another_project_is_refused_with_what_to_do_and_left_as_it_is() {
    let store = database("projects", "postgres");
    let named = |name: &str| {
        let project = project("coder", "end(turn, 'done')\n");
        fs::write(project.folder.path().join("callboard.toml"), format!("project = \"{name}\"\n")).unwrap();
        project
    };
    let (shop, garden) = (named("shop"), named("garden"));
    done(&on(&shop, &store, &["store", "migrate"]));
    // It belongs to nobody yet.
    assert_eq!(done(&on(&garden, &store, &["runs", "list", "--json"])).parsed::<Vec<Value>>().len(), 0);
    let first = serve(&shop, &store, "a");
    let run = sent(&shop, &store, "coder");
    assert_eq!(done(&on(&shop, &store, &["wait", &run])).out, "done\n");
    for command in [
        &["serve", "--listen", "127.0.0.1:0", "--name", "b"][..],
        &["runs", "list"],
        &["runs", "delete", &run],
        &["send", "coder", "work"],
        &["run", "work", "--to", "coder"],
        &["boards"],
    ] {
        let refused = on(&garden, &store, command);
        assert_eq!(refused.code, Some(2), "{command:?}: {}{}", refused.out, refused.error);
        for wanted in
            ["belongs to the project \"shop\"", "is of the project \"garden\"", "give the board a store of its own"]
        {
            assert!(refused.error.contains(wanted), "{command:?}: {}", refused.error);
        }
    }
    let listed = on(&shop, &store, &["runs", "list", "--json"]);
    assert_eq!(done(&listed).parsed::<Vec<Value>>().len(), 1);
    assert_eq!(boards(&shop, &store), [("a".to_owned(), true, false)]);
    // In a folder without a name, it is used.
    assert_eq!(done(&on(&Project::new(), &store, &["wait", &run])).out, "done\n");
    first.stop();
}

#[test]
fn the_first_line_of_a_server_counts_what_the_runs_of_all_boards_wait_for() {
    let store = database("counted", "postgres");
    let (a, b) = (project("clerk", PUBLISHES), project("coder", "end(turn, 'done')\n"));
    done(&on(&a, &store, &["store", "migrate"]));
    let first = serve(&a, &store, "a");
    let run = sent(&a, &store, "clerk");
    assert_eq!(on(&a, &store, &["wait", &run]).code, Some(5));
    let second = serve(&b, &store, "b");
    assert!(second.line.contains(" · 1 waiting for you · 0 failed"), "{}", second.line);
    // Commands of the server, where none runs.
    let c = Project::new();
    let [named, other] =
        [("a", &first), ("b", &second)].map(|(name, board)| format!("{name} (http://{})", board.address()));
    for command in [&["tree"][..], &["schedule", "list"], &["inbox"]] {
        let printed = on(&c, &store, command);
        let is_named = printed.error.contains(&named) && printed.error.contains(&other);
        assert!(is_named && !printed.error.contains("for the store"), "{command:?}: {}", printed.error);
    }
    second.stop();
    first.stop();
}

#[test]
fn a_turn_that_failed_is_tried_again_from_a_machine_without_the_agent() {
    let store = database("retried", "postgres");
    let a = project(
        "flaky",
        "end(turn, 'right') if os.path.exists('again') else tell(type='error', turn=turn['id'], text='no', terminal=True)\n",
    );
    let c = Project::new();
    done(&on(&a, &store, &["store", "migrate"]));
    let serving = serve(&a, &store, "a");
    let run = sent(&c, &store, "flaky");
    assert_eq!(on(&c, &store, &["wait", &run]).code, Some(1));
    let letters = on(&c, &store, &["dead-letters"]);
    assert!(done(&letters).out.contains(&run), "{}", letters.out);
    fs::write(a.folder.path().join("again"), "").unwrap();
    let retried = on(&c, &store, &["retry", &run]);
    let retried = done(&retried).out.trim().to_owned();
    let output = until(|| Some(on(&c, &store, &["wait", &retried])).filter(|waited| waited.code == Some(0)));
    assert_eq!(output.out, "right\n");
    serving.stop();
}

#[test]
fn a_delegation_to_another_machine_survives_the_board_that_works_on_it() {
    let store = database("delegated", "postgres");
    let lead = "answer = ask(type='delegate', to='worker', body='do it')\nend(turn, answer.get('value', answer))\n";
    let a = project("lead", lead);
    // Its turn lasts until its board is gone.
    let b = project("worker", "open('begun', 'w')\nhear()\n");
    let c = project("worker", "end(turn, 'done at c')\n");
    let declared = fs::read_to_string(c.folder.path().join("agents/worker.toml")).unwrap();
    let declared = declared + "[agent.announces]\ncapabilities = [\"rust\"]\n";
    fs::write(c.folder.path().join("agents/worker.toml"), declared).unwrap();
    done(&on(&a, &store, &["store", "migrate"]));
    let first = serve(&a, &store, "a");
    let mut second = serve(&b, &store, "b");
    until_known(&a, &store, "worker");
    let run = sent(&a, &store, "lead");
    until(|| b.folder.path().join("begun").exists().then_some(()));
    let third = serve(&c, &store, "c");
    let boards = on(&a, &store, &["boards"]);
    assert!(
        done(&boards).out.ends_with("worker is declared differently (capabilities) by b, c: each uses its own\n"),
        "{}",
        boards.out
    );
    let rows: Vec<Value> = on(&a, &store, &["boards", "--json"]).parsed();
    let differing = |name: &str| &rows.iter().find(|row| row["board"] == name).unwrap()["differing"];
    assert_eq!([differing("a"), differing("b")], [&json!({}), &json!({ "worker": ["capabilities"] })]);
    second.process.as_mut().unwrap().kill().unwrap();
    assert_eq!(done(&on(&b, &store, &["wait", &run])).out, "done at c\n");
    first.stop();
    third.stop();
}

#[test]
fn a_run_of_a_dead_board_is_resumed_in_a_folder_where_nothing_ran_before() {
    let store = database("resumed", "postgres");
    let a = project("worker", "open('begun', 'w')\nhear()\n");
    let c = project("worker", "end(turn, 'done at c')\n");
    done(&on(&a, &store, &["store", "migrate"]));
    let mut first = serve(&a, &store, "a");
    let run = sent(&a, &store, "worker");
    until(|| a.folder.path().join("begun").exists().then_some(()));
    first.process.as_mut().unwrap().kill().unwrap();
    let resumed = until(|| {
        let resumed = on(&c, &store, &["run", "--resume", &run]);
        (!resumed.error.contains("another process works on")).then_some(resumed)
    });
    assert_eq!(done(&resumed).out, "done at c\n");
}

#[test]
fn a_password_is_printed_nowhere() {
    let store = database("canary", "postgres:c4n4ry");
    let a = project("coder", "end(turn, 'done')\n");
    done(&on(&a, &store, &["store", "migrate", "--runtime-role", "boards"]));
    let mut serve = a.command(&["serve", "--listen", "127.0.0.1:0", "--store", &store, "--log-format", "json"]);
    let serving = Serving::of(serve.env("CALLBOARD_LOG", "trace"));
    done(&on(&a, &store, &["run", "work", "--to", "coder"]));
    let [nowhere, unknown] = ["/nowhere", "/canary2"].map(|to| match to {
        "/nowhere" => "postgres://u:c4n4ry@127.0.0.1:1/x?sslmode=disable".to_owned(),
        _ => store.replace("/canary?", "/canary2?"),
    });
    let unreadable = "postgres://u:c4n4ry@host:port/x".to_owned();
    for store in [&store, &nowhere, &unknown, &unreadable] {
        for command in [
            "runs list",
            "boards",
            "doctor",
            "store check",
            "store check --json",
            "tree --json",
            "agents",
            "runs show @last",
            "pending",
            "store backup copy",
            "store import -",
            "check",
        ] {
            let arguments: Vec<&str> = command.split(' ').collect();
            let printed = on(&a, store, &arguments);
            assert!(
                !format!("{}{}", printed.out, printed.error).contains("c4n4ry"),
                "{command}: {} {}",
                printed.out,
                printed.error
            );
        }
    }
    let listed = a.callboard(&["runs", "list", "--store", &store]);
    assert!(done(&listed).error.contains("PGPASSFILE") && !listed.error.contains("c4n4ry"), "{}", listed.error);
    assert!(!on(&a, &store, &["runs", "list"]).error.contains("PGPASSFILE"), "it is not on the command line");
    for (command, instead) in [("store backup copy", "pg_dump"), ("store import -", "pg_restore")] {
        let refused = on(&a, &store, &command.split(' ').collect::<Vec<_>>());
        assert!(refused.code == Some(2) && refused.error.contains(instead), "{:?} {}", refused.code, refused.error);
    }
    let stopped = serving.stop();
    assert!(stopped.error.contains("DEBUG") && !stopped.error.contains("c4n4ry"), "{}", stopped.error);
    let config = "store = \"postgres://u:c4n4ry@db/x\"\n";
    fs::write(a.folder.path().join("callboard.toml"), config).unwrap();
    let refused = a.callboard(&["runs", "list"]);
    assert!(refused.code == Some(2) && refused.error.contains("leave the password out"), "{}", refused.error);
    assert!(!refused.error.contains("c4n4ry"), "{}", refused.error);
    fs::write(a.folder.path().join("callboard.toml"), format!("store = {:?}\n", store.replace(":c4n4ry", ""))).unwrap();
    assert_eq!(done(&a.callboard(&["runs", "list", "--json"])).parsed::<Vec<Value>>().len(), 1);
}

/// Tries to read the password and to reach the server; ends with what came through.
const ATTACKER: &str = r#"
import socket
found = []
try:
    found += open("PASSWORDS").read().split()
except OSError:
    pass
try:
    socket.socket(socket.AF_UNIX).connect("SOCKET")
    found.append("connected")
except OSError:
    pass
end(turn, found)
"#;

#[cfg(target_os = "linux")]
#[test]
fn programs_of_agents_reach_neither_the_database_nor_its_passwords() {
    let store = database("hidden", "postgres");
    let socket = Server::of_this_process().folder.join(".s.PGSQL.5432");
    assert!(socket.exists());
    let place = tempfile::tempdir().unwrap();
    let passwords = place.path().join("passwords");
    let write = |file: &Path| {
        fs::write(file, "*:*:*:postgres:c4n4ry\n").unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    };
    write(&passwords);
    let [shown, at] = [&passwords, &socket].map(|path| path.to_str().unwrap());
    let a = project("attacker", &ATTACKER.replace("PASSWORDS", shown).replace("SOCKET", at));
    let run = |store: Option<&str>, passwords: &Path| {
        let mut run = a.command(&["run", "try", "--to", "attacker"]);
        run.env("PGPASSFILE", passwords);
        run.envs(store.map(|store| ("CALLBOARD_STORE", store)));
        output_of(run)
    };
    done(&on(&a, &store, &["store", "migrate"]));
    let attacked = done(&run(None, &passwords)).out.clone();
    assert!(attacked.contains("connected") && attacked.contains("c4n4ry"), "{attacked}");
    assert_eq!(done(&run(Some(&store), &passwords)).out, "[]\n");
    let within = a.folder.path().join("passwords");
    write(&within);
    let refused = run(Some(&store), &within);
    assert!(refused.code == Some(4) && refused.error.contains("tools of agents work in"), "{}", refused.error);
}
