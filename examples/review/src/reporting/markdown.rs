//! REVIEW.md.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Review, counted, grouped};
use crate::advising::proposals;
use crate::comparing::Changes;
use crate::escaping::{code, prose};
use crate::findings::{Finding, Kind, Place, Severity};
use crate::listing::{Scope, SkipReason, Skipped};
use crate::measuring::Measurement;
use crate::scoring::{ACCEPTABLE, Score, weight};

/// Files with a section of their own.
const FILES: usize = 20;
/// Bullets in such a section, and in a list of changes or blocks.
const BULLETS: usize = 12;
/// Places named in one bullet.
const PLACES: usize = 8;

/// What a good score must not hide.
const HIGHS_IN_A_GOOD_SCORE: &str = "The score is the weight of the findings for the size of the tree: it can be good while \
    single findings are serious.";

/// The whole report.
pub(crate) fn markdown(review: &Review<'_>) -> String {
    let mut lines = vec![format!("# Review of {}", code(review.title)), String::new(), headline(review), String::new()];
    if review.score().is_acceptable() && review.highs() > 0 {
        lines.extend([HIGHS_IN_A_GOOD_SCORE.to_owned(), String::new()]);
    }
    where_to_start(review, &mut lines);
    summary(review, &mut lines);
    if let Some(changes) = review.changes {
        since_last_review(changes, &mut lines);
    }
    closer_looks(review, &mut lines);
    files(review, &mut lines);
    repeated_blocks(review.repeated, &mut lines);
    not_measured(&review.listing.skipped, &mut lines);
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.join("\n") + "\n"
}

fn headline(review: &Review<'_>) -> String {
    if review.measurements.is_empty() {
        return format!("{} · no source file was measured", prose(review.date));
    }
    format!(
        "{} · score **{}** of 100 · {} in {} with {} · {}% of the source measured",
        prose(review.date),
        review.score().value(),
        review.counted_findings(),
        counted(review.measurements.len(), "file", "files"),
        counted(review.code_lines(), "code line", "code lines"),
        review.measured_percent(),
    )
}

fn where_to_start(review: &Review<'_>, lines: &mut Vec<String>) {
    let proposals = proposals(&review.findings());
    if proposals.is_empty() {
        let is_clean = !review.measurements.is_empty();
        lines.extend(is_clean.then(|| ["Nothing was found.".to_owned(), String::new()]).into_iter().flatten());
        return;
    }
    lines.extend(["## Where to start".to_owned(), String::new()]);
    for (index, proposal) in proposals.iter().enumerate() {
        lines.push(format!("{}. **{}**: {}.", index + 1, proposal.action, proposal.reason));
    }
    lines.push(String::new());
}

fn summary(review: &Review<'_>, lines: &mut Vec<String>) {
    let rows = Kind::ALL.map(|kind| {
        (kind, [Severity::High, Severity::Medium, Severity::Low].map(|severity| review.count(kind, severity)))
    });
    let rows: Vec<_> = rows.into_iter().filter(|(_, counts)| counts.iter().sum::<usize>() > 0).collect();
    if rows.is_empty() {
        return;
    }
    lines.extend(["## Summary".to_owned(), String::new()]);
    lines.push("| Finding | High | Medium | Low | What to do |".to_owned());
    lines.push("|:--|--:|--:|--:|:--|".to_owned());
    for (kind, counts) in rows {
        let [high, medium, low] = counts.map(|count| if count == 0 { "–".to_owned() } else { grouped(count) });
        lines.push(format!("| {} | {high} | {medium} | {low} | {} |", kind.label(), kind.remedy()));
    }
    lines.push(String::new());
}

fn since_last_review(changes: &Changes, lines: &mut Vec<String>) {
    lines.extend(["## Since the last review".to_owned(), String::new()]);
    let unseen = match changes.unseen.len() {
        0 => String::new(),
        count => format!(", {} in files that were not looked at", grouped(count)),
    };
    let [new, fixed, unchanged] = [&changes.new, &changes.fixed, &changes.unchanged].map(|list| grouped(list.len()));
    lines.extend([format!("{new} new, {fixed} fixed, {unchanged} unchanged{unseen}."), String::new()]);
    for (title, changed) in [("New", &changes.new), ("Fixed", &changes.fixed)] {
        let mut heaviest: Vec<&Finding> = changed.iter().collect();
        heaviest.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
        if !heaviest.is_empty() {
            lines.extend([format!("{title}:"), String::new()]);
        }
        bullets(heaviest.iter().map(|finding| placed(finding)).collect(), lines);
    }
}

fn closer_looks(review: &Review<'_>, lines: &mut Vec<String>) {
    if review.closer.is_empty() {
        return;
    }
    lines.extend(["## A closer look".to_owned(), String::new()]);
    if let Scope::Folders(folders) = review.scope {
        let names: Vec<String> = folders
            .iter()
            .map(|folder| if folder.is_empty() { "the root folder".to_owned() } else { code(folder) })
            .collect();
        let (all, inside) = (review.measurements.len(), |file: &&Measurement| review.scope.covers(&file.file));
        lines.extend([
            format!(
                "The tree scores below {ACCEPTABLE}, so reviewers looked where its findings weigh most: in {} ({} of {}).",
                some(&names),
                grouped(review.measurements.iter().filter(inside).count()),
                counted(all, "file", "files"),
            ),
            String::new(),
        ]);
    }
    for look in review.closer {
        let without = match look.spots.len() {
            1 => "this spot".to_owned(),
            count => format!("these {count} spots"),
        };
        let (score, after) = (look.score.value(), look.after.value());
        lines.push(format!("- {} scores {score}; without {without} it would score {after}:", code(&look.file)));
        for spot in &look.spots {
            let subject = if spot.subject.is_empty() { "at file level".to_owned() } else { code(&spot.subject) };
            let found = counted(spot.findings, "finding", "findings");
            lines.push(format!("  - {subject}, line {}, {found}: {}", spot.line, code(&spot.quote)));
        }
    }
    lines.push(String::new());
}

/// A finding with its file, for lists that mix files.
fn placed(finding: &Finding) -> String {
    let Finding { kind, subject, file, line, message, .. } = finding;
    let subject = if subject.is_empty() { String::new() } else { format!(" {}", code(subject)) };
    format!("- {}{subject}, {} line {line}: {}", kind.label(), code(file), prose(message))
}

fn files(review: &Review<'_>, lines: &mut Vec<String>) {
    let total = |file: &Measurement| file.findings.iter().map(weight).sum::<f64>();
    let mut worst: Vec<&Measurement> = review.measurements.iter().filter(|file| !file.findings.is_empty()).collect();
    worst.sort_by(|a, b| total(b).total_cmp(&total(a)).then(a.file.cmp(&b.file)));
    if worst.is_empty() {
        return;
    }
    lines.extend(["## Files, worst first".to_owned(), String::new()]);
    for file in worst.iter().take(FILES) {
        let score = Score::new(&file.findings, file.code_lines).value();
        let size = counted(file.code_lines, "code line", "code lines");
        lines.extend([
            format!("### {}", code(&file.file)),
            String::new(),
            format!("Score {score}, {size}.{}", copies(&file.file, &review.listing.skipped)),
            String::new(),
        ]);
        bullets(bullets_of(&file.findings), lines);
    }
    if let Some(rest) = worst.get(FILES..).filter(|rest| !rest.is_empty()) {
        let findings = rest.iter().map(|file| file.findings.len()).sum();
        let more = counted(rest.len(), "file", "files");
        lines.extend([format!("… and {more} more with {}.", counted(findings, "finding", "findings")), String::new()]);
    }
}

/// Where the same text stands again.
fn copies(file: &str, skipped: &[Skipped]) -> String {
    let is_copy = |other: &&Skipped| matches!(&other.reason, SkipReason::CopyOf(original) if original == file);
    let others: Vec<String> = skipped.iter().filter(is_copy).map(|copy| code(&copy.path)).collect();
    if others.is_empty() { String::new() } else { format!(" The same text stands in {}.", some(&others)) }
}

/// The bullets of a file: one for each long or deep function, mark and swallowed error; one for all panics of a sort, one
/// for all bare excepts and one for all undocumented items. The most severe come first.
fn bullets_of(findings: &[Finding]) -> Vec<String> {
    let mut sorted: Vec<(Severity, Kind, usize, String)> = Vec::new();
    let mut alike: BTreeMap<(Severity, Kind, &str), Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        let Finding { kind, severity, line, subject, message, .. } = finding;
        match kind {
            Kind::Panic => alike.entry((*severity, *kind, message)).or_default().push(finding),
            Kind::BareExcept | Kind::Undocumented => alike.entry((*severity, *kind, "")).or_default().push(finding),
            Kind::SwallowedError | Kind::DeepNesting | Kind::LongFunction | Kind::RepeatedBlock | Kind::Mark => {
                let about = if subject.is_empty() { String::new() } else { format!("{} ", code(subject)) };
                let text = format!(", line {line}: {about}{}", prose(message));
                sorted.push((*severity, *kind, *line, text));
            }
        }
    }
    for ((severity, kind, message), group) in alike {
        let sort = if message.is_empty() { String::new() } else { format!(", {}", prose(message)) };
        let text = format!("{sort}: {}", subjects(&group));
        sorted.push((severity, kind, group[0].line, text));
    }
    sorted.sort();
    let shown = |(severity, kind, _, text): (Severity, Kind, usize, String)| {
        let severity = match severity {
            Severity::High => "high",
            Severity::Medium => "medium",
            Severity::Low => "low",
        };
        format!("- **{}** ({severity}){text}", kind.label())
    };
    sorted.into_iter().map(shown).collect()
}

/// `parse` (lines 10, 14), `read` (line 20) and 7 more.
fn subjects(group: &[&Finding]) -> String {
    let mut by_subject: Vec<(&str, Vec<String>)> = Vec::new();
    for finding in group.iter().take(PLACES) {
        match by_subject.iter_mut().find(|(subject, _)| *subject == finding.subject) {
            Some((_, lines)) if lines.last() == Some(&finding.line.to_string()) => {}
            Some((_, lines)) => lines.push(finding.line.to_string()),
            None => by_subject.push((&finding.subject, vec![finding.line.to_string()])),
        }
    }
    let shown = |(subject, lines): &(&str, Vec<String>)| {
        let lines = format!("{} {}", if lines.len() == 1 { "line" } else { "lines" }, lines.join(", "));
        if subject.is_empty() { format!("at file level ({lines})") } else { format!("{} ({lines})", code(subject)) }
    };
    let mut text = by_subject.iter().map(shown).collect::<Vec<_>>().join(", ");
    if group.len() > PLACES {
        let _ = write!(text, " and {} more", group.len() - PLACES);
    }
    text
}

fn repeated_blocks(repeated: &[Finding], lines: &mut Vec<String>) {
    if repeated.is_empty() {
        return;
    }
    lines.extend(["## Repeated blocks".to_owned(), String::new()]);
    let mut largest: Vec<&Finding> = repeated.iter().collect();
    largest.sort_by(|a, b| (a.severity, b.size * b.places.len()).cmp(&(b.severity, a.size * a.places.len())));
    let place = |place: &Place| format!("{} lines {}–{}", code(&place.file), place.first, place.last);
    let shown = |finding: &&Finding| {
        let places: Vec<String> = finding.places.iter().map(place).collect();
        format!("- {} lines, {} times: {}", finding.size, places.len(), some(&places))
    };
    bullets(largest.iter().map(shown).collect(), lines);
}

fn not_measured(skipped: &[Skipped], lines: &mut Vec<String>) {
    let mut by_reason: BTreeMap<&SkipReason, Vec<&str>> = BTreeMap::new();
    for file in skipped {
        by_reason.entry(&file.reason).or_default().push(&file.path);
    }
    if by_reason.is_empty() {
        return;
    }
    lines.extend(["## Not measured".to_owned(), String::new()]);
    let shown = |(reason, paths): (&SkipReason, Vec<&str>)| {
        let paths: Vec<String> = paths.into_iter().map(code).collect();
        format!("- {}: {}", reason.label(), some(&paths))
    };
    bullets(by_reason.into_iter().map(shown).collect(), lines);
}

/// A list within a line, which stays short.
fn some(all: &[String]) -> String {
    let shown = all[..all.len().min(PLACES)].join(", ");
    match all.len().saturating_sub(PLACES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A list that stays short, and an empty line after it.
fn bullets(all: Vec<String>, lines: &mut Vec<String>) {
    let more = all.len().saturating_sub(BULLETS);
    let is_empty = all.is_empty();
    lines.extend(all.into_iter().take(BULLETS));
    if more > 0 {
        lines.push(format!("- … and {} more", grouped(more)));
    }
    if !is_empty {
        lines.push(String::new());
    }
}
