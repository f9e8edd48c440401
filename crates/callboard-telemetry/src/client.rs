//! The HTTP client that spans are sent with: TLS by ring and the certificates of the system. It follows no redirect, which could send the
//! keys in headers to another server.

use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;

/// How long a request may take, as in the specification of the exporter.
const TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) fn client(url: &Url) -> Result<Client, Box<dyn std::error::Error>> {
    let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?;
    let tls = match url.scheme() {
        "https" => tls.with_platform_verifier()?,
        _ => tls.with_root_certificates(RootCertStore::empty()),
    };
    let client = Client::builder().tls_backend_preconfigured(tls.with_no_client_auth()).redirect(Policy::none());
    Ok(client.timeout(TIMEOUT).connect_timeout(TIMEOUT).build()?)
}
