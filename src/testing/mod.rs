//! The test kit: what users need to test their own agents, trees, storage backends and channels of approvals.

pub mod channels;
pub mod conformance;
mod gate;
#[cfg(test)]
pub(crate) mod golden;
mod log;
mod picture;
mod probe;
mod recorder;
#[cfg(test)]
pub(crate) mod rules;
mod script;
mod simulation;

pub use self::gate::Gate;
pub use self::probe::Probe;
pub use self::recorder::TreeRecorder;
pub use self::script::{Script, ScriptedTurn};
pub use self::simulation::{Effects, FaultPlan, FaultPoint, Seeds, Sim, Strikes, TestError};
pub use crate::env::later_build::become_later_build;
