//! Catalogs in place of others.

use super::*;

const CLOSED: Option<(BreakerState, BreakerState)> = Some((BreakerState::Closed, BreakerState::Closed));
const OPEN: Option<(BreakerState, BreakerState)> = Some((BreakerState::Open, BreakerState::Open));

fn failing() -> ModelEntry {
    ModelEntry::of((0..9).fold(PlannedModel::new("a"), |model, _| model.fails(Unavailable))).provider("p")
}

/// Has it fail until its breaker is open.
async fn broken(entry: &ModelEntry) -> Models {
    let models = models([entry.clone()]);
    for _ in 0..3 {
        reported(models.call(&ModelChoice::of("a"), request())).await;
    }
    assert_eq!(models.breakers("a"), OPEN);
    models
}

#[tokio::test(start_paused = true)]
async fn a_model_that_asks_the_same_keeps_its_breaker_whatever_other_settings_it_has() {
    let entry = failing();
    let before = broken(&entry).await;
    let other = || ModelEntry::of(PlannedModel::new("b"));
    for (entry, is_as) in [
        (entry.clone(), true),
        (entry.clone().tag("quick"), false),
        (entry.clone().prices(1.0, 1.0), false),
        (entry.clone().requests_per_minute(NonZeroU32::MIN), false),
    ] {
        let now = models([entry]).after(&before);
        assert_eq!((now.breakers("a"), now.are_as(&before)), (OPEN, is_as));
    }
    let now = models([other(), entry]).after(&before);
    assert_eq!((now.breakers("a"), now.breakers("b")), (OPEN, CLOSED));
    assert!(!now.are_as(&before) && !before.are_as(&now));
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_asked_elsewhere_begins_again_and_so_does_a_provider_of_which_none_continues() {
    let entry = failing();
    let before = broken(&entry).await;
    let elsewhere = || ModelEntry::of(PlannedModel::new("a")).provider("p");
    assert_eq!(models([elsewhere()]).after(&before).breakers("a"), CLOSED);
    assert_eq!(models([entry.clone().provider("q")]).after(&before).breakers("a"), CLOSED);
    let other = ModelEntry::of(PlannedModel::new("b")).provider("p");
    let both = models([entry, other.clone()]).after(&before);
    let now = models([elsewhere(), other]).after(&both);
    assert_eq!(now.breakers("a"), Some((BreakerState::Closed, BreakerState::Open)), "b goes on, and so does p");
}

#[tokio::test(start_paused = true)]
async fn rates_continue_while_they_are_the_same() {
    let env = Env::repeatable(1);
    let per_minute = |number| NonZeroU32::new(number).unwrap();
    let entry = ModelEntry::of(PlannedModel::new("a")).provider("p");
    let of = |requests, provider| {
        let models = Models::of(&env, [entry.clone().requests_per_minute(per_minute(requests))]).unwrap();
        models.with_provider_rate("p", per_minute(provider))
    };
    let waited = async |models: &Models| {
        let begun = env.now().monotonic;
        reported(models.call(&ModelChoice::of("a"), request())).await;
        (env.now().monotonic - begun).as_secs()
    };
    for (requests, provider) in [(1, 9), (9, 1)] {
        let before = of(requests, provider);
        assert_eq!(waited(&before).await, 0);
        let same = of(requests, provider).after(&before);
        assert!(same.are_as(&before));
        assert_eq!(waited(&same).await, 60, "its place is taken");
        assert_eq!(waited(&of(9, 9).after(&same)).await, 0, "it may be sent more now");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_under_way_ends_as_it_began_and_counts_for_what_continues() {
    let entry = failing();
    let before = broken(&entry).await;
    tokio::time::advance(Duration::from_secs(30)).await;
    let mut probe = before.call(&ModelChoice::of("a"), request());
    assert_eq!(probe.next().await, Some(Ok(text("hello"))));
    let now = models([entry.tag("quick")]).after(&before);
    assert_eq!(now.breakers("a"), Some((BreakerState::HalfOpen, BreakerState::HalfOpen)));
    assert_eq!(reported(probe).await, ["ended by a"]);
    assert_eq!(now.breakers("a"), CLOSED);
}
