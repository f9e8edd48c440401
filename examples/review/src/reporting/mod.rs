//! Renders a review for people: as Markdown for the repository and as a few lines for the terminal.

mod markdown;
mod terminal;

use crate::comparing::Changes;
use crate::findings::{Finding, Kind, Severity};
use crate::listing::{Listing, Scope};
use crate::measuring::Measurement;
use crate::reviewing::CloserLook;
use crate::scoring::{Score, coverage};

pub(crate) use markdown::markdown;
pub(crate) use terminal::terminal;

/// Everything that a report tells.
pub(crate) struct Review<'a> {
    pub(crate) title: &'a str,
    /// As it is to be shown.
    pub(crate) date: &'a str,
    pub(crate) listing: &'a Listing,
    pub(crate) measurements: &'a [Measurement],
    pub(crate) repeated: &'a [Finding],
    /// What reviewers said about single files, worst first.
    pub(crate) closer: &'a [CloserLook],
    /// Where they looked.
    pub(crate) scope: &'a Scope,
    /// `None` for the first review of a tree.
    pub(crate) changes: Option<&'a Changes>,
}

impl<'a> Review<'a> {
    /// Every finding, file by file, the repeated blocks last.
    pub(crate) fn findings(&self) -> Vec<&'a Finding> {
        self.measurements.iter().flat_map(|measurement| &measurement.findings).chain(self.repeated).collect()
    }

    /// Code lines of all measured files.
    pub(crate) fn code_lines(&self) -> usize {
        self.measurements.iter().map(|measurement| measurement.code_lines).sum()
    }

    /// The score of the whole tree.
    pub(crate) fn score(&self) -> Score {
        Score::new(self.findings(), self.code_lines())
    }

    /// Share of the source that was measured, in whole percent; 100 only when it was all.
    fn measured_percent(&self) -> u8 {
        (coverage(self.listing, self.measurements) * 100.0).floor() as u8
    }

    /// Findings that matter most.
    fn highs(&self) -> usize {
        self.findings().iter().filter(|finding| finding.severity == Severity::High).count()
    }

    /// `12 findings, 2 of them high`.
    fn counted_findings(&self) -> String {
        let all = counted(self.findings().len(), "finding", "findings");
        match self.highs() {
            0 => all,
            highs => format!("{all}, {} of them high,", grouped(highs)),
        }
    }

    fn count(&self, kind: Kind, severity: Severity) -> usize {
        self.findings().iter().filter(|finding| finding.kind == kind && finding.severity == severity).count()
    }
}

/// `1 file`, `2 files`, `12,345 files`.
pub(crate) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { many })
}

/// A number with commas between thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    groups.iter().map(|group| String::from_utf8_lossy(group)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
