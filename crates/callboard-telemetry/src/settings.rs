//! Where spans are sent to: the variables of the environment that OpenTelemetry has for it.

use std::fmt;
use std::sync::Arc;

use opentelemetry::Key;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanExporter as _;
use reqwest::Url;

use crate::client::client;

/// An endpoint for spans; nothing is sent before [`Telemetry::export`].
pub struct Telemetry {
    pub(crate) exporter: SpanExporter,
    pub(crate) providers: Providers,
}

/// The provider of a model.
pub(crate) type Providers = Arc<dyn Fn(&str) -> Option<Arc<str>> + Send + Sync>;

/// Why spans cannot be exported.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TelemetryError(String);

impl Telemetry {
    /// The endpoint of `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, or that of `OTEL_EXPORTER_OTLP_ENDPOINT` with `/v1/traces`. `None` if neither is
    /// set, `OTEL_SDK_DISABLED` is `true`, or `OTEL_TRACES_EXPORTER` is `none`.
    ///
    /// # Errors
    /// The endpoint is no address.
    pub fn from_env() -> Result<Option<Self>, TelemetryError> {
        endpoint(|name| std::env::var(name).ok()).map(|endpoint| Self::to(&endpoint)).transpose()
    }

    /// An endpoint for traces, such as `http://localhost:4318/v1/traces`. Headers, compression, the time limit, the name of the service
    /// [`callboard`] and its attributes are those of the variables `OTEL_EXPORTER_OTLP_…`, `OTEL_SERVICE_NAME` and
    /// `OTEL_RESOURCE_ATTRIBUTES`.
    ///
    /// # Errors
    /// It is no address.
    pub fn to(endpoint: &str) -> Result<Self, TelemetryError> {
        let url = Url::parse(endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        // The address may have a key in it.
        let url = url.ok_or_else(|| TelemetryError("the endpoint is no address: write http://HOST:4318".to_owned()))?;
        let client = client(&url).map_err(|error| TelemetryError(format!("TLS cannot be set up: {error}")))?;
        let exporter = SpanExporter::builder().with_http().with_http_client(client).with_endpoint(url.as_str());
        let invalid = |_| TelemetryError("a variable OTEL_EXPORTER_OTLP_… has no value that can be used".to_owned());
        let mut exporter = exporter.build().map_err(invalid)?;
        exporter.set_resource(&resource());
        Ok(Self { exporter, providers: Arc::new(|_| None) })
    }

    /// Sets who serves a model, by its name in the journal, for `gen_ai.provider.name`: as in `models.toml`, such as `anthropic`. By default
    /// spans have no such attribute.
    #[must_use]
    pub fn providers(self, provider_of: impl Fn(&str) -> Option<Arc<str>> + Send + Sync + 'static) -> Self {
        Self { providers: Arc::new(provider_of), ..self }
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("exporter", &self.exporter).finish_non_exhaustive()
    }
}

/// The endpoint that the variables set for traces.
fn endpoint(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let is = |name: &str, value: &str| variable(name).is_some_and(|it| it.trim().eq_ignore_ascii_case(value));
    if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
        return None;
    }
    let set = |name| variable(name).filter(|value| !value.trim().is_empty());
    set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
        .or_else(|| Some(format!("{}/v1/traces", set("OTEL_EXPORTER_OTLP_ENDPOINT")?.trim_end_matches('/'))))
}

/// What sends the spans; the service is `callboard` if no variable names it.
fn resource() -> Resource {
    let found = Resource::builder().build();
    let name = found.get(&Key::from_static_str("service.name"));
    if name.is_some_and(|name| !name.as_str().starts_with("unknown_service")) {
        return found;
    }
    Resource::builder().with_service_name("callboard").build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Option<String> {
        let found = |name: &str| variables.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).to_owned());
        endpoint(found)
    }

    #[test]
    fn nothing_is_exported_unless_an_endpoint_is_set() {
        let (base, traces) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[(base, " ")]), None);
        assert_eq!(of(&[(base, "http://a:4318/")]).as_deref(), Some("http://a:4318/v1/traces"));
        assert_eq!(of(&[(base, "http://a:4318"), (traces, "http://b/t")]).as_deref(), Some("http://b/t"));
        assert_eq!(of(&[(base, "http://a:4318"), ("OTEL_SDK_DISABLED", "True")]), None);
        assert_eq!(of(&[(base, "http://a:4318"), ("OTEL_TRACES_EXPORTER", "none")]), None);
    }

    #[test]
    fn an_endpoint_that_is_no_address_is_refused_without_being_shown() {
        for endpoint in ["localhost:4318", "ftp://ann:secret@host", ""] {
            let error = Telemetry::to(endpoint).unwrap_err().to_string();
            assert_eq!(error, "the endpoint is no address: write http://HOST:4318");
        }
    }
}
