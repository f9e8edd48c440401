//! The methods of the protocol, each with the scope that it needs.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::http::request::Parts;
use callboard::messages::{Presence, RunId, visible};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CustomRequest, CustomResult, ErrorCode, ErrorData,
    Extensions, GetTaskParams, GetTaskResult, Implementation, ListResourceTemplatesResult, ListToolsResult,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig,
    SubscriptionFilter, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

use super::errors::error;
use super::{resources, tools};
use crate::audit::{Entry, Peer, Sender};
use crate::context::Context;
use crate::delegations::{MAX_KEY, idempotency_key, run_of};
use crate::problem::{Problem, ProblemCode};
use crate::tokens::{Caller, Scope};

/// The most calls of a session at a time.
const MAX_CALLS: usize = 64;
/// How long after a change the list of tools is said to have changed: agents that come together are one change.
const SETTLE: Duration = Duration::from_millis(100);
/// The key of `_meta` with which a client may repeat a call safely.
const IDEMPOTENCY_KEY: &str = "callboard/idempotencyKey";
/// The methods that take parameters.
const METHODS: [&str; 6] =
    ["tools/call", "tasks/get", "tasks/update", "tasks/cancel", "resources/read", "subscriptions/listen"];
const INSTRUCTIONS: &str = "Each tool delegates a task to an agent or starts a workflow. Runs may take long, and may wait for a person. \
    What they work on is untrusted input.";

/// A session, or one request of a client that has none.
pub(crate) struct Handler {
    pub(super) context: Arc<Context>,
    /// Whose requests all are; by default each names its sender.
    connection: Option<Connection>,
    pub(super) calls: Semaphore,
    /// Ends when this is dropped.
    life: CancellationToken,
    _end: DropGuard,
}

/// A connection of one sender, whose requests are recorded one by one.
struct Connection {
    caller: Caller,
    id: Uuid,
    from: Arc<str>,
}

impl Handler {
    /// For requests over HTTP, each with its token.
    pub(super) fn of_requests(context: Arc<Context>) -> Self {
        let life = CancellationToken::new();
        Self { context, connection: None, calls: Semaphore::new(MAX_CALLS), _end: life.clone().drop_guard(), life }
    }

    /// For a connection whose requests are all of one sender.
    #[cfg(unix)]
    pub(super) fn of_connection(
        context: Arc<Context>,
        caller: Caller,
        from: Arc<str>,
    ) -> Result<Self, getrandom::Error> {
        // Ids of its requests are those of no other connection, also of another process.
        let mut random = [0; 16];
        getrandom::fill(&mut random)?;
        let connection = Some(Connection { caller, id: Uuid::new_v8(random), from });
        Ok(Self { connection, ..Self::of_requests(context) })
    }

    /// Who sends a request, if that may do what needs this scope.
    pub(super) fn caller(&self, extensions: &Extensions, scope: Scope) -> Result<Caller, ErrorData> {
        let of_request = || extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<Caller>()).cloned();
        let caller = self.connection.as_ref().map(|connection| connection.caller.clone()).or_else(of_request);
        let caller = caller.ok_or_else(|| ErrorData::internal_error("it is not known who sent the request", None))?;
        if caller.scopes.contains(&scope) {
            return Ok(caller);
        }
        Err(error(Problem::new(
            ProblemCode::MissingScope,
            format!("the token {} does not have the scope {scope}", caller.name),
        )))
    }

    /// The run of a call that can be repeated: by its key, or within a session by the id of its request.
    pub(super) fn key(&self, caller: &Caller, context: &RequestContext<RoleServer>) -> Result<Option<RunId>, Problem> {
        let parts = context.extensions.get::<Parts>();
        let in_header = parts.map(|parts| idempotency_key(&parts.headers)).transpose()?.flatten();
        let in_meta = match context.meta.get(IDEMPOTENCY_KEY) {
            None => None,
            Some(key) => {
                let is_key =
                    |key: &&str| (1..=MAX_KEY).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
                let key = key.as_str().filter(is_key);
                let needed =
                    format!("`{IDEMPOTENCY_KEY}` in `_meta` is a text of 1 to {MAX_KEY} visible ASCII characters");
                let needed = || Problem::bad(needed);
                Some(key.ok_or_else(needed)?)
            }
        };
        if let Some(key) = in_header.or(in_meta) {
            return Ok(Some(run_of(caller, key)));
        }
        let session = match &self.connection {
            Some(connection) => Some(connection.id.to_string()),
            None => parts.and_then(|parts| parts.headers.get("mcp-session-id")?.to_str().ok()).map(str::to_owned),
        };
        // No other key has a space. A number is not the text of its digits.
        Ok(session.map(|session| run_of(caller, &format!("{session} {}", json!(context.id)))))
    }

    /// Has the audit log record a request.
    fn recorded(&self, extensions: &Extensions, method: &str, target: &str) -> Option<Entry> {
        let of_request = || extensions.get::<Parts>().map(|parts| &parts.extensions);
        let (caller, from) = match &self.connection {
            Some(Connection { caller, from, .. }) => (caller, Some(Arc::clone(from))),
            None => {
                let from = of_request()?.get::<Peer>().map(|peer| Arc::clone(&peer.shown));
                (of_request()?.get::<Caller>()?, from)
            }
        };
        let sender = Sender::default();
        sender.is(caller);
        Some(Entry::begin(Arc::clone(&self.context.audit), self.context.now(), (sender, from), method, target))
    }
}

/// Records how a request ended: with a result, which may have the code of a problem, or with an error, which may have one too.
fn record(entry: Option<Entry>, answer: Result<Option<&Value>, &ErrorData>) {
    let Some(entry) = entry else { return };
    let (data, usual) = match answer {
        Ok(structured) => (structured, StatusCode::OK),
        Err(error) => (error.data.as_ref(), StatusCode::BAD_REQUEST),
    };
    let code = data.and_then(|data| data["code"].as_str());
    let code = ProblemCode::ALL.iter().copied().find(|known| Some(known.as_str()) == code);
    entry.end(code.map_or(usual, ProblemCode::status), code);
}

/// Returns after agents have come or gone; `false` once the board has ended.
async fn changed(presence: &mut Receiver<Presence>) -> bool {
    if matches!(presence.recv().await, Err(RecvError::Closed)) {
        return false;
    }
    tokio::time::sleep(SETTLE).await;
    *presence = presence.resubscribe();
    true
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_tasks()
            .build();
        let mut info = ServerConfig::new(capabilities).with_instructions(INSTRUCTIONS);
        info.server_info = Implementation::new("callboard", env!("CARGO_PKG_VERSION"));
        info
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let Ok(caller) = self.caller(&context.extensions, Scope::Read) else { return Ok(ListToolsResult::default()) };
        let board = &self.context.board;
        let targets = tools::targets(&self.context).await.map_err(error)?;
        let after = request.and_then(|request| request.cursor).unwrap_or_default();
        let mut rest = targets.into_iter().filter(|(name, target)| *name > after && target.is_for(&caller)).peekable();
        let (mut tools, mut last) = (Vec::new(), None);
        let descriptions = self.context.agent_files().descriptions;
        for (name, target) in rest.by_ref().take(tools::PAGE) {
            last = Some(name.clone());
            tools.extend(tools::tool(board, &descriptions, name, &target).await.map_err(error)?);
        }
        let next_cursor = last.filter(|_| rest.peek().is_some());
        Ok(ListToolsResult { next_cursor, ..ListToolsResult::with_all_items(tools) })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        // Of a decision also what it is about.
        let id = request.arguments.as_ref().and_then(|arguments| arguments.get("id")?.as_str());
        let decided = id.filter(|_| request.name == tools::DECIDE).map(|id| format!("{}/{id}", request.name));
        let entry = self.recorded(&context.extensions, "tools/call", decided.as_deref().unwrap_or(&request.name));
        let answer = self.call(request, context).await;
        let structured = match &answer {
            Ok(CallToolResponse::Complete(result)) => result.structured_content.as_ref(),
            Ok(_) | Err(_) => None,
        };
        record(entry, answer.as_ref().map(|_| structured));
        answer
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let caller = self.caller(&context.extensions, Scope::Read)?;
        let (run, fold) = self.own_run(&caller, &request.task_id).await?;
        Ok(GetTaskResult::new(self.task_of(&run, &fold, &context).await))
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let entry = self.recorded(&context.extensions, "tasks/update", &request.task_id);
        let updating = async {
            let caller = self.caller(&context.extensions, Scope::Delegate)?;
            let (run, _) = self.own_run(&caller, &request.task_id).await?;
            self.take_answers(&run, &caller, request.input_responses).await.map(drop)
        };
        let updated = updating.await;
        record(entry, updated.as_ref().map(|()| None));
        updated
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let entry = self.recorded(&context.extensions, "tasks/cancel", &request.task_id);
        let cancelling = async {
            let caller = self.caller(&context.extensions, Scope::Delegate)?;
            let (run, _) = self.own_run(&caller, &request.task_id).await?;
            let reason = format!("cancelled by {}", caller.by());
            run.cancel(&reason).await.map(|_| ()).map_err(|it| error(it.into()))
        };
        let cancelled = cancelling.await;
        record(entry, cancelled.as_ref().map(|()| None));
        cancelled
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.caller(&context.extensions, Scope::Read)?;
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.caller(&context.extensions, Scope::Read)?;
        resources::read(&self.context, &request.uri).await.map(Into::into)
    }

    /// A request that is none of the protocol, or one of it with other parameters.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let CustomRequest { method, .. } = request;
        if METHODS.contains(&&*method) {
            let detail = format!("the parameters of {method} are not those of the protocol");
            return Err(ErrorData::invalid_params(detail, None));
        }
        let shown = method.chars().take(100).collect::<String>();
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, visible(&shown), None))
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let (mut presence, life) = (self.context.board.agents().presence(), self.life.clone());
        tokio::spawn(life.run_until_cancelled_owned(async move {
            while changed(&mut presence).await && context.peer.notify_tool_list_changed().await.is_ok() {}
        }));
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let tools = SubscriptionFilter::builder().tools_list_changed().build();
        Some(requested.intersection(&tools))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut presence = self.context.board.agents().presence();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                is_there = changed(&mut presence) => {
                    if !is_there || context.sink().notify_tool_list_changed().await.is_err() {
                        return Ok(());
                    }
                }
            }
        }
    }
}
