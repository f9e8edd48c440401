//! Calls of tools: the runs that they begin, and the wait for them.

use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use callboard::actors::{StreamMode, Watched};
use callboard::messages::{AgentName, Outcome, Pending, PendingId, Response, RunId, RunResult, TraceParent, visible};
use callboard::runtime::RunHandle;
use callboard::supervision::runs::Run;
use futures::StreamExt as _;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CreateTaskResult, DetailedTask,
    ElicitResult, ErrorData, InputRequiredResult, InputResponses, ProgressNotificationParam, ProtocolVersion,
    Task as McpTask, TaskPayload, TaskStatus,
};
use rmcp::service::RequestContext;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::errors::error;
use super::handler::Handler;
use super::tools::{self, RunArguments, Target};
use super::{questions, resources};
use crate::delegations::{self, TRACE_PARENT, TRACE_STATE, is_same, submit};
use crate::json as shapes;
use crate::knowledge::reserved;
use crate::problem::{Problem, ProblemCode};
use crate::tokens::{Caller, Scope};

/// How often a client should look after a task.
const POLL: Duration = Duration::from_secs(2);
/// How long `run_result` waits for a run that a person is needed for.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest message of a progress notification, and the most of a wrong name that is repeated, in characters.
const MAX_MESSAGE: usize = 200;

/// How a call continues.
enum Step {
    Ended(Box<RunResult>),
    /// The run waits for a person.
    Waits,
    Cancelled,
}

impl Handler {
    pub(super) async fn call(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let board = &self.context.board;
        let target = tools::targets(&self.context).await.map_err(error)?.remove(&*params.name);
        if let Some(target @ (Target::Approvals | Target::Decide)) = &target {
            return self.decide(target, params.arguments, &context.extensions).await;
        }
        if let Some(Target::Knowledge(tool)) = target {
            return self.know(tool, params.arguments, &context).await;
        }
        let caller = self.caller(&context.extensions, Scope::Delegate)?;
        let shown = || visible(&params.name.chars().take(MAX_MESSAGE).collect::<String>());
        let unknown = || ErrorData::invalid_params(format!("there is no tool {}", shown()), None);
        let target = target.ok_or_else(unknown)?;
        let Ok(_permit) = self.calls.try_acquire() else {
            return Ok(refused(&Problem::new(ProblemCode::Overloaded, "too many calls are under way; wait for one")));
        };
        if target == Target::RunResult {
            let RunArguments { request_id } = match tools::arguments(params.arguments) {
                Ok(arguments) => arguments,
                Err(problem) => return Ok(refused(&problem)),
            };
            let (run, _) = match self.own_run(&caller, &request_id).await {
                Ok(run) => run,
                Err(_) => return Ok(refused(&Problem::not_found("there is no such run of this client"))),
            };
            return self.follow(&run, &caller, &context, PATIENCE).await;
        }
        let mut task = match tools::task(board, &target, params.arguments).await {
            Ok(task) => task,
            Err(problem) => return Ok(refused(&problem)),
        };
        if let Err(problem) = reserved::check(&self.context, &task) {
            return Ok(refused(&problem));
        }
        task.from_agent = Some(caller.requester().map_err(error)?);
        task.trace_parent = trace_parent(&context).map(|parent| delegations::of_client(parent, &task));
        let run = match params.request_state {
            // A call that is continued.
            Some(state) => {
                let (run, fold) = self.own_run(&caller, run_of_state(&state).unwrap_or_default()).await?;
                if !is_same(
                    &callboard::messages::Task { id: fold.submission().task.id, ..task },
                    &fold.submission().task,
                ) {
                    return Err(ErrorData::invalid_params("the request state belongs to another call", None));
                }
                if !self.take_answers(&run, &caller, params.input_responses.unwrap_or_default()).await? {
                    return Ok(waiting(run.id(), &run.pending().await).into());
                }
                run
            }
            None => {
                task.id = self.key(&caller, &context).map_err(error)?;
                match submit(&self.context, task).await {
                    Ok(fold) => board.run(fold.submission().run),
                    Err(problem) => return Ok(refused(&problem)),
                }
            }
        };
        if context.client_capabilities().is_some_and(|it| it.supports_tasks()) {
            let fold = run.read().await.map_err(|it| error(it.into()))?;
            let DetailedTask { task, .. } = self.task_of(&run, &fold, &context).await;
            return Ok(CreateTaskResult::new(task).into());
        }
        self.follow(&run, &caller, &context, Duration::ZERO).await
    }

    /// The run with this id, if this caller began it by this protocol.
    pub(super) async fn own_run(&self, caller: &Caller, id: &str) -> Result<(RunHandle, Run), ErrorData> {
        let unknown = || ErrorData::invalid_params("there is no such task or run of this client", None);
        let run = self.context.board.run(id.parse::<RunId>().map_err(|_| unknown())?);
        let fold = match run.read_with_placed().await {
            Ok(fold) => fold,
            Err(callboard::runtime::RunError::Unknown(_)) => return Err(unknown()),
            Err(it) => return Err(error(it.into())),
        };
        let task = &fold.submission().task;
        let is_by = |from: &AgentName| {
            let person = self.context.people.get(from.as_str());
            from.as_str() == &*caller.name || (person.is_some() && person == caller.person.as_ref())
        };
        let is_own = task.is_untrusted && task.from_agent.as_ref().is_some_and(is_by);
        if is_own { Ok((run, fold)) } else { Err(unknown()) }
    }

    /// Waits for the end of a run, or for what this client has to do for it.
    async fn follow(
        &self,
        run: &RunHandle,
        caller: &Caller,
        context: &RequestContext<RoleServer>,
        patience: Duration,
    ) -> Result<CallToolResponse, ErrorData> {
        let can_ask = questions::can_ask(context.client_capabilities().as_ref());
        let is_modern =
            context.protocol_version().is_some_and(|it| it.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
        let mut progress = Box::pin(report(run.clone(), context.clone()));
        let mut patience = Some(patience).filter(|it| !it.is_zero()).map(|time| Box::pin(tokio::time::sleep(time)));
        loop {
            let is_patient = patience.is_some();
            let waits = async {
                let is_wanted = |wait: &Pending| !is_patient || (can_ask && questions::question(wait).is_some());
                match run.next_pending_where(is_wanted).await {
                    Ok(Some(_)) => Ok(Step::Waits),
                    Ok(None) => run.result().await.map(|result| Step::Ended(Box::new(result))),
                    Err(error) => Err(error),
                }
            };
            let step = tokio::select! {
                biased;
                () = context.ct.cancelled() => Ok(Step::Cancelled),
                step = waits => step,
                () = async { match &mut patience { Some(time) => time.await, None => std::future::pending().await } } => {
                    patience = None;
                    continue;
                }
                () = &mut progress => continue,
            };
            match step.map_err(|it| error(it.into()))? {
                Step::Ended(result) => return Ok(ended(&result).into()),
                Step::Cancelled => return Err(self.cancel(run, caller).await),
                Step::Waits => {}
            }
            let pending = run.pending().await;
            if pending.is_empty() {
                continue;
            }
            let asked = pending.iter().find_map(questions::question).filter(|_| can_ask);
            let Some(question) = asked else { return Ok(waiting(run.id(), &pending).into()) };
            let id = PendingId::Question(question.id);
            if is_modern {
                let requests = questions::requests(&pending);
                return Ok(InputRequiredResult::new(Some(requests), Some(state(run.id(), id))).into());
            }
            let answer = tokio::select! {
                biased;
                () = context.ct.cancelled() => return Err(self.cancel(run, caller).await),
                result = context.peer.create_elicitation(questions::form(question)) => result.ok(),
                // Another has answered it.
                () = async { self.context.board.people().closed(id).await } => continue,
            };
            match answer.as_ref().and_then(questions::answer) {
                Some(answer) => self.answer(id, answer.into(), caller).await?,
                None => return Ok(waiting(run.id(), &pending).into()),
            }
        }
    }

    /// Cancels the run of a call that was cancelled. A server that stops leaves it.
    async fn cancel(&self, run: &RunHandle, caller: &Caller) -> ErrorData {
        if !*self.context.is_stopping.borrow()
            && let Err(error) = run.cancel(&format!("the call was cancelled by {}", caller.by())).await
        {
            tracing::warn!(run = %run.id(), %error, "the run of a cancelled call was not cancelled");
        }
        ErrorData::internal_error("the call was cancelled", None)
    }

    /// Answers questions of a run with what a user of the client has answered. Others than those of the run are left out. `false` if
    /// the user did not want to answer one.
    pub(super) async fn take_answers(
        &self,
        run: &RunHandle,
        caller: &Caller,
        responses: InputResponses,
    ) -> Result<bool, ErrorData> {
        let pending = run.pending().await;
        let mut is_willing = true;
        for question in pending.iter().filter_map(questions::question) {
            let id = PendingId::Question(question.id);
            let Some(response) = responses.get(&id.to_string()) else { continue };
            let Ok(response) = serde_json::from_value::<ElicitResult>(response.clone()) else {
                return Err(ErrorData::invalid_params(
                    format!("the response to {id} is no result of an elicitation"),
                    None,
                ));
            };
            match questions::answer(&response) {
                Some(answer) => self.answer(id, answer.into(), caller).await?,
                None => is_willing = false,
            }
        }
        Ok(is_willing)
    }

    async fn answer(&self, id: PendingId, response: Response, caller: &Caller) -> Result<(), ErrorData> {
        let (board, by) = (self.context.board.clone(), Arc::clone(caller.by()));
        // In a task of its own: an answer that is stored also has to reach its run.
        let answered = tokio::spawn(async move { board.people().answer(id, response, &by).await }).await;
        match answered.map_err(|it| error(Problem::internal(&it)))? {
            // It was answered, or has expired: the run has continued.
            Ok(_) | Err(callboard::AnswerError::NotOpen(_) | callboard::AnswerError::Answered(_)) => Ok(()),
            Err(it) => Err(error(it.into())),
        }
    }

    /// A run as a task.
    pub(super) async fn task_of(
        &self,
        run: &RunHandle,
        fold: &Run,
        context: &RequestContext<RoleServer>,
    ) -> DetailedTask {
        let now = self.context.now();
        let text = |at| shapes::time(at).as_str().unwrap_or_default().to_owned();
        let mut task = McpTask::new(
            run.id().to_string(),
            TaskStatus::Working,
            text(fold.submission().at),
            text(fold.result().map_or(now, |_| fold.last_at())),
        );
        task.poll_interval_ms = u64::try_from(POLL.as_millis()).ok();
        let Some(result) = fold.result() else {
            let pending: Vec<Pending> = fold.pending().into_iter().filter(|wait| !wait.is_expired(now)).collect();
            if pending.is_empty() {
                if delegations::is_stale(&self.context, fold).await.is_ok_and(|is_stale| is_stale) {
                    task = task.with_status_message("stale: there was no news of it for long; it may still end");
                }
                return DetailedTask::new(task, TaskPayload::Working);
            }
            let lines: Vec<String> = pending.iter().map(line_of).collect();
            let task = task.with_status_message(format!("waits for a person: {}", lines.join("; ")));
            let input_requests = questions::requests(&pending);
            let asks = questions::can_ask(context.client_capabilities().as_ref()) && !input_requests.is_empty();
            return DetailedTask::new(
                task,
                if asks { TaskPayload::InputRequired { input_requests } } else { TaskPayload::Working },
            );
        };
        let payload = match &result.outcome {
            Outcome::Cancelled { reason } => {
                return DetailedTask::new(task.with_status_message(visible(reason)), TaskPayload::Cancelled);
            }
            Outcome::Finished | Outcome::Failed { .. } | Outcome::Refused(_) | Outcome::Denied { .. } => {
                let result = serde_json::to_value(ended(result)).unwrap_or_default();
                TaskPayload::Completed { result: result.as_object().cloned().unwrap_or_default() }
            }
        };
        DetailedTask::new(task, payload)
    }
}

fn line_of(pending: &Pending) -> String {
    let (line, command) = questions::line(pending);
    format!("{line} ({command})")
}

/// Reports the events of a run as the progress of a call, if the client wants that. It does not end by itself.
async fn report(run: RunHandle, context: RequestContext<RoleServer>) {
    if let Some(token) = context.meta.get_progress_token()
        && let Ok(mut events) = run.events(1, &[StreamMode::Updates]).await
    {
        while let Some(watched) = events.next().await {
            let Watched::Event { sequence, event, .. } = watched else { continue };
            let message: String = event.to_string().chars().take(MAX_MESSAGE).collect();
            #[expect(clippy::cast_precision_loss, reason = "a run has fewer events than a float counts")]
            let progress = ProgressNotificationParam::new(token.clone(), sequence as f64).with_message(message);
            if context.peer.notify_progress(progress).await.is_err() {
                break;
            }
        }
    }
    std::future::pending().await
}

/// The result of a call whose run has ended.
fn ended(result: &RunResult) -> CallToolResult {
    let shown = shapes::result(result);
    let text = match (&result.outcome, result.output.as_str()) {
        (Outcome::Finished, Some(text)) => text.to_owned(),
        (Outcome::Finished, None) => result.output.to_string(),
        (outcome, _) => format!(
            "the run was not finished, it is {}: {}",
            outcome.name(),
            shown["error"].as_str().unwrap_or_default()
        ),
    };
    let structured = json!({
        "request_id": result.run,
        "status": shown["status"],
        "output": shown["output"],
        "error": shown["error"],
        "is_tainted": result.is_tainted,
    });
    shaped(result.run, text, structured, !result.outcome.is_finished())
}

/// The state of a call that asks a question: its run and the question, so that each round has another one, with a checksum.
fn state(run: RunId, question: PendingId) -> String {
    let round = format!("{run}/{}", checksum(&question.to_string()));
    format!("{round}/{}", checksum(&round))
}

/// The run of a state; `None` if the text is none.
fn run_of_state(state: &str) -> Option<&str> {
    let (round, sum) = state.rsplit_once('/')?;
    let (run, _) = round.split_once('/')?;
    (sum == checksum(round)).then_some(run)
}

/// It detects accidents. Whoever makes a state reaches only runs of their own.
fn checksum(text: &str) -> String {
    Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The result of a call whose run continues, and waits for a person.
fn waiting(run: RunId, pending: &[Pending]) -> CallToolResult {
    let mut text = format!(
        "The run {run} continues, and waits for a person, who decides with a command. Its result is then to be had from the tool {} \
         with this request_id.",
        tools::RUN_RESULT
    );
    pending.iter().for_each(|wait| text.push_str(&format!("\n- {}", line_of(wait))));
    let structured = json!({ "request_id": run, "status": "waiting", "pending": questions::shown(pending) });
    shaped(run, text, structured, false)
}

fn shaped(run: RunId, text: String, structured: Value, is_error: bool) -> CallToolResult {
    let content = [ContentBlock::text(text)].into_iter().chain(resources::links(run)).collect();
    let mut result = if is_error { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = Some(structured);
    result
}

/// The result of a call that began no run.
pub(super) fn refused(problem: &Problem) -> CallToolResponse {
    let mut result = CallToolResult::error(vec![ContentBlock::text(problem.detail.clone())]);
    let mut structured = json!({ "code": problem.code.as_str(), "detail": problem.detail });
    if let Some(wait) = problem.retry_after {
        structured["retry_after_s"] = json!(wait.as_secs().max(1));
    }
    result.structured_content = Some(structured);
    result.into()
}

/// The span of the client: in the `_meta` of the request, or else in a header.
pub(super) fn trace_parent(context: &RequestContext<RoleServer>) -> Option<TraceParent> {
    match context.meta.get(TRACE_PARENT) {
        Some(text) => {
            let state = context.meta.get(TRACE_STATE).and_then(Value::as_str);
            Some(TraceParent::parse(text.as_str()?)?.with_state(state.unwrap_or_default()))
        }
        None => delegations::trace_parent(&context.extensions.get::<Parts>()?.headers),
    }
}
