//! How long a query takes with a warm cache, and a submission beyond its sync.

use std::io::Write as _;
use std::time::{Duration, Instant};

use callboard::env::Env;
use callboard_knowledge::KnowledgeBase;
use callboard_knowledge::search::Depth;
use callboard_knowledge::store::Submission;
use xtask::corpus::questions::record::Question;

use crate::asked::query;
use crate::generated::Generator;

/// How many facts are submitted.
const FACTS: usize = 200;

pub(crate) async fn report(base: &KnowledgeBase, questions: &[Question]) {
    for (name, depth) in [("shallow", Depth::Shallow), ("deep", Depth::Deep)] {
        let mut times = Vec::new();
        for round in 0..3 {
            for question in questions {
                let begin = Instant::now();
                base.read_facts(query(&question.question, depth)).await.unwrap();
                // The first round fills the caches.
                times.extend((round > 0).then(|| begin.elapsed()));
            }
        }
        print(name, &mut times);
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let empty = KnowledgeBase::create(&folder.path().join("knowledge.db"), &Env::system()).unwrap();
    let mut generator = Generator::new(0);
    submissions(&empty, || generator.fact()).await;
}

/// Submits facts one after another. Each is compared with a commit of the same size: the pages that it wrote to the log of the base are written to
/// another file and synced.
pub(crate) async fn submissions(base: &KnowledgeBase, mut fact: impl FnMut() -> Submission) {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut file = std::fs::File::create(folder.path().join("log")).unwrap();
    let log = base.path().with_extension("db-wal");
    let length = || std::fs::metadata(&log).map_or(0, |metadata| metadata.len());
    let (mut submissions, mut syncs, mut beyond, mut written) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..FACTS {
        let submission = fact();
        let before = length();
        let begin = Instant::now();
        base.submit(submission).await.unwrap();
        let submitted = begin.elapsed();
        // A log that begins again at its start does not grow: then the size of the commit before is taken.
        written = match usize::try_from(length().saturating_sub(before)).unwrap() {
            0 => written,
            grown => grown,
        };
        let pages = vec![1; written];
        let begin = Instant::now();
        file.write_all(&pages).unwrap();
        file.sync_data().unwrap();
        let synced = begin.elapsed();
        beyond.push(submitted.saturating_sub(synced));
        submissions.push(submitted);
        syncs.push(synced);
    }
    print("submission", &mut submissions);
    print("write and sync of the same size", &mut syncs);
    print("submission beyond its sync", &mut beyond);
}

pub(crate) fn print(name: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    println!("{name}: p50 {:.2} ms, p95 {:.2} ms, longest {:.2} ms", at(50), at(95), at(100));
}
