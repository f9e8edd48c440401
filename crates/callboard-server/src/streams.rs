//! How many event streams are open: each person, or each token that is nobody's, may have some at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::problem::{Problem, ProblemCode};
use crate::tokens::{Caller, Holder};

/// The most event streams of one of them at a time.
const MAX_STREAMS: usize = 100;

/// The open streams of each.
#[derive(Clone, Default)]
pub(crate) struct Streams(Arc<Mutex<BTreeMap<Holder, usize>>>);

/// A stream, while it is open.
pub(crate) struct StreamPermit {
    streams: Streams,
    holder: Holder,
}

impl Streams {
    /// How many are open.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().values().sum()
    }

    /// Opens a stream, if the holder of the token has not too many.
    pub(crate) fn open(&self, caller: &Caller) -> Result<StreamPermit, Problem> {
        let (holder, mut open) = (caller.holder(), self.0.lock());
        let count = open.entry(holder.clone()).or_default();
        if *count == MAX_STREAMS {
            let detail = format!("{} has {MAX_STREAMS} event streams open, which is the most; close one", caller.by());
            return Err(Problem::new(ProblemCode::Overloaded, detail));
        }
        *count += 1;
        Ok(StreamPermit { streams: self.clone(), holder })
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut open = self.streams.0.lock();
        if let Some(count) = open.get_mut(&self.holder) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.holder);
            }
        }
    }
}
