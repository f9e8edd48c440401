//! Picks the few changes that pay most.

use std::collections::BTreeMap;

use crate::escaping::{code, prose};
use crate::findings::{Finding, Kind, Severity};
use crate::scoring::weight;

/// Proposals in a report.
const MOST: usize = 5;

/// Proposals of one kind, so that the list does not say the same thing five times.
const MOST_OF_A_KIND: usize = 2;

/// One concrete thing to do. Both texts are safe Markdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proposal {
    pub(crate) action: String,
    pub(crate) reason: String,
}

/// The changes to start with, the most rewarding first.
///
/// Findings of one kind in one file are one piece of work, except long or deep functions and repeated blocks, of which
/// each is its own. Pieces are ranked by the weight that they take off the score; size decides between equal ones.
pub(crate) fn proposals(findings: &[&Finding]) -> Vec<Proposal> {
    let mut pieces: BTreeMap<(Kind, &str, usize), Vec<&Finding>> = BTreeMap::new();
    for (index, finding) in findings.iter().enumerate() {
        let own = match finding.kind {
            Kind::DeepNesting | Kind::LongFunction | Kind::RepeatedBlock => index + 1,
            Kind::SwallowedError | Kind::BareExcept | Kind::Panic | Kind::Mark | Kind::Undocumented => 0,
        };
        pieces.entry((finding.kind, &finding.file, own)).or_default().push(finding);
    }
    let mut pieces: Vec<_> = pieces.into_iter().map(|((kind, ..), piece)| (kind, piece)).collect();
    pieces.sort_by(|a, b| rank(&b.1).0.total_cmp(&rank(&a.1).0).then(rank(&b.1).1.cmp(&rank(&a.1).1)));
    let mut chosen: Vec<(Kind, Vec<&Finding>)> = Vec::new();
    for (kind, piece) in pieces {
        let alike = chosen.iter().filter(|(other, _)| *other == kind).count();
        if chosen.len() < MOST
            && alike < MOST_OF_A_KIND
            && !chosen.iter().any(|(_, other)| is_same_function(other, &piece))
        {
            chosen.push((kind, piece));
        }
    }
    chosen.into_iter().map(|(kind, piece)| propose(kind, &piece)).collect()
}

/// A function that is both long and deep is one piece of work.
fn is_same_function(one: &[&Finding], other: &[&Finding]) -> bool {
    let is_shape = |finding: &Finding| matches!(finding.kind, Kind::DeepNesting | Kind::LongFunction);
    is_shape(one[0]) && is_shape(other[0]) && one[0].file == other[0].file && one[0].subject == other[0].subject
}

/// Weight, then size. Words cost readers less than behaviour, so marks and descriptions rank by a quarter.
fn rank(piece: &[&Finding]) -> (f64, usize) {
    let share = if matches!(piece[0].kind, Kind::Mark | Kind::Undocumented) { 0.25 } else { 1.0 };
    let weights: f64 = piece.iter().map(|finding| weight(finding)).sum();
    (weights * share, piece.iter().map(|finding| finding.size).sum())
}

fn propose(kind: Kind, piece: &[&Finding]) -> Proposal {
    let first = piece[0];
    let file = code(&first.file);
    let subject = code(&first.subject);
    let lines = match piece.len() {
        1 => format!("line {}", first.line),
        count => format!("{count} places, first line {}", first.line),
    };
    let unfinished = piece.iter().find(|finding| finding.severity == Severity::High).map(|finding| finding.line);
    let (action, reason) = match kind {
        Kind::SwallowedError => (
            format!("Stop dropping errors in {file} ({lines})"),
            format!("a failure leaves no trace; {}", busiest(piece)),
        ),
        Kind::BareExcept => (
            format!("Name the exceptions that {file} catches ({lines})"),
            format!("a bare `except` takes interrupts and mistakes too; {}", busiest(piece)),
        ),
        Kind::Panic if unfinished.is_some() => (
            format!("Finish what {file} leaves unfinished (line {})", unfinished.unwrap_or(first.line)),
            "whoever reaches that code takes the caller down".to_owned(),
        ),
        Kind::Panic => (format!("Return errors instead of panicking in {file} ({lines})"), busiest(piece)),
        Kind::DeepNesting => (
            format!("Flatten {subject} in {file} (line {})", first.line),
            format!("{} levels of control flow inside each other", first.size),
        ),
        Kind::LongFunction => (
            format!("Split {subject} in {file} (line {})", first.line),
            format!("{} code lines in one function", first.size),
        ),
        Kind::RepeatedBlock => {
            (format!("Merge the {} repeated lines at {file} line {}", first.size, first.line), elsewhere(first))
        }
        Kind::Mark => (
            format!("Decide about the open marks in {file} ({lines})"),
            format!("the first one says “{}”", prose(&first.message)),
        ),
        Kind::Undocumented => (
            format!("Document the public items of {file} ({lines})"),
            format!("a user of {subject} has to read its source"),
        ),
    };
    Proposal { action, reason }
}

/// The function with the most findings of a piece.
fn busiest(piece: &[&Finding]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for finding in piece {
        *counts.entry(&finding.subject).or_default() += 1;
    }
    match counts.into_iter().filter(|(subject, _)| !subject.is_empty()).max_by_key(|(_, count)| *count) {
        Some((subject, count)) if count > 1 && count == piece.len() => format!("all of them in {}", code(subject)),
        Some((subject, count)) if count > 1 => format!("{} alone has {count}", code(subject)),
        Some((subject, _)) => format!("for example in {}", code(subject)),
        None => format!("the first one is on line {}", piece[0].line),
    }
}

fn elsewhere(finding: &Finding) -> String {
    match &finding.places[..] {
        [here, there] if here.file == there.file => format!("the same code stands on line {}", there.first),
        [_, there] => format!("the same code stands in {} line {}", code(&there.file), there.first),
        places => format!("the same code stands in {} places", places.len()),
    }
}
