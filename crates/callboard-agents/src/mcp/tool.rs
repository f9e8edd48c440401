//! A tool of a server as a tool of agents.

use std::sync::Arc;

use callboard::messages::Json;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::connection::Connection;
use super::offers::{self, Offer};
use crate::tool::{Tool, ToolFailure, ToolOutput, ToolScope, ToolSpec};

/// A tool, with the server that has it.
pub(super) struct McpTool {
    connection: Arc<Connection>,
    /// The server's own name for it.
    name: Arc<str>,
    offer: Arc<Offer>,
    spec: ToolSpec,
}

impl McpTool {
    pub(super) fn new(connection: &Arc<Connection>, name: &str, offer: &Offer) -> Self {
        let spec = offers::spec(connection.settings(), name, offer);
        Self { connection: Arc::clone(connection), name: name.into(), offer: Arc::new(offer.clone()), spec }
    }
}

impl Tool for McpTool {
    fn spec(&self) -> ToolSpec {
        self.spec.clone()
    }

    /// The tool with the server's present description, if the server runs and the description has changed.
    fn renewed(&self) -> Option<BoxFuture<'static, Option<Arc<dyn Tool>>>> {
        let (connection, name, offer) = (Arc::clone(&self.connection), Arc::clone(&self.name), Arc::clone(&self.offer));
        let renewed = async move {
            let offers = connection.current().await?;
            let now = offers.get(&*name).filter(|now| **now != *offer)?;
            Some(Arc::new(Self::new(&connection, &name, now)) as Arc<dyn Tool>)
        };
        Some(renewed.boxed())
    }

    /// The server is notified if the future is dropped before the answer.
    fn call(&self, arguments: Json, scope: ToolScope) -> BoxFuture<'static, Result<ToolOutput, ToolFailure>> {
        let (connection, name, offer) = (Arc::clone(&self.connection), Arc::clone(&self.name), Arc::clone(&self.offer));
        async move {
            let arguments = arguments.value().as_object().cloned().unwrap_or_default();
            connection.call(&name, &offer, arguments, &scope).await
        }
        .boxed()
    }
}
