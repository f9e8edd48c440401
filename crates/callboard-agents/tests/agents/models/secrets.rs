//! A key is shown nowhere: not in a journal, not to observers, not in the log, in errors or in panics, also if a provider repeats
//! it in what it refuses.

use std::fmt::Debug;
use std::sync::Arc;

use callboard::actors::StreamMode;
use callboard::env::Env;
use callboard::messages::{Backoff, Durability};
use callboard::prelude::*;
use callboard::storage::{Key, Memory, Storage};
use callboard_agents::{
    CallPolicy, GenaiModel, Model, ModelChoice, ModelEntry, ModelRequest, ModelStream, Models, Tools,
};
use futures::StreamExt;

use crate::common::models;

use super::server::Step;
use super::wire::Format;
use super::{CANARY, Log, Server, fails, model};

/// A model that panics with everything that there is to show of another.
struct Panics(GenaiModel, ModelEntry, Models);

impl Model for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    fn call(&self, request: ModelRequest) -> ModelStream {
        let Self(model, entry, models) = self;
        panic!("all of it: {model:?} {entry:?} {models:?} {request:?}");
    }
}

/// Everything that was shown, anywhere.
#[derive(Default)]
struct Seen(String);

impl Seen {
    fn see(&mut self, what: &impl Debug) {
        self.0.push_str(&format!("{what:?}\n"));
    }

    /// What a store has, as text where it is text.
    async fn see_all_of(&mut self, store: &dyn Storage) {
        let all = Key::new([]).children();
        for stream in store.streams(&all, None, usize::MAX).await.unwrap() {
            for record in store.read(&stream, 1, usize::MAX).await.unwrap() {
                self.0.push_str(&String::from_utf8_lossy(&record.payload));
            }
        }
        for (_, entry) in store.scan(&all, None, usize::MAX).await.unwrap() {
            self.0.push_str(&String::from_utf8_lossy(&entry.value));
        }
    }
}

fn agent(name: &str, model: impl Model) -> AgentSpec {
    models::agent(&format!("[agent]\nname = \"{name}\""), model, &Tools::new())
}

#[tokio::test]
async fn a_key_is_nowhere_to_be_seen_whatever_goes_wrong() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone());
    let _logged = tracing::subscriber::set_default(subscriber.finish());

    let echo = format!("{{\"error\":{{\"message\":\"no such key: {CANARY}\"}}}}");
    for format in Format::ALL {
        let in_the_stream = |begun: Vec<Step>| {
            let error = format.error("authentication_error", &format!("no such key: {CANARY}"));
            begun.into_iter().chain(error).collect::<Vec<_>>()
        };
        let server = Server::start([
            fails(401, "", &echo),
            fails(400, "", &echo),
            in_the_stream(vec![format.head()]),
            in_the_stream(format.saying("so")),
            format.says("done"),
        ])
        .await;
        let model = model(format, &server.url).named("m");
        let entry = ModelEntry::from(model.clone());
        let mut policy = CallPolicy::default();
        policy.retries = 0;
        let models = Models::of(&Env::system(), [entry.clone()]).unwrap().with_policy(policy);
        let store = Arc::new(Memory::new(Env::system().clock()));
        let mut seen = Seen::default();
        let board = Callboard::builder()
            .storage(Arc::clone(&store) as Arc<dyn Storage>)
            .durability(Durability::Sync)
            .backoff(Backoff { first: std::time::Duration::ZERO, max: std::time::Duration::ZERO })
            .with(agent("asks", models.chosen(&ModelChoice::of("m")).unwrap()))
            .with(agent("panics", Panics(model, entry, models)))
            .start()
            .await
            .unwrap();
        let mut watched = board.watch(&[StreamMode::Debug, StreamMode::Live]);
        let mut finished = 0;
        for to in ["asks", "asks", "asks", "asks", "panics"] {
            let run = board.submit(Task::new("x").to(to)).await.unwrap();
            // A refused key waits for a person.
            if run.next_pending_where(|open| matches!(open, Pending::Attention { .. })).await.unwrap().is_some() {
                seen.see(&run.pending().await);
                run.cancel("seen").await.unwrap();
            }
            let result = run.result().await.unwrap();
            finished += usize::from(result.outcome.is_finished());
            seen.0.push_str(&result.outcome.to_string());
            seen.see(&result);
            seen.see(&run.history().await.unwrap());
        }
        // What broke off after it had begun is asked again by the next attempt.
        assert_eq!(finished, 1, "{format:?}: {}", seen.0);
        seen.see(&board.dead_letters().list().await.unwrap());
        board.shutdown().await;
        while let Some(event) = watched.next().await {
            seen.see(&event);
        }
        seen.see_all_of(&*store).await;
        for shown in ["no such key: [the key]", "all of it: GenaiModel", "done"] {
            assert!(seen.0.contains(shown), "{format:?}: {shown:?} is not to be seen: {}", seen.0);
        }
        assert!(!seen.0.contains(CANARY), "{format:?}: {}", seen.0);
    }
    let logged = log.text();
    assert!(logged.contains("panic") && !logged.contains(CANARY), "{logged}");
}
