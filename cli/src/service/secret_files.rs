//! Files with secrets of channels, which tools and programs of agents may not read.

use std::path::Path;

use callboard_agents::hide_from_programs;

use crate::config::secret_source::SecretSource;
use crate::page::Failure;

/// Hides the file of a secret from programs of agents. `what` names the secret.
///
/// # Errors
/// Tools of agents could read it, because it is in this folder.
pub(super) fn hide(secret: &SecretSource, what: &str, root: &Path) -> Result<(), Failure> {
    secret.check_outside(what, root)?;
    let place = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    secret.file().into_iter().for_each(|file| hide_from_programs(place(file)));
    Ok(())
}
