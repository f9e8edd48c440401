//! Replays: what every turn saw, what it left, and the result of the run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use callboard::ForkError;
use callboard::messages::{Json, Limits, Reducer, RunEvent, RunResult, SendTo, StateRules, Usage};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunHandle};
use callboard::storage::Storage;
use callboard::supervision::runs::{Aspect, Cause, Diff, Fork, Replay, ReplayError, ReplayStep, TurnEnd};
use callboard::workflow::{Node, Workflow};
use parking_lot::Mutex;
use proptest::prelude::*;
use serde_json::json;

use crate::common::builder;

fn rules() -> StateRules {
    StateRules::default()
}

/// What turns have seen: their input and their state, by number.
type Seen = Arc<Mutex<BTreeMap<u32, (Json, Json)>>>;

/// What a turn does, by chance.
#[derive(Clone, Copy, Debug)]
enum Act {
    End,
    EndAll,
    HandOff,
    Spread,
    Delegate,
    Detach,
    Fail,
    FailOnce,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => Just(Act::End),
        1 => Just(Act::EndAll),
        4 => Just(Act::HandOff),
        3 => Just(Act::Spread),
        3 => Just(Act::Delegate),
        2 => Just(Act::Detach),
        1 => Just(Act::Fail),
        1 => Just(Act::FailOnce),
    ]
}

/// A run in which the turns do these things, in the order of their numbers; the rest end.
async fn play(acts: Vec<Act>) -> (RunResult, Vec<RunEvent>, BTreeMap<u32, (Json, Json)>) {
    let (seen, acts) = (Seen::default(), Arc::new(acts));
    let mut board = builder();
    for name in ["a", "b", "c"] {
        let (seen, acts) = (Arc::clone(&seen), Arc::clone(&acts));
        board = board.agent(name, move |turn: Turn| {
            let (seen, acts) = (Arc::clone(&seen), Arc::clone(&acts));
            async move {
                let number = turn.id().number;
                seen.lock().insert(number, (turn.input_json().clone(), turn.state().to_json()));
                turn.reserve(10).await?.settle(Usage::of(u64::from(number), 1));
                let to = ["a", "b", "c"][number as usize % 3];
                let written = Command::output(number).with("messages", format!("{number}"));
                let act = acts.get(number as usize - 1).copied().unwrap_or(Act::End);
                // Repeated handoffs are refused, and a refusal ends a run as well as anything else.
                Ok(match act {
                    Act::End => written,
                    Act::EndAll => written.end(),
                    Act::HandOff => written.goto(to),
                    Act::Spread => written.goto_many([SendTo::new("a", number), SendTo::new(to, number)]),
                    Act::Delegate => {
                        let answer = turn.delegate(to, "help").await;
                        written.with("answers", json!([answer.is_ok()]))
                    }
                    Act::Detach => {
                        let _ = turn.delegate(to, "help later").detach().await;
                        written
                    }
                    Act::Fail => return Err(TurnError::terminal("broken")),
                    Act::FailOnce if turn.attempt() == 1 => return Err(TurnError::transient("not yet")),
                    Act::FailOnce => written,
                })
            }
        });
    }
    let board = board.start().await.unwrap();
    let limits = Limits { handoffs: 12, depth: 6, ..Limits::default() };
    let run = board.submit(Task::new("go").to("a").limits(limits)).await.unwrap();
    let (result, history) = (run.result().await.unwrap(), run.history().await.unwrap());
    board.shutdown().await;
    let seen = seen.lock().clone();
    (result, history, seen)
}

fn played(acts: Vec<Act>) -> (RunResult, Vec<RunEvent>, BTreeMap<u32, (Json, Json)>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(play(acts))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_replay_comes_to_the_runs_result_and_shows_what_every_turn_saw(acts in prop::collection::vec(act(), 0..10)) {
        let (result, history, seen) = played(acts);
        let replay = Replay::of(history.clone(), &rules()).unwrap();
        prop_assert_eq!(replay.steps().len(), history.len());
        prop_assert_eq!(replay.result().map(|found| (&found.outcome, &found.state)), Some((&result.outcome, &result.state)));
        for turn in replay.turns() {
            let before = replay.before_turn(turn.number).unwrap();
            if let Some((input, state)) = seen.get(&turn.number) {
                prop_assert_eq!((&turn.input, &before.state), (input, state), "turn {}", turn.number);
            }
            prop_assert!(before.open.contains(&(turn.number, turn.agent.clone())));
            let left = replay.after_turn(turn.number).expect("the run has ended");
            prop_assert!(left.open.iter().all(|(open, _)| *open != turn.number));
            // The state at a turn's end is that of the journal up to there, whatever came after it.
            let until = Replay::of(history[..left.step].to_vec(), &rules()).unwrap();
            prop_assert_eq!(until.steps().last().unwrap().state(), &left.state);
            prop_assert_eq!(until.run().metrics(), left.metrics);
        }
        let of_turns: u64 = replay.turns().map(|turn| turn.usage.total()).sum();
        prop_assert_eq!(of_turns, replay.run().metrics().usage.total());
    }
}

#[test]
fn every_turn_has_its_cause_and_its_end() {
    let acts = vec![Act::Delegate, Act::FailOnce, Act::Spread, Act::End, Act::Fail];
    let (_, history, _) = played(acts);
    let replay = Replay::of(history, &rules()).unwrap();
    let reported: Vec<(u32, Cause, u32)> =
        replay.turns().map(|turn| (turn.number, turn.cause.clone(), turn.attempts)).collect();
    assert_eq!(reported, [(1, Cause::Task, 1), (2, Cause::Delegation { from: 1, ordinal: 0 }, 2)]);

    let (_, history, _) = played(vec![Act::Spread, Act::End, Act::Fail]);
    let replay = Replay::of(history, &rules()).unwrap();
    let causes: Vec<Cause> = replay.turns().map(|turn| turn.cause.clone()).collect();
    assert_eq!(causes, [Cause::Task, Cause::Handoff { from: 1, target: 0 }, Cause::Handoff { from: 1, target: 1 }]);
    let ends: Vec<&TurnEnd> = replay.turns().map(|turn| &turn.end).collect();
    assert!(matches!(ends[..], [TurnEnd::Command { .. }, TurnEnd::Command { .. }, TurnEnd::Failed(_)]), "{ends:?}");
}

#[test]
fn the_turn_that_takes_a_late_answer_reports_it() {
    let (_, history, _) = played(vec![Act::Detach, Act::End]);
    let replay = Replay::of(history, &rules()).unwrap();
    let causes: Vec<Cause> = replay.turns().map(|turn| turn.cause.clone()).collect();
    let delegated = Cause::Delegation { from: 1, ordinal: 0 };
    assert_eq!(causes, [Cause::Task, delegated, Cause::Answer { from: 2 }]);
}

#[test]
fn turns_that_another_one_cut_off_were_cancelled() {
    let (_, history, _) = played(vec![Act::Spread, Act::EndAll, Act::HandOff]);
    let replay = Replay::of(history, &rules()).unwrap();
    assert_eq!(replay.turn(3).unwrap().end, TurnEnd::Cancelled);
    assert_eq!(replay.turn(3).unwrap().closed, replay.turn(2).unwrap().closed);
}

#[test]
fn a_step_reports_what_it_changed() {
    let (_, history, _) = played(vec![Act::HandOff]);
    let replay = Replay::of(history, &rules()).unwrap();
    let changed = replay.steps().iter().map(|step| step.changes().iter().map(ToString::to_string).collect::<Vec<_>>());
    let changed: Vec<Vec<String>> = changed.filter(|changes| !changes.is_empty()).collect();
    assert_eq!(changed, [[r#"messages: = ["1"]"#], [r#"messages: + "2""#]]);
}

#[test]
fn a_journal_without_its_beginning_is_not_replayed() {
    let (_, history, _) = played(Vec::new());
    assert_eq!(Replay::of(history[1..].to_vec(), &rules()).unwrap_err(), ReplayError::Trimmed);
    assert_eq!(Replay::of(Vec::new(), &rules()).unwrap_err(), ReplayError::Empty);
}

#[test]
fn histories_of_two_runs_are_not_replayed_as_one() {
    let (_, mut history, _) = played(Vec::new());
    let event = history.len() + 1;
    history.extend(history.clone());
    assert_eq!(Replay::of(history, &rules()).unwrap_err(), ReplayError::Joined { event });
}

#[test]
fn a_run_does_not_differ_from_itself_nor_from_one_that_went_the_same_way() {
    let acts = vec![Act::Spread, Act::Detach, Act::FailOnce, Act::Delegate];
    let (_, history, _) = played(acts.clone());
    let (_, mut other, _) = played(acts);
    let RunEvent::Submitted(submission) = &mut other[0] else { panic!("{other:?}") };
    let mut later = (**submission).clone();
    later.at = later.at + std::time::Duration::from_secs(1);
    *submission = Arc::new(later);
    let [first, second] = [history, other].map(|history| Replay::of(history, &rules()).unwrap());
    let diff = Diff::of(&first, &second);
    assert!(diff.is_empty(), "{diff}");
}

#[test]
fn a_diff_names_the_first_different_event_the_channels_and_the_turns() {
    let (_, history, _) = played(vec![Act::Spread, Act::End, Act::End]);
    let (_, other, _) = played(vec![Act::Spread, Act::Delegate, Act::FailOnce]);
    let [first, second] = [history, other].map(|history| Replay::of(history, &rules()).unwrap());
    let diff = Diff::of(&first, &second);
    let (old, new) = diff.first.clone().unwrap();
    assert_eq!((old.unwrap().event.turn(), new.unwrap().event.turn()), (Some(2), Some(2)));
    assert_eq!((diff.outcomes.is_none(), diff.outputs.is_none()), (true, true));
    assert_eq!(diff.channels.iter().map(|change| change.place.join(".")).collect::<Vec<_>>(), ["answers", "messages"]);
    let turns: Vec<_> =
        diff.turns.iter().map(|turn| (turn.first.as_ref().map(|turn| turn.number), &turn.aspects)).collect();
    let expected = [(Some(2), &vec![Aspect::Deeds, Aspect::End]), (None, &vec![]), (Some(3), &vec![Aspect::Attempts])];
    assert_eq!(turns, expected, "{diff}");
}

/// A workflow that saves what its nodes give; what comes last fails, unless it is given something good, and then the others
/// are taken back.
async fn booking() -> (Callboard, RunHandle) {
    let board = builder()
        .agent("book", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) })
        .agent("undo", |_: Turn| async { Ok(Command::output("gone").with("log", "undone")) })
        .agent("pay", |turn: Turn| async move {
            let is_good = *turn.input_json() == "good";
            if is_good { Ok(Command::output("paid")) } else { Err(TurnError::terminal("no money")) }
        })
        .start()
        .await
        .unwrap();
    let book = |name: &str| Node::agent(name, "book").input(name).saved_to("log").compensated_by("undo");
    let workflow = Workflow::builder("booking")
        .channel("log", Reducer::Append)
        .node(book("room"))
        .node(Node::nodes("trips", [book("trip")]).after("room").times(2))
        .node(Node::agent("pay", "pay").after("trips").input("bad"));
    let run = board.submit(workflow.build().unwrap().task("x")).await.unwrap();
    run.result().await.unwrap();
    (board, run)
}

fn changed(step: &ReplayStep) -> Vec<String> {
    step.changes().iter().map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn a_compensation_is_a_cause_of_its_own_and_leaves_the_state_as_it_is() {
    let (board, run) = booking().await;
    let replay = Replay::of(run.history().await.unwrap(), &rules()).unwrap();
    let node = |node: &str| Cause::Node { node: node.to_owned() };
    let back = |node: &str| Cause::Compensation { node: node.to_owned() };
    let causes: Vec<Cause> = replay.turns().map(|turn| turn.cause.clone()).collect();
    let done = ["room", "trips#1/trip", "trips#2/trip", "pay"].map(node);
    assert_eq!(causes, [&done[..], &["trips/trip", "trips/trip", "room"].map(back)].concat());

    let after_room = json!({ "log": ["room"] });
    let states = [json!({ "log": ["room", "trip", "trip"] }), json!({ "log": ["room", "trip"] }), after_room.clone()];
    for (turn, state) in (5..).zip(states) {
        let (before, left) = (replay.before_turn(turn).unwrap(), replay.after_turn(turn).unwrap());
        assert_eq!((&before.state, &left.state), (&state.clone().into(), &state.into()), "turn {turn}");
        assert_eq!(changed(&replay.steps()[left.step - 1]), [""; 0], "turn {turn}");
        assert!(replay.turn(turn).unwrap().wrote().is_empty(), "turn {turn}");
    }
    // The run itself has what its nodes wrote.
    assert_eq!(*replay.state(), json!({ "log": ["room", "trip", "trip"] }));
    assert_eq!(*replay.result().unwrap().state, *replay.state());
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_node_saved_counts_as_written_by_its_turn() {
    let (board, run) = booking().await;
    let replay = Replay::of(run.history().await.unwrap(), &rules()).unwrap();
    let written = |turn: u32| {
        let wrote = replay.turn(turn).unwrap().wrote();
        wrote.writes().iter().map(|write| format!("{}: {}", write.channel, write.value)).collect::<Vec<_>>()
    };
    let all: Vec<Vec<String>> = (1..=4).map(written).collect();
    assert_eq!(all, [vec![r#"log: "room""#], vec![r#"log: "trip""#], vec![r#"log: "trip""#], vec![]]);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_diff_does_not_take_a_compensation_for_the_nodes_own_turn() {
    let (board, run) = booking().await;
    let fork = board.fork(run.id(), 4, Fork::new().input("good")).await.unwrap();
    assert_eq!(fork.result().await.unwrap().outcome, Outcome::Finished);
    let [first, second] = [run.history().await.unwrap(), fork.history().await.unwrap()]
        .map(|history| Replay::of(history, &rules()).unwrap());
    let diff = Diff::of(&first, &second);
    let turns: Vec<_> = diff
        .turns
        .iter()
        .map(|turn| (turn.first.as_ref().map(|turn| turn.number), turn.second.as_ref().map(|turn| turn.number)))
        .collect();
    let gone = [(Some(7), None), (Some(5), None), (Some(6), None)];
    assert_eq!(turns, [&[(Some(4), Some(4))], &gone[..]].concat(), "{diff}");
    assert!(diff.channels.is_empty(), "{diff}");
    board.shutdown().await;
}

#[tokio::test]
async fn what_a_fork_does_not_copy_is_not_the_first_difference() {
    let noisy = |turn: Turn| async move {
        turn.notice("begun");
        turn.reserve(10).await?.settle(Usage::of(1, 1));
        if turn.attempt() == 1 {
            return Err(TurnError::transient("not yet"));
        }
        Ok(Command::output(1).goto("last"))
    };
    let last = |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) };
    let board = Callboard::builder().agent("noisy", noisy).agent("last", last).start().await.unwrap();
    let run = board.submit(Task::new("go").to("noisy")).await.unwrap();
    run.result().await.unwrap();
    let old = run.history().await.unwrap();
    assert!(old.iter().any(|event| matches!(event, RunEvent::Noticed { turn: 1, .. })));
    let fork = board.fork(run.id(), 2, Fork::new().input("other")).await.unwrap();
    fork.result().await.unwrap();
    let [first, second] = [old, fork.history().await.unwrap()].map(|history| Replay::of(history, &rules()).unwrap());
    let diff = Diff::of(&first, &second);
    let (old, new) = diff.first.clone().unwrap();
    assert!(matches!(old.unwrap().event, RunEvent::TurnEnded { turn: 2, .. }), "{diff}");
    assert!(matches!(new.unwrap().event, RunEvent::Forked { turn: 2, .. }), "{diff}");
    let turns: Vec<_> = diff.turns.iter().map(|turn| turn.first.as_ref().unwrap().number).collect();
    assert_eq!(turns, [2], "{diff}");
    board.shutdown().await;
}

/// `a` hands to `b` and `c` beside it; each `b` asks `d`. Counts what runs.
fn team(storage: impl Storage, ran: &Arc<Mutex<Vec<String>>>) -> Builder {
    let noted = move |name: &'static str| {
        let ran = Arc::clone(ran);
        move |turn: &Turn| ran.lock().push(format!("{name}({})", turn.input_json()))
    };
    let (a, b, c, d) = (noted("a"), noted("b"), noted("c"), noted("d"));
    Callboard::builder()
        .storage(storage)
        .agent("a", move |turn: Turn| {
            a(&turn);
            async { Ok(Command::update("messages", "a").goto_many([SendTo::new("b", 1), SendTo::new("c", 2)])) }
        })
        .agent("b", move |turn: Turn| {
            b(&turn);
            async move {
                let answer = turn.delegate("d", "help").await?;
                let word = turn.channel::<String>("word")?.unwrap_or_else(|| "plain".to_owned());
                Ok(Command::output(answer).with("messages", format!("b: {word}")))
            }
        })
        .agent("c", move |turn: Turn| {
            c(&turn);
            async move { Ok(Command::output(turn.input_json().clone()).with("messages", "c")) }
        })
        .agent("d", move |turn: Turn| {
            d(&turn);
            async move { Ok(Command::output(format!("d on {}", turn.input_json()))) }
        })
}

#[tokio::test]
async fn a_fork_runs_what_comes_of_its_turn_and_copies_the_rest_also_in_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let ran = Arc::new(Mutex::new(Vec::new()));
    let store = Arc::new(Sled::open(folder.path()).unwrap());
    let board = team(Arc::clone(&store), &ran).start().await.unwrap();
    let run = board.submit(Task::new("go").to("a")).await.unwrap();
    let old = run.result().await.unwrap();
    assert_eq!(old.state["messages"], json!(["a", "b: plain", "c"]));
    board.shutdown().await;
    store.close().await.unwrap();
    ran.lock().clear();

    let board = team(Sled::open(folder.path()).unwrap(), &ran).start().await.unwrap();
    let fork = board.fork(run.id(), 2, Fork::new().input("other").set("word", "new")).await.unwrap();
    let result = fork.result().await.unwrap();
    assert_eq!(result.outcome, Outcome::Finished);
    assert_eq!(result.state, json!({ "messages": ["a", "b: new", "c"], "word": "new" }));
    assert_eq!(
        *ran.lock(),
        [r#"b("other")"#, r#"d("help")"#],
        "what did not come of the turn answers from the journal"
    );
    assert_eq!(board.run(run.id()).result().await.unwrap(), old, "the old run stays as it is");

    let again = board.fork(fork.id(), 2, Fork::new()).await.unwrap();
    assert_eq!(again.result().await.unwrap().state, result.state, "a fork of the fork has what that one changed");
    let missing = board.fork(run.id(), 9, Fork::new()).await.unwrap_err();
    assert_eq!(missing, ForkError::NoTurn { turn: 9, last: 4 });
    let refused = board.fork(run.id(), 2, Fork::new().set("metrics", 1)).await.unwrap_err();
    assert!(matches!(refused, ForkError::State(_)), "{refused}");
    board.shutdown().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_turn_of_any_run_can_be_forked_at_and_sees_what_it_saw(
        acts in prop::collection::vec(act(), 0..10),
        turn in any::<prop::sample::Index>(),
    ) {
        let (_, history, _) = played(acts);
        let old = Replay::of(history.clone(), &rules()).unwrap();
        let turn = u32::try_from(turn.index(old.turns().count())).unwrap() + 1;
        let id = (callboard::messages::RunId(uuid::Uuid::from_u128(9)), old.submission().at);
        let events = Fork::new().input("new").events(&history, turn, id, &rules());
        let fork = Replay::of(events.unwrap(), &rules()).unwrap();
        let last = fork.steps().last().unwrap();
        let is_fork = matches!(last.event, RunEvent::Forked { from, .. } if from.number == turn);
        prop_assert!(is_fork, "{last:?}");
        let begun = fork.turn(last.event.turn().unwrap()).unwrap();
        prop_assert_eq!(&begun.agent, &old.turn(turn).unwrap().agent);
        prop_assert_eq!((&begun.input, &begun.end, begun.did.len()), (&Json::from("new"), &TurnEnd::Open, 0));
        // It has a budget and a time of its own.
        let written = |saw: &Json| {
            let mut saw = saw.value().clone();
            saw.as_object_mut().unwrap().remove("metrics");
            saw
        };
        let (new, old) = (fork.before_turn(begun.number).unwrap().state, old.before_turn(turn).unwrap().state);
        prop_assert_eq!(written(&new), written(&old));
        prop_assert!(fork.result().is_none());
        prop_assert_eq!(fork.run().metrics().tokens_spent, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn steps_and_calls_have_times_of_their_own() {
    let works = |turn: Turn| async move {
        for (name, seconds) in [("search", 2), ("write", 3)] {
            let work = async {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                Ok::<_, TurnError>(seconds)
            };
            turn.step(name, work).await?;
        }
        let reserved = turn.reserve(100).await?;
        tokio::time::sleep(Duration::from_secs(4)).await;
        reserved.settle(Usage::of(40, 2));
        Ok(Command::output("done"))
    };
    let board = builder().agent("a", works).start().await.unwrap();
    let run = board.submit(Task::new("x").to("a")).await.unwrap();
    run.result().await.unwrap();
    let replay = Replay::of(run.history().await.unwrap(), &rules()).unwrap();
    let begin = replay.submission().at;
    let timed = |step: &ReplayStep| {
        let kind = format!("{:?}", step.event);
        (kind.split([' ', '(']).next().unwrap().to_owned(), step.at.since(begin).as_secs())
    };
    let times: Vec<_> = replay.steps().iter().map(timed).collect();
    let expected =
        [("Submitted", 0), ("StepFinished", 2), ("StepFinished", 5), ("Reserved", 5), ("Settled", 9), ("TurnEnded", 9)];
    assert_eq!(times, expected.map(|(kind, at)| (kind.to_owned(), at)));
    board.shutdown().await;
}
