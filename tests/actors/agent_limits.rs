//! What an agent may use in a run (SEMANTICS 2).

use std::future::IntoFuture;
use std::sync::Arc;

use crate::common::{Processes, builder, finish};
use callboard::actors::Reservation;
use callboard::messages::{Cost, Refusal, Usage};
use callboard::prelude::*;
use serde_json::{Value, json};
use tokio::sync::Barrier;

/// What has been used of the limit, if the call was refused.
fn used(reserved: &Result<Reservation, TurnError>) -> Option<u64> {
    match *reserved.as_ref().err()?.refusal()? {
        Refusal::AgentBudget { used, .. } => Some(used),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn turns_of_an_agent_at_the_same_time_use_no_more_than_its_limit_of_the_run_and_other_agents_are_not_limited() {
    let all_have_asked = Arc::new(Barrier::new(10));
    let spender = move |turn: Turn| {
        let all_have_asked = Arc::clone(&all_have_asked);
        async move {
            let (tokens, is_one_of_ten) = turn.input::<(u64, bool)>()?;
            let reserved = turn.reserve(tokens).await;
            let used = used(&reserved);
            if is_one_of_ten {
                all_have_asked.wait().await;
            }
            if let Ok(reservation) = reserved {
                reservation.settle(Usage::of(25, 0)).await?;
            }
            Ok(Command::output(used))
        }
    };
    let lead = |turn: Turn| async move {
        let ask = |tokens: u64, is_one_of_ten: bool| {
            turn.delegate("spender", "spend").input(json!([tokens, is_one_of_ten])).into_future()
        };
        let mut used: Vec<Value> = Vec::new();
        for answer in futures::future::join_all((0..10).map(|_| ask(30, true))).await {
            used.push(answer?.value().clone());
        }
        for tokens in [26, 25] {
            used.push(ask(tokens, false).await?.value().clone());
        }
        turn.reserve(1_000).await?.settle(Usage::of(1_000, 0)).await?;
        Ok(Command::output(used))
    };
    let board = builder()
        .with(AgentSpec::new("spender", spender).concurrency(10).per_run(Some(100), None))
        .agent("lead", lead)
        .pool(11)
        .start()
        .await
        .unwrap();
    let task = || Task::new("x").to("lead").limits(Limits { handoffs: 12, ..Limits::default() });
    for _ in 0..2 {
        let output = finish(&board, task()).await.output;
        let of_ten = [vec![Value::Null; 3], vec![json!(90); 7]].concat();
        assert_eq!(
            output,
            Json::from([of_ten, vec![json!(75), Value::Null]].concat()),
            "each run has a limit of its own"
        );
    }
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_money_of_an_agent_refuses_a_call_whose_cost_is_not_known() {
    let spender = |turn: Turn| async move {
        let dear = turn.reserve_priced(1, Some(Cost(11))).await;
        turn.reserve_priced(1, Some(Cost(10))).await?.release().await?;
        let unknown = turn.reserve(1).await;
        Ok(Command::output(json!([used(&dear), used(&unknown)])))
    };
    let spec = AgentSpec::new("spender", spender).per_run(None, Some(Cost(10)));
    let board = builder().with(spec).start().await.unwrap();
    assert_eq!(finish(&board, Task::new("x")).await.output, Json::from(json!([0, 0])));
    board.shutdown().await;
}

#[test]
fn calls_of_ended_turns_and_of_killed_processes_count_until_they_report() {
    let processes = Processes::new();
    let spender = |is_killed: bool| {
        let spender = move |turn: Turn| async move {
            if turn.input::<u64>()? == 1 {
                // It never reports.
                drop(turn.reserve(20).await?);
                return Ok(Command::output(2).goto("spender"));
            }
            if is_killed {
                let _held = turn.reserve(40).await?;
                std::future::pending::<()>().await;
            }
            let refused = turn.reserve(41).await;
            turn.reserve(40).await?.settle(Usage::of(40, 0)).await?;
            Ok(Command::output(used(&refused)))
        };
        AgentSpec::new("spender", spender).per_run(Some(100), None)
    };
    let run = processes.run(async |builder| {
        let board = builder.with(spender(true)).start().await.unwrap();
        let run = board.submit(Task::new("x").input(1)).await.unwrap();
        while run.read().await.is_ok_and(|run| run.metrics().tokens_spent < 60) {
            tokio::task::yield_now().await;
        }
        run.id()
    });
    processes.run(async |builder| {
        let board = builder.with(spender(false)).start().await.unwrap();
        let run = board.run(run);
        assert_eq!(run.result().await.unwrap().output, Json::from(60));
        let run = run.read().await.unwrap();
        let used: Vec<_> =
            run.used_by_agents().into_iter().map(|(agent, _, usage)| (agent.as_str(), usage.total())).collect();
        assert_eq!(used, [("spender", 40)]);
    });
}
