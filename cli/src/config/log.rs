//! `[log]`: what `callboard serve` logs, and how.

use callboard_documents::Found;
use callboard_documents::toml::{Fields, Item, misfit, text, word};
use clap::ValueEnum;

use super::precedence::chosen;
use crate::page::Failure;
use crate::service::arguments::{Format, Serve};

const EXAMPLE: &str = "write [log], and below it format = \"json\"";

/// What the file sets.
#[derive(Debug, Default)]
pub(crate) struct Section {
    format: Option<Format>,
    filter: Option<String>,
}

/// What holds.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) format: Format,
    /// Directives such as `info` or `callboard::audit=info`; without them only what programs of agents write is logged as text.
    pub(crate) filter: Option<String>,
}

impl Section {
    pub(super) fn read(item: &Item<'_>, found: &mut Found) -> Option<Self> {
        let mut fields = Fields::of("the section `log`", item, EXAMPLE, found)?;
        let format = fields
            .field("format")
            .and_then(|field| word(field, &[("text", Format::Text), ("json", Format::Json)], found));
        let filter = fields.field("filter").and_then(|field| {
            let text = text(field, found)?.value;
            let filter = self::filter(&text).map_err(|advice| misfit("filter", "a filter", field.1).advise(advice));
            filter.map_err(|defect| found.add(defect)).ok()
        });
        fields.close(found);
        Some(Self { format, filter })
    }

    /// With the option and the variables, which come first.
    ///
    /// # Errors
    /// One of them has a text that is none of its values.
    pub(crate) fn with(self, arguments: &Serve) -> Result<Settings, Failure> {
        let format = |text: &str| Format::from_str(text, false).map_err(|_| "write text or json".to_owned());
        let format = chosen(arguments.log_format, "CALLBOARD_LOG_FORMAT", format, self.format)?;
        let filter = chosen(None, "CALLBOARD_LOG", filter, self.filter)?;
        Ok(Settings { format: format.unwrap_or_default(), filter })
    }
}

/// A filter, if it is one.
fn filter(text: &str) -> Result<String, String> {
    let advice = "write a level (error, warn, info, debug or trace), or TARGET=LEVEL with commas between them";
    tracing_subscriber::EnvFilter::builder().parse(text).map(|_| text.to_owned()).map_err(|_| advice.to_owned())
}
