//! Turns findings into a score, and a bad score into a question for the scout.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::findings::{Finding, Kind, Severity};
use crate::listing::{Listing, Scope, folder_of};
use crate::measuring::Measurement;

/// Below this a closer look is worth it.
pub(crate) const ACCEPTABLE: u8 = 80;

/// Folders in a narrower scope.
const WORST_FOLDERS: usize = 3;

/// Penalty per 1,000 code lines at which a score is 50.
const HALF: f64 = 60.0;

/// Fewer code lines than this weigh as this many, so that one finding does not condemn a small file.
const FEWEST_LINES: usize = 150;

/// Quality from 0 to 100.
///
/// Each finding has a weight (high 8, medium 3, low a half, and a mark never more than 1). With `p` as the sum of weights per 1,000 code lines (of at
/// least 150), the score is `100 · 60 / (60 + p)`: 100 without findings, 90 at 7 points per 1,000 lines, 50 at 60.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Score(u8);

impl Score {
    /// The score of `findings` in `code_lines` lines of code.
    pub(crate) fn new<'a>(findings: impl IntoIterator<Item = &'a Finding>, code_lines: usize) -> Self {
        let weight: f64 = findings.into_iter().map(weight).sum();
        let penalty = weight * 1000.0 / code_lines.max(FEWEST_LINES) as f64;
        Self((100.0 * HALF / (HALF + penalty)).round() as u8)
    }

    /// The score as a number.
    pub(crate) fn value(self) -> u8 {
        self.0
    }

    /// Whether no closer look is needed.
    pub(crate) fn is_acceptable(self) -> bool {
        self.0 >= ACCEPTABLE
    }
}

/// How much a finding counts.
pub(crate) fn weight(finding: &Finding) -> f64 {
    let weight: f64 = match finding.severity {
        Severity::High => 8.0,
        Severity::Medium => 3.0,
        Severity::Low => 0.5,
    };
    if finding.kind == Kind::Mark { weight.min(1.0) } else { weight }
}

/// Share of the listed source bytes that is measured, from 0 to 1; 1 for an empty listing.
pub(crate) fn coverage(listing: &Listing, measured: &[Measurement]) -> f64 {
    let bytes: u64 = measured.iter().map(|measurement| measurement.bytes).sum();
    match listing.bytes() {
        0 => 1.0,
        total => (bytes as f64 / total as f64).min(1.0),
    }
}

/// The folders whose files weigh most, heaviest first and equal ones by name; `None` when there is nothing to look at
/// or nothing narrower than the whole listing.
pub(crate) fn narrower_scope(findings: &[Finding], listing: &Listing) -> Option<Scope> {
    let mut weights: BTreeMap<&str, f64> = BTreeMap::new();
    for finding in findings {
        *weights.entry(folder_of(&finding.file)).or_default() += weight(finding);
    }
    let mut folders: Vec<_> = weights.into_iter().collect();
    folders.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    (1..=WORST_FOLDERS.min(folders.len())).rev().find_map(|count| {
        let scope = Scope::Folders(folders[..count].iter().map(|(folder, _)| (*folder).to_owned()).collect());
        listing.files.iter().any(|file| !scope.covers(&file.path)).then_some(scope)
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::findings::{Observation, seal};
    use crate::languages::Language;
    use crate::listing::SourceFile;

    fn findings(file: &str, severity: Severity, count: usize) -> Vec<Finding> {
        let observation = |line| Observation {
            kind: Kind::Panic,
            severity,
            line,
            subject: String::new(),
            message: String::new(),
            size: 1,
            snippet: String::new(),
            places: Vec::new(),
        };
        seal(file, (1..=count).map(observation).collect())
    }

    fn listing(paths: &[&str]) -> Listing {
        let file = |path: &&str| SourceFile { path: (*path).to_owned(), language: Language::Rust, bytes: 100 };
        Listing { root: PathBuf::new(), files: paths.iter().map(file).collect(), skipped: Vec::new() }
    }

    #[test]
    fn the_score_falls_with_the_weight_of_the_findings() {
        let score = |severity, count, lines| Score::new(&findings("a.rs", severity, count), lines).value();
        assert_eq!(score(Severity::High, 0, 0), 100);
        assert_eq!(score(Severity::Low, 14, 1000), 90);
        assert_eq!(score(Severity::Medium, 20, 1000), 50);
        assert!(score(Severity::High, 20, 1000) < 30);
        assert!(score(Severity::High, 1000, 1000) < 2);
        assert!(score(Severity::Medium, 1, 10) > 70, "one finding does not condemn a small file");
    }

    #[test]
    fn coverage_is_the_share_of_bytes() {
        let listing = listing(&["a.rs", "b.rs", "c.rs", "d.rs"]);
        let measured = crate::measuring::measure(&listing.files[0], "");
        assert_eq!(coverage(&listing, &[]), 0.0);
        assert_eq!(coverage(&listing, &[measured]), 0.25);
        assert_eq!(coverage(&Listing { files: Vec::new(), ..listing }, &[]), 1.0);
    }

    #[test]
    fn the_narrower_scope_holds_the_heaviest_folders() {
        let listing = listing(&["x/a.rs", "y/b.rs", "z/c.rs", "w/d.rs", "e.rs"]);
        let all = [("w/d.rs", 1), ("x/a.rs", 2), ("y/b.rs", 9), ("z/c.rs", 2)];
        let all: Vec<_> = all.iter().flat_map(|(file, count)| findings(file, Severity::Low, *count)).collect();
        let expected = ["y", "x", "z"].map(str::to_owned).to_vec();
        assert_eq!(narrower_scope(&all, &listing), Some(Scope::Folders(expected)));
        assert_eq!(narrower_scope(&[], &listing), None);
    }

    #[test]
    fn a_scope_is_narrower_than_the_listing_or_absent() {
        let two = listing(&["x/a.rs", "y/b.rs"]);
        let both = [findings("x/a.rs", Severity::Low, 1), findings("y/b.rs", Severity::High, 1)].concat();
        assert_eq!(narrower_scope(&both, &two), Some(Scope::Folders(vec!["y".to_owned()])));
        assert_eq!(narrower_scope(&both[..1], &listing(&["x/a.rs"])), None);
    }
}
