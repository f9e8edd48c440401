//! The first page: what the base contains, and its documents by folder. Pure.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::description::SiteSettings;
use super::files::File;
use super::layout::{Part, framed, grouped, pager};
use super::outline::Outline;
use super::{names, texts};

/// The most documents that are all listed on the first page. With more, each folder has a list of its own.
const MAX_ON_FIRST_PAGE: usize = 500;
/// The documents of a page of a folder's list.
const OF_LIST: usize = 500;

/// The paths and titles of documents by their folders.
type Folders<'a> = BTreeMap<&'a str, Vec<(&'a str, &'a str)>>;

/// Returns the link to the list of a folder's documents, relative to the site.
pub(super) fn link_to_folder(outline: &Outline, folder: &str) -> String {
    if outline.pages().len() <= MAX_ON_FIRST_PAGE {
        format!("index.html{}", names::fragment(&folder_id(folder)))
    } else {
        names::of_folder(folder, 0)
    }
}

/// Returns the name under which a folder is shown.
pub(super) fn name_of_folder(folder: &str) -> String {
    if folder.is_empty() { "Top folder".to_owned() } else { texts::label(folder) }
}

fn folder_id(folder: &str) -> String {
    format!("kb:folder-{}", names::anchor(folder))
}

/// Returns the first page, and the lists of folders if there are any.
pub(super) fn front_pages(settings: &SiteSettings, outline: &Outline) -> Vec<File> {
    let mut folders = Folders::new();
    for (path, page) in outline.pages() {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        folders.entry(folder).or_default().push((path, &page.title));
    }
    let mut files = vec![first_page(settings, outline, &folders)];
    if outline.pages().len() > MAX_ON_FIRST_PAGE {
        files.extend(folders.iter().flat_map(|(folder, documents)| lists(settings, folder, documents)));
    }
    files
}

fn first_page(settings: &SiteSettings, outline: &Outline, folders: &Folders<'_>) -> File {
    let counts = [
        (outline.pages().len(), "document", "documents", "#kb:documents"),
        (outline.facts().len(), "fact", "facts", "facts/index.html"),
        (outline.entities().len(), "entity", "entities", "entities/index.html"),
    ];
    let is_long = outline.pages().len() > MAX_ON_FIRST_PAGE;
    let contents = html! {
        main.list.first id="kb:main" {
            h1 { bdi { (texts::label(&settings.title)) } }
            @if let Some(about) = &settings.about { p.lead { (texts::lines(texts::beginning(about, 2_000).0)) } }
            ul.counts {
                @for (count, one, many, target) in counts {
                    li { a href=(target) { strong { (grouped(count)) } " " (if count == 1 { one } else { many }) } }
                }
            }
            @if let Some(as_of) = &settings.as_of { p.as-of { "As of " (texts::label(as_of)) "." } }
            div.documents id="kb:documents" {
                @if folders.is_empty() { p.lead { "The base has no documents yet." } }
                @if is_long {
                    h2 { "Folders" }
                    ul.plain {
                        @for (folder, documents) in folders {
                            li { a href=(names::of_folder(folder, 0)) { (name_of_folder(folder)) } " " span.count { (grouped(documents.len())) } }
                        }
                    }
                } @else {
                    @for (folder, documents) in folders {
                        section id=(folder_id(folder)) {
                            h2 { (name_of_folder(folder)) " " span.count { (grouped(documents.len())) } }
                            (list_of("", documents))
                        }
                    }
                }
            }
        }
    };
    File::html("index.html", framed(settings, "index.html", &settings.title, Part::Contents, &contents))
}

fn lists(settings: &SiteSettings, folder: &str, documents: &[(&str, &str)]) -> Vec<File> {
    let pages = documents.chunks(OF_LIST);
    let count = pages.len();
    let list = |(number, documents): (usize, &[(&str, &str)])| {
        let file = names::of_folder(folder, number);
        let root = names::root(&file);
        let name = name_of_folder(folder);
        let contents = html! {
            main.list id="kb:main" {
                nav.place aria-label="Place" { a href={ (root) "index.html" } { "Documents" } }
                h1 { bdi { (name) } }
                (list_of(&root, documents))
                (pager(number, count, |page| format!("{root}{}", names::of_folder(folder, page))))
            }
        };
        File::html(&file, framed(settings, &file, &name, Part::Contents, &contents))
    };
    pages.enumerate().map(list).collect()
}

fn list_of(root: &str, documents: &[(&str, &str)]) -> Markup {
    html! {
        ul.documents {
            @for (path, title) in documents {
                li {
                    a href={ (root) (names::of_document(path)) } { bdi { (title) } }
                    " " span.where { (texts::label(path.rsplit('/').next().unwrap_or_default())) }
                }
            }
        }
    }
}
