//! Stores, journals, and what may happen to what is stored.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod bits;
#[path = "../campaigns/mod.rs"]
mod campaigns;
#[path = "../common/mod.rs"]
mod common;
mod conformance;
mod journal;
#[cfg(feature = "sled")]
mod older_store;
mod open_notes;
#[path = "../passing/mod.rs"]
mod passing;
mod reference;
mod sled_safety;
mod transfer;
