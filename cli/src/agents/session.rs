//! A board in this process that works on one run of the agents of a folder.

use std::fmt::Display;
use std::pin::pin;
use std::sync::Arc;

use futures::{Stream, StreamExt as _};
use serde_json::Value;

use callboard::Builder;
use callboard::actors::{StreamMode, Watched};
use callboard::messages::{
    AgentName, ConversationId, RunEvent, RunId, StateRules, TurnId, Usage, visible, visible_lines,
};
use callboard::prelude::*;
use callboard::runtime::RunHandle;
use callboard::supervision::runs::{Replay, Run as State};
use callboard::workflow::Workflow;
use callboard_agents::Models;

use crate::command_line::command_line;
use crate::conversations::check_none_is_open;
use crate::exit::Exit;
use crate::output::{self, note_words};
use crate::page::{self, Failure, handoffs, note};
use crate::person::is_anybody_here;
use crate::process::End;
use crate::quote::quoted;
use crate::retry::retry_of;
use crate::run_names::short;
use crate::runs::show::tokens_used;
use crate::service::boards::Reachable;
use crate::service::left::take_up;
use crate::signals::Signals;
use crate::stores::store::Loaded;
use crate::submitting::submit;
use crate::telemetry::{self, Spans};
use crate::trace_parent;
use crate::waits::{self, rests};
use crate::workflow::is_left_by_its_store;

use super::arguments::{Allowance, Run};
use super::decide::{next_asked, place, restart_turns, settle};
use super::hints;
use super::invalid::InvalidAgents;
use super::kept::{Kept, advise_retry};
use super::load;
use super::patterns::{is_of_workflow, option_of};
use super::progress::Progress;
use super::starter;
use super::watch::{Watch, changed};

/// A board, and the run that it works on.
pub(super) struct Session<'a> {
    board: Callboard,
    kept: Option<Kept>,
    arguments: &'a Run,
    /// The names of the folder's agents.
    agents: Vec<String>,
    /// The folder's agents that are left out.
    invalid: InvalidAgents,
    /// What exports the spans of the run.
    spans: Spans,
    /// Other processes reach the run.
    _reachable: Option<Reachable>,
}

impl<'a> Session<'a> {
    pub(super) async fn start(
        mut builder: Builder,
        kept: Option<Kept>,
        arguments: &'a Run,
        (agents, invalid, models): (Vec<String>, InvalidAgents, Option<Models>),
    ) -> Result<Self, Failure> {
        if let Some(kept) = &kept {
            builder = builder.storage(kept.store.storage());
        }
        let board = load::share_rates(builder, models.as_ref()).start().await.map_err(Failure::of)?;
        let spans = telemetry::start(&board, models);
        let reachable = if kept.is_some() { Some(Reachable::start(&board).await) } else { None };
        Ok(Self { board, kept, arguments, agents, invalid, spans, _reachable: reachable })
    }

    pub(super) async fn see_through(
        self,
        mut signals: Signals,
        workflow: Option<Workflow>,
        mut watch: Option<Watch>,
    ) -> Result<End, Failure> {
        // Subscribed before the run begins, so that no event is missed.
        let live = self.board.watch(&[StreamMode::Live]);
        let begun = tokio::select! {
            biased;
            () = signals.next() => None,
            run = self.begin(workflow) => Some(run),
        };
        let (run, end) = match begun {
            None => {
                note("stopped before the run began");
                (None, Ok(End::not_begun()))
            }
            Some(Err(failure)) => (None, Err(failure)),
            Some(Ok(run)) => {
                let end = tokio::select! {
                    biased;
                    () = signals.next() => {
                        note("stopping: turns that run have 10 s to end; Ctrl-C again stops them at once");
                        Ok(End::not_begun())
                    }
                    end = self.follow(&run, live, &mut watch) => end,
                };
                (Some(run), end)
            }
        };
        let ended = tokio::select! {
            biased;
            () = signals.next() => None,
            result = self.end(run.as_ref()) => result,
        };
        let result = ended.as_ref().and_then(State::result);
        match (end, run, result) {
            // Its last turn ended during the shutdown.
            (Ok(End::Stopped { .. } | End::Waits(_)), Some(_), Some(result)) => {
                Ok(End::Result(Box::new((**result).clone())))
            }
            (Ok(End::Stopped { .. }), Some(run), None) => {
                Ok(End::Stopped { run: Some(run.id()), resumption: self.print_resumption(&run) })
            }
            (Ok(End::Waits(_)), Some(run), None) => Ok(End::Waits(self.print_waits(&run, ended).await)),
            (Err(failure), Some(run), _) if is_left_by_its_store(&run).await => {
                let hint = self.resumption(short(run.id()));
                Err(failure.with(&hint.map(|hint| format!("to continue: {}", visible(&hint))).unwrap_or_default()))
            }
            (end, _, _) => end,
        }
    }

    /// Prints what the run waits for, where nobody can be asked, and the command line that continues it; returns both as JSON.
    async fn print_waits(&self, run: &RunHandle, ended: Option<State>) -> Value {
        let state = match ended {
            Some(state) => Some(state),
            // A signal came while the board ended.
            None => run.read().await.ok(),
        };
        let open = state.as_ref().map(waits::open).unwrap_or_default();
        if !is_anybody_here(self.arguments.no_input) {
            let place = place(&self.arguments.files.root);
            waits::note_cards(&open, place.as_deref());
            waits::note_nodes(&open);
        }
        waits::json(run.id(), &open, self.print_resumption(run).as_deref())
    }

    /// The command line that continues the run; `None` if the run is not stored.
    fn resumption(&self, run: impl Display) -> Option<String> {
        self.kept.as_ref().map(|kept| hints::resumption(run, kept.stores.named(), self.arguments))
    }

    /// Prints the command line that continues the run, and returns it with the whole id, for programs; `None` if the run is not stored.
    fn print_resumption(&self, run: &RunHandle) -> Option<String> {
        match self.resumption(short(run.id())) {
            Some(hint) => note(&format!("to continue: {}", visible(&hint))),
            None => note("the run cannot be continued: --ephemeral stores nothing of it"),
        }
        self.resumption(run.id())
    }

    async fn begin(&self, workflow: Option<Workflow>) -> Result<RunHandle, Failure> {
        if let Some(before) = self.kept.as_ref().and_then(|kept| kept.before.as_ref()) {
            return if self.arguments.retry.is_some() {
                self.retry(before).await
            } else {
                self.resume(before.id).await
            };
        }
        let words = self.arguments.task.as_deref().unwrap_or_default();
        let input = self.arguments.input.clone();
        if words.trim().is_empty() && input.is_none() {
            return Err(Failure::usage("the task is empty: write what is to be done".to_owned()));
        }
        let owner = match &self.arguments.conversation {
            Some(conversation) => self.owner(conversation).await?,
            None => None,
        };
        let mut task = match workflow {
            Some(workflow) => {
                let input = input.unwrap_or_else(|| words.into());
                Task { body: words.into(), ..workflow.task(input) }
            }
            None => {
                let mut task = Task::new(words).to(self.target(owner.as_deref())?);
                task.input = input.map(Into::into);
                task
            }
        };
        if let Some(Allowance::Named(limits)) = &self.arguments.limits {
            task.limits = Some(limits.of_new_run());
        }
        task.approval_ttl = self.arguments.approval_ttl;
        task.handoffs = handoffs(self.arguments.enable_handoffs);
        task.conversation.clone_from(&self.arguments.conversation);
        task.trace_parent = trace_parent::of_environment().map(Box::new);
        let run = submit(&self.board, task).await.map_err(Failure::of)?;
        if self.arguments.limits == Some(Allowance::Judged) && !self.arguments.quiet {
            let history = run.history().await.map_err(Failure::of)?;
            if let Some(RunEvent::Submitted(submission)) = history.first() {
                note(&format!("the run may use {}", submission.limits()));
            }
        }
        Ok(run)
    }

    async fn resume(&self, run: RunId) -> Result<RunHandle, Failure> {
        let run = match &self.kept {
            Some(Kept { stores, store, .. }) => take_up(&self.board, run, (stores, store)).await,
            None => self.board.take_up(run).await,
        };
        restart_turns(&self.board, &run).await;
        Ok(run)
    }

    /// Starts a new run that begins with the turn that failed last in an earlier one.
    async fn retry(&self, before: &Loaded) -> Result<RunHandle, Failure> {
        let limits = match &self.arguments.limits {
            Some(Allowance::Named(limits)) => Some(limits),
            // Refused when the arguments were checked.
            Some(Allowance::Judged) | None => None,
        };
        let store = self.kept.as_ref().and_then(|kept| kept.stores.named());
        let (turn, fork) = retry_of(before, limits, || hints::resumption(short(before.id), store, self.arguments))?;
        let forked = self.board.fork(before.id, turn, fork).await;
        let run =
            forked.map_err(|error| Failure::new(Exit::from(&error), format!("run {}: {error}", short(before.id))))?;
        if !self.arguments.quiet {
            note(&format!("turn {turn} of run {} is retried", short(before.id)));
        }
        Ok(run)
    }

    /// The agent or workflow that the conversation belongs to, if it exists. Refuses one with an open run, which the new run would wait
    /// for without end.
    async fn owner(&self, conversation: &ConversationId) -> Result<Option<Arc<str>>, Failure> {
        let conversations = self.board.conversations();
        if let Some(Kept { stores, store, .. }) = &self.kept {
            let line = |open: &Loaded| match open.replay.submission() {
                submission if is_of_workflow(submission) => {
                    hints::workflow_resumption(submission, short(open.id), stores.named(), self.arguments).text
                }
                _ => hints::resumption(short(open.id), stores.named(), self.arguments),
            };
            check_none_is_open(store, conversation, stores.named(), line).await?;
        }
        let Some(info) = conversations.info(conversation).await.map_err(Failure::of)? else { return Ok(None) };
        if self.arguments.pattern.participants().next().is_none() {
            let runs = conversations.read(conversation).await.map_err(Failure::of)?;
            self.check_no_workflow(conversation, &info.owner, runs.last().map(|run| run.run)).await?;
        }
        Ok(Some(info.owner))
    }

    /// Refuses a conversation of a workflow, which no agent can continue. `last` is its newest run, which may have been deleted.
    async fn check_no_workflow(
        &self,
        conversation: &ConversationId,
        owner: &str,
        last: Option<RunId>,
    ) -> Result<(), Failure> {
        let loaded = match (&self.kept, last) {
            (Some(kept), Some(run)) => kept.store.load(run).await.ok(),
            (None, _) | (_, None) => None,
        };
        let plan = loaded.as_ref().and_then(|loaded| loaded.replay.submission().task.plan.as_ref());
        let is_known = loaded.is_some() || self.agents.iter().any(|agent| agent == owner);
        let (Some(name), false) = (owner.strip_prefix("workflow "), plan.is_none() && is_known) else { return Ok(()) };
        Err(Failure::usage(match plan.and_then(|plan| option_of(plan)) {
            Some(option) => format!(
                "conversation {conversation} belongs to the {} of several agents: give {} again to continue it",
                visible(name),
                visible(&option)
            ),
            None => format!(
                "conversation {conversation} belongs to the workflow {}: continue it with the option that began it, such as \
                 --pipeline AGENT,…, or with {}",
                visible(name),
                visible(&command_line(
                    &format!("workflow run FILE --conversation {}", quoted(conversation.as_str())),
                    self.kept.as_ref().and_then(|kept| kept.stores.named())
                ))
            ),
        }))
    }

    /// The agent for the task: the one that is named, that the conversation belongs to, the only one, or the leader.
    fn target<'b>(&'b self, owner: Option<&'b str>) -> Result<&'b str, Failure> {
        match (self.arguments.to.as_deref().or(owner), self.agents.as_slice()) {
            (Some(to), _) => Ok(to),
            (None, [only]) if self.invalid.is_empty() => Ok(only),
            (None, several) if several.iter().any(|agent| agent == starter::LEADER) => Ok(starter::LEADER),
            (None, several) => {
                let mut names = several.to_vec();
                names.sort();
                Err(Failure::usage(format!("there are several agents: name one with --to: {}", names.join(", "))))
            }
        }
    }

    /// Follows the run until it ends, or until this process can do no more for it.
    async fn follow(
        &self,
        run: &RunHandle,
        mut live: impl Stream<Item = Watched> + Unpin,
        watch: &mut Option<Watch>,
    ) -> Result<End, Failure> {
        let mut progress = Progress::new(self.arguments.quiet);
        let modes = [StreamMode::Messages, StreamMode::Updates];
        let mut events = run.events(1, &modes).await.map_err(Failure::of)?;
        if !self.arguments.quiet && self.kept.is_some() {
            note(&format!("run {}", short(run.id())));
        }
        let is_anybody_here = is_anybody_here(self.arguments.no_input);
        let mut rests = pin!(rests(run, is_anybody_here));
        loop {
            // Events are printed no faster than standard error is read.
            output::room().await;
            let watched = tokio::select! {
                biased;
                Some(watched) = live.next() => Some(watched),
                watched = events.next() => watched,
                asked = next_asked(&self.board), if is_anybody_here => {
                    progress.close(None);
                    if !settle(&self.board, &asked, &self.arguments.files.root).await? {
                        return Ok(End::Waits(Value::Null));
                    }
                    continue;
                }
                rested = &mut rests => {
                    rested.map_err(Failure::of)?;
                    progress.close(None);
                    return Ok(End::Waits(Value::Null));
                }
                () = changed(watch) => {
                    let news = match watch {
                        Some(watch) => watch.reload(&self.board).await,
                        None => Vec::new(),
                    };
                    if !self.arguments.quiet {
                        news.iter().for_each(|line| note_words(line));
                    }
                    continue;
                }
            };
            match watched {
                Some(Watched::Live { turn, agent, event }) if turn.run == run.id() => {
                    progress.show(turn, &agent, &event)
                }
                Some(Watched::Event { event, .. }) => {
                    self.print(&event, &mut progress, run).await;
                    if let RunEvent::NeedsAttention { turn, .. } = &*event
                        && let Some(end) =
                            stuck(&run.read().await.map_err(Failure::of)?, (*turn, &self.invalid), &mut progress)
                    {
                        return Ok(end);
                    }
                }
                Some(Watched::Live { .. } | Watched::Missed(_)) => {}
                None => break,
            }
        }
        progress.close(None);
        let result = run.result().await.map_err(Failure::of)?;
        if !self.arguments.quiet {
            result.alone.iter().for_each(|alone| note_words(&alone.to_string()));
            if result.metrics.usage != Usage::default() {
                note(&format!("the models used {}", tokens_used(result.metrics.usage)));
            }
        }
        let stores = self.kept.as_ref().map(|kept| &kept.stores);
        advise_retry(&run.history().await.unwrap_or_default(), &result, stores, self.arguments);
        let is_shown =
            result.output.as_str().is_some_and(|output| progress.has_shown(output)) && page::is_one_terminal();
        Ok(if is_shown && !self.arguments.json && result.outcome.is_finished() {
            End::Shown
        } else {
            End::Result(Box::new(result))
        })
    }

    /// Prints failed attempts and notices.
    async fn print(&self, event: &RunEvent, progress: &mut Progress, run: &RunHandle) {
        if self.arguments.quiet {
            return;
        }
        match event {
            RunEvent::AttemptFailed { turn, failure, .. } => {
                progress.close(Some(TurnId { run: run.id(), number: *turn }));
                note_words(&format!("an attempt failed: {failure}").replace('\n', "\n  │ "));
            }
            RunEvent::Noticed { turn, text, .. } => {
                let agent =
                    agent_of(run, *turn).await.map_or_else(|| format!("turn {turn}"), |agent| visible(agent.as_str()));
                note_words(&format!("{agent} reports: {}", visible_lines(text).replace('\n', "\n  │ ")));
            }
            _ => {}
        }
    }

    /// Shuts the board down and closes the store; returns the state of the run.
    async fn end(&self, run: Option<&RunHandle>) -> Option<State> {
        self.board.shutdown().await;
        self.spans.end().await;
        let state = match run {
            Some(run) => run.read().await.ok(),
            None => None,
        };
        if let Some(kept) = &self.kept {
            kept.store.close_or_note().await;
        }
        state
    }
}

/// The agent of a turn, open or ended.
async fn agent_of(run: &RunHandle, turn: u32) -> Option<AgentName> {
    if let Some(agent) = run.read().await.ok()?.agent_of(turn) {
        return Some(agent.clone());
    }
    let replay = Replay::of(run.history().await.ok()?, &StateRules::default()).ok()?;
    replay.turn(turn).map(|turn| turn.agent.clone())
}

/// Prints a turn that needs attention; returns the end of the session if no other turn can continue.
fn stuck(run: &State, (turn, invalid): (u32, &InvalidAgents), progress: &mut Progress) -> Option<End> {
    // The event may be old: the turn may have been restarted since.
    let why = run.pending().into_iter().find_map(|open| match open {
        Pending::Attention { turn: open, why, .. } if open.number == turn => Some(why),
        Pending::Attention { .. } | Pending::Approval(_) | Pending::Question(_) | Pending::Node(_) => None,
    })?;
    progress.close(None);
    note_words(&hints::needs_attention(turn, &why, invalid));
    run.is_stuck().then(|| End::Waits(Value::Null))
}
