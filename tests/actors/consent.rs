//! What people and policies may do to approvals that nobody expects (SEMANTICS 9).

use std::sync::Arc;

use crate::common::diary::Diary;
use crate::common::faults::FaultPlan;
use crate::common::{Counter, Shaky, broken, builder, finish, pass, people, quiet, secs, until};
use callboard::AnswerError;
use callboard::actors::approvals::{Channel, Decider};
use callboard::env::Env;
use callboard::messages::{Action, Consent, Decision, Envelope, RunEvent, SendTo};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunHandle};
use callboard::storage::Storage;
use parking_lot::Mutex;
use serde_json::json;

fn write(text: &str) -> Action {
    Action::new("write_file", "REVIEW.md", json!({ "text": text }))
}

/// Asks for consent, and returns the result.
async fn writer(turn: Turn) -> Result<Command, TurnError> {
    Ok(Command::output(match turn.people().approve(write("the review")).await {
        Ok(action) => action.to_string(),
        Err(error) => error.to_string(),
    }))
}

/// A lead that hands off, under a policy.
fn handing_off(builder: Builder, consent: Consent) -> Builder {
    builder
        .agent("lead", |_: Turn| async { Ok(Command::output("plan").with("note", "mine").goto("writer")) })
        .agent("writer", |turn: Turn| async move { Ok(Command::output(json!(["written", turn.input_json()]))) })
        .approval_policy(
            move |question| if &*question.action.action == "handoff" { consent.clone() } else { Consent::Auto },
        )
}

async fn parked(run: &RunHandle) -> Envelope {
    let is_parked = |event: &RunEvent| {
        matches!(event, RunEvent::TurnEnded { verdict: callboard::messages::Verdict::Parked(_), .. })
    };
    match until(run, is_parked).await {
        RunEvent::TurnEnded { verdict: callboard::messages::Verdict::Parked(envelope), .. } => *envelope,
        _ => unreachable!(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_parked_fan_out_is_one_question() {
    let board = handing_off(builder(), Consent::Ask)
        .agent("wide", |_: Turn| async { Ok(Command::new().goto_many([1, 2].map(|n| SendTo::new("writer", n)))) })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("wide")).await.unwrap();
    let envelope = parked(&run).await;
    assert_eq!(envelope.action, Action::new("handoff", "writer, writer", json!([1, 2])));
    board.people().approve(envelope.id(), "ann").await.unwrap();
    assert_eq!(run.result().await.unwrap().output, json!([["written", 1], ["written", 2]]));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_panics_denies() {
    let board = builder().agent("writer", writer).approval_policy(|_| panic!("out of luck")).start().await.unwrap();
    let output = finish(&board, Task::new("x")).await.output;
    assert_eq!(output, json!("denied: write_file REVIEW.md was denied by policy"));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn changed_arguments_do_not_use_an_approval_again() {
    let board = builder()
        .agent("writer", |turn: Turn| async move {
            let approved = turn.people().approve(write(if turn.attempt() == 1 { "this" } else { "that" })).await?;
            assert_eq!(approved, write("this"), "it goes ahead with what nobody has approved");
            Err::<Command, _>(broken().into())
        })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    let open = people::approval(&board).await;
    board.people().approve(open.id(), "ann").await.unwrap();
    until(&run, |event| matches!(event, RunEvent::NeedsAttention { .. })).await;
    run.cancel("changed").await.unwrap();
    board.shutdown().await;
}

/// All of them find the question open; the store takes its time over each.
#[tokio::test(start_paused = true)]
async fn of_decisions_that_meet_in_the_store_the_first_wins() {
    let env = Env::repeatable(7);
    let store: Arc<dyn Storage> = Arc::new(Shaky::new(&env, 0));
    let board = builder().env(env).storage(store).agent("writer", writer).start().await.unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    until(&run, |event| matches!(event, RunEvent::ApprovalAsked { .. })).await;
    quiet().await;
    let (id, people) = (people::approvals(&board).await[0].id(), board.people());
    let (denied, approved, late) =
        tokio::join!(people.deny(id, "bob", "no"), people.approve(id, "ann"), people.deny(id, "cat", "never"));
    let first = denied.unwrap().decision.unwrap();
    assert_eq!(approved, Err(AnswerError::AlreadyDecided { decision: first.clone() }));
    assert_eq!(late, Err(AnswerError::AlreadyDecided { decision: first }));
    assert_eq!(run.result().await.unwrap().output, json!("denied: write_file REVIEW.md was denied by bob: no"));
    board.shutdown().await;
}

/// Records the questions that it was shown; panics once.
struct Noticeboard(Arc<Mutex<Vec<String>>>, Counter);

impl Channel for Noticeboard {
    fn name(&self) -> &str {
        "board"
    }

    fn ask(&self, envelope: &Envelope, decider: &Decider) {
        if self.1.count() == 0 {
            panic!("out of luck");
        }
        self.0.lock().push(format!("asked {}", envelope.action));
        let (id, decider) = (envelope.id(), decider.clone());
        tokio::spawn(async move { decider.approve(id, "the board").await });
    }

    fn settled(&self, envelope: &Envelope, decision: Option<&Decision>) {
        let verdict = decision.map_or("withdrawn", |decision| if decision.approved { "approved" } else { "denied" });
        self.0.lock().push(format!("{verdict} {}", envelope.action));
    }
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_panics_is_shown_what_is_open_when_it_is_back() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let channel = Noticeboard(Arc::clone(&reported), Counter::default());
    let board = builder().agent("writer", writer).channel(channel).start().await.unwrap();
    assert_eq!(finish(&board, Task::new("x")).await.output, json!("write_file REVIEW.md"));
    quiet().await;
    assert_eq!(*reported.lock(), ["asked write_file REVIEW.md", "approved write_file REVIEW.md"]);
    board.shutdown().await;
}

/// Approves what it is asked, and takes the card down, whatever comes of it.
struct Hasty(Arc<Mutex<Vec<String>>>);

impl Channel for Hasty {
    fn name(&self) -> &str {
        "hasty"
    }

    fn ask(&self, envelope: &Envelope, decider: &Decider) {
        self.0.lock().push("asked".to_owned());
        let (id, decider) = (envelope.id(), decider.clone());
        tokio::spawn(async move { decider.approve(id, "hasty").await });
    }

    fn settled(&self, _: &Envelope, decision: Option<&Decision>) {
        self.0.lock().push(decision.map_or("withdrawn".to_owned(), |decision| format!("settled by {}", decision.by)));
    }
}

fn failing_decisions(faults: &[bool]) -> (Builder, Arc<Shaky>) {
    let env = Env::repeatable(7);
    let store = Arc::new(Shaky::new(&env, 0));
    store.decision_faults.lock().extend_from_slice(faults);
    let shared: Arc<dyn Storage> = Arc::<Shaky>::clone(&store);
    (builder().env(env).storage(shared).agent("writer", writer), store)
}

#[tokio::test(start_paused = true)]
async fn who_decides_while_the_store_fails_is_asked_again() {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let (builder, store) = failing_decisions(&[false, false]);
    let board = builder.channel(Hasty(Arc::clone(&reported))).start().await.unwrap();
    assert_eq!(finish(&board, Task::new("x")).await.output, json!("write_file REVIEW.md"));
    quiet().await;
    assert_eq!(*reported.lock(), ["asked", "asked", "asked", "settled by hasty"]);
    assert!(store.decision_faults.lock().is_empty());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_decision_that_was_stored_and_not_acknowledged_reaches_its_run() {
    let (builder, _store) = failing_decisions(&[true]);
    let board = builder.start().await.unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    until(&run, |event| matches!(event, RunEvent::ApprovalAsked { .. })).await;
    quiet().await;
    let id = people::approvals(&board).await[0].id();
    let lost = board.people().approve(id, "ann").await.unwrap_err();
    assert!(matches!(lost, AnswerError::Storage(_)), "{lost:?}");
    assert_eq!(run.result().await.unwrap().output, json!("write_file REVIEW.md"));
    let late = board.people().deny(id, "bob", "").await.unwrap_err();
    assert!(matches!(&late, AnswerError::AlreadyDecided { decision } if &*decision.by == "ann"), "{late:?}");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_expiry_that_meets_a_failing_store_is_tried_again() {
    let (builder, store) = failing_decisions(&[true, false]);
    let board = builder.approval_ttl(secs(3600)).start().await.unwrap();
    let output = finish(&board, Task::new("x")).await.output;
    assert_eq!(output, json!("denied: the approval of write_file REVIEW.md expired before anybody decided"));
    assert!(store.decision_faults.lock().is_empty());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_looks_up_what_it_missed_continues_showing_questions_however_slow_the_store_is() {
    let (diary, next_message) = (Diary::default(), FaultPlan::default());
    let env = next_message.env();
    let store = Arc::new(Shaky::new(&env, 0));
    let shared: Arc<dyn Storage> = Arc::<Shaky>::clone(&store);
    let asker = |turn: Turn| async move {
        Ok(Command::output(turn.people().approve(Action::new(&turn.task().body, "it", ())).await?.arguments))
    };
    let board = builder().env(env).storage(shared).agent("asker", asker).channel(diary.clone());
    let board = board.start().await.unwrap();
    let ask = async |what: &str| {
        let run = board.submit(Task::new(what)).await.unwrap();
        until(&run, |event| matches!(event, RunEvent::ApprovalAsked { .. })).await;
        quiet().await;
        run
    };
    let first = ask("read").await;
    *store.decision_reads_take.lock() = secs(60);
    next_message.panic_at("channel.handle");
    // The channel crashes over the news, and finds in the store what they were.
    board.people().approve(people::approvals(&board).await[0].id(), "ann").await.unwrap();
    assert_eq!(first.result().await.unwrap().outcome, Outcome::Finished);
    pass(secs(2)).await;
    let _next = ask("write").await;
    assert_eq!(diary.notes(), ["asked read it", "asked write it"]);
    pass(secs(60)).await;
    assert_eq!(diary.notes()[2..], ["settled read it by ann"]);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_or_a_reason_too_long_to_be_shown_is_refused_and_nothing_is_decided() {
    let board = builder()
        .agent("writer", |turn: Turn| async move {
            let answer = turn.people().ask("which?").await?;
            Ok(Command::output(json!([answer, turn.people().approve(write("the review")).await?.to_string()])))
        })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    let (name, long_name) = ("é".repeat(128), "é".repeat(129));
    let (reason, long_reason) = ("a".repeat(4_096), "a".repeat(1 << 20));
    let reported = "the name of who decides has 129 characters; at most 128 are allowed; name a person or a service";
    let question = people::question(&run).await.id;
    assert_eq!(board.people().answer(question, "this", &long_name).await.unwrap_err().to_string(), reported);
    assert_eq!(run.resume_with([("x", 1)], &long_name).await.unwrap_err().to_string(), reported);
    board.people().answer(question, "this", &name).await.unwrap();

    let (id, people) = (people::approval(&board).await.id(), board.people());
    assert_eq!(people.approve(id, &long_name).await.unwrap_err().to_string(), reported);
    assert_eq!(people.deny(id, &long_name, "").await.unwrap_err().to_string(), reported);
    let reported =
        "the reason has 1048576 characters; at most 4096 are allowed; say it in short, and where the rest is";
    assert_eq!(people.deny(id, "ann", &long_reason).await.unwrap_err().to_string(), reported);
    assert_eq!(run.cancel(&long_reason).await.unwrap_err().to_string(), reported);
    people.deny(id, &name, &reason).await.unwrap();
    let result = run.result().await.unwrap();
    assert!(matches!(&result.outcome, Outcome::Denied { reason: said } if said.contains(&reason)), "{result}");
    let stopped = board.submit(Task::new("x")).await.unwrap();
    assert!(stopped.cancel(&reason).await.unwrap());
    board.shutdown().await;
}
