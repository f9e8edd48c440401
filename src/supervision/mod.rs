//! Supervision: the generic tree and the run supervisors.

pub mod runs;
pub mod tree;
