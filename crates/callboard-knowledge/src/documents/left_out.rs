//! Why a file, or a part of one, is not indexed.

use thiserror::Error;

/// Why a file, or a part of one, is not indexed. As an error it is about the whole file, in
/// [`Document::leaves_out`](super::Document::leaves_out) about a part.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LeftOut {
    /// The file has no text.
    #[error("the file is empty or has only white space")]
    Empty,
    /// The file is larger than the limit.
    #[error("the file has {bytes} bytes, and at most {limit} are read, a limit that no option raises: split it")]
    TooLarge {
        /// The size of the file.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The file has a NUL, which no text has.
    #[error("the file is binary: byte {at} is NUL")]
    Binary {
        /// The position of the first NUL, from 0.
        at: usize,
    },
    /// What is at the path is not a file, but a folder, a pipe or a device.
    #[error("it is no file")]
    NoFile,
    /// What has been found in a folder is not a file, and is not opened.
    #[error("it is a {kind}")]
    Special {
        /// What it is.
        kind: &'static str,
    },
    /// The file is UTF-16 or UTF-32.
    #[error("the file is UTF-16 or UTF-32: convert it to UTF-8")]
    Utf16,
    /// Many bytes are no UTF-8.
    #[error("{sequences} sequences of bytes are not UTF-8, the first at byte {at}: convert the file to UTF-8")]
    NotUtf8 {
        /// The position of the first, from 0.
        at: usize,
        /// How many there are.
        sequences: usize,
    },
    /// Few bytes are no UTF-8: each sequence of them is read as U+FFFD.
    #[error(
        "only bytes that are not UTF-8 ({sequences} sequences, the first at byte {at}); the rest of the file is indexed: convert it to UTF-8"
    )]
    SomeNotUtf8 {
        /// The position of the first, from 0.
        at: usize,
        /// How many there are.
        sequences: usize,
    },
    /// Markdown is nested deeper than it is read. Its text is read as plain text, without headings and links.
    #[error(
        "only its headings and links, because line {line} is nested deeper than {limit} levels; the file is indexed as plain text"
    )]
    NestedTooDeep {
        /// The first such line, from 1.
        line: u32,
        /// The limit.
        limit: usize,
    },
    /// The document has more passages than the limit; the text from this line on is left out.
    #[error(
        "only its text from line {from_line} on, because a document has at most {limit} passages, a limit that no option raises; the rest of the file is indexed: split it"
    )]
    TooManyPassages {
        /// The first line that is left out, from 1.
        from_line: u32,
        /// The limit.
        limit: usize,
    },
    /// The document has more links than the limit; the text of the others is read, their targets are not.
    #[error(
        "only its links after the first {limit} ({count}), a limit that no option raises; the rest of the file is indexed"
    )]
    TooManyLinks {
        /// How many links are left out.
        count: usize,
        /// The limit.
        limit: usize,
    },
    /// Links lead out of the folder that is indexed; their text is read, their targets are not.
    #[error("only its links that lead out of the folder ({count}); the rest of the file is indexed")]
    LinksOutside {
        /// How many links are left out.
        count: usize,
    },
}
