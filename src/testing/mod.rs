//! The test kit: what users need to test their own agents, trees and storage backends.

pub mod conformance;
pub mod golden;
mod simulation;

pub use crate::supervision::runs::replay::{
    AtTurn, Cause, Deed, Moment, Replay, ReplayError, Step, TurnEnd, TurnStory,
};
pub use simulation::{Effects, FaultPlan, Seeds, Sim, TestError, seeds, simulate};
