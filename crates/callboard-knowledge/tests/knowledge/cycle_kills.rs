//! The process of an initialisation is killed at each of its events, and another one continues: no call of the model that has ended is
//! repeated, and the base has what an undisturbed initialisation writes.
//!
//! The oracle is outside: the model writes a line to a file before it answers, the driver keeps what the killed process printed, and reads the
//! tables by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};

use callboard::env::Env;
use callboard::messages::RunId;
use callboard::prelude::*;
use callboard_knowledge::KnowledgeBase;
use callboard_knowledge::cycles::{InitRequest, init_agent, init_result, init_task};
use futures::StreamExt as _;
use rusqlite::Connection;

use crate::campaigns::{Campaign, cases};
use crate::cycles::{MODEL, files, inputs, request, usual};

const FOLDER: &str = "CALLBOARD_CYCLES_FOLDER";

/// The id of the run: a second submission is the same one.
const RUN: RunId = RunId(uuid::Uuid::from_u128(7));

#[derive(Debug)]
struct Model(PathBuf);

impl Agent for Model {
    async fn turn(&self, turn: Turn) -> Result<Command, TurnError> {
        let mut file = File::options().append(true).create(true).open(&self.0).unwrap();
        writeln!(file, "{}", turn.id().number).unwrap();
        Ok(Command::output(usual(turn.input_json().value())))
    }
}

/// Begins or continues the run, and prints each event of it.
async fn child(folder: &Path) {
    let base = KnowledgeBase::create(&folder.join("facts.db"), &Env::system()).unwrap();
    let log = folder.join("asked");
    let builder = Callboard::builder()
        .storage(Sled::open(folder.join("runs")).unwrap())
        .with(init_agent(&base, inputs(folder)))
        .with(AgentSpec::new(MODEL, move || Model(log.clone())));
    let board = builder.start().await.unwrap();
    let questions = vec!["What is it for?".to_owned()];
    let request = InitRequest { questions, follows_up: true, ..request() };
    let run = board.submit(Task { id: Some(RUN), ..init_task(&request).unwrap() }).await.unwrap();
    let (answered, people) = (run.clone(), board.people());
    let answering = async move {
        while let Ok(Some(open)) = answered.next_pending().await {
            // A question that an earlier process has answered may close meanwhile.
            let _ = people.answer(&open, "for sheep", "ann").await;
        }
    };
    let mut events = run.events(1, &[StreamMode::Debug]).await.unwrap();
    let printing = async move {
        while let Some(watched) = events.next().await {
            let Watched::Event { event, .. } = watched else { continue };
            match &*event {
                RunEvent::TurnEnded { turn, .. } => println!("ended {turn}"),
                _ => println!("event"),
            }
        }
    };
    let ((), (), result) = tokio::join!(answering, printing, run.result());
    let done = init_result(&result.unwrap()).unwrap();
    println!("done {}", serde_json::to_string(&done.summaries).unwrap());
    board.shutdown().await;
}

/// Not a test: what the killed processes run.
#[test]
fn the_child() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(child(&folder));
}

fn spawn(folder: &Path) -> Child {
    Process::new(std::env::current_exe().unwrap())
        .args(["--exact", "cycle_kills::the_child", "--nocapture", "--quiet"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a process printed until it was killed after so many events, or ended.
fn lines(folder: &Path, kill_after: Option<usize>) -> Vec<String> {
    let mut child = spawn(folder);
    let mut lines = Vec::new();
    let mut seen = 0_usize;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let is_event = line == "event" || line.starts_with("ended ");
        seen += usize::from(is_event);
        if is_event || line.starts_with("done ") {
            lines.push(line);
        }
        if Some(seen) == kill_after {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    lines
}

/// How often the model was asked in each turn.
fn asked(folder: &Path) -> BTreeMap<String, usize> {
    let mut asked = BTreeMap::new();
    for turn in fs::read_to_string(folder.join("asked")).unwrap_or_default().lines() {
        *asked.entry(turn.to_owned()).or_default() += 1;
    }
    asked
}

/// The passages that a base has, and the edges of its graph.
fn content(folder: &Path) -> BTreeSet<String> {
    let tables = Connection::open(folder.join("facts.db")).unwrap();
    let mut content = BTreeSet::new();
    for query in [
        "SELECT d.path || ' ' || i.title || ' ' || i.body FROM kb_items i JOIN kb_documents d ON d.id = i.document WHERE i.ended_at IS NULL",
        "SELECT s.form || ' ' || e.relation || ' ' || t.form FROM kb_graph_edges e
         JOIN kb_graph_entities s ON s.id = e.source JOIN kb_graph_entities t ON t.id = e.target",
    ] {
        let mut find = tables.prepare(query).unwrap();
        for row in find.query_map([], |row| row.get::<_, String>(0)).unwrap() {
            assert!(content.insert(row.unwrap()), "a row is there twice");
        }
    }
    content
}

#[test]
fn an_initialisation_that_is_killed_at_any_event_continues_at_its_cycle() {
    let mut campaign = Campaign::begin("cycles");
    let undisturbed = tempfile::tempdir().unwrap();
    files(&undisturbed.path().join("docs"));
    let printed = lines(undisturbed.path(), None);
    let done = printed.last().unwrap();
    assert!(done.starts_with("done {\"documents\":[\"summary:docs/gate\""), "{done}");
    let events = printed.len() - 1;
    assert!(events > 30, "{events}");
    let (calls, expected) = (asked(undisturbed.path()), content(undisturbed.path()));
    for case in 0..cases(8) as usize {
        // Spread over the events, and at random ones once each had its turn.
        let kill_after = if case * 7 < events { 1 + case * 7 } else { 1 + campaign.below(events) };
        let folder = tempfile::tempdir().unwrap();
        files(&folder.path().join("docs"));
        let before = lines(folder.path(), Some(kill_after));
        let after = lines(folder.path(), None);
        let asked = asked(folder.path());
        let repeated: Vec<&str> = before
            .iter()
            .filter_map(|line| line.strip_prefix("ended "))
            .filter(|turn| asked.get(*turn).is_some_and(|times| *times > 1))
            .collect();
        campaign.count(if !repeated.is_empty() {
            Err(format!("killed after {kill_after} events: the turns {repeated:?} had ended and asked again"))
        } else if after.last() != Some(done) && !before.contains(done) {
            Err(format!("killed after {kill_after} events: {:?}", after.last()))
        } else if asked.len() != calls.len() || content(folder.path()) != expected {
            Err(format!("killed after {kill_after} events: {asked:?} of {calls:?}, or the base differs"))
        } else {
            Ok(())
        });
    }
    campaign.end(format_args!("each initialisation continued at its cycle ({events} events)"));
}
