//! The log of `callboard serve`, on standard error: events of callboard alone. Those of libraries may have what they send and receive.

use std::io::{self, Write};

use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt, registry};

use crate::agents::process_log;
use crate::config::log::Settings;
use crate::output;
use crate::service::arguments::Format;

/// What is logged as JSON by default.
const DEFAULT: &str = "info";

/// Logs from now on.
pub(crate) fn install(settings: &Settings) {
    let Settings { format, filter } = settings;
    let own = filter_fn(|metadata| metadata.target().starts_with("callboard"));
    let lines = fmt::layer().with_writer(|| Lines).with_ansi(false);
    let filter = EnvFilter::new(filter.as_deref().unwrap_or(DEFAULT));
    // It is the only subscriber of this process.
    let _ = match (format, &settings.filter) {
        (Format::Text, None) => return process_log::show(),
        (Format::Text, Some(_)) => registry().with(lines.with_filter(filter).with_filter(own)).try_init(),
        (Format::Json, _) => {
            output::write_json();
            registry().with(lines.json().flatten_event(true).with_filter(filter).with_filter(own)).try_init()
        }
    };
}

/// Standard error, which one thread writes.
struct Lines;

impl Write for Lines {
    /// A whole event.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        output::log(String::from_utf8_lossy(bytes).trim_end());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
