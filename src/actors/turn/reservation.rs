//! Token reservations of a turn.

use std::future::IntoFuture;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::messages::Usage;
use crate::supervision::runs::rules::requests::{TurnReply, TurnRequest};

use super::error::unexpected;
use super::shared::Waiting;
use super::{Turn, TurnError};

impl Turn {
    /// Sets tokens aside for a model call. Settle the reservation with what the provider reports, or release it if the call
    /// was not sent, also before an error ends the attempt: one that is dropped stays spent, because the call may have
    /// been made.
    ///
    /// # Errors
    /// [`Refusal::TokenBudget`](crate::messages::Refusal::TokenBudget).
    pub async fn reserve(&self, tokens: u64) -> Result<Reservation, TurnError> {
        self.reserve_for(tokens, false).await
    }

    /// As [`Turn::reserve`], for calls that continue over attempts: the reservation of an earlier attempt is taken over.
    pub(crate) async fn reserve_for(&self, tokens: u64, continues: bool) -> Result<Reservation, TurnError> {
        match self.request(u32::MAX, TurnRequest::Reserve { tokens, continues }).await? {
            TurnReply::Reserved(Ok(number)) => Ok(Reservation { turn: self.clone(), number, is_new: true }),
            TurnReply::TakenOver(number) => Ok(Reservation { turn: self.clone(), number, is_new: false }),
            TurnReply::Reserved(Err(refusal)) => Err(refusal.into()),
            reply => Err(unexpected(&reply)),
        }
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
}

impl Reservation {
    /// The call has reported what it used. It is sent at once; await it to know that it counts.
    pub fn settle(self, usage: Usage) -> Settlement {
        Settlement::begin(self, Some(usage))
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
        Settlement::begin(self, None)
    }
}

/// What became of a reservation, on its way to the run. It need not be awaited: one that comes too late is logged as well.
///
/// Its error: the run had ended, or this board works on it no more, when the call reported what it used. That is in no journal
/// then, and the run's result counts the whole reservation as spent.
#[derive(Debug)]
pub struct Settlement {
    reservation: Reservation,
    usage: Option<Usage>,
    reply: oneshot::Receiver<TurnReply>,
}

impl Settlement {
    fn begin(reservation: Reservation, usage: Option<Usage>) -> Self {
        let reply = Self::send(&reservation, usage);
        Self { reservation, usage, reply }
    }

    fn send(reservation: &Reservation, usage: Option<Usage>) -> oneshot::Receiver<TurnReply> {
        let (sender, reply) = oneshot::channel();
        reservation.turn.send(reservation.number, TurnRequest::Settle(usage), Some(sender));
        reply
    }
}

impl IntoFuture for Settlement {
    type Output = Result<(), TurnError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { reservation, usage, mut reply } = self;
        async move {
            let _waiting = Waiting::begin(&reservation.turn.shared);
            loop {
                match reply.await {
                    Ok(TurnReply::Gone) => return Err(too_late(&reservation.turn)),
                    Ok(_) => return Ok(()),
                    // The run's supervisor was restarted; settling twice has no further effect.
                    Err(_) => tokio::task::yield_now().await,
                }
                reply = Self::send(&reservation, usage);
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
