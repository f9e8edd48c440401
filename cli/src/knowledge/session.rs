//! A board of this process for one intent.

use callboard::prelude::*;
use callboard::runtime::Unfinished;
use callboard_knowledge::KnowledgeBase;
use callboard_knowledge::intents::{
    ConsumerIntentEnvelope, Intent, IntentLoopConfig, IntentLoopResult, IntentResult, Refused, agents, result_of, task,
};
use serde::Serialize;

use crate::config::people;
use crate::exit::Exit;
use crate::page::Failure;
use crate::person;
use crate::service::boards::Reachable;
use crate::stores::Stores;
use crate::submitting::submit;

/// A board with the agents of a base.
pub(super) struct Session {
    board: Callboard,
    reachable: Reachable,
    namespace: String,
}

impl Session {
    pub(super) async fn start(stores: &Stores, base: &KnowledgeBase, namespace: &str) -> Result<Self, Failure> {
        let store = stores.take_new(None).await?;
        let builder = Callboard::builder().on_unfinished(Unfinished::Leave).storage(store.shared());
        let builder = agents(base).into_iter().fold(builder, callboard::Builder::with);
        let board = builder.start().await.map_err(Failure::of)?;
        let reachable = Reachable::start(&board, &people::Section::default()).await;
        Ok(Self { board, reachable, namespace: namespace.to_owned() })
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
        let task = task(&envelope, &IntentLoopConfig::default()).map_err(unwritable)?;
        let run = submit(&self.board, task).await.map_err(Failure::of)?;
        let result = run.result().await.map_err(Failure::of)?;
        let result = result_of(&result).map_err(|error| Failure::failed(error.to_string()))?;
        match result.result {
            IntentResult::Refused(Refused { code, message, .. }) => {
                let exit = if code == "bad_statement" { Exit::Usage } else { Exit::Failed };
                Err(Failure::new(if code == "no_such_fact" { Exit::NotFound } else { exit }, message))
            }
            _ => Ok(result),
        }
    }

    pub(super) async fn end(self) {
        self.reachable.stop().await;
        self.board.shutdown().await;
    }
}
