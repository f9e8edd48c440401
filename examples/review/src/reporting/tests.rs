use std::path::PathBuf;

use super::*;
use crate::comparing::compare;
use crate::languages::Language;
use crate::listing::{Scope, SkipReason, Skipped, SourceFile};
use crate::measuring::{measure, repeated_blocks, settle};
use crate::reviewing::closer_look;

/// A tree that is measured, ready to be shown.
struct Tree {
    listing: Listing,
    measurements: Vec<Measurement>,
    repeated: Vec<Finding>,
}

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        let source = |(path, text): &(&str, &str)| SourceFile {
            path: (*path).to_owned(),
            language: Language::of(std::path::Path::new(path)).unwrap(),
            bytes: text.len() as u64,
        };
        let mut measurements: Vec<_> = files.iter().map(|file| measure(&source(file), file.1)).collect();
        settle(&mut measurements);
        let repeated = repeated_blocks(&measurements);
        let listing = Listing { root: PathBuf::new(), files: files.iter().map(source).collect(), skipped: Vec::new() };
        Self { listing, measurements, repeated }
    }

    fn review<'a>(&'a self, changes: Option<&'a Changes>) -> Review<'a> {
        let Self { listing, measurements, repeated } = self;
        Review {
            title: "sample",
            date: "2026-01-01",
            listing,
            measurements,
            repeated,
            closer: &[],
            scope: &Scope::Everything,
            changes,
        }
    }

    fn findings(&self) -> Vec<Finding> {
        self.review(None).findings().into_iter().cloned().collect()
    }
}

const BLOCK: &str = "    a.one();\n    a.two();\n    a.three();\n    a.four();\n    a.five();\n    a.six();\n    a.seven();\n    a.eight();\n";

fn sample() -> Tree {
    let lib = format!("//! Room.\npub fn open() {{\n    x.unwrap();\n    y.unwrap();\n}}\nfn a() {{\n{BLOCK}}}\n");
    let old = format!("fn b() {{\n{BLOCK}    // TODO: use a_b *once*\n    todo!()\n}}\n");
    let tool = "def run():\n    try:\n        go()\n    except:\n        pass\n";
    Tree::new(&[("src/lib.rs", &lib), ("src/old.rs", &old), ("tool.py", tool)])
}

#[test]
fn a_report_reads_well() {
    let mut tree = sample();
    let earlier = Tree::new(&[(
        "tool.py",
        "def run():\n    'Runs.'\n    # TODO: stop\n    try:\n        go()\n    except:\n        pass\n",
    )]);
    tree.listing.skipped.push(Skipped { path: "src/big.rs".to_owned(), reason: SkipReason::TooLarge });
    let changes = compare(&earlier.findings(), &tree.findings(), |_| true);
    insta::assert_snapshot!("report", markdown(&tree.review(Some(&changes))));
    insta::assert_snapshot!("terminal", terminal(&tree.review(Some(&changes))));
}

#[test]
fn a_report_shows_where_reviewers_looked_and_why_only_there() {
    let tree = sample();
    let looks: Vec<_> = tree.measurements.iter().filter_map(|file| closer_look(file, "")).collect();
    let narrowed = Scope::Folders(vec!["src".to_owned()]);
    let narrow = markdown(&Review { closer: &looks, scope: &narrowed, ..tree.review(None) });
    let reported =
        "The tree scores below 80, so reviewers looked where its findings weigh most: in `src` (2 of 3 files).";
    assert!(narrow.contains(reported), "{narrow}");
    let whole = markdown(&Review { closer: &looks, ..tree.review(None) });
    assert!(whole.contains("## A closer look\n\n- "), "{whole}");
}

#[test]
fn a_clean_tree_is_reported_as_clean() {
    let tree = Tree::new(&[("src/lib.rs", "/// Adds.\npub fn add() {}\n")]);
    let report = markdown(&tree.review(None));
    assert!(report.contains("score **100** of 100"));
    assert!(report.contains("Nothing was found."));
    assert!(!report.contains("##"));
}

#[test]
fn an_empty_tree_gets_no_praise() {
    let tree = Tree::new(&[]);
    assert_eq!(markdown(&tree.review(None)), "# Review of `sample`\n\n2026-01-01 · no source file was measured\n");
    assert_eq!(terminal(&tree.review(None)), "sample: no source file was measured\n");
}

#[test]
fn a_clean_tree_and_a_mess_are_far_apart() {
    let clean = format!("/// Adds.\npub fn add() {{\n{}}}\n", "    step();\n".repeat(50));
    assert!(Tree::new(&[("src/lib.rs", &clean)]).review(None).score().value() >= 90);
    let mess = "pub fn f() { if a { if b { if c { if d { if e { x.unwrap(); todo!() } } } } } }\n".repeat(20);
    assert!(Tree::new(&[("src/lib.rs", &mess)]).review(None).score().value() < 50);
}

#[test]
fn hostile_names_and_comments_break_nothing() {
    let path = "a\n# b`c`|d\x1b[31m\u{202e}.rs";
    let tree = Tree::new(&[(path, "// TODO: <b>x</b> \x1b]0;y\x07 | ![z](http://w) `q`\nfn f() { a.unwrap(); }\n")]);
    let report = markdown(&tree.review(None));
    let summary = terminal(&tree.review(None));
    for shown in [&report, &summary] {
        assert!(!shown.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{shown}");
    }
    assert!(!report.lines().any(|line| line.starts_with("# b")));
    assert!(report.contains("``a\\u{a}# b`c`|d\\u{1b}[31m\\u{202e}.rs``"));
    assert!(report.contains("\\<b\\>x\\</b\\>"));
    assert!(report.contains("!\\[z\\](http://w)"));
    let columns = |line: &str| line.matches('|').count();
    assert!(report.lines().filter(|line| line.starts_with('|')).all(|line| columns(line) == 6));
}

#[test]
fn a_report_on_a_large_tree_stays_readable() {
    let text = "pub fn f() { x.unwrap(); todo!() }\n// TODO: a\n// FIXME: b\n".repeat(40);
    let paths: Vec<String> = (0..100).map(|number| format!("src/file_{number}.rs")).collect();
    let files: Vec<_> = paths.iter().map(|path| (path.as_str(), text.as_str())).collect();
    let report = markdown(&Tree::new(&files).review(None));
    assert!(report.lines().count() < 450, "{}", report.lines().count());
    assert!(report.contains("… and 80 files more with"));
    assert!(report.lines().all(|line| line.len() < 1500));
}

#[test]
fn no_line_is_reported_twice() {
    let report = markdown(&sample().review(None));
    let mut lines: Vec<&str> = report.lines().filter(|line| !line.is_empty()).collect();
    let all = lines.len();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), all);
}

#[test]
fn numbers_are_grouped() {
    assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    assert_eq!(counted(1, "file", "files"), "1 file");
}
