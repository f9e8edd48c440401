//! Files with secrets of channels, which tools and programs of agents may not read.

use std::path::Path;

use callboard_agents::hide_from_programs;

use crate::config::secret_source::SecretSource;
use crate::exit::Exit;
use crate::page::{Failure, shown_path};

/// Hides the file of a secret from programs of agents. `what` names the secret.
///
/// # Errors
/// Tools of agents could read it, because it is in this folder.
pub(super) fn hide(secret: &SecretSource, what: &str, root: &Path) -> Result<(), Failure> {
    let SecretSource::File(file) = secret else { return Ok(()) };
    let place = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if place(file).starts_with(place(root)) {
        let text = format!(
            "{what}, {}, is in the folder that tools of agents work in, so they could read it: move it elsewhere, or name another folder \
             with --root",
            shown_path(file)
        );
        return Err(Failure::new(Exit::Denied, text));
    }
    hide_from_programs(place(file));
    Ok(())
}
