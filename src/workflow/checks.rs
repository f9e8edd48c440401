//! JSON Schemas of channels: what a channel holds after a write of a node must meet them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jsonschema::{PatternOptions, Validator};

use crate::messages::visible::{cut, quoted};
use crate::messages::{Json, Plan, State};

use super::template::Fault;

/// The schemas of a plan's channels, made ready.
#[derive(Default)]
pub(crate) struct Checks(BTreeMap<Arc<str>, Validator>);

impl Checks {
    /// Makes the schemas of a plan ready; those that cannot be are told with their channels.
    pub(super) fn of(plan: &Plan) -> (Self, Vec<(Arc<str>, Fault)>) {
        let (mut checks, mut faults) = (BTreeMap::new(), Vec::new());
        for (channel, schema) in &plan.checks {
            // Patterns take time that is linear in the text, and nothing is fetched.
            let options = jsonschema::options().with_pattern_options(PatternOptions::regex());
            match options.build(schema.value()) {
                Ok(validator) => drop(checks.insert(Arc::clone(channel), validator)),
                Err(error) => {
                    let problem =
                        format!("the schema of {} cannot be used: {}", quoted(channel), cut(&error.to_string()));
                    faults.push((Arc::clone(channel), Fault::new(problem)));
                }
            }
        }
        (Self(checks), faults)
    }

    /// Looks at the channels that were written.
    ///
    /// # Errors
    /// What a channel holds now does not meet its schema.
    pub(crate) fn check<'a>(&self, state: &State, written: impl Iterator<Item = &'a str>) -> Result<(), String> {
        for channel in written {
            let Some(validator) = self.0.get(channel) else { continue };
            let held = state.get(channel).unwrap_or_default();
            if let Err(error) = validator.validate(Json::value(&held)) {
                let place = error.instance_path().to_string();
                let place = if place.is_empty() { String::new() } else { format!(" at {}", cut(&place)) };
                let problem = cut(&error.to_string());
                return Err(format!("channel {} does not meet its schema{place}: {problem}", quoted(channel)));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
