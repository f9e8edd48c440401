//! Workflows: planning, the cost of a node, fan-outs, loops, interrupts, and disk.

use std::path::Path;
use std::sync::Arc;

use callboard::messages::Reducer;
use callboard::prelude::*;
use callboard::storage::{Journal, Storage};
use callboard::workflow::{Drawing, Node, Workflow};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::disks::RawSled;
use crate::effort::Effort;
use crate::measure::{cpu, each, interleaved, median, one_thread, resident, run, two_workers, wall};
use crate::report::{Line, Report, Target};

const NODES: usize = 1_000;

fn agents() -> callboard::runtime::Builder {
    Callboard::builder()
        .agent("pass", |turn: Turn| async move { Ok(Command::output(turn.input_json().clone())) })
        .agent("add", |turn: Turn| async move { Ok(Command::update("sum", turn.input::<u64>()?)) })
        .agent("list", |turn: Turn| async move { Ok(Command::update("items", turn.input_json().clone())) })
        .agent("keep", |turn: Turn| async move { Ok(Command::update("kept", turn.input_json().clone())) })
}

fn finished(result: &callboard::messages::RunResult) {
    assert_eq!(result.outcome, Outcome::Finished);
}

/// Layers of ten nodes, each after two of the layer before.
fn layered() -> callboard::workflow::WorkflowBuilder {
    (0..NODES).fold(Workflow::builder("layers"), |builder, number| {
        let (layer, place) = (number / 10, number % 10);
        let node = Node::agent(&format!("n{number}"), "pass");
        builder.node(match layer {
            0 => node,
            _ => {
                let before = |place: usize| format!("n{}", (layer - 1) * 10 + place % 10);
                let input = format!("{{{{ {}.output }}}}", before(place));
                node.after(&before(place)).after(&before(place + 1)).input(input)
            }
        })
    })
}

fn chain(nodes: usize) -> Workflow {
    let builder = (0..nodes).fold(Workflow::builder("chain"), |builder, number| {
        let node = Node::agent(&format!("n{number}"), "pass");
        builder.node(if number == 0 { node } else { node.after(&format!("n{}", number - 1)) })
    });
    builder.build().unwrap()
}

pub(crate) fn planning(report: &mut Report, effort: Effort) {
    let times = (0..effort.of(20)).map(|_| {
        let draft = layered();
        let began = wall();
        std::hint::black_box(draft.build().unwrap());
        wall() - began
    });
    report.add(Line {
        name: "workflow of 1,000 nodes: checked and planned",
        value: median(times.collect()) * 1e3,
        unit: "ms",
        reference: None,
        target: Target::AtMost(5.0, None),
    });
}

pub(crate) fn drawing(report: &mut Report, effort: Effort) {
    let drawing = Drawing::of(&layered().build().unwrap());
    let times = (0..effort.of(20)).map(|_| each(wall, 1, || drop(std::hint::black_box(drawing.to_svg()))));
    report.add(Line {
        name: "workflow of 1,000 nodes: drawn as SVG",
        value: median(times.collect()) * 1e3,
        unit: "ms",
        reference: None,
        target: Target::None,
    });
}

pub(crate) fn node(report: &mut Report, effort: Effort) {
    let runtime = two_workers();
    let single = one_thread();
    let (long, short) = (chain(NODES), chain(1));
    let count = effort.of(40);
    let cost = |runtime: &tokio::runtime::Runtime, workflow: &Workflow, count: usize| {
        let workflow = workflow.clone();
        run(runtime, async move {
            let board = agents().start().await.unwrap();
            let before = cpu();
            for _ in 0..count {
                finished(&board.submit(workflow.task(1)).await.unwrap().result().await.unwrap());
            }
            let cost = (cpu() - before) / count as f64 * 1e6;
            board.shutdown().await;
            cost
        })
    };
    let [chain, one, alone] = interleaved(
        effort.of(9),
        [&mut || cost(&runtime, &long, count), &mut || cost(&runtime, &short, count * 100), &mut || {
            cost(&single, &long, count)
        }],
    );
    let nodes = (NODES - 1) as f64;
    for (name, value) in [("workflow chain: each node", (chain - one) / nodes), ("  on one thread", alone / nodes)] {
        let (unit, target) = ("µs CPU", Target::AtMost(8.0, None));
        report.add(Line { name, value, unit, reference: Some(("a run of one node", one)), target });
    }
}

/// The processor time of a map over 1,000 items in ms.
fn maps(runtime: &tokio::runtime::Runtime, count: usize) -> f64 {
    let builder = Workflow::builder("fan").channel("items", Reducer::Append);
    let workflow = builder.node(Node::agent("each", "list").for_each("input")).build().unwrap();
    let items = json!((0..NODES).collect::<Vec<usize>>());
    run(runtime, async move {
        let board = agents().start().await.unwrap();
        let before = cpu();
        for _ in 0..count {
            let result = board.submit(workflow.task(items.clone())).await.unwrap().result().await.unwrap();
            assert_eq!(result.state["items"], items);
        }
        let cost = (cpu() - before) / count as f64 * 1e3;
        board.shutdown().await;
        cost
    })
}

/// Repeats maps on one thread, for a profiler.
pub(crate) fn repeat_maps(times: usize) {
    println!("{:.3} ms", maps(&one_thread(), times));
}

pub(crate) fn fan(report: &mut Report, effort: Effort) {
    let runtime = two_workers();
    let count = effort.of(40);
    let mut costs: Vec<f64> = (0..=effort.of(9)).map(|_| maps(&runtime, count)).collect();
    costs.remove(0);
    report.add(Line {
        name: "workflow map over 1,000 and join",
        value: median(costs),
        unit: "ms CPU",
        reference: None,
        target: Target::AtMost(6.0, Some(2.0)),
    });
}

/// A loop that adds, and records time and memory at some iterations.
pub(crate) fn looping(report: &mut Report, effort: Effort) {
    let most = u32::try_from(effort.of(100_000)).unwrap();
    let window = most / 10;
    let marks = [window, 2 * window, most - window, most - 1];
    let noted: Arc<Mutex<Vec<(f64, f64)>>> = Arc::default();
    let notes = Arc::clone(&noted);
    one_thread().block_on(async move {
        let adding = move |turn: Turn| {
            let notes = Arc::clone(&notes);
            async move {
                let iteration: u32 = turn.input()?;
                if marks.contains(&iteration) {
                    notes.lock().push((cpu(), resident()));
                }
                Ok(Command::update("sum", 1).with("kept", iteration))
            }
        };
        let workflow = Workflow::builder("loop")
            .channel("sum", Reducer::Sum)
            .channel("kept", Reducer::LastValue)
            .node(Node::agent("first", "pass"))
            .node(Node::agent("add", "adding").after("first").input("{{ iteration }}").times(most))
            .node(Node::agent("beside", "pass").after("first"))
            .node(Node::join("end").after("add").after("beside"))
            .build()
            .unwrap();
        let board = agents().agent("adding", adding).start().await.unwrap();
        let result = board.submit(workflow.task(1)).await.unwrap().result().await.unwrap();
        assert_eq!(result.state["sum"], most);
        board.shutdown().await;
    });
    let noted = noted.lock();
    let cost = |from: usize, to: usize| (noted[to].0 - noted[from].0) / f64::from(marks[to] - marks[from]) * 1e6;
    report.add(Line {
        name: "workflow loop: an iteration at the end",
        value: cost(2, 3),
        unit: "µs CPU",
        reference: Some(("near the beginning", cost(0, 1))),
        target: Target::Within(0.2),
    });
    report.add(Line {
        name: "workflow loop of 100,000: memory that grew",
        value: (noted[3].1 - noted[0].1) / 1024.0 / 1024.0,
        unit: "MiB",
        reference: None,
        target: Target::AtMost(8.0, None),
    });
}

fn size_of(folder: &Path) -> f64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(
            |entry| if entry.path().is_dir() { size_of(&entry.path()) } else { entry.metadata().unwrap().len() as f64 },
        )
        .sum()
}

pub(crate) fn disk(report: &mut Report, effort: Effort) {
    let value: Value = "x".repeat(1_024).into();
    let tasks = |keeping: usize| {
        let builder = Workflow::builder("five").channel("kept", Reducer::LastValue);
        let nodes = (0..5).map(|number| {
            let agent = if number < keeping { "keep" } else { "pass" };
            let node =
                Node::agent(&format!("n{number}"), agent).input(if number < keeping { "{{ input }}" } else { "on" });
            if number == 0 { node } else { node.after(&format!("n{}", number - 1)) }
        });
        nodes.fold(builder, callboard::workflow::WorkflowBuilder::node).build().unwrap()
    };
    let count = effort.of(2_000);
    // The size of a run's journal, and the growth of the store's files.
    let bytes = |workflow: Workflow| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let value = value.clone();
        run(&two_workers(), async move {
            let store = Arc::new(Sled::open(&path).unwrap());
            let storage: Arc<dyn Storage> = Arc::clone(&store) as _;
            let board = agents().storage(storage).start().await.unwrap();
            let first = board.submit(workflow.task(value.clone())).await.unwrap();
            finished(&first.result().await.unwrap());
            let records = store.read(&Journal::stream(first.id()), 1, 100).await.unwrap();
            let journal: usize = records.iter().map(|record| record.payload.len()).sum();
            let before = size_of(&path);
            for _ in 0..count {
                finished(&board.submit(workflow.task(value.clone())).await.unwrap().result().await.unwrap());
            }
            board.shutdown().await;
            [journal as f64, (size_of(&path) - before) / count as f64].map(|bytes| bytes / 1_000.0)
        })
    };
    for (name, keeping, most) in
        [("workflow of 5 tasks, 1 KiB kept: journal", 1, 4.0), ("  the same, rewritten by each", 5, 8.0)]
    {
        let [value, growth] = bytes(tasks(keeping));
        let reference = Some(("growth of sled's log", growth));
        report.add(Line { name, value, unit: "KB", reference, target: Target::AtMost(most, None) });
    }
}

pub(crate) fn people(report: &mut Report, effort: Effort) {
    let folder = tempfile::tempdir().unwrap();
    let raw_folder = tempfile::tempdir().unwrap();
    let raw = RawSled::open(raw_folder.path());
    let rounds = effort.of(400);
    let sync = each(wall, rounds, || {
        for number in 0..rounds {
            raw.tree.insert(number.to_be_bytes(), vec![0_u8; 200]).unwrap();
            raw.sync();
        }
    });
    let path = folder.path().to_owned();
    let times = run(&two_workers(), async move {
        let board = agents().storage(Sled::open(&path).unwrap()).start().await.unwrap();
        let builder = Workflow::builder("ask").node(Node::agent("first", "pass"));
        let workflow = builder.node(Node::agent("then", "pass").after("first").interrupted()).build().unwrap();
        let mut times = Vec::new();
        for _ in 0..rounds {
            let run = board.submit(workflow.task("x")).await.unwrap();
            let began = wall();
            let open = run.next_pending().await.unwrap().unwrap();
            board.people().answer(&open, Resume::default(), "ann").await.unwrap();
            finished(&run.result().await.unwrap());
            times.push(wall() - began);
        }
        board.shutdown().await;
        times
    });
    report.add(Line {
        name: "workflow interrupted and resumed, Sync",
        value: median(times) * 1e3,
        unit: "ms",
        reference: Some(("one synced write", sync * 1e3)),
        target: Target::AtMost(2.0, None),
    });
}
