//! A fault of a template.

/// Why a template or an expression does not compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong, as a clause without a full stop that people read.
    pub problem: String,
    /// What to do about it, in the same form; `None` if that follows from the problem.
    pub advice: Option<String>,
}

impl Fault {
    /// Creates a fault without advice, which [`Fault::advise`] can add.
    pub fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), advice: None }
    }

    /// Sets the advice: what to write in its place.
    #[must_use]
    pub fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }
}
