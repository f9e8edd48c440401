//! What the runs of boards without a channel wait for is asked by one other board on the store that has it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use callboard::AnswerError;
use callboard::actors::approvals::{Channel, Decider};
use callboard::env::Fault;
use callboard::messages::{Action, AgentName, ApprovalId, Consent, Deciders, Decision, Envelope, Groups};
use callboard::prelude::*;
use callboard::runtime::{Builder, RunHandle, Unfinished};
use callboard::storage::NewSession;
use parking_lot::Mutex;
use serde_json::json;

use crate::common::faults::FaultPlan;
use crate::common::{World, comes_true, people};

/// Longer than a board needs to look at the others.
const LOOKS: Duration = Duration::from_secs(5);
/// Longer than a board needs to see that another one is gone, and to take its runs over.
const GONE: Duration = Duration::from_secs(30);

/// A channel that notes what it shows, and by which a test decides.
#[derive(Clone)]
struct Bell {
    name: &'static str,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    notes: Vec<String>,
    decider: Option<Decider>,
    /// Panics over so many questions from here on.
    panics: u32,
}

impl Bell {
    fn new(name: &'static str) -> Self {
        Self { name, seen: Arc::default() }
    }

    fn note(&self, note: String) {
        self.seen.lock().notes.push(note);
    }

    /// What it has noted: `asked`, `reminded`, `withdrawn`, or who decided.
    fn notes(&self) -> Vec<String> {
        self.seen.lock().notes.clone()
    }

    /// Waits until it has noted this last.
    #[track_caller]
    fn has_noted(&self, note: &str) -> impl Future<Output = ()> {
        comes_true(async move || self.seen.lock().notes.last().is_some_and(|last| last == note))
    }

    fn decider(&self) -> Decider {
        self.seen.lock().decider.clone().unwrap()
    }

    fn shows(&self) -> Vec<ApprovalId> {
        self.decider().open().iter().map(Envelope::id).collect()
    }
}

impl Channel for Bell {
    fn name(&self) -> &str {
        self.name
    }

    fn started(&self, decider: &Decider) {
        self.seen.lock().decider = Some(decider.clone());
    }

    fn ask(&self, _: &Envelope, _: &Decider) {
        self.note("asked".to_owned());
        let panics = &mut self.seen.lock().panics;
        let left = panics.checked_sub(1);
        *panics = left.unwrap_or_default();
        assert!(left.is_none(), "it fails, as the test has it");
    }

    fn settled(&self, _: &Envelope, decision: Option<&Decision>) {
        self.note(decision.map_or("withdrawn".to_owned(), |decision| decision.by.to_string()));
    }

    fn remind(&self, _: &Envelope, _: &Decider) {
        self.note("reminded".to_owned());
    }
}

async fn clerk(turn: Turn) -> Result<Command, TurnError> {
    let approved = turn.people().approve(Action::new("write_file", "a.txt", "hello")).await;
    Ok(Command::output(approved.map_or_else(|error| error.to_string(), |action| action.arguments.to_string())))
}

/// A board that hosts the agent.
fn with_agent(world: &World) -> Builder {
    world.board().agent("clerk", clerk)
}

/// A board that has the channel, and takes no runs over.
async fn with_channel(world: &World, name: &'static str) -> (Callboard, Bell) {
    let bell = Bell::new(name);
    let board = world.board().on_unfinished(Unfinished::Leave).channel(bell.clone());
    (board.start().await.unwrap(), bell)
}

/// A board whose storage actor hangs for an hour: it is gone for the others, and does not know it.
fn hanging(world: &World) -> Builder {
    let hangs = FaultPlan::default();
    hangs.arm("storage.handle", Fault::Wait(Duration::from_secs(3600)), 1);
    world.board().env(world.env.clone().with_faults(Arc::new(hangs)))
}

async fn ask(board: &Callboard) -> (RunHandle, ApprovalId) {
    let run = board.submit(Task::new("x").to("clerk")).await.unwrap();
    let Some(Pending::Approval(envelope)) = run.next_pending().await.unwrap() else { panic!("no approval") };
    (run, envelope.id())
}

async fn output(run: &RunHandle) -> Json {
    run.result().await.unwrap().output
}

async fn stop(boards: impl IntoIterator<Item = Callboard>) {
    for board in boards {
        board.shutdown().await;
    }
}

/// A question of this board passes from the channel that has asked it to the next one, by which it is approved.
async fn passes_on(owner: &Callboard, bell: &Bell, next: &Bell) {
    let (run, id) = ask(owner).await;
    bell.has_noted("asked").await;
    assert!(next.notes().is_empty());
    next.has_noted("asked").await;
    tokio::time::sleep(GONE).await;
    assert_eq!((next.shows(), next.notes()), (vec![id], vec!["asked".to_owned()]));
    next.decider().approve(id, "ann").await.unwrap();
    assert_eq!(output(&run).await, json!("\"hello\""));
    next.has_noted("ann").await;
}

#[tokio::test(start_paused = true)]
async fn one_other_board_that_has_the_channel_asks_and_a_decision_by_it_reaches_the_run() {
    let world = World::new();
    let owner = with_agent(&world).start().await.unwrap();
    let (first, bell) = with_channel(&world, "bell").await;
    let (second, other) = with_channel(&world, "bell").await;
    let (third, post) = with_channel(&world, "post").await;
    let (run, id) = ask(&owner).await;
    bell.has_noted("asked").await;
    post.has_noted("asked").await;
    tokio::time::sleep(GONE).await;
    assert_eq!((bell.notes(), other.notes()), (vec!["asked".to_owned()], vec![]), "one of two asks, and once");
    assert_eq!((bell.shows(), other.shows()), (vec![id], vec![]));
    assert_eq!(people::approvals(&first).await.len(), 1, "it is listed once, wherever it is shown");
    bell.decider().approve(id, "ann").await.unwrap();
    assert_eq!(output(&run).await, json!("\"hello\""));
    bell.has_noted("ann").await;
    post.has_noted("ann").await;
    tokio::time::sleep(GONE).await;
    assert_eq!((bell.notes().len(), other.notes().len(), post.notes().len()), (2, 0, 2));
    let decision = owner.people().decision(id).await.unwrap().unwrap();
    assert_eq!((&*decision.by, &*decision.via), ("ann", "bell"));
    assert!(bell.shows().is_empty());
    stop([owner, first, second, third]).await;
}

#[tokio::test(start_paused = true)]
async fn the_board_that_works_on_the_run_asks_by_the_channels_that_it_has() {
    let world = World::new();
    let (first, bell) = with_channel(&world, "bell").await;
    let own = Bell::new("bell");
    let owner = with_agent(&world).channel(own.clone()).start().await.unwrap();
    let (run, id) = ask(&owner).await;
    own.has_noted("asked").await;
    tokio::time::sleep(GONE).await;
    assert!(bell.notes().is_empty());
    first.people().deny(id, "bob", "no").await.unwrap();
    own.has_noted("bob").await;
    assert_eq!(own.notes(), ["asked", "bob"]);
    run.result().await.unwrap();
    stop([first, owner]).await;
}

#[tokio::test(start_paused = true)]
async fn the_next_board_asks_when_the_one_that_asked_is_gone() {
    let world = World::new();
    let owner = with_agent(&world).start().await.unwrap();
    let bell = Bell::new("bell");
    let first = hanging(&world).channel(bell.clone()).start().await.unwrap();
    let (second, next) = with_channel(&world, "bell").await;
    passes_on(&owner, &bell, &next).await;
    stop([owner, second, first]).await;
}

#[tokio::test(start_paused = true)]
async fn a_question_stays_shown_when_its_run_is_taken_over_and_its_decision_finds_the_heir() {
    let world = World::new();
    let (shows, bell) = with_channel(&world, "bell").await;
    let owner = hanging(&world).agent("clerk", clerk).start().await.unwrap();
    let (run, id) = ask(&owner).await;
    bell.has_noted("asked").await;
    let heir = with_agent(&world).start().await.unwrap();
    let taken = heir.run(run.id());
    comes_true(async || heir.load().runs == 1).await;
    tokio::time::sleep(GONE).await;
    assert_eq!(bell.notes(), ["asked"], "it is not asked again, and was not withdrawn");
    bell.decider().approve(id, "ann").await.unwrap();
    assert_eq!(output(&taken).await, json!("\"hello\""));
    bell.has_noted("ann").await;
    stop([shows, heir, owner]).await;
}

#[tokio::test(start_paused = true)]
async fn an_heir_that_has_the_channel_asks_instead_and_the_board_that_asked_before_asks_again_after_it() {
    let world = World::new();
    let (shows, bell) = with_channel(&world, "bell").await;
    let owner = with_agent(&world).start().await.unwrap();
    let (run, id) = ask(&owner).await;
    bell.has_noted("asked").await;
    let own = Bell::new("bell");
    let heir = with_agent(&world).channel(own.clone()).start().await.unwrap();
    owner.shutdown().await;
    own.has_noted("asked").await;
    bell.has_noted("withdrawn").await;
    assert!(bell.shows().is_empty());
    let last = with_agent(&world).start().await.unwrap();
    heir.shutdown().await;
    bell.has_noted("asked").await;
    tokio::time::sleep(GONE).await;
    assert_eq!((bell.shows(), bell.notes()), (vec![id], ["asked", "withdrawn", "asked"].map(str::to_owned).to_vec()));
    bell.decider().approve(id, "ann").await.unwrap();
    assert_eq!(output(&last.run(run.id())).await, json!("\"hello\""));
    bell.has_noted("ann").await;
    stop([shows, last]).await;
}

#[tokio::test(start_paused = true)]
async fn the_board_that_shows_a_question_does_not_ask_again_when_it_takes_the_run_over() {
    let (world, bell) = (World::new(), Bell::new("bell"));
    let shows = with_agent(&world).channel(bell.clone()).start().await.unwrap();
    let owner = with_agent(&world).start().await.unwrap();
    let (run, id) = ask(&owner).await;
    bell.has_noted("asked").await;
    owner.shutdown().await;
    comes_true(async || shows.load().open_approvals == 1).await;
    tokio::time::sleep(GONE).await;
    assert_eq!((bell.shows(), bell.notes()), (vec![id], vec!["asked".to_owned()]));
    bell.decider().approve(id, "ann").await.unwrap();
    assert_eq!(output(&shows.run(run.id())).await, json!("\"hello\""));
    bell.has_noted("ann").await;
    tokio::time::sleep(LOOKS).await;
    assert_eq!(bell.notes().len(), 2);
    stop([shows]).await;
}

#[tokio::test(start_paused = true)]
async fn a_question_of_a_run_that_is_cancelled_is_withdrawn_and_one_that_expires_is_closed_with_that() {
    let world = World::new();
    let (shows, bell) = with_channel(&world, "bell").await;
    let owner = with_agent(&world).start().await.unwrap();
    let (run, _) = ask(&owner).await;
    bell.has_noted("asked").await;
    run.cancel("not needed").await.unwrap();
    bell.has_noted("withdrawn").await;
    let task = Task::new("x").to("clerk").approval_ttl(Duration::from_secs(4 * 3600));
    let run = owner.submit(task).await.unwrap();
    bell.has_noted("asked").await;
    run.result().await.unwrap();
    bell.has_noted("expiry").await;
    assert_eq!(bell.notes(), ["asked", "withdrawn", "asked", "reminded", "expiry"]);
    stop([shows, owner]).await;
}

#[tokio::test(start_paused = true)]
async fn a_decision_by_a_channel_elsewhere_is_made_by_the_rules_of_the_board_of_the_run() {
    let world = World::new();
    let bell = Bell::new("bell");
    // This board counts others among the people of the group.
    let groups = Groups::default().group("ops", ["mallory"]);
    let shows = world.board().groups(groups).channel(bell.clone()).start().await.unwrap();
    let deciders = || Deciders { at_least: 2, excludes_requester: true, ..Deciders::of("ops") };
    let owner = with_agent(&world)
        .groups(Groups::default().group("ops", ["ann", "bob", "cat"]))
        .approval_policy(move |_| Consent::AskOf { deciders: deciders().into(), within: None })
        .start()
        .await
        .unwrap();
    let run = owner.submit(Task::new("x").to("clerk").from_agent(AgentName::new("cat").unwrap())).await.unwrap();
    bell.has_noted("asked").await;
    let (decider, id) = (bell.decider(), bell.shows()[0]);
    for decided in [decider.approve(id, "mallory").await, decider.check(id, "mallory").await] {
        assert!(matches!(decided, Err(AnswerError::NotInGroup { .. })), "{decided:?}");
    }
    assert!(matches!(decider.deny(id, "mallory", "no").await, Err(AnswerError::NotInGroup { .. })));
    assert!(matches!(decider.approve(id, "cat").await, Err(AnswerError::OfRequester { .. })));
    assert_eq!(decider.check(id, "ann").await.unwrap().missing, 2);
    assert_eq!(decider.approve(id, "ann").await.unwrap().missing, 1);
    assert!(matches!(decider.approve(id, "ann").await, Err(AnswerError::HasApproved { .. })));
    assert!(decider.approve_for_run(id, "", Duration::MAX).await.is_err(), "nobody has no name");
    let votes = decider.approve(id, "bob").await.unwrap();
    assert!(votes.decision.unwrap().approved);
    assert_eq!(votes.approved.iter().map(|vote| &*vote.by).collect::<Vec<_>>(), ["ann", "bob"]);
    assert_eq!(output(&run).await, json!("\"hello\""));
    stop([shows, owner]).await;
}

#[tokio::test(start_paused = true)]
async fn of_two_that_decide_at_once_at_two_boards_one_wins_and_all_see_who() {
    let world = World::new();
    let (shows, bell) = with_channel(&world, "bell").await;
    let owner = with_agent(&world).start().await.unwrap();
    let mut winners = BTreeSet::new();
    for round in 0..8_u32 {
        let (run, id) = ask(&owner).await;
        bell.has_noted("asked").await;
        let (by_channel, here) = (bell.decider(), owner.people());
        let late = async {
            tokio::time::sleep(Duration::from_millis(u64::from(round % 2))).await;
            here.deny(id, "bob", "no").await
        };
        let (one, two) = futures::join!(by_channel.approve(id, "ann"), late);
        assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
        let (by, lost) = if one.is_ok() { ("ann", two) } else { ("bob", one) };
        assert!(matches!(lost, Err(AnswerError::AlreadyDecided { decision }) if &*decision.by == by));
        bell.has_noted(by).await;
        run.result().await.unwrap();
        winners.insert(by);
    }
    assert!(!winners.is_empty());
    stop([shows, owner]).await;
}

#[tokio::test(start_paused = true)]
async fn a_board_with_a_channel_that_panics_shows_the_question_again() {
    let world = World::new();
    let (shows, bell) = with_channel(&world, "bell").await;
    bell.seen.lock().panics = 1;
    let owner = with_agent(&world).start().await.unwrap();
    let (run, id) = ask(&owner).await;
    comes_true(async || bell.notes().len() == 2).await;
    tokio::time::sleep(LOOKS).await;
    assert_eq!((bell.notes(), bell.shows()), (["asked", "asked"].map(str::to_owned).to_vec(), vec![id]));
    bell.decider().approve_edited(id, "ann", "hi").await.unwrap();
    assert_eq!(output(&run).await, json!("\"hi\""));
    bell.has_noted("ann").await;
    stop([shows, owner]).await;
}

#[tokio::test(start_paused = true)]
async fn another_board_asks_when_the_channel_of_the_board_that_works_on_the_run_has_failed_for_good() {
    let world = World::new();
    let own = Bell::new("bell");
    own.seen.lock().panics = u32::MAX;
    let owner = with_agent(&world).channel(own.clone()).start().await.unwrap();
    let (other, bell) = with_channel(&world, "bell").await;
    let (run, id) = ask(&owner).await;
    bell.has_noted("asked").await;
    let listed = other.boards().await.unwrap();
    assert_eq!(listed.iter().map(|board| board.info.channels.len()).collect::<Vec<_>>(), [0, 1]);
    let asked = own.notes().len();
    tokio::time::sleep(GONE).await;
    assert_eq!((own.notes().len(), bell.notes().len()), (asked, 1));
    bell.decider().approve(id, "ann").await.unwrap();
    assert_eq!(output(&run).await, json!("\"hello\""));
    bell.has_noted("ann").await;
    stop([owner, other]).await;
}

#[tokio::test(start_paused = true)]
async fn the_next_board_asks_when_the_channel_of_the_one_that_asked_has_failed_for_good() {
    let world = World::new();
    let owner = with_agent(&world).start().await.unwrap();
    let (first, bell) = with_channel(&world, "bell").await;
    bell.seen.lock().panics = u32::MAX;
    let (second, next) = with_channel(&world, "bell").await;
    passes_on(&owner, &bell, &next).await;
    assert!(bell.shows().is_empty());
    stop([owner, first, second]).await;
}

#[tokio::test(start_paused = true)]
async fn a_board_that_only_claims_a_channel_decides_nothing() {
    let world = World::new();
    let about = json!({ "id": "00000000-0000-0000-0000-000000000000", "channels": ["bell"], "approvals": 7 });
    let about: Arc<[u8]> = serde_json::to_vec(&about).unwrap().into();
    let claims = NewSession { name: "claims".into(), about, lease: Duration::from_secs(60) };
    world.storage.begin_session(claims).await.unwrap();
    let (other, bell) = with_channel(&world, "bell").await;
    let owner = with_agent(&world).start().await.unwrap();
    let (run, id) = ask(&owner).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(bell.notes().is_empty(), "the other board would ask");
    assert_eq!(people::approvals(&other).await.len(), 1, "and all list it");
    // Once its lease has run out, the next one asks.
    bell.has_noted("asked").await;
    bell.decider().approve(id, "ann").await.unwrap();
    assert_eq!(output(&run).await, json!("\"hello\""));
    stop([owner, other]).await;
}
