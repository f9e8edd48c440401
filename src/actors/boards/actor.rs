//! The actor that takes letters of other boards, and looks at which there are.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::AbortHandle;

use crate::storage::{Change, Journal, Watch};
use crate::supervision::{actor_point, answer_of};

use super::{Boards, Host};

/// The actor.
pub(crate) struct BoardsActor;

/// Message to the actor: look at which boards there are, and into the mailbox.
#[derive(Debug)]
pub(crate) struct Look;

/// The delivery of letters, which ends with the actor.
pub(crate) struct Delivery {
    boards: Arc<Boards>,
    task: AbortHandle,
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Actor for BoardsActor {
    type Msg = Look;
    type State = Delivery;
    type Arguments = (Arc<Boards>, Duration);

    async fn pre_start(
        &self,
        me: ActorRef<Look>,
        (boards, every): (Arc<Boards>, Duration),
    ) -> Result<Delivery, ActorProcessingErr> {
        boards.env.slow_fault_point("boards.start").await?;
        let delivering = Arc::clone(&boards);
        let delivering = tokio::spawn(async move { tokio::join!(deliver(&delivering), delivering.discard_read()) });
        let task = delivering.abort_handle();
        me.send_interval(every, || Look);
        tokio::spawn(async move {
            // It ends only with a panic, and is begun again with the actor.
            if delivering.await.is_err_and(|error| error.is_panic()) {
                me.kill();
            }
        });
        Ok(Delivery { boards, task })
    }

    async fn handle(&self, me: ActorRef<Look>, _: Look, delivery: &mut Delivery) -> Result<(), ActorProcessingErr> {
        actor_point(&delivery.boards.env, "boards.handle", "", &me).await?;
        delivery.boards.look_now.notify_one();
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<Look>, delivery: &mut Delivery) -> Result<(), ActorProcessingErr> {
        Ok(delivery.boards.env.slow_fault_point("boards.stop").await?)
    }
}

async fn deliver(boards: &Arc<Boards>) {
    let host = loop {
        match boards.host.get() {
            Some(host) => break &**host,
            None => boards.look_now.notified().await,
        }
    };
    let mailbox = Journal::mailbox(&boards.id);
    let mut watch: Option<Watch> = None;
    loop {
        let Some(letters) = &mut watch else {
            watch = Some(boards.journal.storage().watch(&mailbox));
            look_into_the_mailbox(boards).await;
            continue;
        };
        tokio::select! {
            // Looks are seldom, and letters may arrive all the time.
            biased;
            () = boards.look_now.notified() => look(boards, host).await,
            change = letters.next() => match change {
                Some(Change::Put(key, entry)) => boards.receive(key, entry),
                Some(Change::Deleted(_)) => {}
                Some(Change::Missed(_)) => look_into_the_mailbox(boards).await,
                // The store has stopped, or lost its connection.
                None => {
                    watch = None;
                    boards.look_now.notified().await;
                }
            },
        }
    }
}

async fn look(boards: &Arc<Boards>, host: &dyn Host) {
    match answer_of(boards.look()).await {
        Ok(true) => host.others_changed().await,
        Ok(false) => {}
        Err(error) => tracing::warn!(%error, "the other boards cannot be looked for"),
    }
    host.looked();
    look_into_the_mailbox(boards).await;
}

async fn look_into_the_mailbox(boards: &Arc<Boards>) {
    if let Err(error) = answer_of(boards.collect()).await {
        tracing::warn!(%error, "letters of other boards cannot be read; they are read again");
    }
}
