//! Waits for delegations that were given away (SEMANTICS 4): they are part of the graph of waits for as long as they last.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{assert_nothing_left, builder};
use callboard::prelude::*;
use callboard::runtime::Callboard;
use tokio::sync::Notify;
use tokio::time::timeout;

/// What the turns of a test wait for.
#[derive(Default)]
struct Signals {
    lead_has_slot: Notify,
    other_waits: Notify,
    lead_waits: Notify,
    lead_may_end: Notify,
}

/// A board on which the agents `lead` and `other` keep their slots. Their first turns have the input "x"; all others end at once.
async fn board<L, O>(
    lead: impl Fn(Turn, Arc<Signals>) -> L + Send + Sync + 'static,
    other: impl Fn(Turn, Arc<Signals>) -> O + Send + Sync + 'static,
) -> Callboard
where
    L: Future<Output = Result<Json, TurnError>> + Send + 'static,
    O: Future<Output = Result<Json, TurnError>> + Send + 'static,
{
    let signals = Arc::new(Signals::default());
    let [of_lead, of_other] = [Arc::clone(&signals), signals];
    let lead = move |turn: Turn| {
        let first = (turn.input_json() == "x").then(|| lead(turn, Arc::clone(&of_lead)));
        async move {
            match first {
                Some(first) => Ok(Command::output(first.await?)),
                None => Ok(Command::output("done")),
            }
        }
    };
    let other = move |turn: Turn| {
        let first = (turn.input_json() == "x").then(|| other(turn, Arc::clone(&of_other)));
        async move {
            match first {
                Some(first) => Ok(Command::output(first.await?)),
                None => Ok(Command::output("done")),
            }
        }
    };
    builder()
        .with(AgentSpec::new("lead", lead).non_reentrant())
        .with(AgentSpec::new("other", other).non_reentrant())
        .agent("middle", |_: Turn| async { Ok(Command::new().goto("other")) })
        .start()
        .await
        .unwrap()
}

/// The agents of a circle of waits, from a text.
fn circle(text: &Json) -> Vec<String> {
    let text = text.as_str().unwrap().strip_prefix("waiting would never end: ").expect("it is no circle");
    text.split(" waits for ").map(|wait| wait.split(" (").next().unwrap().to_owned()).collect()
}

/// Has both agents begin a run; returns the output of the first turn of each.
async fn outputs(board: &Callboard) -> [Json; 2] {
    let [lead, other] = ["lead", "other"].map(|agent| board.submit(Task::new("x").to(agent)));
    let [lead, other] = [lead.await.unwrap(), other.await.unwrap()];
    let mut outputs = Vec::new();
    for run in [lead, other] {
        timeout(Duration::from_secs(60), run.result()).await.expect("it does not end").unwrap();
        let first = run.history().await.unwrap().into_iter().find_map(|event| match event {
            RunEvent::TurnEnded { turn: 1, command, .. } => command.output.clone(),
            _ => None,
        });
        outputs.push(first.expect("its first turn has not ended"));
    }
    outputs.try_into().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_what_was_given_away_is_refused_where_it_would_close_a_circle() {
    for (to, through) in [("other", "other"), ("middle", "other")] {
        let lead = move |turn: Turn, signals: Arc<Signals>| async move {
            signals.lead_has_slot.notify_one();
            signals.other_waits.notified().await;
            let given = turn.delegate(to, "work").detach().await?;
            let refused = turn.answer(given).await.unwrap_err();
            assert!(turn.status(given).await.is_pending(), "the delegation continues");
            Ok(Json::from(refused.to_string()))
        };
        let other = |turn: Turn, signals: Arc<Signals>| async move {
            signals.lead_has_slot.notified().await;
            let mut asked = std::pin::pin!(turn.delegate("lead", "help"));
            let answer = std::future::poll_fn(|context| {
                let polled = asked.as_mut().poll(context);
                signals.other_waits.notify_one();
                polled
            });
            Ok(answer.await?)
        };
        let board = board(lead, other).await;
        let [refused, answer] = outputs(&board).await;
        let expected = ["lead", through, "the slot of other", "other", "lead", "the slot of lead", "lead"];
        assert_eq!(circle(&refused), expected, "{to}");
        assert_eq!(answer, "done");
        assert_nothing_left(&board, 5).await;
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_delegation_that_would_close_a_circle_with_such_a_wait_is_refused_unless_the_wait_is_over() {
    for is_over in [false, true] {
        let lead = move |turn: Turn, signals: Arc<Signals>| async move {
            let given = turn.delegate("other", "work").detach().await?;
            if is_over {
                assert!(timeout(Duration::from_secs(1), turn.answer(given)).await.is_err());
                tokio::task::yield_now().await;
                signals.lead_waits.notify_one();
                signals.lead_may_end.notified().await;
                return Ok("ended".into());
            }
            let mut answer = std::pin::pin!(turn.answer(given));
            let answer = std::future::poll_fn(|context| {
                let polled = answer.as_mut().poll(context);
                signals.lead_waits.notify_one();
                polled
            });
            Ok(answer.await?)
        };
        let other = move |turn: Turn, signals: Arc<Signals>| async move {
            signals.lead_waits.notified().await;
            let mut asked = std::pin::pin!(turn.delegate("lead", "help"));
            let answer = std::future::poll_fn(|context| {
                let polled = asked.as_mut().poll(context);
                signals.lead_may_end.notify_one();
                polled
            });
            Ok(answer.await.unwrap_or_else(|refused| refused.to_string().into()))
        };
        let board = board(lead, other).await;
        let [of_lead, of_other] = outputs(&board).await;
        if is_over {
            assert_eq!((of_lead, of_other), ("ended".into(), "done".into()));
        } else {
            let expected = ["other", "the slot of lead", "lead", "other", "the slot of other", "other"];
            assert_eq!(circle(&of_other), expected);
            assert_eq!(of_lead, "done");
        }
        assert_nothing_left(&board, 5).await;
        board.shutdown().await;
    }
}
