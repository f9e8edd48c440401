use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::ContextStore;

/// The context-store actor: deletes what has expired, at intervals. Reads and writes do not pass it.
pub(crate) struct Sweeper;

#[derive(Debug)]
pub(crate) enum Msg {
    Sweep,
    Swept,
}

pub(crate) struct Sweeping {
    store: ContextStore,
    every: Duration,
}

impl Actor for Sweeper {
    type Msg = Msg;
    type State = Sweeping;
    type Arguments = (ContextStore, Duration);

    async fn pre_start(
        &self,
        me: ActorRef<Msg>,
        (store, every): Self::Arguments,
    ) -> Result<Sweeping, ActorProcessingErr> {
        store.env.slow_fault_point("context.start").await?;
        me.send_after(every, || Msg::Sweep);
        Ok(Sweeping { store, every })
    }

    async fn handle(&self, me: ActorRef<Msg>, message: Msg, sweeping: &mut Sweeping) -> Result<(), ActorProcessingErr> {
        sweeping.store.env.slow_fault_point("context.handle").await?;
        match message {
            Msg::Sweep => {
                let store = sweeping.store.clone();
                tokio::spawn(async move {
                    match store.sweep().await {
                        Ok(0) => {}
                        Ok(swept) => tracing::debug!(swept, "expired context entries are gone"),
                        Err(error) => tracing::warn!(%error, "the context could not be swept"),
                    }
                    // The next sweep is due a whole interval after this one, however long it took.
                    let _ = me.cast(Msg::Swept);
                });
            }
            Msg::Swept => drop(me.send_after(sweeping.every, || Msg::Sweep)),
        }
        Ok(())
    }
}
