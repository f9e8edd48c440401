//! Effects outside of the runtime that must not be repeated by themselves (SEMANTICS 14).

#![allow(clippy::disallowed_methods, reason = "the tests run on virtual time")]

use std::future::{Future, pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use callboard::AnswerError;
use callboard::messages::{
    EffectClass, FailureKind, Intent, OnUnknown, Question, Reconciled, Resolution, RunEvent, RunId,
};
use callboard::prelude::*;
use callboard::runtime::BuildError;
use callboard::testing::{Seeds, Sim};
use callboard::workflow::{Node, Workflow};
use callboard_agents::testing::ScriptedModel;
use callboard_agents::{Effect, Tool, ToolError, ToolFailure, ToolOutput, ToolScope, ToolSpec, Tools};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;

use crate::common::{comes_true, models, people};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A shop outside of the node. The first charge hangs after the money has moved.
#[derive(Clone, Default)]
struct Shop {
    charges: Arc<AtomicUsize>,
}

impl Shop {
    async fn charge(self) -> Result<String, TurnError> {
        match self.charges.fetch_add(1, Ordering::SeqCst) {
            0 => pending().await,
            number => Ok(format!("receipt {number}")),
        }
    }

    fn charged(&self) -> usize {
        self.charges.load(Ordering::SeqCst)
    }

    /// Waits for the first charge.
    async fn is_charged(&self) {
        comes_true(async || self.charged() > 0).await;
    }
}

type Setting = fn(callboard::actors::OutsideEffect<'static>) -> callboard::actors::OutsideEffect<'static>;

fn cashier(
    shop: &Shop,
    with: Setting,
) -> impl Fn(Turn) -> std::pin::Pin<Box<dyn Future<Output = Result<Command, TurnError>> + Send>> + Clone + use<> {
    let shop = shop.clone();
    move |turn: Turn| {
        let shop = shop.clone();
        Box::pin(async move {
            let effect = with(turn.effect("charge").target("order 7").arguments(&json!({ "amount": 3 }).into()));
            let receipt: String = effect.run(shop.charge()).await?;
            Ok(Command::output(receipt))
        })
    }
}

/// Begins a charge, crashes the node while it is under way, and gives the board of the next life with the run.
async fn crashed(sim: &Sim, shop: &Shop, with: Setting) -> Result<(Callboard, RunId), callboard::Error> {
    crashed_of(sim, shop, with, |builder| builder).await
}

async fn crashed_of(
    sim: &Sim,
    shop: &Shop,
    with: Setting,
    of: fn(callboard::Builder) -> callboard::Builder,
) -> Result<(Callboard, RunId), callboard::Error> {
    let start = || of(sim.board().agent("cashier", cashier(shop, with))).start();
    let task = Task::new("order 7").to("cashier").durability(Durability::Buffered);
    let (board, run) = crashed_in(sim, shop, task, start).await?;
    board.recovered().await;
    Ok((board, run))
}

/// Submits a task to a board, crashes the node while the charge is under way, and starts the board of the next life.
async fn crashed_in(
    sim: &Sim,
    shop: &Shop,
    task: Task,
    start: impl AsyncFn() -> Result<Callboard, BuildError>,
) -> Result<(Callboard, RunId), callboard::Error> {
    sim.time_limit(DAY * 30);
    let board = start().await?;
    let run = board.submit(task).await?.id();
    shop.is_charged().await;
    sim.crash().await;
    Ok((start().await?, run))
}

async fn question(board: &Callboard, run: RunId) -> Question {
    people::next_question(&board.run(run)).await.unwrap().expect("nobody is asked about the charge")
}

#[test]
fn a_charge_whose_result_was_lost_is_asked_about_and_not_repeated() {
    Seeds::new(10).simulate(async |sim: Sim| {
        let shop = Shop::default();
        let (board, run) = crashed(&sim, &shop, |effect| effect).await?;
        let open = question(&board, run).await;
        let text = open.question.get("question").unwrap().as_str().unwrap().to_owned();
        assert!(text.starts_with("charge order 7 was begun, and its result was lost: it may have run."), "{text}");
        let error = board.people().answer(open.id, "yes", "ann").await.unwrap_err();
        assert!(matches!(error, AnswerError::NotAnOutcome(_)), "{error}");
        board.people().answer(open.id, json!({ "done": "receipt of the shop" }), "ann").await?;
        assert_eq!(board.run(run).result().await?.output, "receipt of the shop");
        assert_eq!(shop.charged(), 1);
        sim.assert_nothing_left().await;
        Ok(())
    });
}

#[test]
fn a_person_can_have_it_done_again_or_give_it_up() {
    Seeds::new(10).simulate(async |sim: Sim| {
        let shop = Shop::default();
        let (board, run) = crashed(&sim, &shop, |effect| effect).await?;
        board.people().answer(question(&board, run).await.id, "run it again", "ann").await?;
        assert_eq!(board.run(run).result().await?.output, "receipt 1");
        assert_eq!(shop.charged(), 2);

        let shop = Shop::default();
        let (board, run) = crashed(&sim, &shop, |effect| effect).await?;
        board.people().answer(question(&board, run).await.id, "give up", "ann").await?;
        let result = board.run(run).result().await?;
        let text = result.outcome.to_string();
        assert!(text.contains("outcome unknown: charge order 7 may have run, and its result is not known"), "{text}");
        assert_eq!((shop.charged(), result.metrics.retries), (1, 0));
        Ok(())
    });
}

#[test]
fn a_result_that_does_not_fit_is_asked_for_again() {
    Seeds::new(5).simulate(async |sim: Sim| {
        let shop = Shop::default();
        let (board, run) = crashed(&sim, &shop, |effect| effect).await?;
        let first = question(&board, run).await;
        board.people().answer(first.id, json!({ "done": 7 }), "ann").await?;
        let again = question(&board, run).await;
        let text = again.question.get("question").unwrap().as_str().unwrap().to_owned();
        assert!(text.starts_with("The result that was given does not fit: invalid type"), "{text}");
        let late = board.people().answer(first.id, "run it again", "bob").await;
        assert!(matches!(late, Err(AnswerError::NotOpen(_))), "{late:?}");
        board.people().answer(again.id, json!({ "done": "fits" }), "ann").await?;
        assert_eq!((board.run(run).result().await?.output, shop.charged()), ("fits".into(), 1));
        Ok(())
    });
}

#[test]
fn the_question_survives_another_crash_and_the_answer_too() {
    Seeds::new(6).simulate(async |sim: Sim| {
        let shop = Shop::default();
        let (board, run) = crashed(&sim, &shop, |effect| effect).await?;
        let first = question(&board, run).await;
        sim.crash().await;
        drop(board);
        let start = || sim.board().agent("cashier", cashier(&shop, |effect| effect)).start();
        let board = start().await?;
        board.recovered().await;
        let second = question(&board, run).await;
        assert_eq!((second.id, second.asked_at), (first.id, first.asked_at));
        board.people().answer(second.id, json!({ "done": "receipt" }), "ann").await?;
        sim.crash().await;
        let board = start().await?;
        board.recovered().await;
        assert_eq!((board.run(run).result().await?.output, shop.charged()), ("receipt".into(), 1));
        Ok(())
    });
}

#[test]
fn silence_gives_up_when_the_question_expires() {
    Seeds::new(5).simulate(async |sim: Sim| {
        let shop = Shop::default();
        let (board, run) = crashed(&sim, &shop, |effect| effect).await?;
        let open = question(&board, run).await;
        assert_eq!(open.expires_at, Some(open.asked_at + DAY * 7), "nobody has configured it");
        Ok(())
    });
    Seeds::new(5).simulate(async |sim: Sim| {
        let shop = Shop::default();
        let (board, run) = crashed_of(&sim, &shop, |effect| effect, |builder| builder.approval_ttl(HOUR)).await?;
        let open = question(&board, run).await;
        let result = board.run(run).result().await?;
        assert!(result.outcome.to_string().contains("outcome unknown"), "{}", result.outcome);
        let history = board.run(run).history().await?;
        let gave_up = history.iter().find_map(|event| match event {
            RunEvent::OutcomeResolved { resolution: Resolution::GiveUp, by, at, .. } if &**by == "expiry" => Some(*at),
            _ => None,
        });
        assert_eq!(gave_up, Some(open.asked_at + HOUR));
        assert_eq!(shop.charged(), 1);
        sim.assert_nothing_left().await;
        Ok(())
    });
}

#[test]
fn the_run_s_deadline_ends_the_question() {
    Seeds::new(3).simulate(async |sim: Sim| {
        let shop = Shop::default();
        let start = || sim.board().agent("cashier", cashier(&shop, |effect| effect)).start();
        let (board, run) = crashed_in(&sim, &shop, Task::new("order 7").deadline(HOUR), start).await?;
        board.recovered().await;
        let open = question(&board, run).await;
        assert!(!board.run(run).result().await?.outcome.is_finished());
        let late = board.people().answer(open.id, "run it again", "ann").await;
        assert_eq!(late, Err(AnswerError::NotOpen(open.id.into())));
        assert_eq!(shop.charged(), 1);
        sim.assert_nothing_left().await;
        Ok(())
    });
}

#[test]
fn the_reconciliation_of_an_effect_runs_before_a_person_is_asked() {
    Seeds::new(10).simulate(async |sim: Sim| {
        let shop = Shop::default();
        let found: Setting =
            |effect| effect.reconcile(|_| async { Ok::<_, TurnError>(Reconciled::Done("found".into())) });
        let (board, run) = crashed(&sim, &shop, found).await?;
        assert_eq!((board.run(run).result().await?.output, shop.charged()), ("found".into(), 1));

        let shop = Shop::default();
        let not_done: Setting = |effect| effect.reconcile(|_| async { Ok::<_, TurnError>(Reconciled::NotDone) });
        let (board, run) = crashed(&sim, &shop, not_done).await?;
        assert_eq!((board.run(run).result().await?.output, shop.charged()), ("receipt 1".into(), 2));

        let unknown: [Setting; 4] = [
            |effect| effect.reconcile(|_| async { Ok::<_, TurnError>(Reconciled::Unknown) }),
            |effect| effect.reconcile(|_| async { Err(TurnError::transient("the shop is closed")) }),
            |effect| {
                effect.reconcile(|_| async {
                    if true {
                        panic!("the shop burns")
                    }
                    Ok::<_, TurnError>(Reconciled::NotDone)
                })
            },
            |effect| effect.reconcile(|_| pending::<Result<_, TurnError>>()),
        ];
        for with in unknown {
            let shop = Shop::default();
            let (board, run) = crashed(&sim, &shop, with).await?;
            board.people().answer(question(&board, run).await.id, json!({ "done": "asked" }), "ann").await?;
            assert_eq!((board.run(run).result().await?.output, shop.charged()), ("asked".into(), 1));
        }
        Ok(())
    });
}

#[test]
fn a_reconciliation_that_never_answers_is_unknown_after_thirty_seconds_or_as_the_board_sets_it() {
    let never: Setting = |effect| effect.reconcile(|_| pending::<Result<_, TurnError>>());
    type Of = fn(callboard::Builder) -> callboard::Builder;
    let boards: [(Of, u64); 2] = [
        (|builder| builder, 30),
        (|builder| builder.timings(|timings| timings.reconcile_within(Duration::from_secs(7))), 7),
    ];
    for (of, seconds) in boards {
        Seeds::new(5).simulate(async |sim: Sim| {
            let shop = Shop::default();
            let (board, run) = crashed_of(&sim, &shop, never, of).await?;
            let open = question(&board, run).await;
            let history = board.run(run).history().await?;
            let recovered = history.iter().find(|event| matches!(event, RunEvent::Recovered { .. })).unwrap();
            let asked = history.iter().find_map(|event| match event {
                RunEvent::OutcomeUnknown { asked, .. } => Some(asked.at),
                _ => None,
            });
            let waited = asked.unwrap().since(recovered.at().unwrap());
            let expected = Duration::from_secs(seconds)..Duration::from_secs(seconds + 1);
            assert!(expected.contains(&waited), "{waited:?} and not {expected:?}");
            board.people().answer(open.id, json!({ "done": "asked" }), "ann").await?;
            assert_eq!((board.run(run).result().await?.output, shop.charged()), ("asked".into(), 1));
            sim.assert_nothing_left().await;
            Ok(())
        });
    }
}

#[test]
fn a_policy_decides_without_a_person() {
    Seeds::new(5).simulate(async |sim: Sim| {
        for (with, charged, says) in [
            ((|effect| effect.on_unknown(OnUnknown::Fail)) as Setting, 1, "outcome unknown"),
            (|effect| effect.on_unknown(OnUnknown::Report), 1, "outcome unknown"),
            (|effect| effect.on_unknown(OnUnknown::Repeat), 2, "finished"),
        ] {
            let shop = Shop::default();
            let (board, run) = crashed(&sim, &shop, with).await?;
            let outcome = board.run(run).result().await?.outcome.to_string();
            assert!(outcome.contains(says), "{outcome}");
            assert_eq!(shop.charged(), charged, "{outcome}");
        }
        // The effect's own word counts before the board's.
        let of_board = |builder: callboard::Builder| builder.on_unknown(OnUnknown::Fail);
        let shop = Shop::default();
        let (board, run) = crashed_of(&sim, &shop, |effect| effect, of_board).await?;
        assert!(board.run(run).result().await?.outcome.to_string().contains("outcome unknown"));
        let shop = Shop::default();
        let again: Setting = |effect| effect.on_unknown(OnUnknown::Repeat);
        let (board, run) = crashed_of(&sim, &shop, again, of_board).await?;
        assert!(board.run(run).result().await?.outcome.is_finished());
        Ok(())
    });
}

#[test]
fn the_rule_of_the_agent_counts_before_the_board_and_after_the_effect() {
    Seeds::new(5).simulate(async |sim: Sim| {
        for (of_effect, of_agent, charged, says) in [
            ((|effect| effect) as Setting, OnUnknown::Fail, 1, "outcome unknown"),
            (|effect| effect, OnUnknown::Repeat, 2, "finished"),
            (|effect| effect.on_unknown(OnUnknown::Repeat), OnUnknown::Fail, 2, "finished"),
        ] {
            let shop = Shop::default();
            let spec = || AgentSpec::new("cashier", cashier(&shop, of_effect)).on_unknown(of_agent);
            let start = || sim.board().with(spec()).on_unknown(OnUnknown::Report).start();
            let (board, run) = crashed_in(&sim, &shop, Task::new("order 7"), start).await?;
            board.recovered().await;
            let outcome = board.run(run).result().await?.outcome.to_string();
            assert!(outcome.contains(says), "{of_agent:?}: {outcome}");
            assert_eq!(shop.charged(), charged, "{of_agent:?}: {outcome}");
        }
        Ok(())
    });
}

#[test]
fn a_run_that_is_cancelled_while_people_are_asked_leaves_nothing_open() {
    Seeds::new(5).simulate(async |sim: Sim| {
        let shop = Shop::default();
        let (board, run) = crashed(&sim, &shop, |effect| effect).await?;
        let open = question(&board, run).await;
        board.run(run).cancel("enough").await?;
        let late = board.people().answer(open.id, "run it again", "ann").await;
        assert!(matches!(late, Err(AnswerError::NotOpen(_))), "{late:?}");
        assert_eq!(shop.charged(), 1);
        sim.assert_nothing_left().await;
        Ok(())
    });
}

/// Two branches race. The one that charges loses, or the node crashes while both are under way: then its charge is asked about, until
/// the other one wins.
#[test]
fn in_a_losing_branch_an_unknown_effect_is_recorded_and_nobody_is_asked_any_more() {
    Seeds::new(5).simulate(async |sim: Sim| {
        for crashes in [false, true] {
            sim.time_limit(DAY * 30);
            let shop = Shop::default();
            let plan = Workflow::builder("race")
                .node(Node::agent("pays", "cashier"))
                .node(Node::agent("waits", "clerk"))
                .node(Node::join("first").after("pays").after("waits").any())
                .build()
                .unwrap();
            let clerk =
                |turn: Turn| async move { Ok(Command::output(turn.people().ask("did they bring cash?").await?)) };
            let start = || sim.board().agent("cashier", cashier(&shop, |effect| effect)).agent("clerk", clerk).start();
            let mut board = start().await?;
            let run = board.submit(plan.task("order 7")).await?.id();
            shop.is_charged().await;
            let is_about_cash = |open: &Question| open.question == "did they bring cash?";
            let cash = people::next_question(&board.run(run)).await?.unwrap();
            assert!(is_about_cash(&cash));
            if crashes {
                sim.crash().await;
                board = start().await?;
                board.recovered().await;
                comes_true(async || people::questions(&board.run(run)).await.len() == 2).await;
            }
            let open = people::questions(&board.run(run)).await;
            board.people().answer(cash.id, "yes", "ann").await?;
            assert!(board.run(run).result().await?.outcome.is_finished());
            for lost in open.iter().filter(|open| !is_about_cash(open)) {
                let late = board.people().answer(lost.id, "run it again", "bob").await;
                assert!(matches!(late, Err(AnswerError::NotOpen(_))), "{late:?}");
            }
            let events = board.run(run).history().await?;
            assert!(events.iter().any(|event| matches!(event, RunEvent::IntentRecorded { .. })));
            assert_eq!(events.iter().any(|event| matches!(event, RunEvent::OutcomeUnknown { .. })), crashes);
            assert_eq!(shop.charged(), 1);
            sim.assert_nothing_left().await;
        }
        Ok(())
    });
}

#[test]
fn a_cancelled_run_asks_nobody_and_keeps_the_intent() {
    Seeds::new(10).simulate(async |sim: Sim| {
        let shop = Shop::default();
        let board = sim.board().agent("cashier", cashier(&shop, |effect| effect)).start().await?;
        let run = board.submit(Task::new("order 7")).await?;
        shop.is_charged().await;
        run.cancel("enough").await?;
        assert!(people::questions(&run).await.is_empty());
        let events = run.history().await?;
        let has = |is: fn(&RunEvent) -> bool| events.iter().any(is);
        assert!(has(|event| matches!(event, RunEvent::IntentRecorded { .. })));
        assert!(!has(|event| matches!(event, RunEvent::OutcomeUnknown { .. })));
        sim.assert_nothing_left().await;
        Ok(())
    });
}

#[test]
fn an_error_is_a_result_and_is_not_tried_again() {
    Seeds::new(10).simulate(async |sim: Sim| {
        let tries = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&tries);
        let agent = move |turn: Turn| {
            let tries = Arc::clone(&counted);
            async move {
                let work = async {
                    tries.fetch_add(1, Ordering::SeqCst);
                    Err::<String, _>(TurnError::transient("the card is refused"))
                };
                let first = turn.effect("charge").run(work).await.unwrap_err();
                assert_eq!(first.kind(), FailureKind::Terminal);
                // Another attempt receives the same error.
                if turn.attempt() == 1 {
                    return Err(TurnError::transient("the turn fails"));
                }
                Ok(Command::output(first.to_string()))
            }
        };
        let board = sim.board().agent("cashier", agent).start().await?;
        let result = board.submit(Task::new("order 7")).await?.result().await?;
        assert_eq!(result.output, "terminal error: the card is refused");
        assert_eq!((tries.load(Ordering::SeqCst), result.metrics.retries), (1, 1));
        Ok(())
    });
}

#[test]
fn work_that_panics_or_takes_too_long_is_asked_about() {
    Seeds::new(5).simulate(async |sim: Sim| {
        sim.time_limit(DAY * 30);
        let tries = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&tries);
        let agent = move |turn: Turn| {
            let tries = Arc::clone(&counted);
            async move {
                let work = async {
                    tries.fetch_add(1, Ordering::SeqCst);
                    if turn.input::<bool>()? {
                        panic!("the till is broken")
                    } else {
                        pending::<()>().await
                    }
                    Ok::<_, TurnError>(())
                };
                turn.effect("charge").run(work).await?;
                Ok(Command::new())
            }
        };
        let spec = AgentSpec::new("cashier", agent).timeout(Duration::from_secs(5));
        let board = sim.board().with(spec).start().await?;
        for (number, panics) in [(1, true), (2, false)] {
            let run = board.submit(Task::new("order").input(panics)).await?;
            let open = people::next_question(&run).await?.unwrap();
            board.people().answer(open.id, json!({ "done": null }), "ann").await?;
            assert!(run.result().await?.outcome.is_finished());
            assert_eq!(tries.load(Ordering::SeqCst), number);
        }
        Ok(())
    });
}

#[test]
fn who_waits_for_the_answer_holds_neither_permit_nor_slot() {
    Seeds::new(5).simulate(async |sim: Sim| {
        let shop = Shop::default();
        let of = |builder: callboard::Builder| {
            builder.pool(1).agent("other", |_: Turn| async { Ok(Command::output("went on")) })
        };
        let (board, run) = crashed_of(&sim, &shop, |effect| effect, of).await?;
        question(&board, run).await;
        let other = board.submit(Task::new("x").to("other")).await?;
        assert_eq!(other.result().await?.output, "went on");
        assert_eq!(people::questions(&board.run(run)).await.len(), 1);
        Ok(())
    });
}

/// A tool that pays, once outside of the node, and hangs the first time; it has these properties.
#[derive(Clone)]
struct Pay {
    shop: Shop,
    spec: ToolSpec,
    found: Option<Reconciled<ToolOutput>>,
}

impl Tool for Pay {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    fn call(&self, _: Json, _: ToolScope) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> {
        let paid = self.shop.clone().charge();
        async move { Ok(paid.await.map_err(|error| ToolError(error.to_string()))?.into()) }.boxed()
    }

    fn before(&self, _: Json) -> BoxFuture<'static, Json> {
        ready(json!({ "balance": 10 }).into()).boxed()
    }

    fn reconcile(
        &self,
        intent: Intent,
        arguments: Json,
        _: ToolScope,
    ) -> BoxFuture<'static, Result<Reconciled<ToolOutput>, ToolError>> {
        assert_eq!((&*intent.name, &*intent.target), ("pay", "ann"));
        assert_eq!((intent.before, arguments), (json!({ "balance": 10 }).into(), json!({ "to": "ann" }).into()));
        ready(Ok(self.found.clone().unwrap_or(Reconciled::Unknown))).boxed()
    }
}

fn pay(shop: &Shop) -> Pay {
    let schema = json!({ "type": "object", "properties": { "to": { "type": "string" } } });
    let spec = ToolSpec::new("pay", "Pays.", schema, Effect::Sends).target("to");
    Pay { shop: shop.clone(), spec, found: None }
}

/// Has a model pay, crashes the node while it does, and gives the board of the next life with the run and its model.
/// `rule` is a line of the agent's file.
async fn paid(sim: &Sim, pay: &Pay, rule: &str) -> Result<(Callboard, RunId, ScriptedModel), callboard::Error> {
    sim.time_limit(DAY * 30);
    let start = async |model: ScriptedModel| {
        let tools = Tools::new().with(pay.clone()).unwrap();
        let file = format!(
            "[agent]\nname = \"clerk\"\nmode = \"build\"\nsystem_prompt = \"You pay.\"\n[agent.capabilities]\n\
             allowed_tools = [\"pay\"]\n{rule}"
        );
        sim.board().with(models::agent(&file, model, &tools)).start().await
    };
    let call = ScriptedModel::new().calls("pay", json!({ "to": "ann" }));
    let board = start(call).await?;
    let run = board.submit(Task::new("pay ann")).await?.id();
    board.people().approve(people::approval(&board).await.id(), "ann").await.unwrap();
    pay.shop.is_charged().await;
    sim.crash().await;
    // The first model's answer may be lost with the crash; the intent comes after it and is on disk with everything before it.
    let model = ScriptedModel::new().says("done");
    let board = start(model.clone()).await?;
    board.recovered().await;
    Ok((board, run, model))
}

/// The tool result that the model received, once the run has finished.
async fn reported(board: &Callboard, run: RunId, model: &ScriptedModel) -> String {
    let result = board.run(run).result().await.unwrap();
    assert_eq!(result.output, "done", "{}", result.outcome);
    (*models::tool_answers(&model.requests()[0]).last().unwrap()).to_owned()
}

#[test]
fn a_tool_whose_result_was_lost_is_not_used_again_by_itself() {
    Seeds::new(10).simulate(async |sim: Sim| {
        let tool = pay(&Shop::default());
        let (board, run, model) = paid(&sim, &tool, "").await?;
        let open = question(&board, run).await;
        let text = open.question.get("question").unwrap().as_str().unwrap().to_owned();
        assert!(text.starts_with("pay ann was begun, and its result was lost"), "{text}");
        board.people().answer(open.id, json!({ "done": "paid as ann says" }), "ann").await?;
        assert_eq!(reported(&board, run, &model).await, "paid as ann says");
        assert_eq!(tool.shop.charged(), 1);

        // The rule is set by the tool, or by the agent's file if the tool sets none.
        for (of_tool, of_file) in [(Some(OnUnknown::Report), "repeat"), (None, "report")] {
            let mut tool = pay(&Shop::default());
            tool.spec.on_unknown = of_tool;
            let (board, run, model) = paid(&sim, &tool, &format!("on_unknown = \"{of_file}\"")).await?;
            let said = reported(&board, run, &model).await;
            assert!(said.starts_with("pay may have run:"), "{said}");
            assert_eq!(tool.shop.charged(), 1);
        }

        let mut tool = pay(&Shop::default());
        tool.found = Some(Reconciled::Done("found out".into()));
        let (board, run, model) = paid(&sim, &tool, "").await?;
        assert_eq!(reported(&board, run, &model).await, "found out");
        assert_eq!(tool.shop.charged(), 1);
        Ok(())
    });
}

#[test]
fn an_idempotent_tool_runs_again_whether_its_spec_or_its_agent_declares_it() {
    Seeds::new(5).simulate(async |sim: Sim| {
        let mut tool = pay(&Shop::default());
        tool.spec.class = EffectClass::Idempotent;
        let (board, run, model) = paid(&sim, &tool, "").await?;
        assert_eq!((reported(&board, run, &model).await, tool.shop.charged()), ("receipt 1".to_owned(), 2));
        let tool = pay(&Shop::default());
        let (board, run, model) = paid(&sim, &tool, "idempotent = [\"pay\"]").await?;
        assert_eq!((reported(&board, run, &model).await, tool.shop.charged()), ("receipt 1".to_owned(), 2));
        Ok(())
    });
}
