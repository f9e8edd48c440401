//! Definitions that change while a board runs: what counts from when, and what a mistake does.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::models::Nothing;
use crate::common::{builder, finish};
use callboard::SubmitError;
use callboard::messages::Refusal;
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard::testing::Script;
use callboard_agents::testing::ScriptedModel;
use callboard_agents::{AgentFolder, Definition, Effect, FileChange, FolderError, Model, Reload, Tools, tool};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Semaphore;

/// A definition with little more than this prompt.
fn agent(name: &str, prompt: &str) -> String {
    format!("[agent]\nname = \"{name}\"\ndescription = \"{prompt}\"\nsystem_prompt = \"{prompt}\"\n")
}

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn write(folder: &TempDir, file: &str, text: &str) {
    fs::write(folder.path().join(file), text).unwrap();
}

fn read(path: &Path, model: &ScriptedModel) -> AgentFolder {
    AgentFolder::new(path).model(Arc::new(model.clone()))
}

async fn start(folder: &mut AgentFolder, builder: Builder) -> Callboard {
    folder.load().unwrap().into_iter().fold(builder, Builder::with).start().await.unwrap()
}

async fn reload(board: &Callboard, folder: &mut AgentFolder) -> Vec<String> {
    board.reload(folder).await.unwrap().iter().map(ToString::to_string).collect()
}

/// The first lines of the model's system prompt, request by request.
fn parts(model: &ScriptedModel) -> Vec<String> {
    model.requests().iter().map(|request| request.system.lines().next().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_turn_under_way_ends_as_it_began_and_the_next_goes_by_the_new_definition() {
    let (begun, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let wait = tool("wait", "Waits.", Effect::Reads, {
        let (begun, gate) = (Arc::clone(&begun), Arc::clone(&gate));
        move |_: Nothing, _| {
            let (begun, gate) = (Arc::clone(&begun), Arc::clone(&gate));
            async move {
                begun.add_permits(1);
                gate.acquire().await?.forget();
                Ok("waited".into())
            }
        }
    });
    let tools = Tools::new().with(wait).unwrap();
    let model = ScriptedModel::new().calls("wait", json!({})).says("as I began").says("anew");
    let files = folder(&[("poet.toml", &agent("poet", "You write poems."))]);
    let mut agents = read(files.path(), &model).tools(&tools);
    let board = start(&mut agents, builder()).await;
    let under_way = board.submit(Task::new("x")).await.unwrap();
    begun.acquire().await.unwrap().forget();

    write(&files, "poet.toml", &agent("poet", "You write prose."));
    assert_eq!(reload(&board, &mut agents).await, ["poet.toml: changed: later turns of poet use it"]);
    gate.add_permits(1);
    assert_eq!(under_way.result().await.unwrap().output, "as I began");
    assert_eq!(finish(&board, Task::new("y")).await.output, "anew");
    assert_eq!(parts(&model), ["You write poems.", "You write poems.", "You write prose."]);
    assert_eq!(reload(&board, &mut agents).await, ["poet.toml: unchanged"]);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_file_with_a_defect_changes_nothing_and_reports_why_once() {
    let model = ["a", "b", "c"].into_iter().fold(ScriptedModel::new(), ScriptedModel::says);
    let files = folder(&[("poet.toml", &agent("poet", "You write poems."))]);
    let mut agents = read(files.path(), &model);
    let board = start(&mut agents, builder()).await;

    write(&files, "poet.toml", &agent("poet", "You write {{ proze }}."));
    write(&files, "new.toml", "[agent]\nnam = \"new\"");
    write(&files, "notes.md", "no agent");
    let reported = reload(&board, &mut agents).await;
    assert!(
        reported[0].starts_with("new.toml: refused:\nnew.toml:") && reported[0].contains("did you mean"),
        "{reported:?}"
    );
    assert!(
        reported[1].starts_with("poet.toml: refused, and poet keeps its earlier definition:\npoet.toml:4:"),
        "{reported:?}"
    );
    assert!(reported[1].contains("proze"), "{reported:?}");
    assert_eq!(finish(&board, Task::new("x")).await.output, "a");
    assert_eq!(reload(&board, &mut agents).await, ["new.toml: unchanged", "poet.toml: unchanged"]);

    write(&files, "poet.toml", &agent("poet", "You write prose."));
    write(&files, "new.toml", "\u{feff}[agent]\nname = \"new\"\nlimits = 3");
    let reported = board.reload(&mut agents).await.unwrap();
    assert!(matches!(&reported[0].change, FileChange::Refused { stays: None, .. }), "{reported:?}");
    assert!(matches!(&reported[1].change, FileChange::Changed { before: None, .. }), "{reported:?}");
    finish(&board, Task::new("x")).await;
    assert_eq!(parts(&model), ["You write poems.", "You write prose."]);

    // Back to what it was, a file that was refused is as it was.
    fs::write(files.path().join("poet.toml"), b"[agent]\nname = \"po\xffet\"").unwrap();
    assert!(reload(&board, &mut agents).await[1].contains("not UTF-8"));
    write(&files, "poet.toml", &agent("poet", "You write prose."));
    assert_eq!(reload(&board, &mut agents).await[1], "poet.toml: unchanged");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn agents_come_and_go_with_their_files_and_the_others_are_notified() {
    let model = ["a", "b", "c"].into_iter().fold(ScriptedModel::new(), ScriptedModel::says);
    let files = folder(&[("lead.toml", &agent("lead", "You lead."))]);
    let mut agents = read(files.path(), &model);
    let board = start(&mut agents, builder()).await;
    let tasks = |model: &ScriptedModel| {
        let requests = model.requests();
        let tools = &requests.last().unwrap().tools;
        tools.iter().find(|tool| &*tool.name == "Task").unwrap().description.to_string()
    };

    write(&files, "poet.toml", &agent("poet", "Writes poems."));
    let reported = reload(&board, &mut agents).await;
    assert_eq!(reported, ["lead.toml: unchanged", "poet.toml: added: poet takes tasks"]);
    finish(&board, Task::new("x").to("lead")).await;
    assert!(tasks(&model).contains("- poet: Writes poems."), "{}", tasks(&model));
    assert_eq!(finish(&board, Task::new("x").to("poet")).await.output, "b");

    fs::remove_file(files.path().join("poet.toml")).unwrap();
    let reported = reload(&board, &mut agents).await;
    assert_eq!(reported, ["lead.toml: unchanged", "poet.toml: removed: poet takes no new tasks"]);
    let refused = board.submit(Task::new("x").to("poet")).await.unwrap_err();
    assert!(matches!(refused, SubmitError::Refused(Refusal::Unavailable { .. })), "{refused:?}");
    finish(&board, Task::new("x").to("lead")).await;
    assert!(!tasks(&model).contains("poet"), "{}", tasks(&model));
    assert_eq!(reload(&board, &mut agents).await, ["lead.toml: unchanged"]);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_stays_with_the_agent_that_had_it() {
    let model = ScriptedModel::new().says("a").says("b").says("c").says("d");
    let files = folder(&[("a.toml", &agent("one", "First.")), ("b.toml", &agent("two", "Second."))]);
    let mut agents = read(files.path(), &model);
    let board = start(&mut agents, builder().agent("clerk", Script::new().reply("filed"))).await;

    write(&files, "0.toml", &agent("one", "Another."));
    write(&files, "a.toml", &agent("two", "Third."));
    write(&files, "c.toml", &agent("clerk", "Fourth."));
    let reported = reload(&board, &mut agents).await;
    assert!(
        reported[0].starts_with("0.toml: refused:\n0.toml: a.toml has an agent of the name \"one\" too"),
        "{reported:?}"
    );
    assert!(
        reported[1].starts_with("a.toml: refused, and one keeps its earlier definition:\na.toml: b.toml has"),
        "{reported:?}"
    );
    assert!(reported[3].contains("agent clerk is there already"), "{reported:?}");
    assert_eq!(finish(&board, Task::new("x").to("clerk")).await.output, "filed");

    for file in ["0.toml", "c.toml"] {
        fs::remove_file(files.path().join(file)).unwrap();
    }
    write(&files, "b.toml", &agent("one", "Second."));
    let reported = reload(&board, &mut agents).await;
    let swapped =
        ["a.toml: changed: two takes tasks in place of one", "b.toml: changed: one takes tasks in place of two"];
    assert_eq!(reported, swapped);
    finish(&board, Task::new("x").to("one")).await;
    finish(&board, Task::new("x").to("two")).await;
    assert_eq!(parts(&model), ["Second.", "Third."]);

    fs::rename(files.path().join("a.toml"), files.path().join("z.toml")).unwrap();
    write(&files, "b.toml", &agent("three", "Second."));
    let reported = reload(&board, &mut agents).await;
    assert_eq!(reported, ["b.toml: changed: three takes tasks in place of one", "z.toml: unchanged"]);
    let names: Vec<String> = board.agents().names().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["clerk", "three", "two"]);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_whose_model_is_not_there_is_not_taken() {
    let files = folder(&[("poet.toml", &agent("poet", "You write."))]);
    let model = ScriptedModel::new().says("a");
    let mut agents = AgentFolder::new(files.path()).model_of({
        let model = model.clone();
        move |definition| match definition.model.preferred.as_deref() {
            Some(name) => Err(format!("there is no model {name}")),
            None => Ok(Arc::new(model.clone())),
        }
    });
    let board = start(&mut agents, builder()).await;
    write(&files, "poet.toml", &(agent("poet", "You write.") + "[agent.model]\npreferred = \"gpt-9\""));
    let reported = reload(&board, &mut agents).await;
    assert_eq!(
        reported,
        ["poet.toml: refused, and poet keeps its earlier definition:\npoet.toml: there is no model gpt-9"]
    );
    assert_eq!(finish(&board, Task::new("x")).await.output, "a");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_cannot_be_read_changes_nothing() {
    let files = folder(&[("poet.toml", &agent("poet", "You write.")), ("b.toml", "[agent]")]);
    let model = ScriptedModel::new().says("a");
    let mut agents = read(files.path(), &model);
    let error = agents.load().unwrap_err();
    assert!(matches!(&error, FolderError::Wrong { defects } if defects.len() == 1), "{error}");
    assert!(error.to_string().contains("b.toml"), "{error}");
    fs::remove_file(files.path().join("b.toml")).unwrap();
    let board = start(&mut agents, builder()).await;
    let elsewhere = files.path().with_extension("away");
    fs::rename(files.path(), &elsewhere).unwrap();
    let error = board.reload(&mut agents).await.unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");
    assert_eq!(finish(&board, Task::new("x")).await.output, "a");
    fs::rename(&elsewhere, files.path()).unwrap();
    assert_eq!(reload(&board, &mut agents).await, ["poet.toml: unchanged"]);
    board.shutdown().await;
}

/// Where permissions are kept, as on the command line.
#[tokio::test(start_paused = true)]
async fn a_change_that_permits_an_agent_more_is_not_taken_and_others_are() {
    let no_op =
        |name: &'static str, effect| tool(name, "Does nothing.", effect, |_: Nothing, _| async { Ok("done".into()) });
    let tools = Tools::new().with(no_op("build", Effect::Executes)).unwrap();
    let tools = tools.with(no_op("look", Effect::Reads)).unwrap().with(no_op("send", Effect::Sends)).unwrap();
    let text = |changed: &str| {
        let usual = [
            "mode = \"build\"",
            "capabilities.allowed_tools = [\"build\", \"look\"]",
            "capabilities.ask = [\"build\", \"look\"]",
            "capabilities.idempotent = []",
            "capabilities.on_unknown = \"ask\"",
            "capabilities.authority = [\"reads\", \"executes\"]",
            "context.namespaces = [\"run\"]",
            "limits.tokens = 50000",
            "limits.tokens_per_day = 100000",
            "limits.tokens_per_run = 60000",
        ];
        let key = |line: &str| line.split(' ').next().unwrap().to_owned();
        let kept = usual.iter().filter(|line| key(line) != key(changed.trim_start_matches('-')));
        let changed = Some(changed).filter(|line| !line.is_empty() && !line.starts_with('-'));
        let lines: Vec<&str> = kept.copied().chain(changed).collect();
        format!("{}{}\n", agent("poet", "You write."), lines.join("\n"))
    };
    let files = folder(&[("poet.toml", &text(""))]);
    let model = ScriptedModel::new().says("a");
    let mut agents = read(files.path(), &model).tools(&tools).keep_permissions();
    let board = start(&mut agents, builder()).await;
    for (change, more) in [
        ("capabilities.allowed_tools = [\"build\", \"look\", \"send\"]", "tools \"send\""),
        ("-capabilities.allowed_tools", "all tools"),
        ("capabilities.ask = [\"build\"]", "without `ask` for \"look\""),
        ("-capabilities.ask", "without `ask` for \"build\", \"look\""),
        ("capabilities.idempotent = [\"build\"]", "`idempotent` for \"build\""),
        ("capabilities.on_unknown = \"repeat\"", "`on_unknown = \"repeat\"`"),
        ("capabilities.on_unknown = \"report\"", "`on_unknown = \"report\"`"),
        ("context.namespaces = [\"run\", \"secrets\"]", "namespaces \"secrets\""),
        ("capabilities.authority = [\"reads\", \"executes\", \"sends\"]", "effects sends"),
        ("limits.tokens = 50001", "a higher limit `tokens`"),
        ("-limits.tokens_per_day", "no limit `tokens_per_day`"),
        ("limits.tokens_per_day = 100001", "a higher limit `tokens_per_day`"),
        ("-limits.tokens_per_run", "no limit `tokens_per_run`"),
        ("limits.tokens_per_run = 60001", "a higher limit `tokens_per_run`"),
    ] {
        write(&files, "poet.toml", &text(change));
        let reported = reload(&board, &mut agents).await;
        let refused =
            "poet.toml: refused, and poet keeps its earlier definition:\npoet.toml: \"poet\" would be permitted more";
        assert!(reported[0].starts_with(refused) && reported[0].contains(more), "{change}: {reported:?}");
        assert!(reported[0].contains("takes effect at the next start"), "{reported:?}");
    }
    // A file with another name changes nothing of that, nor does an agent that is new.
    fs::rename(files.path().join("poet.toml"), files.path().join("other.toml")).unwrap();
    write(&files, "other.toml", &text("-capabilities.ask"));
    assert!(reload(&board, &mut agents).await[0].contains("without `ask`"));
    write(&files, "other.toml", &text("-capabilities.ask").replace("\"poet\"", "\"critic\""));
    let reported = reload(&board, &mut agents).await;
    assert!(reported[0].contains("it is new, and no other agent had this: without `ask`"), "{reported:?}");
    fs::remove_file(files.path().join("other.toml")).unwrap();
    // What permits no more is taken, and taken back.
    for change in ["capabilities.on_unknown = \"fail\"", "limits.concurrency = 2", ""] {
        write(&files, "poet.toml", &text(change).replace("You write.", &format!("You write {}.", change.len())));
        let reported = reload(&board, &mut agents).await;
        assert!(
            reported[0].contains("poet takes tasks") || reported[0].contains("later turns of poet use it"),
            "{change}: {reported:?}"
        );
    }
    write(&files, "critic.toml", &text("").replace("\"poet\"", "\"critic\""));
    assert_eq!(reload(&board, &mut agents).await[0], "critic.toml: added: critic takes tasks");
    // At the next start it counts.
    write(&files, "poet.toml", &text("-capabilities.ask"));
    assert_eq!(agents.load().unwrap().len(), 2);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn tools_that_are_had_only_by_name_and_effects_of_another_mode_are_permitted_by_no_change() {
    let look = tool("look", "Does nothing.", Effect::Reads, |_: Nothing, _| async { Ok("done".into()) });
    let tools = Tools::new().with(look).unwrap();
    let text = |mode: &str, allowed: &str| {
        let allowed =
            if allowed.is_empty() { String::new() } else { format!("capabilities.allowed_tools = [{allowed}]\n") };
        format!("{}mode = \"{mode}\"\n{allowed}", agent("poet", "You write."))
    };
    let role = |role: &str| format!("{}announces.role = \"{role}\"\n", text("build", ""));
    let by_name = "tools \"agent_create\", \"agent_keep\", \"agent_update\"";
    for (before, after, more) in [
        (text("build", ""), text("build", r#""look", "agent_create", "agent_update", "agent_keep""#), Some(by_name)),
        (text("explore", ""), text("plan", ""), Some("mode plan in place of explore")),
        (text("plan", ""), text("explore", ""), None),
        (text("build", ""), text("general", r#""look", "Task", "ToolSearch""#), None),
        (role("specialist"), role("developer"), Some("role developer grants tools: all")),
        (role("developer"), role("specialist"), None),
        (role("specialist"), text("build", ""), Some("no role")),
        (text("build", ""), role("admin"), Some("role admin grants tools: all")),
        (text("build", r#""agent_create""#), text("build", r#""agent_create""#) + "limits.concurrency = 2\n", None),
    ] {
        let files = folder(&[("poet.toml", &before)]);
        let mut agents = read(files.path(), &ScriptedModel::new()).tools(&tools).keep_permissions();
        let board = start(&mut agents, builder()).await;
        write(&files, "poet.toml", &after);
        let reported = reload(&board, &mut agents).await;
        match more {
            Some(more) => {
                assert!(reported[0].contains("would be permitted more") && reported[0].contains(more), "{reported:?}")
            }
            None => assert!(reported[0].contains("later turns of poet use it"), "{after}: {reported:?}"),
        }
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn where_no_agent_was_there_none_is_permitted_to_come() {
    let files = folder(&[]);
    let mut agents = read(files.path(), &ScriptedModel::new()).keep_permissions();
    let board = start(&mut agents, builder()).await;
    write(&files, "poet.toml", &(agent("poet", "You write.") + "capabilities.on_unknown = \"repeat\"\n"));
    let reported = reload(&board, &mut agents).await;
    assert!(reported[0].contains("it is new, and no agent was there"), "{reported:?}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_was_left_out_at_the_start_is_permitted_what_its_file_permitted_then() {
    let files = folder(&[("poet.toml", &agent("poet", "You write.")), ("odd.toml", &agent("odd", "You paint."))]);
    let model = ScriptedModel::new();
    let is_there = Arc::new(AtomicBool::new(false));
    let has_model = Arc::clone(&is_there);
    let model_of = move |definition: &Definition| match definition.name.as_str() {
        "odd" if !has_model.load(Ordering::Relaxed) => Err("no model is chosen".to_owned()),
        _ => Ok(Arc::new(model.clone()) as Arc<dyn Model>),
    };
    let mut agents = AgentFolder::new(files.path()).model_of(model_of).keep_permissions();
    let (specs, left_out) = agents.load_valid().unwrap();
    assert!(left_out[0].to_string().contains("no model is chosen"), "{left_out:?}");
    let board = specs.into_iter().fold(builder(), Builder::with).start().await.unwrap();
    assert_eq!(reload(&board, &mut agents).await, ["odd.toml: unchanged", "poet.toml: unchanged"]);
    is_there.store(true, Ordering::Relaxed);
    assert_eq!(reload(&board, &mut agents).await[0], "odd.toml: added: odd takes tasks");
    board.shutdown().await;
}
