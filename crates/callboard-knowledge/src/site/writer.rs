//! Writes a site, one document, fact and entity after another.

use std::path::Path;

use maud::Markup;

use super::description::{Entity, FactCard, Page, SiteSettings};
use super::document_page::document_page;
use super::entity_pages::{entity_page, lists};
use super::error::SiteError;
use super::fact_pages::{fact_card, facts_page};
use super::files::File;
use super::folder::StagedSite;
use super::front_page::front_pages;
use super::names;
use super::outline::{FACTS_OF_PAGE, Outline};
use super::search::{Entries, Entry, Postings, write_words};
use super::staging::Staging;

const STYLE: &str = include_str!("assets/style.css");
const SEARCH: &str = include_str!("assets/search.js");
const ICON: &str = include_str!("assets/icon.svg");

/// Writes a site. It holds the outline, the facts of one page and a part of the index; everything else is on disk when the next document is
/// added. A writer that is dropped before it finished leaves nothing.
///
/// The same calls with the same values write the same bytes.
///
/// ```
/// use callboard_knowledge::site::{Outline, Page, Section, SiteSettings, SiteWriter, TextFormat};
/// let folder = tempfile::tempdir()?;
/// let page = Page {
///     path: "docs/auth.md".to_owned(),
///     title: "Authentication".to_owned(),
///     format: TextFormat::Markdown,
///     sections: vec![Section {
///         anchor: "tokens".to_owned(),
///         other_anchors: Vec::new(),
///         title: "Tokens".to_owned(),
///         text: "A token lives for *one hour*.".to_owned(),
///         lines: 3..=4,
///     }],
///     is_untrusted: false,
/// };
/// let mut outline = Outline::new();
/// outline.add_page(&page);
/// let settings = SiteSettings { title: "Example".to_owned(), about: None, as_of: None };
/// let mut writer = SiteWriter::create(&folder.path().join("site"), settings, outline)?;
/// writer.add_page(&page)?;
/// let published = writer.finish()?.publish()?.expect("nobody else writes there");
/// assert!(published.folder.join("pages/docs/auth.md.html").is_file());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SiteWriter {
    settings: SiteSettings,
    outline: Outline,
    staging: Staging,
    entries: Entries,
    postings: Postings,
    /// The facts of the page that is not complete.
    cards: Vec<Markup>,
    facts: usize,
}

impl SiteWriter {
    /// Begins a site that will be at `out`.
    ///
    /// # Errors
    ///
    /// If `out` has anything but a site that was written by this type, or if files cannot be written beside it.
    pub fn create(out: &Path, settings: SiteSettings, outline: Outline) -> Result<Self, SiteError> {
        let staging = Staging::create(out)?;
        let postings = Postings::new(staging.path().to_owned());
        Ok(Self { settings, outline, staging, entries: Entries::default(), postings, cards: Vec::new(), facts: 0 })
    }

    /// Writes the page of a document.
    ///
    /// # Errors
    ///
    /// If the outline does not have it, if it is written already, or if a file cannot be written.
    pub fn add_page(&mut self, page: &Page) -> Result<(), SiteError> {
        if !self.outline.pages().contains_key(&page.path) {
            return Err(SiteError::NotInOutline { what: "document", name: page.path.clone() });
        }
        let (file, entries) = document_page(&self.settings, &self.outline, page);
        self.staging.write(&file)?;
        entries.into_iter().try_for_each(|entry| self.index(entry))
    }

    /// Writes a fact. Facts come in the order of the outline.
    ///
    /// # Errors
    ///
    /// If it is not the next fact of the outline, or if a file cannot be written.
    pub fn add_fact(&mut self, fact: &FactCard) -> Result<(), SiteError> {
        match self.outline.number(&fact.id) {
            None => return Err(SiteError::NotInOutline { what: "fact", name: fact.id.clone() }),
            Some(number) if number != self.facts => return Err(SiteError::OutOfOrder { id: fact.id.clone() }),
            Some(_) => {}
        }
        let (card, entry) = fact_card(&self.outline, self.facts, fact);
        self.facts += 1;
        self.cards.push(card);
        if self.cards.len() == FACTS_OF_PAGE {
            self.write_facts()?;
        }
        self.index(entry)
    }

    /// Writes the page of an entity.
    ///
    /// # Errors
    ///
    /// If the outline does not have it, if it is written already, or if a file cannot be written.
    pub fn add_entity(&mut self, entity: &Entity) -> Result<(), SiteError> {
        if !self.outline.entities().contains_key(&entity.name) {
            return Err(SiteError::NotInOutline { what: "entity", name: entity.name.clone() });
        }
        let (file, entry) = entity_page(&self.settings, &self.outline, entity);
        self.staging.write(&file)?;
        self.index(entry)
    }

    /// Writes the lists and the index, which completes the site beside the old one.
    ///
    /// # Errors
    ///
    /// If something of the outline was not written, or if a file cannot be written.
    pub fn finish(mut self) -> Result<StagedSite, SiteError> {
        self.check_complete()?;
        if !self.cards.is_empty() || self.facts == 0 {
            self.write_facts()?;
        }
        for file in lists(&self.settings, &self.outline).into_iter().chain(front_pages(&self.settings, &self.outline)) {
            self.staging.write(&file)?;
        }
        if let Some(file) = self.entries.last() {
            self.staging.write(&file)?;
        }
        let (staging, count) = (&mut self.staging, self.entries.count());
        write_words(self.postings, count, |file| staging.write(&file))?;
        for (path, text) in [("style.css", STYLE), ("search.js", SEARCH), ("icon.svg", ICON), (".nojekyll", "")] {
            self.staging.write(&File::new(path, text))?;
        }
        self.staging.complete()
    }

    fn check_complete(&self) -> Result<(), SiteError> {
        let missing = |what, name: &str| Err(SiteError::NotWritten { what, name: name.to_owned() });
        if let Some(path) = self.outline.pages().keys().find(|path| !self.staging.has(&names::of_document(path))) {
            return missing("document", path);
        }
        if let Some(fact) = self.outline.facts().get(self.facts) {
            return missing("fact", &fact.id);
        }
        match self.outline.entities().keys().find(|name| !self.staging.has(&names::of_entity(name))) {
            Some(name) => missing("entity", name),
            None => Ok(()),
        }
    }

    fn write_facts(&mut self) -> Result<(), SiteError> {
        let number = self.facts.saturating_sub(1) / FACTS_OF_PAGE;
        let file = facts_page(&self.settings, &self.outline, number, &self.cards);
        self.cards.clear();
        self.staging.write(&file)
    }

    fn index(&mut self, mut entry: Entry) -> Result<(), SiteError> {
        let words = std::mem::take(&mut entry.words);
        let (number, complete) = self.entries.add(&entry);
        if let Some(file) = complete {
            self.staging.write(&file)?;
        }
        self.postings.add(number, words).map_err(SiteError::Index)
    }
}
