//! Where a secret of a channel is: in a file, or in a variable of the environment.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use callboard::messages::visible;
use callboard_documents::toml::{Fields, text};
use callboard_documents::{Defect, Found, Place};

use super::values::place_in;
use crate::exit::Exit;
use crate::page::{Failure, shown_path};
use crate::values::{reason, text_of_file, variable};

/// Where a secret is, and where the settings name it.
#[derive(Debug)]
pub(crate) struct SecretSource {
    holder: Holder,
    /// The keys of the file and of the variable.
    keys: [&'static str; 2],
    place: Place,
    /// The file of settings with line and column, as errors begin.
    at: String,
}

#[derive(Debug)]
enum Holder {
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

/// Why a file or a variable that the settings name cannot be used.
#[derive(Debug)]
pub(crate) struct Unusable {
    pub(super) defect: Defect,
    /// The file of settings with line and column, as errors begin; empty if an option or a variable names what cannot be used.
    pub(super) at: Box<str>,
    pub(super) exit: Exit,
    /// The variable that is not set, if that is why: it may be set where the server runs.
    pub(crate) unset: Option<Box<str>>,
}

impl Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { at, defect, .. } = self;
        write!(f, "{at}{}", defect.problem)?;
        defect.advice.iter().try_for_each(|advice| write!(f, "; {advice}"))
    }
}

impl From<Unusable> for Failure {
    fn from(unusable: Unusable) -> Self {
        Self::new(unusable.exit, unusable.to_string())
    }
}

impl SecretSource {
    /// Relative paths are those of `folder`.
    pub(super) fn read(fields: &mut Fields<'_>, keys: &SecretKeys, folder: &Path, found: &mut Found) -> Option<Self> {
        let names = [keys.file, keys.variable];
        let [file, variable] = names.map(|key| fields.field(key).and_then(|field| text(field, found)));
        let is_named_twice = file.is_some() && variable.is_some();
        let file = file.map(|file| (Holder::File(folder.join(file.value)), file.place));
        let named = file.or(variable.map(|name| (Holder::Variable(name.value), name.place)));
        let Some((holder, place)) = named.filter(|_| !is_named_twice) else {
            let SecretKeys { what, file, variable, owner, example } = keys;
            let problem = if is_named_twice {
                format!("{what} is in one place: `{file}` or `{variable}`")
            } else {
                format!("{owner} needs `{file}` or `{variable}`")
            };
            found.add(Defect::new(&Some(fields.place.clone()), problem).advise(*example));
            return None;
        };
        Some(Self { holder, keys: names, place, at: String::new() })
    }

    /// Keeps where it is named, for errors of later.
    pub(super) fn locate(&mut self, origin: &str, text: &str) {
        self.at = place_in(origin, text, &self.place);
    }

    /// The file, if it is in one.
    pub(crate) fn file(&self) -> Option<&Path> {
        match &self.holder {
            Holder::File(path) => Some(path),
            Holder::Variable(_) => None,
        }
    }

    /// The secret that `parse` makes of its text. `what` names it.
    ///
    /// # Errors
    /// There is none, or `parse` takes it not.
    pub(super) fn secret<T, E: Display>(
        &self,
        what: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, Unusable> {
        let (text, place) = self.text(what)?;
        // What is there is not shown: it may be most of a secret.
        parse(&text).map_err(|error| {
            let [file, variable] = self.keys;
            let advice = format!("put it there, or name another place with `{file}` or `{variable}`");
            self.unusable(format!("{place}: {error}"), advice)
        })
    }

    /// Checks what [`SecretSource::secret`] returns, and that tools of agents, which work in `root`, cannot read it.
    ///
    /// # Errors
    /// A server would refuse it.
    pub(super) fn check<T, E: Display>(
        &self,
        what: &str,
        root: &Path,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<(), Unusable> {
        self.check_outside(what, root)?;
        self.secret(what, parse).map(drop)
    }

    /// # Errors
    /// Tools of agents could read its file, because it is in this folder.
    pub(crate) fn check_outside(&self, what: &str, root: &Path) -> Result<(), Unusable> {
        let Some(file) = self.file().filter(|file| is_within(file, root)) else { return Ok(()) };
        let problem = format!(
            "{what}, {}, is in the folder that tools of agents work in, so they could read it",
            shown_path(file)
        );
        Err(Unusable { exit: Exit::Denied, ..self.unusable(problem, MOVE_AWAY.to_owned()) })
    }

    /// The text of the secret, and where it is, as a person reads it.
    ///
    /// # Errors
    /// There is none.
    fn text(&self, what: &str) -> Result<(String, String), Unusable> {
        let [of_file, of_variable] = self.keys;
        match &self.holder {
            Holder::File(path) => match text_of_file(path) {
                Ok(text) => Ok((text, shown_path(path))),
                Err(error) => {
                    let problem = format!("{what}: {}: {}", shown_path(path), reason(&error));
                    let advice = format!("put it there, or name another place with `{of_file}` or `{of_variable}`");
                    Err(Unusable { exit: Exit::of_file(&error), ..self.unusable(problem, advice) })
                }
            },
            Holder::Variable(name) => {
                let shown = visible(name);
                let value = variable(name).ok_or_else(|| {
                    let problem = format!("{what}: the variable {shown} of callboard.toml is not set");
                    let advice = format!("set it where `callboard serve` is started, or write `{of_file}`");
                    Unusable { unset: Some(name.as_str().into()), ..self.unusable(problem, advice) }
                })?;
                Ok((value.to_string_lossy().into_owned(), format!("the variable {shown}")))
            }
        }
    }

    fn unusable(&self, problem: String, advice: String) -> Unusable {
        let defect = Defect::new(&self.place, problem).advise(advice);
        Unusable { defect, at: self.at.as_str().into(), exit: Exit::Usage, unset: None }
    }
}

/// What to do with a file that tools of agents could read.
pub(crate) const MOVE_AWAY: &str = "move it elsewhere, or name another folder with --root";

/// Whether a file is in this folder, also by a link.
pub(crate) fn is_within(file: &Path, folder: &Path) -> bool {
    let place = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    place(file).starts_with(place(folder))
}
