//! What a board shows of agents and runs of the other boards on its store.

use std::time::Duration;

use callboard::messages::{Action, Complexity, SendTo};
use callboard::prelude::*;
use callboard::storage::{Key, NewSession, Storage};
use callboard::workflow::{Node, Workflow};
use serde_json::json;

use crate::common::{World, comes_true};

async fn shout(turn: Turn) -> Result<Command, TurnError> {
    Ok(Command::output(turn.input::<String>()?.to_uppercase()))
}

#[tokio::test(start_paused = true)]
async fn the_children_of_a_run_are_those_of_its_workflows_and_those_that_other_boards_took() {
    let world = World::new();
    let back = world.board().name("back").agent("shout", shout).start().await.unwrap();
    let inner = Workflow::builder("inner").node(Node::agent("only", "here")).build().unwrap();
    let lead = |turn: Turn| async move {
        turn.delegate("team", "a").await?;
        turn.delegate("here", "b").await?;
        Ok(Command::new().goto_many([SendTo::new("shout", "c"), SendTo::new("shout", "d")]))
    };
    let front = world.board().name("front").agent("lead", lead).agent("here", shout);
    let front = front.workflow("team", &inner, Complexity::Simple).start().await.unwrap();
    let run = front.submit(Task::new("x").to("lead")).await.unwrap();
    assert_eq!(run.result().await.unwrap().output, json!(["C", "D"]));
    for board in [&front, &back] {
        let children = board.run(run.id()).children().await.unwrap();
        let mut taken = Vec::new();
        for child in &children {
            taken.push(child.read().await.unwrap().submission().agent.to_string());
            assert_eq!(child.children().await.unwrap().len(), 0);
        }
        assert_eq!(taken, ["here", "shout", "shout"]);
    }
    for board in [front, back] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_boards_of_an_agent_are_those_that_live_and_host_it() {
    let world = World::new();
    let a = world.board().name("a").agent("both", shout).start().await.unwrap();
    let b = world.board().name("b").agent("both", shout).agent("one", shout).start().await.unwrap();
    let c = world.board().name("c").start().await.unwrap();
    let of = |board: &Callboard| ["both", "one", "none"].map(|agent| board.agents().boards(agent).join(" "));
    assert_eq!(of(&a), ["a b", "b", ""]);
    assert_eq!(of(&b), ["b a", "b", ""]);
    let of_client = c.agents().boards("both");
    assert!(of_client.len() == 2 && of_client.contains(&"a".into()) && of_client.contains(&"b".into()));
    assert_eq!([&a, &b, &c].map(|board| board.agents().is_here("one")), [false, true, false]);
    b.shutdown().await;
    comes_true(async || of(&a) == ["a", "", ""]).await;
    for board in [a, c] {
        board.shutdown().await;
    }
}

/// A board with the agent `shout` that lives and reads no letter.
async fn silent_board(world: &World) -> Key {
    let board = world.board().agent("shout", shout).start().await.unwrap();
    let about = world.storage.sessions().await.unwrap().remove(0).about;
    let about = String::from_utf8_lossy(&about).replace(board.id(), "silent");
    board.shutdown().await;
    let new = NewSession { name: "silent".into(), about: about.as_bytes().into(), lease: Duration::from_secs(60) };
    world.storage.begin_session(new).await.unwrap();
    Key::new(["mail", "silent"])
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_another_board_was_asked_for_is_taken_by_that_run_alone_also_where_the_heir_has_its_agent() {
    let world = World::new();
    let mail = silent_board(&world).await;
    let lead = |_: Turn| async { Ok(Command::new().goto_many([SendTo::new("shout", "a")])) };
    let front = world.board().agent("lead", lead).start().await.unwrap();
    let letters = async || world.storage.scan(&mail.children(), None, 9).await.unwrap().len();
    let before = letters().await;
    let run = front.submit(Task::new("x").to("lead")).await.unwrap().id();
    comes_true(async || letters().await > before).await;
    front.shutdown().await;

    let heir = world.board().agent("lead", lead).agent("shout", shout).start().await.unwrap();
    assert_eq!(heir.run(run).result().await.unwrap().output, json!(["A"]));
    let children = heir.run(run).children().await.unwrap();
    assert_eq!(children.len(), 1, "the silent board would begin the turn once more");
    heir.shutdown().await;
}

async fn asker(turn: Turn) -> Result<Command, TurnError> {
    Ok(Command::output(turn.people().ask("name?").await?))
}

/// A board of the world with an agent that delegates to another one.
async fn delegating(world: &World, agent: &str, to: &'static str) -> Callboard {
    let lead = move |turn: Turn| async move { Ok(Command::output(turn.delegate(to, "x").await?)) };
    world.board().name(agent).agent(agent, lead).start().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_run_waits_for_what_its_turns_at_other_boards_wait_for_seen_from_every_board() {
    let world = World::new();
    let back = world.board().name("back").agent("asker", asker).start().await.unwrap();
    let middle = delegating(&world, "middle", "asker").await;
    let front = delegating(&world, "front", "middle").await;
    let client = world.board().name("client").start().await.unwrap();
    for by in [&front, &middle, &back, &client] {
        let id = front.submit(Task::new("x").to("front")).await.unwrap().id();
        let run = by.run(id);
        let Some(open) = run.next_pending().await.unwrap() else { panic!("nothing waits") };
        let Pending::Question(question) = &open else { panic!("{open:?}") };
        assert_eq!((&question.question, question.agent.as_str()), (&json!("name?").into(), "asker"));
        assert_ne!(open.run(), id, "it has the id of the run that its turn is at the other board");
        assert_eq!(run.pending().await, std::slice::from_ref(&open));
        let read = run.read_with_placed().await.unwrap();
        assert_eq!((read.pending(), read.waits_for_people()), (vec![open.clone()], true));
        let alone = run.read().await.unwrap();
        assert_eq!((alone.pending().len(), alone.waits_for_people()), (0, false));
        by.people().answer(&open, "Ann", "ann").await.unwrap();
        assert_eq!(run.pending().await, []);
        assert_eq!(run.result().await.unwrap().output, json!("Ann"));
        assert!(!run.read_with_placed().await.unwrap().waits_for_people());
    }
    for board in [front, middle, back, client] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_of_which_one_turn_works_does_not_wait_for_people_and_an_approval_elsewhere_is_listed_until_it_is_decided()
 {
    let world = World::new();
    let clerk = |turn: Turn| async move {
        turn.people().approve(Action::new("write_file", "a.txt", "hello")).await?;
        Ok(Command::output("written"))
    };
    let back = world.board().name("back").agent("clerk", clerk).start().await.unwrap();
    let lead = |_: Turn| async { Ok(Command::new().goto_many([SendTo::new("clerk", "c"), SendTo::new("slow", "d")])) };
    let slow = |_: Turn| async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        Ok(Command::output("slept"))
    };
    let front = world.board().name("front").agent("lead", lead).agent("slow", slow).start().await.unwrap();
    let run = front.submit(Task::new("x").to("lead")).await.unwrap();
    let Some(Pending::Approval(envelope)) = run.next_pending().await.unwrap() else { panic!("no approval") };
    let read = async || run.read_with_placed().await.unwrap();
    assert_eq!((read().await.pending().len(), read().await.waits_for_people()), (1, false));
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(read().await.waits_for_people(), "the other turn has ended");
    front.people().approve(envelope.id(), "ann").await.unwrap();
    assert_eq!(run.pending().await, [], "its decision may not have reached its run");
    assert_eq!(run.result().await.unwrap().output, json!(["written", "slept"]));
    for board in [front, back] {
        board.shutdown().await;
    }
}
