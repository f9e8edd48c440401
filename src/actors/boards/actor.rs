//! The actor that takes letters of other boards, and looks at which there are.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;

use crate::storage::{Change, Watch};
use crate::supervision::answer_of;

use super::Boards;

/// The actor.
pub(crate) struct BoardsActor;

/// Aborts the delivery when the actor ends.
pub(crate) struct Delivery(AbortHandle);

impl Drop for Delivery {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Actor for BoardsActor {
    type Msg = ();
    type State = Delivery;
    type Arguments = (Arc<Boards>, Duration);

    async fn pre_start(
        &self,
        me: ActorRef<()>,
        (boards, every): (Arc<Boards>, Duration),
    ) -> Result<Delivery, ActorProcessingErr> {
        boards.env.slow_fault_point("boards.start").await?;
        let delivery = tokio::spawn(deliver(boards, every));
        let aborts = delivery.abort_handle();
        tokio::spawn(async move {
            // It ends only with a panic, and is begun again with the actor.
            if delivery.await.is_err_and(|error| error.is_panic()) {
                me.kill();
            }
        });
        Ok(Delivery(aborts))
    }

    async fn post_stop(&self, _: ActorRef<()>, _: &mut Delivery) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}

async fn deliver(boards: Arc<Boards>, every: Duration) {
    let mut watch: Option<Watch> = None;
    let mut look = tokio::time::interval(every);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if watch.is_none() && (boards.is_shared || !boards.others().is_empty()) {
            watch = Some(boards.journal.storage().watch(&boards.mailbox()));
            look_into_the_mailbox(&boards).await;
        }
        let arrived = async {
            match &mut watch {
                Some(watch) => watch.next().await,
                None => pending().await,
            }
        };
        tokio::select! {
            // Looks are seldom, and letters may arrive all the time.
            biased;
            _ = look.tick() => {
                match answer_of(boards.look()).await {
                    Ok(false) => {}
                    Ok(true) => {
                        if let Some(host) = boards.host.get() {
                            host.others_changed().await;
                        }
                    }
                    Err(error) => tracing::warn!(%error, "the other boards cannot be looked for"),
                }
                look_into_the_mailbox(&boards).await;
            }
            change = arrived => match change {
                Some(Change::Put(key, entry)) => boards.receive(key, entry),
                Some(Change::Deleted(_)) => {}
                Some(Change::Missed(_)) => look_into_the_mailbox(&boards).await,
                // The store has stopped.
                None => {
                    watch = None;
                    look.tick().await;
                }
            },
        }
    }
}

async fn look_into_the_mailbox(boards: &Arc<Boards>) {
    if let Err(error) = answer_of(boards.collect()).await {
        tracing::warn!(%error, "letters of other boards cannot be read; they are read again");
    }
}
