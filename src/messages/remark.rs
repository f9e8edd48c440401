//! The remarks of people who decide: their names and their reasons.

/// The longest name of a person or a service, in characters.
pub(crate) const MAX_PERSON: usize = 128;

/// The longest reason, in characters.
pub(crate) const MAX_REASON: usize = 4_096;

/// A name or a reason that is too long to be shown to others. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} has {length} characters; at most {max} are allowed; {advice}")]
pub struct TooLong {
    /// What is too long.
    pub what: &'static str,
    /// How many characters it has.
    pub length: usize,
    /// How many it may have.
    pub max: usize,
    advice: &'static str,
}

/// Checks the name of a person.
pub(crate) fn check_person(by: &str) -> Result<(), TooLong> {
    check("the name of who decides", by, MAX_PERSON, "name a person or a service")
}

/// Checks a reason.
pub(crate) fn check_reason(reason: &str) -> Result<(), TooLong> {
    check("the reason", reason, MAX_REASON, "say it in short, and where the rest is")
}

fn check(what: &'static str, text: &str, max: usize, advice: &'static str) -> Result<(), TooLong> {
    let length = text.chars().count();
    if length <= max { Ok(()) } else { Err(TooLong { what, length, max, advice }) }
}
