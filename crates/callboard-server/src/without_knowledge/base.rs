//! The base of a server without the feature.

/// There is none.
#[derive(Clone)]
pub(crate) enum Facts {}
