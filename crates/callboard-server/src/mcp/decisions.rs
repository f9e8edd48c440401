//! Decisions about approvals. A client is usually a model, so a token decides over this protocol only if it has the scope `approve`,
//! was made for a person, and has not begun the run that asks.

use callboard::messages::{AgentName, Pending, PendingId, Response, RunId, Task};
use callboard::runtime::RunError;
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, ErrorData, Extensions, JsonObject};
use serde::Deserialize;
use serde_json::{Value, json};

use super::calls::refused;
use super::errors::error;
use super::handler::Handler;
use super::tools::{self, Target, may_decide};
use crate::people::{self, shown};
use crate::problem::{Problem, ProblemCode};
use crate::tokens::{Caller, Scope};

/// The most approvals that are listed at once.
const MAX_LISTED: usize = 20;

/// The arguments of the tool that lists approvals.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArguments {}

/// The arguments of the tool that decides about one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DecisionArguments {
    id: String,
    decision: Decision,
    #[serde(default)]
    reason: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Decision {
    Approve,
    Deny,
}

impl Handler {
    /// Answers a call of one of the two tools.
    pub(super) async fn decide(
        &self,
        target: &Target,
        arguments: Option<JsonObject>,
        extensions: &Extensions,
    ) -> Result<CallToolResponse, ErrorData> {
        let caller = self.caller(extensions, Scope::Approve)?;
        if !may_decide(&caller) {
            let detail = format!(
                "the token {} was not made for a person: `callboard tokens add NAME --owner PERSON` makes one that is",
                caller.name
            );
            return Err(error(Problem::new(ProblemCode::DecisionsRefused, detail)));
        }
        let answered = match target {
            Target::Approvals => self.approvals(&caller, arguments).await,
            Target::Decide => self.decided(&caller, arguments).await,
            Target::Agent(_) | Target::Workflow(_) | Target::RunResult | Target::Knowledge(_) => {
                Err(Problem::bad("the tool decides nothing"))
            }
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

    /// The approvals that the token may decide about, with all that is asked for.
    async fn approvals(&self, caller: &Caller, arguments: Option<JsonObject>) -> Result<Value, Problem> {
        let NoArguments {} = tools::arguments(arguments)?;
        let (mut listed, mut more) = (Vec::new(), 0_u64);
        for pending in self.context.board.people().pending().await {
            if !matches!(pending, Pending::Approval(_)) {
                continue;
            }
            if listed.len() == MAX_LISTED {
                more += 1;
            } else if !self.has_begun(caller, pending.run()).await? {
                listed.push(shown(&pending));
            }
        }
        Ok(json!({ "approvals": listed, "not_listed": more }))
    }

    async fn decided(&self, caller: &Caller, arguments: Option<JsonObject>) -> Result<Value, Problem> {
        if let Some(why) = (self.context.refuses_decisions)() {
            return Err(Problem::new(ProblemCode::DecisionsRefused, why));
        }
        let DecisionArguments { id, decision, reason } = tools::arguments(arguments)?;
        let unknown = || Problem::not_found(format!("no such approval waits; {} lists them", tools::APPROVALS));
        let id: PendingId = id.parse().map_err(|_| unknown())?;
        let pending = self.context.board.people().pending().await;
        let is_it = |pending: &&Pending| pending.id() == id && matches!(pending, Pending::Approval(_));
        let approval = pending.iter().find(is_it).ok_or_else(unknown)?;
        if self.has_begun(caller, approval.run()).await? {
            let detail = format!(
                "the person of the token {} has begun the run that asks, by this token or another; somebody else decides",
                caller.name
            );
            return Err(Problem::new(ProblemCode::DecisionsRefused, detail));
        }
        let (response, word) = match decision {
            Decision::Approve => (Response::Approve, "approved"),
            Decision::Deny => (Response::Deny { reason }, "denied"),
        };
        let (board, by) = (self.context.board.clone(), people::decider(&self.context, caller)?);
        // In a task of its own: a decision that is stored also has to reach its run.
        let answered = tokio::spawn(async move { board.people().via("mcp").answer(id, response, &by).await });
        let votes = answered.await.map_err(|error| Problem::internal(&error))??;
        let mut answer = json!({ "id": id, "decision": word, "by": caller.by() });
        if let Some(votes) = votes.filter(|votes| votes.missing > 0) {
            answer["missing"] = votes.missing.into();
        }
        Ok(answer)
    }

    /// Whether the token, or another one of its person, has begun the run, or the first one of those that led to it.
    async fn has_begun(&self, caller: &Caller, run: RunId) -> Result<bool, Problem> {
        let is_by = |from: &AgentName| self.context.is_of_person(from.as_str(), caller);
        let is_own = |task: &Task| task.from_agent.as_ref().is_some_and(is_by);
        let fold = self.context.board.run(run).read().await?;
        // A run that a turn has begun has the trace of that turn's run, and the first one has its own id as trace.
        let first = RunId(fold.submission().trace.0);
        if is_own(&fold.submission().task) || first == run {
            return Ok(is_own(&fold.submission().task));
        }
        match self.context.board.run(first).read().await {
            Ok(first) => Ok(is_own(&first.submission().task)),
            Err(RunError::Unknown(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
