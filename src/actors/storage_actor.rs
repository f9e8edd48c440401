//! The storage actor: it deletes runs that ended long ago, holds the board's claim on its runs, and fails when the store stops,
//! which ends the board. It owns no data.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::env::Env;
use crate::messages::Timestamp;
use crate::storage::{Fence, Forgotten, Journal, StorageError};
use crate::supervision::actor_point;
use crate::supervision::runs::claims::{Claims, RENEW_EVERY};
use crate::supervision::runs::conversing::ConversationQueue;

use super::day_limiter::DayLimiter;
use super::periodic::{Ended, Periodic};
use super::scheduler::Scheduler;

pub(crate) struct StorageActor;

#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) env: Env,
    pub(crate) journal: Journal,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) retention: Duration,
    pub(crate) conversations: ConversationQueue,
    /// Counted from the end of a conversation's last run.
    pub(crate) conversation_retention: Duration,
    pub(crate) every: Duration,
    pub(crate) claims: Claims,
    pub(crate) day_limiter: Arc<DayLimiter>,
    /// The error with which the store stopped.
    pub(crate) store_failure: Arc<OnceLock<StorageError>>,
}

#[derive(Debug)]
pub(crate) enum StorageActorMsg {
    /// The interval has passed: delete old runs.
    Forget,
    /// The deletion has ended.
    Forgotten(Ended),
    /// Renew the claim, so that other boards see that this one is alive.
    Renew,
    /// The claim was renewed, or could not be.
    Renewed(Result<Fence, StorageError>),
    /// `store_failure` is set.
    StorageStopped,
}

pub(crate) struct StorageActorState {
    arguments: Arguments,
    expiry: Periodic,
    /// The board's claim.
    fence: Fence,
}

impl Actor for StorageActor {
    type Msg = StorageActorMsg;
    type State = StorageActorState;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        me: ActorRef<StorageActorMsg>,
        arguments: Arguments,
    ) -> Result<StorageActorState, ActorProcessingErr> {
        arguments.env.slow_fault_point("storage.start").await?;
        if arguments.store_failure.get().is_some() {
            me.cast(StorageActorMsg::StorageStopped)?;
        }
        let fence = arguments.claims.hold().await?;
        me.send_after(RENEW_EVERY, || StorageActorMsg::Renew);
        let (env, every) = (arguments.env.clone(), arguments.every);
        let expiry = Periodic { env, what: "runs that ended long ago", fault_point: "storage.sweep", every };
        expiry.schedule(&me, Ok(()), || StorageActorMsg::Forget)?;
        Ok(StorageActorState { arguments, expiry, fence })
    }

    async fn handle(
        &self,
        me: ActorRef<StorageActorMsg>,
        message: StorageActorMsg,
        StorageActorState { arguments, expiry, fence }: &mut StorageActorState,
    ) -> Result<(), ActorProcessingErr> {
        let Arguments { env, journal, scheduler, retention, conversations, conversation_retention, .. } = arguments;
        actor_point(env, "storage.handle", "", &me).await?;
        match message {
            StorageActorMsg::Forget => {
                let (journal, now) = (journal.clone(), env.now().wall);
                let before = |retention: &Duration| {
                    let retention = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
                    Timestamp::from_millis(now.as_millis().saturating_sub(retention))
                };
                let (oldest, oldest_talk) = (before(retention), before(conversation_retention));
                let conversations = conversations.clone();
                let forget = async move {
                    conversations.forget_before(oldest_talk).await?;
                    let Forgotten { runs, failed } = journal.forget_ended_before(oldest).await?;
                    for (run, error) in failed {
                        tracing::warn!(%run, %error, "a run that ended long ago cannot be forgotten");
                    }
                    Ok::<_, StorageError>(runs)
                };
                expiry.begin(&me, forget, StorageActorMsg::Forgotten);
            }
            StorageActorMsg::Forgotten(ended) => expiry.schedule(&me, ended, || StorageActorMsg::Forget)?,
            StorageActorMsg::Renew => {
                // Scheduled now, so that a renewal that fails or never ends does not prevent the next one.
                me.send_after(RENEW_EVERY, || StorageActorMsg::Renew);
                let (claims, fence) = (arguments.claims.clone(), *fence);
                tokio::spawn(async move { me.cast(StorageActorMsg::Renewed(claims.renew(fence).await)) });
            }
            StorageActorMsg::Renewed(Ok(renewed)) => {
                if std::mem::replace(fence, renewed) != renewed {
                    arguments.day_limiter.give_up_blocks();
                }
            }
            StorageActorMsg::Renewed(Err(error)) => {
                tracing::warn!(%error, "the claim on the board's runs was not renewed");
            }
            StorageActorMsg::StorageStopped => {
                scheduler.stop_all();
                me.stop(Some("the store has stopped".to_owned()));
            }
        }
        Ok(())
    }

    /// The board's runs have stopped: another board may take them over at once.
    async fn post_stop(
        &self,
        _: ActorRef<StorageActorMsg>,
        state: &mut StorageActorState,
    ) -> Result<(), ActorProcessingErr> {
        state.arguments.env.slow_fault_point("storage.stop").await?;
        if let Err(error) = state.arguments.day_limiter.close().await {
            tracing::warn!(%error, "what the board had set aside of the day's limits stays spent until another board settles it");
        }
        state.arguments.claims.release(state.fence).await;
        Ok(())
    }
}
