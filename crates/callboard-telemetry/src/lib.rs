//! Spans of a board for OpenTelemetry, by OTLP over HTTP.
//!
//! The spans follow from the events of runs, whose times and tokens are journaled, so a run that continues after a restart has the same
//! spans: a run, below it its turns, below those the calls of models, the uses of tools and the turns of delegations. No text of a task, a
//! prompt, an answer or a tool is in a span.
//!
//! ```
//! use callboard::prelude::*;
//! use callboard_telemetry::Telemetry;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let board = Callboard::builder().agent("coder", |_: Turn| async { Ok(Command::output("done")) }).start().await?;
//! // `None` unless OTEL_EXPORTER_OTLP_ENDPOINT is set.
//! let exporting = Telemetry::from_env()?.map(|telemetry| telemetry.export(&board));
//! board.submit(Task::new("x")).await?.result().await?;
//! board.shutdown().await;
//! if let Some(exporting) = exporting {
//!     exporting.end().await;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```

mod client;
mod exporting;
mod names;
mod settings;
mod spans;

pub use exporting::Exporting;
pub use names::GENAI_CONVENTIONS;
pub use settings::{Telemetry, TelemetryError};
