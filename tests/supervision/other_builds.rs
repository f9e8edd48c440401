//! Boards of other builds on one store: what they have is left to them.

use callboard::prelude::*;
use callboard::runtime::RunHandle;
use callboard::storage::{Key, Put};

use crate::common::{World, people};
use crate::several_boards::{HOUR, asked, asker, question};

#[tokio::test(start_paused = true)]
async fn a_run_whose_records_are_of_a_newer_format_is_left_to_others() {
    let world = World::new();
    let first = asker(world.board()).start().await.unwrap();
    let (run, _) = asked(&first).await;
    let second = asker(world.board()).start().await.unwrap();
    let listed = second.boards().await.unwrap();
    assert_eq!(listed.iter().map(|board| board.info.reads).collect::<Vec<_>>(), [1, 1]);
    // As a board of a later build would write it.
    let key = Key::new(["open", &*run.id().0.as_simple().to_string()]);
    let note = world.storage.get(&key).await.unwrap().unwrap();
    let newer = [&*note.value, b"\n{\"format\":2,\"more\":\"x\"}"].concat();
    world.storage.put_if_revision(Put::new(key.clone(), newer.into())).await.unwrap();
    first.shutdown().await;
    tokio::time::sleep(HOUR).await;
    assert!(people::questions(&second.run(run.id())).await.is_empty() && second.quarantined().is_empty());
    let unfinished = second.unfinished_runs().await.unwrap();
    assert_eq!(unfinished.iter().map(RunHandle::id).collect::<Vec<_>>(), [run.id()], "it can be seen");
    let third = asker(world.board()).start().await.unwrap();
    third.recovered().await;
    assert!(people::questions(&third.run(run.id())).await.is_empty() && third.quarantined().is_empty());
    // Of the first format, as notes were that named none.
    world.storage.put_if_revision(Put::new(key, note.value)).await.unwrap();
    third.shutdown().await;
    let third = asker(world.board()).start().await.unwrap();
    question(&third.run(run.id())).await;
    for board in [second, third] {
        board.shutdown().await;
    }
}
