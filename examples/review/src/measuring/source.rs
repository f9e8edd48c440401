//! A file as the measurements read it.

use crate::languages::Language;
use crate::lexing::Lexed;
use crate::outlining::Outline;

/// A file, taken apart for its language.
pub(super) struct Source<'a> {
    pub(super) language: Language,
    pub(super) lexed: Lexed<'a>,
    pub(super) outline: Outline,
}
