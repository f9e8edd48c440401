//! The storage actor: it forgets runs that ended long ago, holds the board's claim on its runs, and is the one that goes
//! down when the store stops, which takes the board down with it. It owns no data.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::env::Env;
use crate::messages::Timestamp;
use crate::storage::{Fence, Forgotten, Journal, StorageError};
use crate::supervision::actor_point;
use crate::supervision::runs::claims::{Claims, RENEW_EVERY};
use crate::supervision::runs::conversing::ConversationQueue;

use super::floor::Floor;
use super::sweeps::{Sweeps, Swept};

pub(crate) struct Keeper;

#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) env: Env,
    pub(crate) journal: Journal,
    pub(crate) floor: Arc<Floor>,
    pub(crate) retention: Duration,
    pub(crate) conversations: ConversationQueue,
    /// After the last run of one.
    pub(crate) conversation_retention: Duration,
    pub(crate) every: Duration,
    pub(crate) claims: Claims,
    /// Why the store acknowledges nothing any more.
    pub(crate) store_failure: Arc<OnceLock<StorageError>>,
}

#[derive(Debug)]
pub(crate) enum KeeperMsg {
    /// Forget what is old enough.
    Sweep,
    /// That is done.
    Swept(Swept),
    /// Tell other boards that this one lives.
    Renew,
    /// Other boards were told, or could not be.
    Renewed(Result<Fence, StorageError>),
    /// `store_failure` is set.
    StorageStopped,
}

pub(crate) struct Keeping {
    arguments: Arguments,
    sweeps: Sweeps,
    /// The board's claim.
    fence: Fence,
}

impl Actor for Keeper {
    type Msg = KeeperMsg;
    type State = Keeping;
    type Arguments = Arguments;

    async fn pre_start(&self, me: ActorRef<KeeperMsg>, arguments: Arguments) -> Result<Keeping, ActorProcessingErr> {
        arguments.env.slow_fault_point("storage.start").await?;
        if arguments.store_failure.get().is_some() {
            me.cast(KeeperMsg::StorageStopped)?;
        }
        let fence = arguments.claims.hold().await?;
        me.send_after(RENEW_EVERY, || KeeperMsg::Renew);
        let (env, every) = (arguments.env.clone(), arguments.every);
        let sweeps = Sweeps { env, what: "runs that ended long ago", fault_point: "storage.sweep", every };
        sweeps.schedule(&me, Ok(()), || KeeperMsg::Sweep)?;
        Ok(Keeping { arguments, sweeps, fence })
    }

    async fn handle(
        &self,
        me: ActorRef<KeeperMsg>,
        message: KeeperMsg,
        Keeping { arguments, sweeps, fence }: &mut Keeping,
    ) -> Result<(), ActorProcessingErr> {
        let Arguments { env, journal, floor, retention, conversations, conversation_retention, .. } = arguments;
        actor_point(env, "storage.handle", "", &me).await?;
        match message {
            KeeperMsg::Sweep => {
                let (journal, now) = (journal.clone(), env.now().wall);
                let before = |retention: &Duration| {
                    let retention = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
                    Timestamp::from_millis(now.as_millis().saturating_sub(retention))
                };
                let (oldest, oldest_talk) = (before(retention), before(conversation_retention));
                let conversations = conversations.clone();
                let sweep = async move {
                    conversations.forget_before(oldest_talk).await?;
                    let Forgotten { runs, failed } = journal.forget_ended_before(oldest).await?;
                    for (run, error) in failed {
                        tracing::warn!(%run, %error, "a run that ended long ago cannot be forgotten");
                    }
                    Ok::<_, StorageError>(runs)
                };
                sweeps.begin(&me, sweep, KeeperMsg::Swept);
            }
            KeeperMsg::Swept(swept) => sweeps.schedule(&me, swept, || KeeperMsg::Sweep)?,
            KeeperMsg::Renew => {
                // Asked for now, so that a renewal that goes wrong or never ends is not the last.
                me.send_after(RENEW_EVERY, || KeeperMsg::Renew);
                let (claims, fence) = (arguments.claims.clone(), *fence);
                tokio::spawn(async move { me.cast(KeeperMsg::Renewed(claims.renew(fence).await)) });
            }
            KeeperMsg::Renewed(Ok(renewed)) => *fence = renewed,
            KeeperMsg::Renewed(Err(error)) => {
                tracing::warn!(%error, "the claim on the board's runs was not renewed");
            }
            KeeperMsg::StorageStopped => {
                floor.stop_all();
                me.stop(Some("the store has stopped".to_owned()));
            }
        }
        Ok(())
    }

    /// The board's runs have stopped: another board may have them at once.
    async fn post_stop(&self, _: ActorRef<KeeperMsg>, keeping: &mut Keeping) -> Result<(), ActorProcessingErr> {
        keeping.arguments.env.slow_fault_point("storage.stop").await?;
        keeping.arguments.claims.release(keeping.fence).await;
        Ok(())
    }
}
