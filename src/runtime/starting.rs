//! The start of a board: everything is made, wired and supervised, and runs of an earlier process are resumed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callboard_text::{check_name, looks};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot, watch};

use crate::actors::approvals::{Channel, ChannelActor, ChannelView, Decider, GatewayActor};
use crate::actors::boards::{Boards, BoardsActor, letter_form};
use crate::actors::context::{ContextActor, ContextStore};
use crate::actors::{
    AgentSpec, BoardShare, DayLimiter, GaugeSources, Gauges, Router, RouterActor, RouterParts, Scheduler,
    SchedulerConfig, ShardQueues, StorageActor, StorageActorArguments, StorageActorMsg,
};
use crate::env::Env;
use crate::messages::{AgentName, BoardInfo};
use crate::storage::board_store::BoardStore;
use crate::storage::{self, Journal, Memory, NewSession, SessionId, Storage, StorageError};
use crate::supervision::runs::conversing::ConversationQueue;
use crate::supervision::runs::dispatch::Dispatch;
use crate::supervision::runs::facts::SharedFacts;
use crate::supervision::runs::ownership::Ownership;
use crate::supervision::runs::queue::{RunMessage, ShardMessage};
use crate::supervision::runs::roster::Roster;
use crate::supervision::runs::rules::directory::AgentDirectory as _;
use crate::supervision::runs::run_reader::RunReader;
use crate::supervision::runs::supervisor::{MemoryBytes, MemoryRuns, RunSupervisor, ShardContext};
use crate::supervision::tree::{
    self, AutoShutdown, ChildSpec, EndReason, Intensity, Restart, Supervisor, SupervisorSpec,
};
use crate::supervision::{Lease, answer_of};

use super::builder::{BuildError, Builder};
use super::dormant_agents::BoardsDormantActors;
use super::handle::{Board, Callboard};
use super::placed_turns::PlacedTurns;
use super::process::{is_gone, this_process};
use super::reach::HostedBoard;
use super::settings::Unfinished;
use super::showing::BoardsOnStore;

impl Builder {
    /// Starts the board: storage, agents, and the runs that an earlier process left unfinished (see
    /// [`Builder::on_unfinished`]).
    ///
    /// # Errors
    /// See [`BuildError`]. What had started by then is stopped again.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start(self) -> Result<Callboard, BuildError> {
        let Self { storage, env, agents, workflows, channels, policy, groups, rules, settings, observer, share } = self;
        check(&agents, &channels)?;
        let env = env.unwrap_or_else(Env::system);
        let storage = storage.unwrap_or_else(|| Arc::new(Memory::new(env.clock())));
        let store = Arc::new(BoardStore::new(storage));
        let storage: Arc<dyn Storage> = Arc::clone(&store) as _;
        let durability = settings.durability.unwrap_or_else(|| storage.default_durability());
        let journal = Journal::new(Arc::clone(&storage));
        let shards = Arc::new(ShardQueues::new(settings.capacity.supervisors.or(env.cores()).unwrap_or(2)));
        let facts = Arc::new(SharedFacts::new(settings.breaker));
        let context = ContextStore::new(Arc::clone(&storage), env.clone(), durability, settings.namespace_ttls.clone());
        if let Some(project) = &settings.project {
            check_project(&journal, project).await?;
        }
        let board_id: Arc<str> = env.id().to_string().into();
        let channels: Arc<[_]> = channels.into_iter().map(|channel| Arc::new(ChannelView::new(channel))).collect();
        let lease = Arc::new(Lease::new(env.clone(), settings.timings.lease, storage.is_shared()));
        let info = BoardInfo {
            id: Arc::clone(&board_id),
            build: env!("CARGO_PKG_VERSION").into(),
            began_at: env.now().wall,
            address: settings.address.clone(),
            channels: ChannelView::asking(&channels),
            reads: storage::newest_format(),
            letters: letter_form(),
            process: this_process().filter(|_| storage.is_shared()),
            ..BoardInfo::default()
        };
        let new = NewSession {
            name: settings.name.clone().unwrap_or_else(|| Arc::clone(&board_id)),
            about: info.to_bytes(),
            lease: settings.timings.lease,
        };
        let name = Arc::clone(&new.name);
        let session = match answer_of(storage.begin_session(new.clone())).await {
            Err(StorageError::NameTaken { about, .. }) if is_of_gone_process(&about) => {
                end_session_of(&journal, &about).await?;
                answer_of(storage.begin_session(new)).await?
            }
            begun => begun?,
        };
        store.work_in(session);
        let ownership = Ownership::new(journal.clone(), Arc::clone(&board_id), session);
        let day_limiter = Arc::new(DayLimiter::new(
            (env.clone(), journal.clone(), durability, rules.clone()),
            &board_id,
            settings.day_limits.clone(),
        ));
        let config = SchedulerConfig {
            permits: settings.capacity.pool,
            ready_bound: settings.capacity.ready_per_agent,
            offline_after: settings.timings.offline_after,
            stuck_after: settings.timings.stuck_after,
            sleep_after: settings.timings.sleep_after,
            reconcile_within: settings.timings.reconcile_within,
            day_limiter: Arc::clone(&day_limiter),
            lease: Arc::clone(&lease),
        };
        let scheduler = Scheduler::new(env.clone(), Arc::clone(&facts), context.clone(), config);
        let decider = Decider::new(env.clone(), (Arc::clone(&storage), durability), Arc::clone(&shards), groups);
        let router = Arc::new(Router::new(RouterParts {
            env: env.clone(),
            scheduler: Arc::clone(&scheduler),
            decider: decider.clone(),
            policy,
            journal: journal.clone(),
            rules: rules.clone(),
            limits: settings.ledger(),
            watch_buffer: settings.capacity.watch_buffer,
        }));
        let share = (share.unwrap_or_else(|| BoardShare::new(&env)), settings.timings.scan_every);
        let boards = Arc::new(Boards::new(env.clone(), journal.clone(), Arc::clone(&board_id), share));
        let quarantine = Arc::new(Mutex::new(BTreeMap::new()));
        let run_permits = Arc::new(Semaphore::new(settings.capacity.runs_in_flight));
        let without_permit: Arc<AtomicUsize> = Arc::default();
        let (store_failure, store_loss) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
        let conversations = ConversationQueue::new(journal.clone(), rules.clone());
        let is_shared = storage.is_shared();
        let reader = RunReader::new(journal.clone(), rules.clone(), ownership.clone());
        let has_said_approvals = Arc::new(AtomicBool::new(false));
        // Without its agents, of which there may be very many.
        let about: Arc<dyn Fn() -> BoardInfo + Send + Sync> = {
            let (permits, without) = (Arc::clone(&run_permits), Arc::clone(&without_permit));
            let (in_flight, ownership) = (settings.capacity.runs_in_flight, ownership.clone());
            let (decider, has_said) = (decider.clone(), Arc::clone(&has_said_approvals));
            let channels = Arc::clone(&channels);
            Arc::new(move || {
                let approvals = decider.pending();
                has_said.store(approvals > 0, Ordering::Release);
                BoardInfo {
                    is_leaving: ownership.is_leaving(),
                    runs: in_flight.saturating_sub(permits.available_permits()) + without.load(Ordering::Relaxed),
                    channels: ChannelView::asking(&channels),
                    approvals,
                    ..info.clone()
                }
            })
        };
        let written: Arc<dyn Fn() -> Arc<[u8]> + Send + Sync> = {
            let (router, about) = (Arc::clone(&router), Arc::clone(&about));
            Arc::new(move || router.written(&about()))
        };
        let (storage_spec, storage_actor) = ChildSpec::actor("storage", {
            let arguments = StorageActorArguments {
                store_failure: Arc::clone(&store_failure),
                store_loss: Arc::clone(&store_loss),
                name: Arc::clone(&name),
                env: env.clone(),
                journal: journal.clone(),
                scheduler: Arc::clone(&scheduler),
                retention: settings.retention.runs,
                conversations: conversations.clone(),
                conversation_retention: settings.retention.conversations,
                every: settings.retention.every,
                day_limiter,
                ownership: ownership.clone(),
                lease,
                scan_every: settings.timings.scan_every,
                about: Arc::clone(&written),
                reaches: {
                    let router = Arc::clone(&router);
                    Arc::new(move |agent: &AgentName| router.reaches_now(agent))
                },
                shards: Arc::clone(&shards),
                takes_over: settings.on_unfinished == Unfinished::Resume,
            };
            move || (StorageActor, arguments.clone())
        });
        let rosters: Vec<_> = shards.all().iter().map(|_| Arc::new(Roster::new(Arc::clone(&without_permit)))).collect();
        let memory_bytes = MemoryBytes::new(settings.retention.memory_bytes);
        let shard_context = |(queue, roster)| {
            let (run_permits, storage_actor) = (Arc::clone(&run_permits), storage_actor.clone());
            let failure = Arc::clone(&store_failure);
            Arc::new(ShardContext {
                env: env.clone(),
                journal: journal.clone(),
                dispatch: Arc::clone(&router) as Arc<dyn Dispatch>,
                facts: Arc::clone(&facts),
                rules: rules.clone(),
                backoff: settings.backoff,
                approval_ttl: settings.approval_ttl,
                remind_before: settings.timings.remind_before,
                on_unknown: settings.on_unknown,
                max_recoveries: settings.max_recoveries,
                dynamic_agents: settings.capacity.dynamic_agents,
                memory_turns: settings.retention.memory_turns,
                durability,
                ownership: ownership.clone(),
                reader: reader.clone(),
                is_shared,
                conversations: conversations.clone(),
                queue,
                roster,
                quarantine: Arc::clone(&quarantine),
                memory_runs: Arc::new(MemoryRuns::new(
                    settings.retention.memory_runs / shards.all().len(),
                    Arc::clone(&memory_bytes),
                )),
                on_storage_error: Box::new(move |error| {
                    tracing::error!(%error, "the store has stopped, and the board stops with it");
                    run_permits.close();
                    let _ = failure.set(error.clone());
                    // If the actor is down, it reads the failure when it restarts.
                    let _ = storage_actor.cast(StorageActorMsg::StorageStopped);
                }),
            })
        };
        let contexts: Vec<Arc<ShardContext>> =
            shards.all().iter().cloned().zip(rosters.iter().cloned()).map(shard_context).collect();
        let memory_runs = contexts.iter().map(|context| Arc::clone(&context.memory_runs)).collect();

        let (context_spec, _) = ChildSpec::actor("context-store", {
            let (context, every) = (context.clone(), settings.retention.every);
            move || (ContextActor, (context.clone(), every))
        });
        let approvals = approvals_spec(&channels, &decider);
        let (router_spec, _) = ChildSpec::actor("delegation-router", {
            let router = Arc::clone(&router);
            move || (RouterActor, Arc::clone(&router))
        });
        let (boards_spec, _) = ChildSpec::actor("boards", {
            let (boards, every) = (Arc::clone(&boards), settings.timings.scan_every);
            move || (BoardsActor, (Arc::clone(&boards), every))
        });
        let (gauges_spec, _) = ChildSpec::actor("gauges", {
            let (scheduler, facts) = (Arc::clone(&scheduler), Arc::clone(&facts));
            let sources = GaugeSources { scheduler, facts, every: Duration::from_secs(10) };
            move || (Gauges, sources.clone())
        });
        // Without backoff, because agents have restart windows of any size. Agents have no order, so they stop at the same time.
        let (agents_spec, agents_tree) =
            ChildSpec::supervisor(SupervisorSpec::simple_one_for_one("agents").backoff(tree::RestartBackoff::none()));
        let mut runs = SupervisorSpec::one_for_one("runs");
        for (number, shard_context) in contexts.iter().enumerate() {
            let queue = Arc::clone(&shard_context.queue);
            let (spec, _) = ChildSpec::actor(format!("runs-{number}"), {
                let shard_context = Arc::clone(shard_context);
                move || (RunSupervisor, Arc::clone(&shard_context))
            });
            runs = runs.child(spec.mailbox_depth(move || queue.len()));
        }
        let root = SupervisorSpec::one_for_one("callboard")
            .auto_shutdown(AutoShutdown::AnySignificant)
            .child(storage_spec.restart(Restart::Transient).significant())
            .child(context_spec)
            .child(approvals)
            .child(router_spec)
            .child(boards_spec)
            .child(agents_spec)
            // Runs continue without the gauges.
            .child(gauges_spec.own_intensity(Intensity::default()))
            .child(ChildSpec::supervisor(runs).0);
        let tree = Supervisor::start_in(root, env.clone()).await?;
        tokio::spawn({
            let (tree, run_permits, scheduler) = (tree.clone(), Arc::clone(&run_permits), Arc::downgrade(&scheduler));
            async move {
                let reason = tree.join().await;
                run_permits.close();
                // A board that was stopped has stopped its turns, and may be dropped already.
                if reason != EndReason::Stopped
                    && let Some(scheduler) = scheduler.upgrade()
                {
                    tracing::error!(%reason, "the board has ended");
                    scheduler.stop_all();
                }
            }
        });
        let (barrier, recovered) = watch::channel(());
        let board = Arc::new(Board {
            store,
            store_failure,
            store_loss,
            recovered,
            run_permits,
            without_permit,
            env,
            journal,
            ownership,
            conversations,
            shards,
            rosters,
            memory_runs,
            listing: tokio::sync::OnceCell::new(),
            failures: tokio::sync::OnceCell::new(),
            facts,
            scheduler,
            router,
            boards,
            agents_elsewhere: tokio::sync::Mutex::default(),
            announcing: Mutex::default(),
            differences: Mutex::default(),
            about,
            written,
            context,
            decider,
            channels,
            rules,
            quarantine,
            tree,
            agents: agents_tree,
            settings,
            durability,
            submissions: tokio::sync::RwLock::default(),
        });
        let callboard = Callboard { board };
        callboard.board.scheduler.place_with(Arc::new(PlacedTurns(Arc::downgrade(&callboard.board))));
        callboard.board.scheduler.wake_with(Arc::new(BoardsDormantActors(Arc::downgrade(&callboard.board))));
        let others = BoardsOnStore { board: Arc::downgrade(&callboard.board), has_said: has_said_approvals };
        callboard.board.decider.reach(Box::new(others));
        let (tree, watched) = (callboard.board.tree.clone(), Arc::clone(&callboard.board.router));
        tokio::spawn(async move {
            tree.join().await;
            watched.withdraw_all();
            watched.hub.close();
        });
        match observer {
            Some(observe) => observe(&callboard),
            None => crate::env::simulated::report_foreign_env(),
        }
        let workflows =
            workflows.into_iter().map(|(name, workflow, limits)| callboard.workflow_agent(&name, &workflow, limits));
        let agents: Vec<AgentSpec> = agents.into_iter().chain(workflows).collect();
        for spec in agents {
            if let Err(error) = callboard.agents().add(spec).await {
                callboard.board.tree.stop().await;
                return Err(error.into());
            }
        }
        callboard.say_what_is_here().await;
        if let Err(error) = callboard.learn_of_boards().await {
            callboard.board.tree.stop().await;
            return Err(error.into());
        }
        // From here on agents of other boards are added, whose names this board does not have.
        callboard.board.boards.serve(Box::new(HostedBoard(Arc::downgrade(&callboard.board))));
        callboard.have_others_look().await;
        let unfinished = match callboard.board.settings.on_unfinished {
            Unfinished::Leave => Vec::new(),
            Unfinished::Resume | Unfinished::Cancel => {
                match answer_of(callboard.board.ownership.find_unowned()).await {
                    Ok(runs) => runs,
                    Err(error) => {
                        callboard.board.tree.stop().await;
                        return Err(error.into());
                    }
                }
            }
        };
        if unfinished.is_empty() {
            // The index of inboxes and the list of runs begin complete in a store without runs. If this fails, the first that is
            // read is completed.
            let _ = answer_of(callboard.board.journal.has_all_inboxes()).await;
            let _ = answer_of(callboard.board.journal.has_all_listed()).await;
        }
        for run in unfinished {
            let queue = callboard.board.shards.of(run);
            queue.push(ShardMessage::Adopt { run, new_process: true, recovery: Some(barrier.clone()) });
            if callboard.board.settings.on_unfinished == Unfinished::Cancel {
                // The message waits until the run is read, and is processed before the run continues.
                let (ack, _) = oneshot::channel();
                let message = RunMessage::Cancel { reason: "an earlier process left it unfinished".to_owned(), ack };
                queue.push(ShardMessage::Run { run, message });
            }
        }
        Ok(callboard)
    }
}

/// Checks that the store belongs to this project; one that belongs to none is this project's from now on.
async fn check_project(journal: &Journal, project: &Arc<str>) -> Result<(), BuildError> {
    check_name("project", project, 64)?;
    let of_store = answer_of(journal.claim_for(project)).await?;
    if of_store == *project {
        return Ok(());
    }
    Err(BuildError::OtherProject { project: Arc::clone(project), of_store })
}

/// Whether the process of a board has ended without a word.
fn is_of_gone_process(about: &[u8]) -> bool {
    BoardInfo::read(about).and_then(|info| info.process).is_some_and(|process| is_gone(&process))
}

/// Ends the session of a board whose process is gone, so that its name is free at once.
async fn end_session_of(journal: &Journal, about: &[u8]) -> Result<(), StorageError> {
    let id = BoardInfo::read(about).unwrap_or_default().id;
    for board in answer_of(journal.boards()).await?.into_iter().filter(|board| board.info.id == id) {
        answer_of(journal.storage().end_session(SessionId(board.session), false)).await?;
    }
    Ok(())
}

/// The gateway and its channels.
fn approvals_spec(views: &Arc<[Arc<ChannelView>]>, decider: &Decider) -> ChildSpec {
    let mut supervisor = SupervisorSpec::one_for_one("approval-gateway");
    for view in &**views {
        let (spec, _) = ChildSpec::actor(view.name(), {
            let (view, decider) = (Arc::clone(view), decider.clone());
            move || (ChannelActor, (Arc::clone(&view), decider.clone()))
        });
        let spec = spec.own_intensity(Intensity::new(5, Duration::from_secs(60)));
        let view = Arc::clone(view);
        supervisor = supervisor.child(spec.on_failed(move |_| view.note_failure()));
    }
    let (gateway, _) = ChildSpec::actor("gateway", {
        let (decider, views) = (decider.clone(), Arc::clone(views));
        move || (GatewayActor, (decider.clone(), Arc::clone(&views)))
    });
    ChildSpec::supervisor(supervisor.child(gateway)).0
}

fn check(agents: &[AgentSpec], channels: &[Arc<dyn Channel>]) -> Result<(), BuildError> {
    let mut names = std::collections::BTreeSet::new();
    for spec in agents {
        let name = spec.checked_name()?;
        if !names.insert(name.clone()) {
            return Err(BuildError::DuplicateAgent { name });
        }
    }
    if names.iter().any(|name| !name.as_str().is_ascii()) {
        let mut seen = std::collections::BTreeMap::new();
        for name in names {
            if let Some(other) = seen.insert(looks(name.as_str()), name.clone())
                && !(name.as_str().is_ascii() && other.as_str().is_ascii())
            {
                return Err(BuildError::LooksLike { name, other });
            }
        }
    }
    let mut names = std::collections::BTreeSet::from(["gateway"]);
    for channel in channels {
        check_name("channel", channel.name(), 64)?;
        if !names.insert(channel.name()) {
            return Err(BuildError::DuplicateChannel { name: channel.name().to_owned() });
        }
    }
    Ok(())
}
