//! Commands that are killed at any point: the base is sound then, and the command, repeated, does what is left of it.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;
use std::{fs, io};

use callboard::env::Env;
use callboard_knowledge::indexing::index_folder;
use callboard_knowledge::store::{ChangeKind, ChangeRequest, Trust};
use callboard_knowledge::{KnowledgeBase, KnowledgeError};
use tempfile::TempDir;

use crate::campaigns::children::{role, runtime, spawn};
use crate::campaigns::{Campaign, cases};
use crate::support::{Hands, document, submission};
use crate::upkeep::names_in;

/// How many facts and documents are worked on: of documents, more than one batch.
const FACTS: u64 = 40;
const DOCUMENTS: usize = 150;

const WORKS: [&str; 4] = ["init", "import", "invalidate", "restore"];

/// A clock that stands, so that what is done twice has the times of what is done once.
fn env() -> Env {
    let clock = Hands::default();
    clock.set(5_000);
    Env::new(clock, 7)
}

fn base_in(folder: &Path) -> PathBuf {
    folder.join("facts.db")
}

fn statement(number: u64) -> String {
    format!("door {number} is closed")
}

/// Does the work of a command, or what is left of it.
async fn work(role: &str, folder: &Path, inputs: &Path) {
    let path = base_in(folder);
    if role == "restore" {
        KnowledgeBase::restore(&path, &inputs.join("copy.db")).await.unwrap();
        return;
    }
    let base = KnowledgeBase::create(&path, &env()).unwrap();
    match role {
        "init" => {
            index_folder(&base, "default", &inputs.join("notes"), "notes", Trust::AsBefore, |_| {}).await.unwrap();
        }
        "import" => {
            let export = io::BufReader::new(fs::File::open(inputs.join("export.jsonl")).unwrap());
            match base.import(export).await {
                Ok(_) | Err(KnowledgeError::NotEmpty) => {}
                Err(error) => panic!("{error}"),
            }
        }
        _ => {
            for number in 0..FACTS {
                let fact = base.facts_named("default", &statement(number)).await.unwrap()[0].id;
                let (kind, reason, by) = (ChangeKind::Invalidate, "it was opened".to_owned(), "ann".to_owned());
                let request = ChangeRequest { kind, fact, reason, by, run: None };
                match base.preview(&request).await {
                    Ok(preview) => drop(base.apply(request, &preview.hash, None).await.unwrap()),
                    Err(KnowledgeError::Unchanged { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
    base.close().await;
}

/// Not a test: what the killed processes run.
#[test]
fn the_child() {
    let Some((role, folder)) = role() else { return };
    println!("begun");
    runtime().block_on(work(&role, &folder, folder.parent().unwrap()));
}

/// What the works need: documents, an export, a copy, and the base that is changed.
async fn inputs() -> TempDir {
    let inputs = tempfile::tempdir().unwrap();
    let at = |name: &str| inputs.path().join(name);
    fs::create_dir(at("notes")).unwrap();
    for number in 0..DOCUMENTS {
        let text =
            format!("# Part {number}\n\nSee [the next](part-{}.md).\n\n## Rules\n\nRule {number} holds.\n", number + 1);
        fs::write(at("notes").join(format!("part-{number}.md")), text).unwrap();
    }
    let base = KnowledgeBase::create(&at("before.db"), &env()).unwrap();
    for number in 0..FACTS {
        base.submit(submission(&statement(number))).await.unwrap();
    }
    base.write_documents("default", vec![document("a.md", &[("One", "first"), ("Two", "second")])]).await.unwrap();
    let (export, _) = base.export(Vec::new()).await.unwrap();
    fs::write(at("export.jsonl"), export).unwrap();
    base.copy_to(&at("copy.db")).await.unwrap();
    base.close().await;
    inputs
}

/// Makes the folder in which a work begins.
async fn begin(role: &str, folder: &Path, inputs: &Path) {
    fs::create_dir(folder).unwrap();
    match role {
        "invalidate" => drop(fs::copy(inputs.join("before.db"), base_in(folder)).unwrap()),
        "restore" => {
            let base = KnowledgeBase::create(&base_in(folder), &env()).unwrap();
            base.submit(submission("The gate is open.")).await.unwrap();
            base.close().await;
        }
        _ => {}
    }
}

/// The export of a base, which has to be sound. `None` if there is no base yet.
async fn content(folder: &Path) -> Option<String> {
    let base = match KnowledgeBase::open(&base_in(folder), &env()) {
        Err(KnowledgeError::Missing { .. }) => return None,
        base => base.unwrap(),
    };
    let findings = base.check().await.unwrap();
    assert_eq!(findings, []);
    let (export, _) = base.export(Vec::new()).await.unwrap();
    base.close().await;
    Some(String::from_utf8(export).unwrap())
}

/// Runs the work in a process, and kills that after some time if it has not ended. Returns whether it was killed.
fn killed(role: &str, folder: &Path, after: Duration) -> bool {
    let mut child = spawn("interrupted::the_child", role, folder);
    let (lines, seen) = mpsc::channel();
    let out = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        for line in out.lines() {
            if line.unwrap() == "begun" {
                lines.send(()).unwrap();
            }
        }
    });
    seen.recv().unwrap();
    // Its end closes the channel.
    let _ = seen.recv_timeout(after);
    let _ = child.kill();
    reader.join().unwrap();
    child.wait().unwrap().code().is_none()
}

#[test]
fn a_command_that_was_killed_is_completed_by_the_next_one() {
    let mut campaign = Campaign::begin("interrupted");
    let kills = cases(4);
    let runtime = runtime();
    let inputs = runtime.block_on(inputs());
    let mut in_flight = 0;
    for role in WORKS {
        let whole = inputs.path().join(format!("{role}-whole"));
        runtime.block_on(begin(role, &whole, inputs.path()));
        let before = runtime.block_on(content(&whole));
        let started = campaign.elapsed();
        assert!(!killed(role, &whole, Duration::from_secs(60)));
        let takes = campaign.elapsed().saturating_sub(started);
        let expected = runtime.block_on(content(&whole)).unwrap();
        assert_ne!(before.as_ref(), Some(&expected), "{role} changes nothing");
        for number in 0..kills {
            let folder = inputs.path().join(format!("{role}-{number}"));
            runtime.block_on(begin(role, &folder, inputs.path()));
            let micros = usize::try_from(takes.as_micros()).unwrap();
            let after = Duration::from_micros(campaign.below(micros.max(1)) as u64);
            in_flight += u64::from(killed(role, &folder, after));
            let found = runtime.block_on(content(&folder));
            // These two are done whole or not at all.
            let is_whole = match role {
                "import" => {
                    found.is_none()
                        || found.as_ref().is_some_and(|found| found == &expected || found.lines().count() == 2)
                }
                "restore" => found == before || found.as_ref() == Some(&expected),
                _ => true,
            };
            campaign.count(if is_whole { Ok(()) } else { Err(format!("{role} is half done after {after:?}")) });
            runtime.block_on(work(role, &folder, inputs.path()));
            let repeated = runtime.block_on(content(&folder)).unwrap();
            let is_same = repeated == expected;
            campaign.count(if is_same { Ok(()) } else { Err(format!("{role} after {after:?}: {repeated}")) });
            let kept = names_in(&folder).iter().filter(|name| name.starts_with("facts.db.replaced-")).count();
            campaign.count(if kept > 0 || role != "restore" { Ok(()) } else { Err("the old base is gone".to_owned()) });
            fs::remove_dir_all(&folder).unwrap();
        }
    }
    campaign.end(format_args!("{in_flight} processes were killed before their end"));
}
