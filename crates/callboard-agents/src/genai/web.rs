//! Connections to providers.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use tracing::Dispatch;
use tracing::dispatcher::with_default;

use crate::model::{ModelError, ModelErrorKind};
use crate::web::{self, ConnectionSettings};

/// Shared connections. They are set up when the first request is sent.
#[derive(Clone)]
pub(super) struct Web {
    connect: Duration,
    made: Arc<[OnceLock<Result<reqwest::Client, String>>; 4]>,
}

impl Web {
    pub(super) fn new(connect: Duration) -> Self {
        Self { connect, made: Arc::default() }
    }

    /// The client for requests.
    pub(super) fn client(&self, connection: ConnectionSettings) -> Result<reqwest::Client, ModelError> {
        let made = &self.made[usize::from(connection.is_here) * 2 + usize::from(connection.is_plain)];
        let client = made.get_or_init(|| make(self.connect, connection).map_err(|error| error.to_string()));
        client.clone().map_err(|error| {
            let text = format!("TLS cannot be set up on this machine: {error}");
            ModelError::new(ModelErrorKind::NotSent, text)
        })
    }
}

fn make(connect: Duration, connection: ConnectionSettings) -> Result<reqwest::Client, Box<dyn std::error::Error>> {
    let client = web::client(connection)?.connect_timeout(connect).tcp_nodelay(true).pool_max_idle_per_host(4);
    // No compression, so that a small response cannot expand to a large one in memory.
    Ok(client.no_gzip().no_deflate().no_brotli().no_zstd().build()?)
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
