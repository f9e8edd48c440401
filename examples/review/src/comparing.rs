//! Compares a review with an earlier one.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::findings::{Finding, Fingerprint};

/// What became of the findings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Changes {
    pub(crate) new: Vec<Finding>,
    pub(crate) fixed: Vec<Finding>,
    pub(crate) unchanged: Vec<Finding>,
    /// Found earlier in files that were not looked at this time.
    pub(crate) unseen: Vec<Finding>,
}

/// Matches findings by fingerprint. One that is gone is fixed only if this review has `looked_at` its file, which is
/// also true of a file that no longer exists.
pub(crate) fn compare(earlier: &[Finding], now: &[Finding], looked_at: impl Fn(&str) -> bool) -> Changes {
    let prints = |findings: &[Finding]| findings.iter().map(|finding| finding.fingerprint).collect::<HashSet<_>>();
    let (known, current): (HashSet<Fingerprint>, _) = (prints(earlier), prints(now));
    let (unchanged, new) = now.iter().cloned().partition(|finding| known.contains(&finding.fingerprint));
    let gone = earlier.iter().filter(|finding| !current.contains(&finding.fingerprint)).cloned();
    let (fixed, unseen) = gone.partition(|finding| looked_at(&finding.file));
    Changes { new, fixed, unchanged, unseen }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::languages::Language;
    use crate::listing::SourceFile;
    use crate::measuring::measure;

    fn findings(path: &str, text: &str) -> Vec<Finding> {
        let file = SourceFile { path: path.to_owned(), language: Language::Rust, bytes: text.len() as u64 };
        measure(&file, text).findings
    }

    #[test]
    fn new_fixed_and_unchanged_are_distinguished() {
        let earlier = findings("a.rs", "fn a() { x.unwrap(); }\nfn b() { y.unwrap(); }");
        let now = findings("a.rs", "\n// moved down\nfn b() { y.unwrap(); }\nfn c() { z.unwrap(); }");
        let changes = compare(&earlier, &now, |_| true);
        let subjects = |findings: &[Finding]| findings.iter().map(|f| f.subject.clone()).collect::<Vec<_>>();
        assert_eq!(subjects(&changes.new), ["c"]);
        assert_eq!(subjects(&changes.fixed), ["a"]);
        assert_eq!(subjects(&changes.unchanged), ["b"]);
        assert!(changes.unseen.is_empty());
    }

    #[test]
    fn what_was_not_looked_at_is_not_fixed() {
        let earlier = findings("a.rs", "fn a() { x.unwrap(); }");
        let changes = compare(&earlier, &[], |file| file != "a.rs");
        assert!(changes.fixed.is_empty());
        assert_eq!(changes.unseen, earlier);
    }

    #[test]
    fn an_equal_finding_that_is_added_counts_once() {
        let earlier = findings("a.rs", "fn a() {\nx.unwrap();\n}");
        let now = findings("a.rs", "fn a() {\nx.unwrap();\nx.unwrap();\n}");
        let changes = compare(&earlier, &now, |_| true);
        assert_eq!((changes.new.len(), changes.unchanged.len(), changes.fixed.len()), (1, 1, 0));
    }
}
