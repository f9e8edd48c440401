//! The rules for names in definitions.

use callboard::messages::AgentName;
use callboard_documents::{Defect, Found, Placed};
use callboard_text::{check_name, check_own_name, look_alike, quoted};

/// A name that follows the rule for names.
pub(super) fn checked(kind: &'static str, name: Placed<String>, found: &mut Found) -> Option<Placed<String>> {
    let max = match kind {
        "project" => 128,
        "namespace" => 64,
        _ => AgentName::MAX,
    };
    let check = if kind == "agent" { check_own_name } else { check_name };
    match check(kind, &name.value, max) {
        Ok(()) => Some(name),
        Err(error) => {
            found.add(Defect::new(&name.place, error.to_string()));
            None
        }
    }
}

/// The defect of a name that people would confuse with one of these. An ASCII name is never reported: its look-alike is.
pub(crate) fn name_alike<'a>(name: &AgentName, others: impl Iterator<Item = &'a AgentName>) -> Option<Defect> {
    let name = name.as_str();
    if name.is_ascii() {
        return None;
    }
    let other = look_alike(name, others.map(AgentName::as_str))?;
    let problem = format!("the name {} looks like that of the agent {}", quoted(name), quoted(other));
    Some(Defect::new(&None, problem).advise("give one of them another name"))
}
