//! Addresses of servers that people have named, and HTTP clients for them with the library's TLS.

use std::net::IpAddr;
use std::sync::Arc;

use reqwest::redirect::Policy;
use reqwest::{ClientBuilder, Url};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;

use super::secret::Secret;

/// The connection settings of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionSettings {
    /// It is on this machine: no proxy is used.
    pub(super) is_here: bool,
    /// Without TLS: no certificates are loaded, so that a system without any is sufficient.
    pub(super) is_plain: bool,
}

impl ConnectionSettings {
    pub(super) fn to(url: &Url) -> Self {
        Self { is_here: is_here(url), is_plain: url.scheme() == "http" }
    }
}

/// A client for such servers. It follows no redirect, which could send keys in headers to another server.
pub(super) fn client(connection: ConnectionSettings) -> Result<ClientBuilder, rustls::Error> {
    let tls = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?;
    let tls = if connection.is_plain {
        tls.with_root_certificates(RootCertStore::empty())
    } else {
        tls.with_platform_verifier()?
    };
    let client =
        reqwest::Client::builder().tls_backend_preconfigured(tls.with_no_client_auth()).redirect(Policy::none());
    Ok(if connection.is_here { client.no_proxy() } else { client })
}

/// The address of a server.
///
/// # Errors
/// The error about an address, to be printed after "the url". The address is not shown, because it may contain a key.
pub(super) fn address(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("is none: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("begins neither with https:// nor with http://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("has a name or a password in it: put a key into a variable".to_owned());
    }
    if url.fragment().is_some() {
        return Err("has a part behind #".to_owned());
    }
    Ok(url)
}

/// Whether a secret can be sent in a header.
pub(super) fn fits_a_header(secret: &Secret) -> bool {
    !secret.expose().is_empty() && secret.expose().bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether the connection is unencrypted and leaves this machine.
pub(super) fn is_open(url: &Url) -> bool {
    url.scheme() == "http" && !is_here(url)
}

/// The server's address without secrets.
pub(super) fn shown(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default())
}

/// Whether it is on this machine.
fn is_here(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
