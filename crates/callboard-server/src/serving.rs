//! Connections: accepted, bounded in number, headers and time, and ended in order.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
#[cfg(unix)]
use callboard_private::Listener;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::audit::Peer;
use crate::context::Context;
use crate::header_time::{Answer, Progress};
use crate::lingering::Lingering;
use crate::routes::Server;
use crate::schedules;

/// How long requests that are under way at the end may take.
const GRACE: Duration = Duration::from_secs(5);
/// The least bytes of headers that `hyper` can be limited to.
const MIN_HEADERS: usize = 8_192;
/// How long to wait after a connection could not be accepted, as when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The descriptors that connections leave to everything else: a quarter of those of the process, and at least these.
const OTHER_DESCRIPTORS: u64 = 64;
/// The connections that there are at a time, however few descriptors the process has.
const LEAST_CONNECTIONS: u64 = 16;

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
        Ok(Some((stream, Peer { shown: peer.to_string().into(), address: Some(peer.ip()) })))
    }
}

#[cfg(unix)]
impl Accept for Listener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<Option<(UnixStream, Peer)>> {
        let Some(stream) = self.accept().await? else { return Ok(None) };
        let from = match stream.peer_cred().ok().and_then(|peer| peer.pid()) {
            Some(process) => format!("process {process}"),
            None => "a process".to_owned(),
        };
        Ok(Some((stream, Peer { shown: from.into(), address: None })))
    }
}

impl Server {
    /// Serves the routes over HTTP/1.1 until `stop` is ready. Then no connection is accepted any more, event streams end, and
    /// other requests that are under way may take 5 s.
    ///
    /// By default the headers of a request have at most 64 KiB and arrive within 10 s, its body has at most 1 MiB and arrives within
    /// 30 s, a response begins within 60 s, and there are at most 16,384 connections ([`Server::limits`]), and
    /// no more than three quarters of the descriptors of the process. A client that takes nothing of a response for 30 s is cut off.
    ///
    /// # Errors
    /// The listener has no address, as after its socket was closed.
    pub async fn serve(&self, listener: TcpListener, stop: impl Future<Output = ()>) -> io::Result<()> {
        listener.local_addr()?;
        let server = self.renewed();
        serve_on(listener, plain, server.router(), &server.context, stop).await;
        Ok(())
    }

    /// Serves the routes to processes of this user, which need no token and have all scopes, in the name `owner`. Everything
    /// else is as with [`Server::serve`]. The socket's file is removed at the end.
    #[cfg(unix)]
    pub async fn serve_private(&self, listener: Listener, stop: impl Future<Output = ()>) {
        let server = self.renewed();
        serve_on(listener, plain, server.private_router(), &server.context, stop).await;
    }

    /// Starts the runs of the schedules in the board's store, until `stop` is ready or the board has ended. Without it schedules
    /// cannot be created. Several servers on one store may do it: each time of a schedule is one run.
    pub async fn fire_schedules(&self, stop: impl Future<Output = ()>) {
        schedules::fire(&self.context, stop).await;
    }

    /// With event streams of its own, so that those of other listeners continue when this one stops.
    pub(crate) fn renewed(&self) -> Self {
        Self { context: Arc::new(self.context.renewed(self.context.origins.clone())) }
    }
}

/// A connection without TLS.
fn plain<S>(stream: S) -> Ready<io::Result<S>> {
    ready(Ok(stream))
}

/// Serves routes over HTTP. `secured` returns what is read and written in place of a connection, as after a handshake.
pub(crate) async fn serve_on<L: Accept, T, F>(
    listener: L,
    secured: impl Fn(L::Stream) -> F,
    router: Router,
    context: &Context,
    stop: impl Future<Output = ()>,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
{
    let service = TowerToHyperService::new(router);
    let graceful = GracefulShutdown::new();
    let limits = context.limits;
    let connect = |stream, peer: Peer| {
        let mut http = http1::Builder::new();
        let header_bytes = limits.header_bytes.max(MIN_HEADERS);
        http.max_buf_size(header_bytes);
        let (service, progress) = (service.clone(), Progress::default());
        let requests = progress.clone();
        let from = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer.clone());
            let (answer, request) = (service.call(request), requests.begin());
            async move { Ok::<_, Infallible>(answer.await?.map(|body| Answer { body, _request: request })) }
        });
        let (secured, watcher) = (secured(stream), graceful.watcher());
        let mut stopping = context.is_stopping.subscribe();
        async move {
            let secured = tokio::select! {
                secured = secured => secured,
                _ = stopping.wait_for(|is_stopping| *is_stopping) => return,
            };
            let stream = match secured {
                Ok(stream) => TokioIo::new(Lingering::new(stream, progress.clone())),
                Err(error) => return tracing::debug!(%error, "a connection ended before its first request"),
            };
            let connection = std::pin::pin!(watcher.watch(http.serve_connection(stream, from)));
            match progress.in_time(connection, limits.header_time).await {
                Some(Ok(())) => {}
                Some(Err(error)) => tracing::debug!(%error, "a connection ended"),
                None => tracing::debug!("a connection was closed: it sent no request in time"),
            }
        }
    };
    let most = limits.connections.min(most_connections(descriptors()));
    let _open = accept_all(listener, most, stop, |stream, peer| Some(connect(stream, peer))).await;
    context.is_stopping.send_replace(true);
    let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
}

/// How many descriptors this process may have; `None` if that is not limited.
fn descriptors() -> Option<u64> {
    #[cfg(unix)]
    return rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    #[cfg(not(unix))]
    None
}

/// How many connections leave a process enough descriptors: a store that can open no file stops, and the board with it.
fn most_connections(descriptors: Option<u64>) -> usize {
    let Some(descriptors) = descriptors else { return usize::MAX };
    let others = OTHER_DESCRIPTORS.max(descriptors / 4);
    let most = descriptors.saturating_sub(others).max(LEAST_CONNECTIONS);
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// Accepts connections until `stop` is ready, `most` at a time; more wait until one ends. Each does what `connect` returns, or is closed
/// at once. Returns those that are open at the end.
pub(crate) async fn accept_all<L: Accept, C: Future<Output = ()> + Send + 'static>(
    listener: L,
    most: usize,
    stop: impl Future<Output = ()>,
    connect: impl Fn(L::Stream, Peer) -> Option<C>,
) -> JoinSet<()> {
    let permits = Arc::new(Semaphore::new(most));
    let mut open = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accepted = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            biased;
            () = &mut stop => return open,
            Some(_) = open.join_next() => continue,
            accepted = accepted => accepted,
        };
        match accepted {
            Ok(Some((stream, peer))) => {
                if let Some(connection) = connect(stream, peer) {
                    open.spawn(async move {
                        connection.await;
                        drop(permit);
                    });
                }
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_a_quarter_of_the_descriptors_and_at_least_64() {
        let limits = [Some(0), Some(64), Some(128), Some(1_024), Some(1 << 20), Some(u64::MAX), None];
        let most = [16, 16, 64, 768, 786_432, 13_835_058_055_282_163_712, usize::MAX];
        assert_eq!(limits.map(most_connections), most);
    }
}
