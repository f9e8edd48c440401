//! A server that has been started: its tools, and calls of them.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use callboard_text::cut;
use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest, ErrorData, Implementation, JsonObject,
    ListToolsRequest, PaginatedRequestParams, PingRequest, ProtocolVersion, RequestMetaObject, ServerResult,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, ClientServiceExt, NotificationContext, RunningService, ServiceError,
};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use rmcp::transport::{DynamicTransportError, IntoTransport};
use rmcp::{ClientHandler, RoleClient};
use serde_json::Value;
use tokio::time::timeout;

use super::offers::{self, Listing, Offer, Offers, Refused};
use super::pipes::{Fate, Pipes};
use super::settings::{Named, Reached, Settings};
use super::{answer, web};
use crate::process::child::Process;
use crate::process::group::GroupGuard;
use crate::process::{Sockets, scrubbed};
use crate::tool::{ToolError, ToolOutput, ToolScope};

/// The timeout of a ping.
pub(super) const MAX_PING: Duration = Duration::from_secs(2);

/// The field of a request with the idempotency key of a use, which is the same for all its tries.
const KEY: &str = "callboard/idempotencyKey";

/// The field with the span of the turn, by the convention of the protocol (SEP-414).
const TRACE_PARENT: &str = "traceparent";
const TRACE_STATE: &str = "tracestate";

/// A server that is ready. It is killed when this is dropped.
pub(super) struct Session {
    service: RunningService<RoleClient, Client>,
    fate: Arc<Fate>,
    offers: Mutex<Listed>,
    /// Held by each call that waits for its answer.
    waiting: Arc<()>,
    _group_guard: Option<GroupGuard>,
}

/// The tools that were listed last, and the number of changes before that.
#[derive(Default)]
struct Listed {
    offers: Arc<Offers>,
    changes: u64,
}

/// The client that a server sees: it has no capabilities, so the server may request nothing. The only notification that is used
/// is that its tools have changed.
pub(super) struct Client(Arc<Fate>);

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("callboard", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.0.note_change();
    }
}

impl Session {
    /// Starts the server, and lists its tools.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub(super) async fn open(settings: &Arc<Settings>) -> Result<(Self, Vec<Refused>), Unready> {
        let time = settings.start_timeout;
        let fate = Mutex::new(Arc::default());
        match timeout(time, Self::agree(settings, &fate)).await {
            Ok(opened) => opened.map_err(Unready::reported),
            Err(_) => {
                let remark = fate.lock().remark();
                Err(Unready { why: format!("was not ready within {time:?}{remark}"), is_silence: true })
            }
        }
    }

    async fn agree(settings: &Arc<Settings>, current: &Mutex<Arc<Fate>>) -> Result<(Self, Vec<Refused>), String> {
        let newest = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::LATEST],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        };
        let begun = match Self::begin(settings, newest, current).await {
            Err(Unwelcome { is_odd: true, .. }) => {
                // Older servers may end when they receive an unknown request.
                Self::begin(settings, ClientLifecycleMode::Initialize, current).await
            }
            begun => begun,
        };
        let session = begun.map_err(|unready| unready.why)?;
        let refused = session.list_again(settings).await?;
        Ok((session, refused))
    }

    async fn begin(
        settings: &Arc<Settings>,
        lifecycle: ClientLifecycleMode,
        current: &Mutex<Arc<Fate>>,
    ) -> Result<Self, Unwelcome> {
        let fate = Arc::new(Fate::default());
        *current.lock() = Arc::clone(&fate);
        let (service, group_guard) = match &settings.reached {
            Reached::Program { command, env, env_from } => {
                let process = started(settings, command, env, env_from).map_err(Unwelcome::plain)?;
                let group_guard = process.group_guard.another();
                (serve(Pipes::new(process, &fate), lifecycle, &fate).await?, Some(group_guard))
            }
            Reached::Address { url, bearer } => {
                let transport = web::transport(url, bearer.as_ref()).map_err(Unwelcome::plain)?;
                (serve(transport, lifecycle, &fate).await?, None)
            }
        };
        Ok(Self { service, fate, offers: Mutex::default(), waiting: Arc::default(), _group_guard: group_guard })
    }

    /// Whether it takes no more calls.
    pub(super) fn is_over(&self) -> bool {
        self.fate.is_over() || self.service.is_transport_closed()
    }

    pub(super) fn offers(&self) -> Arc<Offers> {
        Arc::clone(&self.offers.lock().offers)
    }

    /// The present tools: they are listed again if the server has reported a change since.
    pub(super) async fn current(&self, settings: &Settings) -> Result<Arc<Offers>, String> {
        if self.offers.lock().changes != self.fate.changes() {
            self.list_again(settings).await?;
        }
        Ok(self.offers())
    }

    /// Lists the tools, and returns the refused ones. If a change is reported meanwhile, they are listed once more.
    async fn list_again(&self, settings: &Settings) -> Result<Vec<Refused>, String> {
        let changes = self.fate.changes();
        let (offers, refused) = self.list(settings).await?;
        *self.offers.lock() = Listed { offers: Arc::new(offers), changes };
        Ok(refused)
    }

    async fn list(&self, settings: &Settings) -> Result<(Offers, Vec<Refused>), String> {
        let mut listing = Listing::new(settings);
        let mut cursor = None;
        loop {
            let (page, next) =
                self.page(cursor).await.map_err(|error| self.why(&error, "its tools could be listed"))?;
            listing.add(page)?;
            if next.is_none() {
                return Ok(listing.finish());
            }
            cursor = next;
        }
    }

    async fn page(&self, cursor: Option<String>) -> Result<(Vec<Value>, Option<String>), ServiceError> {
        let mut params = PaginatedRequestParams::default();
        params.cursor = cursor;
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
        // The library refuses a page with one invalid tool as a whole, but its other tools can be used.
        let page = match self.service.send_request(request).await? {
            ServerResult::ListToolsResult(page) => serde_json::to_value(page).unwrap_or_default(),
            ServerResult::CustomResult(page) => page.0,
            _ => return Err(ServiceError::UnexpectedResponse),
        };
        let Value::Object(mut page) = page else { return Err(ServiceError::UnexpectedResponse) };
        let Some(Value::Array(tools)) = page.remove("tools") else { return Err(ServiceError::UnexpectedResponse) };
        Ok((tools, page.get("nextCursor").and_then(Value::as_str).map(str::to_owned)))
    }

    /// Uses a tool, if it is still the one whose description agents received.
    pub(super) async fn call(
        &self,
        settings: &Settings,
        (tool, offer): (&str, &Offer),
        arguments: JsonObject,
        scope: &ToolScope,
    ) -> Result<ToolOutput, ToolError> {
        let current = self.current(settings).await.map_err(ToolError)?;
        offers::is_same(tool, offer, &current).map_err(ToolError)?;
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let mut meta = RequestMetaObject::new();
        meta.insert(KEY.to_owned(), (&*scope.key).into());
        if let Some(parent) = &scope.trace_parent {
            meta.insert(TRACE_PARENT.to_owned(), parent.to_string().into());
            if let Some(state) = &parent.state {
                meta.insert(TRACE_STATE.to_owned(), (&**state).into());
            }
        }
        params.meta = Some(meta);
        let _waiting = Arc::clone(&self.waiting);
        match self.service.call_tool(params).await {
            Ok(result) => {
                answer::of(result, settings.max_output).map_err(|ToolError(text)| ToolError(format!("says: {text}")))
            }
            Err(error) => Err(ToolError(self.why(&error, "the tool had answered"))),
        }
    }

    /// After a call without an answer: if the server does not answer a ping either, the next call starts it again.
    pub(super) async fn end_if_deaf(&self, patience: Duration) {
        if Arc::strong_count(&self.waiting) > 1 {
            return;
        }
        let ping = self.service.send_request(ClientRequest::PingRequest(PingRequest::default()));
        if timeout(patience.min(MAX_PING), ping).await.is_err() {
            self.fate.end();
            self.service.cancellation_token().cancel();
        }
    }

    /// Details for the error about a silent server.
    pub(super) fn remark(&self) -> String {
        self.fate.remark()
    }

    /// The reason why a request failed, to be printed after the server's name.
    fn why(&self, error: &ServiceError, before: &str) -> String {
        match error {
            ServiceError::McpError(error) => refused(error),
            ServiceError::TransportSend(error) => {
                // In any case, the next call starts it again.
                self.fate.end();
                self.service.cancellation_token().cancel();
                self.fate.why().unwrap_or_else(|| undelivered(error))
            }
            ServiceError::TransportClosed => {
                let why = self.fate.why().unwrap_or_else(|| "closed the connection".to_owned());
                match why.split_once(":\n") {
                    Some((how, stderr)) => format!("{how} before {before}:\n{stderr}"),
                    None => format!("{why} before {before}"),
                }
            }
            ServiceError::UnexpectedResponse => {
                "answered something else than was asked, or with a task, which is not supported".to_owned()
            }
            other => cut(&other.to_string()),
        }
    }
}

/// The reason why a server cannot be used.
#[derive(Clone, Debug)]
pub(super) struct Unready {
    /// The text to be printed after the server's name.
    pub(super) why: String,
    /// It has not answered in time.
    pub(super) is_silence: bool,
}

impl Unready {
    pub(super) fn reported(why: String) -> Self {
        Self { why, is_silence: false }
    }
}

/// The reason why the initialization failed.
struct Unwelcome {
    why: String,
    /// The server may be of an older version that needs another initialization.
    is_odd: bool,
}

impl Unwelcome {
    fn plain(why: String) -> Self {
        Self { why, is_odd: false }
    }
}

fn started(
    settings: &Arc<Settings>,
    command: &[String],
    env: &[(String, String)],
    env_from: &[Named],
) -> Result<Process, String> {
    let [program, arguments @ ..] = command else { return Err("names no program".to_owned()) };
    let mut program = scrubbed(program.as_ref());
    program.args(arguments).envs(env.iter().map(|(name, value)| (name, value)));
    for named in env_from {
        program.env(&named.variable, named.secret()?.expose());
    }
    let whose = Arc::clone(settings);
    let hear = move |pid: i32, line: String| {
        let (line, server) = (whose.redacted(line), &*whose.name);
        tracing::info!(target: "callboard::mcp", server, pid, "{line}");
        line
    };
    Process::start(program, Sockets::Named, None, hear).map_err(|error| format!("cannot be started: {error}"))
}

async fn serve<T, E, A>(
    transport: T,
    lifecycle: ClientLifecycleMode,
    fate: &Arc<Fate>,
) -> Result<RunningService<RoleClient, Client>, Unwelcome>
where
    T: IntoTransport<RoleClient, E, A>,
    E: Error + Send + Sync + 'static,
{
    let served = Client(Arc::clone(fate)).serve_with_lifecycle(transport, lifecycle).await;
    served.map_err(|error| unready(&error, fate))
}

fn unready(error: &ClientInitializeError, fate: &Fate) -> Unwelcome {
    match error {
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => unready(fallback, fate),
        ClientInitializeError::JsonRpcError(error) => Unwelcome::plain(refused(error)),
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            Unwelcome::plain("speaks no version of the protocol that callboard speaks".to_owned())
        }
        ClientInitializeError::TransportError { error, .. } => {
            let why = fate.why().unwrap_or_else(|| undelivered(error));
            Unwelcome { why, is_odd: !error_is_plain(error) }
        }
        ClientInitializeError::ConnectionClosed(_) => {
            let why = fate.why().unwrap_or_else(|| "closed the connection".to_owned());
            Unwelcome { why, is_odd: true }
        }
        other => {
            let why =
                format!("did not answer as a server does that begins: {}{}", cut(&other.to_string()), fate.remark());
            Unwelcome { why, is_odd: true }
        }
    }
}

/// The server's own text about a refused request.
fn refused(error: &ErrorData) -> String {
    format!("refuses (code {}): {}", error.code.0, error.message)
}

/// Whether another initialization would fail too.
fn error_is_plain(error: &DynamicTransportError) -> bool {
    match http_error(error) {
        Some(StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_)) => true,
        Some(StreamableHttpError::Client(error)) => error.is_connect(),
        Some(_) | None => false,
    }
}

fn http_error(error: &DynamicTransportError) -> Option<&StreamableHttpError<reqwest::Error>> {
    error.error.downcast_ref()
}

/// The reason why a request did not reach the server, or its answer this process, without the address, which may contain a
/// secret.
fn undelivered(error: &DynamicTransportError) -> String {
    match http_error(error) {
        Some(StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_)) => {
            "refuses requests without a token; name the variable with its token in `bearer_from`, and set it".to_owned()
        }
        Some(StreamableHttpError::SessionExpired) => "has ended the session".to_owned(),
        Some(StreamableHttpError::UnexpectedServerResponse(response)) if response.starts_with("HTTP 3") => {
            format!(
                "redirects to another address ({}); write that address as the url, which often ends with a `/`",
                cut(response.trim_end_matches([':', ' ']))
            )
        }
        Some(StreamableHttpError::HttpStatus(error)) => format!("answered with HTTP {}", error.status),
        Some(StreamableHttpError::Client(error)) => match error.status() {
            Some(status) => format!("answered with HTTP {}", status.as_u16()),
            None if error.is_timeout() => "was not reached in time".to_owned(),
            None => format!("cannot be reached: {}", cut(&deepest(error).to_string())),
        },
        Some(error) => format!("gave an answer that cannot be read: {}", cut(&error.to_string())),
        None => format!("cannot be reached: {}", cut(&deepest(&*error.error).to_string())),
    }
}

/// The root cause of an error.
fn deepest<'e>(error: &'e (dyn Error + 'static)) -> &'e (dyn Error + 'static) {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause
}
