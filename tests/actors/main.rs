//! What turns of agents may do on a board and what holds them back: handoffs, delegations, routing, limits, approvals, state and
//! the shared context.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod agent_limits;
mod approvals;
mod cancelling;
mod channels;
#[path = "../common/mod.rs"]
mod common;
mod consent;
mod consent_terms;
mod context;
mod days;
mod delegations;
mod denials;
mod dormant;
mod expiring;
mod gathering;
mod handoffs;
mod independence;
mod late_waits;
mod limits;
mod outside_effects;
mod pending;
mod quorum;
mod routing;
mod state;
mod taint;
mod turns;
mod untrusted;
mod waiting;
