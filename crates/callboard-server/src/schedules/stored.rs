//! Schedules, as they are defined, stored and shown.
//!
//! Each is a value of the board's store, as JSON with a version. Agents do not reach it: the shared context has keys of its own.

use std::sync::Arc;

use callboard::Callboard;
use callboard::messages::{RunId, Timestamp, visible};
use callboard::storage::{Delete, Entry, Expected, Key, Put, Revision, Storage, StorageError, Watch};
use callboard_signatures::Scheme;
use callboard_text::check_name;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::rules::{Missed, Overlap, Progress};
use super::when::{Asked, When};
use crate::json::time;
use crate::problem::{Problem, ProblemCode};
use crate::tokens::TokenRef;

/// The first segment of the keys.
const SCHEDULE: &str = "schedule";
/// The version of the stored form.
const VERSION: u32 = 1;
/// The longest name, in characters.
const MAX_NAME: usize = 128;
/// The most bytes of a task, as JSON.
const MAX_TASK: usize = 64 * 1024;
/// The most schedules of a store.
const MAX_SCHEDULES: usize = 1_000;
/// The most missed times that are run, and how many are by default.
const MAX_MISSED: usize = 100;
const MISSED: usize = 10;
const PAGE: usize = 256;

/// A schedule with its owner and how far it has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Schedule {
    version: u32,
    /// Another for each schedule, also of one name.
    pub(crate) id: Uuid,
    pub(crate) name: String,
    /// Whose grant its runs have.
    pub(crate) owner: TokenRef,
    created_at: Timestamp,
    pub(crate) when: When,
    /// The body of a request for a delegation.
    pub(crate) task: Value,
    pub(crate) overlap: Overlap,
    pub(crate) missed: Missed,
    pub(crate) status: Status,
    pub(crate) progress: Progress,
    pub(crate) last: Option<Firing>,
    /// The last run that was started.
    pub(crate) last_run: Option<RunId>,
}

/// Whether a schedule fires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Active,
    Paused,
    /// It may not fire any more.
    Stopped {
        reason: String,
    },
    /// It has no time left.
    Ended,
}

/// What became of a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Firing {
    /// The time that the run was planned for.
    pub(crate) planned_at: Timestamp,
    pub(crate) at: Timestamp,
    pub(crate) outcome: Fired,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fired {
    Started(RunId),
    /// The board refused the task.
    Refused(String),
}

/// A schedule, as a request defines it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Definition {
    pub(crate) name: String,
    cron: Option<String>,
    time_zone: Option<String>,
    at: Option<String>,
    every_ms: Option<u64>,
    webhook: Option<Scheme>,
    /// That which the sender of a webhook signs with; a new one by default.
    pub(crate) secret: Option<String>,
    pub(crate) task: Value,
    #[serde(default)]
    overlap: Overlap,
    #[serde(default)]
    missed: AskedMissed,
    max_missed: Option<usize>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AskedMissed {
    #[default]
    RunOnce,
    RunAll,
    Skip,
}

impl Definition {
    pub(crate) fn is_webhook(&self) -> bool {
        self.webhook.is_some()
    }

    /// The schedule that it defines, for an owner.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub(crate) fn schedule(self, owner: TokenRef, id: Uuid, now: Timestamp) -> Result<Schedule, String> {
        let Self { name, cron, time_zone, at, every_ms, webhook, secret, task, overlap, missed, max_missed } = self;
        check_name(SCHEDULE, &name, MAX_NAME).map_err(|error| error.to_string())?;
        if task.to_string().len() > MAX_TASK {
            return Err(format!("the task has more than {MAX_TASK} bytes"));
        }
        let missed = match (missed, max_missed) {
            (AskedMissed::RunOnce, None) => Missed::RunOnce,
            (AskedMissed::Skip, None) => Missed::Skip,
            (AskedMissed::RunAll, most) => Missed::RunAll { most: most.unwrap_or(MISSED) },
            (_, Some(_)) => return Err("`max_missed` is for `missed` run_all".to_owned()),
        };
        match (missed, overlap) {
            (Missed::RunAll { most }, _) if !(1..=MAX_MISSED).contains(&most) => {
                return Err(format!("`max_missed` is a number from 1 to {MAX_MISSED}"));
            }
            (Missed::RunAll { .. }, Overlap::Skip | Overlap::Replace) => {
                return Err(
                    "`missed` run_all needs `overlap` queue: only one of several would run to its end".to_owned()
                );
            }
            _ => {}
        }
        match (webhook, &secret) {
            (None, None) => {}
            (None, Some(_)) => return Err("`secret` is for a `webhook`".to_owned()),
            (Some(_), _) if (missed, overlap) != (Missed::RunOnce, Overlap::Skip) => {
                return Err("a webhook has no `overlap` and no `missed`: each delivery is a run".to_owned());
            }
            (Some(_), _) if task.get("input").is_some() => {
                return Err("the task of a webhook has no `input`: that is the body of a delivery".to_owned());
            }
            (Some(scheme), Some(secret)) => scheme.check_secret(secret)?,
            (Some(_), None) => {}
        }
        let when = When::of(Asked { cron, time_zone, at, every_ms, webhook }, now)?;
        Ok(Schedule {
            version: VERSION,
            id,
            name,
            owner,
            created_at: now,
            when,
            task,
            overlap,
            missed,
            status: Status::Active,
            progress: Progress::after(now),
            last: None,
            last_run: None,
        })
    }
}

impl Schedule {
    /// The run of a time. It follows from the schedule and the time, so that they never start two.
    pub(crate) fn run_at(&self, planned_at: Timestamp) -> RunId {
        self.run_of("time", &planned_at.as_millis().to_be_bytes())
    }

    /// The run that a person starts at a time.
    pub(crate) fn run_by_hand(&self, at: Timestamp) -> RunId {
        self.run_of("by hand", &at.as_millis().to_be_bytes())
    }

    /// The run of a delivery.
    pub(crate) fn run_of_delivery(&self, id: &str) -> RunId {
        self.run_of("delivery", id.as_bytes())
    }

    fn run_of(&self, kind: &str, key: &[u8]) -> RunId {
        let hash = Sha256::new().chain_update(b"callboard schedule\0").chain_update(self.id).chain_update(kind);
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.chain_update(b"\0").chain_update(key).finalize()[..16]);
        RunId::of_hash(bytes)
    }

    /// Records that a run was started, or was refused.
    pub(crate) fn record(&mut self, firing: Firing) {
        match &firing.outcome {
            Fired::Started(run) => {
                self.last_run = Some(*run);
                self.progress.started += 1;
            }
            Fired::Refused(_) => {}
        }
        self.last = Some(firing);
    }

    /// The schedule as JSON (docs/http.md), without its task; `revoked` is why its owner's token allows nothing.
    pub(crate) fn brief(&self, revoked: Option<String>) -> Value {
        let (state, reason) = match (&self.status, revoked) {
            (Status::Active, None) => ("active", None),
            (Status::Active, Some(why)) => ("stopped", Some(why)),
            (Status::Paused, _) => ("paused", None),
            (Status::Stopped { reason }, _) => ("stopped", Some(reason.clone())),
            (Status::Ended, _) => ("ended", None),
        };
        let next = self.when.rule().ok().filter(|_| state == "active").and_then(|rule| rule.next(self.progress.seen));
        let (missed, most) = match self.missed {
            Missed::RunOnce => ("run_once", None),
            Missed::RunAll { most } => ("run_all", Some(most)),
            Missed::Skip => ("skip", None),
        };
        let mut shown = json!({ "name": self.name, "state": state, "reason": reason });
        match &self.when {
            When::Cron { line, time_zone } => {
                shown["cron"] = json!(line);
                shown["time_zone"] = json!(time_zone);
            }
            When::At(at) => shown["at"] = json!(time(*at)),
            When::Every { ms, from: _ } => shown["every_ms"] = json!(ms),
            When::Webhook(scheme) => shown["webhook"] = json!(scheme.name()),
        }
        if !matches!(self.when, When::Webhook(_)) {
            shown["overlap"] = json!(self.overlap);
            shown["missed"] = json!(missed);
            shown["max_missed"] = json!(most);
        }
        shown["owner"] = json!(self.owner.name);
        shown["created_at"] = json!(time(self.created_at));
        shown["next_at"] = json!(next.map(time));
        shown["waiting"] = json!(self.progress.waiting.len());
        shown["started"] = json!(self.progress.started);
        shown["skipped"] = json!(self.progress.skipped);
        shown["last"] = json!(self.last.as_ref().map(Firing::shown));
        shown
    }

    /// The same with the task.
    pub(crate) fn shown(&self, revoked: Option<String>) -> Value {
        let mut shown = self.brief(revoked);
        shown["task"] = self.task.clone();
        shown
    }
}

impl Firing {
    fn shown(&self) -> Value {
        let (run, refused) = match &self.outcome {
            Fired::Started(run) => (Some(run), None),
            Fired::Refused(why) => (None, Some(why)),
        };
        json!({ "planned_at": time(self.planned_at), "at": time(self.at), "request_id": run, "refused": refused })
    }
}

/// The schedules of a board's store.
pub(crate) struct Schedules(Arc<dyn Storage>);

/// A schedule that was read.
pub(crate) struct Read {
    pub(crate) schedule: Schedule,
    revision: Revision,
}

impl Schedules {
    pub(crate) fn of(board: &Callboard) -> Self {
        Self(Arc::clone(board.storage()))
    }

    /// Reads all, by name. What cannot be read is left out, and logged.
    pub(crate) async fn all(&self) -> Result<Vec<Read>, Problem> {
        let (prefix, mut after, mut all) = (Key::new([SCHEDULE]).children(), None, Vec::new());
        loop {
            let page = match self.0.scan(&prefix, after.as_ref(), PAGE).await {
                Ok(page) => page,
                Err(StorageError::Corrupt { key, detail }) => {
                    tracing::error!(%key, detail, "a schedule cannot be read");
                    after = Some(key);
                    continue;
                }
                Err(error) => return Err(Problem::of_store(&error)),
            };
            let is_last = page.len() < PAGE;
            after = page.last().map(|(key, _)| key.clone());
            for (key, entry) in &page {
                match read(entry) {
                    Ok(read) => all.push(read),
                    Err(error) => tracing::error!(%key, error, "a schedule cannot be read"),
                }
            }
            if is_last {
                return Ok(all);
            }
        }
    }

    pub(crate) async fn get(&self, name: &str) -> Result<Option<Read>, Problem> {
        match self.0.get(&key(name)).await.map_err(|error| Problem::of_store(&error))? {
            Some(entry) => read(&entry).map(Some).map_err(|error| Problem::internal(&error)),
            None => Ok(None),
        }
    }

    /// Stores a new one.
    pub(crate) async fn add(&self, schedule: &Schedule) -> Result<(), Problem> {
        if self.all().await?.len() >= MAX_SCHEDULES {
            let detail = format!("there are {MAX_SCHEDULES} schedules; delete one first");
            return Err(Problem::new(ProblemCode::Refused, detail));
        }
        if self.put(schedule, Expected::Absent).await? {
            return Ok(());
        }
        let detail =
            format!("there is a schedule {}; delete it first, or choose another name", visible(&schedule.name));
        Err(Problem::new(ProblemCode::Conflict, detail))
    }

    /// Stores another state of one; `false` if it has changed since it was read.
    pub(crate) async fn change(&self, read: &Read, schedule: &Schedule) -> Result<bool, Problem> {
        self.put(schedule, Expected::Revision(read.revision)).await
    }

    /// Deletes one; `false` if it has changed since it was read.
    pub(crate) async fn delete(&self, read: &Read) -> Result<bool, Problem> {
        let (key, durability) = (key(&read.schedule.name), self.0.default_durability());
        is_written(self.0.delete_if_revision(Delete::new(key, read.revision, durability)).await)
    }

    async fn put(&self, schedule: &Schedule, expected: Expected) -> Result<bool, Problem> {
        let value = serde_json::to_vec(schedule).map_err(|error| Problem::internal(&error))?;
        let durability = self.0.default_durability();
        let put = Put { expected, durability, ..Put::new(key(&schedule.name), value.into()) };
        is_written(self.0.put_if_revision(put).await)
    }

    /// Changes from now on, of this process and of others.
    pub(crate) fn watch(&self) -> Watch {
        self.0.watch(&Key::new([SCHEDULE]).children())
    }
}

fn key(name: &str) -> Key {
    Key::new([SCHEDULE, name])
}

fn read(entry: &Entry) -> Result<Read, String> {
    let value: Value = serde_json::from_slice(&entry.value).map_err(|error| error.to_string())?;
    if value["version"] != VERSION {
        return Err(format!("its version is {}; this program reads {VERSION}", value["version"]));
    }
    let schedule = serde_json::from_value(value).map_err(|error| error.to_string())?;
    Ok(Read { schedule, revision: entry.revision })
}

fn is_written<T>(written: Result<T, StorageError>) -> Result<bool, Problem> {
    match written {
        Ok(_) => Ok(true),
        Err(StorageError::WrongRevision { .. }) => Ok(false),
        Err(error) => Err(Problem::of_store(&error)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use crate::tokens::Caller;

    fn schedule(definition: Value) -> Schedule {
        let definition: Definition = serde_json::from_value(definition).unwrap();
        let at = Timestamp::from_millis(1_767_225_600_000);
        definition.schedule(Caller::owner().token(), Uuid::from_u128(7), at).unwrap()
    }

    fn run(number: u128) -> RunId {
        RunId(Uuid::from_u128(number))
    }

    /// A change of what is stored needs another version, and the reader of this one.
    #[test]
    fn the_bytes_of_schedules_are_golden() {
        let task = json!({ "to": "echo", "body": "x" });
        let mut cron =
            schedule(json!({ "name": "a", "cron": "0 3 * * *", "time_zone": "Europe/Berlin", "task": task }));
        let at = Timestamp::from_millis(1_767_225_660_000);
        cron.record(Firing { planned_at: at, at, outcome: Fired::Started(run(8)) });
        let every = json!({
            "name": "b", "every_ms": 60_000, "task": task, "missed": "run_all", "overlap": "queue", "max_missed": 3,
        });
        let mut every = schedule(every);
        every.progress.waiting.push_back(at);
        every.record(Firing { planned_at: at, at, outcome: Fired::Refused("no".to_owned()) });
        every.status = Status::Stopped { reason: "revoked".to_owned() };
        let at = schedule(json!({ "name": "c", "at": "2026-02-01T00:00:00Z", "task": task }));
        let webhook = schedule(json!({ "name": "d", "webhook": "github", "task": task }));
        let golden = include_str!("../../tests/server/golden/schedules-1.jsonl");
        let all = [cron, every, at, webhook];
        let bytes: String = all.iter().map(|it| serde_json::to_string(it).unwrap() + "\n").collect();
        assert_eq!(bytes, golden);
        for (line, schedule) in golden.lines().zip(all) {
            let entry = Entry { value: line.as_bytes().into(), revision: 1, expires_at: None };
            assert_eq!(read(&entry).unwrap().schedule, schedule);
        }
    }

    #[test]
    fn a_time_of_a_schedule_has_one_run_and_other_times_and_schedules_have_others() {
        let one = schedule(json!({ "name": "a", "every_ms": 1000, "task": {} }));
        let other = Schedule { id: Uuid::from_u128(8), ..one.clone() };
        let at = Timestamp::from_millis;
        assert_eq!(one.run_at(at(1)), Schedule { name: "b".to_owned(), ..one.clone() }.run_at(at(1)));
        let runs = [
            one.run_at(at(1)),
            one.run_at(at(2)),
            other.run_at(at(1)),
            one.run_by_hand(at(1)),
            one.run_of_delivery("1"),
        ];
        assert_eq!(runs.into_iter().collect::<std::collections::BTreeSet<_>>().len(), 5);
    }
}
