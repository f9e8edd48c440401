//! A start finds every unfinished run: the note that a run is open is written with the run's first record,
//! so that no crash can keep the record and lose the note. It reads no run that has ended, an inbox only as many as it needs, and
//! a page of the list of runs none.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use callboard::messages::{EndedRun, RequestId, RunId, Status, TurnId};
use callboard::prelude::*;
use callboard::storage::{
    Append, Delete, Durability, Entry, Journal, Key, KeyPrefix, Memory, Put, Record, Revision, Rider, Sequence,
    Storage, StorageFuture, Watch,
};
use parking_lot::Mutex;

use crate::passing::pass_on;

/// Notes which writes were handed over, in order, and which streams were read.
#[derive(Debug, Default)]
struct Ordered {
    inside: Memory,
    writes: Mutex<Vec<String>>,
    reads: Mutex<Vec<Key>>,
    /// Counts everything that was read: records, values and lists.
    calls: AtomicUsize,
}

impl Storage for Ordered {
    fn append(&self, append: Append) -> StorageFuture<Sequence> {
        let name = append.stream.segments()[0].clone();
        let with_it = append.riders.iter().map(|rider| match rider {
            Rider::Put { key, .. } => format!("{name} with {}", key.segments()[0]),
            Rider::Delete { key } => format!("{name} without {}", key.segments()[0]),
        });
        self.writes.lock().extend(with_it.chain([name.clone()]));
        self.inside.append(append)
    }

    fn delete_if_revision(&self, delete: Delete) -> StorageFuture<()> {
        self.writes.lock().push(format!("no {}", delete.key.segments()[0]));
        self.inside.delete_if_revision(delete)
    }

    fn put_if_revision(&self, put: Put) -> StorageFuture<Revision> {
        self.writes.lock().push(put.key.segments()[0].clone());
        self.inside.put_if_revision(put)
    }

    fn read(&self, stream: &Key, from: Sequence, limit: usize) -> StorageFuture<Vec<Record>> {
        self.reads.lock().push(stream.clone());
        self.calls.fetch_add(1, Relaxed);
        self.inside.read(stream, from, limit)
    }

    fn streams(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<Key>> {
        self.calls.fetch_add(1, Relaxed);
        self.inside.streams(prefix, after, limit)
    }

    fn get(&self, key: &Key) -> StorageFuture<Option<Entry>> {
        self.calls.fetch_add(1, Relaxed);
        self.inside.get(key)
    }

    fn scan(&self, prefix: &KeyPrefix, after: Option<&Key>, limit: usize) -> StorageFuture<Vec<(Key, Entry)>> {
        self.calls.fetch_add(1, Relaxed);
        self.inside.scan(prefix, after, limit)
    }

    pass_on!(inside: purge, watch, sessions);
}

#[tokio::test(start_paused = true)]
async fn the_note_is_written_with_the_first_record() {
    let store = Arc::new(Ordered::default());
    let board = Callboard::builder()
        .storage(store.clone())
        .durability(Durability::Sync)
        .agent("greeter", |_: Turn| async move { Ok(Command::output("hello")) })
        .start()
        .await
        .unwrap();
    board.submit(Task::new("greet")).await.unwrap().result().await.unwrap();
    board.shutdown().await;
    assert_eq!(store.writes.lock()[..4], ["inboxes", "listed", "run with open", "run"], "two are of the board's start");
}

#[tokio::test(start_paused = true)]
async fn a_durable_chain_of_three_is_four_records_and_no_other_write() {
    let store = Arc::new(Ordered::default());
    let hand_to = |next: &'static str| move |_: Turn| async move { Ok(Command::new().goto(next)) };
    let board = Callboard::builder().storage(store.clone()).durability(Durability::Sync);
    let board = board.agent("first", hand_to("second")).agent("second", hand_to("third"));
    let board = board.agent("third", |_: Turn| async { Ok(Command::output("done")) }).start().await.unwrap();
    store.writes.lock().clear();
    let run = board.submit(Task::new("x").to("first")).await.unwrap();
    run.result().await.unwrap();
    assert_eq!(board.ended_runs(None, 2).await.unwrap().len(), 1, "it is listed with its last record");
    assert!(board.unfinished_runs().await.unwrap().is_empty());
    board.shutdown().await;
    let with_the_last = ["run with listed", "run with ended", "run without open", "run"];
    assert_eq!(*store.writes.lock(), [&["run with open", "run", "run", "run"][..], &with_the_last].concat());
}

#[tokio::test(start_paused = true)]
async fn a_delegation_to_another_board_waits_for_five_writes() {
    let store = Arc::new(Ordered::default());
    let board = || Callboard::builder().storage(store.clone()).durability(Durability::Sync);
    let coder = |_: Turn| async { Ok(Command::output("fixed")) };
    let back = board().name("back").agent("coder", coder).start().await.unwrap();
    let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("coder", "fix").await?)) };
    let front = board().name("front").agent("lead", lead).start().await.unwrap();
    // Once more, so that nothing is written for the first time.
    for _ in 0..2 {
        store.writes.lock().clear();
        front.submit(Task::new("x").to("lead")).await.unwrap().result().await.unwrap();
    }
    let writes = store.writes.lock().clone();
    let delegation = [
        &["run"][..],
        &["run with mail", "run"],
        &["run with open", "run"],
        &["run with mail", "run with listed", "run with ended", "run without open", "run"],
        &["run"],
    ];
    let end = ["run with listed", "run with ended", "run with inboxes", "run with inboxes", "run without open", "run"];
    assert_eq!(writes, [&["run with open", "run"], &delegation.concat()[..], &end].concat());
    tokio::time::sleep(Duration::from_secs(1)).await;
    front.shutdown().await;
    back.shutdown().await;
    let letters = store.inside.scan(&Key::new(["mail"]).children(), None, 9).await.unwrap();
    assert!(letters.is_empty(), "{letters:?}");
}

#[tokio::test(start_paused = true)]
async fn inboxes_and_failures_are_noted_with_the_record_that_they_are_of() {
    let store = Arc::new(Ordered::default());
    let board = start(&store).await;
    store.writes.lock().clear();
    delegate(&board, "rare", 1).await;
    let last = ["run with listed", "run with ended", "run with inboxes", "run with inboxes", "run without open", "run"];
    assert!(store.writes.lock().ends_with(&last.map(str::to_owned)), "{:?}", store.writes.lock());
    board.shutdown().await;

    let board = Callboard::builder().storage(store.clone()).durability(Durability::Sync);
    let fails = |_: Turn| async { Err::<Command, _>(TurnError::terminal("no")) };
    let board = board.agent("fails", fails).start().await.unwrap();
    store.writes.lock().clear();
    board.submit(Task::new("x")).await.unwrap().result().await.unwrap();
    let last = ["run with failures", "run with listed", "run with ended", "run without open", "run"];
    assert!(store.writes.lock().ends_with(&last.map(str::to_owned)), "{:?}", store.writes.lock());
    board.shutdown().await;
}

/// Starts a board with two agents that delegate to a third, and one that does nothing.
async fn start(store: &Arc<Ordered>) -> Callboard {
    let lead = |turn: Turn| async move { Ok(Command::output(turn.delegate("coder", "fix").await?)) };
    let board =
        Callboard::builder().storage(store.clone()).durability(Durability::Sync).capacity(|capacity| capacity.inbox(3));
    let board = board.agent("lead", lead).agent("rare", lead).agent("coder", |_: Turn| async { Ok(Command::new()) });
    board.agent("idle", |_: Turn| async { Ok(Command::new()) }).start().await.unwrap()
}

/// Has an agent delegate in a number of runs, each with another time. Returns the last run.
async fn delegate(board: &Callboard, to: &str, runs: usize) -> RunId {
    let mut last = None;
    for _ in 0..runs {
        let run = board.submit(Task::new("fix").to(to)).await.unwrap();
        run.result().await.unwrap();
        last = Some(run.id());
        // The store's clock, which is the system's.
        let now = callboard::env::Env::system().now().wall;
        while callboard::env::Env::system().now().wall == now {
            std::hint::spin_loop();
        }
    }
    last.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_inbox_and_a_status_cost_the_same_with_few_and_with_many_delegations_in_the_store() {
    let cost = async |others: usize| {
        let store = Arc::new(Ordered::default());
        let board = start(&store).await;
        delegate(&board, "lead", others / 2).await;
        let run = delegate(&board, "rare", 1).await;
        delegate(&board, "lead", others / 2).await;
        board.shutdown().await;

        let board = start(&store).await;
        store.calls.store(0, Relaxed);
        let status = board.status(RequestId { turn: TurnId { run, number: 1 }, ordinal: 0 }).await.unwrap().unwrap();
        assert_eq!(status.status, Status::Complete);
        let of_status = store.calls.swap(0, Relaxed);
        let mut of_inboxes = Vec::new();
        for (agent, messages) in [("rare", 2), ("lead", 3), ("idle", 0), ("rare", 2)] {
            assert_eq!(board.agents().inbox(agent).await.unwrap().len(), messages);
            of_inboxes.push(store.calls.swap(0, Relaxed));
        }
        board.shutdown().await;
        (of_status, of_inboxes)
    };
    let few = cost(10).await;
    assert_eq!(cost(200).await, few);
    assert_eq!(few.1[3], 0, "it was read already");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_written_without_the_index_of_inboxes_gets_it_with_the_first_inbox_that_is_read() {
    let store = Arc::new(Ordered::default());
    let board = start(&store).await;
    delegate(&board, "rare", 1).await;
    delegate(&board, "lead", 10).await;
    let before = board.agents().inbox("rare").await.unwrap();
    board.shutdown().await;
    for (key, entry) in store.inside.scan(&Key::new(["inboxes"]).children(), None, 100).await.unwrap() {
        store.inside.delete_if_revision(Delete::new(key, entry.revision, Durability::Memory)).await.unwrap();
    }
    for (key, _) in store.inside.scan(&Key::new(["ended"]).children(), None, 100).await.unwrap() {
        let value = Arc::from([].as_slice());
        let put = Put { durability: Durability::Memory, ..Put::new(key, value) };
        store.inside.put_if_revision(put).await.unwrap();
    }

    for reads in [11, 0] {
        let board = start(&store).await;
        store.reads.lock().clear();
        assert_eq!(board.agents().inbox("idle").await.unwrap(), []);
        assert_eq!(store.reads.lock().len(), reads, "each run once, and never again");
        assert_eq!(board.agents().inbox("rare").await.unwrap(), before);
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_reads_no_run_that_has_ended_and_an_inbox_only_as_many_as_it_needs() {
    let store = Arc::new(Ordered::default());
    let board = start(&store).await;
    delegate(&board, "lead", 20).await;
    board.shutdown().await;
    store.reads.lock().clear();

    let board = start(&store).await;
    board.recovered().await;
    assert_eq!(*store.reads.lock(), [], "at the start");
    assert_eq!(board.agents().inbox("lead").await.unwrap().len(), 3);
    assert!((2..=3).contains(&store.reads.lock().len()), "{} runs were read", store.reads.lock().len());
    assert_eq!(board.agents().inbox("idle").await.unwrap(), []);
    assert!((2..=3).contains(&store.reads.lock().len()), "no run is of this inbox");
    board.shutdown().await;
}

async fn pages(board: &Callboard, limit: usize) -> Vec<EndedRun> {
    let mut listed: Vec<EndedRun> = Vec::new();
    loop {
        let after = listed.last().map(|last| (last.submitted_at, last.run));
        let page = board.ended_runs(after, limit).await.unwrap();
        if page.is_empty() {
            return listed;
        }
        listed.extend(page);
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_of_runs_costs_the_same_with_few_and_with_many_runs_in_the_store() {
    let cost = async |runs: usize| {
        let store = Arc::new(Ordered::default());
        let board = start(&store).await;
        let newest = delegate(&board, "idle", runs).await;
        board.shutdown().await;

        let board = start(&store).await;
        board.recovered().await;
        store.calls.store(0, Relaxed);
        let page = board.ended_runs(None, 5).await.unwrap();
        assert_eq!((page.len(), page[0].run, &*page[0].outcome), (5, newest, "finished"));
        let first = store.calls.swap(0, Relaxed);
        board.ended_runs(Some((page[4].submitted_at, page[4].run)), 5).await.unwrap();
        assert!(board.unfinished_runs().await.unwrap().is_empty());
        let later = store.calls.swap(0, Relaxed);
        board.shutdown().await;
        (first, later)
    };
    assert_eq!(cost(10).await, (2, 2));
    assert_eq!(cost(200).await, (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_written_without_the_list_of_runs_gets_it_with_the_first_page() {
    let store = Arc::new(Ordered::default());
    let board = start(&store).await;
    delegate(&board, "idle", 5).await;
    delegate(&board, "lead", 2).await;
    let before = pages(&board, 3).await;
    assert_eq!((before.len(), before[0].agent.as_str(), before[6].agent.as_str()), (7, "lead", "idle"));
    board.shutdown().await;
    for (key, entry) in store.inside.scan(&Key::new(["listed"]).children(), None, 100).await.unwrap() {
        store.inside.delete_if_revision(Delete::new(key, entry.revision, Durability::Memory)).await.unwrap();
    }
    for reads in [7, 0] {
        let board = start(&store).await;
        store.reads.lock().clear();
        assert_eq!(pages(&board, 3).await, before);
        assert_eq!(store.reads.lock().len(), reads, "each run once, and never again");
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_end_was_noted_in_part_before_a_crash_is_listed_after_the_next_start() {
    let store = Arc::new(Ordered::default());
    let board = start(&store).await;
    let run = delegate(&board, "idle", 1).await;
    let before = pages(&board, 3).await;
    board.shutdown().await;
    let (key, entry) = store.inside.scan(&Key::new(["listed"]).children(), None, 2).await.unwrap().remove(1);
    store.inside.delete_if_revision(Delete::new(key, entry.revision, Durability::Memory)).await.unwrap();
    Journal::new(store.clone()).mark_open(run, "board").await.unwrap();

    let board = start(&store).await;
    board.recovered().await;
    assert_eq!((pages(&board, 3).await, board.unfinished_runs().await.unwrap().len()), (before, 0));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn runs_in_memory_are_open_until_they_are_listed_and_the_oldest_are_forgotten() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let waits = Arc::clone(&gate);
    let board = Callboard::builder().durability(Durability::Memory).capacity(|it| it.run_supervisors(1));
    let board = board.retention(|it| it.memory_runs(2)).agent("coder", move |_: Turn| {
        let gate = Arc::clone(&waits);
        async move {
            drop(gate.acquire().await);
            Ok(Command::new())
        }
    });
    let board = board.start().await.unwrap();
    let run = board.submit(Task::new("fix")).await.unwrap();
    let open = board.runs_at_work();
    assert_eq!((open[0].id(), pages(&board, 3).await), (run.id(), Vec::new()));
    gate.add_permits(1);
    run.result().await.unwrap();
    assert_eq!((board.runs_at_work().len(), pages(&board, 3).await.len()), (0, 1));
    for _ in 0..2 {
        board.submit(Task::new("fix")).await.unwrap().result().await.unwrap();
    }
    let listed = pages(&board, 3).await;
    assert_eq!((listed.len(), listed.iter().any(|ended| ended.run == run.id())), (2, false));
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn runs_in_memory_whose_journals_take_too_many_bytes_are_forgotten() {
    let board = Callboard::builder().durability(Durability::Memory).capacity(|it| it.run_supervisors(2));
    let board = board.retention(|it| it.memory_bytes(64 << 10));
    let board = board.agent("coder", |_: Turn| async move { Ok(Command::output("x".repeat(10_000))) });
    let board = board.start().await.unwrap();
    let mut runs = Vec::new();
    for _ in 0..20 {
        let run = board.submit(Task::new("fix")).await.unwrap();
        run.result().await.unwrap();
        runs.push(run.id());
    }
    let listed: Vec<RunId> = pages(&board, 99).await.into_iter().map(|ended| ended.run).collect();
    assert!((4..=7).contains(&listed.len()), "{} of 20, each of 10 KB and more, are kept in 64 KiB", listed.len());
    assert!(listed.contains(&runs[19]) && !listed.contains(&runs[0]));
    for (run, is_kept) in [(runs[19], true), (runs[0], false)] {
        let has_history = board.run(run).history().await.is_ok_and(|events| !events.is_empty());
        assert_eq!(has_history, is_kept);
    }
    board.shutdown().await;
}
