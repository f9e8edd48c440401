//! The links of all documents: what they name is there, with the heading that they name, and the book in docs/ is whole.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, LinkType, Options, Parser, Tag, TagEnd};

/// The book's list of chapters, which is none itself.
const SUMMARY: &str = "docs/SUMMARY.md";

/// What a document links to, which headings it has, and which code blocks name no language.
#[derive(Default)]
struct Document {
    links: Vec<(usize, String)>,
    anchors: BTreeSet<String>,
    unnamed: Vec<usize>,
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// All documents of the workspace by their paths: at the root, in docs/, and the README of each package.
fn documents() -> BTreeMap<String, Document> {
    let mut folders = vec![PathBuf::new(), "docs".into(), "cli".into(), "xtask".into()];
    for parent in ["crates", "examples", "packaging", "packaging/npm"] {
        let Ok(inner) = fs::read_dir(root().join(parent)) else { continue };
        folders.extend(inner.map(|inner| Path::new(parent).join(inner.unwrap().file_name())));
    }
    let mut documents = BTreeMap::new();
    for folder in folders {
        let Ok(files) = fs::read_dir(root().join(&folder)) else { continue };
        for name in files.map(|file| file.unwrap().file_name().into_string().unwrap()) {
            if name.ends_with(".md") {
                let path = folder.join(name).to_str().unwrap().to_owned();
                let text = fs::read_to_string(root().join(&path)).unwrap();
                documents.insert(path, parsed(&text));
            }
        }
    }
    documents
}

fn parsed(text: &str) -> Document {
    let mut document = Document::default();
    let mut heading: Option<String> = None;
    let mut times = HashMap::<String, usize>::new();
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        let line = || 1 + text[..range.start].matches('\n').count();
        match event {
            Event::Start(Tag::Link { link_type, dest_url, .. }) if link_type != LinkType::Email => {
                document.links.push((line(), dest_url.into_string()));
            }
            Event::Start(Tag::Image { dest_url, .. }) => document.links.push((line(), dest_url.into_string())),
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) if language.is_empty() => {
                document.unnamed.push(line());
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(text) | Event::Code(text) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&text);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let anchor = anchor(&heading.take().unwrap_or_default());
                let seen = times.entry(anchor.clone()).or_default();
                document.anchors.insert(if *seen == 0 { anchor } else { format!("{anchor}-{seen}") });
                *seen += 1;
            }
            _ => {}
        }
    }
    document
}

/// As mdbook and the usual pages of repositories make it of a heading.
fn anchor(heading: &str) -> String {
    let of = |character: char| match character {
        _ if character.is_alphanumeric() || matches!(character, '_' | '-') => Some(character.to_ascii_lowercase()),
        _ if character.is_whitespace() => Some('-'),
        _ => None,
    };
    heading.trim().chars().filter_map(of).collect()
}

/// The path that a link of a document names, from the root, without `.` and `..`; `None` if it leads out of the workspace.
fn target(document: &str, link: &str) -> Option<PathBuf> {
    let mut path = Path::new(document).parent()?.to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::ParentDir => path.pop().then_some(())?,
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// What is wrong with the links of these documents, a line for each.
fn defects(documents: &BTreeMap<String, Document>) -> Vec<String> {
    let mut defects = Vec::new();
    for (path, document) in documents {
        defects.extend(document.unnamed.iter().map(|line| format!("{path}:{line}: a code block names no language")));
        for (line, link) in &document.links {
            if link.contains("://") {
                continue;
            }
            let mut defect = |problem: &str| defects.push(format!("{path}:{line}: {link}: {problem}"));
            let (file, fragment) = link.split_once('#').map_or((&**link, None), |(file, anchor)| (file, Some(anchor)));
            let Some(target) = (if file.is_empty() { Some(path.into()) } else { target(path, file) }) else {
                defect("leads out of the workspace");
                continue;
            };
            if !root().join(&target).exists() {
                defect("is not there");
            } else if path.starts_with("docs/") && !target.starts_with("docs") {
                defect("leads out of the book");
            } else if let Some(fragment) = fragment {
                let there = documents.get(target.to_str().unwrap_or_default());
                if !there.is_some_and(|there| there.anchors.contains(fragment)) {
                    defect("has no such heading");
                }
            }
        }
    }
    defects
}

#[test]
fn links_of_all_documents_lead_to_files_and_headings_that_are_there() {
    let documents = documents();
    assert!(documents.contains_key("README.md") && documents.contains_key("docs/semantics.md"));
    let defects = defects(&documents);
    assert!(defects.is_empty(), "{}", defects.join("\n"));
}

#[test]
fn every_document_of_the_book_is_a_chapter_of_it() {
    let documents = documents();
    let chapters: BTreeSet<PathBuf> =
        documents[SUMMARY].links.iter().filter_map(|(_, link)| target(SUMMARY, link)).collect();
    let pages = documents.keys().filter(|path| path.starts_with("docs/") && *path != SUMMARY);
    assert_eq!(chapters, pages.map(PathBuf::from).collect());
}

#[test]
fn a_link_that_is_wrong_is_named_with_its_line() {
    let text = "# A `b`: c!\n\n## A b c\n\n[a](#a-b-c) [b](#a-b-c-1) [c](#d)\n[d](gone.md) [e](../README.md) [f](https://x.example)\n\n```\n```\n";
    let documents = BTreeMap::from([("docs/index.md".to_owned(), parsed(text))]);
    let expected = [
        "docs/index.md:8: a code block names no language",
        "docs/index.md:5: #d: has no such heading",
        "docs/index.md:6: gone.md: is not there",
        "docs/index.md:6: ../README.md: leads out of the book",
    ];
    assert_eq!(defects(&documents), expected);
}
