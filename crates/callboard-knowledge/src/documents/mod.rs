//! Documents: files are read into passages that are searched and cited, and into the links and names that connect them.
//!
//! [`read_document`] is pure, linear in time, and bounded by [`ReadLimits`], because documents are untrusted. All text of a document is in its
//! passages as it is in the file, so a citation can be compared with its lines; what is not there is named in
//! [`Document::leaves_out`]. Characters that deceive readers stay in the texts, and whoever shows them makes them visible.
//! [`files`] finds the files of a folder one after another, so that a folder is never in memory at once.
//!
//! | format | passages | entities and links |
//! |---|---|---|
//! | Markdown | sections, from heading to heading | headings, code spans, identifiers; links below the folder and to the web |
//! | source code | items with their comments | names that are defined, found without a parser; identifiers |
//! | HTML | paragraphs, without tags, comments, scripts and styles | identifiers |
//! | all else | paragraphs | code spans, identifiers |
//!
//! ```
//! use callboard_knowledge::documents::{ReadLimits, read_document};
//!
//! let text = "# Gate\n\nOpens at nine.\n\n## Keys\n\nSee [the times](times.md#hours).\n";
//! let document = read_document("house/gate.md", text.as_bytes(), &ReadLimits::default())?;
//! assert_eq!(document.title, "Gate");
//! assert_eq!(document.passages[1].title, "Gate > Keys");
//! assert_eq!(document.passages[1].lines, 5..=7);
//! assert_eq!(document.links[0].to, "house/times.md");
//! # Ok::<(), callboard_knowledge::documents::LeftOut>(())
//! ```

mod cuts;
mod decoding;
mod document;
mod entities;
mod folder;
mod formats;
mod html;
mod left_out;
mod lines;
mod markdown;
mod passages;
mod plain;
mod source;
mod targets;
#[cfg(test)]
mod tests;

use sha2::{Digest as _, Sha256};

pub use document::{Document, EntityKind, Link, MAX_TITLE, Mention, Passage, ReadLimits, Relation};
pub use folder::{FileError, FileFound, files};
pub use left_out::LeftOut;

use self::decoding::decode;
use self::formats::Format;
use self::markdown::Markup;
use self::passages::Passages;

/// Whether the ending of a file's name is one of Markdown.
#[must_use]
pub fn is_markdown(path: &str) -> bool {
    Format::of(path) == Format::Markdown
}

/// Reads a file. The ending of its name decides its format; what has no known ending is plain text.
///
/// The path is relative to the folder that is indexed, with `/` between its parts. Invalid UTF-8 is replaced with U+FFFD and reported in
/// [`Document::leaves_out`], if it is little.
///
/// # Errors
///
/// The whole file is left out if it is empty, larger than the limit, binary, or in another encoding than UTF-8.
pub fn read_document(path: &str, bytes: &[u8], limits: &ReadLimits) -> Result<Document, LeftOut> {
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if size > limits.bytes {
        return Err(LeftOut::TooLarge { bytes: size, limit: limits.bytes });
    }
    let decoded = decode(bytes)?;
    let text = decoded.text.as_ref();
    let format = Format::of(path);
    let page = (format == Format::Html).then(|| html::page(text));
    let text = page.as_ref().map_or(text, |page| page.text.as_str());
    if text.trim().is_empty() {
        return Err(LeftOut::Empty);
    }
    let name = entities::title(path.rsplit('/').next().unwrap_or(path));
    let mut passages = Passages::new(text, limits);
    let markup = match format {
        Format::Markdown => markdown::read(&mut passages, path, text, &name, limits),
        Format::Html => {
            let title = page.as_ref().and_then(|page| page.title.clone()).unwrap_or(name);
            plain::read(&mut passages, text, &title);
            Markup::without_links(title)
        }
        Format::Source(language) => {
            source::read(&mut passages, text, &name, language);
            passages.add_code_spans();
            Markup::without_links(name)
        }
        Format::Plain => {
            plain::read(&mut passages, text, &name);
            passages.add_code_spans();
            Markup::without_links(name)
        }
    };
    let (passages, cut) = passages.finish();
    Ok(Document {
        path: path.to_owned(),
        title: markup.title,
        hash: Sha256::digest(bytes).into(),
        passages,
        links: markup.links,
        leaves_out: decoded.replaced.into_iter().chain(markup.leaves_out).chain(cut).collect(),
    })
}
