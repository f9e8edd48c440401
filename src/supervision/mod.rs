//! Supervision: the generic tree and the run supervisors.

pub mod tree;
