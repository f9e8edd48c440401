//! What people are asked expires: when, who is reminded, and what the turn that asked receives (SEMANTICS 9).

use std::sync::Arc;
use std::time::Duration;

use callboard::AnswerError;
use callboard::actors::approvals::{Channel, Decider};
use callboard::env::Env;
use callboard::messages::{
    Action, ApprovalId, Consent, Decision, Envelope, Message, Question, Refusal, RunEvent, SendTo, Timestamp,
};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunHandle, Unfinished};
use callboard::storage::Key;
use callboard::testing::{Seeds, Sim};
use callboard_agents::Tools;
use callboard_agents::testing::ScriptedModel;
use parking_lot::Mutex;
use serde_json::json;

use crate::common::{Counter, World, comes_true, found, models, people};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A world, and what a channel of its boards was shown.
struct Stage {
    world: World,
    reported: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    fn new() -> Self {
        Self { world: World::new(), reported: Arc::default() }
    }

    fn now(&self) -> Timestamp {
        self.world.env.now().wall
    }

    /// A board whose agent asks for consent to the action in its input, and hands nothing off.
    fn board(&self) -> Builder {
        let env = self.world.env.clone();
        let diary = Diary { reported: Arc::clone(&self.reported), began: env.now().monotonic, env };
        self.world.board().channel(diary).agent("writer", |turn: Turn| async move {
            let target: String = turn.input()?;
            Ok(Command::output(match turn.people().approve(Action::new("write_file", &target, "x")).await {
                Ok(_) => "written".to_owned(),
                Err(error) => error.to_string(),
            }))
        })
    }

    fn reported(&self) -> Vec<String> {
        std::mem::take(&mut *self.reported.lock())
    }
}

/// Notes what it is shown, and after how many hours.
struct Diary {
    reported: Arc<Mutex<Vec<String>>>,
    env: Env,
    began: Duration,
}

impl Diary {
    fn note(&self, what: &str, envelope: &Envelope) {
        let hours = (self.env.now().monotonic - self.began).as_secs() / 3600;
        self.reported.lock().push(format!("{what} {} after {hours} h", envelope.action.target));
    }
}

impl Channel for Diary {
    fn name(&self) -> &str {
        "diary"
    }

    fn ask(&self, envelope: &Envelope, _: &Decider) {
        self.note("asked about", envelope);
    }

    fn settled(&self, envelope: &Envelope, decision: Option<&Decision>) {
        self.note(decision.map_or("withdrawn", |decision| &decision.by), envelope);
    }

    fn remind(&self, envelope: &Envelope, decider: &Decider) {
        assert!(decider.open().contains(envelope), "people can decide it yet");
        self.note("reminded of", envelope);
    }
}

async fn ask(board: &Callboard, task: Task) -> (RunHandle, Envelope) {
    let run = board.submit(task.to("writer")).await.unwrap();
    (run, people::approval(board).await)
}

#[tokio::test(start_paused = true)]
async fn the_policy_decides_when_an_approval_expires_before_the_task_and_the_board_do() {
    let stage = Stage::new();
    let board = stage
        .board()
        .approval_ttl(DAY * 3)
        .approval_policy(|question| match &*question.action.target {
            "soon" => Consent::AskWithin(HOUR),
            _ => Consent::Ask,
        })
        .start()
        .await
        .unwrap();
    for (target, of_task, expected) in
        [("some day", None, DAY * 3), ("some day", Some(DAY), DAY), ("soon", None, HOUR), ("soon", Some(DAY), HOUR)]
    {
        let mut task = Task::new("x").input(target);
        task.approval_ttl = of_task;
        let asked_at = stage.now();
        let (run, envelope) = ask(&board, task).await;
        assert_eq!(envelope.expires_at, asked_at + expected, "{target} {of_task:?}");
        let output = run.result().await.unwrap().output;
        assert_eq!(stage.now(), asked_at + expected);
        assert!(output.as_str().unwrap().contains("the approval of write_file"), "{output}");
    }
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_parked_handoff_expires_as_the_policy_and_the_task_say() {
    let stage = Stage::new();
    let board = stage
        .board()
        .agent("lead", |_: Turn| async { Ok(Command::new().goto_many([SendTo::new("b", 1), SendTo::new("c", 2)])) })
        .agent("b", |_: Turn| async { Ok(Command::new()) })
        .agent("c", |_: Turn| async { Ok(Command::new()) })
        .approval_policy(|question| match &*question.action.target {
            "b" => Consent::AskWithin(HOUR * 2),
            _ => Consent::AskWithin(HOUR),
        })
        .start()
        .await
        .unwrap();
    let asked_at = stage.now();
    let run = board.submit(Task::new("x").to("lead").approval_ttl(DAY)).await.unwrap();
    assert_eq!(people::approval(&board).await.expires_at, asked_at + HOUR, "the shortest time counts");
    assert!(matches!(run.result().await.unwrap().outcome, Outcome::Denied { .. }));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_question_about_a_lost_outcome_expires_as_the_task_sets() {
    // A simulation has a runtime of its own.
    std::thread::spawn(|| {
        Seeds::new(2).simulate(async |sim: Sim| {
            sim.time_limit(DAY * 30);
            let began = Counter::default();
            let count = began.clone();
            let cashier = move |turn: Turn| {
                let began = count.clone();
                async move {
                    let charge = async {
                        began.count();
                        std::future::pending::<Result<(), TurnError>>().await
                    };
                    turn.effect("charge").run(charge).await?;
                    Ok(Command::new())
                }
            };
            let start = || sim.board().agent("cashier", cashier.clone()).start();
            let board = start().await?;
            let run = board.submit(Task::new("x").approval_ttl(HOUR)).await?.id();
            comes_true(async || began.get() > 0).await;
            sim.crash().await;
            let board = start().await?;
            board.recovered().await;
            let open = people::next_question(&board.run(run)).await?.unwrap();
            assert_eq!(open.expires_at, Some(open.asked_at + HOUR), "the store keeps what the task says");
            assert!(board.run(run).result().await?.outcome.to_string().contains("outcome unknown"));
            Ok(())
        });
    })
    .join()
    .unwrap();
}

#[tokio::test(start_paused = true)]
async fn people_are_reminded_once_before_an_approval_expires() {
    let stage = Stage::new();
    let board = stage.board().start().await.unwrap();
    let (run, _) = ask(&board, Task::new("x").input("a")).await;
    run.result().await.unwrap();
    assert_eq!(stage.reported(), ["asked about a after 0 h", "reminded of a after 144 h", "expiry a after 168 h"]);
    let (run, envelope) = ask(&board, Task::new("x").input("b").approval_ttl(HOUR * 4)).await;
    tokio::time::sleep(HOUR).await;
    board.people().approve(envelope.id(), "ann").await.unwrap();
    run.result().await.unwrap();
    tokio::time::sleep(DAY).await;
    assert_eq!(
        stage.reported(),
        ["asked about b after 168 h", "ann b after 169 h"],
        "what is decided needs no reminder"
    );
    board.shutdown().await;

    let board = stage.board().timings(|timings| timings.remind_before(Duration::ZERO)).start().await.unwrap();
    let (run, _) = ask(&board, Task::new("x").input("c").approval_ttl(HOUR * 4)).await;
    run.result().await.unwrap();
    assert_eq!(stage.reported(), ["asked about c after 0 h", "expiry c after 4 h"]);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_person_who_is_asked_again_by_a_later_process_is_reminded_if_the_moment_is_yet_to_come() {
    let stage = Stage::new();
    let board = stage.board().start().await.unwrap();
    ask(&board, Task::new("x").input("a").approval_ttl(HOUR * 4)).await;
    tokio::time::sleep(HOUR).await;
    board.shutdown().await;
    // The moment is after two hours.
    for (hours, expected) in [
        (2, ["asked about a after 0 h", "reminded of a after 1 h"].as_slice()),
        (2, &["asked about a after 0 h", "expiry a after 1 h"]),
    ] {
        stage.reported();
        let board = stage.board().start().await.unwrap();
        board.recovered().await;
        tokio::time::sleep(HOUR * hours).await;
        let reported = stage.reported();
        assert_eq!(reported[..2], *expected, "{reported:?}");
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_expired_while_no_process_ran_is_asked_of_nobody() {
    let stage = Stage::new();
    let board = stage.board().start().await.unwrap();
    let (run, envelope) = ask(&board, Task::new("x").input("a").approval_ttl(HOUR)).await;
    let run = run.id();
    board.shutdown().await;
    stage.reported();
    tokio::time::sleep(HOUR * 2).await;
    let board = stage.board().start().await.unwrap();
    assert!(people::approvals(&board).await.is_empty());
    let output = board.run(run).result().await.unwrap().output;
    assert!(
        output.as_str().unwrap().contains("the approval of write_file a expired before anybody decided"),
        "{output}"
    );
    assert_eq!(stage.reported(), [""; 0]);
    let decision = board.people().decision(envelope.id()).await.unwrap().unwrap();
    assert_eq!((decision.approved, &*decision.by), (false, "expiry"));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_question_that_has_expired_while_no_process_ran_is_asked_of_nobody() {
    let stage = Stage::new();
    let start = || {
        let host = AgentSpec::new("host", |turn: Turn| async move {
            Ok(Command::output(match turn.people().ask("Who is there?").await {
                Ok(answer) => answer.to_string(),
                Err(error) => error.to_string(),
            }))
        });
        stage.board().with(host.question_ttl(HOUR))
    };
    let board = start().start().await.unwrap();
    let run = board.submit(Task::new("x").to("host")).await.unwrap();
    let open = people::question(&run).await;
    let run = run.id();
    board.shutdown().await;
    tokio::time::sleep(HOUR).await;

    // As soon as a process has it, before an event reports the expiry.
    let board = start().on_unfinished(Unfinished::Leave).start().await.unwrap();
    let run = board.take_up(run).await;
    found(async || run.read().await.ok()).await;
    assert_eq!(people::questions(&run).await, [], "{open:?}");
    assert_eq!(people::next_question(&run).await.unwrap(), None);
    let output = run.result().await.unwrap().output;
    assert!(output.as_str().unwrap().contains("before it expired"), "{output}");

    let late = board.submit(Task::new("x").to("host")).await.unwrap();
    people::question(&late).await;
    tokio::time::advance(HOUR).await;
    assert_eq!(people::questions(&late).await, [], "its board has yet to note the expiry");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_decision_is_kept_for_its_approval_s_life_and_sixty_days() {
    let stage = Stage::new();
    let board = stage.board().start().await.unwrap();
    let key = |id: ApprovalId| Key::new(["approval", &*id.to_string()]);
    for life in [HOUR, DAY * 100] {
        let (run, envelope) = ask(&board, Task::new("x").input("a").approval_ttl(life)).await;
        board.people().approve(envelope.id(), "ann").await.unwrap();
        run.result().await.unwrap();
        let kept = stage.world.storage.get(&key(envelope.id())).await.unwrap().unwrap().expires_at.unwrap();
        let expected = envelope.expires_at + DAY * 60;
        // Storage rounds up to whole seconds.
        assert!(kept >= expected && kept <= expected + Duration::from_secs(1), "{kept} {expected}");
    }
    board.shutdown().await;
}

/// Asks two questions: one with a time to live, and one without.
fn curious(builder: Builder) -> Builder {
    let spec = AgentSpec::new("curious", |turn: Turn| async move {
        let asked = match turn.input::<Option<u64>>()? {
            Some(hours) => turn.people().ask_within("Which colour?", HOUR * u32::try_from(hours).unwrap()).await,
            None => turn.people().ask("Which colour?").await,
        };
        match asked {
            Ok(colour) => Ok(Command::output(colour)),
            Err(error) => match error.refusal() {
                Some(Refusal::QuestionExpired { .. }) => Ok(Command::output(error.to_string())),
                Some(_) | None => Err(error),
            },
        }
    });
    builder.with(spec.question_ttl(DAY))
}

async fn question(board: &Callboard, input: Json) -> (RunHandle, Question) {
    let run = board.submit(Task::new("x").to("curious").input(input)).await.unwrap();
    let question = people::question(&run).await;
    (run, question)
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_answers_in_time_gives_its_turn_a_refusal() {
    let stage = Stage::new();
    let board = curious(stage.board()).start().await.unwrap();
    for (input, life) in [(json!(2), HOUR * 2), (json!(null), DAY)] {
        let asked_at = stage.now();
        let (run, open) = question(&board, input.into()).await;
        assert_eq!(open.expires_at, Some(asked_at + life));
        let result = run.result().await.unwrap();
        assert_eq!(stage.now(), asked_at + life);
        let reported = result.output.as_str().unwrap();
        assert!(reported.ends_with("nobody answered \"Which colour?\" before it expired"), "{reported}");
        assert_eq!(result.metrics.retries, 0);
    }
    let (run, open) = question(&board, json!(2).into()).await;
    board.people().answer(open.id, "red", "ann").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, "red");
    tokio::time::sleep(DAY).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_question_expires_also_while_no_process_runs_and_keeps_its_time_over_a_restart() {
    let stage = Stage::new();
    let start = || curious(stage.board()).start();
    for (away, is_answered) in [(HOUR, true), (HOUR, false), (HOUR * 3, false)] {
        let board = start().await.unwrap();
        let (run, first) = question(&board, json!(2).into()).await;
        let run = run.id();
        board.shutdown().await;
        tokio::time::sleep(away).await;
        let board = start().await.unwrap();
        board.recovered().await;
        if is_answered {
            let open = people::question(&board.run(run)).await;
            assert_eq!(open, first);
            board.people().answer(open.id, "red", "ann").await.unwrap();
        }
        let output = board.run(run).result().await.unwrap().output;
        assert_eq!(output == "red", is_answered, "{output}");
        let late = board.people().answer(first.id, "blue", "bob").await;
        assert!(matches!(late, Err(AnswerError::NotOpen(_))), "{late:?}");
        let expired = |event: &RunEvent| match event {
            RunEvent::QuestionExpired { at, .. } => Some(*at),
            _ => None,
        };
        let expired = board.run(run).history().await.unwrap().iter().find_map(expired);
        assert_eq!(expired, (!is_answered).then(|| first.asked_at + (HOUR * 2).max(away)));
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_to_a_question_that_has_expired_is_a_typed_error() {
    let stage = Stage::new();
    let board = stage
        .board()
        .agent("curious", |turn: Turn| async move {
            let first = turn.people().ask_within("quick?", HOUR).await;
            let second = turn.people().ask("slow?").await?;
            let expired = first.unwrap_err().refusal().map(Refusal::name);
            Ok(Command::output(json!([expired, second])))
        })
        .start()
        .await
        .unwrap();
    let (run, quick) = question(&board, json!(null).into()).await;
    board.people().closed(quick.id).await;
    assert_eq!(stage.now(), quick.asked_at + HOUR);
    let late = board.people().answer(quick.id, 1, "ann").await;
    assert_eq!(late, Err(AnswerError::Expired { id: quick.id.into(), at: quick.asked_at + HOUR }));
    let slow = people::question(&run).await;
    assert_eq!(slow.expires_at, None);
    board.people().answer(slow.id, 2, "ann").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, json!(["QuestionExpired", 2]));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_model_whose_question_expires_is_notified_and_continues() {
    let source =
        "[agent]\nname = \"painter\"\n[agent.capabilities]\nallowed_tools = [\"AskUser\"]\nquestion_ttl = \"2h\"\n";
    let definition = models::definition(source);
    assert_eq!(definition.question_ttl, Some(HOUR * 2));
    let model = ScriptedModel::new().calls("AskUser", json!({ "question": "Which colour?" })).says("white, then");
    let agent = models::agent_of(&definition, model.clone(), &Tools::new(), &[]);
    let stage = Stage::new();
    let board = stage.board().with(agent).start().await.unwrap();
    let run = board.submit(Task::new("paint").to("painter")).await.unwrap();
    let asked_at = stage.now();
    assert_eq!(run.result().await.unwrap().output, "white, then");
    assert_eq!(stage.now(), asked_at + HOUR * 2);
    let requests = model.requests();
    let Some(Message::Tool { text, is_error: true, .. }) = requests[1].messages.last() else { panic!("{requests:#?}") };
    assert_eq!(&**text, "nobody answered in time; go on without an answer");
    board.shutdown().await;
}
