//! Ready-made patterns of agents that work together: the inputs, the end, and the result.

use std::time::Duration;

use crate::common::{builder, models};
use crate::runs::{error, run_plan};
use callboard::messages::{Message, Reducer, RunResult};
use callboard::prelude::*;
use callboard::testing::Script;
use callboard::workflow::patterns::{Participant, Peers, Pipeline, Review};
use callboard::workflow::{Node, Workflow};
use callboard_agents::testing::ScriptedModel;
use callboard_agents::{Model, ModelErrorKind, Tools};
use serde_json::{Value, json};

/// An agent from a file with only a name.
fn thinker(name: &str, model: impl Model) -> AgentSpec {
    let text = format!("[agent]\nname = \"{name}\"\nsystem_prompt = \"You are {{{{ agent.name }}}}.\"");
    models::agent(&text, model, &Tools::new())
}

/// What a model was given to work on, request by request.
fn given(model: &ScriptedModel) -> Vec<Value> {
    let first = |message: &Message| match message {
        Message::User { text } => serde_json::from_str(text).unwrap_or_else(|_| Value::from(&**text)),
        other => panic!("{other:?}"),
    };
    model.requests().iter().map(|request| first(&request.messages[0])).collect()
}

/// What a scripted agent was given, turn by turn.
fn worked_on(script: &Script) -> Vec<Value> {
    script.turns().into_iter().map(|turn| turn.input.value().clone()).collect()
}

fn mark(mark: &'static str) -> impl Fn(Turn) -> futures::future::Ready<Result<Command, TurnError>> + Clone {
    move |turn: Turn| {
        let given = turn.input_json().as_str().map_or_else(|| turn.input_json().to_string(), str::to_owned);
        futures::future::ready(Ok(Command::output(format!("{given}{mark}"))))
    }
}

#[tokio::test(start_paused = true)]
async fn in_a_pipeline_each_gets_what_the_one_before_made() {
    let editor = ScriptedModel::new().says("a better draft");
    let pipeline = Pipeline::new("book").all(["write", "edit", "print"]).build().unwrap();
    let board = builder().agent("write", mark(", written")).with(thinker("edit", editor.clone()));
    let result = run_plan(board.agent("print", mark(", printed")), &pipeline, "a draft").await;
    assert_eq!(given(&editor), [json!("a draft, written")]);
    assert_eq!((result.output.as_str(), result.metrics.turns), (Some("a better draft, printed"), 3));
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_ends_a_pipeline_by_its_name_and_no_agent_after_it_works() {
    let pipeline = Pipeline::new("book").all(["write", "edit-text", "print"]).build().unwrap();
    let (edit, print) = (Script::new().fail_for_good("no ink"), Script::new().reply("printed"));
    let board = builder().agent("write", mark(".")).agent("edit-text", edit).agent("print", print.clone());
    let result = run_plan(board, &pipeline, "x").await;
    assert_eq!(error(&result), "node edit_text: terminal error: no ink");
    assert!(print.turns().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_feedback_of_a_review_reaches_the_executor_until_the_work_is_accepted() {
    let planner = ScriptedModel::new().says("1. greet 2. ask");
    let writer = ScriptedModel::new().says("Hey!").says("Dear Ada, have you a minute?");
    let critic = ScriptedModel::new().says("It asks nothing.\n\n**Rejected.**").says("Now it does.\nVerdict: accepted");
    let review = Review::new("letter", "planner", "writer", "critic").build().unwrap();
    let board = builder()
        .with(thinker("planner", planner.clone()))
        .with(thinker("writer", writer.clone()))
        .with(thinker("critic", critic.clone()));
    let result = run_plan(board, &review, "a letter to Ada").await;
    let expected = json!({
        "accepted": true, "rounds": 2, "work": "Dear Ada, have you a minute?", "feedback": "Now it does.",
        "plan": "1. greet 2. ask",
    });
    assert_eq!(result.output, expected);
    assert_eq!(given(&planner), [json!("a letter to Ada")]);
    let (plan, task) = ("1. greet 2. ask", "a letter to Ada");
    let first = json!({ "task": task, "plan": plan, "round": 1, "rounds": 3, "work": null, "feedback": null });
    let second = json!({
        "task": task, "plan": plan, "round": 2, "rounds": 3, "work": "Hey!", "feedback": "It asks nothing.",
    });
    assert_eq!(given(&writer), [first, second]);
    let judged = given(&critic);
    assert_eq!(
        (&judged[0]["work"], &judged[0]["feedback"], &judged[0]["round"]),
        (&json!("Hey!"), &Value::Null, &json!(1))
    );
    assert_eq!(judged[1]["feedback"], "It asks nothing.");
    assert!(judged[0]["answer_with"].as_str().unwrap().contains("ACCEPTED or REJECTED"), "{}", judged[0]);
}

#[tokio::test(start_paused = true)]
async fn the_feedback_of_a_review_that_replans_reaches_the_planner_and_the_executor_works_by_the_new_plan() {
    let planner = ScriptedModel::new().says("1. ask").says("1. greet 2. ask");
    let writer = ScriptedModel::new().says("Have you a minute?").says("Dear Ada, have you a minute?");
    let critic = ScriptedModel::new().says("Greet her.\nREJECTED").says("Fine.\nACCEPTED");
    let review = Review::new("letter", "planner", "writer", "critic").replans().build().unwrap();
    let board = builder()
        .with(thinker("planner", planner.clone()))
        .with(thinker("writer", writer.clone()))
        .with(thinker("critic", critic.clone()));
    let task = json!({ "to": "Ada" });
    let result = run_plan(board, &review, task.clone()).await;
    let expected = json!({
        "accepted": true, "rounds": 2, "work": "Dear Ada, have you a minute?", "feedback": "Fine.",
        "plan": "1. greet 2. ask",
    });
    assert_eq!(result.output, expected);
    let again = json!({
        "task": task, "plan": "1. ask", "work": "Have you a minute?", "feedback": "Greet her.", "round": 2, "rounds": 3,
    });
    assert_eq!(given(&planner), [task, again]);
    assert_eq!(given(&writer)[1]["plan"], "1. greet 2. ask");
    assert_eq!((&given(&critic)[0]["plan"], &given(&critic)[1]["plan"]), (&json!("1. ask"), &json!("1. greet 2. ask")));
}

#[tokio::test(start_paused = true)]
async fn a_review_that_is_never_accepted_ends_with_the_last_work_and_the_last_feedback() {
    let script =
        |answers: [Value; 2]| Script::new().on_turn(1).reply(answers[0].clone()).on_turn(2).reply(answers[1].clone());
    let writer = script([json!({ "pages": 1 }), json!({ "pages": 2 })]);
    let critic = script([json!({ "accepted": false, "feedback": ["longer"] }), json!({ "accepted": false })]);
    let review = Review::new("letter", "planner", "writer", "critic").rounds(2).build().unwrap();
    let board = builder().agent("planner", mark("!")).agent("writer", writer.clone()).agent("critic", critic);
    let result = run_plan(board, &review, "x").await;
    assert!(result.outcome.is_finished());
    let expected = json!({ "accepted": false, "rounds": 2, "work": { "pages": 2 }, "feedback": null, "plan": "x!" });
    assert_eq!(result.output, expected);
    assert_eq!(worked_on(&writer)[1]["feedback"], json!(["longer"]));
}

#[tokio::test(start_paused = true)]
async fn a_reviewer_without_a_verdict_is_asked_once_more_and_then_has_not_accepted() {
    let critic = ScriptedModel::new().says("Looks great, ship it!").says("Ship it.\nACCEPTED").says("");
    let review = Review::new("letter", "planner", "writer", "critic").build().unwrap();
    let board = || builder().agent("planner", mark("")).agent("writer", mark(""));
    let result = run_plan(board().with(thinker("critic", critic.clone())), &review, "x").await;
    assert_eq!((&result.output["accepted"], &result.output["rounds"]), (&json!(true), &json!(1)));
    let asked = given(&critic);
    assert_eq!((&asked[0]["problem"], &asked[0]["last_answer"]), (&Value::Null, &Value::Null));
    assert_eq!(asked[1]["last_answer"], "Looks great, ship it!");
    assert!(asked[1]["problem"].as_str().unwrap().contains("had no verdict"), "{}", asked[1]);

    for answer in [
        json!("NOT ACCEPTED"),
        json!("I see no reason to say this: accepted"),
        json!("ACCEPTED, I think"),
        json!(""),
        json!({ "accepted": "yes" }),
        json!(null),
        json!([]),
    ] {
        let critic = Script::new().reply(answer.clone());
        let review = Review::new("letter", "planner", "writer", "critic").rounds(1).build().unwrap();
        let result = run_plan(board().agent("critic", critic.clone()), &review, "x").await;
        assert_eq!((&result.output["accepted"], &result.output["feedback"]), (&json!(false), &answer), "{answer}");
        assert_eq!(critic.turns().len(), 2, "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_of_a_review_that_fails_ends_it_by_its_node() {
    let review = Review::new("letter", "planner", "writer", "critic").build().unwrap();
    for (broken, node) in [("planner", "plan"), ("writer", "work#1/execute"), ("critic", "work#1/judge#1/review")] {
        let agent =
            |name: &str| if name == broken { Script::new().fail_for_good("ill") } else { Script::new().reply("x") };
        let board =
            ["planner", "writer", "critic"].into_iter().fold(builder(), |board, name| board.agent(name, agent(name)));
        let result = run_plan(board, &review, "x").await;
        assert_eq!(error(&result), format!("node {node}: terminal error: ill"));
    }
}

#[tokio::test(start_paused = true)]
async fn peers_read_what_all_wrote_in_the_rounds_before_however_quick_each_is() {
    for slow in ["ann", "bob"] {
        let model =
            |name: &str| ScriptedModel::new().says(&format!("{name} begins")).says(&format!("{name} agrees\ndone."));
        let (ann, bob) = (model("ann"), model("bob"));
        let panel = Peers::new("panel").all(["ann", "bob", "echo"]).build().unwrap();
        let wait = Duration::from_secs(if slow == "ann" { 5 } else { 1 });
        let board = builder().with(thinker("ann", ann.clone())).with(thinker("bob", bob.clone())).agent(
            "echo",
            move |turn: Turn| async move {
                tokio::time::sleep(wait).await;
                let heard = turn.input_json()["said"].as_array().map_or(0, Vec::len);
                Ok(Command::output(json!({ "done": heard > 0, "text": { "heard": heard } })))
            },
        );
        let result = run_plan(board, &panel, json!({ "about": "tides" })).await;
        let said = |by: &str, round: u32, text: Value| json!({ "by": by, "round": round, "text": text });
        let first = [
            said("ann", 1, json!("ann begins")),
            said("bob", 1, json!("bob begins")),
            said("echo", 1, json!({ "heard": 0 })),
        ];
        let second = [
            said("ann", 2, json!("ann agrees")),
            said("bob", 2, json!("bob agrees")),
            said("echo", 2, json!({ "heard": 3 })),
        ];
        let said_in_all = [&first[..], &second[..]].concat();
        assert_eq!(result.output, json!({ "done": true, "rounds": 2, "said": said_in_all }));
        assert_eq!(result.state["panel"], result.output["said"]);
        let asked = given(&bob);
        assert_eq!((&asked[0]["said"], &asked[1]["said"]), (&json!([]), &json!(first)));
        assert_eq!((&asked[0]["task"], &asked[0]["you"]), (&json!({ "about": "tides" }), &json!("bob")));
        assert_eq!(
            (&asked[1]["others"], &asked[1]["round"], &asked[1]["rounds"]),
            (&json!(["ann", "echo"]), &json!(2), &json!(3))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn peers_who_are_not_all_done_end_with_the_last_round() {
    let done = Script::new().reply("Nothing to add.\n**DONE**");
    let open = Script::new().reply("I am not done, and I say DONE in the middle of a line only");
    let panel = Peers::new("panel").with("done").with("open").rounds(4).build().unwrap();
    let result = run_plan(builder().agent("done", done.clone()).agent("open", open.clone()), &panel, "x").await;
    assert_eq!((&result.output["done"], &result.output["rounds"]), (&json!(false), &json!(4)));
    assert_eq!((done.turns().len(), open.turns().len(), result.output["said"].as_array().unwrap().len()), (4, 4, 8));
    assert_eq!(result.output["said"][0]["text"], "Nothing to add.");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_fails_ends_the_discussion_by_its_name() {
    let panel = Peers::new("panel").with("well").with("ill").build().unwrap();
    let model = ScriptedModel::new().fails(ModelErrorKind::Rejected, "no such model");
    let result = run_plan(builder().agent("well", mark("")).with(thinker("ill", model)), &panel, "x").await;
    assert!(error(&result).starts_with("node discuss#1/ill/ill_says: "), "{}", error(&result));
    assert!(error(&result).ends_with("no such model"), "{}", error(&result));
}

#[tokio::test(start_paused = true)]
async fn a_discussion_reads_nothing_of_an_earlier_one_and_namesakes_are_distinguished() {
    let panel = Peers::new("panel").with("one").with("one").rounds(1).build().unwrap();
    let twice = Pipeline::new("twice").then(&panel).then(&panel).build().unwrap();
    let one = Script::new().reply("mine");
    let result = run_plan(builder().agent("one", one.clone()), &twice, "x").await;
    assert!(worked_on(&one).iter().all(|given| given["said"] == json!([])), "{:?}", worked_on(&one));
    let by: Vec<&Value> = result.output["said"].as_array().unwrap().iter().map(|said| &said["by"]).collect();
    assert_eq!(by, ["one", "one_2"]);
    assert_eq!(result.state["panel"].as_array().unwrap().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_pipeline_may_have_a_review_in_its_middle_whose_executor_is_a_panel() {
    let panel = Peers::new("panel").with("ann").with("bob").rounds(1).build().unwrap();
    let review = Review::new("draft", "planner", &panel, "critic").rounds(2).build().unwrap();
    let book = Pipeline::new("book").then("researcher").then(&review).then("printer").build().unwrap();
    let critic = Script::new().on_turn(1).reply("More.\nREJECTED").otherwise().reply("ACCEPTED");
    let (ann, printer) = (ScriptedModel::new().says("tides").says("more tides"), Script::new().reply("printed"));
    let board = builder()
        .agent("researcher", mark(", looked up"))
        .agent("planner", mark(", planned"))
        .with(thinker("ann", ann.clone()))
        .agent("bob", Script::new().reply("waves"))
        .agent("critic", critic)
        .agent("printer", printer.clone());
    let result = run_plan(board, &book, "the sea").await;
    assert_eq!(result.output, "printed");
    let printed = &worked_on(&printer)[0];
    assert_eq!((&printed["accepted"], &printed["rounds"]), (&json!(true), &json!(2)));
    assert_eq!(printed["plan"], "the sea, looked up, planned");
    assert_eq!(printed["work"]["said"][0]["text"], "more tides");
    let second = &given(&ann)[1];
    assert_eq!((&second["task"]["feedback"], &second["said"]), (&json!("More."), &json!([])));
}

#[test]
fn a_pattern_that_cannot_be_built_reports_what_is_missing() {
    let reported = |built: Result<Workflow, callboard::workflow::Defects>| built.unwrap_err().to_string();
    assert!(reported(Pipeline::new("p").build()).contains("a pipeline without participants"));
    assert!(reported(Peers::new("p").with("a").build()).contains("peers are at least two"));
    assert!(reported(Peers::new("p").all(["a", "b"]).rounds(0).build()).contains("peers without rounds"));
    assert!(reported(Peers::new("p").all(["a", "b"]).channel("a b").build()).contains("the channel \"a b\""));
    assert!(reported(Review::new("p", "a", "b", "c").rounds(0).build()).contains("a review of no rounds"));
    let [one, other] = ["a", "b"].map(|agent| Pipeline::new("same").then(agent).build().unwrap());
    assert!(
        reported(Pipeline::new("p").then(&one).then(Participant::workflow(&other)).build())
            .contains("are named \"same\"")
    );
    Pipeline::new("p").then(&one).then(&one).build().unwrap();
}

#[tokio::test(start_paused = true)]
async fn in_every_way_agents_write_to_the_channels_that_they_have_alone() {
    let writes = |turn: Turn| {
        let command = Command::output("x\nACCEPTED").with("messages", turn.agent().as_str());
        futures::future::ready(Ok::<_, TurnError>(command.with("artifacts", json!({ turn.agent().as_str(): 1 }))))
    };
    let with_agents = || ["ann", "bob", "cy"].into_iter().fold(builder(), |board, name| board.agent(name, writes));
    let peers = Peers::new("panel").with("ann").with("bob").rounds(1).build().unwrap();
    let review = Review::new("letter", "ann", "bob", "cy").build().unwrap();
    let pipeline = Pipeline::new("book").all(["ann", "bob"]).then(&review).build().unwrap();
    let written = |result: &RunResult| {
        assert_eq!(result.outcome, Outcome::Finished);
        assert_eq!(result.state["artifacts"]["bob"], 1);
        result.state["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|by| by.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(written(&run_plan(with_agents(), &pipeline, "x").await), ["ann", "bob", "ann", "bob", "cy"]);
    assert_eq!(written(&run_plan(with_agents(), &review, "x").await), ["ann", "bob", "cy"]);
    assert_eq!(written(&run_plan(with_agents(), &peers, "x").await), ["ann", "bob"]);
}

#[test]
fn a_channel_that_a_member_or_the_way_declares_stays_as_it_is() {
    let counted = Workflow::builder("counted").channel("messages", Reducer::Sum).node(Node::agent("one", "ann"));
    let pipeline = Pipeline::new("book").then(counted.build().unwrap()).build().unwrap();
    assert_eq!(pipeline.plan().schema.reducer("messages"), Ok(&Reducer::Sum));
    let panel = Peers::new("panel").with("ann").with("bob").channel("context").build().unwrap();
    assert_eq!(panel.plan().schema.reducer("context"), Ok(&Reducer::Append));
}
