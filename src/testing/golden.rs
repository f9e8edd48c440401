//! Golden files: the bytes of every stored type, kept in the repository, so that they cannot change by accident.

use std::fmt::Debug;
use std::path::Path;

use crate::storage::codec::{self, Stored};

/// Compares the bytes of `value` with `NAME-vVERSION.hex` in `folder`, and reads every older version's file there.
///
/// Then flips every bit of them, one at a time: none may decode.
///
/// Run once with `CALLBOARD_GOLDEN=write` to write the file of a new type or version; it never replaces one.
///
/// # Panics
/// If the bytes differ from the file's, if the file is missing, if this or an older version does not decode, or if a flipped
/// bit is not noticed.
pub(crate) fn check<T: Stored + PartialEq + Debug>(folder: impl AsRef<Path>, value: &T) {
    let file_of = |version: u16| folder.as_ref().join(format!("{}-v{version}.hex", T::NAME));
    let (file, bytes) = (file_of(T::VERSION), codec::encode(value));
    let wished = std::env::var_os("CALLBOARD_GOLDEN").is_some_and(|wish| wish == "write");
    if wished
        && !file.exists()
        && let Err(error) = std::fs::write(&file, to_lines(&bytes))
    {
        panic!("cannot write {}: {error}", file.display());
    }
    let golden = read(&file);
    assert!(
        golden == bytes,
        "the bytes of {} version {} have changed; was:\n{}is:\n{}give the type a new version and an upgrade",
        T::NAME,
        T::VERSION,
        to_lines(&golden),
        to_lines(&bytes),
    );
    assert_eq!(codec::decode::<T>(&golden).as_ref(), Ok(value), "the golden file holds another value");
    let mut damaged = golden;
    for bit in 0..damaged.len() * 8 {
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(codec::decode::<T>(&damaged).is_err(), "bit {bit} of {} can flip unnoticed", T::NAME);
        damaged[bit / 8] ^= 1 << (bit % 8);
    }
    for old in (1..T::VERSION).map(file_of).filter(|file| file.exists()) {
        if let Err(error) = codec::decode::<T>(&read(&old)) {
            panic!("{} is not readable any more: {error}", old.display());
        }
    }
}

fn read(file: &Path) -> Vec<u8> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| {
        panic!("cannot read {} ({error}); run with CALLBOARD_GOLDEN=write to write a new one", file.display())
    });
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | *digit as u8)).collect()
}

fn to_lines(bytes: &[u8]) -> String {
    bytes.chunks(32).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n").collect()
}
