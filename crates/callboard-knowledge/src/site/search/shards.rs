//! The files of the index.

use std::io;

use super::postings::{Posting, Postings};
use super::{Entry, literal};
use crate::site::files::File;

/// The entries of a file.
const ENTRIES_OF_FILE: u32 = 64;
/// The size from which a file of words is complete, in bytes.
const MAX_FILE: usize = 48 * 1024;
/// The most entries of a word. Of a word that more have, those in which it weighs most are kept.
const MAX_ENTRIES_OF_WORD: usize = 1_500;

/// The files of entries, which are written as the entries come.
#[derive(Debug, Default)]
pub(in crate::site) struct Entries {
    count: u32,
    open: String,
}

impl Entries {
    /// Adds an entry. Returns its number, and the file that is complete with it.
    pub(in crate::site) fn add(&mut self, entry: &Entry) -> (u32, Option<File>) {
        let number = self.count;
        self.count += 1;
        if !self.open.is_empty() {
            self.open.push_str(",\n");
        }
        let fields = [&entry.target, &entry.title, &entry.context, entry.kind.word(), &entry.excerpt].map(literal);
        self.open.push_str(&format!("[{}]", fields.join(",")));
        (number, self.count.is_multiple_of(ENTRIES_OF_FILE).then(|| self.file()))
    }

    /// Returns the file that is not complete.
    pub(in crate::site) fn last(&mut self) -> Option<File> {
        (!self.open.is_empty()).then(|| self.file())
    }

    pub(in crate::site) fn count(&self) -> u32 {
        self.count
    }

    fn file(&mut self) -> File {
        let number = (self.count - 1) / ENTRIES_OF_FILE;
        let entries = std::mem::take(&mut self.open);
        File::new(
            &format!("search/entries-{number}.js"),
            &format!("callboardSearch.entries({number},[\n{entries}\n]);\n"),
        )
    }
}

/// Writes the files of words, and the list of them.
pub(in crate::site) fn write_words<E: From<io::Error>>(
    postings: Postings,
    entries: u32,
    mut write: impl FnMut(File) -> Result<(), E>,
) -> Result<(), E> {
    let mut shards = Shards::default();
    let mut word: Vec<Posting> = Vec::new();
    for posting in postings.into_sorted()? {
        let posting = posting?;
        if word.first().is_some_and(|first| first.word != posting.word)
            && let Some(file) = shards.add(std::mem::take(&mut word))
        {
            write(file)?;
        }
        word.push(posting);
    }
    if let Some(file) = shards.add(word) {
        write(file)?;
    }
    if let Some(file) = shards.complete() {
        write(file)?;
    }
    let first = shards.first.iter().map(|word| literal(word)).collect::<Vec<_>>().join(",");
    let directory = format!("callboardSearch.directory({entries},{ENTRIES_OF_FILE},[{first}]);\n");
    write(File::new("search/directory.js", &directory))
}

#[derive(Default)]
struct Shards {
    /// The first word of each file.
    first: Vec<String>,
    open: String,
}

impl Shards {
    /// Adds a word with its entries. Returns the file that is complete with it.
    fn add(&mut self, mut postings: Vec<Posting>) -> Option<File> {
        let word = postings.first()?.word.clone();
        let count = postings.len();
        if count > MAX_ENTRIES_OF_WORD {
            postings.sort_by_key(|posting| (std::cmp::Reverse(posting.weight), posting.entry));
            postings.truncate(MAX_ENTRIES_OF_WORD);
            postings.sort_by_key(|posting| posting.entry);
        }
        let mut before = 0;
        let mut numbers = Vec::with_capacity(postings.len());
        for posting in postings {
            // The distance from the entry before it, which has fewer digits.
            numbers.push(format!("{},{}", posting.entry - before, posting.weight));
            before = posting.entry;
        }
        if self.open.is_empty() {
            self.first.push(word.clone());
        } else {
            self.open.push_str(",\n");
        }
        self.open.push_str(&format!("[{},{count},[{}]]", literal(&word), numbers.join(",")));
        if self.open.len() < MAX_FILE { None } else { self.complete() }
    }

    fn complete(&mut self) -> Option<File> {
        if self.open.is_empty() {
            return None;
        }
        let number = self.first.len() - 1;
        let words = std::mem::take(&mut self.open);
        Some(File::new(
            &format!("search/words-{number}.js"),
            &format!("callboardSearch.words({number},[\n{words}\n]);\n"),
        ))
    }
}
