//! The test kit: what users need to test their own agents, trees and storage backends.

pub mod conformance;
pub mod golden;
mod simulation;

pub use crate::supervision::runs::fork::{Fork, ForkError};
pub use crate::supervision::runs::replay::{
    Aspect, AtTurn, Cause, Deed, Diff, Moment, Replay, ReplayError, Step, TurnDifference, TurnEnd, TurnStory,
};
pub use simulation::{Effects, FaultPlan, Seeds, Sim, TestError, seeds, simulate};
