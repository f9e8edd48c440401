//! What boards on one store may use together, and the part of each.

use std::sync::Arc;
use std::time::Duration;

use callboard::actors::BoardShare;
use callboard::env::Fault;
use callboard::prelude::*;
use callboard::runtime::Builder;
use futures::future::join_all;

use crate::common::World;
use crate::common::faults::FaultPlan;

const MINUTE: Duration = Duration::from_secs(60);
/// The interval of looks.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const LEASE: Duration = Duration::from_secs(15);

async fn done(_: Turn) -> Result<Command, TurnError> {
    Ok(Command::output("done"))
}

fn sharing(board: Builder, world: &World) -> (Builder, BoardShare) {
    let share = BoardShare::new(&world.env);
    (board.board_share(&share), share)
}

async fn started(world: &World, agent: &str) -> (Callboard, BoardShare) {
    let (board, share) = sharing(world.board().agent(agent, done), world);
    (board.start().await.unwrap(), share)
}

fn boards(share: &BoardShare) -> u32 {
    share.read().boards.get()
}

#[tokio::test(start_paused = true)]
async fn a_board_that_hosts_agents_takes_its_part_at_once_and_gives_it_back_when_it_ends() {
    let world = World::new();
    let (first, of_first) = started(&world, "a").await;
    assert_eq!((boards(&of_first), of_first.read().saved), (1, MINUTE));
    let (second, of_second) = started(&world, "b").await;
    assert_eq!((boards(&of_first), of_first.read().saved), (2, MINUTE / 2), "it was asked to look");
    let reading = of_second.read();
    assert_eq!((boards(&of_second), reading.saved, reading.pause), (2, Duration::ZERO, LOOK_EVERY));
    tokio::time::sleep(LOOK_EVERY + MINUTE).await;
    assert_eq!((of_second.read().saved, of_second.read().pause), (MINUTE / 2, Duration::ZERO));
    first.shutdown().await;
    tokio::time::sleep(2 * LOOK_EVERY).await;
    assert_eq!(boards(&of_second), 1);
    second.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_board_without_agents_takes_its_part_with_its_first_one() {
    let world = World::new();
    let (first, of_first) = started(&world, "a").await;
    let (client, of_client) = sharing(world.board(), &world);
    let client = client.start().await.unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(boards(&of_first), 1);
    client.agents().spawn(AgentSpec::new("b", done)).await.unwrap();
    assert_eq!((boards(&of_first), boards(&of_client)), (2, 2));
    assert_eq!((of_client.read().saved, of_client.read().pause), (Duration::ZERO, LOOK_EVERY));
    client.agents().stop("b").await.unwrap();
    assert_eq!(boards(&of_first), 1);
    for board in [first, client] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_board_that_is_gone_without_a_word_keeps_its_part_as_long_as_its_lease() {
    let world = World::new();
    let (first, of_first) = started(&world, "a").await;
    let hangs = FaultPlan::default();
    hangs.arm("storage.handle", Fault::Wait(MINUTE), 1);
    let env = world.env.clone().with_faults(Arc::new(hangs));
    let gone = world.board().env(env).agent("b", done).start().await.unwrap();
    tokio::time::sleep(LEASE - LOOK_EVERY).await;
    assert_eq!(boards(&of_first), 2);
    tokio::time::sleep(2 * LOOK_EVERY).await;
    assert_eq!(boards(&of_first), 1);
    for board in [first, gone] {
        board.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn of_boards_that_start_at_the_same_time_at_most_one_has_anything_saved() {
    let world = World::new();
    let starting = ["a", "b", "c", "d"].map(|agent| started(&world, agent));
    let started = join_all(starting).await;
    let having = started.iter().filter(|(_, share)| share.read().saved > Duration::ZERO).count();
    assert!(having <= 1, "{started:?}");
    tokio::time::sleep(LOOK_EVERY).await;
    for (_, share) in &started {
        assert_eq!(boards(share), 4);
    }
    for (board, _) in started {
        board.shutdown().await;
    }
}
