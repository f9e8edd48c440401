//! Intents on a board.

use callboard::messages::Effect;
use callboard::prelude::*;
use callboard_knowledge::facts::{FactId, FactState};
use callboard_knowledge::intents::{
    Answer, ConsumerIntentEnvelope, Intent, IntentLoopConfig, IntentLoopResult, IntentResult, LOOP_AGENT, PASS_AGENT,
    UncheckedAnswer, agents, agents_for, result_of, task,
};
use callboard_knowledge::search::Found;
use callboard_knowledge::store::ChangeKind;
use serde_json::{Value, json};

use crate::support::{Base, applied, submission, untrusted};

fn envelope(intent: Intent, payload: Value) -> ConsumerIntentEnvelope {
    ConsumerIntentEnvelope {
        intent,
        payload: payload.into(),
        principal: "ann".to_owned(),
        namespace: "default".to_owned(),
        trace: None,
    }
}

async fn board(base: &Base, others: Vec<AgentSpec>) -> Callboard {
    let builder =
        agents(&base.base).into_iter().chain(others).fold(Callboard::builder(), |builder, agent| builder.with(agent));
    builder.start().await.unwrap()
}

async fn done(board: &Callboard, intent: Intent, payload: Value) -> IntentLoopResult {
    done_with(board, intent, payload, &IntentLoopConfig::default()).await
}

async fn done_with(board: &Callboard, intent: Intent, payload: Value, config: &IntentLoopConfig) -> IntentLoopResult {
    let run = board.submit(task(&envelope(intent, payload), config).unwrap()).await.unwrap();
    result_of(&run.result().await.unwrap()).unwrap()
}

fn submitted(result: IntentLoopResult) -> (FactId, FactState) {
    match result.result {
        IntentResult::Submitted { submitted, .. } => (submitted.fact.id, submitted.fact.state),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_is_submitted_is_found_and_no_longer_once_it_was_invalidated() {
    let base = Base::new();
    let board = board(&base, Vec::new()).await;
    let fact = json!({ "statement": "The gate opens at nine.", "place": "notices.md:3" });
    let (id, state) = submitted(done(&board, Intent::SubmitFact, fact).await);
    assert_eq!(state, FactState::Current);
    let source = base.base.fact(id).await.unwrap().sources.remove(0);
    assert_eq!((&*source.by, source.place.as_deref(), source.turn), ("ann", Some("notices.md:3"), Some(2)));
    let query = json!({ "query": "gate" });
    let found = done(&board, Intent::QueryTruth, query.clone()).await;
    let IntentResult::Found { retrieved, answer: None } = found.result else { panic!("{found:?}") };
    assert_eq!(retrieved.results[0].cite, id.to_string());
    let preview = done(&board, Intent::InvalidateFact, json!({ "fact": id })).await;
    let IntentResult::Preview(preview) = preview.result else { panic!("{preview:?}") };
    assert_eq!(base.base.fact(id).await.unwrap().state, FactState::Current);
    let apply = json!({ "fact": id, "apply": preview.hash, "reason": "it opens at ten" });
    let applied = done(&board, Intent::InvalidateFact, apply).await;
    assert!(matches!(applied.result, IntentResult::Applied(_)), "{applied:?}");
    let found = done(&board, Intent::QueryTruth, query).await;
    let IntentResult::Found { retrieved, .. } = found.result else { panic!("{found:?}") };
    assert_eq!(retrieved.results, []);
    board.shutdown().await;
}

#[tokio::test]
async fn a_query_that_is_the_id_of_a_fact_finds_that_fact_first_whatever_its_state() {
    let base = Base::new();
    let board = board(&base, Vec::new()).await;
    let fact = base.submit("The gate opens at nine.").await.fact;
    base.write("a.md", &[("Ids", &format!("As {} has it, the fact is known: fact, fact, fact.", fact.id))]).await;
    let first = async |query: &str, as_of: Option<&str>| {
        let found = done(&board, Intent::QueryTruth, json!({ "query": query, "as_of": as_of })).await;
        let IntentResult::Found { retrieved, .. } = found.result else { panic!("{found:?}") };
        retrieved
    };
    let (id, long) = (fact.id.to_string(), "1970-01-01T00:00:00.500Z");
    for query in [&*id, &id[..15], &format!(" {id}\n")] {
        let found = first(query, None).await;
        let cites: Vec<&str> = found.results.iter().map(|result| &*result.cite).collect();
        assert!(cites[0] == id && cites.iter().filter(|cite| **cite == id).count() == 1, "{query}: {cites:?}");
        assert!(found.confidence > 0.8 && found.results[0].why.coverage == 1.0, "{query}: {found:?}");
    }
    // The document is found by words of its own.
    assert_eq!(first(&id, None).await.results[1].cite, "a.md:1");
    assert_eq!(first(&format!("is {id} known?"), None).await.results[0].cite, "a.md:1");
    // It was not known then.
    assert!(first(&id, Some(long)).await.results.iter().all(|result| result.cite != id));
    let change = json!({ "fact": id });
    let preview = done(&board, Intent::InvalidateFact, change).await;
    let IntentResult::Preview(preview) = preview.result else { panic!("{preview:?}") };
    done(&board, Intent::InvalidateFact, json!({ "fact": id, "apply": preview.hash })).await;
    let results = first(&id, None).await.results;
    let Found::Fact(invalid) = &results[0].found else { panic!("{results:?}") };
    assert_eq!((invalid.id, invalid.state), (fact.id, FactState::Invalid));
    board.shutdown().await;
}

#[tokio::test]
async fn an_error_of_a_damaged_base_has_its_file_and_what_to_do() {
    let base = Base::new();
    base.submit("The gate is green.").await;
    let damage = rusqlite::Connection::open(base.base.path()).unwrap();
    damage.execute_batch("PRAGMA foreign_keys = OFF; DELETE FROM kb_items").unwrap();
    let board = board(&base, Vec::new()).await;
    let payload = json!({ "statement": "the gate is green" });
    let run = board
        .submit(task(&envelope(Intent::SubmitFact, payload), &IntentLoopConfig::default()).unwrap())
        .await
        .unwrap();
    let failed = run.result().await.unwrap().outcome.to_string();
    let file = base.base.path().display().to_string();
    for wanted in [&*file, "the base is damaged (it lacks a row that another one names)", "callboard kb restore FILE"] {
        assert!(failed.contains(wanted), "{wanted}: {failed}");
    }
    board.shutdown().await;
}

#[tokio::test]
async fn a_weak_query_is_repeated_with_a_wider_search_until_that_adds_nothing() {
    let base = Base::new();
    base.write("a.md", &[("Gate", "The gate is green.")]).await;
    let board = board(&base, Vec::new()).await;
    let run = board
        .submit(task(&envelope(Intent::QueryTruth, json!({ "query": "gate" })), &IntentLoopConfig::default()).unwrap())
        .await
        .unwrap();
    let result = result_of(&run.result().await.unwrap()).unwrap();
    assert_eq!((result.iterations, result.escalated), (2, true));
    let delegated: Vec<String> = run
        .history()
        .await
        .unwrap()
        .iter()
        .filter_map(|event| match event {
            RunEvent::Delegated { order, .. } => Some(order.input["read_facts"]["limit"].to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(delegated, ["10", "40"]);
    board.shutdown().await;
}

#[tokio::test]
async fn a_query_that_was_widened_has_as_many_results_as_were_asked_for() {
    let base = Base::new();
    for number in 0..30 {
        base.write(&format!("{number}.md"), &[("Gate", &format!("The gate {number} is green."))]).await;
    }
    let board = board(&base, Vec::new()).await;
    let config = IntentLoopConfig { confidence_threshold: 1.0, ..IntentLoopConfig::default() };
    let result = done_with(&board, Intent::QueryTruth, json!({ "query": "which gate", "limit": 3 }), &config).await;
    assert!(result.escalated, "{result:?}");
    let IntentResult::Found { retrieved, .. } = result.result else { panic!("{result:?}") };
    let ranked = retrieved.checkpoints.last().unwrap();
    assert_eq!((retrieved.results.len(), &*ranked.step, ranked.found), (3, "ranked", 30));
    board.shutdown().await;
}

#[tokio::test]
async fn what_is_refused_is_a_value_and_no_failure() {
    let base = Base::new();
    let board = board(&base, Vec::new()).await;
    for (intent, payload, code) in [
        (Intent::SubmitFact, json!({ "statement": " . " }), "bad_statement"),
        (Intent::SubmitFact, json!({ "statement": "x", "subject": "y" }), "bad_statement"),
        (Intent::SubmitFact, json!({ "statment": "x" }), "bad_payload"),
        (Intent::QueryTruth, json!([]), "bad_payload"),
        (Intent::QueryTruth, json!({ "query": "x", "limit": 0 }), "bad_payload"),
        (Intent::QueryTruth, json!({ "query": "x", "limit": 641 }), "bad_payload"),
        (Intent::InvalidateFact, json!({ "fact": FactId(uuid::Uuid::nil()) }), "no_such_fact"),
        (Intent::InvalidateFact, json!({ "fact": "7" }), "bad_payload"),
    ] {
        let result = done(&board, intent, payload.clone()).await;
        let IntentResult::Refused(refused) = result.result else { panic!("{payload}: {result:?}") };
        assert_eq!(refused.code, code, "{payload}: {refused:?}");
    }
    assert_eq!(board.dead_letters().list().await.unwrap().len(), 0);
    board.shutdown().await;
}

#[tokio::test]
async fn a_fact_of_an_untrusted_run_is_disputed() {
    let base = Base::new();
    let board = board(&base, Vec::new()).await;
    let envelope = envelope(Intent::SubmitFact, json!({ "statement": "the wall is high" }));
    let task = task(&envelope, &IntentLoopConfig::default()).unwrap().untrusted();
    let result = board.submit(task).await.unwrap().result().await.unwrap();
    assert_eq!(submitted(result_of(&result).unwrap()).1, FactState::Disputed);
    board.shutdown().await;
}

#[tokio::test]
async fn an_answer_may_cite_only_what_was_found() {
    let base = Base::new();
    base.write("gate.md", &[("Gate", "The gate is green."), ("Wall", "The wall beside the gate is red.")]).await;
    let provider = |claims: Value| {
        AgentSpec::new("reader", move || {
            let claims = claims.clone();
            move_answer(claims)
        })
    };
    for (claims, expected) in [
        (json!([{ "text": "It is green.", "cites": ["gate.md:1"] }]), "known"),
        (json!([]), "not_known"),
        (json!([{ "text": "It is blue.", "cites": ["gate.md:9"] }]), "refused"),
        (json!([{ "text": "It is green.", "cites": ["gate.md:1"] }, { "text": "And old.", "cites": [] }]), "refused"),
        (json!("It is green."), "refused"),
    ] {
        let board = board(&base, vec![provider(claims.clone())]).await;
        let config = IntentLoopConfig { provider: Some("reader".to_owned()), ..IntentLoopConfig::default() };
        let result = done_with(&board, Intent::QueryTruth, json!({ "query": "gate" }), &config).await;
        let IntentResult::Found { answer: Some(answer), .. } = result.result else { panic!("{result:?}") };
        let named = match answer {
            Answer::Known { .. } => "known",
            Answer::NotKnown => "not_known",
            Answer::Refused { .. } => "refused",
        };
        assert_eq!(named, expected, "{claims}");
        board.shutdown().await;
    }
}

#[derive(Debug)]
struct Says(Value);

impl Agent for Says {
    async fn turn(&self, _turn: Turn) -> Result<Command, TurnError> {
        Ok(Command::output(json!({ "claims": self.0 })))
    }
}

fn move_answer(claims: Value) -> Says {
    Says(claims)
}

#[tokio::test]
async fn a_contradiction_that_a_model_finds_is_stored_with_its_reason() {
    let base = Base::new();
    let open = base.submit("The gate is always open at night.").await.fact;
    let judge = AgentSpec::new("judge", move || Judges(open.id));
    let board = board(&base, vec![judge]).await;
    let config = IntentLoopConfig { provider: Some("judge".to_owned()), ..IntentLoopConfig::default() };
    let statement = json!({ "statement": "The gate is closed at night." });
    let result = done_with(&board, Intent::SubmitFact, statement, &config).await;
    let IntentResult::Submitted { submitted, similar } = result.result else { panic!("{result:?}") };
    assert_eq!(submitted.fact.state, FactState::Disputed);
    assert_eq!(submitted.contradictions.len(), 1);
    assert_eq!(submitted.contradictions[0].reason, "open and closed");
    assert_eq!(similar[0].fact, open.id);
    board.shutdown().await;
}

#[derive(Debug)]
struct Judges(FactId);

impl Agent for Judges {
    async fn turn(&self, _turn: Turn) -> Result<Command, TurnError> {
        let invented = FactId(uuid::Uuid::nil());
        Ok(Command::output(json!({ "contradicts": [
            { "fact": self.0, "reason": "open and closed" }, { "fact": invented, "reason": "no such fact was shown" },
        ] })))
    }
}

#[tokio::test]
async fn a_verdict_without_its_form_is_refused_and_nothing_is_stored() {
    let base = Base::new();
    let judge = |_: Turn| async { Ok(Command::output("I think so.")) };
    let builder = agents(&base.base).into_iter().fold(Callboard::builder(), |builder, agent| builder.with(agent));
    let board = builder.agent("judge", judge).start().await.unwrap();
    let config = IntentLoopConfig { provider: Some("judge".to_owned()), ..IntentLoopConfig::default() };
    let statement = json!({ "statement": "The gate is closed." });
    let IntentResult::Refused(refused) = done_with(&board, Intent::SubmitFact, statement, &config).await.result else {
        panic!()
    };
    assert!(refused.code == "no_verdict" && refused.message.contains("nothing was changed"), "{refused:?}");
    assert_eq!(base.base.counts().await.unwrap().current, 0);

    // Words that hold need no verdict. Those of untrusted sources alone do, and those of what no longer holds.
    base.base.submit(untrusted(submission("The wall is high."))).await.unwrap();
    let wall = json!({ "statement": "The wall is high." });
    let result = done_with(&board, Intent::SubmitFact, wall, &config).await.result;
    assert!(matches!(result, IntentResult::Refused(_)), "{result:?}");
    let known = base.submit("The gate is closed.").await.fact;
    let again = || json!({ "statement": "the gate is  closed" });
    let result = done_with(&board, Intent::SubmitFact, again(), &config).await.result;
    let IntentResult::Submitted { submitted, .. } = result else { panic!("{result:?}") };
    assert_eq!((submitted.is_new, submitted.fact.id, submitted.fact.sources.len()), (false, known.id, 2));
    applied(&base, ChangeKind::Invalidate, known.id).await;
    let result = done_with(&board, Intent::SubmitFact, again(), &config).await.result;
    assert!(matches!(result, IntentResult::Refused(_)), "{result:?}");
    board.shutdown().await;
}

#[tokio::test]
async fn who_delegates_is_the_source_whatever_the_envelope_claims() {
    let base = Base::new();
    let lead = |turn: Turn| async move {
        let request = json!({ "envelope": {
            "intent": "submit_fact", "payload": { "statement": "the wall is high" }, "principal": "root",
            "namespace": "default",
        } });
        Ok(Command::output(turn.delegate(LOOP_AGENT, "submit").input(request).await?))
    };
    let board = agents(&base.base)
        .into_iter()
        .fold(Callboard::builder().agent("lead", lead), |builder, agent| builder.with(agent))
        .start()
        .await
        .unwrap();
    let result = board.submit(Task::new("go").to("lead")).await.unwrap().result().await.unwrap();
    let (id, _) = submitted(result.output.parse().unwrap());
    assert_eq!(base.base.fact(id).await.unwrap().sources[0].by, "lead");
    board.shutdown().await;
}

#[tokio::test]
async fn an_agent_does_not_accept_facts_and_an_untrusted_run_changes_none() {
    let base = Base::new();
    let wall = base.base.submit(untrusted(submission("the wall is high"))).await.unwrap().fact.id;
    let gate = base.submit("the gate is open").await.fact.id;
    // It delegates the envelope that it was given, or the pass that a loop would have made of it.
    let forger = |turn: Turn| async move {
        let input: Value = turn.input()?;
        let to = if input.get("envelope").is_some() { LOOP_AGENT } else { PASS_AGENT };
        Ok(Command::output(turn.delegate(to, "change").input(input).await?))
    };
    let board = agents(&base.base)
        .into_iter()
        .fold(Callboard::builder().agent("forger", forger), |builder, agent| builder.with(agent))
        .start()
        .await
        .unwrap();
    let asked = async |task: Task| board.submit(task).await.unwrap().result().await.unwrap();
    let code = |result: callboard::messages::RunResult| {
        let result: IntentLoopResult = result.output.parse().unwrap();
        let IntentResult::Refused(refused) = result.result else { panic!("{result:?}") };
        refused.code
    };
    let accept = json!({ "fact": wall, "kind": "accept", "apply": "0" });
    let envelope_of = |payload: &Value| json!({ "envelope": envelope(Intent::InvalidateFact, payload.clone()) });
    let refused = asked(Task::new("go").to("forger").input(envelope_of(&accept))).await;
    assert_eq!(code(refused), "needs_person");
    let pass = json!({ "invalidate": { "namespace": "default", "principal": "ann", "payload": accept } });
    let refused = asked(Task::new("go").to("forger").input(pass)).await;
    assert!(!refused.outcome.is_finished(), "{refused:?}");
    assert!(refused.outcome.to_string().contains("takes its tasks from knowledge alone"), "{}", refused.outcome);
    let request = callboard_knowledge::store::ChangeRequest {
        kind: ChangeKind::Invalidate,
        fact: gate,
        reason: String::new(),
        by: "ann".to_owned(),
        run: None,
    };
    let hash = base.base.preview(&request).await.unwrap().hash;
    let apply = json!({ "fact": gate, "apply": hash });
    let refused = asked(Task::new("go").to("forger").input(envelope_of(&apply)).untrusted()).await;
    assert_eq!(code(refused), "untrusted");
    assert_eq!(base.base.fact(wall).await.unwrap().state, FactState::Disputed);
    assert_eq!(base.base.fact(gate).await.unwrap().state, FactState::Current);
    board.shutdown().await;
}

/// Delegates the intent that it was given.
async fn delegates(turn: Turn) -> Result<Command, TurnError> {
    Ok(Command::output(turn.delegate(LOOP_AGENT, "ask").input(turn.input_json().clone()).await?))
}

#[tokio::test]
async fn an_agent_reaches_facts_of_the_namespaces_that_it_was_granted_alone() {
    let base = Base::new();
    let other = callboard_knowledge::store::Submission {
        namespace: "plans".to_owned(),
        ..crate::support::submission("The gate is secret.")
    };
    base.base.submit(other).await.unwrap();
    base.submit("The gate is green.").await;
    let specs = [
        AgentSpec::new("spy", delegates),
        AgentSpec::new("clerk", delegates).namespaces(["plans"]),
        AgentSpec::new("guest", delegates).namespaces(["default", "memory:clerk"]),
        // It has the clerk, who is granted the facts, ask for it.
        AgentSpec::new("asks_clerk", |turn: Turn| async move {
            Ok(Command::output(turn.delegate("clerk", "ask").input(turn.input_json().clone()).await?))
        }),
    ];
    let of_base = agents_for(&base.base, &specs);
    let board = specs.into_iter().chain(of_base).fold(Callboard::builder(), |board, agent| board.with(agent));
    let board = board.start().await.unwrap();
    let asked = async |agent: &str, namespace: &str| {
        let query = envelope(Intent::QueryTruth, json!({ "query": "gate" }));
        let query = json!({ "envelope": ConsumerIntentEnvelope { namespace: namespace.to_owned(), ..query } });
        let result = board.submit(Task::new("ask").to(agent).input(query)).await.unwrap().result().await.unwrap();
        let result: IntentLoopResult = result.output.parse().unwrap();
        match result.result {
            IntentResult::Found { retrieved, .. } => retrieved.results.len().to_string(),
            IntentResult::Refused(refused) => refused.code,
            other => panic!("{other:?}"),
        }
    };
    for (agent, namespace, expected) in [
        ("spy", "default", "1"),
        ("spy", "plans", "not_granted"),
        ("spy", "", "not_granted"),
        ("spy", "Default", "not_granted"),
        ("spy", "default\u{200b}", "not_granted"),
        ("spy", "memory:spy", "not_granted"),
        ("clerk", "plans", "1"),
        ("clerk", "default", "1"),
        ("guest", "plans", "not_granted"),
        ("asks_clerk", "plans", "1"),
    ] {
        assert_eq!(asked(agent, namespace).await, expected, "{agent} in {namespace:?}");
    }
    board.shutdown().await;
}

#[tokio::test]
async fn an_intent_that_is_handed_over_has_no_asker_and_is_refused() {
    let base = Base::new();
    let wall = base.base.submit(untrusted(submission("the wall is high"))).await.unwrap().fact.id;
    let request = callboard_knowledge::store::ChangeRequest {
        kind: ChangeKind::Accept,
        fact: wall,
        reason: String::new(),
        by: "ann".to_owned(),
        run: None,
    };
    let hash = base.base.preview(&request).await.unwrap().hash;
    let accept = json!({ "fact": wall, "kind": "accept", "apply": hash });
    let accept = json!({ "envelope": envelope(Intent::InvalidateFact, accept) });
    let hands_over = |turn: Turn| async move { Ok(Command::output(turn.input_json().clone()).goto(LOOP_AGENT)) };
    let has_handed = |turn: Turn| async move {
        Ok(Command::output(turn.delegate("forger", "accept").input(turn.input_json().clone()).await?))
    };
    let writes = |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) };
    let others = vec![
        AgentSpec::new("forger", hands_over),
        AgentSpec::new("lead", has_handed),
        AgentSpec::new("writer", writes),
    ];
    let board = board(&base, others).await;
    for task in [
        Task::new("go").to("forger").input(accept.clone()),
        Task::new("go").to("lead").input(accept.clone()),
        Workflow::from_line("ask", "writer -> knowledge").unwrap().task(accept.clone()),
        Workflow::from_line("ask", "knowledge").unwrap().task(accept.clone()),
    ] {
        let result = board.submit(task).await.unwrap().result().await.unwrap();
        assert!(result.output.to_string().contains("takes delegations and tasks, no handoffs"), "{result:?}");
        assert_eq!(base.base.fact(wall).await.unwrap().state, FactState::Disputed);
    }
    board.shutdown().await;
}

#[tokio::test]
async fn the_run_of_an_intent_is_of_its_trace() {
    let base = Base::new();
    let board = board(&base, Vec::new()).await;
    let query = envelope(Intent::QueryTruth, json!({ "query": "gate" }));
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    for (trace, expected) in [(Some(parent), Some(parent)), (Some("no trace"), None), (None, None)] {
        let query = ConsumerIntentEnvelope { trace: trace.map(str::to_owned), ..query.clone() };
        let run = board.submit(task(&query, &IntentLoopConfig::default()).unwrap()).await.unwrap();
        result_of(&run.result().await.unwrap()).unwrap();
        let read = run.read().await.unwrap();
        let kept = read.submission().task.trace_parent.as_ref().map(ToString::to_string);
        assert_eq!(kept.as_deref(), expected);
        let of_pass = read.submission().trace_parent(2);
        assert_eq!(of_pass.to_string().contains("0af7651916cd43dd8448eb211c80319c"), expected.is_some(), "{of_pass}");
    }
    board.shutdown().await;
}

#[tokio::test]
async fn what_a_run_may_cause_bounds_what_it_does_to_facts() {
    let base = Base::new();
    let gate = base.submit("the gate is open").await.fact.id;
    let board = board(&base, Vec::new()).await;
    let fact = json!({ "statement": "the wall is high" });
    let replaces = json!({ "statement": "the wall is low", "on_contradiction": "supersede" });
    let apply = json!({ "fact": gate, "apply": "0" });
    for (intent, payload, granted, is_done) in [
        (Intent::SubmitFact, &fact, [Effect::Reads, Effect::Reads], false),
        (Intent::SubmitFact, &fact, [Effect::Reads, Effect::Notes], true),
        (Intent::SubmitFact, &replaces, [Effect::Reads, Effect::Notes], false),
        (Intent::SubmitFact, &replaces, [Effect::Reads, Effect::Writes], true),
        (Intent::InvalidateFact, &apply, [Effect::Reads, Effect::Notes], false),
    ] {
        let task = task(&envelope(intent, payload.clone()), &IntentLoopConfig::default()).unwrap();
        let task = task.grant(callboard::messages::Authority::of(granted));
        let result = board.submit(task).await.unwrap().result().await.unwrap();
        let refused = match result_of(&result).unwrap().result {
            IntentResult::Refused(refused) => refused.code == "authority",
            _ => false,
        };
        assert_eq!(!refused, is_done, "{payload} with {granted:?}");
    }
    board.shutdown().await;
}

#[test]
fn an_answer_without_claims_is_not_known() {
    assert_eq!(UncheckedAnswer::default().checked(&Default::default()), Answer::NotKnown);
    assert_ne!(LOOP_AGENT, PASS_AGENT);
}
