//! Facts and queries that are the same each time: words of a few thousand by Zipf's law, as the words of a language are. Pure.

use callboard::messages::Timestamp;
use callboard_knowledge::facts::{OnContradiction, Source, Statement, Triple};
use callboard_knowledge::store::Submission;

use crate::intervals::random;

/// How many words there are. The most common one is in more than half of the facts, the rarest in some hundreds of a million.
const WORDS: usize = 4_000;

/// How many of them, the most common first, are the words of predicates.
const PREDICATES: usize = 200;

/// Every second subject has one of so many numbers.
const NUMBERS: u64 = 100_000;

/// A word is common up to this rank, and rare from that one.
const COMMON: usize = 50;
const RARE: usize = 1_000;

pub(crate) struct Generator {
    state: u64,
    words: Vec<String>,
    /// The sums of the shares of the words, the most common first.
    sums: Vec<f64>,
}

/// Which words a query has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// Those of a fact.
    OfFact,
    Rare,
    Common,
    /// One rare word, and common ones.
    Both,
}

impl Mix {
    pub(crate) const ALL: [Self; 4] = [Self::OfFact, Self::Rare, Self::Common, Self::Both];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::OfFact => "words of a fact",
            Self::Rare => "rare words",
            Self::Common => "common words",
            Self::Both => "one rare, others common",
        }
    }
}

impl Generator {
    #[expect(clippy::cast_precision_loss, reason = "ranks are small")]
    pub(crate) fn new(seed: u64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=WORDS).map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        });
        Self { state: seed, words: (0..WORDS).map(word).collect(), sums: sums.collect() }
    }

    /// A statement of three parts, of five to nine words.
    pub(crate) fn fact(&mut self) -> Submission {
        let mut subject = self.phrase(2);
        if self.below(2) == 0 {
            let number = self.below(NUMBERS);
            subject = format!("{subject} {number}");
        }
        let rank = self.zipf(PREDICATES);
        let predicate = self.words[rank].clone();
        let length = 2 + self.below(4);
        let value = self.phrase(length);
        let text = format!("{subject} {predicate} {value}");
        let statement = Statement::new(&text, Some(Triple { subject, predicate, value })).unwrap();
        let by = "bench".to_owned();
        let source = Source { by, place: None, run: None, turn: None, at: Timestamp::default(), is_untrusted: false };
        Submission {
            namespace: "default".to_owned(),
            statement,
            source,
            is_single: false,
            on_contradiction: OnContradiction::Dispute,
            judged: Vec::new(),
            read: Vec::new(),
            named: Vec::new(),
            key: None,
        }
    }

    /// Two to six different words.
    pub(crate) fn query(&mut self, mix: Mix) -> String {
        let count = 2 + usize::try_from(self.below(5)).unwrap();
        let fact = self.fact().statement.text().to_owned();
        let of_fact: Vec<&str> = fact.split(' ').collect();
        let mut query: Vec<String> = Vec::new();
        for place in 0..count {
            let word = match (mix, place) {
                (Mix::OfFact, _) => of_fact[place * of_fact.len() / count].to_owned(),
                (Mix::Rare, _) | (Mix::Both, 0) => self.word_between(RARE, WORDS),
                (Mix::Common | Mix::Both, _) => self.word_between(0, COMMON),
            };
            if !query.contains(&word) {
                query.push(word);
            }
        }
        query.join(" ")
    }

    /// Words by Zipf's law.
    fn phrase(&mut self, count: u64) -> String {
        let ranks: Vec<usize> = (0..count).map(|_| self.zipf(WORDS)).collect();
        ranks.into_iter().map(|rank| &*self.words[rank]).collect::<Vec<_>>().join(" ")
    }

    fn word_between(&mut self, from: usize, to: usize) -> String {
        let rank = from + usize::try_from(self.below((to - from) as u64)).unwrap();
        self.words[rank].clone()
    }

    /// A rank below `count`, by Zipf's law.
    #[expect(clippy::cast_precision_loss, reason = "a share needs no exact value")]
    fn zipf(&mut self, count: usize) -> usize {
        let share = (random(&mut self.state) >> 11) as f64 / (1_u64 << 53) as f64;
        let at = share * self.sums[count - 1];
        self.sums[..count].partition_point(|sum| *sum < at).min(count - 1)
    }

    fn below(&mut self, count: u64) -> u64 {
        random(&mut self.state) % count
    }
}

/// The word of a rank: three or four syllables, so that no two have one stem by their last letters alone.
fn word(rank: usize) -> String {
    const CONSONANTS: &[u8] = b"bdfgklmnprtvz";
    const VOWELS: &[u8] = b"aou";
    // A factor that shares none with their count has neighbours in rank begin differently.
    let mut rest = rank * 7_919;
    let mut word = String::new();
    for _ in 0..3 {
        word.push(char::from(CONSONANTS[rest % CONSONANTS.len()]));
        rest /= CONSONANTS.len();
        word.push(char::from(VOWELS[rest % VOWELS.len()]));
        rest /= VOWELS.len();
    }
    word.push('k');
    word
}
