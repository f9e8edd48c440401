//! Agents with language models: the cost of the loop without the model, the memory of waiting agents, and the delay of streamed text.

use std::ops::Range;
use std::sync::Arc;

use callboard::actors::{StreamMode, Watched};
use callboard::messages::{AgentEvent, ToolCall, Usage};
use callboard::prelude::*;
use callboard_agents::{
    Definition, Effect, GenaiModel, LlmAgent, Model, ModelAnswer, ModelEvent, ModelRequest, ModelStream, StopReason,
    Tools, tool,
};
use futures::StreamExt;
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::effort::Effort;
use crate::measure::{cpu, median, one_thread, run, two_workers, wall};
use crate::report::{Line, Report, Target};
use crate::sizes::{Before, Each, median_of};

/// Calls a tool in each answer until it has answered `iterations` requests.
#[derive(Clone)]
struct Tireless {
    iterations: usize,
}

impl Model for Tireless {
    fn name(&self) -> &str {
        "tireless"
    }

    fn call(&self, request: ModelRequest) -> ModelStream {
        // Each iteration adds the call and its answer.
        let asked = request.messages.len() / 2 + 1;
        let usage = Usage::of(20, 5);
        let (event, stop) = if asked < self.iterations {
            let call = ToolCall::new(&format!("call-{asked}"), "look", json!({ "path": "a.rs" }));
            (ModelEvent::ToolCall(call), StopReason::ToolCalls)
        } else {
            (ModelEvent::Text("done".into()), StopReason::Finished)
        };
        let ended = ModelEvent::Ended(ModelAnswer::new("tireless", stop, usage));
        futures::stream::iter([Ok(event), Ok(ended)]).boxed()
    }
}

/// Never answers.
struct Slow;

impl Model for Slow {
    fn name(&self) -> &str {
        "slow"
    }

    fn call(&self, request: ModelRequest) -> ModelStream {
        // Keeps the request until it is answered, as a connection would.
        futures::stream::pending().chain(futures::stream::once(async move { Err(never(&request)) })).boxed()
    }
}

fn never(request: &ModelRequest) -> callboard_agents::ModelError {
    let text = format!("{} messages were never answered", request.messages.len());
    callboard_agents::ModelError::new(callboard_agents::ModelErrorKind::CutOff, text)
}

#[derive(Deserialize, JsonSchema)]
struct Look {
    path: String,
}

fn tools() -> Tools {
    let look = tool("look", "Looks at a file.", Effect::Reads, |look: Look, _| async move { Ok(look.path.into()) });
    Tools::new().with(look).unwrap()
}

fn agent(name: &str, iterations: usize, model: impl Model) -> AgentSpec {
    let text = format!(
        "[agent]\nname = \"{name}\"\nsystem_prompt = \"You look at files. Task: {{{{ task }}}}\"\n\
         [agent.model]\nmax_tokens = 10\n[agent.capabilities]\nallowed_tools = [\"look\"]\nmax_iterations = {iterations}"
    );
    let definition = Definition::from_toml("agent.toml", &text).unwrap();
    LlmAgent::new(&definition, Arc::new(model), &tools(), &[]).unwrap().spec()
}

/// Iterations of a long run.
const LONG: usize = 100;

/// The processor time of a run of an agent that answers after so many iterations, in seconds: the median.
fn looking(iterations: usize, runs: usize) -> f64 {
    run(&one_thread(), async move {
        let board = Callboard::builder().with(agent("looker", iterations, Tireless { iterations }));
        let board = board.start().await.unwrap();
        let limits = Limits { tokens: u64::MAX / 4, ..Limits::default() };
        let mut costs = Vec::new();
        for _ in 0..runs {
            let before = cpu();
            let run = board.submit(Task::new("look").limits(limits.clone())).await.unwrap();
            assert_eq!(run.result().await.unwrap().output, "done");
            costs.push(cpu() - before);
        }
        board.shutdown().await;
        median(costs)
    })
}

/// Repeats long runs, for a profiler.
pub(crate) fn repeat(times: usize) {
    println!("{:.2} µs", looking(LONG, times) / LONG as f64 * 1e6);
}

pub(crate) fn iteration(report: &mut Report, effort: Effort) {
    let each = |iterations: usize| looking(iterations, effort.of(100));
    let (long, short) = (each(LONG), each(1));
    report.add(Line {
        name: "agent loop: an iteration with a tool, without the model",
        value: (long - short) / (LONG - 1) as f64 * 1e6,
        unit: "µs CPU",
        reference: Some(("a run with one answer", short * 1e6)),
        target: Target::AtMost(50.0, None),
    });
}

pub(crate) fn waiting(report: &mut Report, effort: Effort) {
    let count = effort.of(1_000);
    let each = median_of("unanswered", count);
    report.add(Line {
        name: "agent with a model that does not answer (1,000), with its run",
        value: each / 1024.0,
        unit: "KiB",
        reference: None,
        target: Target::AtMost(16.0, None),
    });
    let connected = median_of("connected", count);
    report.add(Line {
        name: "the same, each with a connection to a server that does not answer",
        value: connected / 1024.0,
        unit: "KiB",
        reference: Some(("of which the connection", (connected - each) / 1024.0)),
        target: Target::AtMost(16.0, None),
    });
}

/// Agents, each with a run that waits for its model.
pub(crate) fn unanswered(count: usize) -> Each {
    run(&two_workers(), waiting_for(Arc::new(Slow), count, |_| true))
}

/// As [`unanswered`], with a provider that accepts connections and does not answer. Its ends of the connections are counted too.
pub(crate) fn connected(count: usize) -> Each {
    run(&two_workers(), async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let taken: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let held = Arc::clone(&taken);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                held.lock().push(stream);
            }
        });
        let model = GenaiModel::new("openai", "gpt-4.1").unwrap().at(&url).unwrap();
        let model = model.key_from("KEY", |_: &str| Some("none".to_owned())).unwrap();
        waiting_for(Arc::new(model), count, move |all| taken.lock().len() == all).await
    })
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// The number of agents that are created before the measurement, so that shared memory is not counted.
const FIRST: usize = 10;

async fn waiting_for(model: Arc<dyn Model>, count: usize, is_asked: impl Fn(usize) -> bool) -> Each {
    let all = FIRST + count;
    let board =
        Callboard::builder().pool(all + 1).capacity(|capacity| capacity.runs_in_flight(all + 1)).start().await.unwrap();
    begin(&board, &model, 0..FIRST, &is_asked).await;
    let (before, threads_before) = (Before::now(), threads());
    begin(&board, &model, FIRST..all, &is_asked).await;
    assert_eq!(threads(), threads_before, "none waits on a thread");
    before.each(count)
}

/// Starts these agents and their runs, and returns when their models have been called.
async fn begin(board: &Callboard, model: &Arc<dyn Model>, numbers: Range<usize>, is_asked: impl Fn(usize) -> bool) {
    let shared = tools();
    let all = numbers.end;
    for number in numbers {
        let text =
            format!("[agent]\nname = \"agent-{number}\"\nsystem_prompt = \"You look at files. Task: {{{{ task }}}}\"");
        let definition = Definition::from_toml("agent.toml", &text).unwrap();
        let agent = LlmAgent::new(&definition, Arc::clone(model), &shared, &[]).unwrap();
        board.agents().spawn(agent.spec()).await.unwrap();
        board.submit(Task::new("look at a.rs").to(&format!("agent-{number}"))).await.unwrap();
    }
    while board.load().turns_at_work < all || !is_asked(all) {
        tokio::task::yield_now().await;
    }
}

/// The delay of a piece of an answer from the server's write to a watcher of the board.
pub(crate) fn words(report: &mut Report, effort: Effort) {
    let pieces = effort.of(400);
    let late = run(&two_workers(), async move {
        let sent: Arc<Mutex<Vec<f64>>> = Arc::default();
        let (seen, mut is_seen) = tokio::sync::mpsc::channel(1);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        tokio::spawn({
            let sent = Arc::clone(&sent);
            async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let mut request = vec![0; 64 << 10];
                // A small request, which may arrive in several reads.
                let mut read = 0;
                while !request[..read].ends_with(b"}") {
                    read += stream.read(&mut request[read..]).await.unwrap();
                }
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
                stream.write_all(head.as_bytes()).await.unwrap();
                let chunk = |data: String| format!("{:x}\r\ndata: {data}\n\n\r\n", data.len() + 8);
                for number in 0..pieces {
                    let delta = json!({ "choices": [{ "index": 0, "delta": { "content": format!("{number} ") } }] });
                    let bytes = chunk(delta.to_string());
                    sent.lock().push(wall());
                    stream.write_all(bytes.as_bytes()).await.unwrap();
                    // The next piece is sent when this one was received.
                    is_seen.recv().await.unwrap();
                }
                let end = json!({
                    "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }],
                    "usage": { "prompt_tokens": 10, "completion_tokens": pieces },
                });
                let rest = format!("{}{}0\r\n\r\n", chunk(end.to_string()), chunk("[DONE]".to_owned()));
                stream.write_all(rest.as_bytes()).await.unwrap();
            }
        });
        let model = GenaiModel::new("openai", "gpt-4.1").unwrap().at(&url).unwrap();
        let model = model.key_from("KEY", |_: &str| Some("none".to_owned())).unwrap();
        let board = Callboard::builder().with(agent("speaker", 1, model)).start().await.unwrap();
        let mut watched = board.watch(&[StreamMode::Live]);
        let run = board.submit(Task::new("speak")).await.unwrap();
        let mut late = Vec::new();
        while late.len() < pieces {
            let Some(Watched::Live { event, .. }) = watched.next().await else { panic!("the board ended") };
            if let AgentEvent::Text { .. } = *event {
                late.push(wall() - sent.lock()[late.len()]);
                seen.send(()).await.unwrap();
            }
        }
        run.result().await.unwrap();
        board.shutdown().await;
        late
    });
    let worst = late.iter().copied().fold(0.0, f64::max);
    report.add(Line {
        name: "a piece of an answer, from the provider's write to a watcher",
        value: median(late) * 1e3,
        unit: "ms",
        reference: Some(("the slowest", worst * 1e3)),
        target: Target::AtMost(1.0, None),
    });
}
