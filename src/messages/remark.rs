//! The remarks of people who decide: their names and their reasons.

use super::OverLimit;

/// The longest name of a person or a service, in characters.
pub(crate) const MAX_PERSON: usize = 128;

/// The longest reason, in characters.
pub(crate) const MAX_REASON: usize = 4_096;

/// Checks the name of a person.
pub(crate) fn check_person(by: &str) -> Result<(), OverLimit> {
    check("the name of who decides", by, MAX_PERSON, "name a person or a service")
}

/// Checks a reason.
pub(crate) fn check_reason(reason: &str) -> Result<(), OverLimit> {
    check("the reason", reason, MAX_REASON, "say it in short, and where the rest is")
}

/// Checks what a task refers to.
pub(crate) fn check_reference(reference: &str) -> Result<(), OverLimit> {
    check("the reference", reference, MAX_REASON, "name the place, and not what is there")
}

fn check(what: &'static str, text: &str, max: usize, advice: &'static str) -> Result<(), OverLimit> {
    let length = text.chars().count();
    if length <= max { Ok(()) } else { Err(OverLimit::Length { what, length, max, advice }) }
}
