//! Bytes that nobody would send: records, names and JSON that are damaged, cut, spliced and made up. Reading them ends in a
//! value or an error, never in a panic, and a value that is read is written back as the same one.
//!
//! Each target goes on for `CALLBOARD_SECONDS` (5). An input that fails is printed in hexadecimal; kept as
//! `tests/fuzz/kept/TARGET-NAME.hex` it is tried first in every run.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../campaigns/mod.rs"]
mod campaigns;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use callboard::messages::state::StateRules;
use callboard::messages::{AgentName, Command, Json, Limits, RunEvent, RunId, Task};
use callboard::storage::codec::{self, HEADER, Stored};
use callboard::storage::{Append, Durability, Fence, Journal, Key, LetterNote, Memory, Storage};
use callboard::supervision::runs::snapshot::fold;
use futures::FutureExt;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::campaigns::{Campaign, seconds};

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | *digit as u8)).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The hex files of a folder whose names begin in one way.
fn hex_files(folder: &str, begin: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.retain(|file| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(begin) && name.ends_with(".hex")
    });
    files.sort();
    files.iter().map(|file| from_hex(&fs::read_to_string(file).unwrap())).collect()
}

/// Changes an input in a few places.
fn mutated(corpus: &[Vec<u8>], campaign: &Campaign) -> Vec<u8> {
    let mut bytes = corpus[campaign.below(corpus.len())].clone();
    for _ in 0..=campaign.below(6) {
        let at = campaign.below(bytes.len() + 1);
        let end = at + campaign.below((bytes.len() - at).min(40) + 1);
        match campaign.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << campaign.below(8),
            1 if at < bytes.len() => bytes[at] = campaign.random() as u8,
            2 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xfb, 0xfc, 0xfd, 0xff][campaign.below(8)],
            3 => drop(bytes.drain(at..end)),
            4 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            5 => {
                let other = &corpus[campaign.below(corpus.len())];
                let from = campaign.below(other.len() + 1);
                let to = from + campaign.below((other.len() - from).min(60) + 1);
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            6 => bytes.truncate(at),
            _ => bytes.insert(at, campaign.random() as u8),
        }
    }
    bytes
}

/// Tries what was kept, then what chance makes of the corpus, until the time is over.
fn fuzz(target: &'static str, corpus: &[Vec<u8>], read: impl Fn(&[u8]) -> Result<bool, String>) {
    let mut campaign = Campaign::begin("fuzz");
    let mut accepted = 0_u64;
    let mut attempt = |campaign: &mut Campaign, input: &[u8]| {
        let read = catch_unwind(AssertUnwindSafe(|| read(input))).unwrap_or_else(|_| Err("it panicked".to_owned()));
        campaign.count(match read {
            Ok(is_accepted) => {
                accepted += u64::from(is_accepted);
                Ok(())
            }
            Err(error) => Err(format!("{target}: {error}: {}", to_hex(input))),
        });
    };
    hex_files("fuzz/kept", target).iter().chain(corpus).for_each(|input| attempt(&mut campaign, input));
    while campaign.elapsed() < seconds(5) && !campaign.has_failed() {
        let input = mutated(corpus, &campaign);
        attempt(&mut campaign, &input);
    }
    assert!(accepted > 0, "not one input was read");
    campaign.end(format_args!("{target}, {accepted} of them read as something"));
}

/// A record whose header is right, around any payload.
fn record(schema: u16, payload: &[u8]) -> Vec<u8> {
    let mut record = vec![0xCB, 0x1D];
    record.extend_from_slice(&schema.to_le_bytes());
    record.extend_from_slice(&1_u16.to_le_bytes());
    record.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    let begin = u32::from_le_bytes(record[2..6].try_into().unwrap());
    let mut hasher = crc32fast::Hasher::new_with_initial(begin);
    hasher.update(payload);
    record.extend_from_slice(&hasher.finalize().to_le_bytes());
    record.extend_from_slice(payload);
    record
}

fn schema_of(record: &[u8]) -> u16 {
    u16::from_le_bytes([record[2], record[3]])
}

#[test]
fn any_bytes_are_a_record_or_an_error() {
    let mut corpus = hex_files("golden", "");
    corpus.extend([Vec::new(), vec![0xCB], record(LetterNote::SCHEMA, &[])]);
    fuzz("codec", &corpus, |bytes| {
        let payload = &bytes[HEADER.min(bytes.len())..];
        for bytes in [bytes.to_vec(), record(LetterNote::SCHEMA, payload)] {
            if let Ok(note) = codec::decode::<LetterNote>(&bytes) {
                let written = codec::encode(&note);
                if codec::decode::<LetterNote>(&written).as_ref() != Ok(&note) {
                    return Err(format!("{note:?} is read back as something else"));
                }
                return Ok(true);
            }
            let _ = codec::decode_first::<LetterNote>(&bytes);
        }
        Ok(false)
    });
}

fn journal_of(records: &[Vec<u8>]) -> Option<Vec<RunEvent>> {
    let run: RunId = "00000000-0000-0000-0000-000000000007".parse().unwrap();
    let storage = Arc::new(Memory::default());
    for (expected, payload) in (0..).zip(records) {
        let (stream, payload) = (Journal::stream(run), payload.as_slice().into());
        let append = Append { stream, fence: Fence::FIRST, expected, payload, durability: Durability::Memory };
        storage.append(append).now_or_never().unwrap().unwrap();
    }
    Journal::new(storage).read(run).now_or_never().unwrap().ok().map(|history| history.events)
}

/// The header is made right again: what is read must stand up to a writer that is wrong, not only to a disk.
#[test]
fn any_record_of_a_journal_is_read_and_folded_or_an_error() {
    let golden = hex_files("golden", "journal-record");
    let schema = schema_of(&golden[0]);
    let payloads: Vec<Vec<u8>> = golden.iter().map(|record| record[HEADER..].to_vec()).collect();
    fuzz("journal", &payloads, |payload| {
        let Some(events) = journal_of(&[record(schema, payload)]) else { return Ok(false) };
        let journal = Journal::new(Arc::new(Memory::default()));
        let stream = Key::new(["run", "again"]);
        journal.append(&stream, Fence::FIRST, 0, &events, Durability::Memory).now_or_never().unwrap().unwrap();
        let _ = fold(events, &StateRules::default());
        Ok(true)
    });
}

/// Every event there is, in any order and any number: the input is a list of which.
#[test]
fn any_order_of_events_folds() {
    let events = journal_of(&hex_files("golden", "journal-record")).unwrap();
    let corpus: Vec<Vec<u8>> =
        vec![(0..events.len() as u8).collect(), vec![0, 1, 2, 3], (0..30).map(|at| at * 7).collect()];
    fuzz("fold", &corpus, |which| {
        let chosen = which.iter().map(|number| events[*number as usize % events.len()].clone());
        let journal: Vec<RunEvent> = std::iter::once(events[0].clone()).chain(chosen).collect();
        Ok(fold(journal, &StateRules::default()).is_some())
    });
}

#[test]
fn any_name_is_taken_as_it_is_or_refused() {
    let names =
        ["a", "planner", "a-b_c.d", "ä", "日本", "a\u{202e}b", "a\u{200b}", "\u{1b}[31m", "7", "", "a b", "A.B"];
    let ids = ["00000000-0000-0000-0000-000000000007", "{0192f0c1-0000-7000-8000-000000000000}", "urn:uuid:0"];
    let keys =
        [Key::new(["run", "1"]), Key::new(["", "a\0b", "\u{1}"]), Key::new([])].map(|key| key.as_bytes().to_vec());
    let corpus: Vec<Vec<u8>> = names.iter().chain(&ids).map(|name| name.as_bytes().to_vec()).chain(keys).collect();
    fuzz("names", &corpus, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let name = AgentName::new(&text);
        if name.as_ref().is_ok_and(|name| name.as_str() != text) {
            return Err("a name was changed".to_owned());
        }
        if let Ok(run) = text.parse::<RunId>()
            && run.to_string().parse() != Ok(run)
        {
            return Err("an id is not read back".to_owned());
        }
        if let Some(key) = Key::from_bytes(bytes) {
            let segments = key.segments();
            let again = Key::new(segments.iter().map(String::as_str));
            if key.as_bytes() != bytes || again != key {
                return Err(format!("the key {key} is read back as {again}"));
            }
        }
        Ok(name.is_ok())
    });
}

/// Reads JSON as one type; what is read is read back as the same.
fn read_json<T: DeserializeOwned + Serialize + PartialEq>(text: &[u8]) -> Result<bool, String> {
    let Ok(value) = serde_json::from_slice::<T>(text) else { return Ok(false) };
    let written = serde_json::to_vec(&value).map_err(|error| format!("what was read cannot be written: {error}"))?;
    match serde_json::from_slice::<T>(&written) {
        Ok(again) if again == value => Ok(true),
        Ok(_) => Err(format!("it is read back as something else: {}", String::from_utf8_lossy(&written))),
        Err(error) => Err(format!("it is not read back: {error}: {}", String::from_utf8_lossy(&written))),
    }
}

#[test]
fn any_json_is_a_value_or_an_error() {
    let task = serde_json::to_vec(&Task::new("fix it").to("coder").input(Json::from("x"))).unwrap();
    let command = serde_json::to_vec(&Command::output("done").with("score", 7).goto("reviewer")).unwrap();
    let limits = serde_json::to_vec(&Limits::default()).unwrap();
    let deep = ["[".repeat(130), "]".repeat(130)].concat().into_bytes();
    let odd = [
        &br#"{"a":1e400,"b":-0.0,"c":1.7976931348623157e308,"d":18446744073709551616}"#[..],
        br#""\ud800""#,
        b"[1.0,0.1]",
    ];
    let mut corpus = vec![task, command, limits, deep];
    corpus.extend(odd.iter().map(|text| text.to_vec()));
    fuzz("json", &corpus, |text| {
        let read = [read_json::<Json>, read_json::<Task>, read_json::<Command>, read_json::<Limits>];
        read.iter().try_fold(false, |any, read| Ok(read(text)? || any))
    });
}
