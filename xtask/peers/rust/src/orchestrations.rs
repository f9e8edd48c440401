//! duroxide: orchestrations of activities, on its provider of SQLite. It looks for work each millisecond, and so does the client for the
//! end of an orchestration: by default it is each 100 ms. Its store in memory, which its documentation has for tests, is used only for
//! the memory of what waits: there its dispatchers lock each other out ("database is deadlocked") and sleep before they try again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use duroxide::providers::sqlite::SqliteProvider;
use duroxide::runtime::registry::ActivityRegistry;
use duroxide::runtime::{Runtime, RuntimeOptions};
use duroxide::{ActivityContext, Client, OrchestrationContext, OrchestrationRegistry, OrchestrationStatus};
use tempfile::TempDir;

use crate::measure::{resident, run, time};

const LOOKS: Duration = Duration::from_millis(1);
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs that wait at once.
const WAITING: usize = 500;

/// The next number of an instance.
static NEXT: AtomicUsize = AtomicUsize::new(0);

struct Board {
    runtime: Arc<Runtime>,
    client: Client,
    _folder: TempDir,
}

impl Board {
    async fn new(is_on_disk: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = match is_on_disk {
            true => {
                let file = folder.path().join("store.db");
                std::fs::File::create(&file).unwrap();
                SqliteProvider::new(&format!("sqlite:{}", file.display()), None).await.unwrap()
            }
            false => SqliteProvider::new_in_memory().await.unwrap(),
        };
        let store = Arc::new(store);
        let activities = ActivityRegistry::builder()
            .register("researcher", |_: ActivityContext, task: String| async move { Ok(format!("notes on {task}")) })
            .register("writer", |_: ActivityContext, notes: String| async move { Ok(format!("{notes}, text.md")) })
            .register("editor", |_: ActivityContext, text: String| async move { Ok(format!("{text}, final.md")) })
            .build();
        let orchestrations = OrchestrationRegistry::builder()
            .register("chain", |ctx: OrchestrationContext, task: String| async move {
                let notes = ctx.schedule_activity("researcher", task).await?;
                let text = ctx.schedule_activity("writer", notes).await?;
                ctx.schedule_activity("editor", text).await
            })
            .register("asking", |ctx: OrchestrationContext, task: String| async move {
                ctx.schedule_activity("writer", task).await?;
                ctx.set_custom_status("asks");
                Ok(ctx.schedule_wait("answer").await)
            })
            .build();
        let options = RuntimeOptions { dispatcher_min_poll_interval: LOOKS, ..RuntimeOptions::default() };
        let runtime = Runtime::start_with_options(store.clone(), activities, orchestrations, options).await;
        Self { runtime, client: Client::new(store), _folder: folder }
    }

    async fn start(&self, orchestration: &str) -> String {
        let instance = format!("run-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.client.start_orchestration(&instance, orchestration, "the design").await.unwrap();
        instance
    }

    async fn end(&self, instance: &str) -> String {
        loop {
            match self.client.get_orchestration_status(instance).await.unwrap() {
                OrchestrationStatus::Completed { output, .. } => return output,
                OrchestrationStatus::NotFound | OrchestrationStatus::Running { .. } => tokio::time::sleep(LOOKS).await,
                other => panic!("{instance}: {other:?}"),
            }
        }
    }

    async fn chain(&self) {
        let instance = self.start("chain").await;
        assert_eq!(self.end(&instance).await, "notes on the design, text.md, final.md");
    }

    /// A run that asks, and does not go on.
    async fn asking(&self) -> String {
        let instance = self.start("asking").await;
        let status = self.client.wait_for_status_change(&instance, 0, LOOKS, PATIENCE).await.unwrap();
        assert!(matches!(status, OrchestrationStatus::Running { .. }), "{status:?}");
        instance
    }
}

pub(crate) fn measure(case: &str) -> String {
    let case = case.to_owned();
    run(async move {
        let board = &Board::new(case != "waiting").await;
        let numbers = match case.as_str() {
            "durable-chain" => {
                let work = || async {
                    for _ in 0..10 {
                        board.chain().await;
                    }
                };
                time(10, work).await
            }
            "interrupt" => {
                let work = || async {
                    let instance = board.asking().await;
                    board.client.raise_event(&instance, "answer", "yes").await.unwrap();
                    assert_eq!(board.end(&instance).await, "yes");
                };
                time(1, work).await
            }
            "waiting" => {
                board.asking().await;
                let before = resident();
                for _ in 0..WAITING {
                    board.asking().await;
                }
                format!("{:e}", (resident() - before) / WAITING as f64)
            }
            other => panic!("there is no case {other}"),
        };
        Arc::clone(&board.runtime).shutdown(None).await;
        numbers
    })
}
