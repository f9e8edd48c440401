//! Sends spans beside a board, in batches. Nothing here holds a run up: the board's buffer of events, the spans that wait and the time of a
//! request are bounded, and what does not fit is dropped and counted.

use std::sync::Arc;
use std::time::Duration;

use callboard::Callboard;
use callboard::actors::{StreamMode, Watched};
use callboard::env::Env;
use futures::future::BoxFuture;
use futures::{FutureExt as _, Stream, StreamExt as _};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::settings::Telemetry;
use crate::spans::Spans;

/// The most events that wait.
const MAX_EVENTS: usize = 16_384;

/// The most spans that wait, and the most of a request.
const MAX_WAITING: usize = 2048;
const BATCH: usize = 512;

/// The longest time until a span is sent.
const DELAY: Duration = Duration::from_secs(1);

/// How long a batch may take, with the tries after the first.
const MAX_SENDING: Duration = Duration::from_secs(15);

/// How long the last batches may take when the board has ended.
const MAX_FLUSH: Duration = Duration::from_secs(5);

/// Spans that were sent. Counter.
const EXPORTED: &str = "callboard_spans_exported_total";
/// Spans that were not sent, by `reason`: `queue` (too many waited), `export` (the receiver did not take them), `missed` (events of runs came
/// faster than they were read; this counts the events). Counter.
const DROPPED: &str = "callboard_spans_dropped_total";

/// The export of a board's spans, which continues until the board has ended.
#[derive(Debug)]
pub struct Exporting(JoinHandle<()>);

impl Telemetry {
    /// Exports the spans of a board from now on; the runs that end are those that have a span. It uses a clone of the board, so shut the
    /// board down.
    ///
    /// # Panics
    /// When called outside a tokio runtime.
    #[must_use]
    pub fn export(self, board: &Callboard) -> Exporting {
        metrics::describe_counter!(EXPORTED, "Spans that were sent.");
        metrics::describe_counter!(DROPPED, "Spans that were not sent, by reason.");
        let watched = board.watch_within(&[StreamMode::Debug, StreamMode::Live], MAX_EVENTS);
        let queue = Queue { exporter: Arc::new(self.exporter), waiting: Vec::new(), has_failed: false };
        let spans = Spans::new(board.state_rules().clone(), self.providers);
        Exporting(tokio::spawn(follow(board.clone(), watched, (spans, queue))))
    }
}

impl Exporting {
    /// Returns when the last spans are sent, after [`Callboard::shutdown`]; after 5 s what is left is dropped.
    pub async fn end(self) {
        let Self(mut task) = self;
        if timeout(MAX_FLUSH, &mut task).await.is_err() {
            task.abort();
            tracing::warn!("the last spans were not exported in time");
        }
    }
}

async fn follow(
    board: Callboard,
    mut watched: impl Stream<Item = Watched> + Unpin,
    (mut spans, mut queue): (Spans, Queue),
) {
    let env = Env::system();
    let mut sending: Option<BoxFuture<'static, Sent>> = None;
    let mut due = interval(DELAY);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            Some(sent) = sent(&mut sending) => {
                sending = None;
                queue.note(&sent);
            }
            watched = watched.next() => match watched {
                None => break,
                Some(Watched::Event { run, sequence, event }) => {
                    if !spans.take(run, sequence, &event) && let Ok(state) = board.run(run).read().await {
                        spans.catch_up(sequence, state);
                    }
                }
                Some(Watched::Live { turn, event, .. }) => spans.take_live(turn, &event, env.now().wall),
                Some(Watched::Missed(events)) => {
                    count_dropped("missed", events);
                    spans.forget_runs();
                }
            },
            _ = due.tick(), if sending.is_none() => sending = queue.next_batch(),
        }
        queue.add(spans.take_ended());
        if sending.is_none() && queue.waiting.len() >= BATCH {
            sending = queue.next_batch();
        }
    }
    while let Some(batch) = sending.take().or_else(|| queue.next_batch()) {
        queue.note(&batch.await);
    }
}

/// The end of the batch that is on its way.
async fn sent(sending: &mut Option<BoxFuture<'static, Sent>>) -> Option<Sent> {
    Some(sending.as_mut()?.await)
}

/// The spans that wait.
struct Queue {
    exporter: Arc<SpanExporter>,
    waiting: Vec<SpanData>,
    /// The last batch was not sent, which was logged.
    has_failed: bool,
}

/// What came of a batch.
struct Sent {
    spans: usize,
    error: Option<String>,
}

impl Queue {
    fn add(&mut self, mut ended: Vec<SpanData>) {
        let room = MAX_WAITING - self.waiting.len();
        if ended.len() > room {
            count_dropped("queue", (ended.len() - room) as u64);
            ended.truncate(room);
        }
        self.waiting.append(&mut ended);
    }

    /// Begins to send the oldest spans.
    fn next_batch(&mut self) -> Option<BoxFuture<'static, Sent>> {
        if self.waiting.is_empty() {
            return None;
        }
        let batch: Vec<_> = self.waiting.drain(..self.waiting.len().min(BATCH)).collect();
        let (spans, exporter) = (batch.len(), Arc::clone(&self.exporter));
        let sending = async move {
            let error = match timeout(MAX_SENDING, exporter.export(batch)).await {
                Ok(sent) => sent.err().map(|error| error.to_string()),
                Err(_) => Some("no answer in time".to_owned()),
            };
            Sent { spans, error }
        };
        Some(sending.boxed())
    }

    fn note(&mut self, Sent { spans, error }: &Sent) {
        match error {
            None => metrics::counter!(EXPORTED).increment(*spans as u64),
            Some(error) => {
                count_dropped("export", *spans as u64);
                if !self.has_failed {
                    tracing::warn!(spans, %error, "spans were not exported; this is logged again after some were");
                }
            }
        }
        self.has_failed = error.is_some();
    }
}

fn count_dropped(reason: &'static str, spans: u64) {
    metrics::counter!(DROPPED, "reason" => reason).increment(spans);
}

#[cfg(test)]
mod tests {
    use callboard::prelude::{Command, Task, Turn};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_receiver_that_does_not_answer_holds_no_run_and_no_shutdown_up() {
        // Connections are accepted by the kernel, and nobody reads them.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let board = Callboard::builder().agent("coder", |_: Turn| async { Ok(Command::output("done")) });
        let board = board.start().await.unwrap();
        let exporting = Telemetry::to(&format!("http://{address}/v1/traces")).unwrap().export(&board);
        tokio::time::pause();
        for _ in 0..10 {
            assert!(board.submit(Task::new("x")).await.unwrap().result().await.unwrap().outcome.is_finished());
        }
        board.shutdown().await;
        exporting.end().await;
    }
}
