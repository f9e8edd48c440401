//! What takes the decisions of a server without the feature: nothing.

pub(crate) type Receiver = ();
