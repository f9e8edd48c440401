//! A channel as the gateway sees it: what its people are shown, and the actor that shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::messages::{ApprovalId, Decision, Envelope};
use crate::supervision::{Mailbox, actor_point};

use super::{Channel, Decider};

/// A channel and what its people may still see. Outlives the channel's actor, so that whatever was shown is closed.
pub(crate) struct Screen {
    channel: Arc<dyn Channel>,
    shown: Mutex<BTreeMap<ApprovalId, Envelope>>,
    actor: Mailbox<ChannelMsg>,
}

impl Screen {
    pub(crate) fn new(channel: Arc<dyn Channel>) -> Self {
        Self { channel, shown: Mutex::default(), actor: Mailbox::default() }
    }

    /// The channel's name.
    pub(crate) fn name(&self) -> &str {
        self.channel.name()
    }

    /// A channel that is down reviews what is open when it is back.
    pub(super) fn tell(&self, message: ChannelMsg) {
        self.actor.tell(message);
    }

    fn settle(&self, id: ApprovalId, decision: Option<&Decision>) {
        // Forgotten first: a channel that panics over it is not told again.
        let shown = self.shown.lock().remove(&id);
        if let Some(envelope) = shown {
            self.channel.settled(&envelope, decision);
        }
    }
}

/// Shows questions on one channel; its panics are its own.
pub(crate) struct ChannelActor;

#[derive(Debug)]
pub(crate) enum ChannelMsg {
    /// Show a question, also if it is shown already when it is to be seen `again`.
    Ask { id: ApprovalId, envelope: Box<Envelope>, again: bool },
    /// Remind people of a question.
    Remind(Box<Envelope>),
    /// A question is no longer open.
    Settled(ApprovalId, Option<Decision>),
    /// Messages may have been lost: compare what is shown with what is open.
    Review,
}

pub(crate) struct Showing {
    screen: Arc<Screen>,
    decider: Decider,
    /// Kept so that a question is shown once in a life of this actor.
    asked: BTreeSet<ApprovalId>,
}

impl Actor for ChannelActor {
    type Msg = ChannelMsg;
    type State = Showing;
    type Arguments = (Arc<Screen>, Decider);

    async fn pre_start(
        &self,
        me: ActorRef<ChannelMsg>,
        (screen, decider): Self::Arguments,
    ) -> Result<Showing, ActorProcessingErr> {
        decider.desk.env.slow_fault_point_of("channel.start", screen.name()).await?;
        screen.actor.attach(me.clone());
        me.cast(ChannelMsg::Review)?;
        Ok(Showing { screen, decider, asked: BTreeSet::new() })
    }

    async fn handle(
        &self,
        me: ActorRef<ChannelMsg>,
        message: ChannelMsg,
        showing: &mut Showing,
    ) -> Result<(), ActorProcessingErr> {
        actor_point(&showing.decider.desk.env, "channel.handle", showing.screen.name(), &me).await?;
        match message {
            ChannelMsg::Ask { id, envelope, again } => showing.ask(id, &envelope, again).await?,
            ChannelMsg::Remind(envelope) => showing.remind(&envelope),
            ChannelMsg::Settled(id, decision) => showing.settle(id, decision.as_ref()),
            ChannelMsg::Review => showing.review().await?,
        }
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<ChannelMsg>, showing: &mut Showing) -> Result<(), ActorProcessingErr> {
        Ok(showing.decider.desk.env.slow_fault_point_of("channel.stop", showing.screen.name()).await?)
    }
}

impl Showing {
    /// # Errors
    /// At a fault point only.
    async fn ask(&mut self, id: ApprovalId, envelope: &Envelope, again: bool) -> Result<(), String> {
        if self.asked.insert(id) || again {
            self.screen.shown.lock().insert(id, envelope.clone());
            for _ in 0..self.decider.desk.env.message_point("channel.ask", self.screen.name()).await? {
                self.screen.channel.ask(envelope, &self.decider);
            }
        }
        Ok(())
    }

    fn remind(&self, envelope: &Envelope) {
        if self.screen.shown.lock().contains_key(&envelope.id()) {
            self.screen.channel.remind(envelope, &self.decider);
        }
    }

    fn settle(&mut self, id: ApprovalId, decision: Option<&Decision>) {
        self.asked.remove(&id);
        self.screen.settle(id, decision);
    }

    async fn review(&mut self) -> Result<(), String> {
        let shown: Vec<ApprovalId> = self.screen.shown.lock().keys().copied().collect();
        shown.into_iter().filter(|id| !self.decider.desk.is_open(*id)).for_each(|id| self.look_up(id));
        for envelope in self.decider.open() {
            self.ask(envelope.id(), &envelope, false).await?;
        }
        Ok(())
    }

    /// Has the channel told what became of a question, once the store has said it.
    fn look_up(&self, id: ApprovalId) {
        let (screen, desk) = (Arc::clone(&self.screen), Arc::clone(&self.decider.desk));
        tokio::spawn(async move {
            let decision = desk.stored(id).await.unwrap_or_else(|error| {
                tracing::error!(%id, %error, "a stored approval cannot be read");
                None
            });
            // It may have been asked again meanwhile; then it is shown as it is.
            if !desk.is_open(id) {
                screen.tell(ChannelMsg::Settled(id, decision));
            }
        });
    }
}
