//! A loop is stopped wherever it waits: nothing of it continues, and on a board nothing is left of its run.

use std::future::ready;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::common::models::Nothing;
use crate::common::{Peak, assert_nothing_left, builder, pass, people, quiet, secs};
use callboard::actors::{StreamMode, Watched};
use callboard::env::Env;
use callboard::messages::{AgentEvent, LoopEnd, Message};
use callboard::prelude::*;
use callboard_agents::testing::ScriptedModel;
use callboard_agents::{
    AgentLoop, BuiltIn, Definition, Effect, LlmAgent, MetaTool, Model, ModelChoice, ModelEntry, ModelErrorKind,
    ModelEvent, ModelRequest, ModelStream, Models, Teammate, Tools, tool,
};
use futures::stream::once;
use futures::{FutureExt, StreamExt};
use serde_json::json;

/// For what a loop waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Words,
    Tool,
    Permission,
    Answer,
    /// The provider wants to be asked later.
    Provider,
    /// A place in the rate of its model.
    Rate,
    Delegation,
    Summary,
    /// The turn's next attempt.
    Attempt,
}

impl Wait {
    /// What there is without a board.
    const ALONE: [Self; 6] = [Self::Words, Self::Tool, Self::Permission, Self::Answer, Self::Provider, Self::Rate];
    const ON_A_BOARD: [Self; 3] = [Self::Delegation, Self::Summary, Self::Attempt];

    /// What is reported last before it waits.
    fn begins_with(self, event: &AgentEvent) -> bool {
        match self {
            Self::Words | Self::Delegation | Self::Summary => matches!(event, AgentEvent::Text { .. }),
            Self::Tool => matches!(event, AgentEvent::ToolCalled { .. }),
            Self::Permission => matches!(event, AgentEvent::PermissionAsked { .. }),
            Self::Answer => matches!(event, AgentEvent::QuestionAsked { .. }),
            Self::Provider => matches!(event, AgentEvent::ModelFailed { .. }),
            Self::Rate => matches!(event, AgentEvent::Iteration { iteration: 2 }),
            Self::Attempt => matches!(event, AgentEvent::Ended { .. }),
        }
    }

    /// What the model does.
    fn script(self) -> ScriptedModel {
        let model = ScriptedModel::new();
        let model = match self {
            Self::Words => return model,
            Self::Tool => model.calls("stay", json!({})),
            Self::Permission => model.calls("write", json!({})),
            Self::Answer => model.calls("AskUser", json!({ "question": "Where?" })),
            Self::Provider => model.fails(ModelErrorKind::RateLimited(Some(secs(20))), "slow"),
            Self::Rate => model.calls("read", json!({})),
            Self::Delegation => model.calls("Task", json!({ "agent": "helper", "task": "help" })),
            Self::Summary => (0..5).fold(model, |model, _| model.calls("read", json!({}))),
            Self::Attempt => model.fails(ModelErrorKind::Unavailable, "overloaded"),
        };
        model.says("never")
    }

    fn model(self, script: &ScriptedModel, place: &Place) -> Arc<dyn Model> {
        let entry = ModelEntry::of(script.clone());
        let chosen = |entry| Models::of(&Env::repeatable(7), [entry]).unwrap().chosen(&ModelChoice::default()).unwrap();
        match self {
            Self::Words => Arc::new(Hangs(place.clone())),
            Self::Provider => Arc::new(chosen(entry)),
            Self::Rate => Arc::new(chosen(entry.requests_per_minute(NonZeroU32::MIN))),
            Self::Tool | Self::Permission | Self::Answer | Self::Delegation | Self::Summary | Self::Attempt => {
                Arc::new(script.clone())
            }
        }
    }

    /// Whether something stays in the place meanwhile.
    fn is_in_a_place(self) -> bool {
        match self {
            Self::Words | Self::Tool | Self::Delegation | Self::Summary => true,
            Self::Permission | Self::Answer | Self::Provider | Self::Rate | Self::Attempt => false,
        }
    }
}

/// Where something stays until it is dropped.
#[derive(Clone, Default)]
struct Place(Peak);

impl Place {
    async fn stay<T>(self) -> T {
        let _inside = self.0.enter();
        std::future::pending().await
    }
}

/// A model that sends one word, and then nothing more.
struct Hangs(Place);

impl Model for Hangs {
    fn name(&self) -> &str {
        "hangs"
    }

    fn call(&self, _: ModelRequest) -> ModelStream {
        once(ready(Ok(ModelEvent::Text("hm".into())))).chain(once(self.0.clone().stay())).boxed()
    }
}

fn tools(place: &Place) -> Tools {
    let place = place.clone();
    let stay = tool("stay", "Stays.", Effect::Reads, move |_: Nothing, _| place.clone().stay());
    let write = tool("write", "Writes.", Effect::Writes, |_: Nothing, _| async { Ok("written".into()) });
    let read =
        tool("read", "Reads.", Effect::Reads, |_: Nothing, _| async { Ok("Nothing of note. ".repeat(60).into()) });
    Tools::new().with(stay).unwrap().with(write).unwrap().with(read).unwrap()
}

fn agent(definition: &Definition, model: Arc<dyn Model>, place: &Place) -> AgentSpec {
    let team = [Teammate { name: "helper".into(), description: "helps".into() }];
    LlmAgent::new(definition, model, &tools(place), &team).unwrap().spec()
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_cancelled_wherever_its_agent_waits_leaves_nothing() {
    for wait in Wait::ALONE.into_iter().chain(Wait::ON_A_BOARD) {
        let (script, place) = (wait.script(), Place::default());
        let compact = if wait == Wait::Summary { "[agent.model]\ncompact_at = 1500\nmax_tokens = 100" } else { "" };
        let lead = Definition::from_toml("lead.toml", &format!("[agent]\nname = \"lead\"\n{compact}")).unwrap();
        let helper = Definition::from_toml("helper.toml", "[agent]\nname = \"helper\"").unwrap();
        let hangs = || Arc::new(Hangs(place.clone()));
        let board = builder()
            .with(agent(&lead, wait.model(&script, &place), &place))
            .with(agent(&helper, hangs(), &place))
            .with(agent(&BuiltIn::Compactor.definition(), hangs(), &place))
            .start()
            .await
            .unwrap();
        let mut watched = board.watch(&[StreamMode::Live]);
        let run = board.submit(Task::new("x").to("lead")).await.unwrap();
        loop {
            match watched.next().await {
                Some(Watched::Live { event, .. }) if wait.begins_with(&event) => break,
                Some(_) => {}
                None => panic!("{wait:?} did not begin"),
            }
        }
        quiet().await;
        let asked = script.requests().len();
        let load = board.load();
        assert_eq!((place.0.inside(), load.runs), (usize::from(wait.is_in_a_place()), 1), "{wait:?}: {load:?}");
        assert_eq!(load.open_approvals, usize::from(wait == Wait::Permission), "{wait:?}: {load:?}");
        assert!(run.cancel("enough").await.unwrap(), "{wait:?}");
        let result = run.result().await.unwrap();
        let (outcome, metrics) = (result.outcome, result.metrics);
        assert!(matches!(outcome, Outcome::Cancelled { .. }), "{wait:?}: {outcome:?}");
        match wait {
            Wait::Tool | Wait::Permission | Wait::Answer => {
                assert_eq!(metrics.tokens_spent, metrics.usage.total(), "{wait:?}: no call is under way");
            }
            Wait::Words | Wait::Delegation | Wait::Summary | Wait::Attempt => {
                assert!(metrics.tokens_spent > metrics.usage.total(), "{wait:?}: a call may have to be paid for");
            }
            Wait::Provider | Wait::Rate => {}
        }
        assert_nothing_left(&board, 5).await;
        assert_eq!((place.0.inside(), people::questions(&run).await.len()), (0, 0), "{wait:?}: it goes on");
        // Nor does anything arrive later.
        pass(secs(90)).await;
        assert_eq!(script.requests().len(), asked, "{wait:?}: the model is asked again");
        assert_nothing_left(&board, 5).await;
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_loop_without_a_board_stops_wherever_it_waits() {
    for wait in Wait::ALONE {
        let (script, place) = (wait.script(), Place::default());
        let thinker = AgentLoop::of(wait.model(&script, &place)).tools(tools(&place)).meta([MetaTool::AskUser]);
        let mut run = thinker.run(vec![Message::user("x")]);
        let handle = run.handle();
        let mut call = String::new();
        loop {
            let event = run.next().await.unwrap_or_else(|| panic!("{wait:?} did not begin"));
            if let AgentEvent::PermissionAsked { call: asked, .. } | AgentEvent::QuestionAsked { call: asked, .. } =
                &event
            {
                call = asked.to_string();
            }
            if wait.begins_with(&event) {
                break;
            }
        }
        assert_eq!(run.next().now_or_never(), None, "{wait:?}: it waits");
        let asked = script.requests().len();
        assert_eq!(place.0.inside(), usize::from(wait.is_in_a_place()), "{wait:?}");
        handle.cancel();
        let end = tokio::time::timeout(Duration::from_millis(1), run.next()).await;
        assert_eq!(end, Ok(Some(AgentEvent::Ended { end: LoopEnd::Cancelled })), "{wait:?}");
        assert_eq!((run.next().await, place.0.inside()), (None, 0), "{wait:?}: it goes on");
        assert_eq!(script.requests().len(), asked, "{wait:?}");
        handle.allow(&call).unwrap_err();
        handle.answer(&call, "here").unwrap_err();
    }
}
