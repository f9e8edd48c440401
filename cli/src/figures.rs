//! The figures of the board, as text for Prometheus.

use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::task::JoinHandle;

/// How often what was recorded is summed up. Until then each value of a histogram takes memory.
const UPKEEP: Duration = Duration::from_secs(5);

/// The buckets of histograms, for seconds and for numbers.
const BUCKETS: [f64; 15] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 600.0, 3600.0];

/// The recorder of this process, which sums up while this value is there.
pub(crate) struct Figures {
    handle: PrometheusHandle,
    upkeep: JoinHandle<()>,
}

impl Figures {
    /// Records from now on; `None` if this process has another recorder.
    pub(crate) fn record() -> Option<Self> {
        let handle = PrometheusBuilder::new().set_buckets(&BUCKETS).ok()?.install_recorder().ok()?;
        let kept = handle.clone();
        let upkeep = tokio::spawn(async move {
            let mut interval = tokio::time::interval(UPKEEP);
            loop {
                interval.tick().await;
                kept.run_upkeep();
            }
        });
        Some(Self { handle, upkeep })
    }

    /// Returns what gives the text.
    pub(crate) fn text(&self) -> impl Fn() -> String + Send + Sync + 'static + use<> {
        let handle = self.handle.clone();
        move || handle.render()
    }
}

impl Drop for Figures {
    fn drop(&mut self) {
        self.upkeep.abort();
    }
}
