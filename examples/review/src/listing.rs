//! Lists the source files of a tree, or of a part of it, in a fixed order.
//!
//! Nothing is followed out of the tree: symbolic links are not entered, and ignore files above the root do not count, so
//! the same tree lists the same way on every machine.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ignore::{DirEntry, WalkBuilder};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::escaping::code;
use crate::languages::Language;

/// Larger files are not read.
const MAX_BYTES: u64 = 1024 * 1024;

/// Folders that hold other people's code or build results.
const FOREIGN_FOLDERS: [&str; 9] =
    ["target", "node_modules", "vendor", "_vendor", "third_party", "dist", "build", "__pycache__", "site-packages"];

/// Bytes from which on the same text is a copy.
const LEAST_COPY: u64 = 512;

/// One file to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceFile {
    /// Relative to the root, with `/` between folders.
    pub(crate) path: String,
    pub(crate) language: Language,
    pub(crate) bytes: u64,
}

/// Why a file in a known language is not measured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SkipReason {
    TooLarge,
    Binary,
    NotUtf8,
    /// Minified, or marked as written by a tool.
    Generated,
    Symlink,
    Unreadable,
    /// Its text is that of the file at this path, which is measured.
    CopyOf(String),
}

impl SkipReason {
    /// The reason as people read it, in Markdown.
    pub(crate) fn label(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::TooLarge => "larger than 1 MiB",
            Self::Binary => "binary",
            Self::NotUtf8 => "not UTF-8",
            Self::Generated => "generated or minified",
            Self::Symlink => "symbolic link",
            Self::Unreadable => "unreadable",
            Self::CopyOf(path) => return Cow::Owned(format!("the same text as {}", code(path))),
        })
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
            Err(reason) => Err(io::Error::other(reason.label().into_owned())),
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
    let mut texts = HashMap::new();
    let walk = WalkBuilder::new(&root)
        .parents(false)
        .git_global(false)
        .git_exclude(false)
        .require_git(false)
        .filter_entry(|entry| entry.depth() == 0 || !is_foreign_folder(entry))
        .build();
    for entry in walk {
        match entry {
            Ok(entry) => listing.add(entry.path(), scope, &mut texts),
            Err(error) => listing.skipped.push(Skipped { path: error.to_string(), reason: SkipReason::Unreadable }),
        }
    }
    listing.files.sort_by(|a, b| a.path.cmp(&b.path));
    listing.pass_over_copies(&texts);
    listing.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(listing)
}

impl Listing {
    /// Adds a file if it is asked for, and the hash of its text to those of all `texts`.
    fn add(&mut self, path: &Path, scope: &Scope, texts: &mut HashMap<String, u128>) {
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
            Ok(text) => {
                texts.insert(shown.clone(), xxh3_128(text.as_bytes()));
                self.files.push(SourceFile { path: shown, language, bytes: text.len() as u64 });
            }
            Err(reason) => self.skipped.push(Skipped { path: shown, reason }),
        }
    }

    /// Of files with the same text only the first stays. Short ones, such as empty modules, are no copies of each other.
    fn pass_over_copies(&mut self, texts: &HashMap<String, u128>) {
        let mut originals: HashMap<u128, String> = HashMap::new();
        let Self { files, skipped, .. } = self;
        files.retain(|file| {
            let Some(text) = texts.get(&file.path).filter(|_| file.bytes >= LEAST_COPY) else { return true };
            let Some(original) = originals.get(text) else {
                originals.insert(*text, file.path.clone());
                return true;
            };
            skipped.push(Skipped { path: file.path.clone(), reason: SkipReason::CopyOf(original.clone()) });
            false
        });
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
    let minified = text.len() > 10 * MEAN_LINE && text.len() / text.lines().count().max(1) > MEAN_LINE;
    path.contains(".min.") || minified || head_comments(text).any(says_generated)
}

/// Whether a comment states that its own file is generated, and not another one.
fn says_generated(line: &str) -> bool {
    const BEGINNINGS: [&str; 9] = [
        "automatically generated",
        "auto-generated by",
        "auto-generated.",
        "autogenerated",
        "generated by",
        "generated from",
        "code generated by",
        "bindings generated by",
        "this is generated code",
    ];
    let line = line.trim_matches(|c: char| c.is_whitespace() || "/*#!-\"'".contains(c)).to_lowercase();
    let is_ban = (line.contains("do not edit") || line.contains("do not modify")) && !line.contains("without");
    is_ban
        || line.contains("@generated")
        || BEGINNINGS.iter().any(|beginning| line.starts_with(beginning))
        || (line.starts_with("this file ") && line.contains("generated"))
}

/// The lines among the first (15) that are comments, or part of the text that a Python module begins with.
fn head_comments(text: &str) -> impl Iterator<Item = &str> {
    let starts = ["//", "#", "/*", "*"];
    let mut is_quoted = false;
    text.lines().take(15).filter(move |line| {
        let (was_quoted, line) = (is_quoted, line.trim_start());
        is_quoted ^= (line.matches("\"\"\"").count() + line.matches("'''").count()) % 2 == 1;
        was_quoted || is_quoted || starts.iter().any(|start| line.starts_with(start)) || line.starts_with("\"\"\"")
    })
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
        let reasons: Vec<_> = listing.skipped.iter().map(|skipped| skipped.reason.clone()).collect();
        use SkipReason::{Binary, Generated, NotUtf8, TooLarge};
        assert_eq!(reasons, [TooLarge, Binary, NotUtf8, Generated, Generated]);
    }

    #[test]
    fn what_a_tool_wrote_is_known_by_its_head() {
        let generated = [
            "\"\"\"\n    tables\n\n    This file is autogenerated by scripts/x.py\n\"\"\"\nx = 1\n",
            "# noqa\n# type: ignore\n\n\n# *** PLEASE DO NOT MODIFY DIRECTLY: Automatically generated code ***\n",
            "/*\n * Do not edit.\n */\n",
            "/* automatically generated by rust-bindgen 0.72.1 */\n",
        ];
        for text in generated {
            assert!(is_generated("a.py", text), "{text}");
        }
        let written = [
            "x = 1\ny = \"do not edit\"\n",
            "\"\"\"Edits.\"\"\"\nwarn(\"do not edit\")\n",
            "\"\"\"\nFinds scripts.\n\nSuch scripts are automatically generated.\n\"\"\"\n",
            "// Do not edit without careful benchmarking.\n",
            "//! Changes to the types generated here count.\n",
        ];
        for text in written {
            assert!(!is_generated("a.py", text), "{text}");
        }
    }

    #[test]
    fn files_with_the_same_text_are_measured_once() {
        let (text, other) = ("x = 1\n".repeat(100), "y = 1\n".repeat(100));
        let (text, other) = (text.as_bytes(), other.as_bytes());
        let tree =
            tree(&[("c/a.py", text), ("b/a.py", text), ("a.py", other), ("d.py", text), ("e.py", b""), ("f.py", b"")]);
        let listing = list(tree.path(), &Scope::Everything).unwrap();
        assert_eq!(paths(&listing), ["a.py", "b/a.py", "e.py", "f.py"]);
        let copy = |path: &str| Skipped { path: path.to_owned(), reason: SkipReason::CopyOf("b/a.py".to_owned()) };
        assert_eq!(listing.skipped, [copy("c/a.py"), copy("d.py")]);
        assert_eq!(listing.skipped[0].reason.label(), "the same text as `b/a.py`");
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
        let tree = tree(&[]);
        let error = list(&tree.path().join("nowhere"), &Scope::Everything).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
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
