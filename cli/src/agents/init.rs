//! `callboard init`: writes example agents.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use serde_json::json;

use callboard::messages::visible;

use crate::page::{Failure, Page};

use crate::quote::quoted_path;

use super::template::FILES;

/// The commands to run next.
const NEXT: &str = "  callboard check\n  callboard run \"review this repository\" --to coordinator --model fake\n\
                    with a key in OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY, --model names one of its models\n";

/// Writes the files that do not exist yet.
pub(super) fn init(folder: &Path) -> Result<Page, Failure> {
    let cannot = |path: &Path, error: std::io::Error| {
        Failure::file(&error, format!("{}: {error}", visible(&path.display().to_string())))
    };
    let agents = folder.join("agents");
    fs::create_dir_all(&agents).map_err(|error| cannot(&agents, error))?;
    let (mut text, mut written) = (String::new(), Vec::new());
    for (name, content) in FILES {
        let path = if folder == Path::new(".") { PathBuf::from(name) } else { folder.join(name) };
        let shown = visible(&path.display().to_string());
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(content.as_bytes()).map_err(|error| cannot(&path, error))?;
                text.push_str(&format!("wrote {shown}\n"));
                written.push(path.display().to_string());
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                text.push_str(&format!("{shown} exists and was not changed\n"));
            }
            Err(error) => return Err(cannot(&path, error)),
        }
    }
    text.push_str("next:\n");
    if folder != Path::new(".") {
        text.push_str(&format!("  cd {}\n", visible(&quoted_path(folder))));
    }
    text.push_str(NEXT);
    Ok(Page::new(text, json!({ "written": written })))
}
