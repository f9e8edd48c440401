//! The storage actor: it deletes runs that ended long ago, renews the board's lease on its store, looks for runs of boards that are
//! gone, and fails when the store stops, which ends the board. It owns no data.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::env::Env;
use crate::messages::{AgentName, BoardInfo, Timestamp};
use crate::storage::{Forgotten, Journal, SessionInfo, StorageError};
use crate::supervision::runs::conversing::ConversationQueue;
use crate::supervision::runs::ownership::Ownership;
use crate::supervision::runs::queue::ShardMessage;
use crate::supervision::{Lease, actor_point, answer_of};

use super::day_limiter::DayLimiter;
use super::periodic::{Ended, Periodic};
use super::scheduler::Scheduler;
use super::shard_queues::ShardQueues;

/// How long a board that ends waits for what it writes to the store and asks it.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);

pub(crate) struct StorageActor;

#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) env: Env,
    pub(crate) journal: Journal,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) retention: Duration,
    pub(crate) conversations: ConversationQueue,
    /// Counted from the end of a conversation's last run.
    pub(crate) conversation_retention: Duration,
    pub(crate) every: Duration,
    pub(crate) ownership: Ownership,
    pub(crate) lease: Arc<Lease>,
    pub(crate) scan_every: Duration,
    /// The name of the board.
    pub(crate) name: Arc<str>,
    /// What the board says about itself to the others, as bytes.
    pub(crate) about: Arc<dyn Fn() -> Arc<[u8]> + Send + Sync>,
    /// Whether the board has an agent, or reaches it.
    pub(crate) reaches: Arc<dyn Fn(&AgentName) -> bool + Send + Sync>,
    pub(crate) shards: Arc<ShardQueues>,
    /// Whether runs of boards that are gone are taken over.
    pub(crate) takes_over: bool,
    pub(crate) day_limiter: Arc<DayLimiter>,
    /// The error with which the store stopped.
    pub(crate) store_failure: Arc<OnceLock<StorageError>>,
    /// Why the board has lost its store, for people. It is set before the board ends.
    pub(crate) store_loss: Arc<OnceLock<Arc<str>>>,
}

impl Arguments {
    /// Ends the board, which can write nothing more.
    fn stop(&self, me: &ActorRef<StorageActorMsg>, error: StorageError) {
        tracing::error!(%error, "the board has lost its store");
        let _ = self.store_failure.set(error);
        let _ = me.cast(StorageActorMsg::StorageStopped);
    }

    /// Why the session has ended, as the store and the other boards know it; `None` if it has not, or they do not answer.
    async fn why_ended(&self) -> Option<String> {
        let (storage, session) = (self.journal.storage(), self.ownership.session());
        let sessions = answer_of(storage.sessions()).await.ok()?;
        // That of this board may be forgotten already.
        let is_of_name = |other: &&SessionInfo| other.name == self.name && other.id != session && !other.left.is_zero();
        if let Some(other) = sessions.iter().find(is_of_name) {
            let address = BoardInfo::read(&other.about).and_then(|info| info.address);
            let address = address.map(|address| format!(", that at {address}")).unwrap_or_default();
            return Some(format!("another board works on the store under its name {}{address}", self.name));
        }
        match answer_of(storage.renew_session(session, (self.about)())).await {
            Err(StorageError::Stopped { detail }) => Some(detail),
            Ok(()) | Err(_) => None,
        }
    }
}

#[derive(Debug)]
pub(crate) enum StorageActorMsg {
    /// The interval has passed: delete old runs.
    Forget,
    /// The deletion has ended.
    Forgotten(Ended),
    /// Renew the lease, so that other boards see that this one is alive.
    Renew,
    /// The lease was renewed by a call that was begun at this time, or could not be.
    Renewed(Duration, Result<(), StorageError>),
    /// Look for runs of boards that are gone.
    Scan,
    /// The runs that were found are with the shards.
    Scanned(Result<(), StorageError>),
    /// `store_failure` is set.
    StorageStopped,
}

pub(crate) struct StorageActorState {
    arguments: Arguments,
    expiry: Periodic,
    renewals: Renewals,
}

/// What is known of the renewals of the lease.
struct Renewals {
    /// When the last one was due.
    due_at: Duration,
    /// The longest time between two that were due.
    pause: Duration,
    /// Why the last one has failed.
    trouble: Option<StorageError>,
}

impl Renewals {
    fn due(&mut self, now: Duration) {
        self.pause = self.pause.max(now.saturating_sub(self.due_at));
        self.due_at = now;
    }
}

impl Actor for StorageActor {
    type Msg = StorageActorMsg;
    type State = StorageActorState;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        me: ActorRef<StorageActorMsg>,
        arguments: Arguments,
    ) -> Result<StorageActorState, ActorProcessingErr> {
        arguments.env.slow_fault_point("storage.start").await?;
        if arguments.store_failure.get().is_some() {
            me.cast(StorageActorMsg::StorageStopped)?;
        }
        me.cast(StorageActorMsg::Renew)?;
        me.send_after(arguments.scan_every, || StorageActorMsg::Scan);
        let (env, every) = (arguments.env.clone(), arguments.every);
        let expiry = Periodic { env, what: "runs that ended long ago", fault_point: "storage.sweep", every };
        expiry.schedule(&me, Ok(()), || StorageActorMsg::Forget)?;
        let renewals = Renewals { due_at: arguments.env.now().monotonic, pause: Duration::ZERO, trouble: None };
        Ok(StorageActorState { arguments, expiry, renewals })
    }

    async fn handle(
        &self,
        me: ActorRef<StorageActorMsg>,
        message: StorageActorMsg,
        StorageActorState { arguments, expiry, renewals }: &mut StorageActorState,
    ) -> Result<(), ActorProcessingErr> {
        let arguments = &*arguments;
        let Arguments { env, journal, scheduler, retention, conversations, conversation_retention, .. } = arguments;
        actor_point(env, "storage.handle", "", &me).await?;
        match message {
            StorageActorMsg::Forget => {
                let (journal, now) = (journal.clone(), env.now().wall);
                let before = |retention: &Duration| {
                    let retention = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
                    Timestamp::from_millis(now.as_millis().saturating_sub(retention))
                };
                let (oldest, oldest_talk) = (before(retention), before(conversation_retention));
                let (conversations, every) = (conversations.clone(), arguments.every);
                let forget = async move {
                    if !journal.is_to_forget(every).await? {
                        return Ok(0);
                    }
                    journal.discard_mail_to_nobody().await?;
                    conversations.forget_before(oldest_talk).await?;
                    let Forgotten { runs, failed } = journal.forget_ended_before(oldest).await?;
                    for (run, error) in failed {
                        tracing::warn!(%run, %error, "a run that ended long ago cannot be forgotten");
                    }
                    Ok::<_, StorageError>(runs)
                };
                expiry.begin(&me, forget, StorageActorMsg::Forgotten);
            }
            StorageActorMsg::Forgotten(ended) => expiry.schedule(&me, ended, || StorageActorMsg::Forget)?,
            StorageActorMsg::Renew => {
                // Scheduled now, so that a renewal that fails or never ends does not prevent the next one.
                me.send_after(arguments.lease.renew_in(), || StorageActorMsg::Renew);
                let begun_at = env.now().monotonic;
                renewals.due(begun_at);
                if arguments.lease.is_over() {
                    let detail = arguments.lease.why_over(renewals.pause, renewals.trouble.as_ref());
                    arguments.stop(&me, StorageError::Stopped { detail: detail.unwrap_or_default() });
                }
                let renewal = journal.storage().renew_session(arguments.ownership.session(), (arguments.about)());
                tokio::spawn(async move { me.cast(StorageActorMsg::Renewed(begun_at, answer_of(renewal).await)) });
            }
            StorageActorMsg::Renewed(begun_at, Ok(())) => {
                renewals.trouble = None;
                let had_stopped = !arguments.lease.allows_work();
                arguments.lease.renew(begun_at);
                if had_stopped && arguments.lease.allows_work() {
                    scheduler.lease_renewed();
                }
            }
            StorageActorMsg::Renewed(_, Err(error @ StorageError::Stopped { .. })) => {
                arguments.stop(&me, error);
            }
            StorageActorMsg::Renewed(_, Err(error)) => {
                tracing::warn!(%error, "the board's lease on its store was not renewed");
                renewals.trouble = Some(error);
            }
            StorageActorMsg::Scan => {
                let Arguments { ownership, reaches, shards, takes_over, .. } = arguments.clone();
                let scan = async move {
                    let adopt = |run| {
                        if takes_over && !ownership.is_leaving() {
                            shards.of(run).push(ShardMessage::Adopt { run, new_process: true, recovery: None });
                        }
                    };
                    ownership.find_left(&*reaches, adopt).await
                };
                tokio::spawn(async move { me.cast(StorageActorMsg::Scanned(answer_of(scan).await)) });
            }
            StorageActorMsg::Scanned(scanned) => {
                me.send_after(arguments.scan_every, || StorageActorMsg::Scan);
                if let Err(error) = scanned {
                    tracing::warn!(%error, "boards that are gone cannot be looked for");
                }
            }
            StorageActorMsg::StorageStopped => {
                scheduler.stop_all();
                renewals.due(env.now().monotonic);
                let loss = match arguments.lease.why_over(renewals.pause, renewals.trouble.as_ref()) {
                    None if journal.storage().is_shared() => {
                        tokio::time::timeout(LEAVE_WITHIN, arguments.why_ended()).await.unwrap_or_default()
                    }
                    why => why,
                };
                let loss = loss.or_else(|| {
                    Some(match arguments.store_failure.get()? {
                        StorageError::Stopped { detail } => detail.clone(),
                        error => error.to_string(),
                    })
                });
                let _ = arguments.store_loss.set(loss.unwrap_or_default().into());
                me.stop(Some("the store has stopped".to_owned()));
            }
        }
        Ok(())
    }

    /// The board's runs have stopped: another board may take them over at once.
    async fn post_stop(
        &self,
        _: ActorRef<StorageActorMsg>,
        state: &mut StorageActorState,
    ) -> Result<(), ActorProcessingErr> {
        state.arguments.env.slow_fault_point("storage.stop").await?;
        if let Err(error) = state.arguments.day_limiter.close().await {
            tracing::warn!(%error, "what the board had set aside of the day's limits stays spent until another board settles it");
        }
        let Arguments { journal, ownership, about, .. } = &state.arguments;
        let (storage, session) = (journal.storage(), ownership.session());
        if ownership.is_leaving() {
            // Without it, others count the board as lost with its runs.
            let renewed = answer_of(storage.renew_session(session, about()));
            let _ = tokio::time::timeout(LEAVE_WITHIN, renewed).await;
        }
        // A session that is not ended here runs out by itself.
        let ended = answer_of(storage.end_session(session, false)).await;
        if ended.is_ok() && storage.is_shared() && ownership.is_leaving() {
            // What is not forgotten here, another board forgets, after a look at what this one has left.
            let _ = tokio::time::timeout(LEAVE_WITHIN, answer_of(forget_unless_needed(journal, ownership))).await;
        }
        Ok(())
    }
}

/// Forgets the ended session of a board that has left nothing to others, as that of a command: no other board has to look what it has left.
async fn forget_unless_needed(journal: &Journal, ownership: &Ownership) -> Result<(), StorageError> {
    let board = ownership.board();
    let has_left = journal.open_notes().await?.iter().any(|(_, owner)| owner == board);
    if has_left || journal.has_memory_runs(board).await? {
        return Ok(());
    }
    journal.storage().forget_session(ownership.session()).await
}
