use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use super::ContextStore;
use crate::actors::sweeps::{Sweeps, Swept};
use crate::supervision::actor_point;

/// The context-store actor: deletes what has expired, at intervals. Reads and writes do not pass it.
pub(crate) struct Sweeper;

#[derive(Debug)]
pub(crate) enum Msg {
    Sweep,
    Swept(Swept),
}

pub(crate) struct Sweeping {
    store: ContextStore,
    sweeps: Sweeps,
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
        let env = store.env.clone();
        let sweeps = Sweeps { env, what: "expired context entries", fault_point: "context.sweep", every };
        sweeps.schedule(&me, Ok(()), || Msg::Sweep)?;
        Ok(Sweeping { store, sweeps })
    }

    async fn handle(
        &self,
        me: ActorRef<Msg>,
        message: Msg,
        Sweeping { store, sweeps }: &mut Sweeping,
    ) -> Result<(), ActorProcessingErr> {
        actor_point(&store.env, "context.handle", "", &me).await?;
        match message {
            Msg::Sweep => {
                let store = store.clone();
                sweeps.begin(&me, async move { store.sweep().await }, Msg::Swept);
            }
            Msg::Swept(swept) => sweeps.schedule(&me, swept, || Msg::Sweep)?,
        }
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<Msg>, sweeping: &mut Sweeping) -> Result<(), ActorProcessingErr> {
        Ok(sweeping.store.env.slow_fault_point("context.stop").await?)
    }
}
