//! The loop of an intent.

use std::collections::BTreeSet;

use super::asking::IntentError;
use super::envelope::{
    ConsumerIntentEnvelope, Intent, IntentLoopConfig, IntentLoopResult, IntentResult, QueryPayload, Refused,
};
use super::executor::{Pass, PassResult, ToolExecutor};
use super::policy::{Next, PassOptions, PassSummary, next_pass};
use crate::search::Retrieved;

/// Runs an intent to its result. A query that is weak is repeated with a wider search, as [`next_pass`] decides, and its result is the
/// best of the last pass, as many as were asked for; a change is one pass.
///
/// ```
/// use callboard::env::Env;
/// use callboard_knowledge::KnowledgeBase;
/// use callboard_knowledge::intents::*;
/// use serde_json::json;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let folder = tempfile::tempdir()?;
/// let base = KnowledgeBase::create(&folder.path().join("knowledge.db"), &Env::system())?;
/// let in_place = InPlace::new(base, Origin::default());
/// let envelope = |intent, payload: serde_json::Value| ConsumerIntentEnvelope {
///     intent,
///     payload: payload.into(),
///     principal: "ann".to_owned(),
///     namespace: "default".to_owned(),
///     trace: None,
/// };
/// let config = IntentLoopConfig::default();
/// let submit = envelope(Intent::SubmitFact, json!({ "statement": "The gate opens at nine." }));
/// run_intent_loop(submit, &in_place, &config).await?;
/// let query = envelope(Intent::QueryTruth, json!({ "query": "when does the gate open?" }));
/// let IntentResult::Found { retrieved, .. } = run_intent_loop(query, &in_place, &config).await?.result else { panic!() };
/// assert_eq!(retrieved.results.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
///
/// # Errors
/// A pass has no result. What was asked being at fault is no error, but [`IntentResult::Refused`].
pub async fn run_intent_loop(
    envelope: ConsumerIntentEnvelope,
    tool_executor: &dyn ToolExecutor,
    config: &IntentLoopConfig,
) -> Result<IntentLoopResult, IntentError> {
    let ConsumerIntentEnvelope { intent, ref principal, ref namespace, .. } = envelope;
    let (principal, namespace, provider) = (principal.clone(), namespace.clone(), config.provider.clone());
    let pass = match intent {
        Intent::QueryTruth => match envelope.payload::<QueryPayload>() {
            Ok(payload) => return query(payload, &namespace, tool_executor, config).await,
            Err(refused) => Err(refused),
        },
        Intent::SubmitFact => {
            envelope.payload().map(|payload| Pass::Submit { namespace, principal, payload, provider })
        }
        Intent::InvalidateFact => envelope.payload().map(|payload| Pass::Invalidate { namespace, principal, payload }),
    };
    let result = match pass {
        Ok(pass) => match tool_executor.execute(pass).await? {
            PassResult::Result(result) => *result,
            other @ (PassResult::Retrieved(_) | PassResult::Answered(_)) => return Err(unexpected(&other)),
        },
        Err(refused) => IntentResult::Refused(refused),
    };
    Ok(ended(result, 1))
}

async fn query(
    payload: QueryPayload,
    namespace: &str,
    tool_executor: &dyn ToolExecutor,
    config: &IntentLoopConfig,
) -> Result<IntentLoopResult, IntentError> {
    let QueryPayload { query, discovery_depth, limit, as_of, answer } = payload;
    if answer == Some(true) && config.provider.is_none() {
        return Ok(ended(IntentResult::Refused(Refused::no_provider()), 0));
    }
    let (first, asked) = (PassOptions { depth: discovery_depth, limit }, limit);
    let mut passes = Vec::new();
    let mut cited: BTreeSet<String> = BTreeSet::new();
    let mut retrieved = Retrieved::default();
    while let Next::Pass(options) = next_pass(config, first, &passes) {
        let PassOptions { depth, limit } = options;
        let pass = Pass::ReadFacts { query: query.clone(), namespace: namespace.to_owned(), depth, limit, as_of };
        retrieved = match tool_executor.execute(pass).await? {
            PassResult::Retrieved(retrieved) => retrieved,
            PassResult::Result(refused) => return Ok(ended(*refused, passes.len() + 1)),
            other @ PassResult::Answered(_) => return Err(unexpected(&other)),
        };
        let new = retrieved.results.iter().filter(|result| cited.insert(result.cite.clone())).count();
        passes.push(PassSummary {
            options,
            results: retrieved.results.len(),
            new,
            last: retrieved.checkpoints.last().map(|checkpoint| checkpoint.status),
            confidence: retrieved.confidence,
        });
    }
    let answer = match config.provider.as_ref().filter(|_| answer != Some(false)) {
        None => None,
        Some(provider) => {
            let pass = Pass::Answer { provider: provider.clone(), query, retrieved: retrieved.clone() };
            match tool_executor.execute(pass).await? {
                PassResult::Answered(answer) => Some(answer),
                other @ (PassResult::Retrieved(_) | PassResult::Result(_)) => return Err(unexpected(&other)),
            }
        }
    };
    // What a wider pass found beyond what was asked for served its confidence, and the answer.
    retrieved.results.truncate(asked);
    Ok(ended(IntentResult::Found { retrieved, answer }, passes.len()))
}

fn ended(result: IntentResult, passes: usize) -> IntentLoopResult {
    IntentLoopResult { result, iterations: u32::try_from(passes).unwrap_or(u32::MAX), escalated: passes > 1 }
}

fn unexpected(result: &PassResult) -> IntentError {
    IntentError::Unreadable(format!("a pass has the result of another one: {result:?}"))
}
