//! Reads workflows from files, folders and the command line.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use callboard::messages::visible;
use callboard::workflow::{Defect, Defects, Form, Source, Workflow};
use callboard_agents::DefinitionSource;

use crate::page::{Failure, note, shown_path};
use crate::values::open_file;

/// The longest workflow, in bytes; the rest of a file is not read, so that it has a defect.
const MAX_TEXT: u64 = 1 << 20;

/// How much is read of the files beside those that are named, in bytes.
const MAX_BESIDE: usize = 8 << 20;

/// The workflows that the command line names.
pub(crate) struct Texts {
    /// In the order of the command line; those of a folder in the order of their names.
    pub(crate) read: Vec<Source>,
    /// Entries of a folder with the name of a workflow that are not read.
    pub(crate) left_out: Vec<LeftOut>,
}

/// An entry of a folder that is not a regular file, or a link to nothing or out of the folder. It is not read, as in a folder of agents.
pub(crate) struct LeftOut {
    pub(crate) origin: String,
    pub(crate) why: String,
}

impl LeftOut {
    /// Prints a warning.
    pub(crate) fn warn(&self) {
        note(&format!("warning: the workflow of {} is left out: {}", visible(&self.origin), visible(&self.why)));
    }

    /// The reason as defects, for `check`.
    pub(crate) fn defects(&self) -> Defects {
        let defect = Defect { problem: self.why.clone(), advice: None, place: None };
        Defects::of(&self.origin, None, vec![defect])
    }
}

/// As [`texts`]; prints a warning for each entry that is left out.
pub(crate) fn texts_or_warn(files: &[PathBuf], line: Option<&str>) -> Result<Vec<Source>, Failure> {
    let Texts { read, left_out } = texts(files, line)?;
    left_out.iter().for_each(LeftOut::warn);
    Ok(read)
}

/// Reads the workflows that the command line names.
pub(crate) fn texts(files: &[PathBuf], line: Option<&str>) -> Result<Texts, Failure> {
    let (mut texts, mut left_out) = (Vec::new(), Vec::new());
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
                return Err(Failure::usage(format!("{}: the folder has no *.toml and no *.flow", shown_path(file))));
            }
            for (file, form) in found {
                match text_in_folder(&file, form) {
                    Ok(text) => texts.push(text),
                    Err(unread) => left_out.push(unread),
                }
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
    Ok(Texts { read: texts, left_out })
}

/// Parses these workflows. Those that they refer to are searched for among them, and then in the files beside them.
pub(crate) fn workflows(files: &[PathBuf], texts: &[Source]) -> Vec<Result<Workflow, Defects>> {
    let (own, named): (BTreeSet<String>, Vec<Vec<String>>) = texts.iter().filter_map(Source::names).unzip();
    let mut wanted: BTreeSet<String> = named.into_iter().flatten().filter(|name| !own.contains(name)).collect();
    // The named ones come first, because of several with one name the first is used.
    let mut all = texts.to_vec();
    let (mut beside, left_out) = if wanted.is_empty() { Default::default() } else { neighbours(files, texts) };
    while let Some(found) = beside.iter().position(|(name, ..)| wanted.remove(name)) {
        let (_, named, source) = beside.remove(found);
        wanted.extend(named.into_iter().filter(|name| !own.contains(name)));
        all.push(source);
    }
    if !wanted.is_empty() {
        // A file that was left out may have it.
        left_out.iter().for_each(LeftOut::warn);
    }
    let mut read = Workflow::reader().all(&all);
    read.truncate(texts.len());
    read
}

/// The workflows in the files beside these, and the entries that are left out. Files that cannot be parsed, and those beyond
/// [`MAX_BESIDE`], are omitted.
fn neighbours(files: &[PathBuf], texts: &[Source]) -> (Vec<Neighbour>, Vec<LeftOut>) {
    let folders: BTreeSet<&Path> = files.iter().filter_map(|file| file.parent()).collect();
    let found = folders.into_iter().filter_map(|folder| workflows_in(folder).ok()).flatten();
    let is_new = |origin: &str| texts.iter().all(|text| text.origin != origin);
    let mut left = MAX_BESIDE;
    let mut has_room = |source: &Source| {
        let room = left.checked_sub(source.bytes.len());
        left = room.unwrap_or(left);
        room.is_some()
    };
    let (mut beside, mut left_out) = (Vec::new(), Vec::new());
    for (file, form) in found.filter(|(file, _)| is_new(&file.display().to_string())) {
        match text_in_folder(&file, form) {
            Ok(source) if has_room(&source) => {
                beside.extend(source.names().map(|(name, named)| (name, named, source)));
            }
            Ok(_) => {}
            Err(unread) => left_out.push(unread),
        }
    }
    (beside, left_out)
}

/// A workflow in a file beside the named ones: its name, the names that it refers to, and its text.
type Neighbour = (String, Vec<String>, Source);

/// Reads a file of a folder by the rule for files of agents: a regular file, or a link to one in the same folder.
fn text_in_folder(file: &Path, form: Form) -> Result<Source, LeftOut> {
    let origin = file.display().to_string();
    match DefinitionSource::in_folder(listed(file.parent().unwrap_or(Path::new(""))), file) {
        Ok(DefinitionSource { bytes, .. }) => Ok(Source { origin, bytes, form }),
        Err(error) => Err(LeftOut { origin, why: error.to_string() }),
    }
}

fn text(file: &Path) -> Result<Source, Failure> {
    let form = form(file).ok_or_else(|| {
        Failure::usage(format!(
            "{}: a workflow is in a file *.toml, or in the one-line syntax in a file *.flow",
            shown_path(file)
        ))
    })?;
    let opened = open_file(file).map_err(|error| Failure::file(&error, format!("{}: {error}", shown_path(file))))?;
    Ok(Source { origin: file.display().to_string(), bytes: read(opened, file)?, form })
}

fn read(from: impl std::io::Read, file: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = from.take(MAX_TEXT + 1).read_to_end(&mut bytes);
    read.map_err(|error| Failure::file(&error, format!("{}: {error}", shown_path(file))))?;
    Ok(bytes)
}

fn form(file: &Path) -> Option<Form> {
    match file.extension()?.to_str()? {
        "toml" => Some(Form::Toml),
        "flow" => Some(Form::Line),
        _ => None,
    }
}

/// The entries of a folder with the name of a workflow, whatever kind they have.
fn workflows_in(folder: &Path) -> Result<Vec<(PathBuf, Form)>, Failure> {
    let cannot = |error: std::io::Error| Failure::file(&error, format!("{}: {error}", shown_path(folder)));
    let mut files = Vec::new();
    for entry in listed(folder).read_dir().map_err(cannot)? {
        let file = folder.join(entry.map_err(cannot)?.file_name());
        files.extend(form(&file).map(|form| (file, form)));
    }
    files.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(files)
}

/// The folder, which is the current one for a bare file name.
fn listed(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}
