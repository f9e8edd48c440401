//! The kinds of agents: closures over turns, types that implement [`Agent`], and typed functions.

use std::any::{Any, type_name};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::actors::turn::{Turn, TurnError};
use crate::messages::{Command, Json};

use super::{Agent, AgentSpec, AgentValue, Factory, TypedAnswer};

/// What can become an agent: a closure over turns, or a factory of a type that implements [`Agent`] (fallible or not). `Kind`
/// only makes the implementations distinct.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot become an agent",
    label = "expected `|turn: Turn| async move {{ … }}` that returns `Result<Command, TurnError>`",
    note = "a closure over turns returns a future of `Result<Command, TurnError>`: end it with `Ok(Command::output(value))`, and `?` converts any error",
    note = "a type that implements `Agent` is given by a factory: `|| MyAgent::new()`; a factory may return a `Result`"
)]
pub trait IntoAgent<Kind>: Send + Sync + 'static {
    #[doc(hidden)]
    fn into_spec(self, name: &str) -> AgentSpec;
}

#[doc(hidden)]
#[derive(Debug)]
pub enum FromClosure {}
#[doc(hidden)]
#[derive(Debug)]
pub enum FromFactory {}
#[doc(hidden)]
#[derive(Debug)]
pub enum FromFallibleFactory {}

impl<F, Fut> IntoAgent<(FromClosure, Fut)> for F
where
    F: Fn(Turn) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Command, TurnError>> + Send + 'static,
{
    fn into_spec(self, name: &str) -> AgentSpec {
        let value: Arc<dyn AgentValue> = Arc::new(Closure(self));
        AgentSpec::from_factory(name, Arc::new(move || Ok(Arc::clone(&value))))
    }
}

impl<F, A> IntoAgent<(FromFactory, A)> for F
where
    F: Fn() -> A + Send + Sync + 'static,
    A: Agent,
{
    fn into_spec(self, name: &str) -> AgentSpec {
        AgentSpec::from_factory(name, Arc::new(move || Ok(Arc::new(Plain(self())))))
    }
}

impl<F, A, E> IntoAgent<(FromFallibleFactory, A, E)> for F
where
    F: Fn() -> Result<A, E> + Send + Sync + 'static,
    A: Agent,
    E: fmt::Display,
{
    fn into_spec(self, name: &str) -> AgentSpec {
        let make = move || match self() {
            Ok(agent) => Ok(Arc::new(Plain(agent)) as Arc<dyn AgentValue>),
            Err(error) => Err(error.to_string()),
        };
        AgentSpec::from_factory(name, Arc::new(make))
    }
}

/// The factory of a typed agent.
pub(super) fn typed<F, Fut, Request, Reply>(answer: F) -> Factory
where
    F: Fn(Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Reply, TurnError>> + Send + 'static,
    Request: DeserializeOwned + Send + 'static,
    Reply: Serialize + Send + 'static,
{
    let value: Arc<dyn AgentValue> = Arc::new(Typed { answer, types: PhantomData });
    Arc::new(move || Ok(Arc::clone(&value)))
}

/// The factory of agents that finish alone where they cannot hand on.
pub(super) fn or_alone(factory: Factory) -> Factory {
    Arc::new(move || Ok(Arc::new(OrAlone(factory()?))))
}

struct OrAlone(Arc<dyn AgentValue>);

impl AgentValue for OrAlone {
    fn turn(self: Arc<Self>, turn: Turn) -> BoxFuture<'static, Result<Command, TurnError>> {
        let work = Arc::clone(&self.0).turn(turn.clone());
        async move { turn.or_alone(work.await?).await }.boxed()
    }

    fn answer(self: Arc<Self>, request: Box<dyn Any + Send>) -> TypedAnswer {
        Arc::clone(&self.0).answer(request)
    }

    fn types(&self) -> Option<(&'static str, &'static str)> {
        self.0.types()
    }

    fn make(&self, draft: &Json) -> Result<AgentSpec, String> {
        self.0.make(draft)
    }
}

struct Plain<A>(A);

impl<A: Agent> AgentValue for Plain<A> {
    fn turn(self: Arc<Self>, turn: Turn) -> BoxFuture<'static, Result<Command, TurnError>> {
        async move { self.0.turn(turn).await }.boxed()
    }

    fn make(&self, draft: &Json) -> Result<AgentSpec, String> {
        self.0.make(draft)
    }

    fn answer(self: Arc<Self>, request: Box<dyn Any + Send>) -> TypedAnswer {
        Err(request)
    }

    fn types(&self) -> Option<(&'static str, &'static str)> {
        None
    }
}

struct Closure<F>(F);

impl<F, Fut> AgentValue for Closure<F>
where
    F: Fn(Turn) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Command, TurnError>> + Send + 'static,
{
    fn turn(self: Arc<Self>, turn: Turn) -> BoxFuture<'static, Result<Command, TurnError>> {
        (self.0)(turn).boxed()
    }

    fn answer(self: Arc<Self>, request: Box<dyn Any + Send>) -> TypedAnswer {
        Err(request)
    }

    fn types(&self) -> Option<(&'static str, &'static str)> {
        None
    }
}

struct Typed<F, Request, Reply> {
    answer: F,
    types: PhantomData<fn(Request) -> Reply>,
}

impl<F, Fut, Request, Reply> AgentValue for Typed<F, Request, Reply>
where
    F: Fn(Request) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Reply, TurnError>> + Send + 'static,
    Request: DeserializeOwned + Send + 'static,
    Reply: Serialize + Send + 'static,
{
    fn turn(self: Arc<Self>, turn: Turn) -> BoxFuture<'static, Result<Command, TurnError>> {
        async move {
            let reply = (self.answer)(turn.input()?).await?;
            let output = Json::of(reply).map_err(|error| TurnError::terminal(error.to_string()))?;
            Ok(Command { output: Some(output), ..Command::default() })
        }
        .boxed()
    }

    fn answer(self: Arc<Self>, request: Box<dyn Any + Send>) -> TypedAnswer {
        let request = request.downcast::<Request>()?;
        Ok((self.answer)(*request).map(|reply| reply.map(|reply| Box::new(reply) as Box<dyn Any + Send>)).boxed())
    }

    fn types(&self) -> Option<(&'static str, &'static str)> {
        Some((type_name::<Request>(), type_name::<Reply>()))
    }
}
