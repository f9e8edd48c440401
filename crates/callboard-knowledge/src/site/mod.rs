//! A site of static pages from a base of knowledge: documents, facts and entities with links between them, and a search.
//!
//! The site needs no server and loads nothing from elsewhere: it works when its first page is opened as a file, and on every host of static
//! files. Links are relative, so the folder can be anywhere.
//!
//! All texts are untrusted. They are inserted as text; HTML in Markdown is shown as it is written; links lead to pages of the site or to the
//! web; and each page has a policy by which a browser runs no script but the site's own. A text that addresses a model is shown like any
//! other.
//!
//! [`Outline`] has what the site will contain, so that each link is checked when it is written. [`SiteWriter`] writes one document, fact and
//! entity after another, and replaces the old site when all are complete.

mod description;
mod document_page;
mod entity_pages;
mod error;
mod fact_pages;
mod files;
mod folder;
mod front_page;
mod layout;
mod links;
mod listing;
mod markdown;
mod names;
mod outline;
mod own_files;
mod search;
mod staging;
#[cfg(test)]
mod tests;
mod texts;
mod writer;

pub use description::{Entity, FactCard, Page, Place, Section, SiteSettings, SourceRef, TextFormat};
pub use error::SiteError;
pub use folder::{Published, StagedSite, check_folder};
pub use outline::Outline;
pub use writer::SiteWriter;
