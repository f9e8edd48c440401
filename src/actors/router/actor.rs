//! The router's actor: it drains the outbox into the ledger and the directory.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::supervision::actor_point;

use super::Router;
use super::outbox::Drain;

pub(crate) struct RouterActor;

impl Actor for RouterActor {
    type Msg = Drain;
    type State = Arc<Router>;
    type Arguments = Arc<Router>;

    async fn pre_start(&self, me: ActorRef<Drain>, router: Arc<Router>) -> Result<Arc<Router>, ActorProcessingErr> {
        router.env.slow_fault_point("router.start").await?;
        router.outbox.attach(me);
        router.drain_outbox();
        Ok(router)
    }

    async fn handle(&self, me: ActorRef<Drain>, _: Drain, router: &mut Arc<Router>) -> Result<(), ActorProcessingErr> {
        actor_point(&router.env, "router.handle", "", &me).await?;
        router.drain_outbox();
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<Drain>, router: &mut Arc<Router>) -> Result<(), ActorProcessingErr> {
        Ok(router.env.slow_fault_point("router.stop").await?)
    }
}
