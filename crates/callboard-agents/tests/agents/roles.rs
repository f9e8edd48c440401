//! Agents with roles: what their files and their models get, whatever these ask for.

use std::sync::Arc;

use callboard::prelude::*;
use callboard_agents::testing::ScriptedModel;
use callboard_agents::tools::{context_delete, context_get, context_query, context_search, context_set, context_touch};
use callboard_agents::{Definition, Effect, FakeModel, LlmAgent, MetaTool, Roles, ToolSpec, Tools, of_spec, tool};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::common::models::{Nothing, agent, agent_of, tool_answers};
use crate::common::{builder, finish};

/// One tool for each effect, which notes its use, and those of the shared context.
fn tools(used: &Arc<Mutex<Vec<&'static str>>>) -> Tools {
    let own = Effect::ALL.into_iter().fold(Tools::new(), |tools, effect| {
        let (used, name) = (Arc::clone(used), effect.name());
        let spec = ToolSpec::new(&format!("do_{name}"), "Does it.", json!({ "type": "object" }), effect);
        let note = move |_: Value, _| {
            used.lock().push(name);
            async { Ok("done".into()) }
        };
        tools.with(of_spec(spec, note)).unwrap()
    });
    let own = own.with(context_get()).unwrap().with(context_set()).unwrap().with(context_query()).unwrap();
    own.with(context_search()).unwrap().with(context_touch()).unwrap().with(context_delete()).unwrap()
}

fn file(name: &str, role: &str, rest: &str) -> String {
    format!("[agent]\nname = \"{name}\"\n[agent.announces]\nrole = \"{role}\"\n{rest}")
}

/// Arguments that each tool takes.
fn arguments(tool: &str) -> Value {
    match tool {
        "ContextGet" | "ContextTouch" | "ContextDelete" => json!({ "namespace": "run", "key": "k" }),
        "ContextSet" => json!({ "namespace": "run", "key": "k", "value": "v" }),
        "ContextQuery" => json!({ "namespace": "run" }),
        "ContextSearch" => json!({ "namespaces": ["run"] }),
        "AskUser" => json!({ "question": "?" }),
        "Task" => json!({ "agent": "worker", "task": "do everything" }),
        "handoff_to_agent" => json!({ "agent_name": "worker" }),
        "ToolSearch" => json!({ "query": "x" }),
        "agent_create" | "agent_update" | "agent_keep" => {
            json!({ "name": "x", "description": "x", "instructions": "x" })
        }
        _ => json!({}),
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_of_the_role_cli_has_no_other_tool_and_no_other_namespace() {
    const GRANTED: [&str; 7] =
        ["ContextGet", "ContextQuery", "ContextSearch", "do_reads", "AskUser", "Task", "accept_handoff"];
    let used = Arc::default();
    let tools = tools(&used);
    let all: Vec<String> = tools
        .names()
        .chain(MetaTool::ALL.map(MetaTool::name))
        .filter(|tool| *tool != "AskUser")
        .map(str::to_owned)
        .collect();
    let namespaces = ["codebase", "memory:watcher", "memory:worker", "memory:", "run", "Run", "run:", "*", "audit"];
    let model = all.iter().fold(ScriptedModel::new(), |model, tool| model.calls(tool, arguments(tool)));
    let model = namespaces.iter().fold(model, |model, namespace| {
        model
            .calls("ContextGet", json!({ "namespace": namespace, "key": "k" }))
            .calls("ContextGet", json!({ "namespace": namespace, "key": "k", "wait_seconds": 1 }))
            .calls("ContextQuery", json!({ "namespace": namespace }))
            .calls("ContextSearch", json!({ "namespaces": [namespace] }))
    });
    // The worker, which may do everything for others, does so when it is given the task.
    let effects = Effect::ALL.map(|effect| format!("do_{}", effect.name()));
    let worker = effects.iter().fold(ScriptedModel::new(), |worker, tool| worker.calls(tool, json!({})));
    let (model, worker) = (model.says("done"), worker.says("done"));
    let mut trusted = Definition::built_in(AgentName::new("worker").unwrap());
    trusted.role = Some("admin".into());
    let watcher =
        file("watcher", "cli", "[agent.capabilities]\nmax_iterations = 100\n[agent.limits]\ntokens = 900000\n");
    let board = builder()
        .with(agent(&watcher, model.clone(), &tools))
        .with(agent_of(&trusted, worker.clone(), &tools, &[]))
        .start()
        .await
        .unwrap();
    for namespace in ["codebase", "memory:worker", "audit", "Run"] {
        board.context().set(namespace, "k", "SECRET", &AgentName::new("worker").unwrap(), None).await.unwrap();
    }
    let limits = Limits { handoffs: 9, tokens: 9_000_000, agents: 9, ..Limits::default() };
    assert_eq!(finish(&board, Task::new("try").to("watcher").limits(limits)).await.output, "done");

    let requests = model.requests();
    let shown: Vec<&str> = requests[0].tools.iter().map(|tool| &*tool.name).collect();
    assert!(shown.iter().all(|tool| GRANTED.contains(tool)), "{shown:?}");
    let answers = tool_answers(requests.last().unwrap());
    assert_eq!(answers.len(), all.len() + 4 * namespaces.len());
    for (tool, answer) in all.iter().zip(&answers) {
        assert_eq!(answer.contains("there is no tool"), !GRANTED.contains(&tool.as_str()), "{tool}: {answer}");
    }
    for (namespace, answers) in namespaces.iter().zip(answers[all.len()..].chunks(4)) {
        let is_its_own = ["run", "memory:watcher"].contains(namespace);
        assert!(!answers.concat().contains("SECRET"), "{namespace}: {answers:?}");
        for read in &answers[..2] {
            assert_eq!(read.contains("has no grant for namespace"), !is_its_own, "{namespace}: {answers:?}");
        }
    }
    // Of what it had others do, too, only the reading was done.
    assert_eq!(*used.lock(), ["reads", "reads", "notes"]);
    assert!(tool_answers(worker.requests().last().unwrap())[2].contains("may not be used for this task"));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn tools_pass_on_the_variables_that_the_role_grants_also_of_dynamic_agents() {
    const VARIABLES: [&str; 3] = ["GITLAB_TOKEN", "DEPLOY_KEY", "LANG"];
    let probe = tool("probe", "Reports variables.", Effect::Reads, |_: Nothing, scope| async move {
        Ok(VARIABLES.iter().filter(|name| scope.grants_variable(name)).copied().collect::<Vec<_>>().join(" ").into())
    });
    let tools = Tools::new().with(probe).unwrap();
    let roles = Roles::from_toml("callboard.toml", "[roles.deployer]\nvariables = [\"DEPLOY_*\"]").unwrap();
    let without_role = "[agent]\nname = \"a\"\n".to_owned();
    for (text, expected) in [
        (file("a", "admin", ""), "GITLAB_TOKEN DEPLOY_KEY LANG"),
        (file("a", "developer", ""), "GITLAB_TOKEN"),
        (file("a", "specialist", ""), ""),
        (file("a", "cli", ""), ""),
        (file("a", "deployer", ""), "DEPLOY_KEY"),
        (file("a", "unknown", ""), ""),
        (without_role, ""),
    ] {
        let model = ScriptedModel::new().calls("probe", json!({})).says("done");
        let definition = Definition::reader().roles(&roles).read("a.toml", &text).unwrap();
        let board = builder().with(agent_of(&definition, model.clone(), &tools, &[])).start().await.unwrap();
        finish(&board, Task::new("x")).await;
        assert_eq!(tool_answers(&model.requests()[1]), [expected], "{text}");
        board.shutdown().await;
    }
    let child = json!({ "name": "child", "description": "x", "instructions": "x" });
    let model = ScriptedModel::new()
        .calls("agent_create", child)
        .calls("Task", json!({ "agent": "child", "task": "x" }))
        .calls("probe", json!({}))
        .says("reported")
        .says("done");
    let maker = "[agent.capabilities]\nallowed_tools = [\"probe\", \"Task\", \"agent_create\"]\n";
    let board = builder().with(agent(&file("a", "developer", maker), model.clone(), &tools)).start().await.unwrap();
    finish(&board, Task::new("x")).await;
    assert_eq!(tool_answers(&model.requests()[3]), ["GITLAB_TOKEN"]);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn programs_of_tools_delegate_only_for_agents_that_have_the_tool_task() {
    let probe = tool("probe", "Reports whether there is a turn.", Effect::Reads, |_: Nothing, scope| async move {
        Ok(scope.turn.is_some().to_string().into())
    });
    let tools = Tools::new().with(probe).unwrap();
    for (allowed, expected) in [("\"probe\", \"Task\"", "true"), ("\"probe\"", "false")] {
        let text = format!("[agent]\nname = \"a\"\n[agent.capabilities]\nallowed_tools = [{allowed}]\n");
        let model = ScriptedModel::new().calls("probe", json!({})).says("done");
        let board = builder().with(agent(&text, model.clone(), &tools)).start().await.unwrap();
        finish(&board, Task::new("x")).await;
        assert_eq!(tool_answers(&model.requests()[1]), [expected], "{allowed}");
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dynamic_agent_has_at_most_what_the_role_of_its_maker_grants() {
    let used = Arc::default();
    let tools = tools(&used);
    let child = |tools: &[&str]| json!({ "name": "child", "description": "x", "instructions": "x", "tools": tools });
    let model = ScriptedModel::new()
        .calls("agent_create", child(&["do_executes"]))
        .calls(
            "agent_create",
            json!({ "name": "child", "description": "x", "instructions": "x", "namespaces": ["codebase"] }),
        )
        .says("done");
    let roles = Roles::from_toml("callboard.toml", "[roles.maker]\nnamespaces = [\"run\"]").unwrap();
    let maker =
        file("a", "maker", "[agent.capabilities]\nallowed_tools = [\"do_reads\", \"Task\", \"agent_create\"]\n");
    let maker = Definition::reader().roles(&roles).read("a.toml", &maker).unwrap();
    let board = builder().with(agent_of(&maker, model.clone(), &tools, &[])).start().await.unwrap();
    finish(&board, Task::new("x")).await;
    let requests = model.requests();
    let answers = tool_answers(&requests[2]);
    assert!(answers[0].contains("its maker has no tool \"do_executes\""), "{answers:?}");
    assert!(answers[1].contains("its maker may not use the namespace \"codebase\""), "{answers:?}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_team_of_the_built_in_roles_has_the_authority_that_the_table_has() {
    let all = ["reads", "notes", "sends", "writes", "executes"];
    for (role, most) in [("admin", 5), ("developer", 5), ("specialist", 4), ("cli", 2)] {
        let spec = agent(&file("a", role, ""), FakeModel, &Tools::new());
        let board = builder().with(spec).start().await.unwrap();
        let authority = board.agents().authority("a").unwrap();
        assert_eq!(authority.effects().map(Effect::name).collect::<Vec<_>>(), all[..most], "{role}");
        assert_eq!(board.agents().roster()[0].role.as_deref(), Some(role));
        board.shutdown().await;
    }
    let narrowed = file("a", "developer", "[agent.capabilities]\nauthority = [\"reads\"]\n");
    let board = builder().with(agent(&narrowed, FakeModel, &Tools::new())).start().await.unwrap();
    assert_eq!(board.agents().authority("a").unwrap().effects().collect::<Vec<_>>(), [Effect::Reads]);
    board.shutdown().await;
    assert!(
        LlmAgent::new(&Definition::from_toml("a", &narrowed).unwrap(), Arc::new(FakeModel), &Tools::new(), &[]).is_ok()
    );
}
