//! What is wrong with a template.

/// What is wrong with a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong, as a clause without a full stop that people read.
    pub problem: String,
    /// What to do about it, in the same form; `None` if that follows from the problem.
    pub advice: Option<String>,
}

impl Fault {
    /// A fault without advice.
    pub fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), advice: None }
    }

    /// The same fault with advice: what to write in its place.
    #[must_use]
    pub fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }
}
