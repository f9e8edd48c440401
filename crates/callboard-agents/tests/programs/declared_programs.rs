//! Programs as agents that files declare: they work among the others, are bound by their files, and change with their files. The
//! programs are real, and in Python.

#![cfg(all(unix, feature = "process"))]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use crate::common::{builder, people};
use crate::outside::{AT_MOST, reaped};
use callboard::env::Env;
use callboard::messages::{Limits, Message, RunEvent};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunHandle};
use callboard::supervision::tree::ActorState;
use callboard_agents::testing::ScriptedModel;
use callboard_agents::{
    AgentFolder, CatalogFile, Definition, LlmAgent, ModelEntry, Models, ProcessAgent, Reload, Roles, Team, Tools,
};
use rustix::process::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

/// What the programs have in common.
const PRELUDE: &str = concat!(include_str!("prelude.py"), "begin()\n");

/// Returns its word and its process id; asks a person first if the task is to wait.
const TELLER: &str = r#"
while True:
    turn = hear()
    if turn["input"] == "wait":
        ask(type="ask", question="Go on?")
    end(turn, [sys.argv[1], os.getpid()])
"#;

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("agents")).unwrap();
    for (name, text) in files {
        write(&folder, name, text);
    }
    folder
}

fn write(folder: &TempDir, file: &str, text: &str) {
    let text = if file.ends_with(".py") { format!("{PRELUDE}{text}") } else { text.to_owned() };
    fs::write(folder.path().join(file), text).unwrap();
}

/// The file of an agent that is a program, which is given the word.
fn teller(description: &str, word: &str) -> String {
    format!(
        "[agent]\nname = \"teller\"\ndescription = \"{description}\"\n[agent.process]\n\
         command = [\"python3\", \"teller.py\", \"{word}\"]\n[agent.limits]\nconcurrency = 1\n"
    )
}

fn agents(folder: &TempDir, model: &ScriptedModel) -> AgentFolder {
    AgentFolder::new(folder.path().join("agents")).root(folder.path()).model(Arc::new(model.clone()))
}

async fn start(agents: &mut AgentFolder) -> Callboard {
    agents.load().unwrap().into_iter().fold(builder(), Builder::with).start().await.unwrap()
}

async fn reload(board: &Callboard, agents: &mut AgentFolder) -> Vec<String> {
    board.reload(agents).await.unwrap().iter().map(ToString::to_string).collect()
}

async fn ended(run: &RunHandle) -> Json {
    let result = timeout(AT_MOST, run.result()).await.expect("the run does not end").unwrap();
    assert_eq!(result.outcome, Outcome::Finished, "{:#?}", run.history().await);
    result.output
}

async fn output(board: &Callboard, task: Task) -> Json {
    ended(&board.submit(task).await.unwrap()).await
}

/// The answer of the program `teller`: its word, and its process id.
fn reported(output: &Json) -> (String, Pid) {
    let (word, pid): (String, i32) = output.parse().unwrap();
    (word, Pid::from_raw(pid).unwrap())
}

#[tokio::test]
async fn a_program_from_a_file_works_among_agents_that_think() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/process/word_counter.py");
    let counter = format!(
        "[agent]\nname = \"counter\"\ndescription = \"Counts words.\"\n[agent.process]\ncommand = [\"python3\", {example:?}]\n\
         [agent.announces]\ncapabilities = [\"counting\"]\n"
    );
    let folder = folder(&[
        ("agents/lead.toml", "[agent]\nname = \"lead\"\nsystem_prompt = \"You lead.\"\n"),
        ("agents/editor.toml", "[agent]\nname = \"namer\"\n[agent.announces]\nrole = \"editor\"\n"),
        ("agents/counter.toml", &counter),
    ]);
    let model = ScriptedModel::new()
        .calls("Task", json!({ "agent": "counting", "task": "to be or not to be" }))
        .says("On being")
        .says("It is about being.");
    let board = start(&mut agents(&folder, &model)).await;
    assert_eq!(output(&board, Task::new("What is it about?").to("lead")).await, "It is about being.");
    let requests = model.requests();
    assert_eq!(requests.len(), 3);
    let task = requests[0].tools.iter().find(|tool| &*tool.name == "Task").unwrap();
    assert!(task.description.contains("- counter: Counts words."), "{}", task.description);
    let answer = requests[2].messages.iter().find_map(|message| match message {
        Message::Tool { text, .. } => Some(text.to_string()),
        _ => None,
    });
    let answer: Value = serde_json::from_str(&answer.unwrap()).unwrap();
    assert_eq!((&answer["title"], &answer["counts"]["be"]), (&json!("On being"), &json!(2)), "{answer}");
    board.shutdown().await;
}

#[tokio::test]
async fn a_turn_under_way_ends_with_its_program_and_the_next_one_has_the_new_program() {
    let folder = folder(&[("teller.py", TELLER), ("agents/teller.toml", &teller("Tells.", "old"))]);
    write(&folder, "agents/lead.toml", "[agent]\nname = \"lead\"\n");
    let mut agents = agents(&folder, &ScriptedModel::new());
    let board = start(&mut agents).await;
    let (word, old) = reported(&output(&board, Task::new("x").to("teller")).await);
    assert_eq!(word, "old");

    // Others come, and what is no program changes: the program that rests stays.
    write(&folder, "agents/lead.toml", "[agent]\nname = \"lead\"\ndescription = \"Leads.\"\n");
    assert_eq!(reload(&board, &mut agents).await[1], "teller.toml: unchanged");
    assert_eq!(reported(&output(&board, Task::new("x").to("teller")).await), ("old".to_owned(), old));

    let under_way = board.submit(Task::new("wait").to("teller")).await.unwrap();
    let question = timeout(AT_MOST, people::next_question(&under_way)).await.unwrap().unwrap().unwrap();
    write(&folder, "agents/teller.toml", &teller("Tells.", "new"));
    let lines = reload(&board, &mut agents).await;
    assert_eq!(lines, ["lead.toml: unchanged", "teller.toml: changed: later turns of teller use it"]);
    let (word, new) = reported(&output(&board, Task::new("x").to("teller")).await);
    assert_eq!(word, "new");
    board.people().answer(question.id, json!(true), "ann").await.unwrap();
    assert_eq!(reported(&ended(&under_way).await), ("old".to_owned(), old));
    reaped(old).await;

    // One that rests ends when its file names another program, or is gone.
    write(&folder, "agents/teller.toml", &teller("Tells.", "newer"));
    reload(&board, &mut agents).await;
    reaped(new).await;
    let (word, newer) = reported(&output(&board, Task::new("x").to("teller")).await);
    assert_eq!(word, "newer");
    fs::remove_file(folder.path().join("agents/teller.toml")).unwrap();
    assert_eq!(reload(&board, &mut agents).await[1], "teller.toml: removed: teller takes no new tasks");
    reaped(newer).await;
    board.shutdown().await;
}

#[tokio::test]
async fn the_requests_of_a_program_are_within_what_its_role_grants() {
    const TRIES: &str = r#"
turn = hear()
if turn["input"] == "pass on":
    end(turn, goto="other")
    hear()
requests = [
    dict(type="context_get", key="k"), dict(type="context_get", namespace="audit", key="k"),
    dict(type="context_query", namespace="run", limit=1), dict(type="context_search", namespaces=["run"], limit=1),
    dict(type="context_set", key="k", value="v"), dict(type="context_set", namespace="run", key="k", value="v"),
    dict(type="context_touch", key="k"), dict(type="context_delete", key="k"),
    dict(type="delegate", to="other", body="x"), dict(type="check_handoff", goto="other"),
]
end(turn, [answer.get("error", answer["type"]) for answer in [ask(**request) for request in requests]])
"#;
    let tries = |role: &str| {
        format!(
            "[agent]\nname = \"tries\"\n[agent.announces]\nrole = \"{role}\"\n[agent.process]\ncommand = [\"python3\", \"tries.py\"]\n"
        )
    };
    let folder = folder(&[
        ("tries.py", TRIES),
        ("agents/tries.toml", &tries("cli")),
        ("agents/other.toml", "[agent]\nname = \"other\"\n"),
    ]);
    let model = ScriptedModel::new().says("done").says("done").says("done");
    let mut agents = agents(&folder, &model);
    let board = start(&mut agents).await;
    let answers: Vec<String> = output(&board, Task::new("x").to("tries")).await.parse().unwrap();
    let lacks = |tool: &str, effect: &str| {
        format!("terminal error: the role \"cli\" does not grant the tool \"{tool}\", whose effect is \"{effect}\"")
    };
    let (set, touch) = (lacks("ContextSet", "notes"), lacks("ContextTouch", "notes"));
    let (delete, handoff) = (lacks("ContextDelete", "notes"), lacks("handoff_to_agent", "notes"));
    assert!(answers[1].contains("has no grant for namespace \"audit\""), "{answers:?}");
    let expected = ["result", &answers[1], "result", "result", &set, &set, &touch, &delete, "result", &handoff];
    assert_eq!(answers, expected);
    let run = board.submit(Task::new("pass on").to("tries")).await.unwrap();
    let result = timeout(AT_MOST, run.result()).await.unwrap().unwrap();
    assert!(
        matches!(&result.outcome, Outcome::Failed { error, .. } if error.contains("\"handoff_to_agent\"")),
        "{result}"
    );

    write(&folder, "agents/tries.toml", &tries("developer"));
    reload(&board, &mut agents).await;
    let answers: Vec<String> = output(&board, Task::new("x").to("tries")).await.parse().unwrap();
    assert!(answers.iter().all(|answer| answer == "result" || answer.contains("audit")), "{answers:?}");
    assert_eq!(output(&board, Task::new("pass on").to("tries")).await, "done");
    board.shutdown().await;
}

#[tokio::test]
async fn a_program_that_is_not_there_changes_nothing_and_is_reported() {
    let folder = folder(&[("teller.py", TELLER), ("agents/teller.toml", &teller("Tells.", "old"))]);
    let mut agents = agents(&folder, &ScriptedModel::new());
    let board = start(&mut agents).await;
    write(&folder, "agents/teller.toml", &teller("Tells.", "new").replace("\"python3\"", "\"bin/python3\""));
    let lines = reload(&board, &mut agents).await;
    assert!(
        lines[0].starts_with("teller.toml: refused, and teller keeps its earlier definition:\nteller.toml:5:11: "),
        "{lines:?}"
    );
    assert!(lines[0].contains("there is no program \"") && lines[0].contains("/bin/python3\""), "{lines:?}");
    assert_eq!(reported(&output(&board, Task::new("x")).await).0, "old");
    board.shutdown().await;
    let error = agents.load().unwrap_err().to_string();
    assert!(error.contains("there is no program"), "{error}");
}

#[tokio::test]
async fn where_tools_write_no_program_comes_that_was_not_declared_before() {
    let folder = folder(&[("teller.py", TELLER), ("agents/teller.toml", &teller("Tells.", "old"))]);
    let mut agents = agents(&folder, &ScriptedModel::new()).keep_programs();
    let board = start(&mut agents).await;
    write(&folder, "agents/teller.toml", &teller("Tells.", "new"));
    write(
        &folder,
        "agents/other.toml",
        "[agent]\nname = \"other\"\n[agent.process]\ncommand = [\"sh\", \"-c\", \"x\"]\n",
    );
    let lines = reload(&board, &mut agents).await;
    let why = |name: &str| format!("the program of \"{name}\" is not one that was declared when the folder was loaded");
    assert!(lines[0].starts_with("other.toml: refused:") && lines[0].contains(&why("other")), "{lines:?}");
    assert!(
        lines[1].starts_with("teller.toml: refused, and teller keeps") && lines[1].contains(&why("teller")),
        "{lines:?}"
    );
    assert_eq!(reported(&output(&board, Task::new("x")).await).0, "old");

    fs::remove_file(folder.path().join("agents/other.toml")).unwrap();
    board.shutdown().await;
}

#[tokio::test]
async fn where_permissions_are_kept_a_program_is_permitted_no_more_either() {
    let usual = teller("Tells.", "old") + "[agent.capabilities]\nauthority = [\"reads\"]\non_unknown = \"ask\"\n";
    let folder = folder(&[("teller.py", TELLER), ("agents/teller.toml", &usual)]);
    let mut agents = agents(&folder, &ScriptedModel::new()).keep_permissions();
    let board = start(&mut agents).await;
    for (before, after, more) in [
        ("[\"reads\"]", "[\"reads\", \"executes\"]", "effects executes"),
        ("\"ask\"", "\"repeat\"", "`on_unknown = \"repeat\"`"),
        (
            "[agent.capabilities]",
            "[agent.context]\nnamespaces = [\"secrets\"]\n[agent.capabilities]",
            "namespaces \"secrets\"",
        ),
    ] {
        write(&folder, "agents/teller.toml", &usual.replace(before, after));
        let lines = reload(&board, &mut agents).await;
        assert!(lines[0].contains("would be permitted more") && lines[0].contains(more), "{lines:?}");
        let new = usual.replace(before, after).replace("\"teller\"", "\"other\"");
        write(&folder, "agents/teller.toml", &usual);
        write(&folder, "agents/other.toml", &new);
        let lines = reload(&board, &mut agents).await;
        assert!(lines[0].contains("it is new, and no other agent had this") && lines[0].contains(more), "{lines:?}");
        fs::remove_file(folder.path().join("agents/other.toml")).unwrap();
        reload(&board, &mut agents).await;
    }
    board.shutdown().await;
}

#[tokio::test]
async fn where_programs_are_kept_all_else_may_change() {
    let folder = folder(&[("teller.py", TELLER), ("agents/teller.toml", &teller("Tells.", "old"))]);
    let mut agents = agents(&folder, &ScriptedModel::new()).keep_programs();
    let board = start(&mut agents).await;
    write(&folder, "agents/teller.toml", &teller("Tells it.", "old"));
    assert_eq!(reload(&board, &mut agents).await, ["teller.toml: changed: later turns of teller use it"]);
    assert_eq!(reported(&output(&board, Task::new("x")).await).0, "old");
    board.shutdown().await;
}

#[tokio::test]
async fn nothing_in_a_command_is_a_template_and_no_task_is_part_of_it() {
    let source = "while True:\n    turn = hear()\n    end(turn, [sys.argv[1:], os.environ['ASKED'], os.getcwd()])\n";
    let text = "[agent]\nname = \"echo\"\n[agent.process]\ncommand = [\"python3\", \"../echo.py\", \"{{ task }}\", \"$(id)\"]\n\
        env = { ASKED = \"{{ input }}\" }\nfolder = \"agents\"\n";
    let folder = folder(&[("echo.py", source), ("agents/echo.toml", text)]);
    let board = start(&mut agents(&folder, &ScriptedModel::new())).await;
    let answer = output(&board, Task::new("x; touch y").input(json!({ "command": ["touch", "y"] }))).await;
    let place = folder.path().canonicalize().unwrap().join("agents");
    assert_eq!(answer, json!([["{{ task }}", "$(id)"], "{{ input }}", place]));
    board.shutdown().await;
}

/// The file of an agent whose program starts there.
fn placed(place: &str) -> String {
    format!("[agent]\nname = \"teller\"\n[agent.process]\ncommand = [\"python3\", \"-c\", \"x\"]\nfolder = {place:?}\n")
}

#[test]
fn a_program_starts_in_no_folder_outside_of_the_root() {
    let folder = folder(&[]);
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(outside.path().join("deep")).unwrap();
    symlink(outside.path(), folder.path().join("out")).unwrap();
    symlink("out", folder.path().join("twice")).unwrap();
    symlink("..", folder.path().join("up")).unwrap();
    symlink("agents", folder.path().join("in")).unwrap();
    let load = |place: &str| {
        write(&folder, "agents/teller.toml", &placed(place));
        agents(&folder, &ScriptedModel::new()).load().map(drop).map_err(|error| error.to_string())
    };
    let beside = format!("../{}", outside.path().file_name().unwrap().to_str().unwrap());
    let absolute = outside.path().to_str().unwrap();
    let within = folder.path().join("agents").display().to_string();
    for place in ["..", "agents/../..", "../..", &beside, "/", absolute, "out", "out/deep", "twice", "up", "in/../.."] {
        let error = load(place).expect_err(place);
        assert!(error.contains("teller.toml:5:10: "), "{place}: {error}");
        assert!(error.contains("leads out of the folder of all programs"), "{place}: {error}");
    }
    for place in [".", "agents", "agents/..", "in", "in/..", &within] {
        assert_eq!(load(place), Ok(()), "{place}");
    }
}

#[tokio::test]
async fn a_folder_that_was_replaced_by_a_link_out_of_the_root_starts_no_program() {
    let source = "while True:\n    turn = hear()\n    end(turn, os.getcwd())\n    sys.exit()\n";
    let text =
        "[agent]\nname = \"teller\"\n[agent.process]\ncommand = [\"python3\", \"./teller.py\"]\nfolder = \"bin\"\n";
    let folder = folder(&[("agents/teller.toml", text)]);
    let (bin, outside) = (folder.path().join("bin"), tempfile::tempdir().unwrap());
    fs::create_dir(&bin).unwrap();
    write(&folder, "bin/teller.py", source);
    fs::copy(bin.join("teller.py"), outside.path().join("teller.py")).unwrap();
    let board = start(&mut agents(&folder, &ScriptedModel::new())).await;
    assert_eq!(output(&board, Task::new("x")).await, json!(bin.canonicalize().unwrap()));

    fs::rename(&bin, folder.path().join("before")).unwrap();
    symlink(outside.path(), &bin).unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    let result = timeout(AT_MOST, run.result()).await.unwrap().unwrap();
    let Outcome::Failed { error } = &result.outcome else { panic!("{result:?}") };
    assert!(error.starts_with("terminal error: the process "), "{error}");
    assert!(error.contains("leads out of the folder of all programs"), "{error}");

    fs::remove_file(&bin).unwrap();
    symlink("before", &bin).unwrap();
    assert_eq!(output(&board, Task::new("x")).await, json!(folder.path().canonicalize().unwrap().join("before")));
    board.shutdown().await;
}

#[tokio::test]
async fn a_program_is_bound_by_the_limits_of_its_file() {
    let source = r#"
while True:
    turn = hear()
    first = ask(type="reserve", tokens=60)["type"]
    tell(type="reserve", id=2, tokens=60)
    second = hear()
    tell(type="settle", id=3, reservation=1, input_tokens=5, output_tokens=5)
    hear()
    tell(type="reserve", id=4, tokens=60)
    third = hear()["type"]
    tell(type="context_get", id=5, namespace="plans", key="a")
    plans = hear()
    tell(type="context_set", id=6, namespace="notes", key="a", value="b")
    notes = hear()["type"]
    end(turn, [first, second, third, plans, notes, turn["authority"]])
"#;
    let text = "[agent]\nname = \"bound\"\n[agent.process]\ncommand = [\"python3\", \"bound.py\"]\n[agent.limits]\ntokens = 100\n\
        [agent.context]\nnamespaces = [\"notes\"]\n[agent.capabilities]\nauthority = [\"reads\", \"notes\"]\n";
    let folder = folder(&[("bound.py", source), ("agents/bound.toml", text)]);
    let board = start(&mut agents(&folder, &ScriptedModel::new())).await;
    let answer = output(&board, Task::new("x")).await;
    assert_eq!(
        (&answer[0], &answer[2], &answer[4]),
        (&json!("result"), &json!("result"), &json!("result")),
        "{answer}"
    );
    assert_eq!((&answer[1]["kind"], &answer[3]["kind"]), (&json!("refused"), &json!("context")), "{answer}");
    let why = answer[1]["error"].as_str().unwrap();
    assert!(why.contains("may use 100 tokens in a turn, has used or reserved 60, and asks for 60 more"), "{why}");
    assert_eq!(answer[5], json!(["reads", "notes"]));
    board.shutdown().await;
}

#[tokio::test]
async fn a_program_that_dies_again_and_again_is_rebuilt_as_often_as_its_file_allows() {
    let text = "[agent]\nname = \"dies\"\n[agent.process]\ncommand = [\"python3\", \"dies.py\"]\n[agent.limits]\n\
        restarts = { max = 1, within = \"60s\" }\n";
    let folder = folder(&[("dies.py", "hear()\nos._exit(3)\n"), ("agents/dies.toml", text)]);
    let board = start(&mut agents(&folder, &ScriptedModel::new())).await;
    for (deaths, state) in [(1, ActorState::Running), (2, ActorState::Failed)] {
        let once = Limits { attempts: 1, ..Limits::default() };
        let run = board.submit(Task::new("x").limits(once)).await.unwrap();
        let result = timeout(AT_MOST, run.result()).await.unwrap().unwrap();
        assert!(
            matches!(&result.outcome, Outcome::Failed { error } if error.contains("exited with status 3")),
            "{result:?}"
        );
        let tree = board.tree().await.unwrap();
        assert_eq!(tree.find(&["agents", "dies"]).unwrap().state, state, "after {deaths} deaths");
    }
    board.shutdown().await;
}

#[test]
fn what_thinks_is_not_made_of_a_program_nor_a_program_of_what_thinks() {
    let model: Arc<ScriptedModel> = Arc::new(ScriptedModel::new());
    let program = "[agent]\nname = \"p\"\n[agent.process]\ncommand = [\"sh\"]\n";
    let program = Definition::from_toml("p.toml", program).unwrap();
    let thinker = Definition::from_toml("t.toml", "[agent]\nname = \"t\"\n").unwrap();
    let error = LlmAgent::new(&program, model.clone(), &Tools::new(), &[]).unwrap_err().to_string();
    assert!(
        error.starts_with("agent p is a program, and thinks with no model: make it with ProcessAgent::spec"),
        "{error}"
    );
    let error = ProcessAgent::spec(&thinker, ".".as_ref()).unwrap_err().to_string();
    assert!(error.starts_with("agent t is no program"), "{error}");
    let error = Team::new(thinker, model.clone()).worker(program, model).specs().map(drop).unwrap_err().to_string();
    assert!(error.contains("agent p is a program, and thinks with no model"), "{error}");
}

#[tokio::test]
async fn a_program_continues_whatever_becomes_of_the_models() {
    let folder =
        folder(&[("teller.py", TELLER), ("agents/teller.toml", &teller("Tells.", "old")), ("models.toml", "usual")]);
    let read = |_: &str, text: &str| {
        let usual = (text == "usual").then(|| ModelEntry::of(ScriptedModel::new()));
        Models::of(&Env::system(), usual)
    };
    let catalog = CatalogFile::new(folder.path().join("models.toml"), read);
    let mut agents = AgentFolder::new(folder.path().join("agents")).root(folder.path()).catalog(catalog);
    let board = start(&mut agents).await;
    let (_, pid) = reported(&output(&board, Task::new("x")).await);
    write(&folder, "models.toml", "none");
    let lines = reload(&board, &mut agents).await;
    assert!(lines[0].ends_with("models.toml: changed: later turns use it"), "{lines:?}");
    assert_eq!(lines[1..], ["teller.toml: unchanged"]);
    assert_eq!(reported(&output(&board, Task::new("x")).await).1, pid, "it was not begun anew");
    board.shutdown().await;
}

#[tokio::test]
async fn a_program_delegates_by_the_socket_of_its_turn_only_if_its_role_grants_that() {
    const DELEGATES: &str = r#"
import socket
by_socket = socket.socket(fileno=os.dup(3))
answers = by_socket.makefile()
turn = hear()
by_socket.sendall(b'{"id":1,"type":"delegate","to":"other","body":"x"}\n')
answer = json.loads(answers.readline())
end(turn, answer.get("kind", answer["type"]))
# The answer comes as a turn of its own.
end(hear(), "later")
"#;
    let roles = Roles::from_toml("callboard.toml", "[roles.alone]\ntools = [\"reads\"]").unwrap();
    for (role, expected) in [("alone", "closed"), ("cli", "delegated")] {
        let worker = format!(
            "[agent]\nname = \"worker\"\n[agent.announces]\nrole = \"{role}\"\n[agent.process]\ncommand = [\"python3\", \"worker.py\"]\n"
        );
        let folder = folder(&[
            ("worker.py", DELEGATES),
            ("agents/worker.toml", &worker),
            ("agents/other.toml", "[agent]\nname = \"other\"\n"),
        ]);
        let model = ScriptedModel::new().says("done");
        let mut agents = agents(&folder, &model).roles(&roles);
        let board = start(&mut agents).await;
        let run = board.submit(Task::new("x").to("worker")).await.unwrap();
        ended(&run).await;
        let history = run.history().await.unwrap();
        let first = history.iter().find_map(|event| match event {
            RunEvent::TurnEnded { agent, command, .. } if agent.as_str() == "worker" => Some(&command.output),
            _ => None,
        });
        assert_eq!(first.unwrap().clone().unwrap(), expected, "{role}");
        board.shutdown().await;
    }
}
