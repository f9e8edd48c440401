//! How well and how fast queries find the answers of the questions about the corpus: `cargo bench -p callboard-knowledge --bench quality`.
//!
//! Three retrievers answer the same questions: plain FTS5 (porter, one column, any word, BM25 without weights), a shallow query, and a deep
//! one. `--facts 1000000` measures times in a base of so many facts instead. `--held-back` asks the questions that are kept for one measurement at the end; `--misses` prints the questions without an answer in the first five results of the deep query.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a benchmark")]

mod asked;
#[path = "../../tests/quality/corpus.rs"]
mod corpus;
mod generated;
mod intervals;
mod latency;
mod many_facts;
mod plain;
mod prepared;

use callboard::env::Env;
use callboard_knowledge::KnowledgeBase;
use callboard_knowledge::search::{Depth, ReadFacts};
use xtask::corpus::questions::record::{Question, QuestionKind};

use asked::query;
use intervals::{Interval, difference};
use prepared::Prepared;

/// The places of the first right results of one retriever.
type Ranks = Vec<Option<usize>>;

#[tokio::main]
async fn main() {
    let has = |flag: &str| std::env::args().any(|argument| argument == flag);
    let number = |flag: &str| std::env::args().skip_while(|argument| argument != flag).nth(1);
    if let Some(facts) = number("--facts") {
        return many_facts::report(facts.replace('_', "").parse().unwrap()).await;
    }
    let questions = corpus::questions(has("--held-back"));
    let prepared = Prepared::open().await;
    println!("{} passages, {} questions", prepared.passages, questions.len());
    let plain = plain::ranks(&prepared.plain, &questions);
    let shallow = ranks(&prepared.base, &questions, Depth::Shallow).await;
    let deep = ranks(&prepared.base, &questions, Depth::Deep).await;
    let without_graph = ranks_without_graph(&prepared.base, &questions).await;
    let all =
        [("a plain FTS5", &plain), ("b shallow", &shallow), ("c deep", &deep), ("d without graph", &without_graph)];
    report(&questions, &all);
    for (name, other) in [("c - a", &plain), ("c - b", &shallow), ("c - d", &without_graph)] {
        compare(name, &deep, other);
    }
    if has("--misses") {
        for ((question, deep), plain) in questions.iter().zip(&deep).zip(&plain) {
            if deep.is_none_or(|rank| rank > 5) {
                let answer = &question.answers[0];
                println!(
                    "deep {deep:?}, plain {plain:?}: {} <- {} {}",
                    question.question, answer.document, answer.section
                );
            }
        }
    }
    if !has("--without-latency") {
        latency::report(&prepared.base, &questions).await;
    }
}

async fn ranks(base: &KnowledgeBase, questions: &[Question], depth: Depth) -> Ranks {
    let mut ranks = Vec::new();
    for question in questions {
        let found = base.read_facts(query(&question.question, depth)).await.unwrap();
        ranks.push(corpus::rank(question, &found.results));
    }
    ranks
}

/// As deep queries, of the same rows: a query of a time does not look at the graph, and nothing of the corpus has ended.
async fn ranks_without_graph(base: &KnowledgeBase, questions: &[Question]) -> Ranks {
    let now = Env::system().now().wall;
    let mut ranks = Vec::new();
    for question in questions {
        let query = ReadFacts { as_of: Some(now), ..query(&question.question, Depth::Deep) };
        ranks.push(corpus::rank(question, &base.read_facts(query).await.unwrap().results));
    }
    ranks
}

fn recall(rank: Option<usize>) -> f64 {
    f64::from(rank.is_some_and(|rank| rank <= 5))
}

#[expect(clippy::cast_precision_loss, reason = "ranks are small")]
fn reciprocal(rank: Option<usize>) -> f64 {
    rank.map_or(0.0, |rank| 1.0 / rank as f64)
}

#[expect(clippy::cast_precision_loss, reason = "questions are few")]
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

fn report(questions: &[Question], retrievers: &[(&str, &Ranks)]) {
    println!(
        "{:<16} {:>22} {}",
        "",
        "recall at 5 / MRR",
        QuestionKind::ALL.map(|kind| format!("{:>15}", kind.name())).concat()
    );
    for (name, ranks) in retrievers {
        let of = |kind: Option<QuestionKind>| {
            let asked =
                questions.iter().zip(*ranks).filter(|(question, _)| kind.is_none_or(|kind| kind == question.kind));
            let ranks: Vec<Option<usize>> = asked.map(|(_, rank)| *rank).collect();
            let measure = |of: fn(Option<usize>) -> f64| mean(&ranks.iter().copied().map(of).collect::<Vec<_>>());
            format!("{:.3} / {:.3}", measure(recall), measure(reciprocal))
        };
        println!(
            "{name:<16} {:>22} {}",
            of(None),
            QuestionKind::ALL.map(|kind| format!("  {}", of(Some(kind)))).concat()
        );
    }
}

fn compare(name: &str, one: &Ranks, other: &Ranks) {
    for (measure, of) in [("recall at 5", recall as fn(Option<usize>) -> f64), ("MRR", reciprocal)] {
        let differences: Vec<f64> = one.iter().zip(other).map(|(one, other)| of(*one) - of(*other)).collect();
        let Interval { mean, low, high } = difference(&differences);
        let shown = if low <= 0.0 && high >= 0.0 { "not shown" } else { "shown" };
        println!("{name} {measure}: {mean:+.3}, 95 % in [{low:+.3}, {high:+.3}]: {shown}");
    }
}
