//! Channels show questions to people. The gateway keeps for each channel the questions that it shows, and has an actor for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::messages::{ApprovalId, Decision, Envelope};
use crate::supervision::{Mailbox, actor_point};

use super::Decider;

/// Somewhere people see questions and decide. It gets a [`Decider`] to answer through, and passes the name of who answered: a channel
/// authenticates its people.
pub trait Channel: Send + Sync + 'static {
    /// Names the channel in the supervision tree.
    fn name(&self) -> &str;

    /// Whether people are asked here also about what the runs of other boards on the store wait for, if those boards have no channel of
    /// this name. Of several boards that have it, one asks (SEMANTICS 16). By default they are. A channel for who sits in front of this
    /// process says no.
    fn asks_for_other_boards(&self) -> bool {
        true
    }

    /// The channel's actor has started: with the board, and again after a panic of the channel. A channel that keeps what it has
    /// shown over processes looks up here what was decided meanwhile, by [`Decider::decision`]; that a run still waits may become
    /// known later, when it is read back. Must not block. By default nothing happens.
    fn started(&self, decider: &Decider) {
        let _ = decider;
    }

    /// Shows a question. Must not block; the decision may come at any time, through any channel.
    ///
    /// A question that is shown may be asked again: after a panic of the channel, and when a decision on it could not be
    /// stored. It is the same question; show it once.
    fn ask(&self, envelope: &Envelope, decider: &Decider);

    /// A question that was asked is no longer open: it was decided here or elsewhere (`Some`), or withdrawn. Called once. One of another
    /// board is also withdrawn when a board asks that comes before this one, and is asked again if that one is gone.
    fn settled(&self, envelope: &Envelope, decision: Option<&Decision>);

    /// A question that was shown is still open, and expires soon ([`Envelope::remind_at`]). It is called once; one that is asked
    /// after that moment, such as by a process that was started later, is not reminded of. By default nothing happens.
    fn remind(&self, envelope: &Envelope, decider: &Decider) {
        let _ = (envelope, decider);
    }

    /// A question that was shown is still open, and the people of another group may decide it from now on as well
    /// ([`Envelope::escalates_at`](crate::messages::Envelope::escalates_at)). It is called once, as [`Channel::remind`] is. By default nothing
    /// happens.
    fn escalated(&self, envelope: &Envelope, decider: &Decider) {
        let _ = (envelope, decider);
    }
}

/// A channel, and the questions that its people may still see. It outlives the channel's actor, so that every shown question is
/// closed.
pub(crate) struct ChannelView {
    channel: Arc<dyn Channel>,
    shown: Mailbox<ChannelMsg, BTreeMap<ApprovalId, Envelope>>,
    /// The actor was restarted too often, and has not started again since.
    has_failed: AtomicBool,
}

impl ChannelView {
    pub(crate) fn new(channel: Arc<dyn Channel>) -> Self {
        Self { channel, shown: Mailbox::default(), has_failed: AtomicBool::new(false) }
    }

    /// The channel's name.
    pub(crate) fn name(&self) -> &str {
        self.channel.name()
    }

    /// The names of those that ask people also about what the runs of other boards wait for. One whose actor is down for good asks
    /// nobody.
    pub(crate) fn asking(views: &[Arc<Self>]) -> Vec<Arc<str>> {
        let asks = |view: &&Arc<Self>| view.channel.asks_for_other_boards() && !view.has_failed.load(Ordering::Relaxed);
        views.iter().filter(asks).map(|view| view.name().into()).collect()
    }

    /// The actor was restarted too often, and stays down.
    pub(crate) fn note_failure(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// Sends a message to the channel's actor. An actor that is down reviews the open questions when it restarts.
    pub(super) fn send(&self, message: ChannelMsg) {
        self.shown.wake(message);
    }

    fn settle(&self, id: ApprovalId, decision: Option<&Decision>) {
        // Removed first, so that a channel that panics over the question is not called again for it.
        let shown = self.shown.lock().remove(&id);
        if let Some(envelope) = shown {
            self.channel.settled(&envelope, decision);
        }
    }
}

/// The actor of one channel. A panic of the channel ends only this actor.
pub(crate) struct ChannelActor;

#[derive(Debug)]
pub(crate) enum ChannelMsg {
    /// The actor has started.
    Started,
    /// Show a question; with `again`, also if it is already shown.
    Ask { id: ApprovalId, envelope: Box<Envelope>, again: bool },
    /// Remind people of a question.
    Remind(Box<Envelope>),
    /// Another group may decide a question as well.
    Escalated(Box<Envelope>),
    /// A question is no longer open.
    Settled(ApprovalId, Option<Decision>),
    /// Messages may have been lost: compare what is shown with what is open.
    Review,
}

pub(crate) struct ChannelActorState {
    view: Arc<ChannelView>,
    decider: Decider,
    /// Questions that this actor has shown; each is shown once, until the actor restarts.
    asked: BTreeSet<ApprovalId>,
}

impl Actor for ChannelActor {
    type Msg = ChannelMsg;
    type State = ChannelActorState;
    type Arguments = (Arc<ChannelView>, Decider);

    async fn pre_start(
        &self,
        me: ActorRef<ChannelMsg>,
        (view, decider): Self::Arguments,
    ) -> Result<ChannelActorState, ActorProcessingErr> {
        decider.queue.env.slow_fault_point_of("channel.start", view.name()).await?;
        view.shown.attach(me.clone());
        view.has_failed.store(false, Ordering::Relaxed);
        me.cast(ChannelMsg::Started)?;
        me.cast(ChannelMsg::Review)?;
        let decider = decider.of_channel(view.name());
        Ok(ChannelActorState { view, decider, asked: BTreeSet::new() })
    }

    async fn handle(
        &self,
        me: ActorRef<ChannelMsg>,
        message: ChannelMsg,
        showing: &mut ChannelActorState,
    ) -> Result<(), ActorProcessingErr> {
        actor_point(&showing.decider.queue.env, "channel.handle", showing.view.name(), &me).await?;
        match message {
            ChannelMsg::Started => showing.view.channel.started(&showing.decider),
            ChannelMsg::Ask { id, envelope, again } => showing.ask(id, &envelope, again).await?,
            ChannelMsg::Remind(envelope) if showing.shows(&envelope) => {
                showing.view.channel.remind(&envelope, &showing.decider);
            }
            ChannelMsg::Escalated(envelope) if showing.shows(&envelope) => {
                showing.view.channel.escalated(&envelope, &showing.decider);
            }
            ChannelMsg::Remind(_) | ChannelMsg::Escalated(_) => {}
            ChannelMsg::Settled(id, decision) => showing.settle(id, decision.as_ref()),
            ChannelMsg::Review => showing.review().await?,
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _: ActorRef<ChannelMsg>,
        showing: &mut ChannelActorState,
    ) -> Result<(), ActorProcessingErr> {
        Ok(showing.decider.queue.env.slow_fault_point_of("channel.stop", showing.view.name()).await?)
    }
}

impl ChannelActorState {
    /// # Errors
    /// Only with an injected fault.
    async fn ask(&mut self, id: ApprovalId, envelope: &Envelope, again: bool) -> Result<(), String> {
        if self.asked.insert(id) || again {
            self.view.shown.lock().insert(id, envelope.clone());
            for _ in 0..self.decider.queue.env.message_point("channel.ask", self.view.name()).await? {
                self.view.channel.ask(envelope, &self.decider);
            }
        }
        Ok(())
    }

    fn shows(&self, envelope: &Envelope) -> bool {
        self.view.shown.lock().contains_key(&envelope.id())
    }

    fn settle(&mut self, id: ApprovalId, decision: Option<&Decision>) {
        self.asked.remove(&id);
        self.view.settle(id, decision);
    }

    async fn review(&mut self) -> Result<(), String> {
        let shown: Vec<ApprovalId> = self.view.shown.lock().keys().copied().collect();
        shown.into_iter().filter(|id| !self.decider.is_open(*id)).for_each(|id| self.look_up(id));
        for envelope in self.decider.open() {
            self.ask(envelope.id(), &envelope, false).await?;
        }
        Ok(())
    }

    /// Has the channel close a question with the stored decision.
    fn look_up(&self, id: ApprovalId) {
        let (view, decider) = (Arc::clone(&self.view), self.decider.clone());
        tokio::spawn(async move {
            let decision = decider.queue.stored(id).await.unwrap_or_else(|error| {
                tracing::error!(%id, %error, "a stored approval cannot be read");
                None
            });
            // If it was asked again meanwhile, it stays open.
            if !decider.is_open(id) {
                view.send(ChannelMsg::Settled(id, decision));
            }
        });
    }
}
