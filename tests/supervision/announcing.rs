//! What boards on one store get to know of each other's agents, and how often it is written.

use std::sync::Arc;
use std::time::Duration;

use callboard::env::Env;
use callboard::messages::{Authority, Effect};
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

#[tokio::test(start_paused = true)]
async fn what_is_made_known_of_an_agent_is_what_it_was_added_or_replaced_with() {
    let env = Env::repeatable(7);
    let store = Arc::new(Shaky::new(&env, 0));
    let board = |name: &str| Callboard::builder().env(env.clone()).storage(store.clone()).name(name);
    let other = board("other").agent("x", done).start().await.unwrap();
    let one = board("one").start().await.unwrap();
    let (reads, writes) = (Authority::of([Effect::Reads]), Authority::of([Effect::Writes]));
    one.agents().spawn(AgentSpec::new("b", done).role("writer").capability("rust").authority(reads)).await.unwrap();
    one.agents().declare(&AgentSpec::new("any", done).authority(writes), ["a", "c"]).await.unwrap();
    one.agents().spawn(AgentSpec::new("d", done)).await.unwrap();
    let known = async || {
        let boards = other.boards().await.unwrap();
        let agents = boards.iter().filter(|board| &*board.name == "one").flat_map(|board| &board.info.agents);
        let known =
            agents.map(|agent| (agent.name.to_string(), agent.role.as_deref().map(str::to_owned), agent.authority));
        known.collect::<Vec<_>>()
    };
    let agent = |name: &str, role: Option<&str>, authority| (name.to_owned(), role.map(str::to_owned), authority);
    let [a, c, d] = [("a", writes), ("c", writes), ("d", Authority::ALL)].map(|(name, may)| agent(name, None, may));
    comes_true(async || known().await == [a.clone(), agent("b", Some("writer"), reads), c.clone(), d.clone()]).await;
    one.agents().replace(AgentSpec::new("b", done).role("editor").authority(writes)).await.unwrap();
    one.agents().stop("a").await.unwrap();
    comes_true(async || known().await == [agent("b", Some("editor"), writes), c.clone(), d.clone()]).await;
    one.shutdown().await;
    other.shutdown().await;
}
