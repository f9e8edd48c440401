//! The shared parts of campaigns: how much they do, their seeds, and the line with the result.
//!
//! `cargo xtask campaign NAME` sets the variables and shows the line.

#![allow(
    dead_code,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "each campaign uses its part of it; a budget is real time; a test that cannot go on fails"
)]

pub(crate) mod children;

use std::fmt::Display;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use callboard::env::Env;

/// How many failures are shown.
const SHOWN: usize = 5;

fn number_in(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text:?} is not a number")))
}

/// How many cases to run: `CALLBOARD_SEEDS`, or `fast`.
pub(crate) fn cases(fast: u64) -> u64 {
    number_in("CALLBOARD_SEEDS").unwrap_or(fast)
}

/// How long to run: `CALLBOARD_SECONDS`, or `fast`.
pub(crate) fn seconds(fast: u64) -> Duration {
    Duration::from_secs(number_in("CALLBOARD_SECONDS").unwrap_or(fast))
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | *digit as u8)).collect()
}

/// The bytes in the hex files of a folder below `tests` whose names begin in one way.
pub(crate) fn hex_files(folder: &str, begin: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(begin) && name.ends_with(".hex")
    });
    files.sort();
    files.iter().map(|file| from_hex(&fs::read_to_string(file).unwrap())).collect()
}

/// A campaign under way.
pub(crate) struct Campaign {
    name: &'static str,
    seed: u64,
    random: Env,
    started: Instant,
    cases: u64,
    failures: Vec<String>,
}

impl Campaign {
    /// Begins with `CALLBOARD_SEED`, or always in the same way.
    pub(crate) fn begin(name: &'static str) -> Self {
        let seed = number_in("CALLBOARD_SEED").unwrap_or(20_261_122);
        let random = Env::new(Env::system().clock(), seed);
        Self { name, seed, random, started: Instant::now(), cases: 0, failures: Vec::new() }
    }

    pub(crate) fn random(&self) -> u64 {
        self.random.random()
    }

    /// A number under `bound`, which is not 0.
    pub(crate) fn below(&self, bound: usize) -> usize {
        (self.random() % bound as u64) as usize
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Counts a case, and what went wrong in it.
    pub(crate) fn count(&mut self, case: Result<(), String>) {
        self.cases += 1;
        self.failures.extend(case.err());
    }

    pub(crate) fn has_failed(&self) -> bool {
        !self.failures.is_empty()
    }

    pub(crate) fn count_many(&mut self, cases: u64) {
        self.cases += cases;
    }

    /// Prints the result.
    ///
    /// # Panics
    /// If a case failed, or none was run.
    pub(crate) fn end(self, covered: impl Display) {
        let Self { name, seed, cases, failures, .. } = self;
        println!("\ncampaign {name}: seed {seed}, {cases} cases, {} failures; {covered}", failures.len());
        let shown = failures.iter().take(SHOWN).map(|failure| format!("\n- {failure}")).collect::<String>();
        assert!(failures.is_empty(), "{} of {cases} cases failed with CALLBOARD_SEED={seed}:{shown}", failures.len());
        assert!(cases > 0, "no case was run");
    }
}
