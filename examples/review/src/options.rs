//! What the command line asks for.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use crate::team::TEAM;

/// How the program is called.
pub(crate) const USAGE: &str = "\
Reviews a source tree (Rust, Python, JavaScript) with a team of supervised agents, offline.

usage: review PATH [options]

  --yes            write the report without asking
  --output FILE    where the report goes [REVIEW.md in the current folder]
  --data DIR       where the findings and the journal are kept, for --resume and for comparing with the next review
                   [a folder for each PATH in ~/.local/state/callboard/review, or in $XDG_STATE_HOME]
  --resume         go on with a review that was interrupted

to see it survive:
  --crash AGENT    the agent panics once; it is restarted and the review goes on
  --kill-at AGENT  the process dies when this agent is at work; --resume goes on from there
  (agents: scout, analyzer, planner, reviewer, writer)";

/// What is to be done, checked as far as it can be before anything starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Absolute, and there.
    pub(crate) root: PathBuf,
    /// Absolute.
    pub(crate) output: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) yes: bool,
    pub(crate) resume: bool,
    pub(crate) crash: Option<String>,
    pub(crate) kill_at: Option<String>,
}

impl Options {
    /// Reads the command line; `None` when it asks for help.
    ///
    /// # Errors
    /// One line that says what is wrong and what to do.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Option<Self>, String> {
        let (mut path, mut output, mut data) = (None, None, None);
        let (mut yes, mut resume, mut crash, mut kill_at) = (false, false, None, None);
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = |option: &str| arguments.next().ok_or(format!("{option} needs a value; see --help"));
            match argument.to_str() {
                Some("-h" | "--help") => return Ok(None),
                Some("--yes" | "-y") => yes = true,
                Some("--resume") => resume = true,
                Some("--output") => output = Some(PathBuf::from(value("--output")?)),
                Some("--data") => data = Some(PathBuf::from(value("--data")?)),
                Some("--crash") => crash = Some(member("--crash", &value("--crash")?)?),
                Some("--kill-at") => kill_at = Some(member("--kill-at", &value("--kill-at")?)?),
                Some(option) if option.starts_with('-') => {
                    return Err(format!("there is no option {option}; see --help"));
                }
                _ if path.is_some() => return Err("there can be one PATH only; see --help".to_owned()),
                _ => path = Some(PathBuf::from(argument)),
            }
        }
        let path = path.ok_or("say which folder to review: review PATH")?;
        let root = folder(&path)?;
        let output = std::path::absolute(output.unwrap_or_else(|| "REVIEW.md".into()))
            .map_err(|error| format!("--output: {error}"))?;
        if output.is_dir() {
            return Err(format!("--output {} is a folder; name a file in it", output.display()));
        }
        if let Some(folder) = output.parent().filter(|folder| !folder.is_dir()) {
            return Err(format!("--output: there is no folder {}; make it, or name another", folder.display()));
        }
        let data = data.unwrap_or_else(|| default_data(&root));
        Ok(Some(Self { root, output, data, yes, resume, crash, kill_at }))
    }
}

fn member(option: &str, name: &OsStr) -> Result<String, String> {
    let known = TEAM.iter().find(|member| name == **member);
    let unknown = || format!("{option}: there is no agent {}; the agents are {}", name.display(), TEAM.join(", "));
    known.map(|name| (*name).to_owned()).ok_or_else(unknown)
}

fn folder(path: &Path) -> Result<PathBuf, String> {
    let shown = path.display();
    let root = path.canonicalize().map_err(|error| format!("{shown} cannot be reviewed: {error}"))?;
    if !root.is_dir() {
        return Err(format!("{shown} is a file; name the folder that it is in"));
    }
    fs::read_dir(&root).map_err(|error| format!("{shown} cannot be read: {error}; check its permissions"))?;
    Ok(root)
}

/// One folder for each tree, where programs keep what should survive a restart but is nobody's document.
fn default_data(root: &Path) -> PathBuf {
    let from = |variable: &str| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = from("XDG_STATE_HOME")
        .or_else(|| from("HOME").map(|home| home.join(".local").join("state")))
        .or_else(|| from("LOCALAPPDATA"))
        .unwrap_or_else(env::temp_dir);
    state.join("callboard").join("review").join(tree_name(root))
}

/// A short name for the tree at this absolute path.
pub(crate) fn tree_name(root: &Path) -> String {
    format!("{:016x}", xxh3_64(root.as_os_str().as_encoded_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Option<Options>, String> {
        Options::parse(arguments.iter().map(OsString::from))
    }

    #[test]
    fn options_may_come_in_any_order() {
        let options = parse(&["--yes", ".", "--crash", "analyzer", "--data", "d"]).unwrap().unwrap();
        assert!(options.yes && options.root.is_absolute() && options.output.ends_with("REVIEW.md"));
        assert_eq!((options.crash.as_deref(), options.data), (Some("analyzer"), PathBuf::from("d")));
        assert_eq!(parse(&["--help"]), Ok(None));
    }

    #[test]
    fn what_is_wrong_is_reported_in_one_line() {
        let cases: [(&[&str], &str); 9] = [
            (&[], "say which folder"),
            (&["/nowhere/at/all"], "/nowhere/at/all cannot be reviewed: No such file"),
            (&["Cargo.toml"], "is a file; name the folder"),
            (&[".", "src"], "one PATH only"),
            (&[".", "--crush"], "there is no option --crush"),
            (&[".", "--crash", "analyser"], "the agents are scout, analyzer"),
            (&[".", "--output"], "--output needs a value"),
            (&[".", "--output", "/nonexist/x.md"], "there is no folder /nonexist; make it"),
            (&[".", "--output", "Cargo.toml/x.md"], "Cargo.toml; make it, or name another"),
        ];
        for (arguments, expected) in cases {
            let error = parse(arguments).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        }
    }
}
