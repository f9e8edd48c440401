//! Connections to providers.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use reqwest::redirect::Policy;
use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt;
use tracing::Dispatch;
use tracing::dispatcher::with_default;

use crate::agents::model::{ModelError, ModelErrorKind};

/// Shared connections. They are made ready when the first request is sent.
#[derive(Clone)]
pub(super) struct Web {
    connect: Duration,
    here: Made,
    elsewhere: Made,
}

type Made = Arc<OnceLock<Result<reqwest::Client, String>>>;

impl Web {
    pub(super) fn new(connect: Duration) -> Self {
        Self { connect, here: Made::default(), elsewhere: Made::default() }
    }

    /// What requests are sent with. Those to this machine pass no proxy.
    pub(super) fn client(&self, is_here: bool) -> Result<reqwest::Client, ModelError> {
        let made = if is_here { &self.here } else { &self.elsewhere };
        let client = made.get_or_init(|| make(self.connect, is_here).map_err(|error| format!("{error}")));
        client.clone().map_err(|error| {
            ModelError::new(ModelErrorKind::NotSent, format!("TLS cannot be made ready on this machine: {error}"))
        })
    }
}

fn make(connect: Duration, is_here: bool) -> Result<reqwest::Client, Box<dyn std::error::Error>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_platform_verifier()?
        .with_no_client_auth();
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .connect_timeout(connect)
        .tcp_nodelay(true)
        .pool_max_idle_per_host(4)
        // A redirection would take keys in headers of their own along to wherever it leads.
        .redirect(Policy::none());
    let client = if is_here { client.no_proxy() } else { client };
    Ok(client.build()?)
}

/// The stream, polled with the log off.
pub(super) fn quiet<S: Stream>(stream: S) -> Quiet<S> {
    Quiet(Box::pin(stream))
}

pub(super) struct Quiet<S>(Pin<Box<S>>);

impl<S: Stream> Stream for Quiet<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        with_default(&Dispatch::none(), || self.0.as_mut().poll_next(context))
    }
}
