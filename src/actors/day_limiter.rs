//! Reserves calls within what the board, an agent and a requester may use in a day. The rules are in
//! `supervision/runs/rules/day_ledger.rs`; here is what they need of the store and of the clock.
//!
//! A board takes a block of the day's ledger when its calls need one, by a write that the ledger's revision guards, and settles its blocks when
//! it ends. The blocks of a board that was killed stay spent until another board needs a block: that one finds the lease of the first
//! over, ends it, and settles the blocks with what the journals of its runs have.

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::env::Env;
use crate::messages::state::StateRules;
use crate::messages::{AgentName, Cost, Durability, PerDay, Refusal, RunEvent, RunId, Timestamp, Usage};
use crate::storage::codec;
use crate::storage::{Expected, Journal, Key, Put, StorageError};
use crate::supervision::answer_of;
use crate::supervision::runs::dispatch::ReadyTurn;
use crate::supervision::runs::rules::day_ledger::{Amount, Block, DayAccount, DayLedger, used_through};

/// The ledgers, by day.
const LEDGERS: &str = "day-ledger";
/// Which runs have used the blocks of a board, by day and board.
const USES: &str = "day-use";
/// How long both are kept.
const KEPT_SECS: u64 = 40 * 24 * 3600;
const PAGE: usize = 256;
const DAY_MILLIS: u64 = 24 * 3600 * 1_000;

/// The limit of a requester.
type LimitOf = Arc<dyn Fn(&AgentName) -> PerDay + Send + Sync>;

/// What may be used in a day: [`Builder::day_limits`](crate::Builder::day_limits).
#[derive(Clone)]
#[must_use = "it is returned to the builder"]
pub struct DayLimits {
    board: PerDay,
    requesters: Option<LimitOf>,
    day_of: Arc<dyn Fn(Timestamp) -> u32 + Send + Sync>,
}

impl Default for DayLimits {
    fn default() -> Self {
        let in_utc = |at: Timestamp| u32::try_from(at.as_millis() / DAY_MILLIS).unwrap_or(u32::MAX);
        Self { board: PerDay::default(), requesters: None, day_of: Arc::new(in_utc) }
    }
}

impl DayLimits {
    /// What all runs of all boards of the store may use (no limit).
    pub fn board(mut self, limit: PerDay) -> Self {
        self.board = limit;
        self
    }

    /// What the runs of a requester outside the board may use ([`Task::from_agent`](crate::messages::Task::from_agent); no limit).
    pub fn requesters(mut self, limit_of: impl Fn(&AgentName) -> PerDay + Send + Sync + 'static) -> Self {
        self.requesters = Some(Arc::new(limit_of));
        self
    }

    pub(crate) fn day_of(&self, at: Timestamp) -> u32 {
        (self.day_of)(at)
    }

    /// On which day a time is, counted from 1970-01-01 (in UTC). All boards of a store have to agree.
    pub fn days(mut self, day_of: impl Fn(Timestamp) -> u32 + Send + Sync + 'static) -> Self {
        self.day_of = Arc::new(day_of);
        self
    }
}

impl fmt::Debug for DayLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DayLimits").field("board", &self.board).finish_non_exhaustive()
    }
}

/// The day's blocks of a board.
pub(crate) struct DayLimiter {
    env: Env,
    journal: Journal,
    durability: Durability,
    rules: StateRules,
    /// The board's id.
    board: Arc<str>,
    limits: DayLimits,
    today: Mutex<Today>,
    /// Held while a block is taken: a second caller would be refused what the first has taken and not yet added.
    taking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Today {
    now: Day,
    /// The day before this one by the clock, which may be set back to it.
    left: Day,
}

#[derive(Default)]
struct Day {
    day: u32,
    blocks: BTreeMap<DayAccount, Block>,
    /// The runs that are noted as users of the blocks.
    runs: HashSet<RunId>,
    /// What was carried to an earlier day.
    carried: BTreeMap<DayAccount, Amount>,
}

impl Today {
    /// Continues with a day. If the clock was set back, what was used since counts on the earlier day as well: nothing is given twice.
    fn turn_to(&mut self, day: u32) {
        if self.now.day == day {
            return;
        }
        if self.left.day != day {
            self.left = Day { day, ..Day::default() };
        }
        std::mem::swap(&mut self.now, &mut self.left);
        if self.left.day < day {
            return;
        }
        for (account, block) in &self.left.blocks {
            let carried = self.left.carried.entry(account.clone()).or_default();
            let used = block.counted();
            self.now.blocks.entry(account.clone()).or_default().carry(used.minus(*carried));
            *carried = used;
        }
    }

    /// One of the two days.
    fn of(&mut self, day: u32) -> Option<&mut Day> {
        [&mut self.now, &mut self.left].into_iter().find(|it| it.day == day)
    }
}

impl fmt::Debug for DayLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DayLimiter").field("board", &self.board).field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Whose limits a call counts against.
type Accounts = Vec<(DayAccount, PerDay)>;

/// What is set aside of the day's blocks for one call.
pub(in crate::actors) struct DayHold {
    limiter: Arc<DayLimiter>,
    day: u32,
    accounts: Accounts,
    amount: Amount,
}

impl fmt::Debug for DayHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DayHold").field("day", &self.day).field("amount", &self.amount).finish_non_exhaustive()
    }
}

impl DayHold {
    /// The day, and the board whose blocks it is part of.
    pub(in crate::actors) fn charged(&self) -> (u32, Arc<str>) {
        (self.day, Arc::clone(&self.limiter.board))
    }

    /// The call has reported what it used, or was not sent. One that is dropped stays spent.
    pub(in crate::actors) fn settle(self, usage: Option<Usage>) {
        let used = Amount::of(usage.unwrap_or_default());
        let mut today = self.limiter.today.lock();
        let Some(day) = today.of(self.day) else { return };
        for (account, _) in &self.accounts {
            if let Some(block) = day.blocks.get_mut(account) {
                block.settle(self.amount, used);
            }
        }
    }
}

impl DayLimiter {
    pub(crate) fn new(
        (env, journal, durability, rules): (Env, Journal, Durability, StateRules),
        board: &Arc<str>,
        limits: DayLimits,
    ) -> Self {
        let board = Arc::clone(board);
        Self {
            env,
            journal,
            durability,
            rules,
            board,
            limits,
            today: Mutex::default(),
            taking: tokio::sync::Mutex::default(),
        }
    }

    /// Whether calls of an agent with this limit may be limited at all.
    pub(in crate::actors) fn counts(&self, of_agent: PerDay) -> bool {
        [self.limits.board, of_agent].iter().any(|limit| *limit != PerDay::default())
            || self.limits.requesters.is_some()
    }

    /// Sets aside what a call of a turn may use. `None` if nothing limits it.
    ///
    /// # Errors
    /// The inner one is [`Refusal::DayLimit`].
    pub(in crate::actors) async fn hold(
        self: &Arc<Self>,
        turn: &ReadyTurn,
        of_agent: PerDay,
        tokens: u64,
        cost: Option<Cost>,
    ) -> Result<Result<Option<DayHold>, Refusal>, StorageError> {
        let accounts = self.accounts(turn, of_agent);
        if accounts.is_empty() {
            return Ok(Ok(None));
        }
        let amount = Amount { tokens, cost: cost.map_or(0, |cost| cost.0) };
        let unknown = accounts.iter().find(|(_, limit)| limit.cost.is_some() && cost.is_none());
        if let Some((account, limit)) = unknown {
            let limit = PerDay { tokens: None, ..*limit };
            return Ok(Err(account.refusal(&date(self.today()), &limit, Amount::default(), tokens, None)));
        }
        let mut has_settled = false;
        let day = loop {
            let day = self.today();
            if self.reserve(day, &accounts, amount) {
                break day;
            }
            let _taking = self.taking.lock().await;
            let lacking = self.lacking(day, &accounts, amount);
            if lacking.is_empty() {
                continue;
            }
            let (index, used) = match self.take(day, &lacking).await? {
                Ok(taken) => {
                    self.add(day, &lacking, &taken);
                    continue;
                }
                Err(full) => full,
            };
            // What boards have left that are gone may be enough.
            if !std::mem::replace(&mut has_settled, true) && self.settle_others(day).await? {
                continue;
            }
            let (account, limit, _) = &lacking[index];
            // What is left of this board's own block would be used for the call.
            let block = self.today.lock().of(day).and_then(|it| it.blocks.get(account).copied()).unwrap_or_default();
            let used = used.minus(block.left()).plus(block.owed());
            return Ok(Err(account.refusal(&date(day), limit, used, tokens, cost)));
        };
        let hold = DayHold { limiter: Arc::clone(self), day, accounts, amount };
        match self.note_use(day, turn.id.run).await {
            Ok(()) => Ok(Ok(Some(hold))),
            Err(error) => {
                hold.settle(None);
                Err(error)
            }
        }
    }

    fn accounts(&self, turn: &ReadyTurn, of_agent: PerDay) -> Accounts {
        let mut accounts = Accounts::new();
        let mut add = |limit: PerDay, account: &dyn Fn() -> DayAccount| {
            if limit != PerDay::default() {
                accounts.push((account(), limit));
            }
        };
        add(self.limits.board, &|| DayAccount::Board);
        add(of_agent, &|| DayAccount::Agent(turn.agent.host().into()));
        if let (Some(limit_of), Some(from)) = (&self.limits.requesters, &turn.submission.task.from_agent) {
            add(limit_of(from), &|| DayAccount::From(from.clone()));
        }
        accounts
    }

    /// The day on which a call counts.
    fn today(&self) -> u32 {
        let day = self.limits.day_of(self.env.now().wall);
        self.today.lock().turn_to(day);
        day
    }

    /// Whether the blocks of the day had room for it: it is set aside then.
    fn reserve(&self, day: u32, accounts: &Accounts, amount: Amount) -> bool {
        let mut today = self.today.lock();
        if today.now.day != day {
            return false;
        }
        let blocks = &mut today.now.blocks;
        let fits = |(account, limit): &(DayAccount, PerDay)| {
            blocks.get(account).copied().unwrap_or_default().lacks(limit, amount).is_none()
        };
        let fit = accounts.iter().all(fits);
        if fit {
            for (account, _) in accounts {
                blocks.entry(account.clone()).or_default().reserve(amount);
            }
        }
        fit
    }

    /// What the blocks of the day need more; nothing if the day is over.
    fn lacking(&self, day: u32, accounts: &Accounts, amount: Amount) -> Vec<(DayAccount, PerDay, Amount)> {
        let today = self.today.lock();
        if today.now.day != day {
            return Vec::new();
        }
        let lacking = |(account, limit): &(DayAccount, PerDay)| {
            let block = today.now.blocks.get(account).copied().unwrap_or_default();
            Some((account.clone(), *limit, block.lacks(limit, amount)?))
        };
        accounts.iter().filter_map(lacking).collect()
    }

    fn add(&self, day: u32, lacking: &[(DayAccount, PerDay, Amount)], taken: &[Amount]) {
        if let Some(day) = self.today.lock().of(day) {
            for ((account, _, _), taken) in lacking.iter().zip(taken) {
                day.blocks.entry(account.clone()).or_default().add(*taken);
            }
        }
    }

    /// Takes more of the ledger for all of these accounts, or of none; the inner error is the index of the one that has no room, and what is
    /// used of it.
    async fn take(
        &self,
        day: u32,
        lacking: &[(DayAccount, PerDay, Amount)],
    ) -> Result<Result<Vec<Amount>, (usize, Amount)>, StorageError> {
        self.change(day, |ledger| {
            let take = |(index, (account, limit, needed)): (usize, &(DayAccount, PerDay, Amount))| {
                ledger.take(account, &self.board, limit, *needed).map_err(|used| (index, used))
            };
            lacking.iter().enumerate().map(take).collect()
        })
        .await
    }

    /// Changes the ledger of a day, unless the change is refused: it is tried again if another board was faster.
    async fn change<T, E>(
        &self,
        day: u32,
        mut change: impl FnMut(&mut DayLedger) -> Result<T, E>,
    ) -> Result<Result<T, E>, StorageError> {
        let key = Key::new([LEDGERS, &date(day)]);
        loop {
            let (mut ledger, expected) = match self.journal.storage().get(&key).await? {
                None => (DayLedger::default(), Expected::Absent),
                Some(entry) => (decoded(&key, &entry.value)?, Expected::Revision(entry.revision)),
            };
            if let Some(day) = self.today.lock().of(day) {
                ledger.keep(&self.board, &day.blocks);
            }
            let changed = match change(&mut ledger) {
                Ok(changed) => changed,
                Err(refused) => return Ok(Err(refused)),
            };
            let value = codec::encode_shared(&ledger);
            let put = Put {
                expected,
                ttl_secs: Some(KEPT_SECS),
                durability: self.durability,
                ..Put::new(key.clone(), value)
            };
            match self.journal.storage().put_if_revision(put).await {
                Ok(_) => return Ok(Ok(changed)),
                Err(StorageError::WrongRevision { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Notes that a run uses the blocks of this board, once a day: they are settled by its journal if this board is killed.
    async fn note_use(&self, day: u32, run: RunId) -> Result<(), StorageError> {
        if self.today.lock().of(day).is_some_and(|day| day.runs.contains(&run)) {
            return Ok(());
        }
        let (key, value) = (uses(day, &self.board).child(&run.to_string()), Arc::from([].as_slice()));
        let durability = self.durability.min(Durability::Buffered);
        let put = Put { ttl_secs: Some(KEPT_SECS), durability, ..Put::new(key, value) };
        self.journal.storage().put_if_revision(put).await?;
        if let Some(day) = self.today.lock().of(day) {
            day.runs.insert(run);
        }
        Ok(())
    }

    /// Settles the blocks of boards that are gone; `false` if there are none.
    async fn settle_others(&self, day: u32) -> Result<bool, StorageError> {
        let key = Key::new([LEDGERS, &date(day)]);
        let Some(entry) = self.journal.storage().get(&key).await? else { return Ok(false) };
        let mut has_settled = false;
        for board in decoded(&key, &entry.value)?.boards() {
            if board == self.board || self.journal.lease_of(&board).await?.is_some() {
                continue;
            }
            let Some(used) = self.used_by(day, &board).await? else { continue };
            let settle = |ledger: &mut DayLedger| {
                ledger.settle(&board, &used);
                Ok::<_, Infallible>(())
            };
            has_settled |= self.change(day, settle).await?.is_ok();
        }
        Ok(has_settled)
    }

    /// What a board that is gone has used of its blocks; `None` if that cannot be read any more, so they stay spent.
    async fn used_by(&self, day: u32, board: &str) -> Result<Option<BTreeMap<DayAccount, Amount>>, StorageError> {
        let mut sum: BTreeMap<DayAccount, Amount> = BTreeMap::new();
        for key in self.uses_of(day, board).await? {
            let Some(run) = key.each_segment().last().and_then(|run| run.parse::<RunId>().ok()) else {
                return Ok(None);
            };
            let (journal, rules) = (self.journal.clone(), self.rules.clone());
            let owner = board.to_owned();
            let used = async move {
                let history = journal.events(run).await?;
                let is_whole = matches!(history.first(), Some(RunEvent::Submitted(_)));
                Ok::<_, StorageError>(is_whole.then(|| used_through(&history, &rules, (day, &owner))))
            };
            // One that cannot be read is as good as one that is not there.
            let Ok(Some(used)) = answer_of(used).await else { return Ok(None) };
            for (account, used) in used {
                let of_account = sum.entry(account).or_default();
                *of_account = of_account.plus(used);
            }
        }
        Ok(Some(sum))
    }

    /// The notes of the runs that have used a board's blocks.
    async fn uses_of(&self, day: u32, board: &str) -> Result<Vec<Key>, StorageError> {
        let (prefix, mut keys) = (uses(day, board).children(), Vec::new());
        loop {
            let page = self.journal.storage().scan(&prefix, keys.last(), PAGE).await?;
            let is_last = page.len() < PAGE;
            keys.extend(page.into_iter().map(|(key, _)| key));
            if is_last {
                return Ok(keys);
            }
        }
    }

    async fn forget_uses(&self, day: u32, board: &str) -> Result<(), StorageError> {
        for key in self.uses_of(day, board).await? {
            self.journal.delete(key).await?;
        }
        Ok(())
    }

    /// Settles the blocks of this board, which ends.
    ///
    /// # Errors
    /// What the store reports: the blocks stay spent.
    pub(crate) async fn close(&self) -> Result<(), StorageError> {
        let Day { day, blocks, .. } = std::mem::take(&mut *self.today.lock()).now;
        if blocks.is_empty() {
            return Ok(());
        }
        let used: BTreeMap<DayAccount, Amount> =
            blocks.into_iter().map(|(account, block)| (account, block.counted())).collect();
        let settle = |ledger: &mut DayLedger| {
            ledger.settle(&self.board, &used);
            Ok::<_, Infallible>(())
        };
        let _ = self.change(day, settle).await?;
        self.forget_uses(day, &self.board).await
    }
}

fn uses(day: u32, board: &str) -> Key {
    Key::new([USES, &date(day), board])
}

/// `2026-01-31`.
fn date(day: u32) -> String {
    Timestamp::from_millis(u64::from(day) * DAY_MILLIS).to_string().chars().take(10).collect()
}

fn decoded(key: &Key, value: &[u8]) -> Result<DayLedger, StorageError> {
    codec::decode(value).map_err(|error| StorageError::Corrupt { key: key.clone(), detail: error.to_string() })
}
