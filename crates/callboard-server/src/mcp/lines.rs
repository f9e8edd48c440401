//! The protocol in lines, as over the standard streams of a program, for processes of this user.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use rmcp::service::serve_server_with_ct;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::handler::Handler;
use crate::audit::Peer;
use crate::header_time::Progress;
use crate::knowledge::tools::DEFAULT_NAMESPACE;
use crate::lingering::Lingering;
use crate::private::Listener;
use crate::routes::Server;
use crate::serving::accept_all;
use crate::tokens::{Caller, MCP, Scope};

/// The most connections at a time. More wait until one ends.
const MAX_CONNECTIONS: usize = 64;
/// How long connections may take to end.
const GRACE: Duration = Duration::from_secs(5);

impl Server {
    /// Serves the Model Context Protocol to processes of this user, one message a line (docs/mcp-server.md). They need no token, have
    /// the scopes `read`, `delegate`, `knowledge:read` and `knowledge:write` alone, reach the facts of the namespace `default`, and delegate in
    /// the name `mcp`. A line has at most 1 MiB by default; a longer one is dropped. There
    /// are at most 64 connections. The socket's file is removed at the end.
    pub async fn serve_mcp(&self, listener: Listener, stop: impl Future<Output = ()>) {
        let context = self.renewed().context;
        let scopes = [Scope::Read, Scope::Delegate, Scope::KnowledgeRead, Scope::KnowledgeWrite];
        let caller = Caller::process(MCP, scopes, [DEFAULT_NAMESPACE]);
        let end = CancellationToken::new();
        let connect = |stream, peer: Peer| {
            let handler = Handler::of_connection(Arc::clone(&context), caller.clone(), peer.shown);
            let handler = handler.inspect_err(|error| {
                tracing::error!(%error, "a connection was refused: the system gave no random bytes");
            });
            let (read, write) = tokio::io::split(Lingering::new(stream, Progress::default()));
            let transport = AsyncRwTransport::new(read, write).with_max_line_length(context.limits.body_bytes);
            // Of its own: a connection that ends cancels it.
            let end = end.child_token();
            let handler = handler.ok()?;
            Some(async move {
                match serve_server_with_ct(handler, transport, end).await {
                    Ok(service) => drop(service.waiting().await),
                    Err(error) => tracing::debug!(%error, "a connection ended before it began"),
                }
            })
        };
        let mut open = accept_all(listener, MAX_CONNECTIONS, stop, connect).await;
        context.is_stopping.send_replace(true);
        end.cancel();
        let _ = timeout(GRACE, async { while open.join_next().await.is_some() {} }).await;
    }
}
