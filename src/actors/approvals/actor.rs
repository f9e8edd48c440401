//! The gateway's actor.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::JoinHandle;

use crate::messages::{ApprovalId, Decision};
use crate::supervision::actor_point;

use super::screen::{ChannelMsg, Screen};
use super::{DecideError, Decider};

/// When an expiry that could not be stored is tried again.
const EXPIRE_AGAIN: Duration = Duration::from_secs(10);

/// Tells channels what is open, delivers decisions that were stored before, and lets questions expire.
pub(crate) struct GatewayActor;

/// What the gateway's actor reacts to.
#[derive(Debug)]
pub(crate) enum Msg {
    /// A question is open.
    Requested(ApprovalId),
    /// A question is no longer open.
    Settled(ApprovalId, Option<Decision>),
    /// A question's time is up.
    Expired(ApprovalId),
    /// People are to be reminded of a question that is still open.
    Remind(ApprovalId),
}

pub(crate) struct GatewayState {
    decider: Decider,
    screens: Arc<[Arc<Screen>]>,
    /// When open questions expire, and when people are reminded of them.
    alarms: BTreeMap<ApprovalId, [Option<Alarm>; 2]>,
}

/// Tells the gateway that a moment has come, unless it is dropped before.
struct Alarm(JoinHandle<()>);

impl Alarm {
    fn new(me: &ActorRef<Msg>, wait: Duration, message: Msg) -> Self {
        let me = me.clone();
        Self(tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            // A gateway that is back finds the question open, and sets an alarm of its own.
            let _ = me.cast(message);
        }))
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Actor for GatewayActor {
    type Msg = Msg;
    type State = GatewayState;
    type Arguments = (Decider, Arc<[Arc<Screen>]>);

    async fn pre_start(
        &self,
        me: ActorRef<Msg>,
        (decider, screens): Self::Arguments,
    ) -> Result<GatewayState, ActorProcessingErr> {
        decider.desk.env.slow_fault_point("gateway.start").await?;
        decider.desk.attach(me.clone());
        for envelope in decider.open() {
            me.cast(Msg::Requested(envelope.id()))?;
        }
        // What the one before was told, and did not pass on.
        screens.iter().for_each(|screen| screen.tell(ChannelMsg::Review));
        Ok(GatewayState { decider, screens, alarms: BTreeMap::new() })
    }

    async fn handle(
        &self,
        me: ActorRef<Msg>,
        message: Msg,
        state: &mut GatewayState,
    ) -> Result<(), ActorProcessingErr> {
        actor_point(&state.decider.desk.env, "gateway.handle", "", &me).await?;
        match message {
            Msg::Requested(id) => state.requested(&me, id),
            Msg::Settled(id, decision) => {
                state.alarms.remove(&id);
                state.screens.iter().for_each(|screen| screen.tell(ChannelMsg::Settled(id, decision.clone())));
            }
            Msg::Remind(id) => {
                if let Some(envelope) = state.decider.desk.envelope(id) {
                    let remind = || ChannelMsg::Remind(Box::new(envelope.clone()));
                    state.screens.iter().for_each(|screen| screen.tell(remind()));
                }
            }
            Msg::Expired(id) => {
                let decider = state.decider.clone();
                tokio::spawn(async move {
                    match decider.expire(id).await {
                        // Whoever decided first has decided.
                        Ok(_)
                        | Err(
                            DecideError::AlreadyDecided { .. }
                            | DecideError::Unknown { .. }
                            | DecideError::Expired { .. }
                            | DecideError::NotForRun { .. }
                            | DecideError::NotEditable { .. }
                            | DecideError::TooLong(_),
                        ) => {}
                        Err(DecideError::Storage(error)) => {
                            tracing::warn!(%id, %error, "an approval could not expire; it is tried again");
                            me.send_after(EXPIRE_AGAIN, move || Msg::Expired(id));
                        }
                    }
                });
            }
        }
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<Msg>, state: &mut GatewayState) -> Result<(), ActorProcessingErr> {
        Ok(state.decider.desk.env.slow_fault_point("gateway.stop").await?)
    }
}

impl GatewayState {
    fn requested(&mut self, me: &ActorRef<Msg>, id: ApprovalId) {
        let desk = &self.decider.desk;
        let Some((envelope, again)) = desk.question(id) else { return };
        let now = desk.env.now().wall;
        let expiry = Alarm::new(me, envelope.expires_at.since(now), Msg::Expired(id));
        // Whoever is asked after that moment need not be reminded as well.
        let reminder = envelope.remind_at.filter(|at| *at > now);
        let reminder = reminder.map(|at| Alarm::new(me, at.since(now), Msg::Remind(id)));
        self.alarms.insert(id, [Some(expiry), reminder]);
        // What has expired is asked of nobody.
        if envelope.expires_at > now {
            for screen in &*self.screens {
                screen.tell(ChannelMsg::Ask { id, envelope: Box::new(envelope.clone()), again });
            }
        }
        let desk = Arc::clone(desk);
        tokio::spawn(async move {
            match desk.stored(id).await {
                Ok(Some(decision)) => desk.deliver(id, decision),
                Ok(None) => {}
                Err(error) => tracing::error!(%id, %error, "a stored approval cannot be read"),
            }
        });
    }
}
