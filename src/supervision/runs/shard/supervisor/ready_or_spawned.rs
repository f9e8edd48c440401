//! Work that most stores finish at once: a task is spawned only for the rest.

use futures::FutureExt;
use futures::future::BoxFuture;

/// Polls a future once, and spawns it if it is not ready; `then` runs after it, in both cases.
pub(super) fn spawn_unless_ready<T: Send + 'static>(
    mut future: BoxFuture<'static, T>,
    then: impl FnOnce(T) + Send + 'static,
) {
    match (&mut future).now_or_never() {
        Some(done) => then(done),
        None => drop(tokio::spawn(async move { then(future.await) })),
    }
}
