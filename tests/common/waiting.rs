//! Waits for conditions that have no event. All of them end.

use std::panic::Location;
use std::time::Duration;

/// How often is looked: far more often than anything takes.
const LOOKS: usize = 100_000;

/// Looks until there is something, and lets others run in between. No virtual time passes.
///
/// # Panics
/// If nothing comes.
#[track_caller]
pub(crate) fn found<T>(mut look: impl AsyncFnMut() -> Option<T>) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        for _ in 0..LOOKS {
            if let Some(found) = look().await {
                return found;
            }
            tokio::task::yield_now().await;
        }
        panic!("{caller}: nothing came")
    }
}

/// Looks every virtual millisecond until it is so, so that the clock can move meanwhile.
///
/// # Panics
/// If it is never so.
#[track_caller]
pub(crate) fn comes_true(mut is_so: impl AsyncFnMut() -> bool) -> impl Future<Output = ()> {
    let caller = Location::caller();
    async move {
        for _ in 0..LOOKS {
            if is_so().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("{caller}: it did not come true")
    }
}
