//! What a difference of means may be by chance: the percentile bootstrap of paired differences. Pure.

/// How often the differences are drawn again.
const RESAMPLES: usize = 10_000;

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// A mean with its 95 % interval.
pub(crate) struct Interval {
    pub(crate) mean: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// The mean of differences of pairs.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "questions are few")]
pub(crate) fn difference(differences: &[f64]) -> Interval {
    let count = differences.len().max(1);
    let mean = |sum: f64| sum / count as f64;
    let mut state = SEED;
    let mut drawn: Vec<f64> = (0..RESAMPLES)
        .map(|_| mean((0..differences.len()).map(|_| differences[(random(&mut state) % count as u64) as usize]).sum()))
        .collect();
    drawn.sort_by(f64::total_cmp);
    let at = |share: f64| drawn[((RESAMPLES - 1) as f64 * share).round() as usize];
    Interval { mean: mean(differences.iter().sum()), low: at(0.025), high: at(0.975) }
}

/// SplitMix64, so that a measurement has the same interval each time.
pub(crate) fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
