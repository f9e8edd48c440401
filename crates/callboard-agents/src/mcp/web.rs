//! A server at an address: streamable HTTP, with the TLS that the library has.

use std::time::Duration;

use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

use super::settings::Named;
use crate::web::{self, ConnectionSettings};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// The most bytes of one message.
const MAX_MESSAGE: usize = 8 << 20;

/// The most bytes that are read of an error.
const MAX_ERROR: usize = 4 << 10;

/// The transport to a server. Nothing is sent yet.
pub(super) fn transport(
    url: &Url,
    bearer: Option<&Named>,
) -> Result<StreamableHttpClientTransport<reqwest::Client>, String> {
    let mut headers = HeaderMap::new();
    if let Some(bearer) = bearer {
        let secret = bearer.secret()?;
        let value =
            web::fits_a_header(secret).then(|| HeaderValue::try_from(format!("Bearer {}", secret.expose())).ok());
        let Some(mut value) = value.flatten() else {
            return Err(format!(
                "cannot be given the token in {}: it has characters that no token has",
                bearer.variable
            ));
        };
        // Marked as sensitive, so that the `Debug` output of headers does not show it.
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    let client = web::client(ConnectionSettings::to(url)).map_err(|error| error.to_string()).and_then(|client| {
        let client = client.connect_timeout(CONNECT).default_headers(headers).pool_max_idle_per_host(4);
        client.build().map_err(|error| error.to_string())
    });
    let client = client.map_err(|error| format!("cannot be reached: TLS cannot be set up on this machine: {error}"))?;
    let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
        .max_sse_event_size(MAX_MESSAGE)
        .max_json_response_size(MAX_MESSAGE)
        .max_error_response_size(MAX_ERROR)
        // A restarted session lists its tools again.
        .reinit_on_expired_session(false);
    Ok(StreamableHttpClientTransport::with_client(client, config))
}
