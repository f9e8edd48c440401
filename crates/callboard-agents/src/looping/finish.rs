//! The result of a loop.

use std::sync::Arc;

use callboard::messages::{Command, Json, LoopEnd};

/// The result of a loop.
#[derive(Debug, PartialEq)]
pub(super) enum Finish {
    Answered(Json),
    HandedOff(Box<Command>),
    IterationLimit,
    Failed(Arc<str>),
}

impl Finish {
    pub(super) fn end(&self) -> LoopEnd {
        match self {
            Self::Answered(_) => LoopEnd::Answered,
            Self::HandedOff(_) => LoopEnd::HandedOff,
            Self::IterationLimit => LoopEnd::IterationLimit,
            Self::Failed(why) => LoopEnd::Failed(Arc::clone(why)),
        }
    }
}
