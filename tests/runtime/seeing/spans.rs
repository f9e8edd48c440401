//! Tracing: the log lines of an agent are in a span that names turn, run and trace.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use callboard::prelude::*;
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::common::builder;

type Fields = BTreeMap<&'static str, String>;

/// Notes the message of every event of this test, with the fields of the span that it is in.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<(String, Fields)>>>);

struct Reader<'a>(&'a mut Fields);

impl Visit for Reader<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Notes {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::new();
        attributes.record(&mut Reader(&mut fields));
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if event.metadata().target() != module_path!() {
            return;
        }
        let mut said = Fields::new();
        event.record(&mut Reader(&mut said));
        let span = context.event_span(event);
        let fields = span.and_then(|span| span.extensions().get::<Fields>().cloned()).unwrap_or_default();
        self.0.lock().push((said.remove("message").unwrap_or_default(), fields));
    }
}

#[tokio::test(start_paused = true)]
async fn what_an_agent_logs_is_in_the_span_of_its_turn() {
    let notes = Notes::default();
    let _traced = tracing::subscriber::set_default(tracing_subscriber::registry().with(notes.clone()));
    let board = builder()
        .agent("lead", |turn: Turn| {
            tracing::info!("at the call");
            async move {
                tracing::info!("at the beginning");
                turn.delegate("helper", "help").await?;
                tracing::info!("after a wait");
                if turn.attempt() == 1 {
                    return Err(TurnError::transient("once"));
                }
                Ok(Command::output(1).goto("writer"))
            }
        })
        .agent("helper", |_: Turn| async {
            tracing::info!("helping");
            Ok(Command::output("helped"))
        })
        .agent("writer", |_: Turn| async {
            tracing::info!("writing");
            Ok(Command::output("done"))
        })
        .start()
        .await
        .unwrap();
    let run = board.submit(Task::new("x").to("lead")).await.unwrap();
    assert_eq!(run.result().await.unwrap().outcome, Outcome::Finished);
    let trace = run.read().await.unwrap().submission().trace.to_string();
    let expected = [
        ("at the call", "1", "lead", "1"),
        ("at the beginning", "1", "lead", "1"),
        ("helping", "2", "helper", "1"),
        ("after a wait", "1", "lead", "1"),
        ("at the call", "1", "lead", "2"),
        ("at the beginning", "1", "lead", "2"),
        ("after a wait", "1", "lead", "2"),
        ("writing", "3", "writer", "1"),
    ]
    .map(|(message, turn, agent, attempt)| {
        let (run, turn, agent) = (run.id().to_string(), turn.to_owned(), agent.to_owned());
        let (trace, attempt) = (trace.clone(), attempt.to_owned());
        let fields = [("run", run), ("turn", turn), ("agent", agent), ("trace", trace), ("attempt", attempt)];
        (message.to_owned(), Fields::from(fields))
    });
    assert_eq!(*notes.0.lock(), expected);
    board.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn runs_side_by_side_do_not_share_spans() {
    let notes = Notes::default();
    let _traced = tracing::subscriber::set_default(tracing_subscriber::registry().with(notes.clone()));
    let board = builder()
        .agent("worker", |turn: Turn| async move {
            for _ in 0..3 {
                tracing::info!("{}", turn.id().run);
                tokio::task::yield_now().await;
            }
            Ok(Command::output("done"))
        })
        .start()
        .await
        .unwrap();
    let runs = futures::future::join_all((0..4).map(|_| board.submit(Task::new("x")))).await;
    for run in runs {
        run.unwrap().result().await.unwrap();
    }
    let notes = std::mem::take(&mut *notes.0.lock());
    assert_eq!(notes.len(), 12);
    assert!(notes.iter().all(|(said, fields)| *said == fields["run"]), "{notes:#?}");
    board.shutdown().await;
}
