//! What runs wait for people with is one list with one call that answers, whatever its kind (SEMANTICS 9).

use std::sync::Arc;
use std::time::Duration;

use callboard::AnswerError;
use callboard::messages::PendingId;
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard::workflow::{Node, Workflow};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::common::{World, assert_nothing_left, builder, quiet, secs};

const HOUR: Duration = Duration::from_secs(3_600);

fn write(target: &str) -> Action {
    Action::new("write", target, json!({}))
}

/// A board with a writer, who needs consent, an asker and an echo.
fn board(world: &World) -> Builder {
    let writer = |turn: Turn| async move {
        Ok(Command::output(turn.people().approve(write(&turn.task().body)).await?.to_string()))
    };
    let asker = |turn: Turn| async move { Ok(Command::output(turn.people().ask(&*turn.task().body).await?)) };
    let echo = |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) };
    let builder = world.builder().approval_policy(|question| match &*question.action.action {
        "write" => Consent::Ask,
        _ => Consent::Auto,
    });
    builder.agent("writer", writer).agent("asker", asker).agent("echo", echo)
}

/// A run in the store that was left to an agent which other boards do not have.
async fn stuck(world: &World) -> RunId {
    let gone = |_: Turn| async {
        std::future::pending::<()>().await;
        Ok(Command::new())
    };
    let board = board(world).agent("gone", gone).shutdown_grace(Duration::ZERO).start().await.unwrap();
    let run = board.submit(Task::new("stuck").to("gone")).await.unwrap();
    board.shutdown().await;
    run.id()
}

/// A board with runs that wait for two approvals, a question, a node, and with a turn whose agent is gone.
async fn waiting(world: &World) -> (Callboard, [RunHandle; 5]) {
    let stuck = stuck(world).await;
    let board = board(world).start().await.unwrap();
    let stuck = board.run(stuck);
    let submit = async |task: Task| {
        let run = board.submit(task).await.unwrap();
        run.next_pending().await.unwrap().unwrap();
        run
    };
    let node = submit(publishing().task("a draft")).await;
    let question = submit(Task::new("Which?").to("asker")).await;
    let later = submit(Task::new("later").to("writer").approval_ttl(2 * HOUR)).await;
    let sooner = submit(Task::new("sooner").to("writer").approval_ttl(HOUR)).await;
    stuck.next_pending().await.unwrap().unwrap();
    (board, [sooner, later, question, node, stuck])
}

fn publishing() -> Workflow {
    Workflow::builder("publishing").node(Node::agent("publish", "echo").interrupted()).build().unwrap()
}

fn kind(open: &Pending) -> &'static str {
    match open {
        Pending::Approval(_) => "approval",
        Pending::Question(_) => "question",
        Pending::Node(_) => "node",
        Pending::Attention { .. } => "attention",
    }
}

/// One response of each kind, and whether it is one for this.
fn responses(open: &Pending) -> [(Response, bool); 7] {
    let kind = kind(open);
    [
        (Response::Approve, kind == "approval"),
        (Response::ApproveForRun(HOUR), kind == "approval"),
        (Response::ApproveEdited(json!({}).into()), kind == "approval"),
        (Response::Deny { reason: String::new() }, kind == "approval"),
        (Response::Value("yes".into()), kind == "question"),
        (Response::Resume(Resume::default()), kind == "node"),
        (Response::Restart, kind == "attention"),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_board_lists_what_all_of_its_runs_wait_for_in_one_order() {
    let world = World::new();
    let (board, runs) = waiting(&world).await;
    let open = board.people().pending().await;
    assert_eq!(open.iter().map(kind).collect::<Vec<_>>(), ["approval", "approval", "question", "node", "attention"]);
    assert_eq!(open.iter().map(Pending::run).collect::<Vec<_>>(), runs.each_ref().map(RunHandle::id));
    for (run, listed) in runs.iter().zip(&open) {
        let its_own = std::slice::from_ref(listed);
        assert_eq!(run.pending().await, its_own, "a run lists its own");
        assert_eq!(run.read().await.unwrap().pending(), its_own, "and so does its journal");
    }
    let mut seen = Vec::new();
    while let Some(first) = board.people().next_where(|open| !seen.contains(&open.id())).await {
        seen.push(first.id());
        if seen.len() == open.len() {
            break;
        }
    }
    assert_eq!(seen, open.iter().map(Pending::id).collect::<Vec<_>>(), "what was left open is passed over");
    assert_eq!(board.people().next().await, Some(open[0].clone()));
    board.shutdown().await;
    assert_eq!((board.people().next().await, board.people().pending().await), (None, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_response_of_another_kind_is_refused_and_changes_nothing() {
    let world = World::new();
    let (board, runs) = waiting(&world).await;
    let people = board.people();
    let before = people.pending().await;
    for (run, open) in runs.iter().zip(&before) {
        let history = run.history().await.unwrap().len();
        for (response, fits) in responses(open).into_iter().filter(|(_, fits)| !fits) {
            let refused = people.answer(open, response.clone(), "ann").await;
            assert_eq!(refused, Err(AnswerError::DoesNotFit { id: open.id() }), "{response:?}: {fits}");
        }
        assert_eq!(run.history().await.unwrap().len(), history);
    }
    assert_eq!(people.pending().await, before);
    let back = |_: Turn| async { Ok(Command::output("back")) };
    board.agents().spawn(AgentSpec::new("gone", back)).await.unwrap();
    for (run, open) in runs.iter().zip(&before) {
        let closed = tokio::spawn({
            let (people, id) = (people.clone(), open.id());
            async move { people.closed(id).await }
        });
        quiet().await;
        assert!(!closed.is_finished(), "{open:?}");
        let (response, _) = responses(open).into_iter().find(|(_, fits)| *fits).unwrap();
        people.answer(open, response.clone(), "ann").await.unwrap();
        closed.await.unwrap();
        assert!(people.pending().await.iter().all(|left| left.id() != open.id()));
        let again = people.answer(open, response, "bob").await.unwrap_err();
        let is_decided = matches!(again, AnswerError::AlreadyDecided { .. } | AnswerError::Answered(_));
        assert!(is_decided || again == AnswerError::NotOpen(open.id()), "{again}");
        assert_eq!(run.result().await.unwrap().outcome, Outcome::Finished);
        assert_eq!(run.next_pending().await, Ok(None), "it has ended");
    }
    assert_nothing_left(&board, 5).await;
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn approvals_of_a_run_are_listed_by_expiry_and_questions_by_age() {
    let many = |turn: Turn| async move {
        let people = turn.people();
        // The requests have their numbers in this order.
        let (younger, slow, older, fast) =
            (people.ask("younger"), people.approve(write("slow")), people.ask("older"), people.approve(write("fast")));
        let younger = async {
            tokio::time::sleep(secs(60)).await;
            younger.await
        };
        let (younger, slow, older, fast) = tokio::join!(younger, slow, older, fast);
        Ok(Command::output(json!([younger.is_ok(), slow.is_ok(), older.is_ok(), fast.is_ok()])))
    };
    let consent = |target: &str| Consent::AskWithin(if target == "fast" { HOUR } else { 2 * HOUR });
    let board = builder()
        .agent("many", many)
        .approval_policy(move |question| consent(&question.action.target))
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x")).await.unwrap();
    tokio::time::sleep(secs(120)).await;
    let names = |open: Vec<Pending>| -> Vec<String> {
        let name = |open: Pending| match open {
            Pending::Approval(envelope) => envelope.action.target.to_string(),
            Pending::Question(question) => question.question.as_str().unwrap_or_default().to_owned(),
            Pending::Node(_) | Pending::Attention { .. } => String::new(),
        };
        open.into_iter().map(name).collect()
    };
    let expected = ["fast", "slow", "older", "younger"];
    assert_eq!(names(run.pending().await), expected);
    assert_eq!(names(run.read().await.unwrap().pending()), expected);
    assert_eq!(names(board.people().pending().await), expected);
    tokio::time::sleep(HOUR).await;
    assert_eq!(names(run.pending().await), expected[1..], "what has expired is not listed");
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_woken_by_each_kind() {
    let world = World::new();
    let gate = Arc::new(Semaphore::new(0));
    let after = {
        let gate = Arc::clone(&gate);
        move |turn: Turn| {
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await.unwrap().forget();
                let people = turn.people();
                match &*turn.task().body {
                    "approval" => drop(people.approve(write("x")).await?),
                    "question" => drop(people.ask("Which?").await?),
                    _ => {}
                }
                Ok(Command::output("done"))
            }
        }
    };
    let stuck = stuck(&world).await;
    let board = board(&world).agent("after", after).start().await.unwrap();
    let interrupted = Workflow::builder("interrupted").node(Node::agent("first", "after"));
    let interrupted = interrupted.node(Node::agent("then", "echo").after("first").interrupted()).build().unwrap();
    let tasks = [Task::new("approval").to("after"), Task::new("question").to("after"), interrupted.task("x")];
    for (task, expected) in tasks.into_iter().zip(["approval", "question", "node"]) {
        let run = board.submit(task).await.unwrap();
        let of_run = tokio::spawn({
            let run = run.clone();
            async move { run.next_pending().await }
        });
        let of_board = tokio::spawn({
            let (people, id) = (board.people(), run.id());
            async move { people.next_where(|open| open.run() == id).await }
        });
        quiet().await;
        assert!(!of_run.is_finished() && !of_board.is_finished(), "{expected}: nothing is asked");
        gate.add_permits(1);
        let open = of_run.await.unwrap().unwrap().unwrap();
        assert_eq!((kind(&open), of_board.await.unwrap()), (expected, Some(open.clone())));
        run.cancel("enough").await.unwrap();
        assert_eq!(run.next_pending().await, Ok(None));
    }
    let (people, stuck) = (board.people(), board.run(stuck));
    let is_stuck = |open: &Pending| open.run() == stuck.id();
    let (of_run, of_board) = tokio::join!(stuck.next_pending(), people.next_where(is_stuck));
    let open = of_run.unwrap().unwrap();
    assert_eq!((kind(&open), of_board), ("attention", Some(open.clone())));
    assert_eq!(open.id().to_string().parse::<PendingId>(), Ok(open.id()));
    stuck.cancel("enough").await.unwrap();
    board.shutdown().await;
}
