//! How many bytes of bodies arrive: each person, or each token that is nobody's, may have the bodies of some requests in memory at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::problem::{Problem, ProblemCode};
use crate::tokens::{Caller, Holder};

/// As many bodies of the most bytes may arrive at a time.
const MAX_BODIES: usize = 64;
/// After which time a request that was refused may be sent again.
const AGAIN: Duration = Duration::from_secs(1);

/// The bytes that have arrived of bodies that are not complete, of each.
#[derive(Clone, Default)]
pub(crate) struct Arriving(Arc<Mutex<BTreeMap<Holder, usize>>>);

/// Those of one body, while it is read.
pub(crate) struct ArrivingBody {
    arriving: Arriving,
    holder: Holder,
    by: Arc<str>,
    bytes: usize,
    most: usize,
}

impl Arriving {
    /// A body of this caller, where each has at most `most_bytes`.
    pub(crate) fn of(&self, caller: &Caller, most_bytes: usize) -> ArrivingBody {
        let (holder, by) = (caller.holder(), Arc::clone(caller.by()));
        ArrivingBody { arriving: self.clone(), holder, by, bytes: 0, most: most_bytes.saturating_mul(MAX_BODIES) }
    }
}

impl ArrivingBody {
    /// Admits so many more bytes of it, if there are not too many.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), Problem> {
        let mut all = self.arriving.0.lock();
        let count = all.entry(self.holder.clone()).or_default();
        if count.saturating_add(bytes) > self.most {
            let detail = format!("the bodies of {} that arrive have more than {} bytes together", self.by, self.most);
            return Err(Problem { retry_after: Some(AGAIN), ..Problem::new(ProblemCode::Overloaded, detail) });
        }
        *count += bytes;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for ArrivingBody {
    fn drop(&mut self) {
        let mut all = self.arriving.0.lock();
        if let Some(count) = all.get_mut(&self.holder) {
            *count -= self.bytes;
            if *count == 0 {
                all.remove(&self.holder);
            }
        }
    }
}
