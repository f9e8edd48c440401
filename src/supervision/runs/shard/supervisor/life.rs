//! The actor of a run supervisor. It opens and closes the shard, and drains the queue when it is woken; senders drain it
//! themselves most of the time.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::runtime::Handle;

use crate::supervision::actor_point;
use crate::supervision::runs::shard::queue::{Open, ShardMessage, Wake};

use super::context::ShardContext;
use super::shard::RunShard;

/// The actor; see the module.
pub(crate) struct RunSupervisor;

/// One life of the actor. Dropped, also by a panic or a kill, it closes the shard.
pub(crate) struct Life {
    shared: Arc<ShardContext>,
    number: u64,
}

impl Life {
    fn drain(&self) -> Result<(), ActorProcessingErr> {
        self.shared.queue.drain();
        self.shared.queue.fail_if_broken()
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.shared.queue.close(self.number);
    }
}

impl Actor for RunSupervisor {
    type Msg = Wake;
    type State = Life;
    type Arguments = Arc<ShardContext>;

    async fn pre_start(&self, me: ActorRef<Wake>, shared: Arc<ShardContext>) -> Result<Life, ActorProcessingErr> {
        shared.env.slow_fault_point("runs.start").await?;
        let number = shared.env.random();
        {
            // Locked before the roster is read: a thread that still holds the shard of an earlier life may add to it.
            let mut open = shared.queue.begin(me);
            shared.queue.put_first(shared.roster.runs().into_iter().map(|(run, new_process)| ShardMessage::Adopt {
                run,
                new_process,
                recovery: None,
            }));
            let shard = Box::new(RunShard::new(Arc::clone(&shared), number));
            *open = Some(Open { shard, runtime: Handle::current() });
        }
        Ok(Life { shared, number })
    }

    async fn post_start(&self, _: ActorRef<Wake>, life: &mut Life) -> Result<(), ActorProcessingErr> {
        life.drain()
    }

    async fn handle(&self, me: ActorRef<Wake>, _: Wake, life: &mut Life) -> Result<(), ActorProcessingErr> {
        actor_point(&life.shared.env, "runs.handle", "", &me).await?;
        life.drain()
    }

    async fn post_stop(&self, _: ActorRef<Wake>, life: &mut Life) -> Result<(), ActorProcessingErr> {
        life.shared.env.slow_fault_point("runs.stop").await?;
        life.shared.queue.close(life.number);
        Ok(())
    }
}
