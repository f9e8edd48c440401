//! The spans of a board for OpenTelemetry, if the environment names an endpoint for them.

use std::cell::RefCell;

use callboard::Callboard;
use callboard_agents::Models;
use callboard_telemetry::{Exporting, Telemetry};

use crate::page::note;

/// The export of a board, if there is one.
pub(crate) struct Spans(RefCell<Option<Exporting>>);

/// Exports from now on; the models name their providers. Where that is not possible, a line on standard error reports it.
pub(crate) fn start(board: &Callboard, models: Option<Models>) -> Spans {
    let telemetry = Telemetry::from_env().unwrap_or_else(|error| {
        note(&format!("no spans are exported: {error}"));
        None
    });
    let telemetry = telemetry.map(|telemetry| telemetry.providers(move |model| models.as_ref()?.provider_of(model)));
    Spans(RefCell::new(telemetry.map(|telemetry| telemetry.export(board))))
}

impl Spans {
    /// Sends the last ones, after the board has been shut down.
    pub(crate) async fn end(&self) {
        let exporting = self.0.take();
        if let Some(exporting) = exporting {
            exporting.end().await;
        }
    }
}
