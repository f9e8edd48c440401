//! The storage actor: it forgets runs that ended long ago, holds the board's claim on its runs, and is the one that goes
//! down when the store stops, which takes the board down with it. It owns no data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::env::Env;
use crate::messages::Timestamp;
use crate::storage::{Fence, Journal, StorageError};
use crate::supervision::runs::claims::{Claims, RENEW_EVERY};

use super::floor::Floor;

pub(crate) struct Keeper;

#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) env: Env,
    pub(crate) journal: Journal,
    pub(crate) floor: Arc<Floor>,
    pub(crate) retention: Duration,
    pub(crate) every: Duration,
    pub(crate) claims: Claims,
    /// The store acknowledges nothing any more.
    pub(crate) has_stopped: Arc<AtomicBool>,
}

#[derive(Debug)]
pub(crate) enum KeeperMsg {
    /// Forget what is old enough.
    Sweep,
    /// That is done.
    Swept,
    /// Tell other boards that this one lives.
    Renew,
    /// Other boards were told, or could not be.
    Renewed(Result<Fence, StorageError>),
    /// `has_stopped` is set.
    StorageStopped,
}

/// The actor's state.
pub(crate) struct Watch {
    arguments: Arguments,
    /// The board's claim.
    fence: Fence,
}

impl Actor for Keeper {
    type Msg = KeeperMsg;
    type State = Watch;
    type Arguments = Arguments;

    async fn pre_start(&self, me: ActorRef<KeeperMsg>, arguments: Arguments) -> Result<Watch, ActorProcessingErr> {
        arguments.env.slow_fault_point("storage.start").await?;
        if arguments.has_stopped.load(Ordering::Acquire) {
            me.cast(KeeperMsg::StorageStopped)?;
        }
        let fence = arguments.claims.hold().await?;
        me.send_after(RENEW_EVERY, || KeeperMsg::Renew);
        me.send_after(arguments.every, || KeeperMsg::Sweep);
        Ok(Watch { arguments, fence })
    }

    async fn handle(
        &self,
        me: ActorRef<KeeperMsg>,
        message: KeeperMsg,
        watch: &mut Watch,
    ) -> Result<(), ActorProcessingErr> {
        let Watch { arguments: state, fence } = watch;
        state.env.slow_fault_point("storage.handle").await?;
        match message {
            KeeperMsg::Sweep => {
                let (journal, now) = (state.journal.clone(), state.env.now().wall);
                let retention = u64::try_from(state.retention.as_millis()).unwrap_or(u64::MAX);
                let oldest = Timestamp::from_millis(now.as_millis().saturating_sub(retention));
                tokio::spawn(async move {
                    match journal.forget_ended_before(oldest).await {
                        Ok(0) => {}
                        Ok(runs) => tracing::info!(runs, "runs that ended long ago are forgotten"),
                        Err(error) => tracing::warn!(%error, "old runs could not be forgotten"),
                    }
                    let _ = me.cast(KeeperMsg::Swept);
                });
            }
            KeeperMsg::Swept => drop(me.send_after(state.every, || KeeperMsg::Sweep)),
            KeeperMsg::Renew => {
                let (claims, fence) = (state.claims.clone(), *fence);
                tokio::spawn(async move { me.cast(KeeperMsg::Renewed(claims.renew(fence).await)) });
            }
            KeeperMsg::Renewed(renewed) => {
                match renewed {
                    Ok(renewed) => *fence = renewed,
                    Err(error) => tracing::warn!(%error, "the claim on the board's runs was not renewed"),
                }
                me.send_after(RENEW_EVERY, || KeeperMsg::Renew);
            }
            KeeperMsg::StorageStopped => {
                state.floor.stop_all();
                me.stop(Some("the store has stopped".to_owned()));
            }
        }
        Ok(())
    }

    /// The board's runs have stopped: another board may have them at once.
    async fn post_stop(&self, _: ActorRef<KeeperMsg>, watch: &mut Watch) -> Result<(), ActorProcessingErr> {
        watch.arguments.claims.release(watch.fence).await;
        Ok(())
    }
}
