//! A closer look at one file: where its findings gather, and what it would gain from dealing with the worst of them. Items
//! without a description are left out: their position has no information about the code.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::findings::{Finding, Kind};
use crate::measuring::Measurement;
use crate::scoring::{Score, weight};

/// Spots that are named.
const SPOTS: usize = 3;

/// Characters of a quoted line.
const QUOTE: usize = 100;

/// What a reviewer says about a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CloserLook {
    pub(crate) file: String,
    pub(crate) score: Score,
    /// The heaviest first; never empty.
    pub(crate) spots: Vec<Spot>,
    /// The score without the findings of these spots.
    pub(crate) after: Score,
}

/// A function, or another named thing, in which findings gather.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spot {
    /// Empty at file level.
    pub(crate) subject: String,
    /// Where its heaviest finding is, counted from 1.
    pub(crate) line: usize,
    pub(crate) findings: usize,
    /// That line of the file.
    pub(crate) quote: String,
}

/// Looks at a measured file's text as it is now; `None` when nothing was found in it.
pub(crate) fn closer_look(measurement: &Measurement, text: &str) -> Option<CloserLook> {
    let mut groups: BTreeMap<&str, Vec<&Finding>> = BTreeMap::new();
    for finding in telling(measurement) {
        // Marks belong to the file, whatever their word.
        let spot = if finding.kind == Kind::Mark { "" } else { &*finding.subject };
        groups.entry(spot).or_default().push(finding);
    }
    let total = |group: &[&Finding]| group.iter().map(|finding| weight(finding)).sum::<f64>();
    let mut groups: Vec<(&str, Vec<&Finding>)> = groups.into_iter().collect();
    groups.sort_by(|a, b| total(&b.1).total_cmp(&total(&a.1)).then(a.1[0].line.cmp(&b.1[0].line)));
    let undescribed = measurement.findings.iter().filter(|finding| finding.kind == Kind::Undocumented);
    let left = groups.iter().skip(SPOTS).flat_map(|(_, findings)| findings.iter().copied());
    let after = Score::new(left.chain(undescribed), measurement.code_lines);
    let spot = |(subject, findings): &(&str, Vec<&Finding>)| {
        let heaviest = findings.iter().min_by(|a, b| weight(b).total_cmp(&weight(a)).then(a.line.cmp(&b.line)));
        let line = heaviest.map_or(1, |finding| finding.line);
        let quote = text.lines().nth(line.saturating_sub(1)).unwrap_or_default().trim();
        Spot {
            subject: (*subject).to_owned(),
            line,
            findings: findings.len(),
            quote: quote.chars().take(QUOTE).collect(),
        }
    };
    let spots: Vec<Spot> = groups.iter().take(SPOTS).map(spot).collect();
    let score = Score::new(&measurement.findings, measurement.code_lines);
    (!spots.is_empty()).then(|| CloserLook { file: measurement.file.clone(), score, spots, after })
}

/// The files that most deserve a closer look, heaviest first: those whose findings weigh at least as much as one serious
/// finding, at most `most`.
pub(crate) fn worth_a_closer_look<'a>(measurements: &[&'a Measurement], most: usize) -> Vec<&'a Measurement> {
    const LEAST: f64 = 3.0;
    let heaviness = |measurement: &Measurement| telling(measurement).map(weight).sum::<f64>();
    let mut files: Vec<&Measurement> =
        measurements.iter().copied().filter(|measurement| heaviness(measurement) >= LEAST).collect();
    files.sort_by(|a, b| heaviness(b).total_cmp(&heaviness(a)).then(a.file.cmp(&b.file)));
    files.truncate(most);
    files
}

fn telling(measurement: &Measurement) -> impl Iterator<Item = &Finding> {
    measurement.findings.iter().filter(|finding| finding.kind != Kind::Undocumented)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::languages::Language;
    use crate::listing::SourceFile;
    use crate::measuring::measure;

    fn measured(path: &str, text: &str) -> Measurement {
        measure(&SourceFile { path: path.into(), language: Language::Rust, bytes: text.len() as u64 }, text)
    }

    #[test]
    fn findings_gather_in_functions_and_the_worst_line_is_quoted() {
        let text = "fn a() {\n    x.unwrap();\n    todo!()\n}\nfn b() {\n    y.unwrap();\n}\n";
        let look = closer_look(&measured("a.rs", text), text).unwrap();
        let spots: Vec<_> =
            look.spots.iter().map(|spot| (&*spot.subject, spot.line, spot.findings, &*spot.quote)).collect();
        assert_eq!(spots, [("a", 3, 2, "todo!()"), ("b", 6, 1, "y.unwrap();")]);
        assert_eq!(look.after.value(), 100);
        assert!(look.score < look.after);
    }

    #[test]
    fn a_file_that_is_clean_or_only_undescribed_needs_no_closer_look() {
        for text in ["fn a() {}\n".to_owned(), (0..20).map(|n| format!("pub fn a{n}() {{}}\n")).collect()] {
            assert_eq!(closer_look(&measured("a.rs", &text), &text), None);
            assert!(worth_a_closer_look(&[&measured("a.rs", &text)], 3).is_empty());
        }
    }

    #[test]
    fn the_heaviest_files_come_first() {
        let files = [("a.rs", 2), ("b.rs", 5), ("c.rs", 2), ("d.rs", 0)]
            .map(|(path, count)| measured(path, &format!("fn f() {{\n{}}}\n", "    x.unwrap();\n".repeat(count))));
        let files: Vec<&Measurement> = files.iter().collect();
        let picked: Vec<&str> = worth_a_closer_look(&files, 2).iter().map(|file| file.file.as_str()).collect();
        assert_eq!(picked, ["b.rs", "a.rs"]);
    }
}
