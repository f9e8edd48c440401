//! Maps runs to the run supervisors that own them.

use std::sync::Arc;

use crate::messages::RunId;
use crate::supervision::runs::queue::ShardQueue;

/// The queues of the run supervisors. A run belongs to one of them by its id.
#[derive(Debug)]
pub(crate) struct ShardQueues {
    queues: Vec<Arc<ShardQueue>>,
}

impl ShardQueues {
    /// This many supervisors, at least one.
    pub(crate) fn new(count: usize) -> Self {
        Self { queues: (0..count.max(1)).map(|_| Arc::default()).collect() }
    }

    pub(crate) fn all(&self) -> &[Arc<ShardQueue>] {
        &self.queues
    }

    /// The queue of the run's supervisor. The last bytes of an id are random, so runs spread evenly.
    pub(crate) fn of(&self, run: RunId) -> &Arc<ShardQueue> {
        let random = run.0.as_u64_pair().1 as usize;
        &self.queues[random % self.queues.len()]
    }
}
