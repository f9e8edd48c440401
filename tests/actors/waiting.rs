//! A thousand agents wait for their model when the process is killed, and continue in the next one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::models::{self, Nothing};
use crate::common::{Counter, Peak, Processes, assert_nothing_left, pass};
use callboard::messages::{Message, Refusal, RunId, SendTo, StateRules, ToolCall, Usage};
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard::supervision::runs::Follower;
use callboard_agents::{Effect, Model, ModelAnswer, ModelEvent, ModelRequest, ModelStream, StopReason, Tools, tool};
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::{iter, once};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::timeout;

const AGENTS: usize = 20;
const RUNS: usize = 1_000;
const MOMENT: Duration = Duration::from_millis(50);
const USAGE: Usage = Usage::of(90, 10);

/// A model that has a tool used first, and answers then as often as it may; the others wait.
#[derive(Clone)]
struct Slow(Arc<Parts>);

struct Parts {
    may_answer: AtomicUsize,
    waiting: Peak,
    /// The keys of the calls that were answered: who asks again with the same key would pay again.
    paid: Arc<Mutex<Vec<Arc<str>>>>,
}

impl Slow {
    async fn answer(self, request: ModelRequest) -> Vec<ModelEvent> {
        let is_new = request.messages.iter().all(|message| matches!(message, Message::User { .. }));
        let one_less = |left: usize| left.checked_sub(1);
        if !is_new && self.0.may_answer.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_err() {
            let _waiting = self.0.waiting.enter();
            std::future::pending::<()>().await;
        }
        self.0.paid.lock().push(Arc::clone(&request.idempotency_key));
        let (said, stop) = if is_new {
            (ModelEvent::ToolCall(ToolCall::new("1", "look", json!({}))), StopReason::ToolCalls)
        } else {
            (ModelEvent::Text("seen".into()), StopReason::Finished)
        };
        vec![said, ModelEvent::Ended(ModelAnswer::new("slow", stop, USAGE))]
    }
}

impl Model for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn call(&self, request: ModelRequest) -> ModelStream {
        once(self.clone().answer(request)).flat_map(|events| iter(events.into_iter().map(Ok))).boxed()
    }
}

/// What outlives the processes.
#[derive(Default)]
struct Outside {
    looked: Counter,
    paid: Arc<Mutex<Vec<Arc<str>>>>,
}

impl Outside {
    /// A board whose model answers so many that have looked, and how many of them wait.
    async fn board(&self, builder: Builder, may_answer: usize) -> (Callboard, Peak) {
        let waiting = Peak::default();
        let parts = Parts { may_answer: may_answer.into(), waiting: waiting.clone(), paid: Arc::clone(&self.paid) };
        let model = Slow(Arc::new(parts));
        let looked = self.looked.clone();
        let look = tool("look", "Looks.", Effect::Reads, move |_: Nothing, _| {
            looked.count();
            async { Ok("there it is".into()) }
        });
        let tools = Tools::new().with(look).unwrap();
        let agent = |number: usize| {
            let text = format!("[agent]\nname = \"agent-{number}\"\n[agent.limits]\nconcurrency = {RUNS}");
            models::agent(&text, model.clone(), &tools)
        };
        let board = (0..AGENTS).map(agent).fold(builder.pool(RUNS), Builder::with).start().await.unwrap();
        (board, waiting)
    }
}

/// Waits until so many wait for their model, and all others have ended.
async fn until_only_wait(board: &Callboard, waiting: &Peak, many: usize) {
    for _ in 0..1_000 {
        if (waiting.inside(), board.load().runs) == (many, many) {
            return;
        }
        pass(MOMENT).await;
    }
    panic!("{} wait, and not {many}: {:?}", waiting.inside(), board.load());
}

fn task(number: usize) -> Task {
    Task::new("look").to(&format!("agent-{}", number % AGENTS))
}

#[test]
fn a_thousand_agents_that_wait_for_a_model_lose_nothing_when_their_process_is_killed() {
    let (processes, outside) = (Processes::new(), Outside::default());
    let runs: Vec<RunId> = processes.run(async |builder| {
        let (board, waiting) = outside.board(builder, 0).await;
        let submitted = join_all((0..RUNS).map(|number| board.submit(task(number)))).await;
        until_only_wait(&board, &waiting, RUNS).await;
        submitted.into_iter().map(|run| run.unwrap().id()).collect()
    });
    // The next one is killed when half of them have their answers.
    let half = processes.run(async |builder| {
        let (board, waiting) = outside.board(builder, RUNS / 2).await;
        until_only_wait(&board, &waiting, RUNS / 2).await;
        let ended = runs.iter().map(async |run| timeout(MOMENT, board.run(*run).result()).await.is_ok());
        join_all(ended).await.into_iter().filter(|is_ended| *is_ended).count()
    });
    assert_eq!(half, RUNS / 2);
    processes.run(async |builder| {
        let (board, _) = outside.board(builder, RUNS).await;
        for run in &runs {
            let result = board.run(*run).result().await.unwrap();
            assert_eq!((result.outcome, result.output.as_str()), (Outcome::Finished, Some("seen")));
            assert_eq!(result.metrics.usage.total(), 2 * USAGE.total(), "each answer is counted once");
            assert_eq!(result.metrics.retries, 0, "a killed process is no attempt");
            let spent = result.metrics.tokens_spent;
            assert!(spent > 2 * USAGE.total(), "a call that was killed may have been paid for: {spent}");
        }
        assert_nothing_left(&board, RUNS).await;
        board.shutdown().await;
    });
    assert_eq!(outside.looked.get(), RUNS, "what had been journaled was not done again");
    let paid = outside.paid.lock();
    let different: BTreeSet<_> = paid.iter().collect();
    assert_eq!((paid.len(), different.len()), (2 * RUNS, 2 * RUNS), "no answer was paid for twice");
}

#[test]
fn what_a_thousand_agents_of_a_run_spend_stays_within_its_budget_also_if_they_are_killed_in_their_calls() {
    const BUDGET: u64 = 500_000;
    let (processes, outside) = (Processes::new(), Outside::default());
    let lead = || {
        let sends = || (0..RUNS).map(|number| SendTo::new(&format!("agent-{}", number % AGENTS), number));
        AgentSpec::new("lead", move |_: Turn| async move { Ok(Command::new().goto_many(sends())) })
    };
    let limits = Limits { tokens: BUDGET, handoffs: 1_000, agents: 1 + AGENTS as u32, ..Limits::default() };
    let run = processes.run(async |builder| {
        let (board, waiting) = outside.board(builder.with(lead()), 0).await;
        let run = board.submit(Task::new("look").to("lead").limits(limits)).await.unwrap();
        pass(MOMENT).await;
        assert!((1..RUNS).contains(&waiting.inside()), "{} wait", waiting.inside());
        run.id()
    });
    processes.run(async |builder| {
        let (board, _) = outside.board(builder.with(lead()), RUNS).await;
        let result = board.run(run).result().await.unwrap();
        assert!(matches!(result.outcome, Outcome::Refused(Refusal::TokenBudget { .. })), "{:?}", result.outcome);
        let events = board.run(run).history().await.unwrap();
        let mut follower = Follower::new(StateRules::default());
        let highest = (1..).zip(events).map(|(sequence, event)| {
            let _ = follower.take(sequence, &event);
            follower.run().unwrap().metrics().tokens_spent
        });
        let highest = highest.max().unwrap();
        assert!(highest <= BUDGET && highest > BUDGET - 10_000, "{highest}");
        assert_nothing_left(&board, RUNS).await;
        board.shutdown().await;
    });
}
