//! The agent that a language model is asked through.

use callboard_agents::Definition;

/// The name of the agent of [`provider`].
pub use crate::intents::PROVIDER_AGENT;

/// How an agent is declared that does what intents and cycles ask of a provider: it answers questions from what was found, judges statements and
/// writes documents. It has no tools and no effects. Its name is [`PROVIDER_AGENT`], which is then the provider of
/// [`IntentLoopConfig`](crate::intents::IntentLoopConfig) and [`InitRequest`](crate::cycles::InitRequest).
///
/// Any other agent can be a provider: it is given a JSON object with the task's name as `task` and the JSON Schema of the answer as
/// `answer_with`, and answers with JSON.
///
/// ```
/// use std::sync::Arc;
///
/// use callboard::env::Env;
/// use callboard::prelude::*;
/// use callboard_agents::testing::ScriptedModel;
/// use callboard_agents::{LlmAgent, Tools};
/// use callboard_knowledge::intents::*;
/// use callboard_knowledge::provider::{PROVIDER_AGENT, provider};
/// use callboard_knowledge::{KnowledgeBase, intents};
/// use serde_json::json;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let folder = tempfile::tempdir()?;
/// let base = KnowledgeBase::create(&folder.path().join("facts.db"), &Env::system())?;
/// let model = ScriptedModel::new().says(r#"{ "claims": [] }"#);
/// let model = LlmAgent::new(&provider(), Arc::new(model), &Tools::new(), &[])?;
/// let [intent, pass] = intents::agents(&base);
/// let board = Callboard::builder().with(intent).with(pass).with(model.spec()).start().await?;
/// let config = IntentLoopConfig { provider: Some(PROVIDER_AGENT.to_owned()), ..IntentLoopConfig::default() };
/// # let envelope = |intent, payload: serde_json::Value| ConsumerIntentEnvelope {
/// #     intent,
/// #     payload: payload.into(),
/// #     principal: "ann".to_owned(),
/// #     namespace: "default".to_owned(),
/// #     trace: None,
/// # };
/// # let submit = envelope(Intent::SubmitFact, json!({ "statement": "The gate is green." }));
/// # board.submit(task(&submit, &IntentLoopConfig::default())?).await?.result().await?;
/// let query = envelope(Intent::QueryTruth, json!({ "query": "is the gate old?" }));
/// let run = board.submit(task(&query, &config)?).await?;
/// let IntentResult::Found { answer, .. } = result_of(&run.result().await?)?.result else { panic!() };
/// assert_eq!(answer, Some(Answer::NotKnown));
/// # board.shutdown().await;
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
///
/// # Panics
/// Never: a test reads what is compiled in.
#[must_use]
pub fn provider() -> Definition {
    match Definition::from_toml("provider.toml", include_str!("provider.toml")) {
        Ok(definition) => definition,
        Err(defects) => unreachable!("what is compiled in was read by a test: {defects}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_provider_has_neither_tools_nor_a_context() {
        let definition = provider();
        assert_eq!(definition.name.as_str(), PROVIDER_AGENT);
        assert_eq!(definition.allowed_tools.as_deref(), Some(&[][..]));
        assert_eq!(definition.namespaces.as_deref(), Some(&[][..]));
        for task in [
            "Answer a question from what was found",
            "Judge a statement",
            "Write a document",
            "Find what is missing",
            "Enrich a document",
            "Review documents",
        ] {
            assert!(definition.system_prompt.contains(&format!("- \"{task}\"")), "{task}");
        }
    }
}
