//! A statement that may become a fact, checked, and the forms by which it is compared.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::FactId;
use crate::words::normalised;

/// The most bytes of a statement.
pub const MAX_STATEMENT: usize = 4 << 10;

/// The most bytes of a subject, predicate or value.
pub const MAX_PART: usize = 512;

/// What a fact is about, in three parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Triple {
    /// What the fact is about.
    pub subject: String,
    /// Which property of it.
    pub predicate: String,
    /// What the property is.
    pub value: String,
}

/// Why a text cannot become a fact.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FactError {
    /// Nothing is left of it without spaces and punctuation.
    #[error("{part} is empty; write it in words")]
    Empty {
        /// Which text.
        part: &'static str,
    },
    /// It is too long.
    #[error(
        "{part} has {bytes} bytes; at most {most} are allowed: submit several facts, or a document with `callboard kb init`"
    )]
    TooLong {
        /// Which text.
        part: &'static str,
        /// Its bytes.
        bytes: usize,
        /// How many are allowed.
        most: usize,
    },
    /// What a history is to keep of a change is too long.
    #[error("{part} has {bytes} bytes; at most {most} are allowed")]
    LongChange {
        /// Which text.
        part: &'static str,
        /// Its bytes.
        bytes: usize,
        /// How many are allowed.
        most: usize,
    },
    /// Not all three of them were given.
    #[error(
        "subject, predicate and value belong together, and a predicate with one value needs all three: give all or none"
    )]
    PartOfTriple,
    /// It has a control character.
    #[error("{part} has the control character U+{code:04X} at byte {at}; remove it")]
    Control {
        /// Which text.
        part: &'static str,
        /// The character.
        code: u32,
        /// Where it is.
        at: usize,
    },
}

/// A statement that may become a fact, with the forms by which it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    text: String,
    triple: Option<Triple>,
    form: String,
    triple_form: Option<Triple>,
}

impl Statement {
    /// Checks a statement.
    ///
    /// # Errors
    /// It is empty or too long, or has control characters.
    pub fn new(text: &str, triple: Option<Triple>) -> Result<Self, FactError> {
        let form = checked("the statement", text, MAX_STATEMENT)?;
        let triple_form = match &triple {
            None => None,
            Some(Triple { subject, predicate, value }) => Some(Triple {
                subject: checked("the subject", subject, MAX_PART)?,
                predicate: predicate_form(predicate)?,
                value: checked("the value", value, MAX_PART)?,
            }),
        };
        Ok(Self { text: text.trim().to_owned(), triple, form, triple_form })
    }

    /// What is known, as it was written, without spaces around it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its three parts, as they were written.
    #[must_use]
    pub fn triple(&self) -> Option<&Triple> {
        self.triple.as_ref()
    }

    /// The form by which statements are compared.
    #[must_use]
    pub fn form(&self) -> &str {
        &self.form
    }

    /// The form by which triples are compared.
    #[must_use]
    pub fn triple_form(&self) -> Option<&Triple> {
        self.triple_form.as_ref()
    }

    /// The id of the fact that it becomes, unless the base has the same fact in other words.
    #[must_use]
    pub fn id(&self, namespace: &str) -> FactId {
        let mut hash = Sha256::new();
        // Lengths keep two pairs apart whose texts join to the same one.
        hash.update((namespace.len() as u64).to_le_bytes());
        hash.update(namespace);
        hash.update(&self.form);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        FactId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }
}

/// The form by which a predicate is compared.
pub(crate) fn predicate_form(text: &str) -> Result<String, FactError> {
    checked("the predicate", text, MAX_PART)
}

/// Its normal form.
fn checked(part: &'static str, text: &str, most: usize) -> Result<String, FactError> {
    if text.len() > most {
        return Err(FactError::TooLong { part, bytes: text.len(), most });
    }
    if let Some((at, c)) = text.char_indices().find(|(_, c)| c.is_control() && !matches!(c, '\n' | '\t' | '\r')) {
        return Err(FactError::Control { part, code: c.into(), at });
    }
    let form = normalised(text);
    if form.is_empty() { Err(FactError::Empty { part }) } else { Ok(form) }
}
