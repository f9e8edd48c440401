//! Requests of a turn to people: questions, and consent to actions.

use std::future::Future;
use std::time::Duration;

use crate::env::Mutant;
use crate::messages::{Action, Json, Rationale, Refusal};
use crate::supervision::runs::decide::denial;
use crate::supervision::runs::rules::requests::{TurnReply, TurnRequest};

use super::error::unexpected;
use super::{Turn, TurnError};

impl Turn {
    /// What the turn may ask people: questions, and consent to actions.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("painter", |turn: Turn| async move { Ok(Command::output(turn.people().ask("Which colour?").await?)) })
    ///     .start()
    ///     .await?;
    /// let run = board.submit(Task::new("paint")).await?;
    /// let question = run.next_pending().await?.expect("the painter asks");
    /// board.people().answer(&question, "white", "ann").await?;
    /// assert_eq!(run.result().await?.output, "white");
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn people(&self) -> TurnPeople<'_> {
        TurnPeople { turn: self }
    }
}

/// Asks people on behalf of a turn; made by [`Turn::people`]. While a turn waits for people, it holds neither permit nor slot.
#[derive(Clone, Copy, Debug)]
pub struct TurnPeople<'t> {
    turn: &'t Turn,
}

impl<'t> TurnPeople<'t> {
    /// Asks people and waits for the answer, over restarts too: as long as it takes, or for the agent's
    /// [`question_ttl`](crate::AgentSpec::question_ttl).
    ///
    /// # Errors
    /// [`Refusal::QuestionExpired`] if the agent's questions expire and nobody answered in time. When an earlier attempt asked for
    /// something else in this place.
    pub fn ask(self, question: impl Into<Json>) -> impl Future<Output = Result<Json, TurnError>> + Send {
        self.ask_for_at_most(question.into(), self.turn.shared.settings.question_ttl)
    }

    /// As [`TurnPeople::ask`], with a time for this question: when it is over, also while no process runs, the question is withdrawn.
    ///
    /// ```
    /// use callboard::messages::Refusal;
    /// use callboard::prelude::*;
    /// use std::time::Duration;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("painter", |turn: Turn| async move {
    ///         let colour = match turn.people().ask_within("Which colour?", Duration::from_millis(1)).await {
    ///             Ok(colour) => colour,
    ///             Err(error) if matches!(error.refusal(), Some(Refusal::QuestionExpired { .. })) => "white".into(),
    ///             Err(error) => return Err(error),
    ///         };
    ///         Ok(Command::output(colour))
    ///     })
    ///     .start()
    ///     .await?;
    /// let run = board.submit(Task::new("paint")).await?;
    /// assert_eq!(run.result().await?.output, "white");
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Refusal::QuestionExpired`] if nobody answered in time; as [`TurnPeople::ask`].
    pub fn ask_within(
        self,
        question: impl Into<Json>,
        time: Duration,
    ) -> impl Future<Output = Result<Json, TurnError>> + Send {
        self.ask_for_at_most(question.into(), Some(time))
    }

    fn ask_for_at_most(
        self,
        question: Json,
        ttl: Option<Duration>,
    ) -> impl Future<Output = Result<Json, TurnError>> + Send {
        let ordinal = self.turn.take_ordinal();
        async move {
            match self.turn.request(ordinal, || TurnRequest::Ask { question: question.clone(), ttl }).await? {
                TurnReply::Answered(answer) => Ok(answer),
                TurnReply::QuestionExpired => Err(Refusal::QuestionExpired { question: question.to_string() }.into()),
                reply => Err(unexpected(&reply)),
            }
        }
    }

    /// Says why people are asked about an action, in the agent's own words, which they see as such; a [`Rationale`] also says what is
    /// known of the tool and of the rules. What is approved is the action, whatever was said about it.
    ///
    /// ```
    /// use callboard::messages::{Action, Pending};
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("cleaner", |turn: Turn| async move {
    ///         let action = Action::new("remove", "old.log", "old.log");
    ///         turn.people().because("nobody has read it for a year").approve(action).await?;
    ///         Ok(Command::output("removed"))
    ///     })
    ///     .start()
    ///     .await?;
    /// let run = board.submit(Task::new("clean up")).await?;
    /// let Some(Pending::Approval(envelope)) = run.next_pending().await? else { panic!("the cleaner asks") };
    /// assert_eq!(envelope.rationale.reason.as_deref(), Some("nobody has read it for a year"));
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn because(self, rationale: impl Into<Rationale>) -> ConsentRequest<'t> {
        ConsentRequest { turn: self.turn, rationale: rationale.into() }
    }

    /// Asks for consent to an action, as the approval policy says, and waits for the decision. Execute the action that
    /// is returned: it is the one that was approved.
    ///
    /// # Errors
    /// [`Refusal::Denied`] or [`Refusal::ApprovalExpired`], which end the turn's branch as denied if passed on with `?`.
    pub fn approve(self, action: Action) -> impl Future<Output = Result<Action, TurnError>> + Send {
        self.because(Rationale::default()).approve(action)
    }

    /// As [`TurnPeople::approve`]; what people have approved for the whole run does not count.
    ///
    /// # Errors
    /// As there.
    pub fn approve_each_time(self, action: Action) -> impl Future<Output = Result<Action, TurnError>> + Send {
        self.because(Rationale::default()).approve_each_time(action)
    }
}

/// Asks people for consent, and says why; made by [`TurnPeople::because`].
#[derive(Clone, Debug)]
pub struct ConsentRequest<'t> {
    turn: &'t Turn,
    rationale: Rationale,
}

impl ConsentRequest<'_> {
    /// As [`TurnPeople::approve`].
    ///
    /// # Errors
    /// As there.
    pub fn approve(self, action: Action) -> impl Future<Output = Result<Action, TurnError>> + Send {
        self.ask(action, false)
    }

    /// As [`TurnPeople::approve_each_time`].
    ///
    /// # Errors
    /// As there.
    pub fn approve_each_time(self, action: Action) -> impl Future<Output = Result<Action, TurnError>> + Send {
        self.ask(action, true)
    }

    fn ask(self, action: Action, each_time: bool) -> impl Future<Output = Result<Action, TurnError>> + Send {
        let (ordinal, rationale) = (self.turn.take_ordinal(), self.rationale.shortened());
        async move {
            let asked = Mutant::RunUnapproved.is_injected().then(|| action.clone());
            let request = || {
                let (action, rationale) = (action.clone(), rationale.clone());
                TurnRequest::Approve { action, each_time, rationale }
            };
            match self.turn.request(ordinal, request).await? {
                TurnReply::Decided(decided) => match *decided {
                    (decision, action) if decision.approved => Ok(asked.unwrap_or(action)),
                    (decision, action) => Err(denial(&action, &decision).into()),
                },
                reply => Err(unexpected(&reply)),
            }
        }
    }
}
