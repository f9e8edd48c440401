//! What a site will contain, known before its first page is written, so that every link can be checked.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::description::{FactCard, Page, SourceRef};
use super::{names, texts};
use crate::facts::FactState;

/// The facts of a page of facts.
pub(super) const FACTS_OF_PAGE: usize = 50;
/// The most facts that are listed beside a section.
const MAX_CITED: usize = 20;
/// The most of a statement that is kept here, in characters.
const MAX_EXCERPT: usize = 140;

/// What a site will contain: documents with their sections, facts in their order, entities. It holds no texts, so its size is a few hundred
/// bytes for each section, fact and entity.
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
    sections: Vec<SectionEntry>,
    /// Which section an anchor is of.
    anchors: BTreeMap<String, usize>,
    /// Which facts are from which section; `None` is the document itself.
    cited: BTreeMap<Option<usize>, Vec<usize>>,
}

#[derive(Clone, Debug)]
struct SectionEntry {
    anchor: String,
    title: String,
    lines: RangeInclusive<u32>,
}

#[derive(Clone, Debug)]
pub(super) struct FactEntry {
    pub(super) id: String,
    pub(super) excerpt: String,
    pub(super) state: FactState,
}

impl PageEntry {
    fn at_line(&self, line: u32) -> Option<usize> {
        self.sections.iter().position(|section| section.lines.contains(&line))
    }
}

impl Outline {
    /// Creates the outline of an empty site.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a document: its path, its title, and what its sections are called. Documents come before the facts that cite them.
    pub fn add_page(&mut self, page: &Page) {
        let mut anchors = BTreeMap::new();
        let mut sections = Vec::with_capacity(page.sections.len());
        for (number, section) in page.sections.iter().enumerate() {
            for anchor in section.other_anchors.iter().chain([&section.anchor]).filter(|anchor| !anchor.is_empty()) {
                anchors.entry(anchor.clone()).or_insert(number);
            }
            let (anchor, title) = (section.anchor.clone(), texts::label(texts::last_title(&section.title)));
            sections.push(SectionEntry { anchor, title, lines: section.lines.clone() });
        }
        let entry = PageEntry { title: texts::label(&page.title), sections, anchors, cited: BTreeMap::new() };
        self.pages.insert(page.path.clone(), entry);
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
            let Some((path, section)) = self.cited_place(source).map(|(path, section)| (path.to_owned(), section))
            else {
                continue;
            };
            let Some(page) = self.pages.get_mut(&path) else { continue };
            let cited = page.cited.entry(section).or_default();
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

    /// Returns the facts that a section is a source of. `None` is the document itself.
    pub(super) fn cited(&self, page: &str, section: Option<usize>) -> &[usize] {
        self.pages.get(page).and_then(|page| page.cited.get(&section)).map_or(&[], Vec::as_slice)
    }

    /// Returns the link to a document, relative to the site, and whether the anchor is in it. A link to an anchor that is not there leads
    /// to the document.
    pub(super) fn link_to(&self, page: &str, anchor: Option<&str>) -> Option<(String, bool)> {
        let entry = self.pages.get(page)?;
        let file = names::of_document(page);
        Some(match anchor {
            None | Some("") => (file, true),
            Some(anchor) if entry.anchors.contains_key(anchor) => {
                (file + &names::fragment(&names::anchor(anchor)), true)
            }
            Some(_) => (file, false),
        })
    }

    /// Returns the title of the section that an anchor is of.
    pub(super) fn section_title(&self, page: &str, anchor: &str) -> Option<&str> {
        let page = self.pages.get(page)?;
        Some(&page.sections[*page.anchors.get(anchor)?].title)
    }

    /// Returns the link to what a fact is from, relative to the site, if the site has it.
    pub(super) fn link_to_source(&self, source: &SourceRef) -> Option<String> {
        let (path, section) = self.cited_place(source)?;
        let anchor = section.map(|section| self.pages[path].sections[section].anchor.as_str());
        self.link_to(path, anchor).map(|(file, _)| file)
    }

    /// Returns the document and the section that a source names.
    fn cited_place<'a>(&self, source: &'a SourceRef) -> Option<(&'a str, Option<usize>)> {
        let place = source.place.as_str();
        let (before, lines) = place.rsplit_once(':').unwrap_or((place, ""));
        let line = lines.split(['-', '.']).next().and_then(|line| line.parse().ok());
        let (document, anchor) =
            place.split_once('#').map_or((place, None), |(document, anchor)| (document, Some(anchor)));
        let candidates = [source.page.as_deref(), Some(before).filter(|_| line.is_some()), Some(document)];
        let path = candidates.into_iter().flatten().find(|path| self.pages.contains_key(*path))?;
        let page = &self.pages[path];
        let of_anchor = source.anchor.as_deref().or(anchor).and_then(|anchor| page.anchors.get(anchor).copied());
        Some((path, of_anchor.or_else(|| page.at_line(line?))))
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

#[cfg(test)]
mod tests {
    use super::super::description::{Section, TextFormat};
    use super::*;

    #[test]
    fn a_source_leads_to_the_section_of_its_line_or_anchor() {
        let section = |anchor: &str, lines| Section {
            anchor: anchor.to_owned(),
            other_anchors: Vec::new(),
            title: anchor.to_owned(),
            text: String::new(),
            lines,
        };
        let mut outline = Outline::new();
        outline.add_page(&Page {
            path: "docs/a:1.md".to_owned(),
            title: "A".to_owned(),
            format: TextFormat::Markdown,
            sections: vec![section("", 1..=2), section("one", 3..=9), section("two", 10..=12)],
            is_untrusted: false,
        });
        for (page, anchor, place, expected) in [
            (None, None, "docs/a:1.md:5", Some("#one")),
            (None, None, "docs/a:1.md:5.3", Some("#one")),
            (None, None, "docs/a:1.md:10-12", Some("#two")),
            (None, None, "docs/a:1.md:1", Some("")),
            (None, None, "docs/a:1.md:99", Some("")),
            (None, None, "docs/a:1.md", Some("")),
            (None, None, "docs/a:1.md#two", Some("#two")),
            (None, Some("two"), "docs/a:1.md:5", Some("#two")),
            (Some("docs/a:1.md"), Some("none"), "line 3", Some("")),
            (Some("docs/a:1.md"), None, "x:4", Some("#one")),
            (Some("missing.md"), None, "https://a.example:80", None),
            (None, None, "", None),
        ] {
            let source = SourceRef {
                label: String::new(),
                page: page.map(str::to_owned),
                anchor: anchor.map(str::to_owned),
                place: place.to_owned(),
            };
            let file = names::of_document("docs/a:1.md");
            assert_eq!(outline.link_to_source(&source), expected.map(|fragment| file + fragment), "{source:?}");
        }
    }
}
