//! The check of channels in a build without JSON Schemas: a plan that has schemas is refused.

use std::sync::Arc;

use callboard_documents::template::Fault;
use callboard_text::quoted;

use crate::messages::{Plan, State};

/// The schemas of a plan's channels: none.
#[derive(Debug, Default)]
pub(crate) struct Checks;

impl Checks {
    /// A fault for each channel that has a schema.
    pub(super) fn of(plan: &Plan) -> (Self, Vec<(Arc<str>, Fault)>) {
        let fault = |channel: &Arc<str>| {
            let problem = format!("the schema of {} cannot be used: this build has no JSON Schemas", quoted(channel));
            (Arc::clone(channel), Fault::new(problem).advise("build callboard with its feature `schemas`"))
        };
        (Self, plan.checks.keys().map(fault).collect())
    }

    /// Always.
    pub(crate) fn is_empty(&self) -> bool {
        true
    }

    /// Finds no defect.
    ///
    /// # Errors
    /// None.
    pub(crate) fn check<'a>(&self, _state: &State, _written: impl Iterator<Item = &'a str>) -> Result<(), String> {
        Ok(())
    }
}
