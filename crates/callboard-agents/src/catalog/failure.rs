//! What follows when a model has failed. Pure.

use std::sync::Arc;
use std::time::Duration;

use callboard::supervision::runs::Signal;

use crate::model::{ModelError, ModelErrorKind};

use super::policy::CallPolicy;

/// The consequence of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The same model is asked again after this time.
    Again(Duration),
    /// The next model is asked, if there is one.
    Next,
    /// The error is returned, even if other models are left.
    GiveUp,
}

/// What follows an error of a model that was already retried `retries` times; `has_spoken` if it had begun its answer.
pub(super) fn after(error: &ModelErrorKind, has_spoken: bool, retries: u32, policy: &CallPolicy, random: u64) -> Then {
    // The beginning was already shown: another answer would appear as its continuation.
    if has_spoken {
        return Then::GiveUp;
    }
    if !error.is_worth_another_try() || retries >= policy.retries {
        return Then::Next;
    }
    let backoff = policy.backoff.delay(retries + 1, random);
    match error {
        ModelErrorKind::RateLimited(Some(wait)) if *wait > policy.patience => Then::Next,
        ModelErrorKind::RateLimited(Some(wait)) => Then::Again(*wait),
        ModelErrorKind::RateLimited(None)
        | ModelErrorKind::NotSent
        | ModelErrorKind::Unavailable
        | ModelErrorKind::CutOff
        | ModelErrorKind::Malformed
        | ModelErrorKind::Rejected
        | ModelErrorKind::Unauthorised
        | ModelErrorKind::Unpaid => Then::Again(backoff),
    }
}

/// The signal of an error to a breaker: a provider that limits or refuses requests is available.
pub(super) fn signal(error: ModelErrorKind) -> Signal {
    match error {
        ModelErrorKind::RateLimited(_)
        | ModelErrorKind::Rejected
        | ModelErrorKind::Unauthorised
        | ModelErrorKind::Unpaid => Signal::Neutral,
        ModelErrorKind::NotSent | ModelErrorKind::Unavailable | ModelErrorKind::CutOff | ModelErrorKind::Malformed => {
            Signal::Failure
        }
    }
}

/// The error of a call in which every model has failed: that of the only model, or all of them combined. Its kind is that of the
/// first error for which a later try may succeed, so that, say, a model without a key does not make a temporary failure
/// permanent; else that of the first one that a person can remove.
pub(super) fn together(mut failed: Vec<(Arc<str>, ModelError)>) -> ModelError {
    if failed.len() == 1 {
        return failed.remove(0).1;
    }
    let kinds = || failed.iter().map(|(_, error)| error.kind);
    let kind = kinds().find(|kind| kind.is_transient()).or_else(|| kinds().find(|kind| kind.needs_person()));
    let kind = kind.or_else(|| kinds().next()).unwrap_or(ModelErrorKind::NotSent);
    let errors = failed.iter().map(|(model, error)| format!("{model}: {error}")).collect::<Vec<_>>().join("; ");
    let is_free = failed.last().is_none_or(|(_, error)| error.is_free);
    ModelError { is_free, ..ModelError::new(kind, format!("none of {} models has answered: {errors}", failed.len())) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kinds() -> impl Strategy<Value = ModelErrorKind> {
        use ModelErrorKind::*;
        let limited = prop::option::of(0..100_u64).prop_map(|wait| RateLimited(wait.map(Duration::from_secs)));
        let others =
            prop::sample::select(vec![NotSent, Unavailable, CutOff, Malformed, Rejected, Unauthorised, Unpaid]);
        prop_oneof![limited, others]
    }

    proptest! {
        #[test]
        fn only_what_is_safe_is_tried_again_and_never_for_long(
            kind in kinds(), has_spoken: bool, retries in 0..5_u32, random: u64
        ) {
            let policy = CallPolicy::default();
            match after(&kind, has_spoken, retries, &policy, random) {
                Then::Again(wait) => {
                    prop_assert!(!has_spoken && retries < policy.retries && kind.is_worth_another_try());
                    prop_assert!(wait <= policy.patience);
                    if let ModelErrorKind::RateLimited(Some(wanted)) = kind {
                        prop_assert_eq!(wait, wanted);
                    }
                }
                Then::Next => prop_assert!(!has_spoken),
                Then::GiveUp => prop_assert!(has_spoken),
            }
        }
    }

    #[test]
    fn a_provider_that_wants_a_longer_wait_than_there_is_patience_for_is_left_for_the_next() {
        let policy = CallPolicy::default();
        let limited = |secs| ModelErrorKind::RateLimited(Some(Duration::from_secs(secs)));
        assert_eq!(after(&limited(30), false, 0, &policy, 0), Then::Again(Duration::from_secs(30)));
        assert_eq!(after(&limited(31), false, 0, &policy, 0), Then::Next);
    }

    #[test]
    fn what_several_models_have_said_is_as_hopeful_as_the_most_hopeful() {
        let failed = |kind: ModelErrorKind, text: &'static str| (Arc::from("m"), ModelError::new(kind, text));
        let one = together(vec![failed(ModelErrorKind::Rejected, "no")]);
        assert_eq!((one.kind, &*one.text), (ModelErrorKind::Rejected, "no"));
        let both = vec![failed(ModelErrorKind::Unauthorised, "no key"), failed(ModelErrorKind::Unavailable, "down")];
        let both = together(both);
        assert_eq!(both.kind, ModelErrorKind::Unavailable);
        assert_eq!(both.text, "none of 2 models has answered: m: no key; m: down");
        assert!(!both.is_free, "the last one may have counted tokens");
        let unpaid =
            vec![failed(ModelErrorKind::Rejected, "no such model"), failed(ModelErrorKind::Unpaid, "pay first")];
        assert_eq!(together(unpaid).kind, ModelErrorKind::Unpaid, "a person can remove it");
        let limited =
            vec![failed(ModelErrorKind::CutOff, "cut"), failed(ModelErrorKind::RateLimited(None), "slow down")];
        assert!(together(limited).is_free, "the first one was reported before");
    }
}
