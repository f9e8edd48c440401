//! A supervised actor runtime for systems of agents.

pub mod env;
pub mod messages;
pub mod storage;
pub mod supervision;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
