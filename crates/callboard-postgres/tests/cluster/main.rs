//! The campaign `cluster`: three boards in processes of their own on one database, with different agents, under load. They are killed,
//! stopped, cut off and shut down, or do not notice that their leases are over, and the database is killed, again and again.
//!
//! The oracle is outside: the driver keeps what the boards said, the boards append what they do to a file before they do it, and the
//! end is read by a board without agents that took no part.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod agents;
mod board;
#[path = "../../../../tests/campaigns/mod.rs"]
mod campaigns;
mod driver;
mod faults;
mod history;
#[path = "../../../../tests/passing/mod.rs"]
mod passing;
mod process;
mod record;
#[path = "../support/mod.rs"]
mod support;
mod verdict;
mod zombie;

use callboard::prelude::Callboard;
use callboard_postgres::Postgres;

use campaigns::{Campaign, cases};
use driver::Driver;
use support::Server;
use verdict::Recorded;

/// The faults of the fast form: one of each kind.
const FAST: u64 = 13;

/// Not a test: what the processes of the boards run.
#[test]
fn the_board() {
    board::run();
}

#[test]
fn each_run_ends_once_whatever_happens_to_boards_and_database() {
    let mut campaign = Campaign::begin("cluster");
    let count = cases(FAST);
    let folder = tempfile::tempdir().unwrap();
    let faults = faults::schedule(&campaign, count);
    let driver = Driver::new(&campaign, faults, count > FAST, folder.path());
    let schema = driver.schema().to_owned();
    let driven = driver.drive();
    let mut recorded = Recorded::read(&folder.path().join("record"));
    recorded.wrong.extend(driven.wrong.iter().cloned());
    let mut outcomes = String::new();
    if driven.wrong.is_empty() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let ended = runtime.block_on(async {
            let store = Postgres::connect_with(Server::of_this_process().config(&schema)).await.unwrap();
            let observer = Callboard::builder().storage(store).start().await.unwrap();
            let ended = verdict::check(&driven, &mut recorded, &observer).await;
            observer.shutdown().await;
            ended
        });
        outcomes = ended.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect::<Vec<_>>().join(", ");
    }
    let (runs, effects, operations) = (driven.runs.len(), recorded.effects(), recorded.operations());
    if !recorded.wrong.is_empty() {
        eprintln!("the record is kept: {}", folder.keep().display());
    }
    campaign.count_many(count);
    recorded.wrong.into_iter().for_each(|wrong| campaign.count(Err(wrong)));
    campaign.end(format_args!(
        "{runs} runs: {outcomes}; {effects} effects; {operations} operations on shared values; {}",
        driven.counts
    ));
}
