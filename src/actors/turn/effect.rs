//! Effects outside of the runtime that must not be repeated by themselves.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::env::Mutant;
use crate::messages::{Failure, FailureKind, Intent, Json, OnUnknown, Reconciled, Resolution};
use crate::supervision::runs::once::{self, Next};
use crate::supervision::runs::rules::requests::{TurnReply, TurnRequest};

use super::error::{changed, no_longer_wanted, unexpected};
use super::requests::{Then, as_step, check_depth};
use super::{Turn, TurnError};

impl Turn {
    /// Begins to describe an effect that must not be repeated by itself, such as a payment or a message; [`OutsideEffect::run`]
    /// carries it out at most once (SEMANTICS 14).
    ///
    /// Before it begins, its intent (turn, place, name, hash of the arguments) is journaled and synced, also in a run with
    /// buffered durability; a run in memory promises nothing. What it returns is journaled as its result, an error too, and a
    /// repeated attempt receives that. If the process ends, the turn is stopped or the work panics in between, the next
    /// attempt does not repeat it: [`OutsideEffect::reconcile`] is asked what came of it, and otherwise
    /// [`OutsideEffect::on_unknown`] decides. By default a person does, among the run's questions.
    ///
    /// Requests of a turn match by their order, and the order of the calls of this function counts.
    ///
    /// ```
    /// use callboard::prelude::*;
    /// use callboard::messages::Reconciled;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// async fn charge(order: &str) -> Result<String, std::io::Error> { Ok(format!("receipt for {order}")) }
    /// async fn receipt_of(_order: &str) -> Option<String> { None }
    ///
    /// let board = Callboard::builder()
    ///     .agent("cashier", |turn: Turn| async move {
    ///         let order: String = turn.input()?;
    ///         let receipt: String = turn
    ///             .effect("charge")
    ///             .target(&order)
    ///             .reconcile(|_| async {
    ///                 match receipt_of(&order).await {
    ///                     Some(receipt) => Ok::<_, TurnError>(Reconciled::Done(receipt.into())),
    ///                     None => Ok(Reconciled::NotDone),
    ///                 }
    ///             })
    ///             .run(charge(&order))
    ///             .await?;
    ///         Ok(Command::output(receipt))
    ///     })
    ///     .start()
    ///     .await?;
    /// let run = board.submit(Task::new("order 7").to("cashier")).await?;
    /// assert_eq!(run.result().await?.output, "receipt for order 7");
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    pub fn effect<'w>(&self, name: &str) -> OutsideEffect<'w> {
        self.effect_of(Intent::new(name, "", &Json::null()))
    }

    /// As [`Turn::effect`], for whoever has the intent already, such as one that another program has written.
    pub fn effect_of<'w>(&self, intent: Intent) -> OutsideEffect<'w> {
        let (turn, ordinal) = (self.clone(), self.take_ordinal());
        let place = Place { turn, ordinal, intent, on_unknown: None, is_tool: false };
        OutsideEffect { place, before: None, reconcile: None }
    }
}

/// A single effect outside of the runtime that is about to be carried out at most once; made by [`Turn::effect`]. What kinds of
/// effects a turn may cause is its [`Authority`](crate::messages::Authority).
#[must_use = "an effect happens when `run` is awaited"]
pub struct OutsideEffect<'w> {
    place: Place,
    before: Option<BoxFuture<'w, Json>>,
    reconcile: Option<Reconcile<'w>>,
}

type Reconcile<'w> = Box<dyn FnOnce(Intent) -> BoxFuture<'w, Result<Reconciled, TurnError>> + Send + 'w>;

/// The position of an effect in the requests of its turn.
struct Place {
    turn: Turn,
    ordinal: u32,
    intent: Intent,
    on_unknown: Option<OnUnknown>,
    is_tool: bool,
}

impl<'w> OutsideEffect<'w> {
    /// What it is done to, for the person who may be asked.
    pub fn target(mut self, target: &str) -> Self {
        self.place.intent.target = target.into();
        self
    }

    /// What it is done with. A repeated attempt that has other arguments in this place fails as changed.
    pub fn arguments(mut self, arguments: &Json) -> Self {
        let Intent { name, target, .. } = &self.place.intent;
        self.place.intent = Intent::new(name, target, arguments);
        self
    }

    /// Says that it is a use of the tool whose name it has, as [`Turn::use_tool`] does of a step. It counts as used once it has
    /// begun.
    pub fn of_tool(mut self) -> Self {
        self.place.is_tool = true;
        self
    }

    /// Notes what is there before it is carried out, for [`OutsideEffect::reconcile`]: it is journaled with the intent. Of a
    /// file this may be its hash.
    pub fn noting(mut self, before: impl Future<Output = Json> + Send + 'w) -> Self {
        self.before = Some(before.boxed());
        self
    }

    /// Finds out what came of an earlier attempt whose result was lost, from the intent that it had journaled. It is polled only
    /// then, for 30 s at most; an error, a panic or silence means that it is unknown. It must not ask the turn for anything.
    pub fn reconcile<F, E>(mut self, find_out: impl FnOnce(Intent) -> F + Send + 'w) -> Self
    where
        F: Future<Output = Result<Reconciled, E>> + Send + 'w,
        E: Into<TurnError>,
    {
        self.reconcile = Some(Box::new(|intent| find_out(intent).map(|found| found.map_err(Into::into)).boxed()));
        self
    }

    /// What follows when nobody can say whether it happened (the rule of the board, which is [`OnUnknown::Ask`] by default; see
    /// [`Builder::on_unknown`](crate::Builder::on_unknown)).
    pub fn on_unknown(mut self, on_unknown: OnUnknown) -> Self {
        self.place.on_unknown = Some(on_unknown);
        self
    }

    /// Carries it out, unless an earlier attempt has.
    ///
    /// # Errors
    /// What the work returns, as an error that is not tried again: that it failed is its result.
    /// [`FailureKind::OutcomeUnknown`] if it may have happened and a person or the policy gives it up.
    /// [`FailureKind::ChangedTurn`] when an earlier attempt asked for something else in this place.
    pub async fn run<T, E>(self, work: impl Future<Output = Result<T, E>> + Send) -> Result<T, TurnError>
    where
        T: Serialize + DeserializeOwned,
        E: Into<TurnError>,
    {
        let intent = self.place.intent.clone();
        self.run_or_report(work).await?.ok_or_else(|| unknown(&intent))
    }

    /// As [`OutsideEffect::run`]; `None` if it may have happened and the policy is [`OnUnknown::Report`].
    ///
    /// # Errors
    /// As there, but for what the policy reports.
    pub async fn run_or_report<T, E>(
        self,
        work: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<Option<T>, TurnError>
    where
        T: Serialize + DeserializeOwned,
        E: Into<TurnError>,
    {
        let Self { place, before, reconcile } = self;
        place.run(before, reconcile, work).await
    }
}

impl Place {
    async fn run<T, E>(
        &self,
        before: Option<BoxFuture<'_, Json>>,
        mut reconcile: Option<Reconcile<'_>>,
        work: impl Future<Output = Result<T, E>> + Send,
    ) -> Result<Option<T>, TurnError>
    where
        T: Serialize + DeserializeOwned,
        E: Into<TurnError>,
    {
        self.turn.check_not_in_step("an effect")?;
        let shared = Arc::clone(&self.turn.shared);
        if shared.ready.sink.is_ahead() {
            // What is looked at before the effect and about its outcome is part of it.
            Box::pin(self.turn.committed()).await?;
        }
        let record = shared.ready.records.get(&self.ordinal).map(|record| &**record);
        let mut next = once::next(record, &self.intent).map_err(changed)?;
        loop {
            next = match next {
                Next::Result { result: Ok(value), is_tainted } => {
                    self.inherit(is_tainted);
                    return value.parse().map(Some).map_err(|error| {
                        changed(format!("the result of step {:?} no longer fits: {error}", &*self.intent.name))
                    });
                }
                Next::Result { result: Err(failure), is_tainted } => {
                    self.inherit(is_tainted);
                    return Err(TurnError { failure });
                }
                Next::Unknown { round, begun: Some(_) } if Mutant::ForgetIntent.is_injected() => Next::Begin { round },
                Next::Begin { round } => {
                    self.begin(round, before).await?;
                    return self.carry_out(work).await.map(Some);
                }
                Next::Unknown { round, begun: Some(intent) } => {
                    let next = once::after(self.reconciled(reconcile.take(), intent).await, round);
                    if let Next::Result { result: Ok(value), .. } = &next {
                        self.finish(self.finished(value.clone()))?;
                    }
                    next
                }
                Next::Unknown { round, begun: None } => self.resolve(round, None).await?,
                Next::Resolved { resolution: Resolution::Repeat, round } => Next::Begin { round: round + 1 },
                Next::Resolved { resolution: Resolution::Done(value), round } => match value.parse() {
                    Ok(value) => return Ok(Some(value)),
                    Err(error) => {
                        let problem = format!("The result that was given does not fit: {error}.");
                        self.resolve(round + 1, Some(problem.into())).await?
                    }
                },
                Next::Resolved { resolution: Resolution::Report, .. } => return Ok(None),
                Next::Resolved { resolution: Resolution::GiveUp, .. } => return Err(unknown(&self.intent)),
            };
        }
    }

    fn inherit(&self, is_tainted: bool) {
        if is_tainted {
            self.turn.shared.taint().inherit();
        }
    }

    async fn begin(&self, round: u32, before: Option<BoxFuture<'_, Json>>) -> Result<(), TurnError> {
        if self.turn.shared.has_reported.load(Ordering::Acquire) {
            return Err(no_longer_wanted());
        }
        let mut intent = self.intent.clone();
        if let Some(before) = before {
            intent.before = as_step(&self.turn, Then::Anything, before).await;
        }
        let request = || TurnRequest::Intend { intent: intent.clone(), round, is_tool: self.is_tool };
        match self.turn.request(self.ordinal, request).await? {
            TurnReply::Done => {}
            reply => return Err(unexpected(&reply)),
        }
        self.turn.shared.is_unsynced.store(false, Ordering::Release);
        let env = self.turn.shared.env();
        if env.has_faults() {
            let begun = env.slow_fault_point_of("step.begin", self.turn.agent().as_str());
            Box::pin(begun).await.map_err(TurnError::transient)?;
        }
        // A process that was stopped continues here, long after the intent was acknowledged: others may have the run.
        if !self.turn.shared.services.lease.allows_work() {
            Box::pin(self.turn.shared.services.lease.allowed()).await;
        }
        Ok(())
    }

    async fn carry_out<T, E>(&self, work: impl Future<Output = Result<T, E>> + Send) -> Result<T, TurnError>
    where
        T: Serialize + DeserializeOwned,
        E: Into<TurnError>,
    {
        let name = || Arc::clone(&self.intent.name);
        let failed = |mut failure: Failure| {
            // Another attempt would receive the same recorded result.
            if matches!(failure.kind, FailureKind::Transient | FailureKind::Timeout) {
                failure.kind = FailureKind::Terminal;
            }
            self.finish(TurnRequest::FailStep(name(), failure.clone()))?;
            Err(TurnError { failure })
        };
        let result = match as_step(&self.turn, Then::Anything, work).await {
            Ok(result) => result,
            Err(error) => return failed(error.into().failure),
        };
        let value = match Json::of(&result) {
            Ok(value) => self.finished(value),
            Err(error) => {
                let text = format!("the result of step {:?} cannot be journaled: {error}", &*self.intent.name);
                return failed(Failure::new(FailureKind::Terminal, text));
            }
        };
        match self.finish(value) {
            Ok(()) => Ok(result),
            Err(error) => failed(error.failure),
        }
    }

    /// The request that records its result. The tool was recorded with the intent.
    fn finished(&self, value: Json) -> TurnRequest {
        TurnRequest::FinishStep { name: Arc::clone(&self.intent.name), value, is_tool: false }
    }

    fn finish(&self, request: TurnRequest) -> Result<(), TurnError> {
        check_depth(&request)?;
        self.turn.shared.is_unsynced.store(true, Ordering::Release);
        self.turn.send(self.ordinal, request, None);
        Ok(())
    }

    /// Asks the function given to [`OutsideEffect::reconcile`] for the outcome.
    async fn reconciled(&self, find_out: Option<Reconcile<'_>>, intent: Intent) -> Reconciled {
        let Some(find_out) = find_out else { return Reconciled::Unknown };
        let found = async move { find_out(intent).await };
        let found = AssertUnwindSafe(as_step(&self.turn, Then::Anything, found)).catch_unwind();
        match tokio::time::timeout(self.turn.shared.services.reconcile_within, found).await {
            Ok(Ok(Ok(reconciled))) => reconciled,
            Ok(Ok(Err(error))) => {
                tracing::warn!(turn = %self.turn.id(), effect = %self.intent, %error, "what came of an effect was not found out");
                Reconciled::Unknown
            }
            Ok(Err(_)) | Err(_) => {
                tracing::warn!(turn = %self.turn.id(), effect = %self.intent, "what came of an effect was not found out");
                Reconciled::Unknown
            }
        }
    }

    async fn resolve(&self, round: u32, problem: Option<Arc<str>>) -> Result<Next, TurnError> {
        let on_unknown = self.on_unknown.or(self.turn.shared.settings.on_unknown);
        let request =
            || TurnRequest::Resolve { intent: self.intent.clone(), round, on_unknown, problem: problem.clone() };
        match self.turn.request(self.ordinal, request).await? {
            TurnReply::Resolved(resolution) => Ok(Next::Resolved { resolution, round }),
            reply => Err(unexpected(&reply)),
        }
    }
}

fn unknown(intent: &Intent) -> TurnError {
    let text = format!("{intent} may have run, and its result is not known");
    TurnError { failure: Failure::new(FailureKind::OutcomeUnknown, text) }
}

impl fmt::Debug for OutsideEffect<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { turn, intent, .. } = &self.place;
        f.debug_struct("OutsideEffect").field("turn", turn).field("intent", intent).finish_non_exhaustive()
    }
}
