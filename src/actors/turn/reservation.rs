//! Token reservations of a turn.

use std::future::IntoFuture;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::actors::day_limiter::DayHold;
use crate::messages::{Cost, TraceParent, Usage};
use crate::supervision::runs::queue::WithRecord;
use crate::supervision::runs::rules::budget::Share;
use crate::supervision::runs::rules::requests::{Settled, TurnReply, TurnRequest};

use super::error::unexpected;
use super::shared::{TurnShared, Waiting};
use super::{Turn, TurnError};

impl Turn {
    /// Sets tokens aside for a model call. Settle the reservation with what the provider reports, or release it if the call
    /// was not sent, also before an error ends the attempt: one that is dropped stays spent, because the call may have
    /// been made.
    ///
    /// # Errors
    /// [`Refusal::TokenBudget`](crate::messages::Refusal::TokenBudget), [`Refusal::AgentBudget`](crate::messages::Refusal::AgentBudget).
    pub async fn reserve(&self, tokens: u64) -> Result<Reservation, TurnError> {
        self.reserve_for(tokens, None, false).await
    }

    /// As [`Turn::reserve`], with the most that the call may cost: where money is limited, a call without it is refused.
    ///
    /// # Errors
    /// [`Refusal::TokenBudget`](crate::messages::Refusal::TokenBudget), [`Refusal::CostBudget`](crate::messages::Refusal::CostBudget),
    /// [`Refusal::AgentBudget`](crate::messages::Refusal::AgentBudget).
    pub async fn reserve_priced(&self, tokens: u64, cost: Option<Cost>) -> Result<Reservation, TurnError> {
        self.reserve_for(tokens, cost, false).await
    }

    /// Reserves for a run that the turn begins and that continues over attempts: the reservation of an earlier attempt is taken over.
    pub(crate) async fn reserve_for_run(&self, tokens: u64, cost: Option<Cost>) -> Result<Reservation, TurnError> {
        self.reserve_for(tokens, cost, true).await
    }

    /// Reserves a share of what is left for a run that the turn begins, or takes that of an earlier attempt over. `with_share` is written
    /// with the record of a new one.
    pub(crate) async fn reserve_share(
        &self,
        with_share: Option<WithRecord<Share>>,
    ) -> Result<(Reservation, Share), TurnError> {
        let of_agent = self.shared.settings.per_run;
        let request =
            || TurnRequest::Reserve { tokens: 0, cost: None, charged: None, of_agent, continues: true, is_share: true };
        match self.request_with(u32::MAX, request, || with_share.clone()).await? {
            TurnReply::Shared { number, is_new, share } => {
                Ok((Reservation { turn: self.clone(), number, is_new, is_of_run: true, held: None }, share))
            }
            TurnReply::Reserved(Err(refusal)) => Err((*refusal).into()),
            reply => Err(unexpected(&reply)),
        }
    }

    async fn reserve_for(&self, tokens: u64, cost: Option<Cost>, is_of_run: bool) -> Result<Reservation, TurnError> {
        // A run that the turn begins has its own calls charged.
        let held = if is_of_run { None } else { self.hold_of_day(tokens, cost).await? };
        let charged = held.as_ref().map(DayHold::charged);
        let of_agent = self.shared.settings.per_run;
        let request = || {
            let charged = charged.clone();
            TurnRequest::Reserve { tokens, cost, charged, of_agent, continues: is_of_run, is_share: false }
        };
        let (number, is_new) = match self.request(u32::MAX, request).await? {
            TurnReply::Reserved(Ok(number)) => (number, true),
            TurnReply::TakenOver(number) => (number, false),
            TurnReply::Reserved(Err(refusal)) => {
                if let Some(held) = held {
                    held.settle(None);
                }
                return Err((*refusal).into());
            }
            reply => return Err(unexpected(&reply)),
        };
        Ok(Reservation { turn: self.clone(), number, is_new, is_of_run, held: held.map(Box::new) })
    }

    /// Sets the call aside of what may be used in the day; `None` if no limit of a day counts it.
    async fn hold_of_day(&self, tokens: u64, cost: Option<Cost>) -> Result<Option<DayHold>, TurnError> {
        let TurnShared { services, settings, ready, .. } = &*self.shared;
        let (day_limiter, per_day) = (&services.day_limiter, settings.per_day);
        if !day_limiter.counts(per_day) {
            return Ok(None);
        }
        if ready.sink.is_ahead() {
            Box::pin(self.committed()).await?;
        }
        let _waiting = Waiting::begin(&self.shared);
        let held = day_limiter.hold(ready, per_day, tokens, cost).await;
        held.map_err(|error| TurnError::transient(format!("the limits of the day cannot be read: {error}")))?
            .map_err(TurnError::from)
    }
}

/// Tokens that [`Turn::reserve`] has set aside for one call, to be settled or released; those of a dropped reservation
/// stay spent.
#[derive(Debug)]
#[must_use = "settle it with what the provider reports"]
pub struct Reservation {
    turn: Turn,
    number: u32,
    /// No earlier attempt has used any of it.
    is_new: bool,
    /// It is for a run that the turn begins.
    is_of_run: bool,
    /// Its part of what may be used in the day.
    /// Boxed because few boards have such limits, and most reservations wait for a model.
    held: Option<Box<DayHold>>,
}

impl Reservation {
    /// The span of the call, to pass on to whoever answers it; `None` unless the run is a part of the trace of another program.
    #[must_use]
    pub fn trace_parent(&self) -> Option<TraceParent> {
        let TurnShared { ready, .. } = &*self.turn.shared;
        let submission = ready.submission.is_in_other_trace().then_some(&ready.submission);
        submission.map(|submission| submission.call_trace_parent(ready.id.number, self.number))
    }

    /// The call has reported what it used. It is sent at once; await it to know that it counts.
    pub fn settle(self, usage: Usage) -> Settlement {
        Settlement::begin(self, Settled { usage: Some(usage), ..Settled::default() })
    }

    /// As [`Reservation::settle`], for a turn that is about to end: it is journaled with the turn's end, or at the same time.
    pub(crate) fn settle_at_end(self, usage: Usage) {
        let settled = Settled { usage: Some(usage), is_of_run: self.is_of_run, ..Settled::default() };
        self.turn.post(self.number, TurnRequest::Settle(settled));
    }

    /// As [`Reservation::settle`], with the name of the model that has answered.
    pub fn settle_by(self, model: &str, usage: Usage) -> Settlement {
        Settlement::begin(self, Settled { usage: Some(usage), model: Some(model.into()), ..Settled::default() })
    }

    /// The call was not begun: the tokens are released, unless an earlier attempt had begun it.
    pub(crate) fn release_if_new(self) {
        if self.is_new {
            drop(self.release());
        }
    }

    /// The call is known not to have been sent: the tokens are given back. It is sent at once; await it to know that it
    /// counts.
    pub fn release(self) -> Settlement {
        Settlement::begin(self, Settled::default())
    }
}

/// What became of a reservation, on its way to the run. It need not be awaited: one that comes too late is logged as well.
///
/// Its error: the run had ended, or this board works on it no more, when the call reported what it used. That is in no journal
/// then, and the run's result counts the whole reservation as spent.
#[derive(Debug)]
pub struct Settlement {
    reservation: Reservation,
    settled: Settled,
    reply: oneshot::Receiver<TurnReply>,
}

impl Settlement {
    fn begin(mut reservation: Reservation, settled: Settled) -> Self {
        if let Some(held) = reservation.held.take() {
            held.settle(settled.usage);
        }
        let settled = Settled { is_of_run: reservation.is_of_run, ..settled };
        let reply = Self::send(&reservation, settled.clone());
        Self { reservation, settled, reply }
    }

    /// The result of the step in which the call was made is journaled with it.
    fn send(reservation: &Reservation, settled: Settled) -> oneshot::Receiver<TurnReply> {
        let (sender, reply) = oneshot::channel();
        reservation.turn.send_with_next(reservation.number, TurnRequest::Settle(settled), Some(sender));
        reply
    }
}

impl IntoFuture for Settlement {
    type Output = Result<(), TurnError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { reservation, settled, mut reply } = self;
        async move {
            let _waiting = Waiting::begin(&reservation.turn.shared);
            loop {
                match reply.await {
                    Ok(TurnReply::Gone) => return Err(too_late(&reservation.turn)),
                    Ok(_) => return Ok(()),
                    // The run's supervisor was restarted; settling twice has no further effect.
                    Err(_) => tokio::task::yield_now().await,
                }
                reply = Self::send(&reservation, settled.clone());
            }
        }
        .boxed()
    }
}

fn too_late(turn: &Turn) -> TurnError {
    TurnError::transient(format!(
        "the call of turn {} has reported after its run had ended; its whole reservation stays counted as spent",
        turn.id()
    ))
}
