//! The table of the results, and its place in a document.

use std::fmt::Write;

use super::cases::{CASES, SIDES, Unit};
use super::results::{Results, Round, Spread};

const BEGIN: &str = "<!-- compare-peers: begin -->";
const END: &str = "<!-- compare-peers: end -->";

/// The results in Markdown: one row for each side of each case that was measured.
pub(super) fn render(results: &Results) -> String {
    let mut text =
        String::from("| case | by | time, or memory | processor time | of callboard's |\n|---|---|---|---|---|\n");
    for case in &CASES {
        for side in &SIDES {
            let Some(measured) = results.of(case.name, side.name) else { continue };
            let cell = |values: fn(&Round) -> Option<f64>| {
                let spread = Spread::of(measured.rounds.iter().filter_map(values));
                spread.map_or_else(String::new, |spread| in_unit(spread, case.unit))
            };
            let (value, processor) = (cell(|round| Some(round.value)), cell(|round| round.processor));
            let is_own = side.name == SIDES[0].name;
            let ratio = results.ratio(measured).filter(|_| !is_own).map_or_else(String::new, ratio);
            let _ = writeln!(text, "| {} | {} | {value} | {processor} | {ratio} |", case.title, side.title);
        }
    }
    let conditions = &results.conditions;
    let versions: Vec<String> = conditions.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let _ =
        write!(text, "\nMeasured on {} on {}, with {}.\n", conditions.date, conditions.machine, versions.join(", "));
    text
}

fn in_unit(spread: Spread, unit: Unit) -> String {
    let (factor, name) = match unit {
        Unit::Microseconds => (1e6, "µs"),
        Unit::Milliseconds => (1e3, "ms"),
        Unit::Kibibytes => (1.0 / 1024.0, "KiB"),
    };
    let Spread { median, least, most } = spread;
    let [median, least, most] = [median, least, most].map(|value| digits(value * factor));
    format!("{median} {name} ({least}–{most})")
}

fn ratio(Spread { median, least, most }: Spread) -> String {
    let [median, least, most] = [median, least, most].map(digits);
    format!("{median} times ({least}–{most})")
}

/// Three significant digits, with commas between thousands.
fn digits(value: f64) -> String {
    let decimals = match value {
        ..1.0 => 3,
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    let (whole, rest) =
        text.split_once('.').map_or((text.as_str(), String::new()), |(whole, rest)| (whole, format!(".{rest}")));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + &rest
}

/// The document with the table between its markers.
pub(super) fn written(document: &str, table: &str) -> Result<String, String> {
    let parts = document.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.ok_or_else(|| format!("the lines {BEGIN} and {END} are missing"))?;
    Ok(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::super::results::{Conditions, Measured};
    use super::*;

    /// Figures that were made up, and that nothing has measured.
    fn made_up() -> Results {
        let measured = |case: &str, side: &str, rounds: &[(f64, f64)]| Measured {
            case: case.into(),
            side: side.into(),
            rounds: rounds.iter().map(|&(value, processor)| Round { value, processor: Some(processor) }).collect(),
        };
        let bytes = |side: &str, bytes: [f64; 3]| Measured {
            case: "waiting".into(),
            side: side.into(),
            rounds: bytes.map(|value| Round { value, processor: None }).into(),
        };
        Results {
            conditions: Conditions {
                date: "2000-01-01".into(),
                machine: "a made-up processor".into(),
                versions: vec![("callboard".into(), "0.0.1".into()), ("langgraph".into(), "0.0.2".into())],
            },
            measured: vec![
                bytes("langgraph", [2048.0, 4096.0, 8192.0]),
                bytes("callboard", [1024.0, 1024.0, 2048.0]),
                measured("chain", "langgraph", &[(1e-3, 2e-3), (1.5e-3, 2e-3), (1234.5e-3, 1e-3)]),
                measured("chain", "callboard", &[(1e-5, 2e-5), (3e-5, 2.5e-5), (2e-5, 2.25e-5)]),
                // A side that is faster, and one whose rounds are fewer.
                measured("chain", "kameo", &[(5e-6, 5e-6), (6e-6, 6e-6)]),
            ],
        }
    }

    #[test]
    fn results_are_rendered_with_medians_spreads_and_ratios_of_rounds() {
        let table = "\
| case | by | time, or memory | processor time | of callboard's |
|---|---|---|---|---|
| chain of three, one at a time | callboard | 20.0 µs (10.0–30.0) | 22.5 µs (20.0–25.0) |  |
| chain of three, one at a time | LangGraph | 1,500 µs (1,000–1,234,500) | 2,000 µs (1,000–2,000) | 100 times (50.0–61,725) |
| chain of three, one at a time | kameo | 5.50 µs (5.00–6.00) | 5.50 µs (5.00–6.00) | 0.350 times (0.200–0.500) |
| memory of a run that waits | callboard | 1.00 KiB (1.00–2.00) |  |  |
| memory of a run that waits | LangGraph | 4.00 KiB (2.00–8.00) |  | 4.00 times (2.00–4.00) |

Measured on 2000-01-01 on a made-up processor, with callboard 0.0.1, langgraph 0.0.2.
";
        assert_eq!(render(&made_up()), table);
        let read: Results = serde_json::from_str(&serde_json::to_string(&made_up()).unwrap()).unwrap();
        assert_eq!(render(&read), table, "results that went through the file");
    }

    #[test]
    fn a_table_takes_the_place_of_the_one_before_and_nothing_else_changes() {
        let document = format!("text\n{BEGIN}\nold\n{END}\nmore\n");
        let once = written(&document, "| a table |\n").unwrap();
        assert_eq!(once, format!("text\n{BEGIN}\n| a table |\n{END}\nmore\n"));
        assert_eq!(written(&once, "| a table |\n").unwrap(), once);
        assert!(written("no markers", "").unwrap_err().contains(BEGIN));
        assert!(written(&format!("{END} {BEGIN}"), "").is_err());
    }

    #[test]
    fn the_document_has_a_row_for_every_case_of_every_side() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/performance.md");
        let document = std::fs::read_to_string(file).unwrap();
        let table = document.split_once(BEGIN).unwrap().1.split_once(END).unwrap().0;
        for side in &SIDES {
            for name in side.cases {
                let case = CASES.iter().find(|case| case.name == *name).unwrap();
                let row = format!("| {} | {} |", case.title, side.title);
                assert_eq!(table.matches(&row).count(), 1, "{row}");
            }
        }
    }
}
