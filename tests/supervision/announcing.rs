//! What boards on one store get to know of each other's agents, and how often it is written.

use std::sync::Arc;
use std::time::Duration;

use callboard::env::Env;
use callboard::prelude::*;

use crate::common::{Shaky, comes_true};

async fn done(_: Turn) -> Result<Command, TurnError> {
    Ok(Command::new())
}

#[tokio::test(start_paused = true)]
async fn agents_that_are_added_one_by_one_are_made_known_in_few_writes() {
    let env = Env::repeatable(7);
    let store = Arc::new(Shaky::new(&env, 0));
    let board = |name: &str| Callboard::builder().env(env.clone()).storage(store.clone()).name(name);
    let other = board("other").start().await.unwrap();
    let many = board("many").start().await.unwrap();
    let before = store.renewed.get();
    for number in 0..600 {
        many.agents().spawn(AgentSpec::new(&format!("a-{number}"), done)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let written = store.renewed.get() - before;
    assert!((64..120).contains(&written), "{written} writes of all agents");
    comes_true(async || other.agents().boards("a-599").len() == 1).await;
    many.agents().stop("a-0").await.unwrap();
    comes_true(async || many.boards().await.unwrap().iter().all(|board| board.info.agent("a-0").is_none())).await;
    many.shutdown().await;
    other.shutdown().await;
}
