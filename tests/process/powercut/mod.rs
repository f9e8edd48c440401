//! Power cuts: what a process did to its disk is recorded, and disks are made as a power cut may leave them: everything
//! that was synced is there, and any part of what was not. Each has to open, to hold what was acknowledged as synced, and
//! of the rest a beginning; or to be refused with an error.
//!
//! What was acknowledged is known from the same record: the process printed it. Recording takes `strace`; where there is none the
//! campaign reports that and ends, and fails on CI. `cargo xtask test` installs it where it can.

#![cfg(feature = "sled")]

mod disk;
mod trace;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;

use callboard::storage::{Sled, StorageError};
use callboard::testing::conformance::{Contents, CrashScript, WriteReport};
use futures::StreamExt;
use tempfile::{TempDir, tempdir};

use crate::campaigns::{Campaign, cases};
use crate::common::skip;
use disk::Disk;

const PLACE: &str = "CALLBOARD_POWERCUT_PLACE";
const LIFE: &str = "CALLBOARD_POWERCUT_LIFE";
const SEED: &str = "CALLBOARD_POWERCUT_SEED";

/// One process after the other on one store. The last one is not closed.
const LIVES: u64 = 3;
const WRITES: u64 = 40;

/// The scripts of all lives: each continues where the one before was closed.
fn scripts(seed: u64) -> Vec<CrashScript> {
    let mut base = Contents::default();
    (0..LIVES)
        .map(|life| {
            let script = CrashScript::new(seed.wrapping_add(life), base.clone());
            base = script.contents_after(WRITES);
            script
        })
        .collect()
}

/// Not a test: the process that is recorded.
#[test]
fn the_child() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else { return };
    let number = |name| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let script = &scripts(number(SEED))[number(LIFE) as usize];
    // The first life leaves everything in groups; the others apply their writes soon.
    let store = Sled::open(place).unwrap().applied_from(if number(LIFE) == 0 { 2 << 20 } else { 1 << 10 });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(script.play(&store, WRITES).for_each(async |report| println!("{report}")));
}

/// What the processes did; `None` where it cannot be recorded.
fn record(seed: u64) -> Option<Disk> {
    let folder = tempdir().unwrap();
    let place = folder.path().join("store");
    std::fs::create_dir(&place).unwrap();
    let mut disk = Disk::new(&place);
    for life in 0..LIVES {
        let trace = folder.path().join(format!("trace {life}"));
        let calls = "trace=openat,mkdir,rename,unlink,write,pwrite64,writev,pwritev,lseek,ftruncate,fsync,fdatasync";
        let recorded = Command::new("strace")
            .args(["-f", "-y", "-xx", "-s", "100000000", "-e", calls, "-o"])
            .arg(&trace)
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "powercut::the_child", "--nocapture", "--quiet"])
            .env(PLACE, &place)
            .env(LIFE, life.to_string())
            .env(SEED, seed.to_string())
            .output();
        let output = recorded.ok()?;
        if !output.status.success() {
            println!("strace: {}", String::from_utf8_lossy(&output.stderr));
            return None;
        }
        disk.begin_life();
        trace::read(&trace, &mut disk);
    }
    assert_eq!(disk.as_left(), disk::Image::of(&place), "the record does not lead to what is on the disk");
    Some(disk)
}

enum Met {
    /// This many writes of the life are there.
    Held(u64),
    Refused(String),
}

fn open(image: &Path, script: &CrashScript, reports: &[WriteReport]) -> Result<Met, String> {
    let met = catch_unwind(AssertUnwindSafe(|| {
        let store = match Sled::open(image) {
            Ok(store) => store,
            Err(StorageError::Open { detail, .. }) => return Ok(Met::Refused(detail)),
            Err(error) => return Err(error.to_string()),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let found = runtime.block_on(Contents::read(&store)).map_err(|error| error.to_string())?;
        script.judge(reports, &found).map(Met::Held)
    }));
    met.unwrap_or_else(|_| Err("it panicked".to_owned()))
}

/// A folder for an image; where there is a file system in memory, opening it does not wait for a disk.
fn in_memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempdir()).unwrap()
}

#[test]
fn nothing_acknowledged_is_lost_to_power_cuts() {
    /// Images made of one record.
    const OF_ONE_RECORD: u64 = 500;
    let mut campaign = Campaign::begin("powercut");
    let images = cases(150);
    let (mut records, mut left_out, mut beyond_certain, mut refused_empty) = (0, 0, 0, 0);
    for _ in 0..images.div_ceil(OF_ONE_RECORD) {
        let seed = campaign.random();
        let Some(disk) = record(seed) else {
            let why = "`strace` is not there or may not trace";
            skip(why);
            println!("\ncampaign powercut: SKIPPED, {why}");
            return;
        };
        records += 1;
        let scripts = scripts(seed);
        for _ in 0..OF_ONE_RECORD.min(images) {
            let moment = campaign.below(disk.moments());
            let (image, left_out_here) = disk.cut_at(moment, &mut || campaign.random());
            let (life, reports) = disk.reports_by(moment);
            let folder = in_memory();
            image.write(folder.path());
            left_out += u64::from(left_out_here > 0);
            let script = &scripts[life];
            campaign.count(match open(folder.path(), script, &reports) {
                Ok(Met::Held(kept)) => {
                    beyond_certain += u64::from(kept > script.certain(&reports));
                    Ok(())
                }
                Ok(Met::Refused(_)) if life == 0 && script.certain(&reports) == 0 => {
                    refused_empty += 1;
                    Ok(())
                }
                Ok(Met::Refused(reason)) => Err(format!("record {seed}, moment {moment}: refused: {reason}")),
                Err(error) => Err(format!("record {seed}, moment {moment} of {}: {error}", disk.moments())),
            });
        }
    }
    campaign.end(format_args!(
        "{records} records, {left_out} images without some write, {beyond_certain} held more than they had to; \
         {refused_empty} refused with nothing acknowledged in them"
    ));
}
