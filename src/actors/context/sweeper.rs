use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, MessagingErr};
use tokio::task::JoinHandle;

use super::ContextStore;
use crate::actors::sweeps::{Sweeps, Swept};
use crate::messages::Timestamp;
use crate::supervision::actor_point;

/// The context-store actor: deletes what has expired, at intervals, and, while somebody watches, when it expires. Reads and
/// writes do not pass it.
pub(crate) struct Sweeper;

#[derive(Debug)]
pub(crate) enum Msg {
    /// The interval is over.
    Sweep,
    Swept(Swept),
    /// Something expires then.
    DueAt(Timestamp),
    /// Something has expired, or somebody began to watch.
    Look,
    Looked(Swept),
}

pub(crate) struct Sweeping {
    store: ContextStore,
    sweeps: Sweeps,
    /// Sends the next [`Msg::Look`].
    timer: Option<Timer>,
}

/// A message that comes later, unless this is dropped before.
struct Timer(JoinHandle<Result<(), MessagingErr<Msg>>>);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
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
        store.alarm.wakes(me.clone());
        if store.alarm.is_watched() {
            me.cast(Msg::Look)?;
        }
        Ok(Sweeping { store, sweeps, timer: None })
    }

    async fn handle(
        &self,
        me: ActorRef<Msg>,
        message: Msg,
        Sweeping { store, sweeps, timer }: &mut Sweeping,
    ) -> Result<(), ActorProcessingErr> {
        actor_point(&store.env, "context.handle", "", &me).await?;
        let sweep = {
            let store = store.clone();
            async move { store.sweep().await }
        };
        match message {
            Msg::Sweep => sweeps.begin(&me, sweep, Msg::Swept),
            Msg::Swept(swept) => sweeps.schedule(&me, swept, || Msg::Sweep)?,
            Msg::DueAt(at) => {
                let after = at.since(store.env.now().wall);
                *timer = Some(Timer(me.send_after(after, || Msg::Look)));
            }
            Msg::Look => {
                store.alarm.looks();
                sweeps.begin(&me, sweep, Msg::Looked);
            }
            Msg::Looked(looked) => looked.map_err(|panic| format!("a sweep panicked: {panic}"))?,
        }
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<Msg>, sweeping: &mut Sweeping) -> Result<(), ActorProcessingErr> {
        Ok(sweeping.store.env.slow_fault_point("context.stop").await?)
    }
}
