//! A rate in requests per minute, of which a board spends its part. Pure.

use std::num::NonZeroU32;
use std::time::Duration;

use callboard::actors::ShareReading;

/// The window of rates.
const MINUTE: Duration = Duration::from_secs(60);

/// What a rate has left of its board's part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spending {
    left: Duration,
    /// What had been granted by then.
    granted: Duration,
}

impl Spending {
    /// Nothing was spent.
    pub(super) fn new(share: ShareReading) -> Self {
        Self { left: share.saved, granted: share.granted }
    }

    /// Spends what a request costs, if it is there.
    ///
    /// # Errors
    /// How long it takes until it is, if the number of boards stays.
    pub(super) fn spend(&mut self, rate: NonZeroU32, share: ShareReading) -> Result<(), Duration> {
        let cost = MINUTE / rate.get();
        // Of more boards than requests, each has one at once, or it would never have one.
        let most = if share.most_saved() < cost { cost } else { share.saved };
        self.left = (self.left + share.granted.saturating_sub(self.granted)).min(most);
        self.granted = share.granted;
        match self.left.checked_sub(cost) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(share.wait_for(cost - self.left)),
        }
    }
}
