//! Approvals that several people decide, of a group, and without who asked for the run (SEMANTICS 9).

use std::sync::Arc;
use std::time::Duration;

use callboard::AnswerError;
use callboard::actors::approvals::{Channel, Decider};
use callboard::messages::{
    Action, Consent, Deciders, Envelope, Escalation, Groups, Pending, RunEvent, Terms, Vote, Votes,
};
use callboard::prelude::*;
use callboard::runtime::Builder;
use parking_lot::Mutex;
use serde_json::json;

use crate::common::{World, found, people};

const MINUTE: Duration = Duration::from_secs(60);

/// A board whose agent asks for consent to each action in its input, of which these people decide.
fn board(world: &World, deciders: Deciders) -> Builder {
    let deciders = Arc::new(deciders);
    let groups = Groups::default()
        .group("ops", ["ann", "bob", "cat"])
        .group("leads", ["dan"])
        .requesters(|token| (token == "laptop").then(|| "ann".into()));
    world
        .board()
        .groups(groups)
        .approval_policy(move |_| Consent::AskOf { deciders: Arc::clone(&deciders), within: None })
        .agent("writer", |turn: Turn| async move {
            let mut done = Vec::new();
            for target in turn.input::<Vec<String>>()? {
                let action = Action::new("write_file", &target, json!({ "path": target }));
                done.push(match turn.people().approve(action).await {
                    Ok(action) => action.target.to_string(),
                    Err(error) => error.to_string(),
                });
            }
            Ok(Command::output(done))
        })
}

fn two() -> Deciders {
    Deciders { at_least: 2, ..Deciders::of("ops") }
}

fn task(targets: &[&str]) -> Task {
    Task::new("write").input(json!(targets))
}

/// The names of those who have approved.
fn names(votes: &Votes) -> Vec<&str> {
    votes.approved.iter().map(|vote| &*vote.by).collect()
}

#[tokio::test(start_paused = true)]
async fn an_action_is_approved_by_as_many_people_as_the_policy_asks_for() {
    let world = World::new();
    let board = board(&world, Deciders { excludes_requester: true, ..two() }).start().await.unwrap();
    let by_token = AgentName::new("laptop").unwrap();
    let run = board.submit(task(&["a.txt"]).from_agent(by_token)).await.unwrap();
    let (envelope, people) = (people::approval(&board).await, board.people());
    let id = envelope.id();
    assert_eq!(envelope.requester.as_deref(), Some("laptop"));
    assert_eq!(people.votes(id).await.unwrap().missing, 2);

    let barred = people.approve(id, "ann").await.unwrap_err();
    assert_eq!(barred, AnswerError::OfRequester { id, by: "ann".into() });
    let barred = people.deny(id, "dan", "no").await.unwrap_err();
    assert_eq!(barred, AnswerError::NotInGroup { id, by: "dan".into(), group: "ops".into() });
    assert_eq!(people.votes(id).await.unwrap(), Votes { missing: 2, ..Votes::default() }, "nothing has changed");

    let first = people.answer(id, Response::Approve, "bob").await.unwrap().unwrap();
    assert_eq!((names(&first), first.missing, &first.decision), (vec!["bob"], 1, &None));
    let again = people.approve(id, "bob").await.unwrap_err();
    assert_eq!(again, AnswerError::HasApproved { id, by: "bob".into(), at: first.approved[0].at });
    assert_eq!(people.votes(id).await.unwrap(), first);
    assert_eq!(people::approvals(&board).await, [envelope], "it is still open");

    tokio::time::advance(MINUTE).await;
    let second = people.approve(id, "cat").await.unwrap();
    let decision = second.decision.clone().unwrap();
    assert_eq!((names(&second), second.missing, &*decision.by), (vec!["bob", "cat"], 0, "cat"));
    assert_eq!(decision.votes, second.approved);
    assert!(decision.votes[0].at < decision.votes[1].at);
    assert_eq!(run.result().await.unwrap().output, json!(["a.txt"]));
    let journaled = run.history().await.unwrap().into_iter().find_map(|event| match event {
        RunEvent::Decided { decision, .. } => Some(decision),
        _ => None,
    });
    assert_eq!(journaled, Some(decision.clone()), "the journal names all of them");
    assert_eq!(people.votes(id).await.unwrap(), second);
    assert_eq!(people.deny(id, "bob", "").await.unwrap_err(), AnswerError::AlreadyDecided { decision });
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn one_denial_denies_and_silence_after_one_vote_does() {
    let board = board(&World::new(), two()).start().await.unwrap();
    for denies in [true, false] {
        let run = board.submit(task(&["a.txt"]).approval_ttl(MINUTE)).await.unwrap();
        let id = people::approval(&board).await.id();
        board.people().approve(id, "ann").await.unwrap();
        if denies {
            board.people().deny(id, "bob", "not now").await.unwrap();
        }
        let output = run.result().await.unwrap().output;
        let expected = if denies { "was denied by bob: not now" } else { "expired before anybody decided" };
        assert!(output.value()[0].as_str().unwrap().contains(expected), "{output}");
        let votes = board.people().votes(id).await.unwrap();
        let decision = votes.decision.clone().unwrap();
        assert_eq!(
            (names(&votes), decision.approved, &*decision.by),
            (vec!["ann"], false, if denies { "bob" } else { "expiry" })
        );
    }
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn votes_survive_a_restart() {
    let world = World::new();
    let first = board(&world, two()).start().await.unwrap();
    let run = first.submit(task(&["a.txt"])).await.unwrap().id();
    let id = people::approval(&first).await.id();
    first.people().approve(id, "ann").await.unwrap();
    first.shutdown().await;

    let second = board(&world, two()).start().await.unwrap();
    assert_eq!(people::approval(&second).await.id(), id);
    assert!(matches!(second.people().approve(id, "ann").await, Err(AnswerError::HasApproved { .. })));
    assert_eq!(second.people().approve(id, "cat").await.unwrap().missing, 0);
    assert_eq!(second.run(run).result().await.unwrap().output, json!(["a.txt"]));
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_concurrent_votes_give_one_decision() {
    let world = World::new();
    let crowd: Vec<String> = (0..500).map(|n| format!("person {n}")).collect();
    let groups =
        Groups::default().group("crowd", crowd.iter().map(|name| Arc::from(name.as_str())).collect::<Vec<Arc<str>>>());
    let deciders = Deciders { at_least: 7, ..Deciders::of("crowd") };
    let board = board(&world, deciders).groups(groups).start().await.unwrap();
    let run = board.submit(task(&["a.txt"])).await.unwrap();
    let id = people::approval(&board).await.id();
    let clicks = crowd.iter().chain(&crowd).map(|name| {
        let (people, name) = (board.people(), name.clone());
        tokio::spawn(async move { people.approve(id, &name).await })
    });
    let clicks = futures::future::join_all(clicks.collect::<Vec<_>>()).await.into_iter().map(Result::unwrap);
    let accepted: Vec<Votes> = clicks.filter_map(Result::ok).collect();
    assert_eq!(accepted.len(), 7);
    let decisions: Vec<Decision> = accepted.into_iter().filter_map(|votes| votes.decision).collect();
    let [decision] = decisions.as_slice() else { panic!("{} decisions", decisions.len()) };
    let by: std::collections::BTreeSet<&str> = decision.votes.iter().map(|vote| &*vote.by).collect();
    assert_eq!(by.len(), 7);
    run.result().await.unwrap();
    let decided = run.history().await.unwrap().iter().filter(|event| matches!(event, RunEvent::Decided { .. })).count();
    assert_eq!(decided, 1);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn it_is_approved_for_the_run_if_all_say_so_and_until_it_would_have_expired() {
    let board = board(&World::new(), two()).start().await.unwrap();
    for all in [true, false] {
        let run = board.submit(task(&["a.txt", "a.txt"]).approval_ttl(MINUTE)).await.unwrap();
        let (envelope, people) = (people::approval(&board).await, board.people());
        let id = envelope.id();
        people.answer(id, Response::ApproveForRun(60 * MINUTE), "ann").await.unwrap();
        let last = if all { Response::ApproveForRun(2 * MINUTE) } else { Response::Approve };
        let terms = people.answer(id, last, "bob").await.unwrap().unwrap().decision.unwrap().terms;
        if all {
            assert_eq!(terms, Terms::Run { until: envelope.expires_at });
        } else {
            assert_eq!(terms, Terms::Once);
            let again = people::approval(&board).await.id();
            assert_eq!(people.votes(again).await.unwrap().missing, 2);
            people.approve(again, "ann").await.unwrap();
            people.approve(again, "bob").await.unwrap();
        }
        assert_eq!(run.result().await.unwrap().output, json!(["a.txt", "a.txt"]));
    }
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn other_arguments_are_a_new_approval_of_which_the_edit_is_the_first_vote() {
    let world = World::new();
    let first = board(&world, two()).start().await.unwrap();
    let run = first.submit(task(&["a.txt"])).await.unwrap().id();
    let people = first.people();
    let before = people::approval(&first).await.id();
    people.approve(before, "ann").await.unwrap();
    let edited = Response::ApproveEdited(json!({ "path": "b.txt" }).into());
    people.answer(before, edited, "bob").await.unwrap();
    let envelope = people::approval(&first).await;
    let after = envelope.id();
    assert_ne!(after, before);
    assert_eq!((&*envelope.action.target, envelope.edited_by.as_ref().map(|vote| &*vote.by)), ("b.txt", Some("bob")));
    assert_eq!(names(&people.votes(after).await.unwrap()), ["bob"], "those of the first do not count");
    assert!(matches!(people.approve(before, "cat").await, Err(AnswerError::AlreadyDecided { .. })));
    assert!(matches!(people.approve(after, "bob").await, Err(AnswerError::HasApproved { .. })));
    first.shutdown().await;

    let second = board(&world, two()).start().await.unwrap();
    assert_eq!(people::approval(&second).await.id(), after, "it is asked again after a restart");
    let decision = second.people().approve(after, "ann").await.unwrap().decision.unwrap();
    assert_eq!(decision.votes.iter().map(|vote: &Vote| &*vote.by).collect::<Vec<_>>(), ["bob", "ann"]);
    assert_eq!(second.run(run).result().await.unwrap().output, json!(["b.txt"]));
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_arguments_that_it_has_are_an_approval_as_it_is_and_no_edit() {
    let world = World::new();
    let board = board(&world, two()).start().await.unwrap();
    let run = board.submit(task(&["a.txt"])).await.unwrap();
    let (people, envelope) = (board.people(), people::approval(&board).await);
    people.approve(envelope.id(), "ann").await.unwrap();
    let same = Response::ApproveEdited(envelope.action.arguments.clone());
    let votes = people.answer(envelope.id(), same, "bob").await.unwrap().unwrap();
    assert_eq!(votes.decision.unwrap().terms, Terms::Once, "the vote of ann counts");
    assert_eq!(run.result().await.unwrap().output, json!(["a.txt"]));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn what_runs_wait_for_is_known_once_they_have_been_read_after_a_start() {
    let world = World::new();
    let first = board(&world, two()).start().await.unwrap();
    first.submit(task(&["a.txt"])).await.unwrap();
    let asked = people::approval(&first).await.id();
    first.shutdown().await;
    let second = board(&world, two()).start().await.unwrap();
    second.recovered().await;
    let pending: Vec<_> = second.people().pending().await.iter().map(Pending::id).collect();
    assert_eq!(pending, [asked.into()]);
    second.shutdown().await;
}

/// Notes of what people are told, and when.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<&'static str>>>);

impl Channel for Notes {
    fn name(&self) -> &'static str {
        "notes"
    }

    fn ask(&self, _: &Envelope, _: &Decider) {
        self.0.lock().push("asked");
    }

    fn escalated(&self, _: &Envelope, _: &Decider) {
        self.0.lock().push("escalated");
    }

    fn settled(&self, _: &Envelope, _: Option<&Decision>) {
        self.0.lock().push("settled");
    }
}

#[tokio::test(start_paused = true)]
async fn after_its_time_the_people_of_another_group_decide_as_well() {
    let escalation = Some(Escalation { after: 10 * MINUTE, group: "leads".into() });
    let deciders = || Deciders { escalation: escalation.clone(), ..Deciders::of("ops") };
    let (world, notes) = (World::new(), Notes::default());
    let start = || board(&world, deciders()).channel(notes.clone()).start();
    let first = start().await.unwrap();
    let run = first.submit(task(&["a.txt"])).await.unwrap().id();
    let id = people::approval(&first).await.id();
    tokio::time::sleep(9 * MINUTE).await;
    assert!(matches!(first.people().approve(id, "dan").await, Err(AnswerError::NotInGroup { .. })));
    assert_eq!(*notes.0.lock(), ["asked"]);
    first.shutdown().await;

    // A board that starts before the time schedules it again.
    let second = start().await.unwrap();
    assert_eq!(people::approval(&second).await.id(), id);
    found(async || (*notes.0.lock() == ["asked", "asked"]).then_some(())).await;
    tokio::time::sleep(2 * MINUTE).await;
    assert_eq!(*notes.0.lock(), ["asked", "asked", "escalated"]);
    let decision = second.people().approve(id, "dan").await.unwrap().decision.unwrap();
    assert_eq!((&*decision.by, decision.votes), ("dan", vec![]), "one person decides");
    assert_eq!(second.run(run).result().await.unwrap().output, json!(["a.txt"]));
    second.shutdown().await;
}
