//! Command lines of this program that are printed to be copied. Each is built here, so that it repeats the store and the options that
//! the person named.

use std::path::Path;

use crate::agents::arguments::Files;
use crate::quote::{quoted, quoted_path};

/// `callboard COMMAND`, in the same store; `store` is `None` for those of the project.
pub(crate) fn command_line(command: &str, store: Option<&Path>) -> String {
    let store = store.map(|store| format!(" --store {}", quoted_path(store)));
    format!("callboard {command}{}", store.unwrap_or_default())
}

/// The option with the limits of a retry.
pub(crate) fn limits_option(limits: Option<&str>) -> String {
    limits.map(|limits| format!(" --limits {}", quoted(limits))).unwrap_or_default()
}

/// The options for agents, their models, tools and folders, without those that were not given or have their defaults.
pub(crate) fn agents_options(files: &Files, model: Option<&str>) -> String {
    let Files { agents, models, mcp, config, root, allow_read, protected: _, found: _, free: _ } = files;
    let root = (root != Path::new(".")).then_some(root);
    let agents = agents.iter().map(|agents| ("--agents", quoted_path(agents)));
    let models = models.iter().map(|models| ("--models", quoted_path(models)));
    let mcp = mcp.iter().map(|mcp| ("--mcp", quoted_path(mcp)));
    let config = config.iter().map(|config| ("--config", quoted_path(config)));
    let root = root.into_iter().map(|root| ("--root", quoted_path(root)));
    let reads = allow_read.iter().map(|folder| ("--allow-read", quoted_path(folder)));
    let model = model.iter().map(|model| ("--model", quoted(model)));
    let all = agents.chain(models).chain(mcp).chain(config).chain(root).chain(reads).chain(model);
    all.map(|(option, value)| format!(" {option} {value}")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::fs;
    use std::path::PathBuf;

    use super::*;

    fn sources(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
    }

    #[test]
    fn no_other_code_writes_a_command_line_that_needs_a_store() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        // What boards of `callboard runs fork` are called.
        let is_a_name = |line: &str| line.contains("const OWNER");
        for file in sources(&folder).iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
            let text = fs::read_to_string(file).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            for line in code.lines().filter(|line| !line.trim_start().starts_with("//") && !is_a_name(line)) {
                for begin in ["callboard run --", "callboard runs ", "callboard workflow ", "callboard conversations "]
                {
                    let rest = line.split(begin).nth(1).unwrap_or_default();
                    let is_command = rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '{');
                    assert!(!is_command, "{}: {line}", file.display());
                }
            }
        }
    }
}
