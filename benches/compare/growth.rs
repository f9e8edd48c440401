//! How the cost of a piece of work grows with what else there is: `cargo bench --bench compare -- growth [WORD…] [--quick] [--svg FOLDER]`.
//! One thread, and processor time, as two workers add to the cost of each other by chance; only submitters have two.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use callboard::actors::ContextStore;
use callboard::env::Env;
use callboard::messages::{AgentName, ConversationId, Durability, SendTo};
use callboard::prelude::*;
use callboard::runtime::Builder;
use callboard::storage::{Sled, Storage};
use futures::StreamExt;

use crate::charts::{Series, svg};
use crate::effort::Effort;
use crate::measure::{cpu, median, one_thread, run, two_workers};
use crate::runs::{at_once, chain_of_three, chain_task, in_turn};

/// The name of this part of the benchmark.
pub(crate) const GROWTH: &str = "growth";

/// Rounds of which the median counts, after one that does not.
const ROUNDS: usize = 5;

/// Chains in a round.
const CHAINS: usize = 1_000;

const CHAIN: &str = "µs of processor time a chain of three";

type Grow = fn(Effort) -> Series;

const SERIES: [(&str, Grow); 9] = [
    ("submitters", submitters),
    ("runs in flight", in_flight),
    ("agents", agents),
    ("width of a fan", width),
    ("conversation", conversation),
    ("state", state),
    ("stored runs", stored),
    ("context entries", entries),
    ("watchers", watchers),
];

/// Measures the series whose names have one of the words, or all of them; prints them, and writes the picture into the folder of `--svg`.
pub(crate) fn report(mut words: Vec<String>) {
    let folder = words.iter().position(|word| word == "--svg").map(|at| {
        words.remove(at);
        PathBuf::from(words.remove(at))
    });
    let before = words.len();
    words.retain(|word| word != "--quick");
    let effort = if words.len() < before { Effort::Quick } else { Effort::Full };
    let wanted =
        SERIES.iter().filter(|(name, _)| words.is_empty() || words.iter().any(|word| name.contains(word.as_str())));
    let mut all = Vec::new();
    for (_, grow) in wanted {
        let series = grow(effort);
        println!("{}", series.text());
        all.push(series);
    }
    if let Some(folder) = folder {
        std::fs::write(folder.join("growth.svg"), svg(&all)).unwrap();
    }
}

/// The sizes, less the largest with `--quick`.
fn sizes<const N: usize>(effort: Effort, sizes: [usize; N]) -> Vec<usize> {
    let most = if effort == Effort::Quick { N - 1 } else { N };
    sizes[..most].to_vec()
}

/// The processor time of each of the parts in µs: the median of some rounds.
async fn cost<F: Future<Output = ()>>(parts: usize, work: impl Fn() -> F) -> f64 {
    let mut costs = Vec::with_capacity(ROUNDS);
    for round in 0..=ROUNDS {
        let before = cpu();
        work().await;
        if round > 0 {
            costs.push((cpu() - before) / parts as f64 * 1e6);
        }
    }
    median(costs)
}

async fn chains(board: &Callboard) -> f64 {
    cost(CHAINS, || in_turn(board.clone(), chain_task, CHAINS)).await
}

fn submitters(effort: Effort) -> Series {
    let points = sizes(effort, [1, 2, 4, 8, 16, 32, 64]).into_iter().map(|count| {
        let cost = run(&two_workers(), async move {
            let board = chain_of_three().start().await.unwrap();
            let submit = || async {
                let of_each = CHAINS / count;
                let tasks: Vec<_> =
                    (0..count).map(|_| tokio::spawn(in_turn(board.clone(), chain_task, of_each))).collect();
                for task in tasks {
                    task.await.unwrap();
                }
            };
            let cost = cost(CHAINS / count * count, submit).await;
            board.shutdown().await;
            cost
        });
        (count, cost)
    });
    Series { title: "submitters at once, on two workers", measures: CHAIN, points: points.collect() }
}

/// Chains on a board of some size, beside what `fill` does.
fn beside<F: Future<Output = ()> + std::marker::Send + 'static>(
    sizes: Vec<usize>,
    builder: fn(usize) -> Builder,
    fill: fn(Callboard, usize) -> F,
) -> Vec<(usize, f64)> {
    let measured = |size: usize| {
        let cost = run(&one_thread(), async move {
            let board = builder(size).capacity(|capacity| capacity.runs_in_flight(1_000_000)).start().await.unwrap();
            fill(board.clone(), size).await;
            let cost = chains(&board).await;
            board.shutdown().await;
            cost
        });
        (size, cost)
    };
    sizes.into_iter().map(measured).collect()
}

fn in_flight(effort: Effort) -> Series {
    let asking = |_| {
        let asker = |turn: Turn| async move { Ok(Command::output(turn.people().ask("which one?").await?)) };
        chain_of_three().agent("asker", asker)
    };
    let wait = |board: Callboard, count: usize| async move {
        for _ in 0..count {
            let run = board.submit(Task::new("choose").to("asker")).await.unwrap();
            while run.pending().await.is_empty() {
                tokio::task::yield_now().await;
            }
        }
    };
    let points = beside(sizes(effort, [10, 1_000, 10_000, 100_000]), asking, wait);
    Series { title: "runs in flight, each of which waits", measures: CHAIN, points }
}

fn agents(effort: Effort) -> Series {
    let idle = |count| {
        let agent = |builder: Builder, number| {
            builder.agent(&format!("agent-{number}"), |_: Turn| async { Ok(Command::new()) })
        };
        (0..count).fold(chain_of_three(), agent)
    };
    let points = beside(sizes(effort, [10, 100, 1_000, 10_000]), idle, |_, _| async {});
    Series { title: "agents, all but three idle", measures: CHAIN, points }
}

fn watchers(effort: Effort) -> Series {
    let watch = |board: Callboard, count: usize| async move {
        for _ in 0..count {
            let mut events = board.watch(&[StreamMode::Updates]);
            tokio::spawn(async move { while events.next().await.is_some() {} });
        }
    };
    let points = beside(sizes(effort, [0, 1, 10, 100, 1_000]), |_| chain_of_three(), watch);
    Series { title: "watchers of the board's updates", measures: CHAIN, points }
}

fn width(effort: Effort) -> Series {
    let builder = || {
        Callboard::builder()
            .agent("lead", |turn: Turn| async move {
                Ok(Command::new().goto_many((0..turn.input::<u64>()?).map(|part| SendTo::new("worker", part))))
            })
            .agent("worker", |turn: Turn| async move { Ok(Command::update("messages", turn.input::<u64>()?)) })
    };
    let points = sizes(effort, [10, 100, 1_000, 10_000]).into_iter().map(|width| {
        let cost = run(&one_thread(), async move {
            let board = builder().start().await.unwrap();
            let runs = 10_000 / width;
            let fan = || async {
                for _ in 0..runs {
                    let limits = Limits { handoffs: u32::MAX, ..Limits::default() };
                    let run = board.submit(Task::new("squares").to("lead").input(width).limits(limits)).await.unwrap();
                    assert_eq!(run.result().await.unwrap().outcome, Outcome::Finished);
                }
            };
            let cost = cost(runs * width, fan).await;
            board.shutdown().await;
            cost
        });
        (width, cost)
    });
    Series { title: "width of a fan-out", measures: "µs of processor time a branch", points: points.collect() }
}

fn conversation(effort: Effort) -> Series {
    /// Runs of a round: few, as they make the conversation longer.
    const RUNS: usize = 10;
    let points = sizes(effort, [10, 100, 1_000]).into_iter().map(|length| {
        let cost = run(&one_thread(), async move {
            let board = chain_of_three().start().await.unwrap();
            let conversation = ConversationId::new("ann").unwrap();
            let speak = async |times: usize| {
                for _ in 0..times {
                    let task = Task::new("What was the design?").to("editor").conversation(&conversation);
                    let result = board.submit(task).await.unwrap().result().await.unwrap();
                    assert_eq!(result.outcome, Outcome::Finished);
                }
            };
            speak(length).await;
            let cost = cost(RUNS, || speak(RUNS)).await;
            board.shutdown().await;
            cost
        });
        (length, cost)
    });
    Series {
        title: "runs before it in its conversation",
        measures: "µs of processor time a run of one turn",
        points: points.collect(),
    }
}

fn state(effort: Effort) -> Series {
    const HANDOFFS: u32 = 1_000;
    let to = |other: &'static str| {
        move |turn: Turn| async move {
            let number: u32 = turn.input()?;
            let command = Command::update("count", number).with_output(number + 1);
            Ok(if number < HANDOFFS { command.goto(other) } else { command })
        }
    };
    let points = sizes(effort, [100, 10_000, 100_000, 1_000_000]).into_iter().map(|size| {
        let cost = run(&one_thread(), async move {
            let board = Callboard::builder()
                .agent("begin", |turn: Turn| async move {
                    let text = "x".repeat(turn.input()?);
                    Ok(Command::update("kept", text).with_output(1).goto("ping"))
                })
                .agent("ping", to("pong"))
                .agent("pong", to("ping"))
                .start()
                .await
                .unwrap();
            let play = || async {
                let limits = Limits { handoffs: u32::MAX, ..Limits::default() };
                let run = board.submit(Task::new("count").to("begin").input(size).limits(limits)).await.unwrap();
                assert_eq!(run.result().await.unwrap().outcome, Outcome::Finished);
            };
            let cost = cost(HANDOFFS as usize, play).await;
            board.shutdown().await;
            cost
        });
        (size, cost)
    });
    Series { title: "bytes in the state", measures: "µs of processor time a handoff", points: points.collect() }
}

fn stored(effort: Effort) -> Series {
    let buffered = || chain_task().durability(Durability::Buffered);
    let points = sizes(effort, [100, 1_000, 10_000, 30_000]).into_iter().map(|count| {
        let folder = tempfile::tempdir().unwrap();
        let store = Sled::open(folder.path()).unwrap();
        let cost = run(&one_thread(), async move {
            let board = chain_of_three().storage(store).start().await.unwrap();
            for _ in 0..count / 100 {
                at_once(board.clone(), buffered, 100).await;
            }
            let cost = cost(CHAINS, || in_turn(board.clone(), buffered, CHAINS)).await;
            board.shutdown().await;
            cost
        });
        (count, cost)
    });
    Series {
        title: "runs in the store on disk",
        measures: "µs of processor time a chain of three, Buffered",
        points: points.collect(),
    }
}

fn entries(effort: Effort) -> Series {
    const NAMESPACE: &str = "findings";
    const READS: usize = 10_000;
    let key = |number: usize| format!("src/module-{:02}/file-{number:07}.rs", number % 100);
    let points = sizes(effort, [100, 1_000, 10_000, 100_000]).into_iter().map(|count| {
        let folder = tempfile::tempdir().unwrap();
        let storage: Arc<dyn Storage> = Arc::new(Sled::open(folder.path()).unwrap());
        let cost = run(&one_thread(), async move {
            let context = ContextStore::new(storage, Env::system(), Durability::Buffered, BTreeMap::new());
            let agent = AgentName::new("analyzer").unwrap();
            for number in 0..count {
                context.set(NAMESPACE, &key(number), "a finding", &agent, None).await.unwrap();
            }
            let read = || async {
                for step in 0..READS {
                    let found = context.get(NAMESPACE, &key(step * 7_919 % count)).await.unwrap();
                    assert_eq!(found.unwrap().value, "a finding");
                }
            };
            cost(READS, read).await
        });
        (count, cost)
    });
    Series {
        title: "entries of the context, on disk",
        measures: "µs of processor time to read one",
        points: points.collect(),
    }
}
