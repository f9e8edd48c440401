//! The storage actor: it forgets runs that ended long ago, and it is the one that goes down when the store stops, which
//! takes the board down with it. It owns no data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::env::Env;
use crate::messages::Timestamp;
use crate::storage::Journal;

use super::floor::Floor;
use super::sweeps::{Sweeps, Swept};

pub(crate) struct Keeper;

#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) env: Env,
    pub(crate) journal: Journal,
    pub(crate) floor: Arc<Floor>,
    pub(crate) retention: Duration,
    pub(crate) every: Duration,
    /// The store acknowledges nothing any more.
    pub(crate) has_stopped: Arc<AtomicBool>,
}

#[derive(Debug)]
pub(crate) enum KeeperMsg {
    /// Forget what is old enough.
    Sweep,
    /// That is done.
    Swept(Swept),
    /// `has_stopped` is set.
    StorageStopped,
}

pub(crate) struct Keeping {
    arguments: Arguments,
    sweeps: Sweeps,
}

impl Actor for Keeper {
    type Msg = KeeperMsg;
    type State = Keeping;
    type Arguments = Arguments;

    async fn pre_start(&self, me: ActorRef<KeeperMsg>, arguments: Arguments) -> Result<Keeping, ActorProcessingErr> {
        arguments.env.slow_fault_point("storage.start").await?;
        if arguments.has_stopped.load(Ordering::Acquire) {
            me.cast(KeeperMsg::StorageStopped)?;
        }
        let (env, every) = (arguments.env.clone(), arguments.every);
        let sweeps = Sweeps { env, what: "runs that ended long ago", fault_point: "storage.sweep", every };
        sweeps.schedule(&me, Ok(()), || KeeperMsg::Sweep)?;
        Ok(Keeping { arguments, sweeps })
    }

    async fn handle(
        &self,
        me: ActorRef<KeeperMsg>,
        message: KeeperMsg,
        Keeping { arguments, sweeps }: &mut Keeping,
    ) -> Result<(), ActorProcessingErr> {
        let Arguments { env, journal, floor, retention, .. } = arguments;
        env.slow_fault_point("storage.handle").await?;
        match message {
            KeeperMsg::Sweep => {
                let (journal, now) = (journal.clone(), env.now().wall);
                let retention = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
                let oldest = Timestamp::from_millis(now.as_millis().saturating_sub(retention));
                let sweep = async move { journal.forget_ended_before(oldest).await };
                sweeps.begin(&me, sweep, KeeperMsg::Swept);
            }
            KeeperMsg::Swept(swept) => sweeps.schedule(&me, swept, || KeeperMsg::Sweep)?,
            KeeperMsg::StorageStopped => {
                floor.stop_all();
                me.stop(Some("the store has stopped".to_owned()));
            }
        }
        Ok(())
    }
}
