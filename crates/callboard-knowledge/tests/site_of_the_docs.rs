//! The site of this project's own documentation. It stays in the folder `site-of-the-docs` of the build's folder for temporary files, to be
//! looked at in a browser.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use callboard_knowledge::documents::{ReadLimits, read_document};
use callboard_knowledge::facts::FactState;
use callboard_knowledge::site::{
    Entity, FactCard, Outline, Page, Place, Section, SiteSettings, SiteWriter, SourceRef, TextFormat,
};
use html5gum::{Token, Tokenizer};

#[test]
fn every_link_of_the_site_of_the_documentation_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = pages_of(&root);
    assert!(pages.len() > 30, "{} pages", pages.len());
    let facts = facts_of(&pages);
    let entities = entities_of(&pages, &facts);

    let mut outline = Outline::new();
    pages.iter().for_each(|page| outline.add_page(page));
    facts.iter().for_each(|fact| outline.add_fact(fact));
    entities.iter().for_each(|entity| outline.add_entity(&entity.name, &entity.kind));
    let settings = SiteSettings {
        title: "callboard".to_owned(),
        about: Some("What the documentation of callboard says, with the facts that were taken from it.".to_owned()),
        as_of: None,
    };
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("site-of-the-docs");
    let mut writer = SiteWriter::create(&out, settings, outline).unwrap();
    pages.iter().for_each(|page| writer.add_page(page).unwrap());
    facts.iter().for_each(|fact| writer.add_fact(fact).unwrap());
    entities.iter().for_each(|entity| writer.add_entity(entity).unwrap());
    let published = writer.finish().unwrap().publish().unwrap().unwrap();

    let read = read_pages(&published.folder);
    let mut checked = 0;
    for (file, page) in &read {
        for link in page.links.iter().filter(|link| !link.starts_with("http") && !link.starts_with("mailto:")) {
            let (path, fragment) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if path.is_empty() { file.clone() } else { file.parent().unwrap().join(path).canonicalize().unwrap() };
            assert!(
                target.starts_with(published.folder.canonicalize().unwrap()) && target.is_file(),
                "{}: {link}",
                file.display()
            );
            if !fragment.is_empty() {
                assert!(read[&target].ids.contains(fragment), "{}: {link}", file.display());
            }
            checked += 1;
        }
    }
    assert!(checked > 1_000, "{checked} links");
}

struct Read {
    links: Vec<String>,
    ids: BTreeSet<String>,
}

fn read_pages(folder: &Path) -> BTreeMap<PathBuf, Read> {
    let (mut pages, mut open) = (BTreeMap::new(), vec![folder.canonicalize().unwrap()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html") {
                let page = read_page(&fs::read_to_string(&path).unwrap());
                pages.insert(path, page);
            }
        }
    }
    pages
}

fn read_page(page: &str) -> Read {
    let mut read = Read { links: Vec::new(), ids: BTreeSet::new() };
    for token in Tokenizer::new(page) {
        let Token::StartTag(tag) = token.unwrap() else { continue };
        for (key, value) in &tag.attributes {
            let value = String::from_utf8(value.to_vec()).unwrap();
            match key.as_slice() {
                b"href" | b"src" => read.links.push(value),
                b"id" => assert!(read.ids.insert(value)),
                _ => {}
            }
        }
    }
    read
}

/// The documents of a source tree, as they are read to be searched.
fn pages_of(root: &Path) -> Vec<Page> {
    let mut paths: Vec<String> = ["ARCHITECTURE.md", "CHANGELOG.md", "README.md"].map(str::to_owned).to_vec();
    for entry in fs::read_dir(root.join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") && name != "SUMMARY.md" {
            paths.push(format!("docs/{name}"));
        }
    }
    paths.push("crates/callboard-knowledge/src/words.rs".to_owned());
    paths.sort();
    let page = |path: String| {
        let document = read_document(&path, &fs::read(root.join(&path)).unwrap(), &ReadLimits::default()).unwrap();
        Page {
            title: document.title,
            format: if path.ends_with(".md") { TextFormat::Markdown } else { TextFormat::Plain },
            sections: Section::joined(document.passages.iter().map(Section::from)),
            is_untrusted: path == "CHANGELOG.md",
            path,
        }
    };
    paths.into_iter().map(page).collect()
}

/// A fact from each section of a page: its first sentence.
fn facts_of(pages: &[Page]) -> Vec<FactCard> {
    let mut facts: Vec<FactCard> = Vec::new();
    for page in pages.iter().filter(|page| page.path.starts_with("docs/")) {
        for section in page.sections.iter().skip(1).step_by(4) {
            let text: String = section
                .text
                .lines()
                .skip(1)
                .filter(|line| line.starts_with(char::is_alphabetic))
                .collect::<Vec<_>>()
                .join(" ");
            let Some((sentence, _)) = text.split_once(". ") else { continue };
            let number = facts.len();
            let state =
                [FactState::Current, FactState::Current, FactState::Current, FactState::Disputed, FactState::Invalid]
                    [number % 5];
            let before =
                number.checked_sub(1).filter(|_| state == FactState::Disputed).map(|before| facts[before].id.clone());
            facts.push(FactCard {
                id: format!("fact-{:04}", number + 1),
                statement: format!("{}.", sentence.replace('`', "")),
                state,
                sources: vec![SourceRef {
                    label: format!("{}: {}", page.title, section.title),
                    page: None,
                    anchor: None,
                    place: format!("{}:{}-{}", page.path, section.lines.start(), section.lines.end()),
                }],
                since: "2026-11-27T22:30:00Z".to_owned(),
                subject: (number.is_multiple_of(2)).then(|| "board".to_owned()),
                predicate: (number.is_multiple_of(2)).then(|| "described by".to_owned()),
                value: (number.is_multiple_of(2)).then(|| page.title.clone()),
                contradicts: before.into_iter().collect(),
            });
        }
    }
    facts
}

/// Terms of the documentation, with the sections that have their names.
fn entities_of(pages: &[Page], facts: &[FactCard]) -> Vec<Entity> {
    let terms = [
        "agent",
        "approval",
        "board",
        "breaker",
        "budget",
        "channel",
        "delegation",
        "handoff",
        "journal",
        "run",
        "store",
        "turn",
    ];
    let entity = |term: &str| {
        let sections = pages.iter().flat_map(|page| page.sections.iter().map(move |section| (page, section)));
        let place = |(page, section): (&Page, &Section)| Place {
            page: page.path.clone(),
            anchor: Some(section.anchor.clone()),
        };
        let (defined, mentioned): (Vec<_>, Vec<_>) = sections
            .filter(|(_, section)| {
                section.text.to_lowercase().split(|c: char| !c.is_alphanumeric()).any(|word| word == term)
            })
            .partition(|(_, section)| {
                section.title.to_lowercase().split_whitespace().any(|word| word.starts_with(term))
            });
        let about = facts.iter().filter(|fact| fact.subject.as_deref() == Some(term)).take(20);
        Entity {
            name: term.to_owned(),
            kind: "term".to_owned(),
            defined: defined.into_iter().map(place).collect(),
            mentioned: mentioned.into_iter().map(place).collect(),
            facts: about.map(|fact| fact.id.clone()).collect(),
            related: if term == "turn" { vec![("is part of".to_owned(), "run".to_owned())] } else { Vec::new() },
        }
    };
    terms.into_iter().map(entity).collect()
}
