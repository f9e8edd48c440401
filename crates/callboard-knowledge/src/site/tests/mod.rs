//! Whole sites, read back as a browser reads them.

mod folders;
mod hostile;
mod pages;
mod reading;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::*;
use crate::facts::FactState;

/// What a site is made of in these tests.
#[derive(Clone, Debug, Default)]
struct Base {
    pages: Vec<Page>,
    facts: Vec<FactCard>,
    entities: Vec<Entity>,
}

fn settings() -> SiteSettings {
    SiteSettings { title: "Example".to_owned(), about: None, as_of: None }
}

fn page(path: &str, title: &str, sections: &[(&str, &str)]) -> Page {
    let section = |(number, (title, text)): (u32, &(&str, &str))| Section {
        anchor: title.to_lowercase().replace(' ', "-"),
        other_anchors: Vec::new(),
        title: (*title).to_owned(),
        text: (*text).to_owned(),
        lines: number * 10 + 1..=number * 10 + 10,
    };
    Page {
        path: path.to_owned(),
        title: title.to_owned(),
        format: TextFormat::Markdown,
        sections: (0..).zip(sections).map(section).collect(),
        is_untrusted: false,
    }
}

fn fact(id: &str, statement: &str, state: FactState) -> FactCard {
    FactCard {
        id: id.to_owned(),
        statement: statement.to_owned(),
        state,
        sources: Vec::new(),
        since: "2026-03-04T05:06:07Z".to_owned(),
        subject: None,
        predicate: None,
        value: None,
        contradicts: Vec::new(),
    }
}

fn entity(name: &str) -> Entity {
    Entity {
        name: name.to_owned(),
        kind: "term".to_owned(),
        defined: Vec::new(),
        mentioned: Vec::new(),
        facts: Vec::new(),
        related: Vec::new(),
    }
}

fn publish(base: &Base, settings: SiteSettings, out: &Path) -> Result<Published, SiteError> {
    let mut outline = Outline::new();
    base.pages.iter().for_each(|page| outline.add_page(page));
    base.facts.iter().for_each(|fact| outline.add_fact(fact));
    base.entities.iter().for_each(|entity| outline.add_entity(&entity.name, &entity.kind));
    let mut writer = SiteWriter::create(out, settings, outline)?;
    base.pages.iter().try_for_each(|page| writer.add_page(page))?;
    base.facts.iter().try_for_each(|fact| writer.add_fact(fact))?;
    base.entities.iter().try_for_each(|entity| writer.add_entity(entity))?;
    Ok(writer.finish()?.publish()?.unwrap())
}

/// Returns all files below a folder, by their paths.
fn files_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                files.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// Publishes a base into a folder of its own, and returns the files.
fn site(base: &Base) -> BTreeMap<String, Vec<u8>> {
    site_with(base, settings())
}

fn site_with(base: &Base, settings: SiteSettings) -> BTreeMap<String, Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let published = publish(base, settings, &folder.path().join("site")).unwrap();
    let files = files_of(&published.folder);
    assert_eq!(files.len(), published.files);
    assert_eq!(files.values().map(|bytes| bytes.len() as u64).sum::<u64>(), published.bytes);
    files
}
