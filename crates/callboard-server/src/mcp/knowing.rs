//! Calls of the tools for facts.

use rmcp::RoleServer;
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, ErrorData, JsonObject};
use rmcp::service::RequestContext;

use super::calls::{refused, trace_parent};
use super::errors::error;
use super::handler::Handler;
use super::tools::may_decide;
use crate::knowledge::tools::{Call, KnowledgeTool};
use crate::problem::{Problem, ProblemCode};

impl Handler {
    /// Answers a call with what the base has answered. A client that leaves does not end the run.
    pub(super) async fn know(
        &self,
        tool: KnowledgeTool,
        arguments: Option<JsonObject>,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let caller = self.caller(&context.extensions, tool.scope())?;
        let Ok(_permit) = self.calls.try_acquire() else {
            return Ok(refused(&Problem::new(ProblemCode::Overloaded, "too many calls are under way; wait for one")));
        };
        let call = Call {
            arguments: arguments.unwrap_or_default(),
            run: self.key(&caller, context).map_err(error)?,
            parent: trace_parent(context),
            decides: may_decide(&caller),
        };
        let answered = tokio::select! {
            biased;
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("the call was cancelled", None)),
            answered = tool.call(&self.context, &caller, call) => answered,
        };
        Ok(match answered {
            Ok(value) => {
                let mut result = CallToolResult::success(vec![ContentBlock::text(value.to_string())]);
                result.structured_content = Some(value);
                result.into()
            }
            Err(problem) => refused(&problem),
        })
    }
}
