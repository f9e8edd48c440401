//! A base of facts, from outside.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../../../tests/common/browser.rs"]
#[allow(dead_code, reason = "it is used by the tests of the server too")]
mod browser;
#[path = "../../../../tests/campaigns/mod.rs"]
mod campaigns;
mod cycle_kills;
mod cycles;
mod facts;
mod hostile_queries;
mod intents;
mod interrupted;
mod kills;
mod policy;
mod processes;
mod restoring;
mod search;
mod site_search;
#[path = "../../../../tests/common/skipping.rs"]
mod skipping;
mod support;
mod tools;
mod transfer;
mod upkeep;
mod versions;
