//! What a site will contain, known before its first page is written, so that every link can be checked.

use std::collections::BTreeMap;

use super::description::{CardState, FactCard};
use super::{names, texts};

/// The facts of a page of facts.
pub(super) const FACTS_OF_PAGE: usize = 50;
/// The most facts that are listed beside a section.
const MAX_CITED: usize = 20;
/// The most of a statement that is kept here, in characters.
const MAX_EXCERPT: usize = 140;

/// What a site will contain: documents with their anchors, facts in their order, entities. It holds no texts, so its size is a few hundred
/// bytes for each document, fact and entity.
#[derive(Clone, Debug, Default)]
pub struct Outline {
    pages: BTreeMap<String, PageEntry>,
    facts: Vec<FactEntry>,
    numbers: BTreeMap<String, usize>,
    entities: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
pub(super) struct PageEntry {
    pub(super) title: String,
    /// The titles of the sections by their anchors.
    sections: BTreeMap<String, String>,
    /// Which facts are from which section; `None` is the document itself.
    cited: BTreeMap<Option<String>, Vec<usize>>,
}

#[derive(Clone, Debug)]
pub(super) struct FactEntry {
    pub(super) id: String,
    pub(super) excerpt: String,
    pub(super) state: CardState,
}

impl Outline {
    /// Creates the outline of an empty site.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a document with the anchors and titles of its sections. Documents come before the facts that cite them.
    pub fn add_page<'a>(&mut self, path: &str, title: &str, sections: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let sections = sections.into_iter().map(|(anchor, title)| (anchor.to_owned(), texts::label(title))).collect();
        self.pages.insert(path.to_owned(), PageEntry { title: texts::label(title), sections, cited: BTreeMap::new() });
    }

    /// Adds a fact. Facts are shown in the order in which they are added here, and are written in this order too.
    pub fn add_fact(&mut self, fact: &FactCard) {
        if self.numbers.contains_key(&fact.id) {
            // The writer refuses the second one when it is written.
            return;
        }
        let number = self.facts.len();
        self.numbers.insert(fact.id.clone(), number);
        let excerpt = texts::excerpt(&fact.statement, MAX_EXCERPT);
        self.facts.push(FactEntry { id: fact.id.clone(), excerpt, state: fact.state });
        for source in &fact.sources {
            let Some(page) = source.page.as_ref().and_then(|path| self.pages.get_mut(path)) else { continue };
            let anchor = source.anchor.clone().filter(|anchor| page.sections.contains_key(anchor));
            let cited = page.cited.entry(anchor).or_default();
            if cited.len() < MAX_CITED && cited.last() != Some(&number) {
                cited.push(number);
            }
        }
    }

    /// Adds an entity by its name and kind.
    pub fn add_entity(&mut self, name: &str, kind: &str) {
        self.entities.insert(name.to_owned(), kind.to_owned());
    }

    pub(super) fn pages(&self) -> &BTreeMap<String, PageEntry> {
        &self.pages
    }

    pub(super) fn facts(&self) -> &[FactEntry] {
        &self.facts
    }

    pub(super) fn entities(&self) -> &BTreeMap<String, String> {
        &self.entities
    }

    pub(super) fn number(&self, fact: &str) -> Option<usize> {
        self.numbers.get(fact).copied()
    }

    /// Returns the facts that a section is a source of.
    pub(super) fn cited(&self, page: &str, anchor: Option<&str>) -> &[usize] {
        let entry = self.pages.get(page);
        entry.and_then(|entry| entry.cited.get(&anchor.map(str::to_owned))).map_or(&[], Vec::as_slice)
    }

    /// Returns the link to a document, relative to the site, and whether the anchor is in it. A link to an anchor that is not there leads
    /// to the document.
    pub(super) fn link_to(&self, page: &str, anchor: Option<&str>) -> Option<(String, bool)> {
        let entry = self.pages.get(page)?;
        let file = names::of_document(page);
        Some(match anchor {
            None => (file, true),
            Some(anchor) if entry.sections.contains_key(anchor) => {
                (file + &names::fragment(&names::anchor(anchor)), true)
            }
            Some(_) => (file, false),
        })
    }

    /// Returns the title of a section.
    pub(super) fn section_title(&self, page: &str, anchor: &str) -> Option<&str> {
        self.pages.get(page)?.sections.get(anchor).map(String::as_str)
    }

    /// Returns the link to a fact, relative to the site.
    pub(super) fn link_to_fact(&self, number: usize) -> String {
        facts_file(number / FACTS_OF_PAGE) + &names::fragment(&names::anchor(&self.facts[number].id))
    }

    /// Returns the link to an entity, relative to the site.
    pub(super) fn link_to_entity(&self, name: &str) -> Option<String> {
        self.entities.contains_key(name).then(|| names::of_entity(name))
    }

    /// Returns the number of pages of facts; one at least.
    pub(super) fn fact_pages(&self) -> usize {
        self.facts.len().div_ceil(FACTS_OF_PAGE).max(1)
    }
}

/// Returns the file of a page of facts, counted from zero.
pub(super) fn facts_file(page: usize) -> String {
    if page == 0 { "facts/index.html".to_owned() } else { format!("facts/{}.html", page + 1) }
}
