//! Pages as their blocks and their spans of code.

use std::fs;
use std::path::Path;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// The root of the repository.
pub(super) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// A page of the repository.
pub(super) struct Page {
    /// From the root of the repository.
    pub(super) path: String,
    /// The fenced blocks, in their order.
    pub(super) blocks: Vec<Block>,
    /// The spans of code in the text, each with its line.
    pub(super) spans: Vec<(usize, String)>,
}

/// A fenced block.
pub(super) struct Block {
    /// The line of its fence.
    pub(super) line: usize,
    /// The first word of its fence.
    pub(super) language: String,
    /// The other words of its fence. A book shows none of them.
    pub(super) attributes: Vec<String>,
    pub(super) text: String,
}

impl Page {
    pub(super) fn parsed(path: &str, text: &str) -> Self {
        let (mut blocks, mut spans, mut open) = (Vec::new(), Vec::new(), None::<Block>);
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            let line = || 1 + text[..range.start].matches('\n').count();
            match event {
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(fence))) => {
                    let mut words = fence.split([' ', ',']).filter(|word| !word.is_empty()).map(str::to_owned);
                    let language = words.next().unwrap_or_default();
                    open = Some(Block { line: line(), language, attributes: words.collect(), text: String::new() });
                }
                Event::End(TagEnd::CodeBlock) => blocks.extend(open.take()),
                Event::Text(text) => {
                    if let Some(block) = &mut open {
                        block.text.push_str(&text);
                    }
                }
                Event::Code(code) => spans.push((line(), code.split_whitespace().collect::<Vec<_>>().join(" "))),
                _ => {}
            }
        }
        Self { path: path.to_owned(), blocks, spans }
    }

    /// A problem at a line of this page.
    pub(super) fn at(&self, line: usize, problem: impl std::fmt::Display) -> String {
        format!("{}:{line}: {problem}", self.path)
    }
}

impl Block {
    pub(super) fn first_line(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }
}

/// All pages, by their paths. The changelog is none: it shows what was.
pub(super) fn all() -> Vec<Page> {
    let mut paths = Vec::new();
    add_pages(Path::new(""), &mut paths, |name| name != "CHANGELOG.md");
    for folder in ["cli", "crates", "docs", "examples", "packaging"] {
        add_folder(Path::new(folder), &mut paths);
    }
    paths.sort();
    assert!(paths.len() > 30 && paths.iter().any(|path| path == "cli/README.md"), "{paths:?}");
    paths.into_iter().map(|path| Page::parsed(&path, &fs::read_to_string(root().join(&path)).unwrap())).collect()
}

fn add_folder(folder: &Path, paths: &mut Vec<String>) {
    add_pages(folder, paths, |_| true);
    for entry in fs::read_dir(root().join(folder)).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            add_folder(&folder.join(entry.file_name()), paths);
        }
    }
}

fn add_pages(folder: &Path, paths: &mut Vec<String>, is_page: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(root().join(folder)).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if name.ends_with(".md") && entry.file_type().unwrap().is_file() && is_page(&name) {
            paths.push(folder.join(name).into_os_string().into_string().unwrap());
        }
    }
}

#[test]
fn blocks_and_spans_of_a_page_are_found_with_their_lines() {
    let page = Page::parsed("a.md", "`a\nb` c\n\n- d\n\n  ```sh not-run\n  e\n  ```\n\n| f |\n|---|\n| `--g` |\n");
    let [block] = &page.blocks[..] else { panic!("it has one block") };
    assert_eq!((block.line, &*block.language, &*block.text), (6, "sh", "e\n"));
    assert_eq!(block.attributes, ["not-run"]);
    assert_eq!(page.spans, [(1, "a b".to_owned()), (12, "--g".to_owned())]);
}
