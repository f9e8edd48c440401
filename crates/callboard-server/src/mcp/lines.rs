//! The protocol in lines, as over the standard streams of a program, for processes of this user.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use rmcp::service::serve_server_with_ct;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::handler::Handler;
use crate::body::MAX_BODY;
use crate::lingering::Lingering;
use crate::private::Listener;
use crate::routes::Server;
use crate::serving::{ACCEPT_PAUSE, Accept as _};
use crate::tokens::{Caller, Scope};

/// In whose name such clients delegate.
const NAME: &str = "mcp";
/// The most connections at a time. More wait until one ends.
const MAX_CONNECTIONS: usize = 64;
/// How long connections may take to end.
const GRACE: Duration = Duration::from_secs(5);

impl Server {
    /// Serves the Model Context Protocol to processes of this user, one message a line (docs/mcp-server.md). They need no token, have
    /// the scopes `read` and `delegate` alone, and delegate in the name `mcp`. A line has at most 1 MiB; a longer one is dropped. There
    /// are at most 64 connections. The socket's file is removed at the end.
    pub async fn serve_mcp(&self, listener: Listener, stop: impl Future<Output = ()>) {
        let context = self.renewed().context;
        let caller = Caller::process(NAME, [Scope::Read, Scope::Delegate]);
        let (end, connections) = (CancellationToken::new(), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
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
            let stream = match accepted {
                Ok(Some((stream, _))) => stream,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let handler = match Handler::of_connection(Arc::clone(&context), caller.clone()) {
                Ok(handler) => handler,
                Err(error) => {
                    tracing::error!(%error, "a connection was refused: the system gave no random bytes");
                    continue;
                }
            };
            let (read, write) = tokio::io::split(Lingering::new(stream));
            let transport = AsyncRwTransport::new(read, write).with_max_line_length(MAX_BODY);
            // Of its own: a connection that ends cancels it.
            let end = end.child_token();
            tasks.spawn(async move {
                match serve_server_with_ct(handler, transport, end).await {
                    Ok(service) => drop(service.waiting().await),
                    Err(error) => tracing::debug!(%error, "a connection ended before it began"),
                }
                drop(permit);
            });
        }
        drop(listener);
        context.is_stopping.send_replace(true);
        end.cancel();
        let _ = timeout(GRACE, async { while tasks.join_next().await.is_some() {} }).await;
    }
}
