//! How the passes of an intent are executed.

use callboard::messages::Timestamp;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::answer::Answer;
use super::asking::{Ask, IntentError};
use super::envelope::{IntentResult, InvalidatePayload, SubmitPayload};
use super::invalidate::InvalidateOrchestrator;
use super::origin::Origin;
use super::router::DefaultIntentRouter;
use super::submit::SubmitOrchestrator;
use crate::search::{Depth, Retrieved};
use crate::store::KnowledgeBase;

/// One pass of an intent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pass {
    /// Looks for what is known.
    ReadFacts {
        /// The question.
        query: String,
        /// Where.
        namespace: String,
        /// How far.
        depth: Depth,
        /// For how many results.
        limit: usize,
        /// When it holds.
        as_of: Option<Timestamp>,
    },
    /// Has a language model answer from what was found.
    Answer {
        /// The agent that is asked.
        provider: String,
        /// The question.
        query: String,
        /// What was found.
        retrieved: Retrieved,
    },
    /// Submits a statement.
    Submit {
        /// Where it holds.
        namespace: String,
        /// Who submits it.
        principal: String,
        /// What.
        payload: SubmitPayload,
        /// The agent that judges whether it contradicts similar facts.
        provider: Option<String>,
    },
    /// Shows or applies a change of a fact.
    Invalidate {
        /// Where the fact holds.
        namespace: String,
        /// Who asks for it.
        principal: String,
        /// What.
        payload: InvalidatePayload,
    },
}

/// The result of a pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PassResult {
    /// Of [`Pass::ReadFacts`].
    Retrieved(Retrieved),
    /// Of [`Pass::Answer`].
    Answered(Answer),
    /// Of [`Pass::Submit`] and [`Pass::Invalidate`].
    Result(Box<IntentResult>),
}

/// What executes the passes of an intent: in place, or as turns of a board.
pub trait ToolExecutor: Send + Sync {
    /// Executes a pass.
    ///
    /// # Errors
    /// In the future: the base failed, or the turn of the pass has no result.
    fn execute(&self, pass: Pass) -> BoxFuture<'_, Result<PassResult, IntentError>>;
}

/// Executes passes where it is called: without a board, or within a turn that journals the result itself.
#[derive(Clone, Debug)]
pub struct InPlace {
    base: KnowledgeBase,
    origin: Origin,
}

impl InPlace {
    /// For a base, with the origin of what is submitted.
    #[must_use]
    pub const fn new(base: KnowledgeBase, origin: Origin) -> Self {
        Self { base, origin }
    }

    /// As [`ToolExecutor::execute`], with agents to ask.
    pub(super) async fn execute_with(&self, pass: Pass, ask: Option<Ask<'_>>) -> Result<PassResult, IntentError> {
        self.executed(pass, ask).await.map_err(|error| error.at(self.base.path()))
    }

    async fn executed(&self, pass: Pass, ask: Option<Ask<'_>>) -> Result<PassResult, IntentError> {
        match pass {
            Pass::ReadFacts { query, namespace, depth, limit, as_of } => {
                let router = DefaultIntentRouter::new(self.base.clone());
                router.read(query, namespace, depth, limit, as_of).await.map(PassResult::Retrieved)
            }
            Pass::Answer { provider, query, retrieved } => {
                let Some(ask) = ask else { return Err(IntentError::NoBoard(provider)) };
                super::answer::answer(&provider, &query, &retrieved, ask).await.map(PassResult::Answered)
            }
            Pass::Submit { namespace, principal, payload, provider } => {
                let orchestrator = SubmitOrchestrator::new(self.base.clone(), self.origin.clone());
                let judge = match (provider, ask) {
                    (None, _) => None,
                    (Some(provider), Some(ask)) => Some((provider, ask)),
                    (Some(provider), None) => return Err(IntentError::NoBoard(provider)),
                };
                orchestrator
                    .submit(&namespace, &principal, payload, judge)
                    .await
                    .map(|result| PassResult::Result(Box::new(result)))
            }
            Pass::Invalidate { namespace, principal, payload } => {
                let orchestrator = InvalidateOrchestrator::new(self.base.clone(), self.origin.clone());
                orchestrator
                    .change(&namespace, &principal, payload)
                    .await
                    .map(|result| PassResult::Result(Box::new(result)))
            }
        }
    }
}

impl ToolExecutor for InPlace {
    fn execute(&self, pass: Pass) -> BoxFuture<'_, Result<PassResult, IntentError>> {
        self.execute_with(pass, None).boxed()
    }
}
