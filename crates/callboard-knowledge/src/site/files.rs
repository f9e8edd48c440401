//! A file of a site.

/// A file: its path relative to the site, with `/`, and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) path: String,
    pub(super) bytes: Vec<u8>,
}

impl File {
    pub(super) fn html(path: &str, page: String) -> Self {
        Self { path: path.to_owned(), bytes: page.into_bytes() }
    }

    pub(super) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), bytes: text.as_bytes().to_vec() }
    }
}
