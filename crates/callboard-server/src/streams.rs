//! How many event streams are open: each person, or each token that is nobody's, may have some at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::problem::{Problem, ProblemCode};

/// The most event streams of one of them at a time.
const MAX_STREAMS: usize = 100;

/// The open streams of each, by the name of the person or of the token.
#[derive(Clone, Default)]
pub(crate) struct Streams(Arc<Mutex<BTreeMap<Arc<str>, usize>>>);

/// A stream, while it is open.
pub(crate) struct StreamPermit {
    streams: Streams,
    name: Arc<str>,
}

impl Streams {
    /// How many are open.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().values().sum()
    }

    /// Opens a stream, if there are not too many of this name.
    pub(crate) fn open(&self, name: &Arc<str>) -> Result<StreamPermit, Problem> {
        let mut open = self.0.lock();
        let count = open.entry(Arc::clone(name)).or_default();
        if *count == MAX_STREAMS {
            let detail = format!("{name} has {MAX_STREAMS} event streams open, which is the most; close one");
            return Err(Problem::new(ProblemCode::Overloaded, detail));
        }
        *count += 1;
        Ok(StreamPermit { streams: self.clone(), name: Arc::clone(name) })
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut open = self.streams.0.lock();
        if let Some(count) = open.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.name);
            }
        }
    }
}
