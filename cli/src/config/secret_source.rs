//! Where a secret of a channel is: in a file, or in a variable of the environment.

use std::fs;
use std::path::{Path, PathBuf};

use callboard_documents::toml::{Fields, text};
use callboard_documents::{Defect, Found};

use crate::page::{Failure, shown_path};
use crate::values::variable;

/// Where a secret is.
#[derive(Debug)]
pub(crate) enum SecretSource {
    File(PathBuf),
    /// The variable of this name.
    Variable(String),
}

/// How a section names its secret.
pub(super) struct SecretKeys {
    /// What the secret is, in words.
    pub(super) what: String,
    /// The keys of the file and of the variable.
    pub(super) file: &'static str,
    pub(super) variable: &'static str,
    /// What needs it, in words.
    pub(super) owner: String,
    pub(super) example: &'static str,
}

impl SecretSource {
    /// Relative paths are those of `folder`.
    pub(super) fn read(fields: &mut Fields<'_>, keys: &SecretKeys, folder: &Path, found: &mut Found) -> Option<Self> {
        let file = fields.field(keys.file).and_then(|field| text(field, found)).map(|file| folder.join(file.value));
        let variable = fields.field(keys.variable).and_then(|field| text(field, found)).map(|name| name.value);
        let is_named_twice = file.is_some() && variable.is_some();
        let source = file.map(Self::File).or(variable.map(Self::Variable)).filter(|_| !is_named_twice);
        if source.is_none() {
            let SecretKeys { what, file, variable, owner, example } = keys;
            let problem = if is_named_twice {
                format!("{what} is in one place: `{file}` or `{variable}`")
            } else {
                format!("{owner} needs `{file}` or `{variable}`")
            };
            found.add(Defect::new(&Some(fields.place.clone()), problem).advise(*example));
        }
        source
    }

    /// The text of the secret, and where it is, as a person reads it.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn text(&self, what: &str) -> Result<(String, String), Failure> {
        match self {
            Self::File(path) => {
                let text = fs::read_to_string(path);
                let text =
                    text.map_err(|error| Failure::file(&error, format!("{what}: {}: {error}", shown_path(path))))?;
                Ok((text, shown_path(path)))
            }
            Self::Variable(name) => {
                let value = variable(name).ok_or_else(|| {
                    Failure::usage(format!("{what}: the variable {name} of callboard.toml is not set"))
                })?;
                Ok((value.to_string_lossy().into_owned(), format!("the variable {name}")))
            }
        }
    }
}
