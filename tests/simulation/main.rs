//! Simulations, faults by plan, random inputs, and the kit that users test their own agents with.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../campaigns/mod.rs"]
mod campaigns;
#[path = "../common/mod.rs"]
mod common;
mod fault_plans;
mod fuzz;
mod schedules;
mod seeds;
mod test_kit;
