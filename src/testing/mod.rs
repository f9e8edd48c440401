//! The test kit: what users need to test their own agents, trees and storage backends.

pub mod conformance;
mod gate;
pub mod golden;
mod kill;
mod log;
mod picture;
mod probe;
mod recorder;
#[cfg(test)]
pub(crate) mod rules;
mod script;
mod simulation;

pub use self::gate::Gate;
pub use self::kill::kill;
pub use self::picture::{HasTree, compare_tree, picture};
pub use self::probe::{Probe, expect_terminated};
pub use self::recorder::TreeRecorder;
pub use self::script::{Script, ScriptedTurn};
pub use self::simulation::{
    Effects, FaultKind, FaultPlan, FaultPoint, Seeds, Sim, Strikes, TestError, fault_points, seeds, simulate,
};
#[doc(inline)]
pub use crate::assert_tree;
