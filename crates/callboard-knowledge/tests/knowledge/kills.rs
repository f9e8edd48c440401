//! A process that submits and invalidates facts is killed again and again, on one growing base: nothing that was acknowledged is lost or done
//! twice, and nothing is half written.
//!
//! The oracle is outside: the driver keeps what the child printed as acknowledged, and reads the tables by itself.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use callboard::env::Env;
use callboard::messages::RunId;
use callboard::prelude::*;
use callboard_knowledge::KnowledgeBase;
use callboard_knowledge::facts::Statement;
use callboard_knowledge::intents::{
    ConsumerIntentEnvelope, Intent, IntentLoopConfig, IntentResult, agents, result_of, task,
};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::campaigns::children::{answers, kill_after, role, runtime, spawn};
use crate::campaigns::{Campaign, cases};

/// How many submitters a child has.
const SUBMITTERS: usize = 8;

fn base_in(folder: &Path) -> PathBuf {
    folder.join("facts.db")
}

async fn board_in(folder: &Path) -> (Callboard, KnowledgeBase) {
    let base = KnowledgeBase::create(&base_in(folder), &Env::system()).unwrap();
    let builder = Callboard::builder().storage(Sled::open(folder.join("runs")).unwrap());
    let builder = agents(&base).into_iter().fold(builder, |builder, agent| builder.with(agent));
    (builder.start().await.unwrap(), base)
}

fn intent(intent: Intent, payload: Value) -> Task {
    let (principal, namespace) = ("ann".to_owned(), "default".to_owned());
    let envelope = ConsumerIntentEnvelope { intent, payload: payload.into(), principal, namespace, trace: None };
    task(&envelope, &IntentLoopConfig::default()).unwrap()
}

/// Submits facts endlessly, and invalidates each third one; prints each run that was acknowledged.
async fn child_under_load(folder: &Path) {
    let (board, _base) = board_in(folder).await;
    println!("started");
    let submitters = (0..SUBMITTERS).map(|_| {
        let board = board.clone();
        tokio::spawn(async move {
            for number in 0.. {
                let statement = format!("door {} is closed", Env::system().id().simple());
                let run = board.submit(intent(Intent::SubmitFact, json!({ "statement": statement }))).await.unwrap();
                println!("submitted {} {statement}", run.id());
                let Ok(result) = run.result().await else { return };
                let IntentResult::Submitted { submitted, .. } = result_of(&result).unwrap().result else { panic!() };
                if number % 3 != 0 {
                    continue;
                }
                let shown = json!({ "fact": submitted.fact.id });
                let shown = board.submit(intent(Intent::InvalidateFact, shown)).await.unwrap();
                let Ok(result) = shown.result().await else { return };
                let IntentResult::Preview(preview) = result_of(&result).unwrap().result else { panic!() };
                let apply = json!({ "fact": submitted.fact.id, "apply": preview.hash, "reason": "it was opened" });
                let run = board.submit(intent(Intent::InvalidateFact, apply)).await.unwrap();
                println!("invalidated {} {statement}", run.id());
                if run.result().await.is_err() {
                    return;
                }
            }
        })
    });
    futures::future::join_all(submitters.collect::<Vec<_>>()).await;
}

/// Waits until all runs have ended.
async fn child_that_finishes(folder: &Path) {
    let (board, _base) = board_in(folder).await;
    for line in std::io::stdin().lock().lines() {
        let run: RunId = line.unwrap().parse().unwrap();
        match board.run(run).result().await {
            Ok(result) => println!("ended {run} {:?}", result_of(&result).map(|result| result.result)),
            Err(error) => println!("ended {run} lost {error}"),
        }
    }
    board.shutdown().await;
}

/// Not a test: what the killed processes run.
#[test]
fn the_child() {
    match role() {
        None => {}
        Some((role, folder)) if role == "load" => runtime().block_on(child_under_load(&folder)),
        Some((_, folder)) => runtime().block_on(child_that_finishes(&folder)),
    }
}

#[test]
fn nothing_acknowledged_is_lost_or_done_twice_by_kills() {
    let mut campaign = Campaign::begin("knowledge");
    let kills = cases(8) as usize;
    let folder = tempfile::tempdir().unwrap();
    // The runs that were acknowledged, with what each is about.
    let (mut submitted, mut invalidated) = (BTreeMap::new(), BTreeMap::new());
    for _ in 0..kills {
        let child = spawn("kills::the_child", "load", folder.path());
        let status = kill_after(child, 1 + campaign.below(60), |line| {
            let Some((what, (run, statement))) =
                line.split_once(' ').and_then(|(what, rest)| Some((what, rest.split_once(' ')?)))
            else {
                return false;
            };
            match what {
                "submitted" => submitted.insert(run.to_owned(), statement.to_owned()),
                "invalidated" => invalidated.insert(run.to_owned(), statement.to_owned()),
                _ => return false,
            };
            true
        });
        assert_eq!(status.code(), None, "a child ended before it was killed");
    }
    let runs = submitted.keys().chain(invalidated.keys()).cloned().collect();
    let lines = answers(spawn("kills::the_child", "finish", folder.path()), runs);
    let ended = lines.iter().filter(|line| line.starts_with("ended ")).collect::<Vec<_>>();
    assert_eq!(ended.len(), submitted.len() + invalidated.len());

    let tables = Connection::open(base_in(folder.path())).unwrap();
    let mut find = tables
        .prepare(
            "SELECT f.state, (SELECT count(*) FROM kb_sources s WHERE s.item = f.item),
                 (SELECT group_concat(change, ', ') FROM (SELECT change FROM kb_history h WHERE h.item = f.item ORDER BY revision))
             FROM kb_facts f WHERE f.fact = ?1",
        )
        .unwrap();
    for statement in submitted.values() {
        let id = Statement::new(statement, None).unwrap().id("default");
        let found = find.query_row([id.0.as_bytes()], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?, row.get::<_, String>(2)?))
        });
        let has_ended = invalidated.values().any(|other| other == statement);
        let (state, sources, history) = found.map_err(|error| format!("{statement}: {error}")).unwrap();
        // One that was invalidated and not acknowledged may be either.
        let expected = if has_ended { ["invalid"].as_slice() } else { &["current", "invalid"] };
        let is_once = ["submitted", "submitted, invalidated"].contains(&&*history);
        let is_so = expected.contains(&&*state) && sources == 1 && is_once;
        campaign.count(if is_so {
            Ok(())
        } else {
            Err(format!("{statement}: {state} with {sources} sources: {history}"))
        });
    }
    drop(find);
    let facts: usize = tables.query_row("SELECT count(*) FROM kb_facts", [], |row| row.get(0)).unwrap();
    drop(tables);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let base = KnowledgeBase::open(&base_in(folder.path()), &Env::system()).unwrap();
    assert_eq!(runtime.block_on(base.check()).unwrap(), []);
    assert!(facts >= submitted.len(), "{facts} facts of {} that were acknowledged", submitted.len());
    assert!(submitted.len() > 2 * kills, "too little load: {}", submitted.len());
    let (all, ended) = (submitted.len(), invalidated.len());
    campaign.end(format_args!(
        "{kills} kills, {all} submissions and {ended} invalidations acknowledged: each is there once"
    ));
}
