//! Agents that agents make while a board runs have at most what their makers have, and live as long as their run, over restarts
//! too. What is caused in a run is what its grant and everybody in the chain allow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::common::models::{Nothing, agent, tool_answers};
use crate::common::{Processes, assert_nothing_left, builder, finish, people, quiet};
use callboard::actors::ContextError;
use callboard::messages::{Action, Authority, Consent, Refusal, RunEvent};
use callboard::prelude::*;
use callboard::supervision::runs::Fork;
use callboard::testing::{Seeds, Sim};
use callboard_agents::testing::ScriptedModel;
use callboard_agents::{Effect, ToolSpec, Tools, of_spec};
use serde_json::{Value, json};

/// One tool for each effect, which counts its uses.
fn tools(count: &Arc<AtomicU32>) -> Tools {
    Effect::ALL.into_iter().fold(Tools::new(), |tools, effect| {
        let count = Arc::clone(count);
        let spec = ToolSpec::of::<Nothing>(effect.name(), "Does it.", effect);
        let tool = of_spec(spec, move |_: Nothing, _| {
            count.fetch_add(1, Ordering::Relaxed);
            async move { Ok("done".into()) }
        });
        tools.with(tool).unwrap()
    })
}

const LEAD: &str = "[agent]\nname = \"lead\"\nmode = \"build\"\nsystem_prompt = \"You lead.\"\n[agent.capabilities]\n\
    allowed_tools = [\"reads\", \"writes\", \"Task\", \"handoff_to_agent\", \"agent_create\", \"agent_update\"]";

fn draft(name: &str, more: &Value) -> Value {
    let mut draft = json!({ "name": name, "description": "helps", "instructions": "You help." });
    draft.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    draft
}

fn task(agent: &str) -> Value {
    json!({ "agent": agent, "task": "go" })
}

/// The answers that the model was given to its tool calls.
fn answers(model: &ScriptedModel) -> Vec<String> {
    let requests = model.requests();
    requests.last().map(tool_answers).unwrap_or_default().into_iter().map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_was_made_takes_tasks_of_its_run_and_is_gone_with_it() {
    let count = Arc::default();
    let instructions = "You help.\n{{ 7 * 7 }} {% raw %} {# no #} {{ agent.name }}";
    // One model speaks for both, in turn.
    let model = ScriptedModel::new()
        .calls("agent_create", draft("helper", &json!({ "instructions": instructions, "tools": ["reads", "writes"] })))
        .calls("Task", task("helper"))
        .calls("writes", json!({}))
        .says("I have written.")
        .says("All is done.");
    let board = builder().with(agent(LEAD, model.clone(), &tools(&count))).start().await.unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    let envelope = people::approval(&board).await;
    assert_eq!((envelope.agent.as_str(), &*envelope.policy), ("lead~helper", "ask each time"));
    board.people().approve(envelope.id(), "ann").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, "All is done.");
    assert_eq!(count.load(Ordering::Relaxed), 1);
    let requests = model.requests();
    assert!(requests[2].system.starts_with(instructions), "{}", requests[2].system);
    let tools: Vec<&str> = requests[2].tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(tools, ["reads", "writes"]);
    let made = run.history().await.unwrap();
    let made = made.iter().find(|event| matches!(event, RunEvent::AgentMade { .. })).unwrap();
    assert_eq!(made.to_string(), "made the agent helper");
    assert_eq!(board.agents().names().len(), 1, "it is nobody's outside its run");
    let elsewhere = board.submit(Task::new("x").to("helper")).await.unwrap_err();
    assert!(elsewhere.to_string().contains("no agent has the name"), "{elsewhere}");
    let elsewhere = board.submit(Task::new("x").to("lead~helper")).await.unwrap_err();
    assert!(elsewhere.to_string().contains("no agent has the name"), "{elsewhere}");
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_asks_for_more_than_it_has_gets_nothing_and_the_reason() {
    let count = Arc::default();
    let asked = [
        (draft("a", &json!({ "tools": ["executes"] })), "its maker has no tool \"executes\""),
        (draft("a", &json!({ "tools": ["AskUser"] })), "its maker has no tool \"AskUser\""),
        (draft("a", &json!({ "tools": ["Reads"] })), "its maker has no tool \"Reads\"; did you mean \"reads\"?"),
        (draft("a", &json!({ "max_iterations": 26 })), "max_iterations 26 is more than its maker has, 25"),
        (draft("a", &json!({ "max_iterations": 0 })), "max_iterations begins at 1"),
        (draft("a", &json!({ "mode": "root" })), "there is no mode \"root\""),
        (draft("a", &json!({ "namespaces": ["../secrets"] })), "has the path step"),
        (draft("lead", &json!({})), "the name is in use"),
        (draft("lead~b", &json!({})), "stands between an agent and those that it has made"),
        (draft("b\u{202e}", &json!({})), "it is not shown"),
        (draft("", &json!({})), "is empty"),
        (draft("a", &json!({ "trust_tier": "built_in" })), "do not fit"),
        (draft("a", &json!({ "authority": ["executes"] })), "do not fit"),
        (draft("a", &json!({ "instructions": "x".repeat(17 << 10) })), "16384 are the most"),
    ];
    let mut model = ScriptedModel::new();
    for (draft, _) in &asked {
        model = model.calls("agent_create", draft.clone());
    }
    let model = model.calls("agent_update", draft("nobody", &json!({}))).says("done");
    let board = builder().with(agent(LEAD, model.clone(), &tools(&count))).start().await.unwrap();
    finish(&board, Task::new("x")).await;
    let answers = answers(&model);
    for ((draft, why), answer) in asked.iter().zip(&answers) {
        assert!(answer.contains(why), "{draft}: {answer}");
    }
    assert!(answers.last().unwrap().contains("no agent of this name was made in this run"), "{answers:?}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_makes_sixteen_agents_and_each_name_once() {
    let mut model = ScriptedModel::new();
    for number in 0..17 {
        model = model.calls("agent_create", draft(&format!("a{number}"), &json!({})));
    }
    let model = model.calls("agent_create", draft("a3", &json!({}))).says("done");
    let board = builder().with(agent(LEAD, model.clone(), &tools(&Arc::default()))).start().await.unwrap();
    finish(&board, Task::new("x")).await;
    let answers = answers(&model);
    assert!(answers[..16].iter().all(|answer| answer.ends_with("is ready for tasks")), "{answers:?}");
    assert!(answers[16].contains("the run has made 16 agents, which is the most"), "{}", answers[16]);
    assert!(answers[17].contains("an agent of this run has the name"), "{}", answers[17]);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn how_many_agents_a_run_makes_can_be_set() {
    let model = ScriptedModel::new().calls("agent_create", draft("a", &json!({})));
    let model = model.calls("agent_create", draft("b", &json!({}))).says("done");
    let lead = agent(LEAD, model.clone(), &tools(&Arc::default()));
    let board = builder().capacity(|capacity| capacity.dynamic_agents(1)).with(lead).start().await.unwrap();
    finish(&board, Task::new("x")).await;
    let answers = answers(&model);
    assert!(answers[0].ends_with("is ready for tasks"), "{answers:?}");
    assert!(answers[1].contains("the run has made 1 agent, which is the most"), "{answers:?}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_cannot_be_made_whose_name_looks_like_another_one() {
    // Of Cyrillic letters alone.
    let [copy, apex] = ["\u{441}\u{43e}\u{440}\u{443}", "\u{430}\u{440}\u{435}\u{445}"];
    let model = ScriptedModel::new()
        .calls("agent_create", draft(copy, &json!({})))
        .calls("agent_create", draft("apex", &json!({})))
        .calls("agent_create", draft(apex, &json!({})))
        .says("done");
    let lead = agent(LEAD, model.clone(), &tools(&Arc::default()));
    let copy = |_: Turn| async { Ok(Command::output("x")) };
    let board = builder().with(lead).agent("copy", copy).start().await.unwrap();
    finish(&board, Task::new("x").to("lead")).await;
    let answers = answers(&model);
    assert!(answers[0].contains("looks like that of copy"), "{answers:?}");
    assert!(answers[1].ends_with("is ready for tasks"), "{answers:?}");
    assert!(answers[2].contains("looks like that of apex"), "{answers:?}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_was_made_makes_others_of_what_it_has_and_only_its_maker_changes_it() {
    let model = ScriptedModel::new()
        .calls("agent_create", draft("child", &json!({ "tools": ["reads", "Task", "agent_create", "agent_update"] })))
        .calls("Task", task("child"))
        // The child.
        .calls("agent_create", draft("grandchild", &json!({ "tools": ["reads", "writes"] })))
        .calls("agent_create", draft("grandchild", &json!({ "tools": ["reads"] })))
        .calls("agent_update", draft("child", &json!({})))
        .calls("Task", task("grandchild"))
        .says("I am the grandchild.")
        .says("It answered.")
        // The lead.
        .calls("agent_update", draft("grandchild", &json!({})))
        .calls("agent_update", draft("child", &json!({ "instructions": "You are another.", "tools": [] })))
        .calls("Task", task("child"))
        .says("I am another.")
        .says("done");
    let board = builder().with(agent(LEAD, model.clone(), &tools(&Arc::default()))).start().await.unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    assert_eq!(run.result().await.unwrap().output, "done");
    let events = run.history().await.unwrap();
    let said = |event: &RunEvent| match event {
        RunEvent::AgentMade { made: Ok(agent), .. } => Some(agent.to_string()),
        RunEvent::AgentMade { made: Err(refusal), .. } => Some(refusal.to_string()),
        _ => None,
    };
    let said: Vec<String> = events.iter().filter_map(said).collect();
    assert_eq!(
        said,
        [
            "lead~child",
            "agent \"grandchild\" cannot be made: its maker has no tool \"writes\"",
            "lead~child~grandchild",
            "agent \"child\" cannot be made: only the agent that made it may change it",
            "agent \"grandchild\" cannot be made: only the agent that made it may change it",
            "lead~child",
        ]
    );
    let requests = model.requests();
    assert!(requests[11].system.starts_with("You are another.") && requests[11].tools.is_empty());
    board.shutdown().await;
}

#[test]
fn agents_that_were_made_outlive_the_process() {
    let (processes, count) = (Processes::new(), Arc::default());
    let spec = |model: ScriptedModel| agent(LEAD, model, &tools(&count));
    let run = processes.run(async |builder| {
        let model = ScriptedModel::new()
            .calls("agent_create", draft("helper", &json!({})))
            .calls("Task", task("helper"))
            .calls("writes", json!({}));
        let board = builder.with(spec(model)).start().await.unwrap();
        let run = board.submit(Task::new("x")).await.unwrap();
        people::approval(&board).await;
        run.id()
    });
    processes.run(async |builder| {
        let model = ScriptedModel::new().says("I have written.").says("All is done.");
        let board = builder.with(spec(model)).start().await.unwrap();
        let envelope = people::approval(&board).await;
        board.people().approve(envelope.id(), "ann").await.unwrap();
        assert_eq!(board.run(run).result().await.unwrap().output, "All is done.");
    });
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn who_gets_control_from_an_agent_that_was_made_is_bound_as_that_one_is() {
    let count = Arc::default();
    let lead = format!("{LEAD}\nauthority = [\"reads\", \"notes\"]");
    let model = ScriptedModel::new()
        .calls("agent_create", draft("helper", &json!({})))
        .calls("handoff_to_agent", json!({ "agent_name": "helper", "task": "go" }))
        .calls("handoff_to_agent", json!({ "agent_name": "writer", "task": "write" }));
    let writer = ScriptedModel::new().calls("writes", json!({})).says("I may not.").says("unused");
    let board = builder()
        .with(agent(&lead, model, &tools(&count)))
        .with(agent("[agent]\nname = \"writer\"", writer.clone(), &tools(&count)))
        .start()
        .await
        .unwrap();
    assert_eq!(finish(&board, Task::new("x").to("lead")).await.output, "I may not.");
    let answer = answers(&writer).pop().unwrap();
    assert!(answer.contains("writes may not be used for this task"), "{answer}");
    // By itself it may.
    let writer = ScriptedModel::new().calls("writes", json!({})).says("I may.");
    board.agents().replace(agent("[agent]\nname = \"writer\"", writer, &tools(&count))).await.unwrap();
    let run = board.submit(Task::new("x").to("writer")).await.unwrap();
    let envelope = people::approval(&board).await;
    board.people().approve(envelope.id(), "ann").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, "I may.");
    assert_eq!(count.load(Ordering::Relaxed), 1);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn no_agent_does_in_a_run_what_it_was_not_granted() {
    let count = Arc::default();
    let model = ScriptedModel::new().calls("writes", json!({})).calls("reads", json!({})).says("done");
    let board = builder().with(agent("[agent]\nname = \"lead\"", model.clone(), &tools(&count))).start().await.unwrap();
    finish(&board, Task::new("x").grant(Authority::of([Effect::Reads]))).await;
    let shown: Vec<String> = model.requests()[0].tools.iter().map(|tool| tool.name.to_string()).collect();
    assert!(shown.contains(&"reads".to_owned()) && !shown.contains(&"writes".to_owned()), "{shown:?}");
    assert_eq!(count.load(Ordering::Relaxed), 1);
    board.shutdown().await;
}

/// Numbers that follow from a seed.
fn next(seed: &mut u64) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize
}

/// Agents of random authority pass a task on, by delegation or handoff, along random ways: the agent that works on it may cause
/// what everybody in the chain may, and no more.
#[tokio::test(start_paused = true)]
async fn no_chain_does_what_anybody_in_it_may_not() {
    const AGENTS: usize = 8;
    let mut seed = 20_261_123;
    let authority =
        |bits: usize| Authority::of(Effect::ALL.into_iter().filter(|effect| bits & (1 << *effect as usize) != 0));
    let own: Vec<Authority> = (0..AGENTS).map(|_| authority(next(&mut seed) | 1)).collect();
    let board = own.iter().enumerate().fold(builder(), |builder, (number, own)| {
        let agent = |turn: Turn| async move {
            let way: Vec<(bool, usize)> = turn.input()?;
            let mut seen = vec![json!(turn.authority())];
            if let Some(((is_delegation, to), rest)) = way.split_first() {
                let to = format!("agent-{to}");
                if !is_delegation {
                    return Ok(Command::output(json!(rest)).goto(&to));
                }
                let below: Vec<Value> = turn.delegate(&to, "on").input(json!(rest)).await?.parse().unwrap();
                seen.extend(below);
            }
            Ok(Command::output(Value::from(seen)))
        };
        builder.with(AgentSpec::new(&format!("agent-{number}"), agent).authority(*own))
    });
    let board = board.start().await.unwrap();
    let mut compared = 0;
    for _ in 0..400 {
        let grant = authority(next(&mut seed) | 1);
        let mut way: Vec<(bool, usize)> = Vec::new();
        let first = next(&mut seed) % AGENTS;
        let mut used = vec![first];
        for _ in 0..next(&mut seed) % 4 {
            let to = next(&mut seed) % AGENTS;
            if !used.contains(&to) {
                used.push(to);
                way.push((!next(&mut seed).is_multiple_of(3), to));
            }
        }
        // The last agent is bound by its own authority, the grant, and each agent that delegated the task on the way.
        let (mut expected, mut chain, mut at, mut was_given) = (Vec::new(), grant, first, false);
        for (is_delegation, to) in way.iter().chain([&(true, AGENTS)]) {
            if *is_delegation {
                expected.push(chain.and(own[at]));
                chain = chain.and(own[at]);
            } else if was_given {
                // An agent that was delegated to stays in the chain; one that got control by a handoff does not.
                chain = chain.and(own[at]);
            }
            (at, was_given) = (*to, *is_delegation);
        }
        let limits = Limits { handoffs: 20, agents: 20, depth: 20, ..Limits::default() };
        let task = Task::new("x").to(&format!("agent-{first}")).input(json!(way)).grant(grant).limits(limits);
        let result = finish(&board, task).await;
        let seen: Vec<Authority> = result.output.parse().unwrap();
        assert_eq!(seen, expected, "{first} {way:?} {:?}", result.outcome);
        compared += seen.len();
    }
    assert!(compared > 600, "{compared}");
    quiet().await;
    board.shutdown().await;
}

/// Makes agents that repeat a word, in a namespace that the word names.
#[derive(Clone, Copy)]
struct Maker {
    fails_first: bool,
    hands_on: bool,
}

impl Agent for Maker {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        turn.agents().make("echo", json!("twice").into()).await?;
        let refused = turn.agents().make("other", json!(7).into()).await.unwrap_err();
        assert!(matches!(refused.refusal(), Some(Refusal::AgentNotMade { .. })));
        if self.fails_first && turn.attempt() == 1 {
            return Err(TurnError::transient("again"));
        }
        if self.hands_on {
            return Ok(Command::output("hi").goto("echo"));
        }
        Ok(Command::output(turn.delegate("echo", "hi").await?))
    }

    fn make(&self, draft: &Json) -> Result<AgentSpec, String> {
        let word = draft.as_str().ok_or("a word is needed")?.to_owned();
        let namespaces = [word.clone(), "notes".to_owned()];
        let spec = AgentSpec::new("echo", move |turn: Turn| {
            let word = word.clone();
            async move {
                turn.context().set("notes", "k", "v", None).await?;
                let beyond = turn.context().set(&word, "k", "v", None).await;
                assert!(matches!(beyond, Err(ContextError::NotGranted { .. })), "{beyond:?}");
                turn.people().approve(Action::new("repeat", &word, json!({}))).await?;
                Ok(Command::output(format!("{word} {}", turn.input::<String>()?)))
            }
        });
        Ok(spec.namespaces(namespaces.iter().map(String::as_str)))
    }
}

const MAKER: Maker = Maker { fails_first: false, hands_on: false };

fn maker(maker: Maker) -> AgentSpec {
    AgentSpec::new("maker", move || maker).namespaces(["notes"])
}

async fn board_of(agent: Maker) -> Callboard {
    builder().with(maker(agent)).approval_policy(|_| Consent::Auto).start().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_agent_in_rust_makes_others_within_its_namespaces() {
    let board = board_of(MAKER).await;
    assert_eq!(finish(&board, Task::new("x")).await.output, "twice hi");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_is_tried_again_makes_its_agents_again() {
    let board = board_of(Maker { fails_first: true, ..MAKER }).await;
    assert_eq!(finish(&board, Task::new("x")).await.output, "twice hi");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn no_agent_does_what_a_policy_denies_the_agent_that_made_it() {
    for (denied, is_denied) in [("maker", true), ("maker~echo", true), ("echo", false)] {
        let policy = move |agent: &str| if agent == denied { Consent::Deny } else { Consent::Auto };
        let board = builder()
            .with(maker(MAKER))
            .approval_policy(move |question| policy(question.agent.as_str()))
            .start()
            .await
            .unwrap();
        let outcome = finish(&board, Task::new("x")).await.outcome;
        assert_eq!(!outcome.is_finished(), is_denied, "{denied}: {outcome:?}");
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_fork_at_a_turn_of_an_agent_that_was_made_takes_it_as_it_was_or_reports_why_not() {
    let board = board_of(Maker { hands_on: true, ..MAKER }).await;
    let run = board.submit(Task::new("x")).await.unwrap();
    assert_eq!(run.result().await.unwrap().output, "twice hi");
    let fork = board.fork(run.id(), 2, Fork::new()).await.unwrap();
    let result = fork.result().await.unwrap();
    assert_eq!(result.output, "twice hi", "{:?}", result.outcome);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_may_only_read_gives_no_tasks_and_asks_no_person() {
    let model =
        ScriptedModel::new().calls("Task", task("helper")).calls("AskUser", json!({ "question": "x" })).says("done");
    let reader = "[agent]\nname = \"lead\"\n[agent.capabilities]\nauthority = [\"reads\"]";
    let spec = agent(reader, model.clone(), &Tools::new());
    let board = builder().with(spec).start().await.unwrap();
    assert_eq!(finish(&board, Task::new("x")).await.output, "done");
    let shown = model.requests().pop().unwrap().tools;
    assert!(shown.iter().all(|tool| ["ToolSearch", "accept_handoff"].contains(&&*tool.name)), "{shown:?}");
    assert!(answers(&model).iter().all(|answer| answer.contains("there is no tool")), "{:?}", answers(&model));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_makes_is_never_a_program() {
    let count = Arc::default();
    let process = json!({ "command": ["touch", "made"] });
    let model = ScriptedModel::new()
        .calls("agent_create", draft("one", &json!({ "process": process })))
        .calls("agent_create", draft("two", &json!({ "command": ["touch", "made"] })))
        .calls("agent_create", draft("three\"\n[agent.process]\ncommand = [\"touch\"]\n#", &json!({})))
        .calls("agent_create", draft("four", &json!({})))
        .calls("agent_update", draft("four", &json!({ "process": process })))
        .calls("Task", task("one"))
        .says("none");
    let board = builder().with(agent(LEAD, model.clone(), &tools(&count))).start().await.unwrap();
    assert_eq!(finish(&board, Task::new("x").to("lead")).await.output, "none");
    let answers = answers(&model);
    for (refused, why) in [(0, "process"), (1, "command"), (2, "control character"), (4, "process"), (5, "one")] {
        assert!(answers[refused].contains(why), "{refused}: {}", answers[refused]);
    }
    board.shutdown().await;
}

const KEEPER: &str = "[agent]\nname = \"lead\"\nmode = \"build\"\nsystem_prompt = \"You lead.\"\n[agent.capabilities]\n\
    allowed_tools = [\"reads\", \"writes\", \"executes\", \"Task\", \"agent_create\", \"agent_keep\"]\n\
    authority = [\"reads\", \"notes\", \"writes\", \"executes\"]";

#[test]
fn an_agent_that_a_person_approves_outlives_its_run_and_a_restart_and_stays_dynamic() {
    let (processes, count) = (Processes::new(), Arc::default());
    let helper = || draft("helper", &json!({ "tools": ["reads", "writes"] }));
    processes.run(async |builder| {
        let model = ScriptedModel::new()
            .calls("agent_create", helper())
            .calls("agent_keep", helper())
            .says("It stays.")
            .says("I help.");
        let board = builder.with(agent(KEEPER, model.clone(), &tools(&count))).start().await.unwrap();
        let grant = Authority::of([Effect::Reads, Effect::Notes, Effect::Writes]);
        let run = board.submit(Task::new("x").grant(grant)).await.unwrap();
        let envelope = people::approval(&board).await;
        let Action { action, target, arguments } = &envelope.action;
        assert_eq!((&**action, &**target, &*envelope.policy), ("keep_agent", "helper", "ask each time"));
        assert_eq!(*arguments, json!({ "draft": helper(), "may_cause": ["reads", "notes", "writes"] }));
        assert_eq!(board.agents().kept(), [], "nothing is kept before it is approved");
        board.people().approve(envelope.id(), "ann").await.unwrap();
        assert_eq!(run.result().await.unwrap().output, "It stays.");
        let kept = board.agents().kept();
        assert_eq!((kept.len(), kept[0].name(), kept[0].authority), (1, "helper", grant));
        assert_eq!(finish(&board, Task::new("y").to("helper")).await.output, "I help.");
        let helped = model.requests().pop().unwrap();
        assert!(helped.system.starts_with("You help."), "{}", helped.system);
    });
    processes.run(async |builder| {
        let model = ScriptedModel::new()
            .calls("writes", json!({}))
            .says("I have written.")
            .calls("agent_create", draft("helper", &json!({})))
            .says("The name is in use.");
        let boss = |turn: Turn| async move { Ok(Command::output(turn.delegate("helper", "go").await?)) };
        let lead = agent(KEEPER, model.clone(), &tools(&count));
        let board = builder.with(lead).agent("boss", boss).start().await.unwrap();
        let run = board.submit(Task::new("x").to("boss")).await.unwrap();
        let envelope = people::approval(&board).await;
        assert_eq!((envelope.agent.as_str(), &*envelope.policy), ("lead~helper", "ask each time"), "it stays dynamic");
        board.people().approve(envelope.id(), "ann").await.unwrap();
        assert_eq!(run.result().await.unwrap().output, "I have written.");
        assert_eq!(count.load(Ordering::Relaxed), 1);
        finish(&board, Task::new("x").to("lead")).await;
        assert!(answers(&model)[0].contains("the name is in use"), "{:?}", answers(&model));
        assert!(board.agents().remove_kept("helper").await.unwrap());
        assert!(!board.agents().remove_kept("helper").await.unwrap());
        board.submit(Task::new("x").to("lead~helper")).await.unwrap_err();
        assert_nothing_left(&board, 5).await;
    });
    processes.run(async |builder| {
        let board = builder.with(agent(KEEPER, ScriptedModel::new(), &tools(&count))).start().await.unwrap();
        assert_eq!(board.agents().kept(), [], "one that was removed does not return");
    });
}

/// Makes an agent and asks for it to be kept.
struct Founder;

impl Agent for Founder {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        turn.agents().make("helper", json!("help").into()).await?;
        let kept = turn.agents().keep("helper", json!("help").into()).await?;
        Ok(Command::output(kept.as_str()))
    }

    fn make(&self, draft: &Json) -> Result<AgentSpec, String> {
        let word = draft.as_str().ok_or("a word is needed")?.to_owned();
        Ok(AgentSpec::new("helper", move |_: Turn| std::future::ready(Ok(Command::output(word.clone())))))
    }
}

#[test]
fn after_a_crash_between_the_approval_and_the_keeping_the_agent_is_kept_once_and_nobody_is_asked_again() {
    Seeds::new(60).simulate(async |sim: Sim| {
        let start = || sim.board().with(AgentSpec::new("founder", || Founder).keeps_agents()).start();
        // The write that keeps the agent; the one after it; any of the writes of the journal.
        match sim.below(3) {
            0 => sim.faults().at("storage.put").of(r#"["kept-agent", "founder", "founder~helper"]"#).crash(),
            _ => sim.faults().at("storage.append").crash().on_pass(1 + sim.below(7)),
        };
        let (mut submitted, mut asked, mut is_approved) = (None, None, false);
        let kept_before = sim
            .until_crash(async {
                let board = start().await?;
                let run = board.submit(Task::new("x")).await?;
                submitted = Some(run.id());
                let envelope = people::approval(&board).await;
                asked = Some(envelope.id());
                board.people().approve(envelope.id(), "ann").await.unwrap();
                is_approved = true;
                run.result().await?;
                Ok::<_, callboard::Error>(board.agents().kept())
            })
            .await
            .transpose()?;
        let Some(run) = submitted else { return Ok(()) };
        if kept_before.is_some() {
            sim.crash().await;
        }
        let board = start().await?;
        board.recovered().await;
        let run = board.run(run);
        let mut asked_again = Vec::new();
        let answers = async {
            while let Some(open) = people::next_approval(&board).await {
                // A decision that was stored before the crash counts, whatever the run had journaled of it.
                if board.people().approve(open.id(), "ann").await.is_ok() {
                    asked_again.push(open.id());
                }
            }
        };
        let result = tokio::select! {
            biased;
            result = run.result() => result?,
            () = answers => panic!("the board has ended"),
        };
        assert_eq!(result.output, "founder~helper");
        assert!(!is_approved || asked_again.is_empty(), "nobody is asked about what was approved");
        assert!(asked_again.iter().all(|again| asked.is_none_or(|asked| asked == *again)), "it is the same question");
        let history = run.history().await?;
        let questions = history.iter().filter(|event| matches!(event, RunEvent::ApprovalAsked { .. })).count();
        assert_eq!((questions, people::approvals(&board).await.len()), (1, 0));
        let kept = board.agents().kept();
        assert_eq!((kept.len(), kept[0].name()), (1, "helper"));
        assert_eq!(finish(&board, Task::new("x").to("helper")).await.output, "help");
        sim.assert_nothing_left().await;
        sim.crash().await;
        assert_eq!(start().await?.agents().kept(), kept);
        Ok(())
    });
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_that_a_person_denied_or_that_its_host_may_not_keep() {
    let count = Arc::default();
    let helper = || draft("helper", &json!({ "tools": [] }));
    let model = ScriptedModel::new()
        .calls("agent_keep", helper())
        .calls("agent_create", helper())
        .calls("agent_keep", helper())
        .calls("agent_keep", draft("helper", &json!({ "tools": ["sends"] })))
        .says("done");
    let board = builder().with(agent(KEEPER, model.clone(), &tools(&count))).start().await.unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    let envelope = people::approval(&board).await;
    board.people().deny(envelope.id(), "ann", "not needed").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, "done");
    let reported = answers(&model);
    assert!(
        reported[0].contains("no agent of this name was made in this run"),
        "nobody is asked about it: {reported:?}"
    );
    assert!(reported[2].contains("not needed") && reported[3].contains("sends"), "{reported:?}");
    assert_eq!(board.agents().kept(), []);
    board.submit(Task::new("x").to("helper")).await.unwrap_err();
    board.shutdown().await;

    let keeps = |turn: Turn| async move {
        let error = turn.agents().keep("echo", json!("twice").into()).await.unwrap_err();
        Ok(Command::output(error.to_string()))
    };
    let board = builder().agent("maker", keeps).start().await.unwrap();
    let reported = finish(&board, Task::new("x")).await.output.to_string();
    assert!(reported.contains("AgentSpec::keeps_agents"), "{reported}");
    board.shutdown().await;
}
