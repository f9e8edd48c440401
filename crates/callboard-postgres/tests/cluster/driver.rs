//! The driver: it starts the boards, submits runs to all of them, brings about the faults, and keeps what it is answered. It asks no
//! board what it has lost.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{Display, Write as _};
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use rustix::process::Signal;

use crate::agents::KINDS;
use crate::board::Life;
use crate::campaigns::Campaign;
use crate::faults::Fault;
use crate::process::{Event, Process, State};
use crate::record::Recorder;
use crate::support::Server;
use crate::support::proxy::Proxy;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// How many runs are open at the same time.
const IN_FLIGHT: usize = 16;

/// How often the driver looks what there is to do.
const TICK: Duration = Duration::from_millis(100);

/// At so many looks in a row without any progress, five minutes, the campaign fails.
const MOST_QUIET: u32 = 3_000;

/// For so many looks, five seconds, a zombie whose session was ended may write on.
const ZOMBIE_TICKS: u64 = 50;

const SHORT: Duration = Duration::from_secs(2);
const USUAL: Duration = Duration::from_secs(15);

struct Place {
    proxy: Proxy,
    process: Process,
    /// Processes before this one that are not noted as fenced yet.
    before: Vec<String>,
}

/// A run that was submitted.
#[derive(Debug)]
pub(crate) struct Submitted {
    pub(crate) kind: &'static str,
    to: &'static str,
    /// The process that was asked last to accept it or to wait for it.
    at: Option<String>,
    is_accepted: bool,
    /// How it ended, by everybody who said so.
    pub(crate) ends: BTreeSet<String>,
}

#[derive(Default)]
pub(crate) struct Counts {
    of: BTreeMap<String, u64>,
}

impl Counts {
    fn add(&mut self, what: &str) {
        *self.of.entry(what.to_owned()).or_default() += 1;
    }
}

impl Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all: Vec<String> = self.of.iter().map(|(what, count)| format!("{count} {what}")).collect();
        f.write_str(&all.join(", "))
    }
}

/// What is known when all runs have ended and all boards are shut down.
pub(crate) struct Driven {
    pub(crate) runs: BTreeMap<String, Submitted>,
    pub(crate) counts: Counts,
    /// What must not have happened.
    pub(crate) wrong: Vec<String>,
}

pub(crate) struct Driver<'c> {
    campaign: &'c Campaign,
    server: &'static Server,
    schema: String,
    folder: PathBuf,
    runtime: tokio::runtime::Runtime,
    recorder: Recorder,
    sender: SyncSender<Event>,
    events: Receiver<Event>,
    places: Vec<Place>,
    runs: BTreeMap<String, Submitted>,
    faults: VecDeque<Fault>,
    /// How many runs have yet to be accepted or to end before the next fault.
    until_fault: usize,
    has_long_leases: bool,
    lives: u64,
    is_done: bool,
    quiet: u32,
    ticks: u64,
    counts: Counts,
    wrong: Vec<String>,
}

impl<'c> Driver<'c> {
    pub(crate) fn new(campaign: &'c Campaign, faults: Vec<Fault>, has_long_leases: bool, folder: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = Server::of_this_process();
        let schema = runtime.block_on(server.fresh_schema());
        let (sender, events) = sync_channel(1_024);
        let ticker = sender.clone();
        std::thread::spawn(move || {
            while ticker.send(Event::Tick).is_ok() {
                std::thread::sleep(TICK);
            }
        });
        let mut driver = Self {
            campaign,
            server,
            schema,
            folder: folder.to_owned(),
            runtime,
            recorder: Recorder::open(&folder.join("record"), "driver", 0),
            sender,
            events,
            places: Vec::new(),
            runs: BTreeMap::new(),
            faults: faults.into(),
            until_fault: 20,
            has_long_leases,
            lives: 0,
            is_done: false,
            quiet: 0,
            ticks: 0,
            counts: Counts::default(),
            wrong: Vec::new(),
        };
        for name in NAMES {
            let sockets = folder.join(name);
            std::fs::create_dir(&sockets).unwrap();
            let proxy = driver.runtime.block_on(async { Proxy::start(&sockets, &server.folder) });
            let process = driver.start(name, sockets);
            driver.places.push(Place { proxy, process, before: Vec::new() });
        }
        driver
    }

    /// Until all faults have happened, all runs have ended, and nothing is noted as unfinished; then the boards are shut down.
    pub(crate) fn drive(mut self) -> Driven {
        while !self.is_done && self.wrong.is_empty() {
            match self.events.recv().unwrap() {
                Event::Tick => self.tick(),
                Event::Line(who, line) => self.take(&who, &line),
                Event::Closed(who) => self.closed(&who),
            }
        }
        for place in &mut self.places {
            drop(place.process.stdin.take());
            if !self.wrong.is_empty() {
                place.process.kill();
            }
            let status = place.process.child.wait().unwrap();
            if self.wrong.is_empty() && !status.success() {
                self.wrong.push(format!("{} did not shut down: {status}", place.process.life.who()));
            }
        }
        Driven { runs: self.runs, counts: self.counts, wrong: self.wrong }
    }

    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// Starts the next process of a board, whose connections go through the socket in this folder.
    fn start(&mut self, name: &str, folder: PathBuf) -> Process {
        self.lives += 1;
        let is_long = self.has_long_leases && self.campaign.below(8) == 0;
        let life = Life {
            name: name.to_owned(),
            number: self.lives,
            lease: if is_long { USUAL } else { SHORT },
            folder,
            schema: self.schema.clone(),
            record: self.folder.join("record"),
        };
        Process::start(life, &self.sender)
    }

    fn place_of(&self, who: &str) -> Option<usize> {
        self.places.iter().position(|place| place.process.life.who() == who)
    }

    /// A place whose board takes questions, of those the seed's choice.
    fn any_ready(&self) -> Option<usize> {
        let is_ready =
            |index: &usize| matches!(self.places[*index].process.state, State::Ready | State::Apart | State::Zombie);
        let ready: Vec<usize> = (0..NAMES.len()).filter(is_ready).collect();
        (!ready.is_empty()).then(|| ready[self.campaign.below(ready.len())])
    }

    fn ask(&mut self, index: usize, line: &str) {
        if let Some(stdin) = &mut self.places[index].process.stdin {
            // If it has ended, that is noticed by itself.
            let _ = writeln!(stdin, "{line}");
        }
    }

    fn take(&mut self, who: &str, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (first, text) = rest.split_once(' ').unwrap_or((rest, ""));
        let index = self.place_of(who);
        if let Some(index) = index {
            self.places[index].process.last = line.to_owned();
        }
        match word {
            "ready" => {
                let Some(index) = index else { return };
                self.quiet = 0;
                let place = &mut self.places[index];
                if place.process.state == State::Starting {
                    place.process.state = State::Ready;
                }
                // It has ended the sessions of those before it.
                for before in std::mem::take(&mut place.before) {
                    self.recorder.write(format_args!("fenced {before}"));
                }
            }
            "accepted" => {
                self.progress();
                let again = self.campaign.below(8) == 0;
                let Some(run) = self.runs.get_mut(first) else { return };
                run.is_accepted = true;
                // Submitted once more, elsewhere perhaps, it is the same run.
                if again && let Some(index) = self.any_ready() {
                    self.counts.add("submitted again");
                    self.submit(index, first);
                }
            }
            "end" => {
                self.progress();
                if let Some(run) = self.runs.get_mut(first) {
                    run.ends.insert(text.to_owned());
                }
                self.ask_about_runs();
            }
            "refused" | "unknown" => {
                self.counts.add(word);
                let run = self.runs.get_mut(first);
                if let Some(run) = run.filter(|run| run.at.as_deref() == Some(who)) {
                    run.at = None;
                }
            }
            "answered" => self.counts.add(&format!("{word} {first}")),
            "unanswered" => {
                self.counts.add(&format!("{word} {first}"));
                eprintln!("{who}: {line}");
            }
            "taken" => self.counts.add("waits for a name"),
            "stopped" => self.counts.add(word),
            "attention" | "failed" | "ended" => {
                self.counts.add(word);
                eprintln!("{who}: {line}");
            }
            "unfinished" => {
                let is_over = self.faults.is_empty() && self.runs.values().all(|run| !run.ends.is_empty());
                self.is_done |= is_over && first == "0" && self.is_whole();
            }
            "wrong" => self.wrong.push(format!("{who}: {rest}")),
            _ => self.wrong.push(format!("{who} said {line:?}")),
        }
    }

    fn is_whole(&self) -> bool {
        self.places.iter().all(|place| place.process.state == State::Ready)
    }

    fn progress(&mut self) {
        self.quiet = 0;
        self.until_fault = self.until_fault.saturating_sub(1);
        if self.until_fault == 0 {
            self.until_fault = 5 + self.campaign.below(30);
            match self.faults.front().copied() {
                Some(fault) if self.bring_about(fault) => drop(self.faults.pop_front()),
                Some(_) => self.until_fault = 1,
                None => {}
            }
        }
    }

    /// Whether that is possible now, at a board that the seed chooses.
    fn bring_about(&mut self, fault: Fault) -> bool {
        let index = self.campaign.below(NAMES.len());
        // One board at a time is away for long, so that others can end its session.
        let is_away = |place: &Place| matches!(place.process.state, State::Frozen | State::Apart | State::Zombie);
        let is_possible = match fault {
            Fault::Freeze | Fault::Apart | Fault::Zombie => {
                !self.places.iter().any(is_away) && self.places[index].process.state == State::Ready
            }
            Fault::Crash => self.runtime.block_on(self.client()).is_some(),
            Fault::Shutdown => self.places[index].process.state == State::Ready,
            // A zombie is to meet the fence.
            Fault::Kill => !matches!(self.places[index].process.state, State::Down | State::Zombie),
            Fault::Cut(_) => true,
        };
        if !is_possible {
            return false;
        }
        if fault == Fault::Zombie {
            self.recorder.write(format_args!("zombie {}", self.places[index].process.life.who()));
            self.ask(index, "stand still");
        }
        let place = &mut self.places[index];
        let process = &mut place.process;
        match fault {
            Fault::Kill => process.kill(),
            Fault::Freeze => {
                process.state = State::Frozen;
                process.signal(Signal::STOP);
            }
            Fault::Apart => {
                process.state = State::Apart;
                place.proxy.set_open(false);
            }
            Fault::Zombie => process.state = State::Zombie,
            Fault::Cut(cut) => place.proxy.cut_next(cut),
            Fault::Shutdown => {
                process.state = State::Ending;
                drop(process.stdin.take());
            }
            Fault::Crash => self.server.crash(),
        }
        let name = match fault {
            Fault::Kill => "kills",
            Fault::Freeze => "freezes",
            Fault::Apart => "cut off",
            Fault::Zombie => "zombies",
            Fault::Cut(_) => "cuts",
            Fault::Shutdown => "shutdowns",
            Fault::Crash => "crashes of the database",
        };
        self.counts.add(name);
        true
    }

    fn closed(&mut self, who: &str) {
        let Some(index) = self.place_of(who) else { return };
        let process = &mut self.places[index].process;
        let status = process.child.wait().unwrap();
        if !(status.success() || process.was_killed && status.signal() == Some(Signal::KILL.as_raw())) {
            self.wrong.push(format!("{who} has ended with {status}; it said {:?} last", process.last));
        }
        match process.state {
            State::Ready => self.counts.add("ended by themselves"),
            State::Zombie if !process.was_killed => self.counts.add("zombies that were refused and ended"),
            State::Starting | State::Frozen | State::Apart | State::Zombie | State::Ending | State::Down => {}
        }
        if process.state == State::Apart {
            self.places[index].proxy.set_open(true);
        }
        for run in self.runs.values_mut().filter(|run| run.at.as_deref() == Some(who)) {
            run.at = None;
        }
        if self.places[index].process.last.starts_with("failed") {
            // The database may have to start first.
            self.places[index].process.state = State::Down;
        } else {
            self.start_again(index);
        }
    }

    fn start_again(&mut self, index: usize) {
        let (name, folder) = (NAMES[index], self.places[index].proxy.folder.clone());
        let process = self.start(name, folder);
        let place = &mut self.places[index];
        let before = std::mem::replace(&mut place.process, process);
        place.before.push(before.life.who());
    }

    fn tick(&mut self) {
        self.ticks += 1;
        self.quiet += 1;
        assert!(self.quiet < MOST_QUIET, "nothing happens any more: {}", self.status());
        for index in 0..NAMES.len() {
            // It keeps what has passed until it is asked.
            self.places[index].proxy.count("nothing");
            let process = &self.places[index].process;
            if process.state == State::Down {
                self.start_again(index);
                continue;
            }
            let is_away = matches!(process.state, State::Frozen | State::Apart | State::Zombie);
            if is_away && process.fenced_at.is_none() && self.runtime.block_on(self.has_ended(&process.life.name)) {
                self.recorder.write(format_args!("fenced {}", process.life.who()));
                let place = &mut self.places[index];
                place.process.fenced_at = Some(self.ticks);
                if place.process.state != State::Zombie {
                    place.proxy.set_open(true);
                    place.process.signal(Signal::CONT);
                    place.process.state = State::Ending;
                }
            }
            let process = &mut self.places[index].process;
            let is_late = process.fenced_at.is_some_and(|at| self.ticks - at == ZOMBIE_TICKS);
            if process.state == State::Zombie && is_late {
                // It has nothing to write, and so was refused nothing.
                self.counts.add("zombies that were killed");
                process.kill();
            }
        }
        self.ask_about_runs();
        if self.ticks.is_multiple_of(3)
            && let Some(index) = self.any_ready()
        {
            self.ask(index, "people");
        }
        if self.ticks.is_multiple_of(5)
            && let Some(index) = self.any_ready()
        {
            self.ask(index, "look");
        }
    }

    /// Submits as many runs as are to be open, and asks somebody about each that nobody was asked about.
    fn ask_about_runs(&mut self) {
        let open = self.runs.values().filter(|run| run.ends.is_empty()).count();
        if !self.faults.is_empty() {
            (open..IN_FLIGHT).for_each(|_| self.add_run());
        }
        let idle = self.runs.iter().filter(|(_, run)| run.at.is_none() && run.ends.is_empty());
        let idle: Vec<(String, bool)> = idle.map(|(id, run)| (id.clone(), run.is_accepted)).collect();
        for (id, is_accepted) in idle {
            let Some(index) = self.any_ready() else { break };
            if is_accepted {
                self.ask(index, &format!("wait {id}"));
            } else {
                self.submit(index, &id);
            }
            let who = self.places[index].process.life.who();
            self.runs.get_mut(&id).unwrap().at = Some(who);
        }
    }

    fn submit(&mut self, index: usize, id: &str) {
        let Submitted { kind, to, .. } = &self.runs[id];
        let line = format!("submit {kind} {to} {id}");
        self.ask(index, &line);
    }

    fn add_run(&mut self) {
        let (kind, to) = KINDS[self.runs.len() % KINDS.len()];
        let bits = (u128::from(self.campaign.random()) << 64) | u128::from(self.campaign.random());
        let text = format!("{bits:032x}");
        let id = format!("{}-{}-7{}-8{}-{}", &text[..8], &text[8..12], &text[13..16], &text[17..20], &text[20..]);
        self.runs.insert(id, Submitted { kind, to, at: None, is_accepted: false, ends: BTreeSet::new() });
    }

    async fn client(&self) -> Option<tokio_postgres::Client> {
        let (client, connection) = tokio_postgres::connect(&self.server.url(), tokio_postgres::NoTls).await.ok()?;
        tokio::spawn(connection);
        Some(client)
    }

    /// Whether the last session of this name was ended, so that nothing of it is written any more.
    async fn has_ended(&self, name: &str) -> bool {
        let Some(client) = self.client().await else { return false };
        let query = format!("SELECT count(*) FROM {}.sessions WHERE name = $1 AND until IS NOT NULL", self.schema);
        let open = client.query_one(&query, &[&name.as_bytes()]).await;
        open.is_ok_and(|row| row.get::<_, i64>(0) == 0)
    }

    fn status(&self) -> String {
        let mut text = String::new();
        for place in &self.places {
            let Process { life, state, last, .. } = &place.process;
            let _ = write!(text, "\n{}: {state:?}, said {last:?} last", life.who());
        }
        for (id, run) in self.runs.iter().filter(|(_, run)| run.ends.is_empty()) {
            let _ = write!(text, "\n{id}: {run:?}");
        }
        let _ = write!(text, "\n{} faults to come; {}", self.faults.len(), self.counts);
        text
    }
}
