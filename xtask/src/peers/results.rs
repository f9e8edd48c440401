//! What was measured, in a file of JSON, and the ratios of it.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::cases::SIDES;

/// What was measured on one machine with one set of versions. Cases that are measured again take the place of those before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Results {
    pub(super) conditions: Conditions,
    pub(super) measured: Vec<Measured>,
}

/// Where and with what.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Conditions {
    pub(super) date: String,
    /// The processor, how many there are of it, and the kernel.
    pub(super) machine: String,
    /// Names and versions.
    pub(super) versions: Vec<(String, String)>,
}

/// A case that one side did, a measurement for each round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) case: String,
    pub(super) side: String,
    pub(super) rounds: Vec<Round>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Round {
    /// Seconds, or bytes.
    pub(super) value: f64,
    /// Processor seconds; memory has none.
    pub(super) processor: Option<f64>,
}

/// The median of several values, and between which they are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Spread {
    /// `None` without values.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(*values.get(middle)?, values[middle - 1])
        };
        Some(Self { median, least: *values.first()?, most: *values.last()? })
    }
}

impl Results {
    /// Those of the file, if there are any of the same machine and versions; or none.
    pub(super) fn continued(file: &Path, conditions: Conditions) -> Self {
        let read = fs::read_to_string(file).ok().and_then(|text| serde_json::from_str::<Self>(&text).ok());
        let is_same = |before: &Self| {
            (&before.conditions.machine, &before.conditions.versions) == (&conditions.machine, &conditions.versions)
        };
        let measured = read.filter(is_same).map_or_else(Vec::new, |before| before.measured);
        Self { conditions, measured }
    }

    pub(super) fn write(&self, file: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        fs::write(file, text + "\n").map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Replaces what there is of a case.
    pub(super) fn replace(&mut self, case: &str, measured: Vec<Measured>) {
        self.measured.retain(|before| before.case != case);
        self.measured.extend(measured);
    }

    /// What a side did of a case.
    pub(super) fn of(&self, case: &str, side: &str) -> Option<&Measured> {
        self.measured.iter().find(|measured| measured.case == case && measured.side == side)
    }

    /// How many times what callboard takes a side takes, by the two measurements of each round.
    pub(super) fn ratio(&self, measured: &Measured) -> Option<Spread> {
        let own = self.of(&measured.case, SIDES[0].name)?;
        Spread::of(measured.rounds.iter().zip(&own.rounds).map(|(theirs, own)| theirs.value / own.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_median_and_both_ends() {
        let spread = |median, least, most| Some(Spread { median, least, most });
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), spread(2.0, 1.0, 3.0));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]), spread(2.5, 1.0, 4.0));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn a_case_that_is_measured_again_replaces_only_itself_and_only_of_the_same_versions() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("results.json");
        let conditions = |version: &str, date: &str| Conditions {
            date: date.into(),
            machine: "a machine".into(),
            versions: vec![("callboard".into(), version.into())],
        };
        let measured = |case: &str, value| Measured {
            case: case.into(),
            side: "callboard".into(),
            rounds: vec![Round { value, processor: None }],
        };
        let mut results = Results::continued(&file, conditions("1", "a day"));
        results.replace("chain", vec![measured("chain", 1.0)]);
        results.replace("ask", vec![measured("ask", 2.0)]);
        results.write(&file).unwrap();

        let mut results = Results::continued(&file, conditions("1", "the next day"));
        results.replace("ask", vec![measured("ask", 3.0)]);
        assert_eq!(results.measured, [measured("chain", 1.0), measured("ask", 3.0)]);
        assert_eq!(results.conditions.date, "the next day");
        assert_eq!(Results::continued(&file, conditions("2", "the next day")).measured, []);
    }
}
