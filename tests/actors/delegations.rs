//! Delegations: a turn gives a task away and waits, holding neither slot nor permit.

use std::time::Duration;

use callboard::actors::{DelegationError, DelegationStatus, InboxMessage};
use callboard::env::Env;
use callboard::messages::{AgentName, ContextStrategy, LateAnswer, Refusal, RequestId, RunEvent, Status};
use callboard::prelude::*;
use serde_json::json;

use crate::common::{World, people};

#[tokio::test(start_paused = true)]
async fn a_chain_of_any_depth_finishes_with_a_pool_of_one() {
    let deeper = |turn: Turn| async move {
        let depth: u32 = turn.input()?;
        if depth == 0 {
            return Ok(Command::output("bottom"));
        }
        let answer = turn.delegate(&format!("a{}", depth - 1), "go deeper").input(depth - 1).await?;
        Ok(Command { output: Some(answer), ..Command::default() })
    };
    let names: Vec<String> = (0..=8).map(|n| format!("a{n}")).collect();
    let board = names.iter().fold(Callboard::builder().pool(1), |builder, name| builder.agent(name, deeper));
    let board = board.start().await.unwrap();
    let limits = Limits { handoffs: 100, agents: 100, depth: 100, ..Limits::default() };
    let run = board.submit(Task::new("dig").to("a8").input(8).limits(limits)).await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!("bottom").into()));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn turns_for_programs_with_no_request_between_them_have_requests_of_their_own_also_when_the_turn_is_repeated() {
    let lead = |turn: Turn| async move {
        let (one, other) = (turn.for_programs(), turn.for_programs());
        let delegate = async |programs: &Turn, body: &str| {
            let delegation = programs.delegate("worker", body);
            Ok::<_, TurnError>((delegation.request_id(), delegation.await?))
        };
        let answers = if turn.attempt() == 1 {
            let first = delegate(&one, "one").await?;
            [first, delegate(&other, "other").await?]
        } else {
            // The programs are not as fast as they were.
            let second = delegate(&other, "other").await?;
            [delegate(&one, "one").await?, second]
        };
        assert_ne!(answers[0].0, answers[1].0);
        if turn.attempt() == 1 {
            return Err(TurnError::transient("again"));
        }
        Ok(Command::output(answers.map(|(_, answer)| answer).into_iter().collect::<Json>()))
    };
    let board = Callboard::builder()
        .agent("lead", lead)
        .agent("worker", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    // A turn that asks for something else when it is repeated waits for a person.
    let result =
        tokio::time::timeout(Duration::from_secs(60), run.result()).await.expect("the run does not end").unwrap();
    assert_eq!((&result.outcome, &result.output), (&Outcome::Finished, &json!(["one", "other"]).into()));
    let delegations =
        run.history().await.unwrap().into_iter().filter(|event| matches!(event, RunEvent::Delegated { .. }));
    assert_eq!(delegations.count(), 2);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_awaited_delegation_is_found_by_its_request_id() {
    let (asked, mut ids) = tokio::sync::mpsc::unbounded_channel();
    let lead = move |turn: Turn| {
        let asked = asked.clone();
        async move {
            let delegations = ["first", "second"].map(|body| turn.delegate("worker", body).tokens(10));
            for delegation in &delegations {
                asked.send(delegation.request_id()).unwrap();
            }
            if turn.attempt() == 1 {
                return Err(TurnError::transient("again"));
            }
            Ok(Command::output(futures::future::try_join_all(delegations).await?.into_iter().collect::<Json>()))
        }
    };
    let board = Callboard::builder()
        .agent("lead", lead)
        .agent("worker", |turn: Turn| async move {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok(Command::output(turn.input_json().clone()))
        })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    let first = [ids.recv().await.unwrap(), ids.recv().await.unwrap()];
    assert_eq!(
        [ids.recv().await.unwrap(), ids.recv().await.unwrap()],
        first,
        "a repeated attempt asks under the same ids"
    );
    tokio::time::sleep(Duration::from_secs(5)).await;
    for id in first {
        assert_eq!(board.status(id).await.unwrap().unwrap().status, Status::Ack, "it is worked on");
    }
    assert_eq!(run.result().await.unwrap().output, json!(["first", "second"]));
    for id in first {
        assert_eq!(board.status(id).await.unwrap().unwrap().status, Status::Complete);
    }
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn delegations_made_together_run_side_by_side() {
    let env = Env::repeatable(1);
    let board = Callboard::builder()
        .env(env.clone())
        .agent("lead", |turn: Turn| async move {
            let asked = ["x", "y", "z"].map(|part| turn.delegate("worker", part));
            let answers = futures::future::join_all(asked).await;
            let answers: Result<Vec<Json>, _> = answers.into_iter().collect();
            Ok(Command::output(json!(answers?)))
        })
        .agent("worker", |turn: Turn| async move {
            turn.notice("on it");
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok(Command::output(turn.task().body.len()).with("messages", turn.input::<String>()?))
        })
        .pool(3)
        .start()
        .await
        .unwrap();
    let started = env.now().monotonic;
    let run = board.submit(Task::new("abc").to("lead")).await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!(result.output, json!([3, 3, 3]));
    assert_eq!(result.state, json!({ "messages": ["x", "y", "z"] }));
    assert_eq!((env.now().monotonic - started).as_secs(), 10);
    let statuses: Vec<Status> = board
        .agents()
        .inbox("lead")
        .await
        .unwrap()
        .into_iter()
        .filter_map(|message| match message {
            callboard::actors::InboxMessage::Status { status, .. } => Some(status),
            callboard::actors::InboxMessage::Request { .. } => None,
        })
        .collect();
    let of_each = [Status::Ack, Status::Notice, Status::Complete];
    assert_eq!(statuses, of_each.iter().flat_map(|status| [*status; 3]).collect::<Vec<_>>());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_delegation_back_into_the_chain_is_refused_by_name() {
    let board = Callboard::builder()
        .agent("lead", |turn: Turn| async move { Ok(Command::output(turn.delegate("coder", "code").await?)) })
        .agent("coder", |turn: Turn| async move { Ok(Command::output(turn.delegate("lead", "lead").await?)) })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    let Outcome::Failed { error } = run.result().await.unwrap().outcome else { panic!("not failed") };
    assert!(error.contains("lead is already in the delegation chain lead → coder"), "{error}");
    let direct = board.submit(Task::new("x").to("coder")).await.unwrap();
    let Outcome::Failed { error } = direct.result().await.unwrap().outcome else { panic!("not failed") };
    assert!(error.contains("coder is already in the delegation chain coder → lead"), "{error}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_delegation_past_the_depth_is_refused_by_name_and_its_turn_continues() {
    let deeper = |turn: Turn| async move {
        let depth: u32 = turn.input()?;
        let answer = turn.delegate(&format!("a{}", depth + 1), "go deeper").input(depth + 1).await;
        Ok(Command::output(match answer {
            Ok(answer) => answer,
            Err(DelegationError::Refused(refusal @ Refusal::MaxDepth { max: 3, .. })) => {
                json!([depth, refusal.to_string()]).into()
            }
            Err(error) => panic!("{error}"),
        }))
    };
    let board = (0..8).fold(Callboard::builder(), |builder, n| builder.agent(&format!("a{n}"), deeper));
    let board = board.start().await.unwrap();
    let limits = Limits { handoffs: 100, agents: 100, ..Limits::default() };
    let result = board.submit(Task::new("dig").to("a0").input(0).limits(limits)).await.unwrap().result().await.unwrap();
    assert_eq!(result.outcome, Outcome::Finished);
    // Three steps, four agents.
    assert_eq!(result.output[0], json!(3));
    let reported = result.output[1].as_str().unwrap();
    assert!(reported.contains("a0 → a1 → a2 → a3"), "{reported}");
    assert_eq!(result.metrics.agents, 4);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_passes_a_refusal_on_ends_its_branch_refused_by_name() {
    let board = Callboard::builder()
        .agent("lead", |turn: Turn| async move { Ok(Command::output(turn.delegate("lead", "to myself").await?)) })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    let outcome = run.result().await.unwrap().outcome;
    assert!(
        matches!(&outcome, Outcome::Refused(Refusal::AlreadyInChain { agent, .. }) if agent.as_str() == "lead"),
        "{outcome}"
    );
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_delegated_turn_sees_what_its_parent_lets_it_see_and_the_answers_that_are_there() {
    let sees = |turn: &Turn| {
        let mut state = turn.state().to_json().value().clone();
        // The runtime's own, which no strategy cuts.
        let own = state.as_object_mut().map(|state| (state.remove("metrics"), state.remove("context"))).unwrap();
        assert!(own.0.is_some() && own.1.is_some_and(|context| context["previous_agent"].is_string()));
        state
    };
    let board = Callboard::builder()
        .agent("first", |_: Turn| async {
            Ok(Command::update("plan", "p").with("notes", "n").with("messages", "begun").goto("lead"))
        })
        .agent("lead", |turn: Turn| async move {
            let ask = |body: &str, strategy| turn.delegate("looker", body).sees(strategy);
            let nothing = ask("nothing", ContextStrategy::None).await?;
            let asked = [
                ask("some", ContextStrategy::Channels(vec!["plan".into(), "absent".into()])),
                ask("all", ContextStrategy::Full),
            ];
            let [some, all] = <[_; 2]>::try_from(futures::future::join_all(asked).await).unwrap_or_else(|_| panic!());
            Ok(Command::output(json!([nothing, some?, all?])))
        })
        .agent("looker", move |turn: Turn| async move {
            let heard: Vec<String> = turn.earlier_answers().iter().map(|answer| answer.body.to_string()).collect();
            // What it hands on to sees the same.
            let output = json!({ "sees": sees(&turn), "heard": heard });
            Ok(Command::output(output).with("messages", turn.input::<String>()?).goto("second"))
        })
        .agent("second", move |turn: Turn| async move {
            let heard = turn.earlier_answers().len();
            Ok(Command::output(json!({ "first": turn.input_json(), "then": sees(&turn), "heard": heard })))
        })
        .start()
        .await
        .unwrap();
    let limits = Limits { handoffs: 10, ..Limits::default() };
    let run = board.submit(Task::new("x").to("first").limits(limits)).await.unwrap();
    let result = run.result().await.unwrap();
    let state = json!({ "plan": "p", "notes": "n", "messages": ["begun"] });
    assert_eq!(result.output[0]["first"], json!({ "sees": {}, "heard": [] }));
    assert_eq!(result.output[0]["then"], json!({ "messages": ["nothing"] }));
    // Asked side by side: neither hears of the other.
    assert_eq!(result.output[1]["first"], json!({ "sees": { "plan": "p" }, "heard": ["nothing"] }));
    assert_eq!(result.output[2]["first"], json!({ "sees": state, "heard": ["nothing"] }));
    assert_eq!((&result.output[1]["heard"], &result.output[2]["heard"]), (&json!(1), &json!(1)));
    // What the children saw is not written again.
    assert_eq!(result.state["messages"], json!(["begun", "nothing", "some", "all"]));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn waiting_for_each_others_slots_across_runs_is_refused_before_it_hangs() {
    let barrier = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    let give = |to: &'static str, barrier: std::sync::Arc<tokio::sync::Barrier>| {
        move |turn: Turn| {
            let barrier = barrier.clone();
            async move {
                if turn.chain().is_empty() {
                    barrier.wait().await;
                    return match turn.delegate(to, "go on").await {
                        Ok(answer) => Ok(Command::output(answer)),
                        Err(error) => Ok(Command::output(error.to_string())),
                    };
                }
                Ok(Command::output("fine"))
            }
        }
    };
    let board = Callboard::builder()
        .with(AgentSpec::new("a", give("b", barrier.clone())).non_reentrant())
        .with(AgentSpec::new("b", give("a", barrier)).non_reentrant())
        .start()
        .await
        .unwrap();
    let first = board.submit(Task::new("first").to("a")).await.unwrap();
    let second = board.submit(Task::new("second").to("b")).await.unwrap();
    let both = futures::future::try_join(first.result(), second.result());
    let both = tokio::time::timeout(Duration::from_secs(3600), both).await.expect("they wait for each other for ever");
    let (first, second) = both.unwrap();
    let outputs = [first.output.to_string(), second.output.to_string()];
    let refused = outputs.iter().filter(|output| output.contains("waiting would never end")).count();
    assert_eq!(refused, 1, "{outputs:?}");
    assert!(outputs.iter().any(|output| output == "\"fine\""), "{outputs:?}");
    let refused = outputs.iter().find(|output| output.contains("waiting would never end")).unwrap();
    for run in [&first, &second] {
        let request = format!("(turn {0}/1, request {0}/1.0)", run.run);
        assert!(refused.contains(&request), "{refused} does not name {request}");
    }
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_its_turn_gets_a_turn_of_its_own_also_after_a_restart() {
    let world = World::new();
    let start = || {
        world
            .builder()
            .agent("admin", |turn: Turn| async move {
                if turn.previous_agent().is_none() {
                    turn.delegate("developer", "which version runs?").detach().await?;
                    return Ok(Command::output("asked").with("messages", "asked"));
                }
                let late: LateAnswer = turn.input()?;
                assert_eq!(late.original_input, json!("check all"));
                Ok(Command::output(late.answer.output).with("messages", "told"))
            })
            .agent("developer", |turn: Turn| async move {
                let version = turn.people().ask("version?").await?;
                Ok(Command::output(version).with("messages", "looked it up"))
            })
            .start()
    };
    let first = start().await.unwrap();
    let run = first.submit(Task::new("check all").to("admin")).await.unwrap().id();
    people::next_question(&first.run(run)).await.unwrap();
    first.shutdown().await;

    let second = start().await.unwrap();
    let handle = second.run(run);
    let question = people::question(&handle).await.id;
    second.people().answer(question, "2.3.1", "tester").await.unwrap();
    let result = handle.result().await.unwrap();
    assert_eq!((result.outcome, result.output), (Outcome::Finished, json!("2.3.1").into()));
    assert_eq!(result.state, json!({ "messages": ["asked", "looked it up", "told"] }));
    assert_eq!(second.status(question.request).await.unwrap(), None, "a question is not a delegation");
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_comes_after_its_turn_gets_a_turn_of_its_own_too() {
    let board = Callboard::builder()
        .agent("admin", |turn: Turn| async move {
            if turn.previous_agent().is_none() {
                turn.delegate("developer", "which version runs?").detach().await?;
                return Ok(Command::output("asked").with("messages", "asked"));
            }
            let late: LateAnswer = turn.input()?;
            assert_eq!((&*late.to, &*late.body), ("developer", "which version runs?"));
            assert_eq!(late.original_input, json!("check all"));
            Ok(Command::output(late.answer.outcome.to_string()).with("messages", "told"))
        })
        .agent("developer", |_: Turn| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Err::<Command, _>(TurnError::terminal("it does not start"))
        })
        .start()
        .await
        .unwrap();
    let result = board.submit(Task::new("check all").to("admin")).await.unwrap().result().await.unwrap();
    assert_eq!(
        (result.outcome, result.output),
        (Outcome::Finished, json!("failed: terminal error: it does not start").into())
    );
    assert_eq!(result.state, json!({ "messages": ["asked", "told"] }));
    board.shutdown().await;
}

/// The senders and statuses of the status messages in an inbox.
async fn statuses(board: &Callboard, inbox: &str) -> Vec<(String, Status)> {
    let of_status = |message| match message {
        InboxMessage::Status { from_agent, status, .. } => Some((from_agent.to_string(), status)),
        InboxMessage::Request { .. } => None,
    };
    board.agents().inbox(inbox).await.unwrap().into_iter().filter_map(of_status).collect()
}

#[tokio::test(start_paused = true)]
async fn a_task_from_outside_has_a_request_and_statuses_also_after_a_restart() {
    let world = World::new();
    let start = || {
        world
            .builder()
            .agent("lead", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone()).goto("coder")) })
            .agent("coder", |turn: Turn| async move {
                turn.notice("on it");
                Ok(Command::output(turn.reference()))
            })
    };
    let first = start().start().await.unwrap();
    let ann = AgentName::new("ann").unwrap();
    let task = Task::new("fix it").to("lead").from_agent(ann.clone()).reference("group/project#7");
    let run = first.submit(task).await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!(result.output, "group/project#7", "what control was handed to works on the same task");

    let id = RequestId::of_run(run.id());
    let status = first.status(id).await.unwrap().unwrap();
    let DelegationStatus { request_id, from_agent, to_agent, status: recorded, detail, body, at: _, is_stale } =
        &status;
    assert_eq!((request_id, from_agent.as_str(), to_agent), (&id, "lead", &ann));
    assert_eq!((recorded, &**detail, body, is_stale), (&Status::Complete, "", &result.output, &false));
    let all = [("lead", Status::Ack), ("coder", Status::Notice), ("lead", Status::Complete)];
    let all = all.map(|(agent, status)| (agent.to_owned(), status));
    assert_eq!(statuses(&first, "ann").await, all);
    first.shutdown().await;

    let second = start().start().await.unwrap();
    assert_eq!(second.status(id).await.unwrap(), Some(status));
    assert_eq!(statuses(&second, "ann").await, all);
    let inbox = second.agents().inbox("lead").await.unwrap();
    let [InboxMessage::Request { request_id, from_agent, to_agent, trace_id, body, input, reference }] = &inbox[..]
    else {
        panic!("{inbox:?}")
    };
    assert_eq!((request_id, from_agent, to_agent.as_str()), (&id, &ann, "lead"));
    assert_eq!((trace_id.0, &**body, input), (run.id().0, "fix it", &Json::from("fix it")));
    assert_eq!(reference.as_deref(), Some("group/project#7"));
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_from_outside_that_fails_says_why_and_one_from_nobody_has_no_status() {
    let board = Callboard::builder()
        .agent("coder", |_: Turn| async { Err::<Command, _>(TurnError::terminal("it does not start")) })
        .start()
        .await
        .unwrap();
    let nobody = board.submit(Task::new("fix it")).await.unwrap();
    nobody.result().await.unwrap();
    assert_eq!(board.status(RequestId::of_run(nobody.id())).await.unwrap(), None);
    let run = board.submit(Task::new("fix it").from_agent(AgentName::new("ann").unwrap())).await.unwrap();
    run.result().await.unwrap();
    let status = board.status(RequestId::of_run(run.id())).await.unwrap().unwrap();
    assert_eq!((status.status, &*status.detail), (Status::Fail, "failed: terminal error: it does not start"));
    assert_eq!(statuses(&board, "coder").await, []);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_delegated_turn_reads_the_reference_of_its_own_delegation() {
    let board = Callboard::builder()
        .agent("lead", |turn: Turn| async move {
            let plain = turn.delegate("coder", "one").await?;
            let other = turn.delegate("coder", "two").reference("project#8").await?;
            Ok(Command::output(json!([turn.reference(), plain, other])))
        })
        .agent("coder", |turn: Turn| async move { Ok(Command::output(turn.reference()).goto("writer")) })
        .agent("writer", |turn: Turn| async move { Ok(Command::output(json!([turn.input_json(), turn.reference()]))) })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("lead").reference("project#7")).await.unwrap();
    let result = run.result().await.unwrap();
    assert_eq!(result.output, json!(["project#7", [null, null], ["project#8", "project#8"]]));
    board.shutdown().await;
}
