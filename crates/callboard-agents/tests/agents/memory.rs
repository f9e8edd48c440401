//! Models that work with the shared context.

use callboard::prelude::*;
use callboard_agents::Tools;
use callboard_agents::testing::ScriptedModel;
use callboard_agents::tools::{context_get, context_set};
use serde_json::json;

use crate::common::models::{agent, tool_answers};
use crate::common::{assert_nothing_left, builder, finish, quiet};

#[tokio::test(start_paused = true)]
async fn a_model_waits_for_what_another_agent_writes_and_holds_no_permit_meanwhile() {
    let tools = Tools::new().with(context_get()).unwrap().with(context_set()).unwrap();
    let file = |name: &str| {
        format!(
            "[agent]\nname = \"{name}\"\n[agent.announces]\nrole = \"admin\"\n[agent.context]\nnamespaces = [\"plans\"]\n"
        )
    };
    let get = |namespace: &str| json!({ "namespace": namespace, "key": "k", "wait_seconds": 600 });
    let waits = ScriptedModel::new()
        .calls("ContextGet", get("memory:writer"))
        .calls("ContextGet", get("plans"))
        .calls("ContextGet", json!({ "namespace": "plans", "key": "k", "after_revision": 1, "wait_seconds": 1 }))
        .says("done");
    let writes = ScriptedModel::new()
        .calls("ContextSet", json!({ "key": "k", "value": "SECRET" }))
        .calls("ContextSet", json!({ "namespace": "plans", "key": "k", "value": "a door", "extend": true }))
        .says("done");
    let board = builder()
        .pool(1)
        .with(agent(&file("waiter"), waits.clone(), &tools))
        .with(agent(&file("writer"), writes, &tools))
        .start()
        .await
        .unwrap();
    let waiting = board.submit(Task::new("wait").to("waiter")).await.unwrap();
    quiet().await;
    finish(&board, Task::new("write").to("writer")).await;
    assert_eq!(waiting.result().await.unwrap().output, "done");
    let requests = waits.requests();
    let answers = tool_answers(requests.last().unwrap());
    assert!(answers[0].starts_with("agent waiter has no grant for namespace \"memory:writer\""), "{answers:?}");
    assert!(answers[1].starts_with("plans k (6 bytes, by writer, revision ") && answers[1].ends_with("\na door"));
    assert!(answers[2].ends_with("\na door"), "{answers:?}");
    assert_nothing_left(&board, 1).await;
    board.shutdown().await;
}
