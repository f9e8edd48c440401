//! Which stores a command uses: those of its option, of the variable, of the file of settings, or of the project.

use std::path::{Path, PathBuf};

use callboard::messages::visible;

use crate::agents::arguments::{DEFAULT_CONFIG, Files};
use crate::config::{self, OfStore};
use crate::page::Failure;
use crate::values::variable;

use super::database::{Given, Origin};
use super::{Choice, Project, Stores, VARIABLE};

impl Choice {
    /// The stores of the option, of the variable, of the project's file of settings, or of the project.
    pub(crate) fn stores(&self) -> Result<Stores, Failure> {
        self.stores_or(|| {
            let named = variable("CALLBOARD_CONFIG").map(PathBuf::from);
            config::store_of(named.as_deref(), Project::here()?.root().join(DEFAULT_CONFIG))
        })
    }

    /// As [`Choice::stores`], with the file of settings that goes with these agents.
    pub(crate) fn stores_with(&self, files: &Files) -> Result<Stores, Failure> {
        self.stores_or(|| config::store_of(files.named_config().as_deref(), files.default_file(DEFAULT_CONFIG)))
    }

    fn stores_or(&self, file: impl FnOnce() -> Result<OfStore, Failure>) -> Result<Stores, Failure> {
        let named = match &self.store {
            Some(given) => Some((given.clone(), Origin::CommandLine)),
            None => variable(VARIABLE).map(|given| (Given::from(given), Origin::Variable)),
        };
        match named {
            Some((Given::Folder(folder), _)) if is_url(&folder) => Err(Failure::usage(format!(
                "the store {} is neither a folder nor the URL of a database: write postgres://USER@HOST/DATABASE, or ./ before the name of \
                 a folder",
                visible(&folder.to_string_lossy())
            ))),
            // What is wrong with the file of settings does not matter to a folder.
            Some((Given::Folder(folder), _)) => Ok(Stores::of_folder(&folder)),
            Some((Given::Url(url), origin)) => Stores::of_url(&url, origin, file()?.project),
            None => match file()? {
                OfStore { url: Some(url), project } => Stores::of_url(&url, Origin::File, project),
                OfStore { url: None, .. } => Ok(Stores::Project(Project::here()?)),
            },
        }
    }
}

/// Whether it begins as a URL does, with a scheme and a slash.
fn is_url(folder: &Path) -> bool {
    let text = folder.to_string_lossy();
    text.split_once(":/").is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_as_a_url_is_no_folder() {
        for (folder, expected) in [
            ("mysql://x/y", true),
            ("postgres:/callboard", true),
            ("file:///tmp/x", true),
            ("./mysql:/x", false),
            ("/var/a:/b", false),
            (":/x", false),
            ("1:/x", false),
            ("a:b/c", false),
        ] {
            assert_eq!(is_url(Path::new(folder)), expected, "{folder}");
        }
    }
}
