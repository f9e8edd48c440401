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

    /// The queue of the run's supervisor.
    pub(crate) fn of(&self, run: RunId) -> &Arc<ShardQueue> {
        &self.queues[run.shard(self.queues.len())]
    }

    /// An id near this one whose run belongs to the shard of a thread, given its number.
    pub(crate) fn near(&self, run: RunId, thread: usize) -> RunId {
        let shards = self.queues.len();
        run.in_shard(thread % shards, shards)
    }
}
