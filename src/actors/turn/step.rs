//! Work whose result is journaled, so that it is not repeated with the attempt.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::env::Mutant;
use crate::messages::{Durability, Json};
use crate::supervision::runs::rules::requests::TurnRequest;
use crate::supervision::runs::run::Record;

use super::error::{changed, no_longer_wanted};
use super::requests::{Then, as_step, check_depth};
use super::{Turn, TurnError};

impl Turn {
    /// Does something and journals its result: a repeated attempt gets the recorded result instead of doing it again. A
    /// crash between the work and the record repeats the work, so an effect outside happens at least once: it must be
    /// idempotent, for which [`Turn::id`] and the step's name serve as key. What must not be repeated is done with
    /// [`Turn::effect`].
    ///
    /// Requests of a turn match by their order: the work of a step must not itself ask the turn for anything but
    /// reservations.
    ///
    /// # Errors
    /// What the work returns; [`FailureKind::ChangedTurn`](crate::messages::FailureKind::ChangedTurn) when an earlier attempt asked
    /// for something else in this place.
    pub fn step<T, E>(
        &self,
        name: &str,
        work: impl Future<Output = Result<T, E>> + Send,
    ) -> impl Future<Output = Result<T, TurnError>> + Send
    where
        T: Serialize + DeserializeOwned,
        E: Into<TurnError>,
    {
        self.step_of(name, false, work)
    }

    /// As [`Turn::step`], with the fact that the step is a use of the tool `name`. Later turns see it in the channel `metrics` of
    /// their state, where `tools_used` counts the uses by the names of the tools (SEMANTICS 6).
    ///
    /// ```
    /// use callboard::prelude::*;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// let board = Callboard::builder()
    ///     .agent("finder", |turn: Turn| async move {
    ///         let found = turn.use_tool("search", async { Ok::<_, TurnError>("a page".to_owned()) }).await?;
    ///         Ok(Command::output(found).goto("writer"))
    ///     })
    ///     .agent("writer", |turn: Turn| async move {
    ///         let metrics = turn.state().get("metrics").unwrap_or_default();
    ///         Ok(Command::output(metrics.value()["tools_used"]["search"].clone()))
    ///     })
    ///     .start()
    ///     .await?;
    /// let run = board.submit(Task::new("x").to("finder")).await?;
    /// assert_eq!(run.result().await?.output, 1);
    /// # board.shutdown().await;
    /// # Ok::<(), callboard::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`Turn::step`].
    pub fn use_tool<T, E>(
        &self,
        name: &str,
        work: impl Future<Output = Result<T, E>> + Send,
    ) -> impl Future<Output = Result<T, TurnError>> + Send
    where
        T: Serialize + DeserializeOwned,
        E: Into<TurnError>,
    {
        self.step_of(name, true, work)
    }

    fn step_of<T, E>(
        &self,
        name: &str,
        is_tool: bool,
        work: impl Future<Output = Result<T, E>> + Send,
    ) -> impl Future<Output = Result<T, TurnError>> + Send
    where
        T: Serialize + DeserializeOwned,
        E: Into<TurnError>,
    {
        let ordinal = self.take_ordinal();
        let name: Arc<str> = name.into();
        async move {
            self.check_not_in_step("a step")?;
            let recorded = self.shared.ready.records.get(&ordinal).filter(|_| !Mutant::RepeatStep.is_injected());
            match recorded.map(|record| &**record) {
                Some(Record::Step { name: recorded, value, is_tainted }) if *recorded == name => {
                    if *is_tainted {
                        self.shared.taint().inherit();
                    }
                    return value
                        .parse()
                        .map_err(|error| changed(format!("the result of step {name:?} no longer fits: {error}")));
                }
                Some(Record::StepStarted { name: recorded }) if *recorded == name => {}
                // When it was recorded, the step was declared not repeatable.
                Some(Record::StepFailed { name: recorded, failure, .. }) if *recorded == name => {
                    return Err(TurnError { failure: failure.clone() });
                }
                Some(Record::Once(once)) if once.intent.name == name => {}
                Some(record) => {
                    return Err(changed(format!("it asks for the step {name:?} where the journal has {record:?}")));
                }
                None => {}
            }
            if self.shared.has_reported.load(Ordering::Acquire) {
                // A clone of the turn outlives it: the step's result would not be recorded.
                return Err(no_longer_wanted());
            }
            let is_durable = self.shared.ready.durability == Durability::Sync;
            if is_durable && self.shared.is_unsynced.swap(false, Ordering::AcqRel) {
                // Boxed to keep the future small: most steps do not need this request.
                Box::pin(self.request(ordinal, || TurnRequest::StartStep(Arc::clone(&name)))).await?;
            }
            if self.shared.ready.sink.is_ahead() {
                Box::pin(self.committed()).await?;
            }
            if !self.shared.services.lease.allows_work() {
                Box::pin(self.shared.services.lease.allowed()).await;
            }
            let env = self.shared.env();
            if env.has_faults() {
                let begun = env.slow_fault_point_of("step.begin", self.agent().as_str());
                Box::pin(begun).await.map_err(TurnError::transient)?;
            }
            let result: Result<T, TurnError> = as_step(self, Then::Request, work).await.map_err(Into::into);
            let finished = result.and_then(|result| {
                let value =
                    Json::of(&result).map_err(|error| TurnError::terminal(format!("step {name:?}: {error}")))?;
                let request = TurnRequest::FinishStep { name, value, is_tool };
                check_depth(&request)?;
                Ok((result, request))
            });
            match finished {
                Ok((result, request)) => {
                    self.shared.is_unsynced.store(true, Ordering::Release);
                    self.send(ordinal, request, None);
                    Ok(result)
                }
                Err(error) => {
                    self.hand_over();
                    Err(error)
                }
            }
        }
    }
}
