//! `callboard.toml`: the settings of a project (docs/configuration.md). Each section is read by a module of its own, which takes its table.
//!
//! A setting has the value of its option, else of its variable, else of the file, else its default.

pub(crate) mod serve;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use callboard::messages::visible;
use callboard_agents::Roles;
use callboard_documents::toml::{self, DeTable, Fields};
use callboard_documents::{Defects, Found};

use crate::agents::arguments::{DEFAULT_CONFIG, Files};
use crate::agents::read::{Invalid, document};
use crate::agents::trust::User;
use crate::exit::Exit;
use crate::page::{Failure, shown_path};
use crate::quote::quoted_path;

/// The variable that names the file, unless `--config` does.
const VARIABLE: &str = "CALLBOARD_CONFIG";

/// The settings of a file.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// The path of the file, if there is one.
    pub(crate) file: Option<String>,
    pub(crate) serve: serve::Section,
    /// The roles of agents: those that are built in, and those below `roles`.
    pub(crate) roles: Roles,
}

/// The file that was named.
pub(crate) fn named(files: &Files) -> Option<PathBuf> {
    files.config.clone().or_else(|| variable(VARIABLE).map(PathBuf::from))
}

/// Reads the file that was named, or that of the project; without one nothing is set.
///
/// # Errors
/// It is no file that may be read, or another user may have changed that of the project; the inner error is that it has defects.
pub(crate) fn read(files: &Files) -> Result<Result<Config, Invalid>, Failure> {
    let named = named(files);
    // One that somebody makes from now on is not used.
    let default = Some(files.default_file(DEFAULT_CONFIG)).filter(|file| file.symlink_metadata().is_ok());
    if let Some(default) = default.as_ref().filter(|_| named.is_none() && files.agents.is_none()) {
        check_trusted(default)?;
    }
    let Some((origin, text)) = document(named.as_deref(), default)? else { return Ok(Ok(Config::default())) };
    let mut found = Found::default();
    let read = toml::read(&text, "remove what is not a setting", &mut found, |document, found| {
        sections(document, Path::new(&origin).parent().unwrap_or(Path::new("")), found)
    });
    Ok(match found.or(read) {
        Ok(config) => Ok(Config { file: Some(origin), ..config }),
        Err(list) => Err(Invalid { defects: Defects::of(&origin, Some(&text), list), origin }),
    })
}

/// Relative paths are those of `folder`.
fn sections(document: &DeTable<'_>, folder: &Path, found: &mut Found) -> Config {
    let mut fields = Fields::document("the configuration", document);
    let serve = fields.get("serve").and_then(|item| serve::Section::read(item, folder, found)).unwrap_or_default();
    let roles = fields.get("roles").map(|item| Roles::from_item(item, found)).unwrap_or_default();
    fields.close(found);
    Config { file: None, serve, roles }
}

/// # Errors
/// Another user may have changed the file of the project, or a folder on the way to it.
fn check_trusted(file: &Path) -> Result<(), Failure> {
    let user = User::current();
    let Some(untrusted) = std::path::absolute(file).ok().and_then(|path| user.untrusted(&path)) else { return Ok(()) };
    let text = format!(
        "{} is not used: another user may have changed {} ({}); to use it: --config {}",
        shown_path(file),
        shown_path(&untrusted),
        user.reason(&untrusted),
        visible(&quoted_path(file))
    );
    Err(Failure::new(Exit::Denied, text))
}

/// What a variable of the environment is set to; an empty one is not set.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The value of an option, else of a variable, else of the file.
///
/// # Errors
/// The variable has a text that is none of its values.
fn chosen<T>(
    option: Option<T>,
    name: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
    file: Option<T>,
) -> Result<Option<T>, Failure> {
    let Some(text) = variable(name).filter(|_| option.is_none()) else { return Ok(option.or(file)) };
    let text = text.to_string_lossy();
    let value = parse(&text).map_err(|problem| Failure::usage(visible(&format!("{name} is {text:?}: {problem}"))))?;
    Ok(Some(value))
}
