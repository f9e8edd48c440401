//! The supervision tree, and what becomes of runs when parts of the system fail.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod ahead;
mod announcing;
mod board_children;
#[path = "../campaigns/mod.rs"]
mod campaigns;
#[path = "../common/mod.rs"]
mod common;
mod crashes;
mod dead_letters;
mod draining;
mod faults;
mod late_answers;
mod leases;
mod left_runs;
mod losses;
mod lost_stores;
mod open_failures;
mod other_builds;
#[path = "../passing/mod.rs"]
mod passing;
mod placed_runs;
mod reach;
mod recovery;
mod replay;
mod resuming;
mod retention;
mod several_boards;
mod shared_inboxes;
mod shared_store;
mod shares;
mod showing;
mod tree;
