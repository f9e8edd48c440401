//! What is wrong with a template.

/// What is wrong with a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong.
    pub problem: String,
    /// What to do.
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
