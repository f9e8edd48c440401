//! The settings of an agent's file, on a board: its tools by its mode, its models, and what it announces and may use.

#![allow(clippy::disallowed_methods, reason = "the tests run on tokio's virtual time")]

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::models::{self, Nothing};
use crate::common::{Peak, assert_nothing_left, builder, finish, pass, quiet, secs, until};
use callboard::env::Env;
use callboard::messages::{AgentName, Backoff, Consent, RunEvent};
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard_agents::testing::ScriptedModel;
use callboard_agents::tools::context_set;
use callboard_agents::{
    AgentFolder, CallPolicy, Definition, DefinitionError, Effect, LlmAgent, Model, ModelEntry, ModelErrorKind,
    ModelRequest, ModelStream, Models, Tools, tool,
};
use futures::StreamExt;
use futures::stream::once;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

/// An agent of the name `worker`; `more` stands below it in its file.
fn worker(more: &str, model: impl Model, tools: &Tools) -> AgentSpec {
    models::agent(&format!("[agent]\nname = \"worker\"\n{more}"), model, tools)
}

async fn board(spec: AgentSpec) -> Callboard {
    builder().with(spec).start().await.unwrap()
}

/// A model that never answers.
struct Silent(Peak);

impl Model for Silent {
    fn name(&self) -> &str {
        "silent"
    }

    fn call(&self, _: ModelRequest) -> ModelStream {
        let inside = self.0.clone();
        let wait = async move {
            let _inside = inside.enter();
            std::future::pending().await
        };
        once(wait).boxed()
    }
}

/// A model that panics so many times, and else answers.
struct Fragile(Arc<AtomicU32>);

impl Model for Fragile {
    fn name(&self) -> &str {
        "fragile"
    }

    fn call(&self, request: ModelRequest) -> ModelStream {
        let left = |left: u32| left.checked_sub(1);
        assert!(self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_err(), "out of luck");
        ScriptedModel::new().says("done").call(request)
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_does_not_fit_its_mode_is_not_shown_and_not_used_whatever_the_file_allows() {
    let effects = [Effect::Reads, Effect::Notes, Effect::Sends, Effect::Writes, Effect::Executes];
    for (mode, fit) in [
        ("build", &effects[..]),
        ("general", &effects[..]),
        ("plan", &[Effect::Reads, Effect::Notes, Effect::Sends][..]),
        ("explore", &[Effect::Reads, Effect::Sends][..]),
    ] {
        let used = Arc::new(Mutex::new(BTreeSet::new()));
        let make = |effect: Effect| {
            let used = Arc::clone(&used);
            tool(effect.name(), "Does it.", effect, move |_: Nothing, _| {
                used.lock().insert(effect.name());
                async { Ok("did it".into()) }
            })
        };
        let tools = effects.into_iter().fold(Tools::new(), |tools, effect| tools.with(make(effect)).unwrap());
        // The model calls all tools, also those that it was not given.
        let model =
            ScriptedModel::new().calls_all(effects.map(|effect| (effect.name(), json!({}).into()))).says("done");
        let names: Vec<_> = effects.iter().map(|effect| format!("{:?}", effect.name())).collect();
        let more = format!("mode = \"{mode}\"\n[agent.capabilities]\nallowed_tools = [{}]", names.join(", "));
        let spec = worker(&more, model.clone(), &tools);
        let board = builder().with(spec).approval_policy(|_| Consent::Auto).start().await.unwrap();
        assert_eq!(finish(&board, Task::new("x")).await.output, "done", "{mode}");
        let fit: BTreeSet<&str> = fit.iter().map(|effect| effect.name()).collect();
        assert_eq!(*used.lock(), fit, "{mode}");
        let requests = model.requests();
        assert_eq!(requests[0].tools.iter().map(|tool| &*tool.name).collect::<BTreeSet<_>>(), fit, "{mode}");
        let reported = serde_json::to_string(&requests[1].messages).unwrap();
        assert_eq!(reported.matches("there is no tool").count(), effects.len() - fit.len(), "{mode}: {reported}");
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_file_announces_is_what_the_board_knows_and_tasks_are_given_to() {
    let more =
        "[agent.announces]\nrole = \"developer\"\ncapabilities = [\"rust\", \"sql\"]\nprojects = [\"callboard\"]";
    let model = ["a", "b", "c"].into_iter().fold(ScriptedModel::new(), ScriptedModel::says);
    let board = builder()
        .with(worker(more, model, &Tools::new()))
        .agent("other", |_: Turn| async { Ok(Command::output("not I")) })
        .start()
        .await
        .unwrap();
    let roster = board.agents().roster();
    let here = roster.iter().find(|here| here.agent.as_str() == "worker").unwrap();
    assert_eq!(here.role.as_deref(), Some("developer"));
    assert_eq!(here.capabilities, ["rust", "sql"].map(Arc::from));
    assert_eq!(here.projects, ["callboard"].map(Arc::from));
    for (to, said) in [("developer", "a"), ("rust", "b"), ("sql", "c")] {
        assert_eq!(finish(&board, Task::new("x").to(to)).await.output, said);
    }
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_file_sets_how_many_turns_run_at_once_and_how_long_each_may_take() {
    let inside = Peak::default();
    let more = "[agent.limits]\nconcurrency = 2\ntimeout = \"90s\"";
    let board = board(worker(more, Silent(inside.clone()), &Tools::new())).await;
    let begun = Instant::now();
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(board.submit(Task::new("x")).await.unwrap());
    }
    quiet().await;
    assert_eq!(inside.inside(), 2);
    let failed = until(&runs[0], |event| matches!(event, RunEvent::AttemptFailed { .. })).await;
    assert_eq!(begun.elapsed().as_secs(), 90, "{failed:?}");
    for run in &runs {
        run.cancel("enough").await.unwrap();
    }
    assert_eq!(inside.highest(), 2);
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_file_sets_how_often_its_agent_may_be_rebuilt_and_within_which_time() {
    let panics = Arc::new(AtomicU32::new(0));
    let more = "[agent.limits]\nrestarts = { max = 1, within = \"30s\" }";
    let board = builder()
        .with(worker(more, Fragile(Arc::clone(&panics)), &Tools::new()))
        .backoff(Backoff { first: secs(1), max: secs(1) })
        .start()
        .await
        .unwrap();
    let panic_once = async || {
        panics.store(1, Ordering::SeqCst);
        let run = board.submit(Task::new("x")).await.unwrap();
        until(&run, |event| matches!(event, RunEvent::AttemptFailed { .. })).await;
        quiet().await;
        run
    };
    assert_eq!(panic_once().await.result().await.unwrap().output, "done");
    pass(secs(30)).await;
    assert_eq!(panic_once().await.result().await.unwrap().output, "done", "the first one is forgotten");
    assert_eq!(board.agents().roster().len(), 1);
    panic_once().await;
    assert_eq!(board.agents().roster(), [], "it is the second one in 30 s");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_writes_in_the_namespaces_that_its_file_names_and_in_no_others() {
    let tools = Tools::new().with(context_set()).unwrap();
    let set = |namespace: &str| ("ContextSet", json!({ "namespace": namespace, "key": "k", "value": "v" }).into());
    for (more, is_granted) in [("[agent.context]\nnamespaces = [\"codebase\"]", true), ("", false)] {
        let sets = [set("codebase"), set("run"), set("other"), set("memory:worker")];
        let model = ScriptedModel::new().calls_all(sets).says("done");
        let board = board(worker(more, model.clone(), &tools)).await;
        let run = finish(&board, Task::new("x")).await.run;
        let entry = async |namespace: &str| board.context().get(namespace, "k").await.unwrap().is_some();
        assert!(entry("memory:worker").await && !entry("other").await && !entry("run").await, "{more}");
        assert_eq!((entry("codebase").await, entry(&run.namespace()).await), (is_granted, !is_granted), "{more}");
        let reported = serde_json::to_string(&model.requests()[1].messages).unwrap();
        assert_eq!(reported.matches("\"is_error\":true").count(), 2, "{reported}");
        board.shutdown().await;
    }
}

#[test]
fn a_budget_below_one_call_is_refused_when_the_agent_is_made_with_both_figures() {
    let tools = Tools::new().with(context_set()).unwrap();
    let made = |tokens: u64, tools: &Tools| {
        let mut definition = Definition::built_in(AgentName::new("worker").unwrap());
        (definition.max_tokens, definition.tokens, definition.allowed_tools) = (1_000, Some(tokens), Some(Vec::new()));
        if !tools.is_empty() {
            definition.allowed_tools = Some(vec!["ContextSet".into()]);
        }
        LlmAgent::new(&definition, Arc::new(ScriptedModel::new()), tools, &[]).map(drop)
    };
    let needed = |error| match error {
        DefinitionError::Budget { budget: 999, needed, max_tokens: 1_000, .. } => needed,
        other => panic!("{other}"),
    };
    let least = needed(made(999, &Tools::new()).unwrap_err());
    let error = made(999, &tools).unwrap_err();
    let reported = error.to_string();
    let with_tool = needed(error);
    assert!(least >= 1_000 && with_tool > least + 100, "a tool is described in each call: {least} {with_tool}");
    for part in ["worker", "999", &with_tool.to_string(), "1000 for the answer", "[agent.limits]", "max_tokens"] {
        assert!(reported.contains(part), "{part}: {reported}");
    }
    made(with_tool, &tools).unwrap();
    let below = made(with_tool - 1, &tools).unwrap_err();
    assert!(matches!(below, DefinitionError::Budget { needed, .. } if needed == with_tool), "{below}");
}

#[tokio::test(start_paused = true)]
async fn the_models_that_a_file_names_are_asked_in_its_order() {
    let fails = |name| ScriptedModel::named(name).fails(ModelErrorKind::Unavailable, "down");
    let first = ScriptedModel::named("first").says("of the first");
    let (preferred, fallback) = (fails("preferred"), fails("fallback"));
    let tagged = ScriptedModel::named("tagged").says("of the tagged");
    let half = ScriptedModel::named("half");
    let entry = |model: &ScriptedModel| ModelEntry::of(model.clone()).provider(model.name());
    let mut policy = CallPolicy::default();
    policy.retries = 0;
    let models = [
        entry(&first),
        entry(&half).tag("fast"),
        entry(&tagged).tag("fast").tag("cheap"),
        entry(&fallback),
        entry(&preferred),
    ];
    let models = Models::of(&Env::repeatable(7), models).unwrap().with_policy(policy);
    let files = tempfile::tempdir().unwrap();
    let choosy = "[agent]\nname = \"choosy\"\n[agent.model]\npreferred = \"preferred\"\nfallback = [\"fallback\"]\n\
                  provider_tags = [\"fast\", \"cheap\"]\nmax_tokens = 77\n";
    fs::write(files.path().join("choosy.toml"), choosy).unwrap();
    fs::write(files.path().join("plain.toml"), "[agent]\nname = \"plain\"\n").unwrap();
    let mut folder = AgentFolder::new(files.path()).models(&models);
    let board = folder.load().unwrap().into_iter().fold(builder(), Builder::with).start().await.unwrap();
    assert_eq!(finish(&board, Task::new("x").to("choosy")).await.output, "of the tagged");
    let asked = [&first, &half, &tagged, &fallback, &preferred].map(|model| model.requests().len());
    assert_eq!(asked, [0, 0, 1, 1, 1]);
    assert_eq!(tagged.requests()[0].max_tokens, 77);
    assert_eq!(finish(&board, Task::new("x").to("plain")).await.output, "of the first", "a file that says nothing");
    board.shutdown().await;

    fs::write(files.path().join("choosy.toml"), choosy.replace("\"preferred\"\n", "\"prefered\"\n")).unwrap();
    let wrong = AgentFolder::new(files.path()).models(&models).load().unwrap_err().to_string();
    assert!(wrong.contains("choosy") && wrong.contains("did you mean \"preferred\""), "{wrong}");
}
