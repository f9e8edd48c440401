//! The context-store actor.

use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::actors::delayed_message::DelayedMessage;
use crate::actors::periodic::Periodic;
use crate::supervision::actor_point;

use super::ContextStore;
use super::expiry_timer::ExpiryMsg as Msg;

/// The context-store actor: deletes expired entries at intervals and, while there are watchers, when they expire. Reads and
/// writes do not go through it.
pub(crate) struct ContextActor;

pub(crate) struct ContextActorState {
    store: ContextStore,
    expiry: Periodic,
    /// The next [`Msg::DeleteDue`].
    next_look: Option<DelayedMessage>,
}

impl Actor for ContextActor {
    type Msg = Msg;
    type State = ContextActorState;
    type Arguments = (ContextStore, Duration);

    async fn pre_start(
        &self,
        me: ActorRef<Msg>,
        (store, every): Self::Arguments,
    ) -> Result<ContextActorState, ActorProcessingErr> {
        store.env.slow_fault_point("context.start").await?;
        let env = store.env.clone();
        let expiry = Periodic { env, what: "expired context entries", fault_point: "context.sweep", every };
        expiry.schedule(&me, Ok(()), || Msg::Expire)?;
        store.expiry_timer.attach(me.clone());
        if store.expiry_timer.is_watched() {
            me.cast(Msg::DeleteDue)?;
        }
        Ok(ContextActorState { store, expiry, next_look: None })
    }

    async fn handle(
        &self,
        me: ActorRef<Msg>,
        message: Msg,
        ContextActorState { store, expiry, next_look }: &mut ContextActorState,
    ) -> Result<(), ActorProcessingErr> {
        actor_point(&store.env, "context.handle", "", &me).await?;
        let expire = {
            let store = store.clone();
            async move { store.expire().await }
        };
        match message {
            Msg::Expire => expiry.begin(&me, expire, Msg::Expired),
            Msg::Expired(ended) => expiry.schedule(&me, ended, || Msg::Expire)?,
            Msg::DueAt(at) => {
                let after = at.since(store.env.now().wall);
                *next_look = Some(DelayedMessage::send(&me, after, || Msg::DeleteDue));
            }
            Msg::DeleteDue => {
                store.expiry_timer.looks();
                expiry.begin(&me, expire, Msg::DueDeleted);
            }
            Msg::DueDeleted(ended) => ended.map_err(|panic| format!("the expiry panicked: {panic}"))?,
        }
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<Msg>, state: &mut ContextActorState) -> Result<(), ActorProcessingErr> {
        Ok(state.store.env.slow_fault_point("context.stop").await?)
    }
}
