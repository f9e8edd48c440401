//! The endpoint over HTTP: what reaches `rmcp`, and how long its answers are carried.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, BodyDataStream, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::StreamExt as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::time::{interval, timeout};

use super::handler::Handler;
use super::sessions::Sessions;
use crate::body::{MAX_BODY, read};
use crate::context::{Context, Shared};
use crate::problem::{Problem, ProblemCode};
use crate::tokens::Caller;

/// The header that names a session.
const SESSION: &str = "mcp-session-id";
/// After what time an answer begins whose content is not known yet: before proxies and clients give up.
const EARLY: Duration = Duration::from_secs(10);
/// How often such an answer sends a comment.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Answers a request to the endpoint.
pub(crate) async fn answer(
    State(context): Shared,
    Extension(caller): Extension<Caller>,
    Extension(sessions): Extension<Sessions>,
    request: Request,
) -> Result<Response, Problem> {
    // A token has a bounded number of answers that are not complete.
    let permit = context.streams.open(&caller)?;
    if let Some(session) = header(request.headers(), SESSION)
        && !sessions.belongs(session, &caller)
    {
        return Err(Problem::not_found("the session has ended, or is not that of this token"));
    }
    let is_post = request.method() == Method::POST;
    let request = if is_post {
        let (parts, body) = request.into_parts();
        // The limit of the body is among the extensions.
        let message = read(Request::from_parts(parts.clone(), body)).await?;
        if message["jsonrpc"] != "2.0" {
            return Err(Problem::bad("the body is no message of JSON-RPC 2.0"));
        }
        Request::from_parts(parts, Body::from(message.to_string()))
    } else {
        request
    };
    let service = service(&context, &sessions);
    let opener = caller.clone();
    let answering = async move {
        let response = explained(service.handle(request).await.map(Body::new)).await;
        if let Some(session) = header(response.headers(), SESSION) {
            sessions.opened(session, &opener).await;
        }
        response
    };
    let mut answering: Answering = Box::pin(answering);
    let response = match timeout(EARLY, &mut answering).await {
        Ok(response) => response,
        Err(_) => early(answering),
    };
    let ended = context.ended(caller);
    Ok(response.map(|body| {
        let body = body.into_data_stream().take_until(Box::pin(ended));
        Body::from_stream(body.inspect(move |_| {
            let _open = &permit;
        }))
    }))
}

/// A refusal as a problem, if it is not an error of the protocol.
async fn explained(response: Response) -> Response {
    let status = response.status();
    let is_refusal = status.is_client_error() || status.is_server_error();
    if !is_refusal || header(response.headers(), CONTENT_TYPE.as_str()) == Some("application/json") {
        return response;
    }
    let allowed = response.headers().get(ALLOW).cloned();
    let text = to_bytes(response.into_body(), MAX_BODY).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // It begins with the words of the status.
    let text = text.split_once(": ").map_or(&*text, |(_, detail)| detail);
    let code = match status {
        // The media type was checked before: what it is about is JSON, and no message.
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Some(ProblemCode::BadRequest),
        status => ProblemCode::ALL.iter().find(|code| code.status() == status).copied(),
    };
    let problem = code.map(|code| Problem::new(code, text)).unwrap_or_else(|| Problem::internal(&text));
    let mut response = problem.into_response();
    if let Some(allowed) = allowed {
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}

type Answering = Pin<Box<dyn Future<Output = Response> + Send>>;

fn service(context: &Arc<Context>, sessions: &Sessions) -> StreamableHttpService<Handler, LocalSessionManager> {
    // Names and origins of the server were checked before.
    let config = StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .with_json_response(true)
        .with_max_request_body_bytes(context.limits.body_bytes)
        .with_cancellation_token(sessions.end(context));
    let shared = Arc::clone(context);
    StreamableHttpService::new(
        move || Ok(Handler::of_requests(Arc::clone(&shared))),
        Arc::clone(&sessions.manager),
        config,
    )
}

/// An answer whose content is not known yet: events, first comments that show that it is worked on. If the client leaves, the
/// request is cancelled, as by `rmcp`.
fn early(answering: Answering) -> Response {
    struct Waiting {
        answering: Answering,
        body: Option<BodyDataStream>,
        heartbeat: tokio::time::Interval,
    }
    let waiting = Waiting { answering, body: None, heartbeat: interval(HEARTBEAT) };
    let chunks = futures::stream::unfold(waiting, |mut waiting| async move {
        loop {
            if let Some(body) = &mut waiting.body {
                let chunk = body.next().await?.ok()?;
                return Some((Ok::<_, Infallible>(chunk), waiting));
            }
            tokio::select! {
                response = &mut waiting.answering => waiting.body = Some(as_events(response).await.into_data_stream()),
                _ = waiting.heartbeat.tick() => return Some((Ok(Bytes::from_static(b": working\n\n")), waiting)),
            }
        }
    });
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(chunks)).into_response()
}

/// The body of a response as events.
async fn as_events(response: Response) -> Body {
    let is_events =
        header(response.headers(), CONTENT_TYPE.as_str()).is_some_and(|it| it.starts_with("text/event-stream"));
    if is_events {
        return response.into_body();
    }
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap_or_default();
    Body::from([b"data: ", &*bytes, b"\n\n"].concat())
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
