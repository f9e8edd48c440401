//! `callboard run`: a board in this process, with the agents of a folder, that works on one run.

use futures::StreamExt as _;

use callboard::Builder;
use callboard::actors::events::{StreamMode, Watched};
use callboard::agents::BuiltIn;
use callboard::messages::{RunEvent, Usage, visible};
use callboard::prelude::*;
use callboard::runtime::{RunError, RunHandle, Unfinished};
use callboard::workflow::Workflow;

use crate::page::{Failure, handoffs, note};
use crate::showing::taken;
use crate::stops::Stops;
use crate::store::Store;
use crate::workflow::End;

use super::arguments::{Allowance, Run};
use super::deciding::{Asker, next_asked, settle};
use super::hints;
use super::loading::{self, Thinkers};
use super::telling::Teller;
use super::watching::Watch;

pub(super) async fn run(arguments: &Run) -> Result<End, Failure> {
    // Before the tools are made, which must not see it.
    let store = arguments.store.as_deref().map(Store::open_or_make).transpose()?;
    let (named, hidden) = (arguments.model.as_deref(), arguments.store.as_deref());
    let way = arguments.way.workflow(arguments.rounds)?;
    // Before a program runs, because it may be what stops this process.
    let mut stops = Stops::new()?;
    let loaded = tokio::select! {
        biased;
        () = stops.next() => return Ok(End::Stopped),
        loaded = loading::load(&arguments.files, hidden, named) => loaded?,
    };
    let Thinkers { specs, folder, own, .. } = loaded;
    // What else is unfinished in the store is left to whoever began it.
    let builder = Callboard::builder().on_unfinished(Unfinished::Leave);
    let mut builder = specs.into_iter().fold(builder, Builder::with);
    if arguments.limits == Some(Allowance::Judged) {
        builder = builder.classifier_agent(BuiltIn::Complexity.name());
    }
    let session = Session::start(builder, store, arguments, own).await?;
    let end = session.work(stops, way, Watch::new(folder)).await;
    session.end().await;
    end
}

/// A board that works on one run.
struct Session<'a> {
    board: Callboard,
    store: Option<Store>,
    arguments: &'a Run,
    /// Those of the folder.
    agents: Vec<String>,
}

impl<'a> Session<'a> {
    async fn start(
        mut builder: Builder,
        store: Option<Store>,
        arguments: &'a Run,
        agents: Vec<String>,
    ) -> Result<Self, Failure> {
        if let Some(store) = &store {
            builder = builder.storage(store.sled());
        }
        let board = builder.start().await.map_err(|error| Failure::trouble(error.to_string()))?;
        Ok(Self { board, store, arguments, agents })
    }

    async fn work(&self, mut stops: Stops, way: Option<Workflow>, mut watch: Watch) -> Result<End, Failure> {
        let run = tokio::select! {
            biased;
            () = stops.next() => {
                note("stopped before the run began");
                return Ok(End::Stopped);
            }
            run = self.begin(way) => run?,
        };
        let end = tokio::select! {
            biased;
            () = stops.next() => {
                note("stopping: turns that run have 10 s to end; Ctrl-C again stops them at once");
                Ok(End::Stopped)
            }
            end = self.follow(&run, &mut watch) => end,
        };
        match (&end, &self.arguments.store) {
            (Ok(End::Waits | End::Stopped), Some(folder)) => {
                note(&format!("to go on: {}", visible(&hints::resumption(run.id(), folder, self.arguments))));
            }
            (Ok(End::Waits | End::Stopped), None) => note("nothing of it is kept, because no --store was given"),
            (Ok(End::Result(_)) | Err(_), _) => {}
        }
        end
    }

    async fn begin(&self, way: Option<Workflow>) -> Result<RunHandle, Failure> {
        let trouble = |error: String| Failure::trouble(error);
        if let (Some(id), Some(store)) = (&self.arguments.resume, &self.store) {
            let run = self.board.take_up(store.find(id).await?).await;
            run.restart_turns().await;
            return Ok(run);
        }
        let words = self.arguments.task.as_deref().unwrap_or_default();
        let input = self.arguments.input.clone();
        if words.trim().is_empty() && input.is_none() {
            return Err(trouble("the task is empty: say what is to be done".to_owned()));
        }
        let mut task = match way {
            Some(way) => {
                let input = input.unwrap_or_else(|| words.into());
                Task { body: words.into(), ..way.task(input) }
            }
            None => {
                let mut task = Task::new(words).to(self.target()?);
                task.input = input.map(Into::into);
                task
            }
        };
        if let Some(Allowance::Named(limits)) = &self.arguments.limits {
            task.limits = Some(limits.clone());
        }
        task.handoffs = handoffs(self.arguments.enable_handoffs);
        let run = self.board.submit(task).await.map_err(|error| trouble(error.to_string()))?;
        if self.arguments.limits == Some(Allowance::Judged) && !self.arguments.quiet {
            let history = run.history().await.map_err(|error| trouble(error.to_string()))?;
            if let Some(RunEvent::Submitted(submission)) = history.first() {
                note(&format!("the run may use {}", submission.limits()));
            }
        }
        Ok(run)
    }

    /// Who does it.
    fn target(&self) -> Result<&str, Failure> {
        match (self.arguments.to.as_deref(), self.agents.as_slice()) {
            (Some(to), _) => Ok(to),
            (None, [only]) => Ok(only),
            (None, several) => {
                let mut names = several.to_vec();
                names.sort();
                Err(Failure::trouble(format!("there are several agents: name one with --to: {}", names.join(", "))))
            }
        }
    }

    /// Follows the run to its end, or to where this process can do no more for it.
    async fn follow(&self, run: &RunHandle, watch: &mut Watch) -> Result<End, Failure> {
        let trouble = |error: RunError| Failure::trouble(error.to_string());
        let mut teller = Teller::new(self.arguments.quiet);
        let modes = [StreamMode::Live, StreamMode::Messages, StreamMode::Updates];
        let mut events = run.events(1, &modes).await.map_err(trouble)?;
        let asker = Asker::new(self.arguments.no_input, &self.arguments.files.root);
        let mut is_left = false;
        loop {
            let watched = tokio::select! {
                biased;
                watched = events.next() => watched,
                asked = next_asked(&self.board, run), if !is_left => {
                    eprint!("{}", teller.close());
                    is_left = !settle(&self.board, asked, &asker).await?;
                    if is_left {
                        return Ok(End::Waits);
                    }
                    continue;
                }
                () = watch.changed() => {
                    let news = watch.reload(&self.board).await;
                    if !self.arguments.quiet && !news.is_empty() {
                        eprint!("{}", teller.close());
                        news.iter().for_each(|line| note(line));
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
        let result = run.result().await.map_err(trouble)?;
        if !self.arguments.quiet {
            result.alone.iter().for_each(|alone| note(&alone.to_string()));
            if result.metrics.usage != Usage::default() {
                note(&format!("the models took {} tokens", taken(result.metrics.usage)));
            }
        }
        Ok(End::Result(Box::new(result)))
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

    async fn end(&self) {
        self.board.shutdown().await;
        if let Some(store) = &self.store {
            store.sled().close().await;
        }
    }
}
