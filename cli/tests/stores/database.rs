//! Stores in PostgreSQL: real processes, each in a project and a state folder of its own as on a machine of its own, on a real server.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use crate::postgres::{Server, connect};
use crate::support::agents::add_python_agent;
use crate::support::project::Project;
use crate::support::serving::Serving;
use crate::support::{Printed, output_of};

/// The URL of a new database, without a schema. `user` may have a password, which the server does not ask for.
fn database(name: &str, user: &str) -> String {
    let server = Server::of_this_process();
    let create = async {
        let client = connect(&server.url()).await;
        client.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
    };
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(create);
    format!("postgres://{user}@/{name}?host={}", server.folder.display())
}

/// A project with this agent, a Python program.
fn project(agent: &str, body: &str) -> Project {
    let project = Project::new();
    add_python_agent(&project.folder, agent, body);
    project
}

/// `callboard ARGUMENTS` on the store.
fn on(project: &Project, store: &str, arguments: &[&str]) -> Printed {
    output_of(project.command(arguments).env("CALLBOARD_STORE", store))
}

fn done(printed: &Printed) -> &Printed {
    assert_eq!(printed.code, Some(0), "{} {}", printed.out, printed.error);
    printed
}

/// Serves the agents of a project as the board of this name.
fn serve(project: &Project, store: &str, name: &str) -> Serving {
    let mut serve = project.command(&["serve", "--listen", "127.0.0.1:0", "--name", name]);
    Serving::of(serve.env("CALLBOARD_STORE", store))
}

/// Asks until there is an answer.
fn until<T>(mut asked: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(answer) = asked() {
            return answer;
        }
        std::thread::yield_now();
    }
}

/// The boards that are listed, each with its agents that are not built in, and whether it is gone.
fn boards(project: &Project, store: &str) -> Vec<(String, bool, bool)> {
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
