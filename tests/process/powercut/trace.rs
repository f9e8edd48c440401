//! Reads what strace wrote: one system call a line, in the order in which the process saw them begin and end.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use super::disk::Disk;

/// Plays a record onto a disk. Each line of it is a moment.
pub(crate) fn read(trace: &Path, disk: &mut Disk) {
    let mut begun: HashMap<String, (usize, String)> = HashMap::new();
    let mut offsets: HashMap<u64, u64> = HashMap::new();
    for line in BufReader::new(File::open(trace).unwrap()).lines() {
        let line = line.unwrap();
        let moment = disk.next_moment();
        let (process, call) = line.split_once(' ').unwrap();
        let call = call.trim_start();
        if let Some(call) = call.strip_suffix(" <unfinished ...>") {
            begun.insert(process.to_owned(), (moment, call.to_owned()));
            // The output of a write may be read before the call returns.
            disk.hear(moment, &words(call));
            continue;
        }
        let (began, call) = match call.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")) {
            Some((_, rest)) => match begun.remove(process) {
                Some((began, first)) => (began, first + rest),
                None => continue,
            },
            None => {
                disk.hear(moment, &words(call));
                (moment, call.to_owned())
            }
        };
        let Some((call, result)) = call.rsplit_once(" = ") else { continue };
        if !result.starts_with('-') {
            apply(call.trim_end(), result, (began, moment), &mut offsets, disk);
        }
    }
}

fn apply(call: &str, result: &str, (began, ended): (usize, usize), offsets: &mut HashMap<u64, u64>, disk: &mut Disk) {
    let Some((name, arguments)) = call.split_once('(') else { return };
    let arguments: Vec<&str> = arguments.trim_end_matches(')').split(", ").collect();
    let result = number(result);
    let at = (began, ended);
    match name {
        "openat" => {
            let path = path(arguments[1]);
            let flags = arguments[2];
            if flags.contains("O_CREAT") {
                disk.create(at, &path);
            }
            if flags.contains("O_TRUNC") {
                disk.truncate(at, &path, 0);
            }
            offsets.insert(result, 0);
        }
        "lseek" => drop(offsets.insert(number(arguments[0]), result)),
        "write" => {
            let offset = offsets.entry(number(arguments[0])).or_default();
            disk.write(at, &opened(arguments[0]), *offset, bytes(arguments[1]));
            *offset += result;
        }
        "pwrite64" => disk.write(at, &opened(arguments[0]), number(arguments[3]), bytes(arguments[1])),
        "ftruncate" => disk.truncate(at, &opened(arguments[0]), number(arguments[1])),
        "fsync" | "fdatasync" => disk.sync(at, &opened(arguments[0])),
        "mkdir" => disk.make_folder(at, &path(arguments[0])),
        "rename" => disk.rename(at, &path(arguments[0]), &path(arguments[1])),
        "unlink" => disk.remove(at, &path(arguments[0])),
        other => panic!("{other} is recorded and not understood"),
    }
}

/// What a call writes to the standard output.
fn words(call: &str) -> String {
    match call.strip_prefix("write(1<").and_then(|rest| rest.split(", ").nth(1)) {
        Some(written) => String::from_utf8_lossy(&bytes(written)).into_owned(),
        None => String::new(),
    }
}

fn number(text: &str) -> u64 {
    text.split(|letter: char| !letter.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// The path of `"path"`.
fn path(quoted: &str) -> String {
    String::from_utf8(bytes(quoted)).unwrap()
}

/// The path of `12<path>`.
fn opened(descriptor: &str) -> String {
    let path = descriptor.split_once('<').and_then(|(_, path)| path.rsplit_once('>')).map_or("", |(path, _)| path);
    String::from_utf8(bytes(path)).unwrap()
}

/// Text in which strace wrote every byte as `\x2a`, or as itself.
fn bytes(text: &str) -> Vec<u8> {
    let text = text.trim_matches('"').as_bytes();
    let digit = |byte: u8| (byte as char).to_digit(16).unwrap() as u8;
    let (mut decoded, mut at) = (Vec::with_capacity(text.len() / 4), 0);
    while at < text.len() {
        if text[at..].starts_with(b"\\x") {
            decoded.push(digit(text[at + 2]) << 4 | digit(text[at + 3]));
            at += 4;
        } else {
            decoded.push(text[at]);
            at += 1;
        }
    }
    decoded
}
