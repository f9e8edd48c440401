//! A server, started when it is needed.

use std::sync::Arc;
use std::time::Duration;

use callboard::env::Env;
use callboard_text::quoted;
use futures::future::{BoxFuture, FutureExt, Shared};
use parking_lot::Mutex;
use rmcp::model::JsonObject;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::offers::{Offer, Offers, Refused};
use super::session::{Session, Unready};
use super::settings::Settings;
use super::starts::Starts;
use crate::tool::{ToolError, ToolFailure, ToolOutput, ToolScope};

/// The time that a turn waits at its beginning for a server to list its changed tools.
const MAX_LISTING: Duration = Duration::from_secs(5);

/// A server and its session, if there is one.
pub(super) struct Connection {
    settings: Arc<Settings>,
    env: Env,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    starts: Starts,
    last: Option<Starting>,
}

/// A start of a server. It continues if its caller is dropped, and ends with the connection.
struct Starting {
    ready: Ready,
    task: AbortHandle,
}

/// A session, once it is there, and the tools that were refused.
type Ready = Shared<BoxFuture<'static, Result<Arc<Started>, Unready>>>;

struct Started {
    session: Session,
    refused: Vec<Refused>,
}

impl Connection {
    pub(super) fn new(settings: Settings, env: &Env) -> Self {
        Self { settings: Arc::new(settings), env: env.clone(), state: Mutex::default() }
    }

    pub(super) fn name(&self) -> &str {
        &self.settings.name
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The usable tools, and the refused ones. Starts the server if it is not running.
    pub(super) async fn offered(&self) -> Result<(Arc<Offers>, Vec<Refused>), String> {
        let started = self.started().await.map_err(|unready| self.settings.redacted(unready.why))?;
        Ok((started.session.offers(), started.refused.clone()))
    }

    /// The present tools, if the server runs and lists them in time. Does not start it.
    pub(super) async fn current(&self) -> Option<Arc<Offers>> {
        let running = self.state.lock().last.as_ref().and_then(|last| last.ready.peek().cloned())?.ok()?;
        if running.session.is_over() {
            return None;
        }
        timeout(MAX_LISTING, running.session.current(&self.settings)).await.ok()?.ok()
    }

    /// Calls a tool of the server, by the server's own name.
    pub(super) async fn call(
        &self,
        tool: &str,
        offer: &Offer,
        arguments: JsonObject,
        scope: &ToolScope,
    ) -> Result<ToolOutput, ToolFailure> {
        let settings = &*self.settings;
        let about =
            |why: String| ToolError(format!("the MCP server {} {}", quoted(&settings.name), settings.redacted(why)));
        let started = self.started().await.map_err(|Unready { why, is_silence }| {
            if is_silence { ToolFailure::Silent(about(why)) } else { ToolFailure::Told(about(why)) }
        })?;
        let call = started.session.call(settings, (tool, offer), arguments, scope);
        match timeout(settings.timeout, call).await {
            Ok(Ok(output)) => Ok(ToolOutput { text: settings.redacted(output.text), ..output }),
            Ok(Err(ToolError(why))) => Err(about(why).into()),
            Err(_) => {
                started.session.end_if_deaf(settings.timeout).await;
                let why = format!("did not answer within {:?}{}", settings.timeout, started.session.remark());
                Err(ToolFailure::Silent(about(why)))
            }
        }
    }

    async fn started(&self) -> Result<Arc<Started>, Unready> {
        self.ready()?.await
    }

    /// The session that exists or is being started, or a new one.
    fn ready(&self) -> Result<Ready, Unready> {
        let mut state = self.state.lock();
        if let Some(Starting { ready, .. }) = &state.last {
            match ready.peek() {
                None => return Ok(ready.clone()),
                Some(Ok(started)) if !started.session.is_over() => return Ok(ready.clone()),
                Some(Ok(_) | Err(_)) => {}
            }
        }
        state.starts.take(self.env.now().monotonic).map_err(|wait| {
            let wait = wait.as_secs().max(1);
            Unready::reported(format!("has ended too often, and is not started again for another {wait} s"))
        })?;
        let settings = Arc::clone(&self.settings);
        let task = tokio::spawn(async move {
            let (session, refused) = Session::open(&settings).await?;
            Ok(Arc::new(Started { session, refused }))
        });
        let aborted = task.abort_handle();
        let ready = task
            .map(|ended| match ended {
                Ok(Ok(started)) => Ok(started),
                Ok(Err(unready)) => Err(unready),
                Err(_) => Err(Unready::reported("was stopped while it started".to_owned())),
            })
            .boxed()
            .shared();
        // The earlier session is dropped, and its program killed.
        state.last = Some(Starting { ready: ready.clone(), task: aborted });
        Ok(ready)
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.task.abort();
    }
}
