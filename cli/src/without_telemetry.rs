//! A build without the feature `otel` exports no spans.

use callboard::Callboard;
use callboard_agents::Models;

use crate::page::note;

/// Exports nothing.
pub(crate) struct Spans;

/// Reports that an endpoint was set in vain.
pub(crate) fn start(_: &Callboard, _: Option<Models>) -> Spans {
    if std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_some_and(|endpoint| !endpoint.is_empty()) {
        note("no spans are exported: this program was built without the feature otel");
    }
    Spans
}

impl Spans {
    #[expect(clippy::unused_async, reason = "as with the feature")]
    pub(crate) async fn end(&self) {}
}
