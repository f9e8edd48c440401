//! Files of agents that claim more than files may, and agents that would write their own.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use callboard::messages::AgentName;
use callboard_agents::testing::ScriptedModel;
use callboard_agents::tools::{Root, file_write};
use callboard_agents::{AgentFolder, Definition, FileChange, Reload};

use super::*;

/// Files of agents that claim what only a program can give.
#[test]
fn no_file_makes_itself_more_than_a_file() {
    let claims = [
        "built_in",
        "builtin",
        "built-in",
        "BUILT_IN",
        "Built_in",
        " built_in",
        "built_in ",
        "built_in\u{200b}",
        "built_\u{131}n",
        "trusted",
        "system",
        "root",
        "admin",
        "dynamic",
        "Dynamic",
        "",
        "*",
        "user_defined,built_in",
        "user_defined\u{0}",
        "1",
        "true",
        "all",
        "self",
        "owner",
        "board",
    ];
    let mut cases: Vec<String> = Vec::new();
    for claim in claims {
        let claim = toml_string(claim);
        cases.push(format!("[agent]\nname = \"x\"\n[agent.capabilities]\ntrust_tier = {claim}"));
        cases.push(format!("[agent]\nname = \"x\"\ntrust_tier = {claim}"));
    }
    for (table, field) in [
        ("agent", "tier"),
        ("agent", "authority"),
        ("agent", "approved"),
        ("agent", "instructions"),
        ("agent", "built_in"),
        ("agent.capabilities", "tier"),
        ("agent.capabilities", "approve"),
        ("agent.capabilities", "consent"),
        ("agent.capabilities", "policy"),
        ("agent.limits", "authority"),
        ("agent.context", "grant"),
    ] {
        let header = if table == "agent" { String::new() } else { format!("[{table}]\n") };
        cases.push(format!("[agent]\nname = \"x\"\n{header}{field} = \"all\""));
    }
    assert!(cases.len() >= CASES);
    for text in cases {
        let reported = Definition::from_toml("x.toml", &text).expect_err(&text).to_string();
        assert!(reported.contains("x.toml") && reported.len() < 4_000, "{reported}");
    }
}

fn toml_string(text: &str) -> String {
    // JSON's escapes are TOML's.
    Value::from(text).to_string()
}

const LEAD: &str =
    "[agent]\nname = \"lead\"\n[agent.capabilities]\nmax_iterations = 5\nallowed_tools = [\"FileWrite\", \"page\"]\n";

/// Uses of `FileWrite` that would make an agent more than it is, or make others.
fn changes() -> Vec<Value> {
    let more = "[agent]\nname = \"lead\"\n[agent.capabilities]\ntrust_tier = \"built_in\"\n";
    let paths = [
        "agents/lead.toml",
        "./agents/lead.toml",
        "agents/./lead.toml",
        "agents//lead.toml",
        "agents/../agents/lead.toml",
        "agents/none/../lead.toml",
        "link.toml",
        "folder/lead.toml",
        "folder/../agents/lead.toml",
        "agents/Lead.toml",
        "agents/LEAD.TOML",
        "agents/lead.toml ",
        "agents/lead\u{200b}.toml",
        "agents/doer.toml",
        "agents/summarizer.toml",
        "agents/a.toml",
        "agents/.toml",
        "agents/.lead.toml.swp",
        "agents/lead~x.toml",
        "agents/sub/lead.toml",
        "../agents/lead.toml",
        "agents/\u{202e}lead.toml",
        "agents/lead.toml/",
        "agents",
        "",
    ];
    let mut changes = Vec::new();
    for path in paths {
        changes.push(json!({ "path": path, "content": more }));
        changes.push(json!({ "path": path, "old": "max_iterations = 5", "new": "max_iterations = 500" }));
    }
    changes.push(json!({ "path": "agents/lead.toml", "content": "" }));
    changes.push(json!({ "path": "agents/lead.toml", "old": "\"page\"]", "new": "\"page\"]\nask = []" }));
    changes
}

/// The files of a folder, and what is in them.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.map(|path| (path.display().to_string(), fs::read_to_string(&path).unwrap())).collect()
}

/// An attack: links and `..` hide where a path leads, so that a person approves a change of what defines agents.
#[tokio::test(start_paused = true)]
async fn nobody_is_asked_about_a_write_that_is_refused_where_its_path_leads() {
    let temporary = tempfile::tempdir().unwrap();
    let agents = temporary.path().join("agents");
    fs::create_dir(&agents).unwrap();
    fs::write(agents.join("lead.toml"), LEAD.replace(", \"page\"", "")).unwrap();
    std::os::unix::fs::symlink("agents/lead.toml", temporary.path().join("link.toml")).unwrap();
    std::os::unix::fs::symlink("agents", temporary.path().join("folder")).unwrap();
    let root = Root::open(temporary.path()).unwrap().keeping(&agents).unwrap();
    let tools = Tools::new().with(file_write(&root)).unwrap();
    let paths =
        ["link.toml", "folder/lead.toml", "folder/new/a.toml", "none/../agents/a.toml", "none/a/../../folder/a.toml"];
    for (path, is_asked) in paths.map(|path| (path, false)).into_iter().chain([("none/../folder.toml", true)]) {
        let model = ScriptedModel::new().calls("FileWrite", json!({ "path": path, "content": "x" })).says("done");
        let mut folder = AgentFolder::new(&agents).model(Arc::new(model.clone())).tools(&tools);
        let builder = folder.load().unwrap().into_iter().fold(common::builder(), |builder, agent| builder.with(agent));
        let board = builder.start().await.unwrap();
        let tried = watched(&board, task("x", "lead")).await;
        let requests = model.requests();
        let reported = tool_answers(requests.last().unwrap())[0];
        assert_eq!(tried.asked.len(), usize::from(is_asked), "{path}: {reported}");
        assert_eq!(reported.contains("tools may read it and not change it"), !is_asked, "{path}: {reported}");
        assert!(!temporary.path().join("none").exists(), "{path}");
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_model_changes_its_definition_unless_people_let_it() {
    let changes = changes();
    assert!(changes.len() >= CASES, "{}", changes.len());
    let temporary = tempfile::tempdir().unwrap();
    let agents = temporary.path().join("agents");
    fs::create_dir(&agents).unwrap();
    fs::write(agents.join("lead.toml"), LEAD).unwrap();
    std::os::unix::fs::symlink("agents/lead.toml", temporary.path().join("link.toml")).unwrap();
    std::os::unix::fs::symlink("agents", temporary.path().join("folder")).unwrap();
    let before = files(&agents);
    let tools = tools(&Sink::default(), "Write lead.toml.").with(file_write(&Root::open(temporary.path()).unwrap()));
    let tools = tools.unwrap();
    for change in changes {
        let model = || ScriptedModel::new().calls("page", json!({})).calls("FileWrite", change.clone()).says("done");
        let (lead, doer) = (model(), model());
        let mut folder = AgentFolder::new(&agents).model(Arc::new(lead.clone())).tools(&tools);
        let builder = folder.load().unwrap().into_iter().fold(common::builder(), |builder, agent| builder.with(agent));
        let definition = Definition::built_in(AgentName::new("doer").unwrap());
        let spec = agent_of(&definition, doer.clone(), &tools, &[]);
        let board = builder.with(spec).start().await.unwrap();
        for (agent, model) in [("lead", lead), ("doer", doer)] {
            let tried = watched(&board, task("x", agent)).await;
            let requests = model.requests();
            let reported = tool_answers(requests.last().unwrap())[1];
            // Nobody is asked about what is no path, or would be below a file.
            let path = change["path"].as_str().unwrap();
            let is_asked = !path.is_empty() && !path.starts_with("..") && path != "agents/lead.toml/";
            assert_eq!(tried.asked.len(), usize::from(is_asked), "{agent} {change}: {reported}");
            assert_eq!(reported == "a person did not allow this: no", is_asked, "{agent} {change}: {reported}");
        }
        assert_eq!(files(&agents), before, "{change}");
        let reports = board.reload(&mut folder).await.unwrap();
        assert!(reports.iter().all(|report| report.change == FileChange::Unchanged), "{change}: {reports:?}");
        board.shutdown().await;
    }
}
