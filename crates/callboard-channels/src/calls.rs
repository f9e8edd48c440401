//! Calls of servers over HTTP: which addresses may be called, with which TLS, and how much of an answer is read.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt as _;

use crate::hosts;

/// How long a connection may take.
const CONNECTS_WITHIN: Duration = Duration::from_secs(20);

/// # Errors
/// It is no address of a server, or what is sent would cross a network unencrypted, unless `without_tls` allows that.
pub(crate) fn address(text: &str, without_tls: bool) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    match url.scheme() {
        "https" => {}
        "http" if without_tls || is_here(&url) => {}
        "http" => return Err("without TLS it could be read on the way; write https://".to_owned()),
        _ => return Err("it begins neither with https:// nor with http://".to_owned()),
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err("it has a user or a fragment".to_owned());
    }
    Ok(url)
}

fn is_here(url: &Url) -> bool {
    hosts::is_here(url.host_str().unwrap_or_default())
}

/// A client for a server at this address, which follows no redirects.
///
/// # Errors
/// TLS cannot be set up.
pub(crate) fn client(url: &Url) -> Result<Client, String> {
    let tls = |error: &dyn fmt::Display| error.to_string();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| tls(&error))?;
    let config = match url.scheme() {
        "https" => config.with_platform_verifier().map_err(|error| tls(&error))?,
        _ => config.with_root_certificates(RootCertStore::empty()),
    };
    let client = Client::builder().tls_backend_preconfigured(config.with_no_client_auth()).redirect(Policy::none());
    let client = if is_here(url) { client.no_proxy() } else { client };
    client.connect_timeout(CONNECTS_WITHIN).build().map_err(|error| tls(&error.without_url()))
}

/// The beginning of a body, of so many bytes and one piece more.
pub(crate) async fn read(response: &mut Response, most: usize) -> Result<Vec<u8>, reqwest::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > most {
            break;
        }
    }
    Ok(bytes)
}

/// An error with its causes and without the address, which may have a secret.
pub(crate) fn causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
