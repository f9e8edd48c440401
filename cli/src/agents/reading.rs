//! The agents of a folder, and the tools that they may use.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use callboard::agents::tools::{self, Root};
use callboard::agents::{Defects, Definition, DefinitionSource, Models, Tools};
use callboard::env::Env;
use callboard::messages::visible;

use crate::page::{Failure, count};

use super::arguments::Files;

/// No definition is longer than this, in bytes: the rest of a file is not read.
const MAX_TEXT: u64 = 1 << 20;

/// The most files of a folder.
const MAX_FILES: usize = 1_000;

/// The models that agents may choose among: those of the catalog, or of the environment where there is none.
pub(super) fn models(files: &Files) -> Result<Models, Failure> {
    let usual = Path::new("models.toml");
    let file = match &files.models {
        None if !usual.is_file() => return Ok(Models::from_environment(&Env::system())),
        None => usual,
        Some(file) => file,
    };
    let DefinitionSource { origin, bytes } = source(file)?;
    let text = String::from_utf8(bytes)
        .map_err(|error| Failure::trouble(format!("{}: the text is not UTF-8: {error}", visible(&origin))))?;
    Models::from_toml(&Env::system(), &origin, &text)
        .map_err(|defects| Failure::trouble(format!("{}\n\n{defects}", count(defects.list().len(), "defect"))))
}

/// What was read of a folder.
pub(super) struct Read {
    pub(super) sources: Vec<DefinitionSource>,
    pub(super) definitions: Vec<Result<Definition, Defects>>,
    pub(super) tools: Tools,
}

/// Reads the agents of a folder. `hidden` is what no tool may see.
pub(super) fn read(files: &Files, hidden: Option<&Path>) -> Result<Read, Failure> {
    let root = Root::open(&files.root).map_err(|error| Failure::trouble(error.to_string()))?;
    let root = match hidden {
        Some(hidden) => root.without(hidden).map_err(|error| Failure::trouble(error.to_string()))?,
        None => root,
    };
    let tools = tools::standard(&root).map_err(|error| Failure::trouble(error.to_string()))?;
    let sources = sources(&files.agents)?;
    let definitions = Definition::reader().tools(&tools).all(&sources);
    Ok(Read { sources, definitions, tools })
}

fn sources(folder: &Path) -> Result<Vec<DefinitionSource>, Failure> {
    let shown = visible(&folder.display().to_string());
    let cannot = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            Failure::trouble(format!("there is no folder {shown}; `callboard init` writes one, --agents names another"))
        }
        _ => Failure::trouble(format!("{shown}: {error}")),
    };
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in folder.read_dir().map_err(cannot)? {
        let file = entry.map_err(cannot)?.path();
        if file.extension().is_some_and(|extension| extension == "toml") && file.is_file() {
            files.push(file);
        }
        if files.len() > MAX_FILES {
            return Err(Failure::trouble(format!("{shown} has more than {MAX_FILES} agents")));
        }
    }
    if files.is_empty() {
        return Err(Failure::trouble(format!(
            "{shown} has no agents: each is a file *.toml; `callboard init` writes some"
        )));
    }
    files.sort();
    files.iter().map(|file| source(file)).collect()
}

fn source(file: &Path) -> Result<DefinitionSource, Failure> {
    let cannot = |error: std::io::Error| Failure::trouble(format!("{}: {error}", visible(&file.display().to_string())));
    let mut bytes = Vec::new();
    File::open(file).and_then(|opened| opened.take(MAX_TEXT + 1).read_to_end(&mut bytes)).map_err(cannot)?;
    Ok(DefinitionSource { origin: file.display().to_string(), bytes })
}
