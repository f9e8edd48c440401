//! The documents of a crate: its README, its changelog, and one for each module that has a public item with a doc comment.

mod doc_comments;
mod items;
pub mod markdown;
mod messages;

use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use sha2::{Digest, Sha256};
use thiserror::Error;

pub use messages::{Message, Origin};

use items::{Entry, Items};
use markdown::{demoted, heading};

/// The most bytes of a file; a larger one is left out.
const LARGEST: u64 = 2 << 20;

/// The most files of a crate.
const MOST_FILES: usize = 20_000;

/// How deep the groups of tokens in a file may be within each other, and how many operators may follow each other. The parser recurses
/// with both.
const DEEPEST: usize = 200;

/// What a document is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A crate's README.
    Readme,
    /// A crate's list of what changed.
    Changelog,
    /// A module and its items.
    Module,
}

/// A document in Markdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Where it is below the folder of the corpus: `tokio/sync/mutex.md`.
    pub path: String,
    /// What it is.
    pub kind: Kind,
    /// Its text. The first line is its title.
    pub text: String,
}

/// The documents of a crate, ordered by path, and what its code prints.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Extracted {
    /// The documents.
    pub documents: Vec<Document>,
    /// The messages of its errors and functions.
    pub messages: Vec<Message>,
}

/// Why the text of a crate cannot be extracted.
#[derive(Debug, Error)]
pub enum ExtractError {
    /// A file or folder cannot be read.
    #[error("{0}: {1}")]
    Io(PathBuf, std::io::Error),
    /// There are too many files.
    #[error("{0} has more than {MOST_FILES} files; take the crate from the list")]
    TooManyFiles(PathBuf),
}

/// Extracts the text of a crate from the folder of its package. The same folder has the same text.
///
/// # Errors
/// If the folder cannot be read, or has too many files.
pub fn extract(name: &str, folder: &Path) -> Result<Extracted, ExtractError> {
    let mut extracted = Extracted::default();
    for (kind, word, title) in [(Kind::Readme, "readme", "readme"), (Kind::Changelog, "changelog", "changelog")] {
        for file in at_root(folder, word)? {
            let Some(text) = read(&file)? else { continue };
            let path = format!("{name}/{}.md", stem(&file).to_uppercase());
            let text = heading(1, &format!("{name} {title}")) + "\n" + &demoted(&text, 1);
            extracted.documents.push(Document { path, kind, text });
        }
    }
    let source = folder.join("src");
    for file in sources(&source)? {
        let Some(text) = read(&file)? else { continue };
        let Some(tree) = parsed(&text) else { continue };
        let items = items::items(&text, &tree);
        let below = file.strip_prefix(&source).unwrap_or(&file).with_extension("");
        let below: Vec<String> = below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let title = module(name, &below);
        let path = format!("{name}/{}.md", below.join("/"));
        let messages = items.messages.iter().cloned();
        extracted.messages.extend(messages.map(|message| Message { document: path.clone(), ..message }));
        if let Some(text) = document(&title, &items) {
            extracted.documents.push(Document { path, kind: Kind::Module, text });
        }
    }
    extracted.documents.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(extracted)
}

/// The hash of documents, in hex: of their paths and texts with their lengths.
#[must_use]
pub fn hash(documents: &[Document]) -> String {
    let mut hash = Sha256::new();
    for part in documents.iter().flat_map(|document| [&document.path, &document.text]) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The Markdown files at the root of a package whose name begins with a word.
fn at_root(folder: &Path, word: &str) -> Result<Vec<PathBuf>, ExtractError> {
    let is_named = |file: &PathBuf| {
        stem(file).to_lowercase().starts_with(word)
            && file.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("md"))
    };
    Ok(entries(folder)?.into_iter().map(|(path, _)| path).filter(is_named).collect())
}

fn stem(file: &Path) -> String {
    file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The files of Rust below a folder, without those of tests.
fn sources(folder: &Path) -> Result<Vec<PathBuf>, ExtractError> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for (path, is_folder) in entries(&folder)? {
            let is_test = ["test", "tests"].contains(&stem(&path).as_str());
            if is_folder && !is_test {
                folders.push(path);
            } else if !is_test && path.extension().is_some_and(|ending| ending == "rs") {
                found.push(path);
            }
            if found.len() + folders.len() > MOST_FILES {
                return Err(ExtractError::TooManyFiles(folder));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The files and folders of a folder, ordered by name, and whether each is a folder. Links are left out.
fn entries(folder: &Path) -> Result<Vec<(PathBuf, bool)>, ExtractError> {
    let failed = |error| ExtractError::Io(folder.to_owned(), error);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() || kind.is_file() {
            found.push((entry.path(), kind.is_dir()));
        }
    }
    found.sort();
    Ok(found)
}

/// The text of a file with newlines alone at the ends of lines; `None` for one that is too large or no text.
fn read(file: &Path) -> Result<Option<String>, ExtractError> {
    let failed = |error| ExtractError::Io(file.to_owned(), error);
    if fs::metadata(file).map_err(failed)?.len() > LARGEST {
        return Ok(None);
    }
    let bytes = fs::read(file).map_err(failed)?;
    let text = String::from_utf8(bytes).ok().map(|text| text.trim_start_matches('\u{feff}').replace("\r\n", "\n"));
    Ok(text.filter(|text| !text.contains('\0')))
}

/// The tree of a file; `None` if it is no Rust that the parser knows, or too deep for it.
fn parsed(text: &str) -> Option<syn::File> {
    let text = text.strip_prefix("#!").filter(|rest| !rest.starts_with('[')).map_or(text, |_| "");
    let tokens: TokenStream = text.parse().ok()?;
    if is_too_deep(&tokens) { None } else { syn::parse2(tokens).ok() }
}

/// Whether groups are too deep within each other, or as many operators stand before each other.
fn is_too_deep(tokens: &TokenStream) -> bool {
    let (mut open, mut operators) = (vec![tokens.clone().into_iter()], 0);
    while let Some(tokens) = open.last_mut() {
        let token = tokens.next();
        operators = if matches!(token, Some(TokenTree::Punct(_))) { operators + 1 } else { 0 };
        match token {
            Some(TokenTree::Group(_)) if open.len() > DEEPEST => return true,
            Some(TokenTree::Group(group)) => open.push(group.stream().into_iter()),
            Some(TokenTree::Punct(_)) if operators > DEEPEST => return true,
            Some(TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_)) => {}
            None => drop(open.pop()),
        }
    }
    false
}

/// The path of the module of a file: `lib` is the crate, and `mod` the folder that it is in.
fn module(name: &str, below: &[String]) -> String {
    let name = name.replace('-', "_");
    let modules = match below {
        [one] if one == "lib" => &[],
        [above @ .., last] if last == "mod" => above,
        all => all,
    };
    [name].into_iter().chain(modules.iter().cloned()).collect::<Vec<_>>().join("::")
}

/// The document of a module; `None` if it has no documentation.
fn document(title: &str, items: &Items) -> Option<String> {
    if items.module.is_none() && items.entries.is_empty() {
        return None;
    }
    let mut text = heading(1, title) + "\nmodule\n";
    if let Some(documentation) = &items.module {
        text += &format!("\n{}\n", demoted(documentation, 1));
    }
    let mut before: Vec<&Entry> = Vec::new();
    for entry in &items.entries {
        // For each platform there may be one with the same documentation.
        if before.iter().any(|other| other.name == entry.name && other.documentation == entry.documentation) {
            continue;
        }
        before.push(entry);
        text += "\n";
        text += &heading(2, &entry.name);
        text += &match entry.signature.as_str() {
            "" => format!("\n{}\n", entry.kind),
            signature => format!("\n{}: `{signature}`\n", entry.kind),
        };
        text += &format!("\n{}\n", demoted(&entry.documentation, 2));
        if let Some(parts) = &entry.parts {
            text += "\n";
            text += &heading(3, parts.heading);
            text += "\n";
            for (name, documentation) in &parts.parts {
                text += &format!("- `{name}`: {}\n", demoted(documentation, 3).replace('\n', "\n  "));
            }
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn extracted(files: &[(&str, &str)]) -> Extracted {
        extract("a-b", package(files).path()).unwrap()
    }

    #[test]
    fn a_package_has_a_document_for_each_documented_module_its_readme_and_its_changelog() {
        let found = extracted(&[
            ("README.md", "# About\r\n\r\nText.\r\n"),
            ("CHANGELOG.md", "# 1.0.0\n\n- One."),
            ("src/lib.rs", "//! The crate.\n//! # More\n"),
            ("src/x/mod.rs", "/// Makes.\n///\n/// # Errors\n/// Never.\npub fn make() {}"),
            ("src/x/tests.rs", "/// No.\npub fn no() {}"),
            ("src/y.rs", "pub fn undocumented() {}"),
            ("src/z.rs", "this is no Rust ("),
            ("benches/b.rs", "/// No.\npub fn no() {}"),
        ]);
        let texts: Vec<(&str, &str)> =
            found.documents.iter().map(|one| (one.path.as_str(), one.text.as_str())).collect();
        let expected = [
            ("a-b/CHANGELOG.md", "# a-b changelog\n\n## 1.0.0\n\n- One."),
            ("a-b/README.md", "# a-b readme\n\n## About\n\nText.\n"),
            ("a-b/lib.md", "# a_b\n\nmodule\n\nThe crate.\n## More\n\n"),
            (
                "a-b/x/mod.md",
                "# a_b::x\n\nmodule\n\n## make\n\nfunction: `pub fn make()`\n\nMakes.\n\n### Errors\nNever.\n",
            ),
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn the_same_item_for_two_platforms_is_one_section() {
        let source = "/// F.\n#[cfg(unix)]\npub fn f() {}\n/// F.\n#[cfg(windows)]\npub fn f() {}\n/// Other.\n#[cfg(wasi)]\npub fn f() {}";
        let found = extracted(&[("src/lib.rs", source)]);
        assert_eq!(found.documents[0].text.matches("## f\n").count(), 2);
    }

    #[test]
    fn files_that_nobody_would_write_are_left_out() {
        let deep = format!("/// F.\npub fn f() {{ {}{} }}", "(".repeat(5_000), ")".repeat(5_000));
        let large = format!("/// F.\npub fn f() {{}}\n//{}", "x".repeat(LARGEST as usize));
        let operators = format!("/// F.\npub fn f() {{ {}x }}", "!".repeat(100_000));
        for source in
            [deep.as_str(), &operators, &large, "\0", "/// F.\npub fn f() {", "#!/bin/sh\n", "", "////", "/**/ */"]
        {
            assert_eq!(extracted(&[("src/lib.rs", source)]).documents, [], "{:.20}", source);
        }
        let folder = package(&[("src/lib.rs", "")]);
        fs::write(folder.path().join("src/lib.rs"), [0xff, 0xfe, 0x00]).unwrap();
        assert_eq!(extract("a", folder.path()).unwrap(), Extracted::default());
    }

    #[test]
    fn a_package_without_sources_is_an_error_that_names_the_folder() {
        let refused = extract("a", package(&[("README.md", "x")]).path()).unwrap_err().to_string();
        assert!(refused.contains("src"), "{refused}");
    }

    #[test]
    fn the_hash_changes_with_every_part_of_the_text() {
        let document =
            |path: &str, text: &str| Document { path: path.to_owned(), kind: Kind::Module, text: text.to_owned() };
        let mut hashes: Vec<String> = [
            vec![document("ab", "c")],
            vec![document("a", "bc")],
            vec![document("ab", "d")],
            vec![document("ab", "c"), document("", "")],
            Vec::new(),
        ]
        .iter()
        .map(|documents| hash(documents))
        .collect();
        assert_eq!(hash(&[document("ab", "c")]), hashes[0]);
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), 5);
    }
}
