//! The actor of a run supervisor: it owns the desk's life. What is done at the desk is done by whoever hands something in.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::runtime::Handle;

use crate::supervision::actor_point;
use crate::supervision::runs::shard::inbox::{Input, Open};

use super::{Desk, Office};

/// The actor.
pub struct RunSupervisor;

/// Its one message: there is something in the inbox, or something has gone wrong.
#[derive(Debug)]
pub struct Wake;

/// One life of the actor. However it ends, the desk is closed with it.
pub struct Life {
    office: Arc<Office>,
    number: u64,
}

impl Life {
    fn work(&self) -> Result<(), ActorProcessingErr> {
        self.office.inbox.work();
        self.office.inbox.fail_if_broken()
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.office.inbox.close(self.number);
    }
}

impl Actor for RunSupervisor {
    type Msg = Wake;
    type State = Life;
    type Arguments = Arc<Office>;

    async fn pre_start(&self, me: ActorRef<Wake>, office: Arc<Office>) -> Result<Life, ActorProcessingErr> {
        office.env.slow_fault_point("runs.start").await?;
        let number = office.env.random();
        {
            // Taken before the roster is read: whoever is still at an earlier life's desk may add to it.
            let mut open = office.inbox.begin(me);
            office.inbox.put_first(office.roster.runs().into_iter().map(|(run, new_process)| Input::Adopt {
                run,
                new_process,
                found: None,
            }));
            let desk = Box::new(Desk::new(Arc::clone(&office), number));
            *open = Some(Open { desk, runtime: Handle::current() });
        }
        Ok(Life { office, number })
    }

    async fn post_start(&self, _: ActorRef<Wake>, life: &mut Life) -> Result<(), ActorProcessingErr> {
        life.work()
    }

    async fn handle(&self, me: ActorRef<Wake>, _: Wake, life: &mut Life) -> Result<(), ActorProcessingErr> {
        actor_point(&life.office.env, "runs.handle", "", &me).await?;
        life.work()
    }

    async fn post_stop(&self, _: ActorRef<Wake>, life: &mut Life) -> Result<(), ActorProcessingErr> {
        life.office.env.slow_fault_point("runs.stop").await?;
        life.office.inbox.close(life.number);
        Ok(())
    }
}
