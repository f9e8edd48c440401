//! The list of a site's files, by which it is known what was written and may be deleted. Pure.
//!
//! A line is that of `sha256sum`, and what is none begins with `#`: `sha256sum --check callboard-site.txt` checks a site.

use std::collections::{BTreeMap, BTreeSet};

use crate::site_marker::MARKER;

/// What the marker begins with.
const MARK: &str = "# This folder is a site that callboard wrote.";
/// What it began with before it had a list.
const MARK_WITHOUT_LIST: &str = "This folder is a site that callboard wrote.";
const CONTENTS: &str = "# contents: sha256 ";

/// What the list of a site that is being written begins with.
pub(super) const STAGING_MARK: &str = "# callboard is writing a site into this folder.\n";

/// Files at the top of a site.
const FILES: [&str; 5] = [".nojekyll", "icon.svg", "index.html", "search.js", "style.css"];
/// Folders at the top of a site, each with how its files end.
const FOLDERS: [(&str, &str); 6] = [
    ("entities", ".html"),
    ("entity", ".html"),
    ("facts", ".html"),
    ("folders", ".html"),
    ("pages", ".html"),
    ("search", ".js"),
];

/// Returns the line of a file, which [`Listing`] reads.
pub(super) fn line(path: &str, sha256: &str) -> String {
    format!("{sha256}  {path}\n")
}

/// Returns the marker of a site that has these lines, and this digest of them.
pub(super) fn marker(digest: &str, lines: &str) -> String {
    format!(
        "{MARK} It is replaced as a whole when the site is written again, unless something is in it that is not listed here.\n\
         {CONTENTS}{digest}\n{lines}"
    )
}

/// Whether a site can have a file of this path. The list of a marker that somebody else wrote has no others either.
pub(super) fn is_of_a_site(path: &str) -> bool {
    match path.split_once('/') {
        None => FILES.contains(&path),
        Some((folder, rest)) => {
            let has_folder = FOLDERS.iter().any(|(name, end)| folder == *name && rest.ends_with(end));
            has_folder && !rest.split('/').any(|part| matches!(part, "" | "." | ".."))
        }
    }
}

/// The files of a site, each with its SHA-256.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// The digest of the contents, which two sites of the same contents share. Empty while the site is written.
    pub(super) digest: String,
    files: BTreeMap<String, String>,
    folders: BTreeSet<String>,
    /// The file of the last line, if it may be incomplete.
    begun: Option<String>,
}

impl Listing {
    /// Reads a marker. `Err` says what is wrong with it, as the end of "because".
    pub(super) fn of_site(marker: &str) -> Result<Self, String> {
        if marker.starts_with(MARK_WITHOUT_LIST) {
            return Err(format!(
                "its {MARKER} is that of an earlier version and does not list the files of the site; if nothing in the folder is yours, delete it"
            ));
        }
        let digest =
            || marker.starts_with(MARK).then(|| marker.lines().find_map(|line| line.strip_prefix(CONTENTS)))?;
        let digest = digest().ok_or_else(|| format!("its {MARKER} is not that of a site"))?;
        let mut listing = Self { digest: digest.to_owned(), ..Self::default() };
        match marker.lines().filter(|line| !line.starts_with('#')).find(|line| !listing.add(line)) {
            None => Ok(listing),
            Some(line) => {
                let shown = super::texts::label(line);
                Err(format!("its {MARKER} has the line {shown:?}, which is not of a file of a site"))
            }
        }
    }

    /// Reads the list of a site that is being written; `None` if it is none. Of the file in its last line only a part may be there. One that was
    /// not begun is empty.
    pub(super) fn of_staging(list: &str) -> Option<Self> {
        let mut listing = Self::default();
        let lines = if list.is_empty() { list } else { list.strip_prefix(STAGING_MARK)? };
        for line in lines.split_inclusive('\n') {
            match line.strip_suffix('\n') {
                Some(line) if listing.add(line) => {}
                Some(_) => return None,
                // The line of a file that was not begun.
                None => break,
            }
        }
        Some(listing)
    }

    fn add(&mut self, line: &str) -> bool {
        let Some((sha256, path)) = line.split_once("  ").filter(|(_, path)| is_of_a_site(path)) else { return false };
        for (end, _) in path.match_indices('/') {
            self.folders.insert(path[..end].to_owned());
        }
        self.files.insert(path.to_owned(), sha256.to_owned());
        self.begun = self.digest.is_empty().then(|| path.to_owned());
        true
    }

    /// The files, in the order of their paths.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The folders of the files, each after those within it.
    pub(super) fn folders_inside_out(&self) -> impl Iterator<Item = &str> {
        self.folders.iter().rev().map(String::as_str)
    }

    pub(super) fn has_folder(&self, path: &str) -> bool {
        self.folders.contains(path)
    }

    pub(super) fn has_file(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// Whether a file of the list may have these contents.
    pub(super) fn may_be(&self, path: &str, sha256: &str) -> bool {
        self.files.get(path).is_some_and(|listed| listed == sha256) || self.begun.as_deref() == Some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_as_it_was_written() {
        let lines = line("index.html", "0a") + &line("pages/docs/a.md.html", "0b");
        let listing = Listing::of_site(&marker("0c", &lines)).unwrap();
        assert_eq!(
            (&*listing.digest, listing.files().collect::<Vec<_>>()),
            ("0c", vec!["index.html", "pages/docs/a.md.html"])
        );
        assert_eq!(listing.folders_inside_out().collect::<Vec<_>>(), ["pages/docs", "pages"]);
        assert!(listing.may_be("index.html", "0a") && !listing.may_be("index.html", "0b"));
        assert!(
            !listing.may_be("pages/docs/a.md.html", "0a") && !listing.has_file("pages") && listing.has_folder("pages")
        );
    }

    #[test]
    fn a_marker_that_lists_what_no_site_has_is_refused() {
        for path in [
            "thesis.md",
            "../index.html",
            "/etc/passwd",
            "pages/../a.html",
            "pages//a.html",
            "pages/./a.html",
            "pages/a.md",
            "search/a.html",
            "pages",
            "pages/",
            ".git/a.html",
            MARKER,
            "",
        ] {
            let read = Listing::of_site(&marker("0c", &line(path, "0a")));
            assert!(read.is_err_and(|why| why.contains("not of a file of a site")), "{path}");
        }
        assert!(Listing::of_site("mine").unwrap_err().contains("is not that of a site"));
        let before = format!(
            "{MARK_WITHOUT_LIST} It is replaced as a whole when the site is written again.\ncontents: sha256 0a\n"
        );
        assert!(Listing::of_site(&before).unwrap_err().contains("earlier version"));
    }

    #[test]
    fn of_a_site_that_is_being_written_the_last_file_may_be_incomplete() {
        let list = STAGING_MARK.to_owned() + &line("index.html", "0a") + &line("style.css", "0b");
        let listing = Listing::of_staging(&(list.clone() + "0d  sear")).unwrap();
        assert!(listing.may_be("style.css", "0c") && !listing.may_be("index.html", "0c") && !listing.has_file("sear"));
        assert_eq!(Listing::of_staging(&(list + &line("thesis.md", "0a"))), None);
        assert_eq!(Listing::of_staging(""), Some(Listing::default()));
        assert_eq!(Listing::of_staging("mine"), None);
    }
}
