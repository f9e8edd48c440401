//! The test kit: it waits for what it expects, and a failure reports what was expected and what came.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use crate::common::{assert_nothing_left, builder, finish, people, secs};
use callboard::env::Env;
use callboard::messages::{Action, Consent, FailureKind, RunEvent};
use callboard::prelude::*;
use callboard::supervision::tree::{
    ChildRef, ChildSpec, Intensity, RestartBackoff, Supervisor, SupervisorSpec, TreeEvent, TreeEventKind,
};
use callboard::testing::{Gate, Probe, Script, Seeds, Sim, TreeRecorder};
use futures::FutureExt;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use serde_json::json;

/// The text with which an expectation fails.
async fn failure<T>(expectation: impl Future<Output = T>) -> String {
    let Err(panic) = AssertUnwindSafe(expectation).catch_unwind().await else { panic!("it holds") };
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap()
}

/// Passes letters on, and loses its nerve over one of them.
struct Clerk;

#[derive(Debug, PartialEq)]
enum Letter {
    To(&'static str),
    Bomb,
}

impl Actor for Clerk {
    type Msg = Letter;
    type State = Option<ActorRef<Letter>>;
    type Arguments = Option<ActorRef<Letter>>;

    async fn pre_start(
        &self,
        _: ActorRef<Letter>,
        next: Option<ActorRef<Letter>>,
    ) -> Result<Option<ActorRef<Letter>>, ActorProcessingErr> {
        Ok(next)
    }

    async fn handle(
        &self,
        _: ActorRef<Letter>,
        letter: Letter,
        next: &mut Option<ActorRef<Letter>>,
    ) -> Result<(), ActorProcessingErr> {
        match (letter, next) {
            (Letter::Bomb, _) => panic!("boom"),
            (letter, Some(next)) => next.cast(letter)?,
            (Letter::To(_), None) => {}
        }
        Ok(())
    }
}

async fn clerk(next: &Probe<Letter>) -> ActorRef<Letter> {
    Actor::spawn(None, Clerk, Some(next.actor())).await.unwrap().0
}

#[tokio::test(start_paused = true)]
async fn a_probe_gives_what_code_under_test_sends_in_order() {
    let probe = Probe::spawn().await;
    let clerk = clerk(&probe).await;
    for name in ["ann", "bob", "cat", "dan"] {
        clerk.cast(Letter::To(name)).unwrap();
    }
    assert_eq!(probe.expect_message(secs(1)).await, Letter::To("ann"));
    assert_eq!(probe.expect_message_where(secs(1), |letter| *letter == Letter::To("cat")).await, Letter::To("cat"));
    assert_eq!(probe.expect_message(secs(1)).await, Letter::To("bob"), "what came before it stays");
    let _ = probe.expect_message_where(secs(1), |letter| *letter == Letter::To("dan")).await;
    clerk.cast(Letter::To("eve")).unwrap();
    clerk.cast(Letter::To("fay")).unwrap();
    clerk.drain().unwrap();
    probe.expect_terminated(clerk, secs(1)).await;
    probe.actor().drain().unwrap();
    probe.expect_terminated(probe.actor(), secs(1)).await;
    assert_eq!(probe.received(), [Letter::To("eve"), Letter::To("fay")]);
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_has_ended_reports_it() {
    let probe = Probe::<Letter>::spawn().await;
    probe.actor().kill();
    probe.expect_terminated(probe.actor(), secs(1)).await;
    let text = failure(probe.expect_no_message(secs(5))).await;
    assert!(text.contains("expected no message for 5s; the probe has ended, so none could come"), "{text}");
    let text = failure(probe.expect_message(secs(5))).await;
    assert!(text.contains("within 5s; nothing came, and the probe has ended"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_probe_waits_for_a_message_that_comes_later_and_no_longer_than_its_limit() {
    let probe = Probe::spawn().await;
    let actor = probe.actor();
    actor.send_after(secs(60), || Letter::To("ann"));
    probe.expect_no_message(secs(59)).await;
    assert_eq!(probe.expect_message(secs(2)).await, Letter::To("ann"));
    actor.send_after(secs(60), || Letter::To("bob"));
    assert!(failure(probe.expect_message(secs(59))).await.contains("within 59s; nothing came"));
}

#[tokio::test(start_paused = true)]
async fn a_failed_expectation_of_a_probe_reports_its_place_and_what_came() {
    let probe = Probe::spawn().await;
    let text = failure(probe.expect_message(secs(5))).await;
    assert!(text.starts_with("tests/simulation/test_kit.rs:"), "{text}");
    assert!(text.contains("expected a message (simulation::test_kit::Letter) within 5s; nothing came"), "{text}");

    probe.actor().cast(Letter::To("ann")).unwrap();
    let text = failure(probe.expect_no_message(secs(5))).await;
    assert!(text.contains("expected no message for 5s; this came: To(\"ann\")"), "{text}");

    probe.actor().cast(Letter::To("bob")).unwrap();
    let text = failure(probe.expect_message_where(secs(5), |letter| *letter == Letter::Bomb)).await;
    assert!(text.contains("that fits within 5s; these came:\n    To(\"ann\")\n    To(\"bob\")"), "{text}");
    assert_eq!(probe.received().len(), 2, "a failed expectation takes nothing");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_actor_is_seen_whether_it_stopped_was_killed_failed_or_had_ended_before() {
    let probe = Probe::spawn().await;
    let (stopped, killed, failed) = (clerk(&probe).await, clerk(&probe).await, clerk(&probe).await);
    let text = failure(probe.expect_terminated(stopped.clone(), secs(5))).await;
    assert!(text.contains("expected the end of actor 0.") && text.contains("within 5s; it is Running"), "{text}");
    stopped.stop(None);
    killed.kill();
    failed.cast(Letter::Bomb).unwrap();
    for actor in [stopped, killed, failed] {
        probe.expect_terminated(actor.clone(), secs(1)).await;
        probe.expect_terminated(actor, Duration::ZERO).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_hears_of_other_threads_by_real_time_too() {
    let probe = Probe::spawn().await;
    let actor = probe.actor();
    let sender = std::thread::spawn(move || (0..1_000).for_each(|_| actor.cast(Letter::To("ann")).unwrap()));
    for _ in 0..1_000 {
        probe.expect_message(secs(30)).await;
    }
    sender.join().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_supervised_probe_records_on_after_its_restart() {
    let probe = Probe::spawn().await;
    let (child, reference) = probe.child("desk");
    let tree =
        Supervisor::start_in(SupervisorSpec::one_for_one("office").child(child), Env::repeatable(7)).await.unwrap();
    let recorder = TreeRecorder::new(tree.subscribe());
    reference.cast(Letter::To("ann")).unwrap();
    assert_eq!(probe.expect_message(secs(1)).await, Letter::To("ann"));
    reference.cell().unwrap().kill();
    recorder.expect("office/desk", is_restarted, secs(5)).await;
    reference.cast(Letter::To("bob")).unwrap();
    assert_eq!(probe.expect_message(secs(1)).await, Letter::To("bob"));
    tree.stop().await;
}

/// Two clerks that go down together, and one beside them.
async fn office() -> (Supervisor, ChildRef<Letter>) {
    let (ann, ann_ref) = ChildSpec::actor("ann", || (Clerk, None));
    let [bob, cat] = ["bob", "cat"].map(|name| ChildSpec::actor(name, || (Clerk, None)).0);
    let desk = SupervisorSpec::one_for_all("desk")
        .intensity(Intensity::new(2, secs(60)))
        .backoff(RestartBackoff { base: secs(1), cap: secs(1), jitter: 0.5 })
        .child(ann)
        .child(bob);
    let office = SupervisorSpec::one_for_one("office").child(ChildSpec::supervisor(desk).0).child(cat);
    (Supervisor::start_in(office, Env::repeatable(7)).await.unwrap(), ann_ref)
}

fn is_restarted(kind: &TreeEventKind) -> bool {
    matches!(kind, TreeEventKind::Restarted)
}

#[tokio::test(start_paused = true)]
async fn a_recorder_expects_one_event_after_the_other_and_draws_what_happened_without_times() {
    let (office, ann) = office().await;
    let recorder = TreeRecorder::new(office.subscribe());
    for generation in [2, 3] {
        ann.cast(Letter::Bomb).unwrap();
        let restarted = recorder.expect("office/desk/ann", is_restarted, secs(5)).await;
        assert_eq!(restarted.generation, generation);
        recorder.expect("office/desk/bob", is_restarted, secs(5)).await;
    }
    office.stop().await;
    insta::assert_snapshot!(recorder.picture(), @r"
    office/desk/ann gen 1: failed: boom
    office/desk/ann gen 1: restarts at once
    office/desk/bob gen 1: restarts at once
    office/desk/bob gen 1: stopped
    office/desk/ann gen 2: restarted
    office/desk/bob gen 2: restarted
    office/desk/ann gen 2: failed: boom
    office/desk/ann gen 2: restarts after a wait
    office/desk/bob gen 2: restarts after a wait
    office/desk/bob gen 2: stopped
    office/desk/ann gen 3: restarted
    office/desk/bob gen 3: restarted
    office/cat gen 1: stopped
    office/desk/bob gen 3: stopped
    office/desk/ann gen 3: stopped
    office/desk gen 1: stopped
    ");
    assert_eq!(recorder.events().len(), recorder.picture().lines().count());
}

#[tokio::test(start_paused = true)]
async fn a_recorder_that_waits_in_vain_shows_what_happened_and_what_may_have_been_meant() {
    let (office, ann) = office().await;
    let recorder = TreeRecorder::new(office.subscribe());
    let text = failure(recorder.expect("office/cat", is_restarted, secs(1))).await;
    assert!(text.contains("nothing happened there; nothing was recorded"), "{text}");
    ann.cast(Letter::Bomb).unwrap();
    recorder.expect("office/desk/ann", is_restarted, secs(5)).await;
    let text = failure(recorder.expect("office/desk/ann", is_restarted, secs(5))).await;
    assert!(text.starts_with("tests/simulation/test_kit.rs:"), "{text}");
    assert!(text.contains("expected an event at \"office/desk/ann\" that fits within 5s; this was"), "{text}");
    assert!(text.contains("\n    office/desk/ann gen 2: restarted  (expected before)\n"), "{text}");
    assert!(text.contains("\n    office/desk/bob gen 2: restarted"), "{text}");
    let text = failure(recorder.expect("office/desk/amn", is_restarted, secs(5))).await;
    assert!(text.contains("nothing happened there; did you mean \"office/desk/ann\"?"), "{text}");
    office.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_recorder_keeps_more_events_than_their_channel_holds() {
    let (office, _) = office().await;
    let recorder = TreeRecorder::new(office.subscribe());
    for _ in 0..1_000 {
        office.terminate_child("cat").await.unwrap();
        office.restart_child("cat").await.unwrap();
    }
    assert_eq!(recorder.events().len(), 2_000);
    office.stop().await;
}

#[tokio::test]
#[should_panic(expected = "the recorder has missed 1 events")]
async fn a_recorder_that_misses_events_does_not_keep_it_to_itself() {
    let (events, receiver) = tokio::sync::broadcast::channel(2);
    let recorder = TreeRecorder::new(receiver);
    let event = |generation| TreeEvent {
        at: Env::system().now().wall,
        path: "office".into(),
        generation,
        kind: TreeEventKind::Started,
    };
    for generation in 1..=3 {
        events.send(event(generation)).unwrap();
    }
    crate::common::quiet().await;
    let _ = recorder.events();
}

#[tokio::test(start_paused = true)]
async fn a_tree_is_compared_with_what_its_picture_names() {
    let (office, ann) = office().await;
    office.snapshot().await.unwrap().assert_picture("office\n desk\n  ann\n  bob\n cat");
    let recorder = TreeRecorder::new(office.subscribe());
    ann.cast(Letter::Bomb).unwrap();
    recorder.expect("office/desk/bob", is_restarted, secs(5)).await;
    office.terminate_child("cat").await.unwrap();
    office.snapshot().await.unwrap().assert_picture(
        "

        office (one_for_one) running
          desk (one_for_all)  restarts 0
                ann  gen 2
                bob  running restarts 1
          cat  stopped

        ",
    );
    let tree = office.snapshot().await.unwrap();
    tree.assert_picture(&tree.picture());
    insta::assert_snapshot!(tree.picture(), @r"
    office (one_for_one)  running  gen 1
    ├── desk (one_for_all)  running  gen 1
    │   ├── ann  running  gen 2  restarts 1
    │   └── bob  running  gen 2  restarts 1
    └── cat  stopped  gen 1
    ");
    tree.find(&["desk"]).unwrap().assert_picture("desk\n├── ann\n└── bob");
    office.snapshot().await.unwrap().assert_picture("office\n  ...\n  cat stopped");
    office.snapshot().await.unwrap().assert_picture("office\n  desk\n    …\n  cat  stopped");
    office.stop().await;
}

#[tokio::test(start_paused = true)]
async fn each_difference_between_a_tree_and_its_picture_is_shown_in_its_line() {
    let (office, ann) = office().await;
    let recorder = TreeRecorder::new(office.subscribe());
    ann.cast(Letter::Bomb).unwrap();
    recorder.expect("office/desk/bob", is_restarted, secs(5)).await;
    office.terminate_child("cat").await.unwrap();
    let right = "office (one_for_one)\n  desk (one_for_all)\n    ann  gen 2\n    bob  restarts 1\n  cat  stopped";
    let tree = office.snapshot().await.unwrap();
    tree.assert_picture(right);
    for (part, wrong) in [
        ("gen 2", "gen 1"),
        ("restarts 1", "restarts 0"),
        ("cat  stopped", "cat"),
        ("cat  stopped", "cat  failed"),
        ("one_for_all", "rest_for_one"),
        ("bob", "bo"),
        ("    bob", "  bob"),
        ("\n    ann  gen 2", ""),
        ("    ann  gen 2\n    bob", "    bob\n    ann  gen 2"),
        ("cat  stopped", "cat  stopped\n  dan"),
        ("\n  cat  stopped", ""),
    ] {
        let picture = right.replace(part, wrong);
        let difference = failure(async { tree.assert_picture(&picture) }).await;
        assert!(difference.contains("- expected, + actual"), "{difference}");
    }
    let wrong = "office\n desk\n  ann  gen 1\n  bob\n cat  failed\n dan";
    let text = failure(async { tree.assert_picture(wrong) }).await;
    insta::assert_snapshot!(text, @r"
    the tree differs from its picture (- expected, + actual):
      office
      ├── desk
    - │   ├── ann  gen 1
    + │   ├── ann  gen 2
      │   └── bob
    - ├── cat  failed
    - └── dan
    + └── cat  stopped
    ");
    let text = failure(async { tree.assert_picture("office\n desk\n  ann\n  bob\n cat  stoped") }).await;
    assert!(text.ends_with("\n\"stoped\" is taken for a part of the name; did you mean \"stopped\"?"), "{text}");
    let text = failure(async { tree.assert_picture("office\n desk\n\tann") }).await;
    assert_eq!(text, "the picture is indented by spaces and by tabs: take one of them");
    let text = failure(async { tree.assert_picture("office\n desk\n  ann gen x\n  bob\n cat  stopped") }).await;
    assert!(text.ends_with("\n\"x\" is no number, so it is taken for a part of the name"), "{text}");
    assert_eq!(failure(async { tree.assert_picture(" … ") }).await, "the picture names no node");
    office.snapshot().await.unwrap().assert_picture("office\n\tdesk\n\t\tann\n\t\tbob\n\tcat  stopped");
    office.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_scripted_agent_does_what_is_written_for_each_turn_over_all_runs() {
    let script = Script::new().on_turn(1).reply("one").on_turn(3).reply("three").otherwise().reply("other");
    let board = builder().agent("actor", script.clone()).start().await.unwrap();
    for (input, output) in [("a", "one"), ("b", "other"), ("c", "three"), ("d", "other")] {
        assert_eq!(finish(&board, Task::new(input)).await.output, output);
    }
    let turns = script.turns();
    let reported: Vec<_> =
        turns.iter().map(|turn| (turn.number, turn.input.as_str().unwrap(), turn.attempts)).collect();
    assert_eq!(reported, [(1, "a", 1), (2, "b", 1), (3, "c", 1), (4, "d", 1)]);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn attempts_of_a_turn_are_one_turn_and_an_act_may_be_for_the_first_of_them() {
    let script = Script::new()
        .on_turn(1)
        .fail("away")
        .once()
        .panic("dizzy")
        .once()
        .reply("fine")
        .on_turn(2)
        .fail("away")
        .on_turn(3)
        .fail_for_good("gone");
    let board = builder().agent("actor", script.clone()).start().await.unwrap();
    let recovered = finish(&board, Task::new("a")).await;
    assert_eq!((recovered.output.as_str(), recovered.metrics.retries), (Some("fine"), 2));
    assert!(finish(&board, Task::new("b")).await.outcome.to_string().contains("away"));
    assert!(finish(&board, Task::new("c")).await.outcome.to_string().contains("gone"));
    assert_eq!(script.turns().iter().map(|turn| turn.attempts).collect::<Vec<_>>(), [3, 3, 1]);
    board.tree().await.unwrap().assert_picture("callboard\n  …\n  agents\n    actor  restarts 1\n  …");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_a_script_does_not_know_fails_at_once_with_agent_and_number() {
    let script = Script::new().on_turn(1).reply("one").on_turn(3).reply("three");
    let board = builder().agent("actor", script.clone()).start().await.unwrap();
    finish(&board, Task::new("a")).await;
    let outcome = finish(&board, Task::new("b")).await.outcome.to_string();
    assert!(outcome.contains("the script of actor has nothing for its turn 2; it has turn 1, 3"), "{outcome}");
    assert_eq!(script.turns()[1].attempts, 1);
    board.shutdown().await;
}

#[tokio::test]
async fn a_script_that_sets_a_single_value_twice_is_refused_where_it_does() {
    let text = failure(async { Script::new().reply(1).wait(secs(1)).reply_with_answers() }).await;
    assert_eq!(text, "an output twice in one turn: the last would count alone");
    let text = failure(async { Script::new().on_turn(1).end().on_turn(2).hand_off("a").hand_off("b") }).await;
    assert_eq!(text, "where control goes twice in one turn: the last would count alone");
    let text = failure(async { Script::new().reply(1).once().times(2) }).await;
    assert_eq!(text, "the number of times of the last act is set already");
}

#[tokio::test(start_paused = true)]
async fn the_acts_of_a_turn_are_performed_in_order_and_returned_together() {
    let lead = Script::new()
        .step("plan", json!(["a", "b"]))
        .delegate("helper", "first")
        .delegate("helper", "second")
        .spend(700)
        .update("artifacts", json!({ "by": "lead" }))
        .update("note", "done")
        .reply_with_answers();
    let helper = Script::new().on_turn(1).wait(secs(90)).reply(1).on_turn(2).reply(2);
    let board = builder().agent("lead", lead.clone()).agent("helper", helper.clone()).start().await.unwrap();
    let result = finish(&board, Task::new("x").to("lead")).await;
    assert_eq!(result.output, json!([["a", "b"], 1, 2]));
    assert_eq!(result.state.get("artifacts").unwrap()["by"], "lead");
    assert_eq!(result.state.get("note").unwrap(), "done");
    assert_eq!((result.metrics.tokens_spent, result.metrics.usage.input_tokens), (700, 700));
    assert!(result.metrics.elapsed >= secs(90));
    assert_eq!(helper.turns().iter().map(|turn| turn.input.clone()).collect::<Vec<_>>(), ["first", "second"]);
    assert_eq!(lead.turns()[0].answers.len(), 3);
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn scripts_hand_control_to_one_to_many_or_to_no_agent() {
    let wide = Script::new().send_to_many([("worker", 1), ("worker", 2)]);
    let worker = Script::new().reply("done");
    let quick = Script::new().reply("over").end();
    let board = builder()
        .agent("wide", wide)
        .agent("worker", worker.clone())
        .agent("quick", quick)
        .agent("first", Script::new().hand_off("quick"))
        .start()
        .await
        .unwrap();
    assert_eq!(finish(&board, Task::new("x").to("wide")).await.output, json!(["done", "done"]));
    let mut inputs: Vec<_> = worker.turns().iter().map(|turn| turn.input.to_string()).collect();
    inputs.sort();
    assert_eq!(inputs, ["1", "2"]);
    assert_eq!(finish(&board, Task::new("x").to("first")).await.output, "over");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn scripts_ask_people_and_wait_for_their_consent() {
    let action = Action::new("write_file", "REVIEW.md", "text");
    let script = Script::new().ask("which?").approve(action).reply_with_answers();
    let board = builder().agent("actor", script).approval_policy(|_| Consent::Ask).start().await.unwrap();
    for consents in [true, false] {
        let run = board.submit(Task::new("x")).await.unwrap();
        let question = people::question(&run).await;
        board.people().answer(question.id, "that", "ann").await.unwrap();
        let envelope = people::approval(&board).await;
        if consents {
            board.people().approve(envelope.id(), "ann").await.unwrap();
            assert_eq!(run.result().await.unwrap().output, "that");
        } else {
            board.people().deny(envelope.id(), "ann", "no").await.unwrap();
            assert_eq!(run.result().await.unwrap().outcome.name(), "denied");
        }
    }
    board.shutdown().await;
}

/// The kinds of failure of a run's attempts.
async fn failures(run: &callboard::RunHandle) -> Vec<FailureKind> {
    let history = run.history().await.unwrap();
    let kind = |event: &RunEvent| match event {
        RunEvent::AttemptFailed { failure, .. } | RunEvent::TurnFailed { failure, .. } => Some(failure.kind),
        _ => None,
    };
    history.iter().filter_map(kind).collect()
}

#[tokio::test(start_paused = true)]
async fn a_hanging_turn_is_ended_by_its_timeout_and_a_malformed_command_by_its_run() {
    let script = Script::new().hang().once().return_malformed().once().reply("fine");
    let spec = AgentSpec::new("actor", script.clone()).timeout(secs(10));
    let board = builder().with(spec).start().await.unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    let turn = script.expect_turns(1, secs(1)).await;
    assert_eq!((turn.number, turn.id.run), (1, run.id()));
    assert!(!run.result().await.unwrap().outcome.is_finished());
    let expected = [FailureKind::Timeout, FailureKind::InvalidCommand];
    assert_eq!(failures(&run).await, expected);
    let text = failure(script.expect_turns(2, secs(5))).await;
    assert!(text.contains("expected 2 turns within 5s; 1 were begun"), "{text}");
    board.shutdown().await;
}

#[tokio::test]
async fn a_turn_blocks_its_thread_until_the_test_opens_the_gate() {
    let gate = Gate::new();
    let script = Script::new().block(&gate).reply("through");
    let spec = AgentSpec::new("actor", script).blocking();
    let board = Callboard::builder().with(spec).agent("other", Script::new().reply("done")).start().await.unwrap();
    let run = board.submit(Task::new("x").to("actor")).await.unwrap();
    gate.reached().await;
    for _ in 0..10 {
        assert_eq!(finish(&board, Task::new("y").to("other")).await.output, "done");
    }
    assert_eq!(board.load().turns_at_work, 1);
    gate.open();
    assert_eq!(run.result().await.unwrap().output, "through");
    assert_eq!(finish(&board, Task::new("it stays open").to("actor")).await.output, "through");
    board.shutdown().await;
}

#[test]
fn a_turn_that_would_block_the_only_thread_panics_and_reports_why() {
    Seeds::new(5).simulate(async |sim: Sim| {
        let gate = Gate::new();
        let spec = AgentSpec::new("actor", Script::new().block(&gate)).blocking();
        let board = sim.board().with(spec).start().await?;
        let run = board.submit(Task::new("x")).await?;
        let outcome = run.result().await?.outcome.to_string();
        assert!(outcome.contains("turn 1 of actor: it would block the thread"), "{outcome}");
        assert!(outcome.contains("a simulation has one thread"), "{outcome}");
        Ok(())
    });
}

#[test]
fn a_script_continues_over_rebuilds_and_restarts_of_a_simulated_node() {
    Seeds::new(50).simulate(async |sim: Sim| {
        let lead = Script::new().step("plan", 1).delegate("helper", "x").reply_with_answers();
        let helper =
            Script::new().on_turn(1).panic("dizzy").once().hang().once().reply("late").otherwise().reply("again");
        let start = || sim.board().agent("lead", lead.clone()).agent("helper", helper.clone()).start();
        let board = start().await?;
        let run = board.submit(Task::new("x").to("lead")).await?.id();
        helper.expect_turns(1, secs(60)).await;
        while helper.turns()[0].attempts < 2 {
            tokio::time::sleep(secs(1)).await;
        }
        sim.crash().await;
        let board = start().await?;
        assert_eq!(board.run(run).result().await?.output, json!([1, "late"]));
        assert_eq!((helper.turns().len(), lead.turns().len()), (1, 1), "a replay is the same turn");
        assert!(lead.turns()[0].attempts >= 2);
        assert_eq!(board.submit(Task::new("y").to("helper")).await?.result().await?.output, "again");
        sim.assert_nothing_left().await;
        Ok(())
    });
}
