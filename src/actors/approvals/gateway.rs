//! The actor of the gateway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::actors::delayed_message::DelayedMessage;
use crate::messages::{ApprovalId, Envelope};
use crate::supervision::actor_point;
use crate::supervision::runs::rules::errors::AnswerError;

use super::Decider;
use super::channel::{ChannelMsg, ChannelView};
use super::message::GatewayMsg;

/// The delay before an expiry that could not be stored is tried again.
const EXPIRE_AGAIN: Duration = Duration::from_secs(10);

/// Passes questions on to channels, delivers decisions that were stored before, and denies questions that expire.
pub(crate) struct GatewayActor;

pub(crate) struct GatewayState {
    decider: Decider,
    views: Arc<[Arc<ChannelView>]>,
    /// The delayed messages of each open question: its expiry, its reminder and its escalation. A restarted actor finds the open
    /// questions in the queue and sends its own.
    scheduled: BTreeMap<ApprovalId, [Option<DelayedMessage>; 3]>,
}

impl Actor for GatewayActor {
    type Msg = GatewayMsg;
    type State = GatewayState;
    type Arguments = (Decider, Arc<[Arc<ChannelView>]>);

    async fn pre_start(
        &self,
        me: ActorRef<GatewayMsg>,
        (decider, views): Self::Arguments,
    ) -> Result<GatewayState, ActorProcessingErr> {
        decider.queue.env.slow_fault_point("gateway.start").await?;
        decider.queue.attach(me.clone());
        // Those that have expired as well: the actor may have failed as it was to deny one.
        let open = decider.queue.open().iter().map(Envelope::id).collect::<Vec<_>>();
        for id in open.into_iter().chain(decider.elsewhere().ids()) {
            me.cast(GatewayMsg::Requested(id))?;
        }
        // For messages that the actor had received before a crash and not passed on.
        views.iter().for_each(|view| view.send(ChannelMsg::Review));
        Ok(GatewayState { decider, views, scheduled: BTreeMap::new() })
    }

    async fn handle(
        &self,
        me: ActorRef<GatewayMsg>,
        message: GatewayMsg,
        state: &mut GatewayState,
    ) -> Result<(), ActorProcessingErr> {
        actor_point(&state.decider.queue.env, "gateway.handle", "", &me).await?;
        match message {
            GatewayMsg::Requested(id) => state.requested(&me, id),
            GatewayMsg::Settled(id, decision) => {
                state.scheduled.remove(&id);
                state.views.iter().for_each(|view| view.send(ChannelMsg::Settled(id, decision.clone())));
            }
            GatewayMsg::HandedOver(id, channels) => {
                let queue = &state.decider.queue;
                if queue.envelope(id).or_else(|| queue.elsewhere.envelope(id)).is_none() {
                    state.scheduled.remove(&id);
                }
                for view in state.views.iter().filter(|view| channels.contains(view.name())) {
                    view.send(ChannelMsg::Settled(id, None));
                }
            }
            GatewayMsg::Remind(id) => state.about_open(id, ChannelMsg::Remind),
            GatewayMsg::Escalate(id) => state.about_open(id, ChannelMsg::Escalated),
            GatewayMsg::Expired(id) => {
                let decider = state.decider.clone();
                tokio::spawn(async move {
                    // Any other error means that another channel or person decided first.
                    if let Err(AnswerError::Storage(error)) = decider.expire(id).await {
                        tracing::warn!(%id, %error, "an approval could not expire; it is tried again");
                        me.send_after(EXPIRE_AGAIN, move || GatewayMsg::Expired(id));
                    }
                });
            }
        }
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<GatewayMsg>, state: &mut GatewayState) -> Result<(), ActorProcessingErr> {
        Ok(state.decider.queue.env.slow_fault_point("gateway.stop").await?)
    }
}

impl GatewayState {
    fn requested(&mut self, me: &ActorRef<GatewayMsg>, id: ApprovalId) {
        let queue = Arc::clone(&self.decider.queue);
        let Some((envelope, again)) = queue.question(id) else { return self.requested_elsewhere(me, id) };
        let now = queue.env.now().wall;
        let expiry = DelayedMessage::send(me, envelope.expires_at.since(now), move || GatewayMsg::Expired(id));
        self.schedule(me, &envelope, Some(expiry));
        // An expired question is not shown.
        if envelope.expires_at > now {
            for view in &*self.views {
                view.send(ChannelMsg::Ask { id, envelope: Box::new(envelope.clone()), again });
            }
        }
        if let Some(others) = queue.elsewhere.boards() {
            others.asked();
        }
        tokio::spawn(async move {
            // What was stored before is delivered. Any other error means that the question is no longer open.
            if let Err(AnswerError::Storage(error)) = queue.decide(id, None).await {
                tracing::error!(%id, %error, "a stored approval cannot be read");
            }
        });
    }

    /// Shows a question of another board, which expires it.
    fn requested_elsewhere(&mut self, me: &ActorRef<GatewayMsg>, id: ApprovalId) {
        let Some((envelope, channels, again)) = self.decider.elsewhere().question(id) else { return };
        self.schedule(me, &envelope, None);
        for view in self.views.iter().filter(|view| channels.contains(view.name())) {
            view.send(ChannelMsg::Ask { id, envelope: Box::new(envelope.clone()), again });
        }
    }

    fn schedule(&mut self, me: &ActorRef<GatewayMsg>, envelope: &Envelope, expiry: Option<DelayedMessage>) {
        let (id, now) = (envelope.id(), self.decider.queue.env.now().wall);
        // People who are asked after the reminder's time are not reminded as well.
        let reminder = envelope.remind_at.filter(|at| *at > now);
        let reminder = reminder.map(|at| DelayedMessage::send(me, at.since(now), move || GatewayMsg::Remind(id)));
        let escalation = envelope.escalates_at.filter(|at| *at > now);
        let escalation = escalation.map(|at| DelayedMessage::send(me, at.since(now), move || GatewayMsg::Escalate(id)));
        self.scheduled.insert(id, [expiry, reminder, escalation]);
    }

    /// Sends a message about a question to all channels, if it is still open. One that does not show it passes nothing on.
    fn about_open(&self, id: ApprovalId, message: impl Fn(Box<Envelope>) -> ChannelMsg) {
        let queue = &self.decider.queue;
        let envelope = queue.envelope(id).or_else(|| queue.elsewhere.envelope(id));
        if let Some(envelope) = envelope {
            self.views.iter().for_each(|view| view.send(message(Box::new(envelope.clone()))));
        }
    }
}
