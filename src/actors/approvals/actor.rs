//! The gateway's actor, and one actor for each channel.

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::messages::{ApprovalId, Decision, Envelope};
use crate::supervision::runs::decide::EXPIRY;
use crate::supervision::tree::ChildRef;

use super::{Channel, Decider};

/// Tells channels what is open, delivers decisions that were stored before, and lets questions expire.
pub(crate) struct GatewayActor;

/// What the gateway's actor reacts to.
#[derive(Debug)]
pub(crate) enum Msg {
    /// A question is open.
    Requested(ApprovalId),
    /// A question is no longer open.
    Settled(Box<Envelope>, Option<Decision>),
    /// A channel has started and knows nothing yet.
    ChannelStarted(usize),
    /// A question's time is up.
    Expired(ApprovalId),
}

pub(crate) struct GatewayState {
    decider: Decider,
    channels: Vec<ChildRef<ChannelMsg>>,
}

impl Actor for GatewayActor {
    type Msg = Msg;
    type State = GatewayState;
    type Arguments = (Decider, Vec<ChildRef<ChannelMsg>>);

    async fn pre_start(
        &self,
        me: ActorRef<Msg>,
        (decider, channels): Self::Arguments,
    ) -> Result<GatewayState, ActorProcessingErr> {
        decider.desk.env.slow_fault_point("gateway.start").await?;
        for envelope in decider.open() {
            me.cast(Msg::Requested(envelope.id()))?;
        }
        Ok(GatewayState { decider, channels })
    }

    async fn handle(
        &self,
        me: ActorRef<Msg>,
        message: Msg,
        state: &mut GatewayState,
    ) -> Result<(), ActorProcessingErr> {
        state.decider.desk.env.slow_fault_point("gateway.handle").await?;
        match message {
            Msg::Requested(id) => state.requested(&me, id),
            Msg::Settled(envelope, decision) => state.tell(&ChannelMsg::Settled(envelope, decision)),
            Msg::ChannelStarted(index) => {
                if let Some(channel) = state.channels.get(index) {
                    for envelope in state.decider.open() {
                        let _ = channel.cast(ChannelMsg::Ask(Box::new(envelope)));
                    }
                }
            }
            Msg::Expired(id) => {
                let decider = state.decider.clone();
                tokio::spawn(async move {
                    // Whoever decided first has decided.
                    if let Err(error) = decider.decide(id, false, EXPIRY, "").await {
                        tracing::debug!(%error, "approval did not expire");
                    }
                });
            }
        }
        Ok(())
    }
}

impl GatewayState {
    fn requested(&self, me: &ActorRef<Msg>, id: ApprovalId) {
        let Some(envelope) = self.decider.desk.open.lock().get(&id).cloned() else { return };
        let wait = envelope.expires_at.since(self.decider.desk.env.now().wall);
        me.send_after(wait, move || Msg::Expired(id));
        self.tell(&ChannelMsg::Ask(Box::new(envelope.clone())));
        let desk = Arc::clone(&self.decider.desk);
        tokio::spawn(async move {
            match desk.stored(id).await {
                Ok(Some(decision)) => desk.deliver(&envelope, decision),
                Ok(None) => {}
                Err(error) => tracing::error!(%error, "stored approval cannot be read"),
            }
        });
    }

    fn tell(&self, message: &ChannelMsg) {
        for channel in &self.channels {
            // A channel that is down asks for what is open when it is back.
            let _ = channel.cast(message.clone());
        }
    }
}

/// Shows questions on one channel; its panics are its own.
pub(crate) struct ChannelActor;

#[derive(Clone, Debug)]
pub(crate) enum ChannelMsg {
    Ask(Box<Envelope>),
    Settled(Box<Envelope>, Option<Decision>),
}

pub(crate) struct ChannelState {
    channel: Arc<dyn Channel>,
    decider: Decider,
    /// Kept so that a question is shown once in a life of this actor.
    shown: std::collections::BTreeSet<ApprovalId>,
}

impl Actor for ChannelActor {
    type Msg = ChannelMsg;
    type State = ChannelState;
    type Arguments = (Arc<dyn Channel>, Decider, usize);

    async fn pre_start(
        &self,
        _: ActorRef<ChannelMsg>,
        (channel, decider, index): Self::Arguments,
    ) -> Result<ChannelState, ActorProcessingErr> {
        decider.desk.env.slow_fault_point("channel.start").await?;
        // Told after this actor can be reached; a gateway that starts later tells everything anyway.
        let desk = Arc::clone(&decider.desk);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::ZERO).await;
            desk.tell(Msg::ChannelStarted(index));
        });
        Ok(ChannelState { channel, decider, shown: std::collections::BTreeSet::new() })
    }

    async fn handle(
        &self,
        _: ActorRef<ChannelMsg>,
        message: ChannelMsg,
        state: &mut ChannelState,
    ) -> Result<(), ActorProcessingErr> {
        state.decider.desk.env.slow_fault_point("channel.handle").await?;
        match message {
            ChannelMsg::Ask(envelope) => {
                if state.shown.insert(envelope.id()) {
                    state.channel.ask(&envelope, &state.decider);
                }
            }
            ChannelMsg::Settled(envelope, decision) => {
                state.shown.remove(&envelope.id());
                state.channel.settled(&envelope, decision.as_ref());
            }
        }
        Ok(())
    }
}
