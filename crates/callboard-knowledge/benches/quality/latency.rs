//! How long a query takes with a warm cache, and a submission beyond its sync.

use std::io::Write as _;
use std::time::{Duration, Instant};

use callboard::env::Env;
use callboard::messages::Timestamp;
use callboard_knowledge::KnowledgeBase;
use callboard_knowledge::facts::{OnContradiction, Source, Statement};
use callboard_knowledge::search::Depth;
use callboard_knowledge::store::Submission;
use xtask::corpus::questions::record::Question;

use crate::asked::query;

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
    let mut log = std::fs::File::create(folder.path().join("log")).unwrap();
    let (mut submissions, mut syncs) = (Vec::new(), Vec::new());
    for number in 0..FACTS {
        let begin = Instant::now();
        empty.submit(submission(number)).await.unwrap();
        submissions.push(begin.elapsed());
        // What a commit writes to the log of the base is some pages.
        let begin = Instant::now();
        log.write_all(&[1; 16 << 10]).unwrap();
        log.sync_data().unwrap();
        syncs.push(begin.elapsed());
    }
    print("submission", &mut submissions);
    print("write and sync of 16 KiB", &mut syncs);
}

fn print(name: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    println!("{name}: p50 {:.2} ms, p95 {:.2} ms, longest {:.2} ms", at(50), at(95), at(100));
}

fn submission(number: usize) -> Submission {
    let text = format!("the service number {number} listens on port {}", 1_000 + number);
    Submission {
        namespace: "default".to_owned(),
        statement: Statement::new(&text, None).unwrap(),
        source: Source {
            by: "bench".to_owned(),
            place: None,
            run: None,
            turn: None,
            at: Timestamp::default(),
            is_untrusted: false,
        },
        is_single: false,
        on_contradiction: OnContradiction::Dispute,
        judged: Vec::new(),
        read: Vec::new(),
        named: Vec::new(),
        key: None,
    }
}
