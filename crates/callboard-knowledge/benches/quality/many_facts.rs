//! How long queries and submissions take in a base of many facts.

use std::path::Path;
use std::time::Instant;

use callboard::env::Env;
use callboard_knowledge::KnowledgeBase;
use callboard_knowledge::search::{Depth, ReadFacts};
use futures::future::try_join_all;

use crate::generated::{Generator, Mix};
use crate::latency;

/// How many submissions are under way at once while the base is filled: the writer makes many in one transaction.
const AT_ONCE: usize = 1_024;

/// How many queries of each mix are asked.
const QUERIES: usize = 200;

const OF_FACTS: u64 = 1;
const OF_QUERIES: u64 = 2;
const OF_SUBMISSIONS: u64 = 3;

/// Measures a base of so many facts, which is kept below `target`.
pub(crate) async fn report(facts: usize) {
    let base = kept(facts).await;
    println!("{} facts", base.counts().await.unwrap().current);
    let mut generator = Generator::new(OF_QUERIES);
    let queries: Vec<(Mix, String)> = Mix::ALL
        .iter()
        .flat_map(|mix| (0..QUERIES).map(|_| (*mix, generator.query(*mix))).collect::<Vec<_>>())
        .collect();
    for (name, depth) in [("shallow", Depth::Shallow), ("deep", Depth::Deep)] {
        let (mut all, mut of_mix) = (Vec::new(), vec![Vec::new(); Mix::ALL.len()]);
        for round in 0..2 {
            for (mix, query) in &queries {
                let query = ReadFacts { discovery_depth: depth, ..ReadFacts::new("default", query) };
                let begin = Instant::now();
                base.read_facts(query).await.unwrap();
                let time = begin.elapsed();
                // The first round fills the caches.
                if round > 0 {
                    all.push(time);
                    of_mix[Mix::ALL.iter().position(|one| one == mix).unwrap()].push(time);
                }
            }
        }
        latency::print(&format!("{name}, all"), &mut all);
        for (mix, times) in Mix::ALL.iter().zip(&mut of_mix) {
            latency::print(&format!("{name}, {}", mix.name()), times);
        }
    }
    let mut generator = Generator::new(OF_SUBMISSIONS + base.counts().await.unwrap().current);
    latency::submissions(&base, || generator.fact()).await;
    base.close().await;
}

/// The base, which is filled where there is none. A measurement adds its submissions to it.
async fn kept(facts: usize) -> KnowledgeBase {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("facts-{facts}"));
    let (path, complete) = (folder.join("knowledge.db"), folder.join("complete"));
    if !complete.exists() {
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let base = KnowledgeBase::create(&path, &Env::system()).unwrap();
        let mut generator = Generator::new(OF_FACTS);
        let begin = Instant::now();
        let mut left = facts;
        while left > 0 {
            let count = left.min(AT_ONCE);
            let submitted = try_join_all((0..count).map(|_| base.submit(generator.fact()))).await.unwrap();
            left -= submitted.iter().filter(|submitted| submitted.is_new).count();
        }
        println!("filled in {:.0} s", begin.elapsed().as_secs_f64());
        base.close().await;
        std::fs::write(&complete, "").unwrap();
    }
    KnowledgeBase::open(&path, &Env::system()).unwrap()
}
