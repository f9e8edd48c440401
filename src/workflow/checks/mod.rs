//! JSON Schemas of channels: the value of a channel after a node's write must match them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use callboard_documents::schema::{self, MAX_PATTERNS, Validator};
use callboard_documents::template::Fault;
use callboard_text::quoted;

use crate::messages::{Json, Plan, State};

/// The compiled schemas of a plan's channels.
#[derive(Default)]
pub(crate) struct Checks(BTreeMap<Arc<str>, Validator>);

impl Checks {
    /// Compiles the schemas of a plan; those that cannot be compiled are returned with their channels.
    pub(super) fn of(plan: &Plan) -> (Self, Vec<(Arc<str>, Fault)>) {
        let (mut checks, mut faults) = (BTreeMap::new(), Vec::new());
        let mut patterns = 0;
        for (channel, declared) in &plan.checks {
            patterns += schema::patterns_in(declared.value());
            let built = if patterns > MAX_PATTERNS {
                Err(format!("the schemas of the channels have more than {MAX_PATTERNS} patterns"))
            } else {
                schema::ready(declared.value())
            };
            match built {
                Ok(validator) => drop(checks.insert(Arc::clone(channel), validator)),
                Err(problem) => {
                    let problem = format!("the schema of {} cannot be used: {problem}", quoted(channel));
                    faults.push((Arc::clone(channel), Fault::new(problem)));
                }
            }
        }
        (Self(checks), faults)
    }

    /// Whether no channel has a schema.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Validates the channels with these writes.
    ///
    /// # Errors
    /// The value of a channel does not match its schema.
    pub(crate) fn check<'a>(&self, state: &State, written: impl Iterator<Item = &'a str>) -> Result<(), String> {
        for channel in written {
            let Some(validator) = self.0.get(channel) else { continue };
            let held = state.get(channel).unwrap_or_default();
            schema::check(validator, Json::value(&held))
                .map_err(|problem| format!("channel {} does not meet its schema{problem}", quoted(channel)))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
