//! Which word is in which entry, sorted in bounded memory: what does not fit is sorted in parts, which are merged at the end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Seek as _, Write as _};
use std::path::PathBuf;

/// What is held in memory before it is written into a file, in bytes.
const MAX_HELD: usize = 32 * 1024 * 1024;
/// What a posting takes in memory beside its word, in bytes.
const OF_POSTING: usize = size_of::<Posting>() + 16;

/// A word in an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Posting {
    pub(super) word: String,
    pub(super) entry: u32,
    pub(super) weight: u8,
}

/// All postings, added in any order.
#[derive(Debug)]
pub(in crate::site) struct Postings {
    held: Vec<Posting>,
    held_bytes: usize,
    max_held: usize,
    /// Sorted parts, in files without a name.
    runs: Vec<File>,
    /// The folder of these files.
    folder: PathBuf,
}

impl Postings {
    pub(in crate::site) fn new(folder: PathBuf) -> Self {
        Self { held: Vec::new(), held_bytes: 0, max_held: MAX_HELD, runs: Vec::new(), folder }
    }

    /// Adds the words of an entry.
    pub(in crate::site) fn add(&mut self, entry: u32, words: impl IntoIterator<Item = (String, u8)>) -> io::Result<()> {
        for (word, weight) in words {
            self.held_bytes += word.len() + OF_POSTING;
            self.held.push(Posting { word, entry, weight });
        }
        if self.held_bytes > self.max_held { self.write_run() } else { Ok(()) }
    }

    fn write_run(&mut self) -> io::Result<()> {
        self.held.sort_unstable();
        let mut run = BufWriter::new(tempfile::tempfile_in(&self.folder)?);
        for posting in self.held.drain(..) {
            // Words have letters, digits, marks and underscores alone.
            writeln!(run, "{}\t{}\t{}", posting.word, posting.entry, posting.weight)?;
        }
        let mut run = run.into_inner().map_err(io::IntoInnerError::into_error)?;
        run.rewind()?;
        self.runs.push(run);
        self.held_bytes = 0;
        Ok(())
    }

    /// Returns all postings in the order of their words and entries.
    pub(super) fn into_sorted(mut self) -> io::Result<Sorted> {
        self.held.sort_unstable();
        let mut sources: Vec<Source> = self.runs.into_iter().map(|run| Source::Run(BufReader::new(run))).collect();
        sources.push(Source::Held(self.held.into_iter()));
        let mut next = BinaryHeap::with_capacity(sources.len());
        for (place, source) in sources.iter_mut().enumerate() {
            next.extend(source.next()?.map(|posting| Reverse((posting, place))));
        }
        Ok(Sorted { sources, next })
    }
}

#[derive(Debug)]
enum Source {
    Run(BufReader<File>),
    Held(std::vec::IntoIter<Posting>),
}

impl Source {
    fn next(&mut self) -> io::Result<Option<Posting>> {
        let run = match self {
            Self::Held(held) => return Ok(held.next()),
            Self::Run(run) => run,
        };
        let mut line = String::new();
        if run.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let mut fields = line.trim_end_matches('\n').split('\t');
        let posting = (|| {
            let word = fields.next()?.to_owned();
            Some(Posting { word, entry: fields.next()?.parse().ok()?, weight: fields.next()?.parse().ok()? })
        })();
        // The file has no name, so nobody else could have written into it.
        posting
            .map(Some)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a line of a sorted part is damaged"))
    }
}

/// All postings in order.
#[derive(Debug)]
pub(super) struct Sorted {
    sources: Vec<Source>,
    next: BinaryHeap<Reverse<(Posting, usize)>>,
}

impl Iterator for Sorted {
    type Item = io::Result<Posting>;

    fn next(&mut self) -> Option<io::Result<Posting>> {
        let Reverse((posting, place)) = self.next.pop()?;
        match self.sources[place].next() {
            Ok(following) => self.next.extend(following.map(|following| Reverse((following, place)))),
            Err(error) => return Some(Err(error)),
        }
        Some(Ok(posting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postings_that_do_not_fit_in_memory_come_in_the_same_order() {
        let folder = tempfile::tempdir().unwrap();
        let sorted = |max_held| {
            let mut postings = Postings { max_held, ..Postings::new(folder.path().to_owned()) };
            for entry in 0..300 {
                let words = [format!("w{}", entry * 7 % 31), "größe".to_owned(), format!("e{entry}")];
                postings.add(entry, words.map(|word| (word, 3))).unwrap();
            }
            let runs = postings.runs.len();
            (runs, postings.into_sorted().unwrap().collect::<io::Result<Vec<Posting>>>().unwrap())
        };
        let ((none, in_memory), (several, merged)) = (sorted(MAX_HELD), sorted(5_000));
        assert!(none == 0 && several > 3, "{none} and {several} files");
        assert_eq!(in_memory.len(), 900);
        assert!(in_memory.is_sorted());
        assert_eq!(merged, in_memory);
    }
}
