//! `callboard run`: a board in this process, with the agents of a folder, that works on one run.

use std::sync::Arc;

use futures::StreamExt as _;

use callboard::Builder;
use callboard::actors::events::{StreamMode, Watched};
use callboard::agents::{Definition, FakeModel, LlmAgent, Model, ModelChoice, Models, Teammate};
use callboard::env::Env;
use callboard::messages::{Envelope, Question, RunEvent, visible};
use callboard::prelude::*;
use callboard::runtime::{RunError, RunHandle, Unfinished};

use crate::page::{Failure, count, note};
use crate::stops::Stops;
use crate::store::Store;
use crate::workflow::End;
use crate::workflow::people;

use super::arguments::Run;
use super::asking::{self, Decision};
use super::reading::{self, Read};
use super::telling::Teller;

pub(super) async fn run(arguments: &Run) -> Result<End, Failure> {
    // Before the tools are made, which must not see it.
    let store = arguments.store.as_deref().map(Store::open_or_make).transpose()?;
    // Before a program runs, because it may be what stops this process.
    let mut stops = Stops::new()?;
    let read = tokio::select! {
        biased;
        () = stops.next() => return Ok(End::Stopped),
        read = reading::read(&arguments.files, arguments.store.as_deref()) => read?,
    };
    let Read { definitions, tools, mcp, .. } = read;
    for problem in mcp.iter().flat_map(|mcp| &mcp.problems) {
        note(&problem.to_string());
    }
    let definitions = sound(definitions)?;
    let models = match arguments.model.as_deref() {
        // The one that needs no others.
        Some(FAKE) => Models::new(&Env::system()),
        Some(_) | None => reading::models(&arguments.files)?,
    };
    let team: Vec<Teammate> = definitions.iter().map(teammate).collect();
    // What else is unfinished in the store is left to whoever began it.
    let mut builder = Callboard::builder().on_unfinished(Unfinished::Leave);
    for definition in &definitions {
        let model = model(&models, definition, arguments.model.as_deref())?;
        let agent = LlmAgent::new(definition, model, &tools, &team);
        let agent = agent.map_err(|error| Failure::trouble(error.to_string()))?;
        let agent = if arguments.enable_handoffs { agent } else { agent.independent() };
        builder = builder.with(agent.spec());
    }
    let session = Session::start(builder, store, arguments).await?;
    let end = session.work(stops).await;
    session.end().await;
    end
}

fn teammate(definition: &Definition) -> Teammate {
    Teammate { name: definition.name.to_string(), description: definition.description.clone() }
}

/// The definitions, if nothing is wrong with any.
fn sound(read: Vec<Result<Definition, callboard::agents::Defects>>) -> Result<Vec<Definition>, Failure> {
    let (mut sound, mut wrong, mut defects) = (Vec::new(), Vec::new(), 0);
    for definition in read {
        match definition {
            Ok(definition) => sound.push(definition),
            Err(found) => {
                defects += found.list().len();
                wrong.push(found.to_string());
            }
        }
    }
    if wrong.is_empty() {
        return Ok(sound);
    }
    Err(Failure::trouble(format!("{}\n\n{}", count(defects, "defect"), wrong.join("\n\n"))))
}

/// The model that does not think.
pub(super) const FAKE: &str = "fake";

/// The model that an agent asks.
fn model(models: &Models, definition: &Definition, named: Option<&str>) -> Result<Arc<dyn Model>, Failure> {
    let choice = named.map_or_else(|| definition.model.clone(), ModelChoice::of);
    if choice.preferred.as_deref() == Some(FAKE) {
        return Ok(Arc::new(FakeModel));
    }
    let chosen = models.chosen(&choice);
    let chosen = chosen.map_err(|error| Failure::trouble(format!("agent {}: {error}", definition.name)))?;
    Ok(Arc::new(chosen))
}

/// A board that works on one run.
struct Session<'a> {
    board: Callboard,
    store: Option<Store>,
    arguments: &'a Run,
}

/// What the run asks of people.
enum Asked {
    Approval(Box<Envelope>),
    Question(Question),
}

impl<'a> Session<'a> {
    async fn start(mut builder: Builder, store: Option<Store>, arguments: &'a Run) -> Result<Self, Failure> {
        if let Some(store) = &store {
            builder = builder.storage(store.sled());
        }
        let board = builder.start().await.map_err(|error| Failure::trouble(error.to_string()))?;
        Ok(Self { board, store, arguments })
    }

    async fn work(&self, mut stops: Stops) -> Result<End, Failure> {
        let run = self.begin().await?;
        let end = tokio::select! {
            biased;
            () = stops.next() => {
                note("stopping: turns that run have 10 s to end; Ctrl-C again stops them at once");
                Ok(End::Stopped)
            }
            end = self.follow(&run) => end,
        };
        match (&end, &self.arguments.store) {
            (Ok(End::Waits | End::Stopped), Some(folder)) => {
                let folder = people::quoted(&folder.display().to_string());
                note(&format!("to go on: callboard run --resume {} --store {}", run.id(), visible(&folder)));
            }
            (Ok(End::Waits | End::Stopped), None) => note("nothing of it is kept, because no --store was given"),
            (Ok(End::Result(_)) | Err(_), _) => {}
        }
        end
    }

    async fn begin(&self) -> Result<RunHandle, Failure> {
        let trouble = |error: String| Failure::trouble(error);
        if let (Some(id), Some(store)) = (&self.arguments.resume, &self.store) {
            let run = self.board.take_up(store.find(id).await?).await;
            run.restart_turns().await;
            return Ok(run);
        }
        let agents = self.board.agents();
        if let (None, [_, _, ..]) = (&self.arguments.to, agents.as_slice()) {
            let names: Vec<&str> = agents.iter().map(|agent| agent.as_str()).collect();
            return Err(trouble(format!("there are several agents: name one with --to: {}", names.join(", "))));
        }
        let mut task = Task::new(self.arguments.task.as_deref().unwrap_or_default());
        task.to = self.arguments.to.as_deref().map(Into::into);
        task.input = self.arguments.input.clone().map(Into::into);
        task.limits = self.arguments.limits.clone();
        self.board.submit(task).await.map_err(|error| trouble(error.to_string()))
    }

    /// Follows the run to its end, or to where this process can do no more for it.
    async fn follow(&self, run: &RunHandle) -> Result<End, Failure> {
        let trouble = |error: RunError| Failure::trouble(error.to_string());
        let mut teller = Teller::new(self.arguments.quiet);
        let modes = [StreamMode::Live, StreamMode::Messages, StreamMode::Updates];
        let mut events = run.events(1, &modes).await.map_err(trouble)?;
        let mut is_left = false;
        loop {
            let watched = tokio::select! {
                biased;
                watched = events.next() => watched,
                asked = self.next_asked(run), if !is_left => {
                    eprint!("{}", teller.close());
                    is_left = !self.settle(asked).await?;
                    if is_left {
                        return Ok(End::Waits);
                    }
                    continue;
                }
            };
            match watched {
                Some(Watched::Live(shown)) => teller.tell(&shown),
                Some(Watched::Event(event)) => self.tell(&event.event),
                Some(Watched::Missed(_)) => {}
                None => break,
            }
        }
        eprint!("{}", teller.close());
        run.result().await.map(|result| End::Result(Box::new(result))).map_err(trouble)
    }

    /// Of what the journal gets, what people want to know at once.
    fn tell(&self, event: &RunEvent) {
        match event {
            _ if self.arguments.quiet => {}
            RunEvent::AttemptFailed { failure, .. } => note(&format!("an attempt failed: {failure}")),
            RunEvent::NeedsAttention { why, .. } => note(&format!("a turn needs attention: {why}")),
            _ => {}
        }
    }

    /// Waits for something that people are asked.
    async fn next_asked(&self, run: &RunHandle) -> Asked {
        tokio::select! {
            biased;
            approval = self.board.next_approval() => match approval {
                Some(envelope) => Asked::Approval(Box::new(envelope)),
                None => std::future::pending().await,
            },
            question = run.next_question() => match question {
                Ok(Some(question)) => Asked::Question(question),
                Ok(None) | Err(_) => std::future::pending().await,
            },
        }
    }

    /// Has a person decide. `false` if nobody does.
    async fn settle(&self, asked: Asked) -> Result<bool, Failure> {
        let trouble = |error: String| Failure::trouble(error);
        if !asking::is_anybody_here(self.arguments.no_input) {
            let what = match &asked {
                Asked::Approval(envelope) => callboard::actors::approvals::card(envelope),
                Asked::Question(question) => asking::shown(question),
            };
            note(&format!("nobody is here to be asked:\n{}", what.trim_end()));
            return Ok(false);
        }
        match asked {
            Asked::Approval(envelope) => {
                let id = envelope.id();
                let decision = tokio::task::spawn_blocking(move || asking::decide(&envelope)).await;
                let decided = match decision.unwrap_or(Decision::Leave) {
                    Decision::Yes => self.board.approvals().approve(id, &people::name()).await,
                    Decision::No { reason } => self.board.approvals().deny(id, &people::name(), &reason).await,
                    Decision::Leave => return Ok(false),
                };
                decided.map(|_| true).map_err(|error| trouble(error.to_string()))
            }
            Asked::Question(question) => {
                let id = question.id;
                let answer = tokio::task::spawn_blocking(move || asking::answer(&question)).await;
                let Some(answer) = answer.ok().flatten() else { return Ok(false) };
                let answered = self.board.answer(id, answer, &people::name()).await;
                answered.map(|()| true).map_err(|error| trouble(error.to_string()))
            }
        }
    }

    async fn end(&self) {
        self.board.shutdown().await;
        if let Some(store) = &self.store {
            store.sled().close().await;
        }
    }
}
