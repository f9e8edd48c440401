//! The end of a server: how long what is under way is waited for.

use std::time::Duration;

use crate::page::Failure;

/// How long a server that has lost its store waits for what is under way before it ends.
const WITHOUT_STORE: Duration = Duration::from_secs(2);

/// Waits until what is under way has ended, or for a signal. A store that was lost may be away for long, and a server that has ended is
/// started again.
pub(super) async fn ended(
    under_way: impl Future<Output = Result<(), Failure>>,
    signal: impl Future<Output = ()>,
    has_lost_store: bool,
) -> Result<(), Failure> {
    tokio::select! {
        biased;
        () = signal => Ok(()),
        ended = under_way => ended,
        () = tokio::time::sleep(WITHOUT_STORE), if has_lost_store => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use callboard::env::Env;
    use tokio::time::sleep;

    use super::*;

    /// After how many seconds of virtual time a server ends whose work takes this long, and whether that was waited for.
    async fn end(work: u64, has_lost_store: bool) -> (u64, bool) {
        let (env, mut is_done) = (Env::repeatable(0), false);
        let under_way = async {
            sleep(Duration::from_secs(work)).await;
            is_done = true;
            Ok(())
        };
        assert!(ended(under_way, pending(), has_lost_store).await.is_ok());
        (env.now().monotonic.as_secs(), is_done)
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_has_lost_its_store_waits_for_what_is_under_way_2_s_at_most() {
        assert_eq!(end(3600, true).await, (2, false));
        assert_eq!(end(1, true).await, (1, true));
        assert_eq!(end(3600, false).await, (3600, true), "it has its store");
    }

    #[tokio::test(start_paused = true)]
    async fn a_signal_ends_a_server_at_once() {
        let env = Env::repeatable(0);
        assert!(ended(pending(), async {}, false).await.is_ok());
        assert!(env.now().monotonic.is_zero());
    }
}
