//! Workflows from files, folders and the command line.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use callboard::messages::visible;
use callboard::workflow::{Defects, Form, Source, Workflow};

use crate::page::Failure;
use crate::values::open_file;

/// No workflow is longer than this, in bytes: the rest of a file is not read.
const MAX_TEXT: u64 = 1 << 20;

/// How much is read of the texts beside those that are named, in bytes.
const MAX_BESIDE: usize = 8 << 20;

/// The texts that the command line names, in its order; those of a folder in the order of their names.
pub(crate) fn texts(files: &[PathBuf], line: Option<&str>) -> Result<Vec<Source>, Failure> {
    let mut texts = Vec::new();
    for file in files {
        if file.as_os_str() == "-" {
            texts.push(Source {
                origin: "standard input".to_owned(),
                bytes: read(std::io::stdin(), file)?,
                form: Form::Line,
            });
        } else if file.is_dir() {
            let found = workflows_in(file)?;
            if found.is_empty() {
                return Err(Failure::trouble(format!("{}: the folder has no *.toml and no *.flow", shown(file))));
            }
            for file in found {
                texts.push(text(&file)?);
            }
        } else {
            texts.push(text(file)?);
        }
    }
    texts.extend(line.map(|line| Source {
        origin: "--line".to_owned(),
        bytes: line.as_bytes().to_vec(),
        form: Form::Line,
    }));
    Ok(texts)
}

/// The workflows of these texts. What they name is looked for among them, and then in the files beside them.
pub(crate) fn workflows(files: &[PathBuf], texts: &[Source]) -> Vec<Result<Workflow, Defects>> {
    let (own, named): (BTreeSet<String>, Vec<Vec<String>>) = texts.iter().filter_map(Source::names).unzip();
    let mut wanted: BTreeSet<String> = named.into_iter().flatten().filter(|name| !own.contains(name)).collect();
    // Those that are asked for come first: they keep their names.
    let mut all = texts.to_vec();
    let mut beside = if wanted.is_empty() { Vec::new() } else { neighbours(files, texts) };
    while let Some(found) = beside.iter().position(|(name, ..)| wanted.remove(name)) {
        let (_, named, source) = beside.remove(found);
        wanted.extend(named.into_iter().filter(|name| !own.contains(name)));
        all.push(source);
    }
    let mut read = Workflow::reader().all(&all);
    read.truncate(texts.len());
    read
}

/// The texts beside these files, with their names and those that they run. One that cannot be read is none; nor are those
/// beyond a bound.
fn neighbours(files: &[PathBuf], texts: &[Source]) -> Vec<(String, Vec<String>, Source)> {
    let folders: BTreeSet<&Path> = files.iter().filter_map(|file| file.parent()).collect();
    let found = folders.into_iter().filter_map(|folder| workflows_in(folder).ok()).flatten();
    let is_new = |source: &Source| texts.iter().all(|text| text.origin != source.origin);
    let mut left = MAX_BESIDE;
    let mut has_room = |source: &Source| {
        let room = left.checked_sub(source.bytes.len());
        left = room.unwrap_or(left);
        room.is_some()
    };
    let read = found.filter_map(|file| text(&file).ok()).filter(|source| is_new(source) && has_room(source));
    read.filter_map(|source| source.names().map(|(name, named)| (name, named, source))).collect()
}

fn text(file: &Path) -> Result<Source, Failure> {
    let form = form(file).ok_or_else(|| {
        Failure::trouble(format!(
            "{}: a workflow is in a file *.toml, or in the one-line syntax in a file *.flow",
            shown(file)
        ))
    })?;
    let opened = open_file(file).map_err(|error| Failure::trouble(format!("{}: {error}", shown(file))))?;
    Ok(Source { origin: file.display().to_string(), bytes: read(opened, file)?, form })
}

fn read(from: impl std::io::Read, file: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = from.take(MAX_TEXT + 1).read_to_end(&mut bytes);
    read.map_err(|error| Failure::trouble(format!("{}: {error}", shown(file))))?;
    Ok(bytes)
}

fn form(file: &Path) -> Option<Form> {
    match file.extension()?.to_str()? {
        "toml" => Some(Form::Toml),
        "flow" => Some(Form::Line),
        _ => None,
    }
}

fn workflows_in(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    // The folder of a bare file name.
    let listed = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let trouble = |error: std::io::Error| Failure::trouble(format!("{}: {error}", shown(folder)));
    let mut files = Vec::new();
    for entry in listed.read_dir().map_err(trouble)? {
        let file = folder.join(entry.map_err(trouble)?.file_name());
        if form(&file).is_some() && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn shown(file: &Path) -> String {
    visible(&file.display().to_string())
}
