//! Connections: accepted, bounded in number, headers and time, and ended in order.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::audit::Peer;
use crate::context::Context;
use crate::lingering::Lingering;
#[cfg(unix)]
use crate::private::Listener;
use crate::routes::Server;

/// The most connections at a time. More wait until one ends.
const MAX_CONNECTIONS: usize = 16_384;
/// How long the headers of a request may take to arrive.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// From how many bytes on no more of the headers of a request is read. One read may bring as many again, so that headers of more
/// than twice this size are refused.
const MAX_HEADERS: usize = 32 * 1024;
/// How long requests that are under way at the end may take.
const GRACE: Duration = Duration::from_secs(5);
/// How long to wait after a connection could not be accepted, as when the process has no descriptor left.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What connections come from.
pub(crate) trait Accept {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Accepts the next connection, and reports where it comes from; `None` if it was refused.
    fn accept(&self) -> impl Future<Output = io::Result<Option<(Self::Stream, Peer)>>> + Send;
}

impl Accept for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<Option<(TcpStream, Peer)>> {
        let (stream, peer) = TcpListener::accept(self).await?;
        // Events are small, and each is to arrive at once.
        let _ = stream.set_nodelay(true);
        Ok(Some((stream, Peer(peer.to_string().into()))))
    }
}

impl Server {
    /// Serves the routes over HTTP/1.1 until `stop` is ready. Then no connection is accepted any more, event streams end, and
    /// other requests that are under way may take 5 s.
    ///
    /// The headers of a request have at most 64 KiB and arrive within 10 s, its body has at most 1 MiB and arrives within 30 s.
    /// A response begins within 60 s, and a client that takes nothing of it for 30 s is cut off. There are at most 16,384
    /// connections.
    ///
    /// # Errors
    /// The listener has no address, as after its socket was closed.
    pub async fn serve(&self, listener: TcpListener, stop: impl Future<Output = ()>) -> io::Result<()> {
        listener.local_addr()?;
        let server = self.renewed();
        serve_on(listener, server.router(), &server.context, stop).await;
        Ok(())
    }

    /// Serves the routes to processes of this user, which need no token and have all scopes, in the name `owner`. Everything
    /// else is as with [`Server::serve`]. The socket's file is removed at the end.
    #[cfg(unix)]
    pub async fn serve_private(&self, listener: Listener, stop: impl Future<Output = ()>) {
        let server = self.renewed();
        serve_on(listener, server.private_router(), &server.context, stop).await;
    }

    /// With event streams of its own, so that those of other listeners continue when this one stops.
    pub(crate) fn renewed(&self) -> Self {
        Self { context: Arc::new(self.context.renewed(self.context.origins.clone())) }
    }
}

async fn serve_on<L: Accept>(listener: L, router: Router, context: &Context, stop: impl Future<Output = ()>) {
    let service = TowerToHyperService::new(router);
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let graceful = GracefulShutdown::new();
    let mut tasks = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = async {
            let permit = Arc::clone(&connections).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            biased;
            () = &mut stop => break,
            Some(_) = tasks.join_next() => continue,
            accepted = accepted => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(Some(accepted)) => accepted,
            Ok(None) => continue,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME).max_buf_size(MAX_HEADERS);
        let service = service.clone();
        let from = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer.clone());
            service.call(request)
        });
        let connection = graceful.watch(http.serve_connection(TokioIo::new(Lingering::new(stream)), from));
        tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended");
            }
            drop(permit);
        });
    }
    drop(listener);
    context.is_stopping.send_replace(true);
    let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
}
