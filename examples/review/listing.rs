//! Lists the source files of a tree, or of a part of it, in a fixed order.
//!
//! Nothing is followed out of the tree: symbolic links are not entered, and ignore files above the root do not count, so
//! the same tree lists the same way on every machine.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ignore::{DirEntry, WalkBuilder};
use serde::{Deserialize, Serialize};

use crate::languages::Language;

/// Larger files are not read.
const MAX_BYTES: u64 = 1024 * 1024;

/// Folders that hold other people's code or build results.
const FOREIGN_FOLDERS: [&str; 7] =
    ["target", "node_modules", "vendor", "dist", "build", "__pycache__", "site-packages"];

/// One file to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceFile {
    /// Relative to the root, with `/` between folders.
    pub(crate) path: String,
    pub(crate) language: Language,
    pub(crate) bytes: u64,
}

/// Why a file in a known language is not measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SkipReason {
    TooLarge,
    Binary,
    NotUtf8,
    /// Minified, or marked as written by a tool.
    Generated,
    Symlink,
    Unreadable,
}

impl SkipReason {
    /// The reason as people read it.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::TooLarge => "larger than 1 MiB",
            Self::Binary => "binary",
            Self::NotUtf8 => "not UTF-8",
            Self::Generated => "generated or minified",
            Self::Symlink => "symbolic link",
            Self::Unreadable => "unreadable",
        }
    }
}

/// A file that was passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Skipped {
    pub(crate) path: String,
    pub(crate) reason: SkipReason,
}

/// The part of a tree that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Scope {
    #[default]
    Everything,
    /// Files that lie directly in one of these folders (relative to the root; empty for the root itself).
    Folders(Vec<String>),
}

impl Scope {
    /// Whether the file at this relative path is asked for.
    pub(crate) fn covers(&self, path: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Folders(folders) => folders.iter().any(|folder| folder == folder_of(path)),
        }
    }
}

/// The folder in which a relative path lies; empty for the root.
pub(crate) fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The files of a tree, sorted by path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listing {
    pub(crate) root: PathBuf,
    pub(crate) files: Vec<SourceFile>,
    pub(crate) skipped: Vec<Skipped>,
}

impl Listing {
    /// Bytes of all listed files.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// The text of a listed file as it is now.
    ///
    /// # Errors
    /// When it has changed since the listing into something that cannot be read as text of a bounded size.
    pub(crate) fn read(&self, file: &SourceFile) -> io::Result<String> {
        match read_text(&self.root.join(&file.path)) {
            Ok(text) => Ok(text),
            Err(reason) => Err(io::Error::other(reason.label())),
        }
    }
}

/// Lists what `scope` asks for under `root`, which may also be a single file.
///
/// # Errors
/// When `root` itself cannot be opened; unreadable files below it are listed as skipped.
pub(crate) fn list(root: &Path, scope: &Scope) -> io::Result<Listing> {
    let root = root.canonicalize()?;
    let base = if root.is_file() { root.parent().unwrap_or(&root).to_owned() } else { root.clone() };
    let mut listing = Listing { root: base, files: Vec::new(), skipped: Vec::new() };
    let walk = WalkBuilder::new(&root)
        .parents(false)
        .git_global(false)
        .git_exclude(false)
        .require_git(false)
        .filter_entry(|entry| entry.depth() == 0 || !is_foreign_folder(entry))
        .build();
    for entry in walk {
        match entry {
            Ok(entry) => listing.add(entry.path(), scope),
            Err(error) => listing.skipped.push(Skipped { path: error.to_string(), reason: SkipReason::Unreadable }),
        }
    }
    listing.files.sort_by(|a, b| a.path.cmp(&b.path));
    listing.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(listing)
}

impl Listing {
    fn add(&mut self, path: &Path, scope: &Scope) {
        let Some(language) = Language::of(path) else { return };
        let Ok(relative) = path.strip_prefix(&self.root) else { return };
        let folders: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
        let shown = folders.join("/");
        if !scope.covers(&shown) {
            return;
        }
        let read = match path.symlink_metadata() {
            Ok(metadata) if metadata.is_dir() => return,
            Ok(metadata) if metadata.is_symlink() => Err(SkipReason::Symlink),
            Ok(metadata) if !metadata.is_file() => Err(SkipReason::Unreadable),
            Ok(_) if relative.to_str().is_none() => Err(SkipReason::NotUtf8),
            Ok(_) => read_text(path),
            Err(_) => Err(SkipReason::Unreadable),
        };
        match read {
            Ok(text) if is_generated(&shown, &text) => {
                self.skipped.push(Skipped { path: shown, reason: SkipReason::Generated });
            }
            Ok(text) => self.files.push(SourceFile { path: shown, language, bytes: text.len() as u64 }),
            Err(reason) => self.skipped.push(Skipped { path: shown, reason }),
        }
    }
}

fn is_foreign_folder(entry: &DirEntry) -> bool {
    entry.file_type().is_some_and(|kind| kind.is_dir())
        && entry.file_name().to_str().is_some_and(|name| FOREIGN_FOLDERS.contains(&name))
}

fn read_text(path: &Path) -> Result<String, SkipReason> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|_| SkipReason::Unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(SkipReason::TooLarge);
    }
    if bytes.contains(&0) {
        return Err(SkipReason::Binary);
    }
    String::from_utf8(bytes).map_err(|_| SkipReason::NotUtf8)
}

/// Whether a person did not write this text: the head says so, or the lines are as long as only a minifier makes them.
fn is_generated(path: &str, text: &str) -> bool {
    const MEAN_LINE: usize = 400;
    let marks = ["@generated", "DO NOT EDIT", "Do not edit", "generated automatically", "automatically generated"];
    let is_comment =
        |line: &str| ["//", "#", "/*", "*", "\"\"\""].iter().any(|start| line.trim_start().starts_with(start));
    let says_so = text.lines().take(10).any(|line| is_comment(line) && marks.iter().any(|mark| line.contains(mark)));
    let minified = text.len() > 10 * MEAN_LINE && text.len() / text.lines().count().max(1) > MEAN_LINE;
    path.contains(".min.") || says_so || minified
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        for (path, bytes) in files {
            let path = tree.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        tree
    }

    fn paths(listing: &Listing) -> Vec<&str> {
        listing.files.iter().map(|file| file.path.as_str()).collect()
    }

    #[test]
    fn sources_are_listed_in_order_and_foreign_code_is_not() {
        let tree = tree(&[
            ("src/b.rs", b"fn b() {}"),
            ("src/a/c.py", b""),
            ("web/app.tsx", b"1"),
            ("README.md", b"# hi"),
            ("target/x.rs", b""),
            ("deep/node_modules/x.js", b""),
            (".hidden/x.rs", b""),
            ("gen/x.rs", b""),
            (".gitignore", b"gen/\n"),
        ]);
        let listing = list(tree.path(), &Scope::Everything).unwrap();
        assert_eq!(paths(&listing), ["src/a/c.py", "src/b.rs", "web/app.tsx"]);
        assert_eq!(listing.bytes(), 10);
        assert!(listing.skipped.is_empty());
    }

    #[test]
    fn what_cannot_be_measured_is_skipped_with_a_reason() {
        let large = vec![b'\n'; 1024 * 1024 + 1];
        let line = [b"x=1;".repeat(2000), b"\n".to_vec()].concat();
        let tree = tree(&[
            ("a_large.rs", &large),
            ("b_binary.py", b"a\0b"),
            ("c_latin1.py", b"# caf\xe9"),
            ("d_tool.rs", b"// @generated by x\n"),
            ("e_packed.js", &line),
        ]);
        let listing = list(tree.path(), &Scope::Everything).unwrap();
        assert!(listing.files.is_empty());
        let reasons: Vec<_> = listing.skipped.iter().map(|skipped| skipped.reason).collect();
        use SkipReason::{Binary, Generated, NotUtf8, TooLarge};
        assert_eq!(reasons, [TooLarge, Binary, NotUtf8, Generated, Generated]);
    }

    #[test]
    fn a_scope_holds_the_files_directly_in_its_folders() {
        let tree = tree(&[("a.rs", b""), ("src/b.rs", b""), ("src/deep/c.rs", b"")]);
        let within = |folders: &[&str]| {
            let scope = Scope::Folders(folders.iter().map(|folder| (*folder).to_owned()).collect());
            paths(&list(tree.path(), &scope).unwrap()).into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(within(&["src"]), ["src/b.rs"]);
        assert_eq!(within(&["", "src/deep"]), ["a.rs", "src/deep/c.rs"]);
        assert!(within(&["../src"]).is_empty());
    }

    #[test]
    fn a_single_file_is_a_tree_of_one() {
        let tree = tree(&[("a.rs", b"fn a() {}")]);
        let listing = list(&tree.path().join("a.rs"), &Scope::Everything).unwrap();
        assert_eq!(paths(&listing), ["a.rs"]);
        assert_eq!(listing.read(&listing.files[0]).unwrap(), "fn a() {}");
    }

    #[test]
    fn a_missing_root_is_an_error() {
        assert!(list(Path::new("/nowhere/at/all"), &Scope::Everything).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn links_are_not_entered() {
        use std::os::unix::fs::symlink;
        let tree = tree(&[("src/a.rs", b"")]);
        symlink(tree.path(), tree.path().join("src/loop")).unwrap();
        symlink(tree.path().join("src/a.rs"), tree.path().join("src/b.rs")).unwrap();
        let listing = list(tree.path(), &Scope::Everything).unwrap();
        assert_eq!(paths(&listing), ["src/a.rs"]);
        assert_eq!(listing.skipped[0].reason, SkipReason::Symlink);
    }
}
