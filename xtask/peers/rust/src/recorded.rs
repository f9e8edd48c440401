//! salvor: an own flow on `RunCtx`, whose steps are recorded calls of tools, on its store in SQLite. A run that waits is a log in the store.

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::join_all;
use salvor::core::{Effect, RunId};
use salvor::runtime::{Resumption, RunCtx, ToolCallResult};
use salvor::store::{EventStore, SqliteStore};
use salvor::tools::{DynTool, ToolCtx, ToolError, ToolOutcome};
use serde_json::{Value, json};

use crate::measure::{WIDTH, resident, run, time};

/// Runs that wait at once.
const WAITING: usize = 2_000;

/// A step of the chain: what it adds to the artifacts.
struct Step(&'static str, &'static str);

const CHAIN: [Step; 3] = [Step("notes", "notes on the design"), Step("text", "text.md"), Step("final", "final.md")];

#[async_trait]
impl DynTool for Step {
    fn name(&self) -> &str {
        self.0
    }

    fn description(&self) -> &str {
        "adds to the artifacts"
    }

    fn effect(&self) -> Effect {
        Effect::Read
    }

    fn input_schema(&self) -> Value {
        json!({"type": "object"})
    }

    async fn call_json(&self, _: &ToolCtx, mut artifacts: Value) -> Result<ToolOutcome<Value>, ToolError> {
        artifacts[self.0] = self.1.into();
        Ok(ToolOutcome::Output(artifacts))
    }
}

async fn step(ctx: &mut RunCtx, step: &Step, input: &Value) -> Value {
    match ctx.tool_call(step, input, None).await.unwrap() {
        ToolCallResult::Output(output) => output,
        other => panic!("{other:?}"),
    }
}

async fn chain(store: &Arc<dyn EventStore>) {
    let mut ctx = RunCtx::new(Arc::clone(store), RunId::new(), Vec::new()).unwrap();
    ctx.begin("chain", &json!("the design")).await.unwrap();
    let mut artifacts = json!({});
    for tool in &CHAIN {
        artifacts = step(&mut ctx, tool, &artifacts).await;
    }
    ctx.complete_run(&artifacts).await.unwrap();
    assert_eq!(artifacts.as_object().unwrap().len(), 3);
}

/// Runs the flow as far as it goes: returns the answer, if it has been given.
async fn asking(store: &Arc<dyn EventStore>, id: RunId, answer: Option<Value>) -> Option<Value> {
    let log = store.read_log(id).await.unwrap();
    let mut ctx = RunCtx::new(Arc::clone(store), id, log).unwrap();
    if let Some(answer) = answer {
        ctx.set_resume_input(answer);
    }
    ctx.begin("asking", &json!("the design")).await.unwrap();
    step(&mut ctx, &CHAIN[1], &json!({})).await;
    ctx.suspend("is it good?", &json!({"type": "string"})).await.unwrap();
    match ctx.await_resume().await.unwrap() {
        Resumption::Parked => None,
        Resumption::Resumed(answer) => {
            ctx.complete_run(&answer).await.unwrap();
            Some(answer)
        }
    }
}

pub(crate) fn measure(case: &str) -> String {
    let case = case.to_owned();
    run(async move {
        let folder = tempfile::tempdir().unwrap();
        let store = match case.as_str() {
            "durable-chain" | "interrupt" => SqliteStore::open(folder.path().join("store.db")).unwrap(),
            _ => SqliteStore::in_memory().unwrap(),
        };
        let store: &Arc<dyn EventStore> = &(Arc::new(store) as _);
        match case.as_str() {
            "chain" | "durable-chain" => {
                let work = || async {
                    for _ in 0..10 {
                        chain(store).await;
                    }
                };
                time(10, work).await
            }
            "crowd" => time(WIDTH, || async { drop(join_all((0..WIDTH).map(|_| chain(store))).await) }).await,
            "interrupt" => {
                let work = || async {
                    let id = RunId::new();
                    assert_eq!(asking(store, id, None).await, None);
                    assert_eq!(asking(store, id, Some("yes".into())).await, Some("yes".into()));
                };
                time(1, work).await
            }
            "waiting" => {
                assert_eq!(asking(store, RunId::new(), None).await, None);
                let before = resident();
                for _ in 0..WAITING {
                    assert_eq!(asking(store, RunId::new(), None).await, None);
                }
                format!("{:e}", (resident() - before) / WAITING as f64)
            }
            other => panic!("there is no case {other}"),
        }
    })
}
