//! The chore `circles`: files of the workspace that import each other.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::Value;
use xtask::imports::Sources;
use xtask::imports::circles::{Circle, circles};

use crate::workspace;

/// The most files that a circle may have, unless the command line names another number.
const MOST: usize = 3;

/// Prints the circles, and fails if one has more files than may be.
pub(crate) fn report(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let most = match (arguments.next().as_deref(), arguments.next().map(|most| most.parse())) {
        (None, None) => MOST,
        (Some("--max"), Some(Ok(most))) => most,
        _ => {
            eprintln!("usage: cargo xtask circles [--max N]");
            return ExitCode::from(2);
        }
    };
    report_those(most, true)
}

/// Prints the circles of more files than may be, and fails if there are any.
pub(crate) fn check() -> ExitCode {
    report_those(MOST, false)
}

/// Reports circles of more than `most` files, and with `all` the others too, with the imports that lead to no file that was read.
fn report_those(most: usize, all: bool) -> ExitCode {
    match find(all) {
        Ok((circles, files)) => {
            circles.iter().filter(|circle| all || circle.files.len() > most).for_each(print);
            let too_large = circles.iter().filter(|circle| circle.files.len() > most).count();
            println!("{} circles in {files} files, {too_large} of them of more than {most} files", circles.len());
            if too_large == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(why) => {
            eprintln!("circles: {why}");
            ExitCode::from(2)
        }
    }
}

fn print(circle: &Circle) {
    println!("{} files:", circle.files.len());
    circle.files.iter().for_each(|file| println!("  {}", file.display()));
    for import in &circle.imports {
        println!("    {} -> {}: line {}, {}", import.from.display(), import.to.display(), import.line, import.item);
    }
    println!();
}

/// The circles of all targets of the workspace, and how many files were read.
fn find(prints_unresolved: bool) -> Result<(Vec<Circle>, usize), String> {
    let (root, targets) = targets()?;
    let mut sources = Sources::reading(|path| std::fs::read_to_string(root.join(path)).ok());
    for target in targets {
        match target.library {
            Some(name) => sources.add_library(&name, &target.file)?,
            None => sources.add(&target.file)?,
        }
    }
    if prints_unresolved {
        for path in sources.unresolved() {
            eprintln!("{}:{}: nothing was found for {}", path.file.display(), path.line, path.path);
        }
    }
    Ok((circles(&sources.imports()), sources.files().len()))
}

struct Target {
    /// The root file of its crate, from the root of the workspace.
    file: PathBuf,
    /// The name by which other crates import it.
    library: Option<String>,
}

/// The folder of the workspace, and the targets of its packages.
fn targets() -> Result<(PathBuf, Vec<Target>), String> {
    let metadata = workspace::metadata()?;
    let root = PathBuf::from(metadata["workspace_root"].as_str().ok_or("cargo metadata names no workspace")?);
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let targets = targets.filter_map(|target| self::target(target, &root)).collect();
    Ok((root, targets))
}

fn target(target: &Value, root: &Path) -> Option<Target> {
    let file = Path::new(target["src_path"].as_str()?).strip_prefix(root).ok()?.to_owned();
    let is_library = target["kind"].as_array()?.iter().any(|kind| kind == "lib");
    Some(Target { file, library: is_library.then(|| target["name"].as_str().map(str::to_owned)).flatten() })
}
