//! `callboard schedule`: tasks that `callboard serve` starts at times, or with the deliveries of webhooks.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use callboard::messages::visible;

use crate::limits::{LimitChoice, limit_choice};
use crate::page::{Failure, Page, lines_of, table, time_of as time};
use crate::run_names::short;
use crate::stores::Common;
use crate::values::{self, time_span, words};

use super::boards::{answer_of_service, ask_service, encoded, of_service, run_of};
use super::sending::{check_agent, check_workflow};

#[derive(Debug, Subcommand)]
pub(crate) enum Schedule {
    /// List the schedules
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Add a schedule, whose runs are yours
    Add(Box<Add>),
    /// Show a schedule with its task
    Show(Named),
    /// Have a schedule start no runs until it is resumed
    Pause(Named),
    /// Have a schedule continue with the times from now on
    Resume(Named),
    /// Start a run of a schedule now
    Run(Named),
    /// Delete a schedule; its runs continue
    #[command(visible_alias = "remove")]
    Delete(Named),
}

#[derive(Debug, Args)]
pub(crate) struct Named {
    /// Its name
    name: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct Add {
    /// Its name
    name: String,
    /// What is to be done, as text; @FILE reads it from a file, @- from standard input, and @@ at the beginning is an @
    #[arg(value_parser = words)]
    task: String,
    #[command(flatten)]
    when: When,
    /// The time zone of --cron, or of a time without an offset, such as Europe/Berlin; by default UTC
    #[arg(long, value_name = "ZONE", conflicts_with_all = ["every", "webhook"])]
    time_zone: Option<String>,
    #[command(flatten)]
    target: Target,
    /// What to work on, as JSON, in place of the task's text; @FILE reads it from a file, @- from standard input
    #[arg(long, value_name = "JSON", value_parser = values::json, allow_negative_numbers = true)]
    input: Option<Value>,
    /// The limits of each run: simple, medium, complex, or JSON such as '{"tokens": 50000}'; @FILE reads them from a file
    #[arg(long, value_name = "CLASS|JSON", value_parser = limit_choice)]
    limits: Option<LimitChoice>,
    /// The file with the secret that the sender of the webhook signs with, or @- for standard input; by default a new one, which is printed once
    #[arg(long, value_name = "@FILE", value_parser = values::secret, requires = "webhook")]
    secret: Option<String>,
    /// What happens at a time while the last run has not ended
    #[arg(long, value_enum, default_value = "skip")]
    overlap: Overlap,
    /// What happens to times that were missed, as while no server ran
    #[arg(long, value_enum, default_value = "run-once")]
    missed: Missed,
    /// How many missed times --missed run-all runs; by default 10
    #[arg(long, value_name = "N")]
    max_missed: Option<u32>,
    #[command(flatten)]
    common: Common,
}

/// When it fires: one of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct When {
    /// A line of cron, such as '0 3 * * *'
    #[arg(long, value_name = "LINE")]
    cron: Option<String>,
    /// A time, such as 2026-12-01T09:00:00+01:00, or 2026-12-01T09:00 in the time zone
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// An interval: 30s, 90m, 12h or 7d
    #[arg(long, value_name = "TIME", value_parser = interval)]
    every: Option<Duration>,
    /// Each delivery of another service that is signed so
    #[arg(long, value_enum, value_name = "SIGNATURE")]
    webhook: Option<Signature>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Signature {
    /// Standard Webhooks: webhook-id, webhook-timestamp and webhook-signature
    Standard,
    /// GitHub: X-GitHub-Delivery and X-Hub-Signature-256
    Github,
}

/// Who does it: one of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Target {
    /// The agent: its name, a role or a capability
    #[arg(long, value_name = "AGENT")]
    to: Option<String>,
    /// The saved workflow, in its latest version
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Overlap {
    /// Skip the time
    Skip,
    /// Wait until the run has ended
    Queue,
    /// Cancel the run, and start the next one
    Replace,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Missed {
    /// Run the newest
    #[value(alias = "run_once")]
    RunOnce,
    /// Run the newest ones one after another, with --overlap queue
    #[value(alias = "run_all")]
    RunAll,
    /// Run none
    Skip,
}

/// The time between two runs, as the server takes it.
fn interval(text: &str) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_secs(366 * 86_400);
    let time = time_span(text)?;
    let fits = (Duration::from_secs(1)..=LONGEST).contains(&time);
    fits.then_some(time).ok_or_else(|| "write a time from 1s to 366d".to_owned())
}

impl Schedule {
    pub(crate) fn common(&self) -> &Common {
        match self {
            Self::List { common } => common,
            Self::Add(add) => &add.common,
            Self::Show(named) | Self::Pause(named) | Self::Resume(named) | Self::Run(named) | Self::Delete(named) => {
                &named.common
            }
        }
    }

    pub(crate) fn changes_them(&self) -> bool {
        match self {
            Self::List { .. } | Self::Show(_) => false,
            Self::Add(_) | Self::Pause(_) | Self::Resume(_) | Self::Run(_) | Self::Delete(_) => true,
        }
    }
}

impl Add {
    /// The schedule as the server takes it.
    fn definition(&self) -> Value {
        let Self { name, task, when: When { cron, at, every, webhook }, time_zone, target, input, limits, .. } = self;
        let Target { to, workflow } = target;
        let mut request = Map::from_iter([("body".to_owned(), json!(task))]);
        let mut definition = Map::from_iter([("name".to_owned(), json!(name))]);
        let set = |map: &mut Map<String, Value>, key: &str, value: Option<Value>| {
            map.extend(value.map(|value| (key.to_owned(), value)));
        };
        set(&mut request, "to", to.as_ref().map(|to| json!(to)));
        set(&mut request, "workflow", workflow.as_ref().map(|workflow| json!(workflow)));
        set(&mut request, "input", input.clone());
        set(&mut request, "limits", limits.as_ref().map(|limits| json!(limits.of_new_run())));
        set(&mut definition, "cron", cron.as_ref().map(|cron| json!(cron)));
        set(&mut definition, "time_zone", time_zone.as_ref().map(|zone| json!(zone)));
        set(&mut definition, "at", at.as_ref().map(|at| json!(at)));
        set(&mut definition, "every_ms", every.map(|every| json!(every.as_secs().saturating_mul(1_000))));
        let signature = webhook.map(|signature| match signature {
            Signature::Standard => json!("standard"),
            Signature::Github => json!("github"),
        });
        set(&mut definition, "webhook", signature);
        set(&mut definition, "secret", self.secret.as_ref().map(|secret| json!(secret.trim_end())));
        set(&mut definition, "task", Some(request.into()));
        let overlap = match self.overlap {
            Overlap::Skip => "skip",
            Overlap::Queue => "queue",
            Overlap::Replace => "replace",
        };
        let missed = match self.missed {
            Missed::RunOnce => "run_once",
            Missed::RunAll => "run_all",
            Missed::Skip => "skip",
        };
        set(&mut definition, "overlap", Some(json!(overlap)));
        set(&mut definition, "missed", Some(json!(missed)));
        set(&mut definition, "max_missed", self.max_missed.map(|most| json!(most)));
        definition.into()
    }
}

pub(super) async fn main(command: &Schedule) -> Result<Page, Failure> {
    let stores = command.common().choice.stores()?;
    let ask = async |method: &str, path: &str, body: Option<&Value>| ask_service(&stores, (method, path), body).await;
    let of = |name: &str, action: &str| format!("/v1/schedules/{}{action}", encoded(name));
    match command {
        Schedule::List { .. } => {
            let answer = ask("GET", "/v1/schedules", None).await?;
            Ok(Page::new(listed(&answer["schedules"]), answer))
        }
        Schedule::Add(add) => {
            if let Some(agent) = &add.target.to {
                check_agent(&stores, agent).await?;
            }
            if let Some(workflow) = &add.target.workflow {
                check_workflow(&stores, workflow).await?;
            }
            let answer = of_service(&stores).request("POST", "/v1/schedules", Some(&add.definition())).await;
            let is_taken = matches!(answer, Ok((409, _)));
            let added = answer_of_service(&stores, answer).await;
            // As all names that are taken.
            let schedule =
                added.map_err(|error| if is_taken { Failure::usage(error.text().to_owned()) } else { error })?;
            let name = visible(&add.name);
            let text = match schedule["secret"].as_str() {
                Some(secret) => format!("{name}  receives POST {}\nsecret {}\n", path_of(&add.name), visible(secret)),
                None => format!("{name}  fires next at {}\n", time(&schedule["next_at"])),
            };
            let done = Some(format!("the schedule {} is added", visible(&add.name)));
            Ok(Page { done, ..Page::new(text, schedule) })
        }
        Schedule::Show(Named { name, .. }) => {
            let schedule = ask("GET", &of(name, ""), None).await?;
            Ok(Page::new(shown(&schedule), schedule))
        }
        Schedule::Pause(Named { name, .. }) => {
            let schedule = ask("POST", &of(name, "/pause"), None).await?;
            Ok(Page::new(format!("{}  is paused\n", visible(name)), schedule))
        }
        Schedule::Resume(Named { name, .. }) => {
            let schedule = ask("POST", &of(name, "/resume"), None).await?;
            let text = match schedule["next_at"].as_str() {
                Some(_) => format!("{}  fires next at {}\n", visible(name), time(&schedule["next_at"])),
                None => format!("{}  receives POST {}\n", visible(name), path_of(name)),
            };
            Ok(Page::new(text, schedule))
        }
        Schedule::Run(Named { name, .. }) => {
            let delegation = ask("POST", &of(name, "/run"), None).await?;
            let id = short(run_of(&delegation)?);
            let done = Some(format!("the task is journaled as {id}"));
            Ok(Page { done, ..Page::of_data(&id, &format!("of the schedule {}", visible(name)), delegation) })
        }
        Schedule::Delete(Named { name, .. }) => {
            ask("DELETE", &of(name, ""), None).await?;
            Ok(Page::new(format!("the schedule {} is deleted\n", visible(name)), json!({ "deleted": name })))
        }
    }
}

/// The path that a webhook is delivered to.
fn path_of(webhook: &str) -> String {
    format!("/v1/webhooks/{}", encoded(webhook))
}

fn listed(schedules: &Value) -> String {
    let mut drawn = table(["schedule", "state", "fires", "next", "last"], &[]);
    let schedules = schedules.as_array().map(Vec::as_slice).unwrap_or_default();
    for schedule in schedules {
        drawn.add_row([
            text(&schedule["name"]),
            state(schedule),
            when(schedule),
            time(&schedule["next_at"]),
            last(schedule),
        ]);
    }
    if schedules.is_empty() { "there are no schedules\n".to_owned() } else { lines_of(&drawn) }
}

fn shown(schedule: &Value) -> String {
    let missed = match schedule["max_missed"].as_u64() {
        Some(most) => format!("run-all, at most {most}"),
        // As the option has it.
        None => text(&schedule["missed"]).replace('_', "-"),
    };
    let counts =
        format!("{} started, {} skipped, {} waiting", schedule["started"], schedule["skipped"], schedule["waiting"]);
    let lines = [
        ("name", text(&schedule["name"])),
        ("state", state(schedule)),
        ("fires", when(schedule)),
        ("next", time(&schedule["next_at"])),
        ("last", last(schedule)),
        ("runs", counts),
        ("overlap", text(&schedule["overlap"])),
        ("missed", missed),
        ("owner", text(&schedule["owner"])),
        ("task", visible(&schedule["task"].to_string())),
    ];
    let lines = lines.iter().filter(|(_, value)| !value.is_empty());
    lines.map(|(name, value)| format!("{name:<8} {value}").trim_end().to_owned() + "\n").collect()
}

fn text(value: &Value) -> String {
    visible(value.as_str().unwrap_or_default())
}

fn state(schedule: &Value) -> String {
    match schedule["reason"].as_str() {
        Some(reason) => format!("{}: {}", text(&schedule["state"]), visible(reason)),
        None => text(&schedule["state"]),
    }
}

fn when(schedule: &Value) -> String {
    if schedule["webhook"].is_string() {
        return format!("webhook {}", text(&schedule["webhook"]));
    }
    match (schedule["cron"].as_str(), schedule["every_ms"].as_u64()) {
        (Some(line), _) => format!("{} {}", visible(line), text(&schedule["time_zone"])),
        (None, Some(ms)) => {
            let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
            let unit = units.into_iter().find(|(unit, _)| ms.is_multiple_of(*unit));
            unit.map_or_else(|| format!("every {ms} ms"), |(unit, name)| format!("every {}{name}", ms / unit))
        }
        (None, None) => time(&schedule["at"]),
    }
}

fn last(schedule: &Value) -> String {
    let last = &schedule["last"];
    match (last["refused"].as_str(), run_of(last)) {
        (Some(why), _) => format!("{} refused: {}", time(&last["planned_at"]), visible(why)),
        (None, Ok(run)) => format!("{} {}", time(&last["planned_at"]), short(run)),
        (None, Err(_)) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_listed_and_shown() {
        let run = "019a0000-0000-7000-8000-123456789abc";
        let schedule = |name: &str, fires: Value, last: Value| {
            let mut schedule = json!({
                "name": name, "state": "active", "reason": null, "overlap": "queue", "missed": "run_all", "max_missed": 3,
                "owner": "owner", "next_at": "2026-03-29T01:00:00.000Z", "waiting": 1, "started": 2, "skipped": 0, "last": last,
                "task": { "to": "echo", "body": "x" },
            });
            schedule
                .as_object_mut()
                .into_iter()
                .for_each(|it| it.extend(fires.as_object().cloned().unwrap_or_default()));
            schedule
        };
        let planned = "2026-03-28T01:30:00.000Z";
        let cron = json!({ "cron": "30 2 * * *", "time_zone": "Europe/Berlin" });
        let cron = schedule("nightly", cron, json!({ "planned_at": planned, "request_id": run, "refused": null }));
        let mut every =
            schedule("often", json!({ "every_ms": 90_000 }), json!({ "planned_at": planned, "refused": "no agent" }));
        every["state"] = "stopped".into();
        every["reason"] = "the token ci was revoked".into();
        every["next_at"] = Value::Null;
        let at = schedule("once", json!({ "at": "2026-03-29T01:00:00.000Z" }), Value::Null);
        insta::assert_snapshot!(listed(&json!([cron, every, at])), @"
        schedule  state                              fires                     next                  last
        nightly   active                             30 2 * * * Europe/Berlin  2026-03-29 01:00:00Z  2026-03-28 01:30:00Z req-123456789abc
        often     stopped: the token ci was revoked  every 90s                                       2026-03-28 01:30:00Z refused: no agent
        once      active                             2026-03-29 01:00:00Z      2026-03-29 01:00:00Z
        ");
        insta::assert_snapshot!(shown(&cron), @r#"
        name     nightly
        state    active
        fires    30 2 * * * Europe/Berlin
        next     2026-03-29 01:00:00Z
        last     2026-03-28 01:30:00Z req-123456789abc
        runs     2 started, 0 skipped, 1 waiting
        overlap  queue
        missed   run-all, at most 3
        owner    owner
        task     {"to":"echo","body":"x"}
        "#);
    }
}
