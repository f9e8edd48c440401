//! The router's actor: it enters in its ledger and its directory what run supervisors and agents post.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::supervision::actor_point;

use super::Router;

pub(crate) struct RouterActor;

/// There are posts.
#[derive(Debug)]
pub(crate) struct Posted;

impl Actor for RouterActor {
    type Msg = Posted;
    type State = Arc<Router>;
    type Arguments = Arc<Router>;

    async fn pre_start(&self, me: ActorRef<Posted>, router: Arc<Router>) -> Result<Arc<Router>, ActorProcessingErr> {
        router.env.slow_fault_point("router.start").await?;
        router.posts.attach(me);
        router.enter_posts();
        Ok(router)
    }

    async fn handle(
        &self,
        me: ActorRef<Posted>,
        _: Posted,
        router: &mut Arc<Router>,
    ) -> Result<(), ActorProcessingErr> {
        actor_point(&router.env, "router.handle", "", &me).await?;
        router.enter_posts();
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<Posted>, router: &mut Arc<Router>) -> Result<(), ActorProcessingErr> {
        Ok(router.env.slow_fault_point("router.stop").await?)
    }
}
