//! Ten `callboard run` work at once on one store, and the process that has its files open is killed again and again, also while the
//! next one opens them: every run whose process is left ends as it should, and the others continue where they were.
//!
//! The oracle is outside: the kernel says who holds the store, each turn leaves a line in a file of its own, and every process
//! prints what it was told.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

use crate::campaigns::{Campaign, cases};
use crate::support::agents::{add_shell_agent, agents};
use crate::support::{Killed, Printed, callboard, command, short};

/// How many runs work at the same time, and how many of their processes are killed.
const RUNS: usize = 10;
const KILLS: u64 = 3;

/// Hands over, or ends with the task, after a line in the file of the turns.
const CHAIN: [(&str, &str); 3] =
    [("first", r#""goto":"second""#), ("second", r#""goto":"third""#), ("third", r#""output":"'"$task"' is done""#)];

fn folder() -> TempDir {
    let folder = agents(&[]);
    for (name, finish) in CHAIN {
        let body = format!(
            r#"while turn; do
    task=${{turn#*'"task":"'}} task=${{task%%'"'*}}
    echo "$task {name} $id" >> turns
    echo "takes $id" >&2
    finish '{finish}'
done
"#
        );
        add_shell_agent(&folder, name, &body);
    }
    folder
}

fn run(folder: &TempDir, arguments: &[&str]) -> std::process::Command {
    command(folder, &[&["run"], arguments, &["--to", "first", "--enable-handoffs", "--store", "data"]].concat())
}

/// The process that has locked a folder, if any has.
fn holder_of(store: &Path) -> Option<u32> {
    let inode = fs::metadata(store).ok()?.ino().to_string();
    let locks = fs::read_to_string("/proc/locks").unwrap();
    let lines = locks.lines().filter(|line| line.contains(" FLOCK ") && !line.contains(" -> "));
    lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find_map(|words| (words[5].rsplit(':').next() == Some(&inode)).then(|| words[4].parse().unwrap()))
}

/// A process, and what it has printed so far.
struct Running {
    task: String,
    process: Killed,
    id: Option<String>,
    lines: Vec<String>,
    is_killed: bool,
}

impl Running {
    /// Waits for the end, which its output has had.
    fn ended(mut self) -> (Self, Printed) {
        let mut out = String::new();
        self.process.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let code = self.process.0.wait().unwrap().code();
        let error = self.lines.join("\n");
        (self, Printed { code, out, error })
    }
}

/// Begins ten runs, kills the process that holds the store after random numbers of printed lines, and returns what all have
/// printed.
fn round(folder: &TempDir, campaign: &Campaign, number: u64, kills: u64) -> (Vec<(Running, Printed)>, u64) {
    let (lines, printed) = mpsc::channel();
    let mut all: Vec<Running> = (0..RUNS)
        .map(|at| {
            let task = format!("task {number} of {at}");
            let mut process =
                run(folder, &[&task]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map(Killed).unwrap();
            let (error, lines) = (process.0.stderr.take().unwrap(), lines.clone());
            thread::spawn(move || {
                BufReader::new(error).lines().map_while(Result::ok).for_each(|line| lines.send((at, line)).unwrap());
            });
            Running { task, process, id: None, lines: Vec::new(), is_killed: false }
        })
        .collect();
    drop(lines);
    let (mut killed, mut left) = (0, campaign.below(20));
    for (at, line) in printed {
        if let Some(id) = line.strip_prefix("run ") {
            all[at].id = Some(id.to_owned());
        }
        all[at].lines.push(line);
        if left > 0 || killed == kills {
            left = left.saturating_sub(1);
            continue;
        }
        // While nobody has the store, the next line is waited for.
        let holder = holder_of(&folder.path().join("data"));
        let found = all.iter_mut().find(|running| !running.is_killed && Some(running.process.0.id()) == holder);
        if let Some(running) = found {
            running.process.0.kill().unwrap();
            running.is_killed = true;
            killed += 1;
            left = campaign.below(20);
        }
    }
    (all.into_iter().map(Running::ended).collect(), killed)
}

#[test]
fn runs_continue_whichever_process_with_the_store_is_killed() {
    let mut campaign = Campaign::begin("holders");
    let kills = cases(4);
    let folder = folder();
    let (mut killed, mut rounds, mut known, mut resumed) = (0, 0, BTreeMap::new(), 0);
    while killed < kills {
        let (all, now) = round(&folder, &campaign, rounds, KILLS.min(kills - killed));
        (killed, rounds) = (killed + now, rounds + 1);
        for (running, printed) in all {
            let Running { task, id, is_killed, .. } = running;
            let expected = format!("{task} is done\n");
            let ended = match (&id, is_killed) {
                (_, false) => printed,
                // What it had printed before it was killed is not asked for again.
                (Some(_), true) if printed.out == expected => Printed { code: Some(0), ..printed },
                (Some(id), true) => {
                    resumed += 1;
                    let resume = ["run", "--resume", id, "--store", "data"];
                    callboard(&folder, &resume)
                }
                (None, true) => continue,
            };
            let is_right = (ended.code, &*ended.out) == (Some(0), &*expected);
            let wrong = format!("{task} {id:?}, killed: {is_killed}: {:?} {:?} {}", ended.code, ended.out, ended.error);
            campaign.count(if is_right { Ok(()) } else { Err(wrong) });
            known.extend(id.map(|id| (task, id)));
        }
    }
    let listed = callboard(&folder, &["runs", "list", "--json", "--store", "data"]);
    let rows = listed.parsed::<Vec<Value>>();
    let finished: BTreeSet<String> =
        rows.iter().filter(|row| row["status"] == "finished").map(|row| short(row["run"].as_str().unwrap())).collect();
    for (task, id) in &known {
        campaign.count(finished.contains(id).then_some(()).ok_or(format!("{task} ({id}) is not listed as finished")));
    }
    let turns = fs::read_to_string(folder.path().join("turns")).unwrap();
    let distinct: BTreeSet<&str> = turns.lines().collect();
    for task in known.keys() {
        let of_task = distinct.iter().filter(|line| line.starts_with(&format!("{task} "))).count();
        campaign.count((of_task == CHAIN.len()).then_some(()).ok_or(format!("{task} had {of_task} turns")));
    }
    campaign.end(format_args!(
        "{killed} processes that held the store killed in {rounds} rounds of {RUNS} runs; {} runs acknowledged, {resumed} of them \
         resumed by a process of their own; {} turns repeated",
        known.len(),
        turns.lines().count() - distinct.len()
    ));
}
