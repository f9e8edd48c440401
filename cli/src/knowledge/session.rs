//! A board of this process for one intent.

use callboard::prelude::*;
use callboard::runtime::Unfinished;
use callboard_agents::Models;
use callboard_knowledge::KnowledgeBase;
use callboard_knowledge::intents::{
    ConsumerIntentEnvelope, Intent, IntentLoopConfig, IntentLoopResult, IntentResult, Refused, agents, result_of, task,
};
use callboard_knowledge::provider::PROVIDER_AGENT;
use serde::Serialize;

use crate::agents::{load, provider};
use crate::exit::Exit;
use crate::page::{Failure, note};
use crate::person;
use crate::service::boards::Reachable;
use crate::stores::Stores;
use crate::stores::store::Store;
use crate::submitting::submit;

use super::arguments::Asked;

impl Asked {
    /// The agent that the model is asked through, and the models that it is one of, if one was named.
    ///
    /// # Errors
    /// There is no such model.
    pub(super) fn agent(&self) -> Result<(Option<AgentSpec>, Option<Models>), Failure> {
        let asked = self.model.as_deref().map(|model| provider::spec(model, self.models.as_deref())).transpose()?;
        Ok(asked.map_or((None, None), |(agent, models)| (Some(agent), models)))
    }
}

/// A board with the agents of a base.
pub(super) struct Session {
    board: Callboard,
    reachable: Reachable,
    namespace: String,
    config: IntentLoopConfig,
}

impl Session {
    pub(super) async fn start(
        stores: &Stores,
        base: &KnowledgeBase,
        namespace: &str,
        asked: &Asked,
    ) -> Result<Self, Failure> {
        let store = stores.take_new(None).await?;
        Self::start_in(Some(&store), base, namespace, asked).await
    }

    /// As [`Session::start`], for queries alone: where no store can be opened, as on a full disk, they are not kept.
    pub(super) async fn start_to_read(
        stores: &Stores,
        base: &KnowledgeBase,
        namespace: &str,
        asked: &Asked,
    ) -> Result<Self, Failure> {
        let store = match stores.take_new(None).await {
            Ok(store) => Some(store),
            Err(why) => {
                note(&format!("no run is kept of the query: {}", why.text()));
                None
            }
        };
        Self::start_in(store.as_ref(), base, namespace, asked).await
    }

    async fn start_in(
        store: Option<&Store>,
        base: &KnowledgeBase,
        namespace: &str,
        asked: &Asked,
    ) -> Result<Self, Failure> {
        let (model, models) = asked.agent()?;
        let provider = model.is_some().then(|| PROVIDER_AGENT.to_owned());
        let builder = Callboard::builder().on_unfinished(Unfinished::Leave);
        let builder = match store {
            Some(store) => builder.storage(store.storage()),
            None => builder,
        };
        let builder = load::share_rates(builder, models.as_ref());
        let builder = agents(base).into_iter().chain(model).fold(builder, callboard::Builder::with);
        let board = builder.start().await.map_err(Failure::of)?;
        let reachable = Reachable::start(&board).await;
        Ok(Self {
            board,
            reachable,
            namespace: namespace.to_owned(),
            config: IntentLoopConfig { provider, ..IntentLoopConfig::default() },
        })
    }

    /// Runs an intent to its result.
    pub(super) async fn ask(&self, intent: Intent, payload: impl Serialize) -> Result<IntentLoopResult, Failure> {
        let unwritable = |error: serde_json::Error| Failure::failed(error.to_string());
        let envelope = ConsumerIntentEnvelope {
            intent,
            payload: Json::of(payload).map_err(unwritable)?,
            principal: person::name(),
            namespace: self.namespace.clone(),
            trace: None,
        };
        let task = task(&envelope, &self.config).map_err(unwritable)?;
        let run = submit(&self.board, task).await.map_err(Failure::of)?;
        let result = run.result().await.map_err(Failure::of)?;
        let result = result_of(&result).map_err(|error| Failure::failed(error.to_string()))?;
        match result.result {
            IntentResult::Refused(Refused { code, message, .. }) => {
                let exit = match &*code {
                    "no_such_fact" => Exit::NotFound,
                    "bad_statement" | "bad_payload" => Exit::Usage,
                    "authority" | "needs_person" | "untrusted" | "not_granted" => Exit::Denied,
                    _ => Exit::Failed,
                };
                Err(Failure::new(exit, message))
            }
            _ => Ok(result),
        }
    }

    pub(super) async fn end(self) {
        self.reachable.stop().await;
        self.board.shutdown().await;
    }
}
