//! The campaign `rules`: pure rules are played beside reference models, as often as asked, and have to agree at each step.
//!
//! A reference model lies beside its rule, in a file `reference.rs`. It is written from the words of the rule and shares no code
//! with what it is a model of.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// The branches that one case reached, by the names that its rule's campaign gives them.
pub(crate) type Seen = BTreeSet<&'static str>;

/// How many cases are played by default; `CALLBOARD_SEEDS` sets another number.
const CASES: u32 = 4_000;

/// Plays cases, the same ones each time unless `CALLBOARD_SEED` sets another seed, and prints which branches they reached.
///
/// # Panics
/// If a case fails, with the seed and the smallest case that fails as well; or if fewer than one in a hundred reached one
/// of `branches`: what is not reached is not compared.
pub(crate) fn play<S: Strategy>(
    rule: &str,
    branches: &[&'static str],
    cases: S,
    case: impl Fn(S::Value, &mut Seen) -> Result<(), TestCaseError>,
) {
    let count = number_in("CALLBOARD_SEEDS").unwrap_or(CASES);
    let seed = number_in("CALLBOARD_SEED").unwrap_or(20_261_122);
    play_from(seed, count, rule, branches, cases, case);
}

fn play_from<S: Strategy>(
    seed: u64,
    count: u32,
    rule: &str,
    branches: &[&'static str],
    cases: S,
    case: impl Fn(S::Value, &mut Seen) -> Result<(), TestCaseError>,
) {
    let config = Config { cases: count, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed.to_le_bytes().repeat(4));
    let reached = Mutex::new(branches.iter().map(|branch| (*branch, 0)).collect::<BTreeMap<_, u32>>());
    let played = TestRunner::new_with_rng(config, rng).run(&cases, |value| {
        let mut seen = Seen::new();
        case(value, &mut seen)?;
        let mut reached = reached.lock();
        for branch in seen {
            *reached.get_mut(branch).unwrap_or_else(|| panic!("{branch:?} is not a branch of {rule}")) += 1;
        }
        Ok(())
    });
    if let Err(error) = played {
        println!("\ncampaign rules: {rule}: seed {seed}, {count} cases, stopped at a failure");
        panic!("{rule} and its model differ with CALLBOARD_SEED={seed} CALLBOARD_SEEDS={count}: {error}");
    }
    let reached = reached.into_inner();
    let covered: Vec<String> = branches.iter().map(|branch| format!("{branch} in {}", reached[branch])).collect();
    println!("\ncampaign rules: {rule}: seed {seed}, {count} cases, 0 failures; {}", covered.join(", "));
    let missed: Vec<&&str> = branches.iter().filter(|branch| reached[**branch] < count / 100).collect();
    assert!(missed.is_empty(), "too few of {count} cases of {rule} reached {missed:?}");
}

fn number_in<N: std::str::FromStr>(variable: &str) -> Option<N> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text:?} is not a number")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn panic_of(play: impl FnOnce()) -> String {
        *catch_unwind(AssertUnwindSafe(play)).unwrap_err().downcast::<String>().unwrap()
    }

    #[test]
    fn a_difference_is_reported_with_its_seed_and_its_smallest_case() {
        let text = panic_of(|| {
            play_from(1, 1_000, "a rule", &[], 0_u32..1_000, |number, _| {
                proptest::prop_assert!(number < 7, "seven");
                Ok(())
            });
        });
        assert!(text.contains("CALLBOARD_SEED=") && text.contains("seven") && text.contains("input: 7"), "{text}");
    }

    #[test]
    fn a_branch_that_is_not_reached_fails_the_campaign() {
        let text = panic_of(|| {
            play_from(1, 100, "a rule", &["low", "high"], 0_u32..9, |_, seen| {
                seen.insert("low");
                Ok(())
            });
        });
        assert!(text.contains(r#"reached ["high"]"#), "{text}");
    }
}
