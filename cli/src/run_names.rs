//! The names of runs: the short id that is shown to people, and what commands accept.
//!
//! A run's id is a UUID of version 7. It begins with the time, so ids of runs that began together begin alike. The short id is its last
//! twelve digits, which are random.

use std::collections::BTreeMap;

use callboard::messages::RunId;

use crate::exit::Exit;
use crate::page::{Failure, brief};

/// What short ids begin with; a person may leave it out.
const PREFIX: &str = "req-";

/// The number of digits of a short id.
const DIGITS: usize = 12;

/// The number of digits that a person has to write of a short id.
const LEAST: usize = 4;

/// How many runs an error names.
const NAMED: usize = 3;

/// The short id of a run.
pub(crate) fn short(run: RunId) -> String {
    format!("{PREFIX}{}", ending(&plain(run)))
}

/// How a list names runs: by their short ids, and those whose short ids are the same by their whole ones.
pub(crate) fn names(runs: impl Iterator<Item = RunId>) -> impl Fn(RunId) -> String {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    for run in runs {
        *times.entry(short(run)).or_default() += 1;
    }
    move |run| Some(short(run)).filter(|short| times.get(short) == Some(&1)).unwrap_or_else(|| run.to_string())
}

/// The short id and the whole one.
pub(crate) fn both(run: RunId) -> String {
    format!("{}  {run}", short(run))
}

/// The hexadecimal digits of an id.
fn plain(run: RunId) -> String {
    run.0.as_simple().to_string()
}

/// The digits of the short id.
fn ending(plain: &str) -> &str {
    &plain[plain.len() - DIGITS..]
}

/// What a person wrote to name a run, in lower case and without hyphens.
struct Name {
    digits: String,
    /// Whether it is of a short id: it has the prefix.
    is_short: bool,
}

impl Name {
    fn of(written: &str) -> Self {
        let written = written.to_lowercase();
        let (is_short, rest) = written.strip_prefix(PREFIX).map_or((false, &*written), |rest| (true, rest));
        Self { digits: rest.chars().filter(|c| *c != '-').collect(), is_short }
    }

    /// Whether it is the beginning of the id, or of the short id.
    fn fits(&self, run: RunId) -> bool {
        let (plain, digits) = (plain(run), &*self.digits);
        let is_long_enough = digits.len() >= LEAST;
        (is_long_enough && ending(&plain).starts_with(digits))
            || (!self.is_short && !digits.is_empty() && plain.starts_with(digits))
    }

    /// How many digits have to be changed in it to fit.
    fn distance(&self, run: RunId) -> usize {
        let plain = plain(run);
        let begin = |id: &str| id.chars().take(self.digits.len().max(1)).collect::<String>();
        let to = |id: &str| strsim::levenshtein(&begin(id), &self.digits);
        let to_short = to(ending(&plain));
        if self.is_short { to_short } else { to_short.min(to(&plain)) }
    }
}

/// What a person wrote to name a run, or what waits: any text, but one that a script has lost.
pub(crate) fn written(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("it is empty: write an id, short or whole, or @last".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// Whether it is a whole id, or a whole short id with its prefix: no run that is not searched has it too.
pub(crate) fn is_of_run(written: &str) -> bool {
    let Name { digits, is_short } = Name::of(written);
    digits.len() == if is_short { DIGITS } else { 32 } && digits.chars().all(|c| c.is_ascii_hexdigit())
}

/// The only run with this name: the beginning of its id or of its short id. Hyphens and case are ignored. `unsearched` is the exit if
/// some stores could not be opened.
pub(crate) fn find(written: &str, ids: &[RunId], unsearched: Option<Exit>) -> Result<RunId, Failure> {
    let (name, shown) = (Name::of(written), brief(written, 80));
    if name.is_short && name.digits.len() < LEAST {
        return Err(Failure::usage(format!("\"{shown}\" is too short: after {PREFIX} come {LEAST} digits or more")));
    }
    let fitting: Vec<RunId> = ids.iter().copied().filter(|run| name.fits(*run)).collect();
    let (exit, mut text, named) = match (fitting.as_slice(), unsearched) {
        ([only], _) => return Ok(*only),
        ([], Some(exit)) => {
            (exit, format!("the run \"{shown}\" may be in a store that could not be opened"), Vec::new())
        }
        ([], None) if ids.is_empty() => {
            (Exit::NotFound, format!("there is no run \"{shown}\": no store has any"), Vec::new())
        }
        ([], None) => {
            let mut nearest = ids.to_vec();
            nearest.sort_by_cached_key(|run| (name.distance(*run), *run));
            nearest.truncate(NAMED);
            (Exit::NotFound, format!("there is no run \"{shown}\"; the nearest:"), nearest)
        }
        (several, _) => {
            (Exit::Usage, format!("{} runs have \"{shown}\" in their ids:", several.len()), fitting.clone())
        }
    };
    text.extend(named.iter().take(NAMED).map(|run| format!("\n  {}", both(*run))));
    if named.len() > NAMED {
        text.push_str(&format!("\n  and {} more", named.len() - NAMED));
    }
    Err(Failure::new(exit, text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use proptest::prelude::*;
    use proptest::sample::{select, subsequence};

    use super::*;

    /// Ids of which some begin alike, some end alike, and some begin as others end.
    fn ids() -> impl Strategy<Value = Vec<RunId>> {
        let parts = ["019b76da", "019b76db", "9c41d7e0", "9c41d7e1", "019b9c41"];
        let all: Vec<RunId> = parts
            .iter()
            .flat_map(|begin| parts.iter().map(move |end| format!("{begin}-a800-7167-9099-{end}b2f6").parse().unwrap()))
            .collect();
        let most = all.len();
        subsequence(all, 1..=most)
    }

    /// The run and a way to write its name: a part of the whole or the short id, with or without hyphens and in any case.
    fn written(run: RunId, length: usize, style: u8) -> String {
        let whole = run.to_string();
        let short = short(run);
        let text = match style % 5 {
            0 => whole,
            1 => whole.replace('-', ""),
            2 => short,
            3 => short.to_uppercase(),
            _ => short[PREFIX.len()..].to_owned(),
        };
        let least = if style % 5 == 2 || style % 5 == 3 { PREFIX.len() + LEAST } else { LEAST };
        text.chars().take(length.max(least)).collect()
    }

    /// The runs that a text names, by texts alone.
    fn named(text: &str, ids: &[RunId]) -> Vec<RunId> {
        let text = text.to_lowercase().replace('-', "");
        let names = |run: &&RunId| {
            let whole = run.to_string().replace('-', "");
            let of_short = [whole[20..].to_owned(), format!("req{}", &whole[20..])];
            whole.starts_with(&text) || of_short.iter().any(|short| short.starts_with(&text))
        };
        ids.iter().filter(names).copied().collect()
    }

    proptest! {
        #[test]
        fn a_name_finds_its_run_unless_it_names_others_too_which_are_candidates_then(
            (ids, place) in ids().prop_flat_map(|ids| { let places: Vec<usize> = (0..ids.len()).collect(); (Just(ids), select(places)) }),
            length in 1_usize..40, style: u8,
        ) {
            let run = ids[place];
            let text = written(run, length, style);
            let expected = named(&text, &ids);
            prop_assert!(expected.contains(&run));
            match find(&text, &ids, None) {
                Ok(found) => prop_assert_eq!(vec![found], expected),
                Err(failure) => {
                    let failure = format!("{failure:?}");
                    prop_assert!(expected.len() > 1, "{}", failure);
                    let shown = expected.iter().filter(|run| failure.contains(&run.to_string())).count();
                    prop_assert_eq!(shown, expected.len().min(NAMED), "{}", failure);
                }
            }
            // The whole id always finds it.
            prop_assert_eq!(find(&run.to_string(), &ids, None).unwrap(), run);
        }
    }

    #[test]
    fn a_list_names_runs_by_their_whole_ids_where_the_short_ones_are_the_same() {
        let [one, alike, other] = [
            "019b76da-a800-7167-9099-7ac05e226953",
            "019b76db-a800-7167-9099-7ac05e226953",
            "019b76dc-a800-7167-9099-7ac05e226954",
        ]
        .map(|id| id.parse().unwrap());
        let name = names([one, alike, other].into_iter());
        assert_eq!([one, alike, other].map(name), [one.to_string(), alike.to_string(), "req-7ac05e226954".to_owned()]);
    }

    #[test]
    fn texts_that_name_no_run_find_none() {
        let run: RunId = "019b76da-a800-7167-9099-7ac05e226953".parse().unwrap();
        assert_eq!(short(run), "req-7ac05e226953");
        for (text, error) in [
            ("", "there is no run"),
            ("-", "there is no run"),
            ("req-", "after req- come 4 digits or more"),
            ("req-7ac", "after req- come 4 digits or more"),
            ("7ac", "there is no run"),
            ("req-019b", "there is no run"),
            ("req-7ac05e2269530", "there is no run"),
            ("5e226953", "there is no run"),
        ] {
            let failure = format!("{:?}", find(text, &[run], None).unwrap_err());
            assert!(failure.contains(error), "{text}: {failure}");
        }
        assert_eq!(find("7ac0", &[run], None).unwrap(), run);
        for (text, expected) in [
            ("019B76DAa80071679099-7ac05e226953", true),
            ("req-7ac05e226953", true),
            ("7ac05e226953", false),
            ("req-7ac05e22695", false),
            ("req-7ac05e22695z", false),
        ] {
            assert_eq!(is_of_run(text), expected, "{text}");
        }
    }
}
