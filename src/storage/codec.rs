//! The encoding of values on disk, and the only module that calls bincode.
//!
//! A record is a header of [`HEADER`] bytes and a payload:
//!
//! | bytes | what |
//! |---|---|
//! | 0..2 | magic `0xCB 0x1D` |
//! | 2..4 | schema id |
//! | 4..6 | version of the schema |
//! | 6..10 | length of the payload |
//! | 10..14 | CRC-32 of the payload, begun with schema and version |
//! | 14.. | payload: bincode, little endian, variable-length integers |
//!
//! One pass over the payload covers the whole record: another schema or version begins the checksum elsewhere and so ends
//! it elsewhere, and magic and length are compared with what they have to be.
//!
//! Integers have variable length because most of what is stored are small numbers, lengths and enum tags; it makes a
//! record smaller and is no slower. The header never changes, so an old program can still report "written by a newer
//! version". Decoding trusts nothing: the length and the checksum are compared before bincode sees a byte, bincode may
//! not claim more than the payload holds, and bytes left over are refused.
//!
//! A stored type has no zero-sized elements in collections, is not recursive unless it bounds its depth when it is read (a
//! plan's blocks do), and holds no `serde_json::Value`, no internally tagged or untagged enum and no
//! `skip_serializing_if`: bincode writes some of these and cannot read them back. JSON is stored as length-capped text. Every stored type has a golden file (see `testing::golden`).

use std::cell::RefCell;
use std::sync::Arc;

use bincode::Options;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Length of a record's header in bytes.
pub(crate) const HEADER: usize = 14;

/// The longest payload that is decoded, in bytes. Stores refuse longer records when they are written.
pub(crate) const MAX_PAYLOAD: usize = 64 << 20;

const MAGIC: [u8; 2] = [0xCB, 0x1D];
const CHECKSUM: std::ops::Range<usize> = 10..14;

/// Scratch space that a thread keeps between records; a larger one is given back.
const KEPT_SCRATCH: usize = 256 << 10;

/// A type that is written to our own disk.
pub(crate) trait Stored: Serialize + DeserializeOwned {
    /// Names the type on disk; never reused for another type.
    const SCHEMA: u16;
    /// Grows whenever the bytes of the type change.
    const VERSION: u16;
    /// Names the type in errors and golden files.
    const NAME: &'static str;

    /// Reads a payload of an older version; `None` if this version cannot be read any more.
    fn upgrade(version: u16, payload: Payload<'_>) -> Option<Result<Self, CodecError>> {
        let _ = (version, payload);
        None
    }
}

/// The payload of a record whose header and checksum are right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Payload<'a> {
    bytes: &'a [u8],
    name: &'static str,
}

impl Payload<'_> {
    /// Reads the whole payload as a `T`.
    ///
    /// # Errors
    /// [`CodecError::Malformed`] if it is not exactly one `T`.
    pub(crate) fn read<T: DeserializeOwned>(self) -> Result<T, CodecError> {
        bincode::DefaultOptions::new()
            .with_limit(self.bytes.len() as u64)
            .deserialize(self.bytes)
            .map_err(|error| CodecError::Malformed { name: self.name, detail: error.to_string() })
    }
}

/// Why bytes are not the record that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CodecError {
    /// The bytes do not begin like a record.
    #[error("these bytes are not a callboard record")]
    NotARecord,
    /// The record is shorter or longer than its header says.
    #[error("the record says it holds {stated} bytes and holds {actual}")]
    WrongLength {
        /// The length in the header, in bytes.
        stated: usize,
        /// What is there.
        actual: usize,
    },
    /// The record is longer than any that is written.
    #[error("the record holds {size} bytes; at most {max} are read")]
    TooLong {
        /// Its length in bytes.
        size: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The bytes have changed since they were written.
    #[error("the checksum does not match: the record is damaged")]
    Damaged,
    /// The record is of another type.
    #[error("the record has schema {actual}; a {name} has schema {expected}")]
    WrongSchema {
        /// The type that was asked for.
        name: &'static str,
        /// Its schema.
        expected: u16,
        /// The record's schema.
        actual: u16,
    },
    /// A newer program wrote this record.
    #[error("this {name} was written by a newer version of callboard (format {actual}; this one reads up to {newest})")]
    NewerVersion {
        /// The type that was asked for.
        name: &'static str,
        /// The newest version that this program knows.
        newest: u16,
        /// The record's version.
        actual: u16,
    },
    /// The version is too old to be read.
    #[error("this {name} was written in format {actual}, which is not read any more; a release in between converts it")]
    RetiredVersion {
        /// The type that was asked for.
        name: &'static str,
        /// The record's version.
        actual: u16,
    },
    /// Header and checksum are right, and still the payload is not a value of the type.
    #[error("this {name} does not decode: {detail}")]
    Malformed {
        /// The type that was asked for.
        name: &'static str,
        /// The decoder's message.
        detail: String,
    },
}

/// A value as a record.
///
/// # Panics
/// If the type breaks the rules for stored types (see the module) so that bincode cannot write it.
pub(crate) fn encode<T: Stored>(value: &T) -> Vec<u8> {
    let mut record = Vec::with_capacity(HEADER + 114);
    encode_into::<T>(value, &mut record);
    record
}

/// A value as a record that can be handed to a store without copying it again; faster than [`encode`] for that use.
///
/// # Panics
/// As [`encode`].
pub(crate) fn encode_shared<T: Stored>(value: &T) -> Arc<[u8]> {
    encode_as::<T>(value)
}

/// As [`encode_shared`], from something that serializes as a `T` does: one that borrows what a `T` owns.
pub(crate) fn encode_as<T: Stored>(value: &impl Serialize) -> Arc<[u8]> {
    thread_local! {
        static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    // Taken out, not borrowed: a `Serialize` that encodes another record in between finds an empty scratch.
    let mut record = SCRATCH.take();
    record.clear();
    encode_into::<T>(value, &mut record);
    let shared = Arc::from(record.as_slice());
    if record.capacity() <= KEPT_SCRATCH {
        // `set` would make a value of the cell's type first.
        SCRATCH.with_borrow_mut(|scratch| *scratch = record);
    }
    shared
}

fn encode_into<T: Stored>(value: &impl Serialize, record: &mut Vec<u8>) {
    let mut header = [0; HEADER];
    header[0..2].copy_from_slice(&MAGIC);
    header[2..4].copy_from_slice(&T::SCHEMA.to_le_bytes());
    header[4..6].copy_from_slice(&T::VERSION.to_le_bytes());
    record.extend_from_slice(&header);
    // No limit here: with one, bincode would measure every value before it writes it.
    if let Err(error) = bincode::DefaultOptions::new().serialize_into(&mut *record, value) {
        panic!("a {} cannot be stored: {error}", T::NAME);
    }
    let Ok(length) = u32::try_from(record.len() - HEADER) else { panic!("a {} is longer than 4 GiB", T::NAME) };
    record[6..10].copy_from_slice(&length.to_le_bytes());
    let checksum = checksum(record);
    record[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
}

/// Reads a record.
///
/// # Errors
/// See [`CodecError`]; nothing of a record that is damaged reaches the type.
pub(crate) fn decode<T: Stored>(record: &[u8]) -> Result<T, CodecError> {
    check(record)?;
    let u16_at = |at: usize| u16::from_le_bytes([record[at], record[at + 1]]);
    let (schema, version) = (u16_at(2), u16_at(4));
    if schema != T::SCHEMA {
        return Err(CodecError::WrongSchema { name: T::NAME, expected: T::SCHEMA, actual: schema });
    }
    let payload = Payload { bytes: &record[HEADER..], name: T::NAME };
    match version.cmp(&T::VERSION) {
        std::cmp::Ordering::Equal => payload.read(),
        std::cmp::Ordering::Less => {
            T::upgrade(version, payload).unwrap_or(Err(CodecError::RetiredVersion { name: T::NAME, actual: version }))
        }
        std::cmp::Ordering::Greater => {
            Err(CodecError::NewerVersion { name: T::NAME, newest: T::VERSION, actual: version })
        }
    }
}

/// Checks the header and the checksum of a record, whatever its type.
///
/// # Errors
/// It is no record, has another length, or is damaged.
pub(crate) fn check(record: &[u8]) -> Result<(), CodecError> {
    if record.len() < HEADER || record[0..2] != MAGIC {
        return Err(CodecError::NotARecord);
    }
    let u32_at = |at: usize| u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
    let (stated, actual) = (u32_at(6) as usize, record.len() - HEADER);
    if stated != actual {
        return Err(CodecError::WrongLength { stated, actual });
    }
    if actual > MAX_PAYLOAD {
        return Err(CodecError::TooLong { size: actual, max: MAX_PAYLOAD });
    }
    if checksum(record) != u32_at(CHECKSUM.start) {
        return Err(CodecError::Damaged);
    }
    Ok(())
}

/// What every record of a type begins with, to find records in a larger file.
#[cfg(any(feature = "sled", test))]
pub(crate) fn first_bytes<T: Stored>() -> [u8; 6] {
    let [schema, version] = [T::SCHEMA.to_le_bytes(), T::VERSION.to_le_bytes()];
    [MAGIC[0], MAGIC[1], schema[0], schema[1], version[0], version[1]]
}

/// Reads the record at the beginning of `bytes`, whatever follows it.
///
/// # Errors
/// As [`decode`].
#[cfg(any(feature = "sled", test))]
pub(crate) fn decode_first<T: Stored>(bytes: &[u8]) -> Result<T, CodecError> {
    let header = bytes.first_chunk::<HEADER>().ok_or(CodecError::NotARecord)?;
    let stated = u32::from_le_bytes([header[6], header[7], header[8], header[9]]) as usize;
    let actual = bytes.len() - HEADER;
    let length = HEADER.checked_add(stated).filter(|length| *length <= bytes.len());
    decode(&bytes[..length.ok_or(CodecError::WrongLength { stated, actual })?])
}

fn checksum(record: &[u8]) -> u32 {
    let schema_and_version = u32::from_le_bytes([record[2], record[3], record[4], record[5]]);
    let mut hasher = crc32fast::Hasher::new_with_initial(schema_and_version);
    hasher.update(&record[HEADER..]);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Note {
        number: u64,
        text: String,
        tags: Vec<u8>,
    }

    impl Stored for Note {
        const SCHEMA: u16 = 7;
        const VERSION: u16 = 3;
        const NAME: &'static str = "note";

        fn upgrade(version: u16, payload: Payload<'_>) -> Option<Result<Self, CodecError>> {
            (version == 2)
                .then(|| payload.read::<u64>().map(|number| Self { number, text: String::new(), tags: vec![] }))
        }
    }

    #[derive(Serialize, Deserialize)]
    struct Versioned<const SCHEMA: u16, const VERSION: u16>(u64);

    impl<const SCHEMA: u16, const VERSION: u16> Stored for Versioned<SCHEMA, VERSION> {
        const SCHEMA: u16 = SCHEMA;
        const VERSION: u16 = VERSION;
        const NAME: &'static str = "versioned";
    }

    /// Makes length and checksum right for what the payload holds now.
    fn seal(record: &mut [u8]) {
        let length = (record.len() - HEADER) as u32;
        record[6..10].copy_from_slice(&length.to_le_bytes());
        let sum = checksum(record);
        record[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    }

    fn note() -> Note {
        Note { number: 300, text: "café".into(), tags: vec![1, 2, 3] }
    }

    #[test]
    fn both_ways_of_encoding_write_the_same_record() {
        let bytes = encode(&note());
        assert_eq!(bytes[..], encode_shared(&note())[..]);
        assert_eq!(decode::<Note>(&bytes), Ok(note()));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = encode(&note());
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let error = decode::<Note>(&damaged).unwrap_err();
            // The header begins with what the bytes are.
            let expected = match bit / 8 {
                0..2 => matches!(error, CodecError::NotARecord),
                _ => matches!(error, CodecError::WrongLength { .. } | CodecError::TooLong { .. } | CodecError::Damaged),
            };
            assert!(expected, "bit {bit}: {error:?}");
        }
    }

    #[test]
    fn every_cut_and_every_trailing_byte_is_refused() {
        let mut bytes = encode(&note());
        for length in 0..bytes.len() {
            let error = decode::<Note>(&bytes[..length]).unwrap_err();
            let is_cut = matches!(error, CodecError::NotARecord | CodecError::WrongLength { .. });
            assert!(is_cut, "{length} bytes: {error:?}");
        }
        let stated = bytes.len() - HEADER;
        bytes.push(0);
        assert_eq!(decode::<Note>(&bytes), Err(CodecError::WrongLength { stated, actual: stated + 1 }));
    }

    #[test]
    fn bytes_that_the_payload_does_not_use_are_refused() {
        // A record whose checksum is right and whose payload is longer than the type.
        let mut longer = encode(&Versioned::<9, 1>(1));
        longer.push(0);
        seal(&mut longer);
        assert!(matches!(decode::<Versioned<9, 1>>(&longer), Err(CodecError::Malformed { .. })));
    }

    #[test]
    fn a_record_is_found_and_read_inside_other_bytes() {
        let mut bytes = b"before".to_vec();
        bytes.extend(encode(&note()));
        bytes.extend_from_slice(b"after");
        let begins = first_bytes::<Note>();
        let at = bytes.windows(begins.len()).position(|window| *window == begins).unwrap();
        assert_eq!((at, decode_first::<Note>(&bytes[at..])), (6, Ok(note())));
        let cut = bytes.len() - 6;
        let (stated, actual) = (cut - at - HEADER + 1, cut - at - HEADER);
        assert_eq!(decode_first::<Note>(&bytes[at..cut]), Err(CodecError::WrongLength { stated, actual }));
    }

    #[test]
    fn a_record_may_be_a_header_alone() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Mark;
        impl Stored for Mark {
            const SCHEMA: u16 = 10;
            const VERSION: u16 = 1;
            const NAME: &'static str = "mark";
        }
        let bytes = encode(&Mark);
        assert_eq!((bytes.len(), decode::<Mark>(&bytes), decode_first(&bytes)), (HEADER, Ok(Mark), Ok(Mark)));
    }

    #[test]
    fn a_record_that_is_longer_than_any_is_not_read_at_all() {
        let of_length = |length: usize| {
            let mut record = vec![0; HEADER + length];
            record[..6].copy_from_slice(&first_bytes::<Note>());
            record[6..10].copy_from_slice(&(length as u32).to_le_bytes());
            decode::<Note>(&record)
        };
        let size = MAX_PAYLOAD + 1;
        assert_eq!(of_length(size), Err(CodecError::TooLong { size, max: MAX_PAYLOAD }));
        assert_eq!(of_length(MAX_PAYLOAD), Err(CodecError::Damaged), "this one was looked at");
    }

    #[test]
    fn a_newer_version_reports_it() {
        let error = decode::<Note>(&encode(&Versioned::<7, 4>(1))).unwrap_err();
        assert_eq!(error, CodecError::NewerVersion { name: "note", newest: 3, actual: 4 });
        assert!(error.to_string().contains("written by a newer version"));
    }

    #[test]
    fn old_versions_stay_readable_until_they_are_retired() {
        assert_eq!(decode::<Note>(&encode(&Versioned::<7, 2>(5))).unwrap().number, 5);
        assert_eq!(
            decode::<Note>(&encode(&Versioned::<7, 1>(5))),
            Err(CodecError::RetiredVersion { name: "note", actual: 1 })
        );
    }

    #[test]
    fn another_schema_is_refused() {
        assert_eq!(
            decode::<Note>(&encode(&Versioned::<8, 3>(5))),
            Err(CodecError::WrongSchema { name: "note", expected: 7, actual: 8 })
        );
    }

    #[test]
    fn a_length_inside_the_payload_cannot_ask_for_more_than_there_is() {
        // The text claims 2^62 bytes.
        let mut bytes = encode(&Versioned::<7, 3>(1));
        bytes.extend_from_slice(&[253, 0, 0, 0, 0, 0, 0, 0, 0x40]);
        seal(&mut bytes);
        assert!(matches!(decode::<Note>(&bytes), Err(CodecError::Malformed { .. })));
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes(number: u64, text: String, tags: Vec<u8>) {
            let note = Note { number, text, tags };
            prop_assert_eq!(decode::<Note>(&encode(&note)), Ok(note));
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes: Vec<u8>, sealed: bool) {
            if sealed && bytes.len() >= HEADER {
                bytes[0..2].copy_from_slice(&MAGIC);
                bytes[2..6].copy_from_slice(&[7, 0, 3, 0]);
                seal(&mut bytes);
            }
            let _ = decode::<Note>(&bytes);
            let _ = decode_first::<Note>(&bytes);
        }
    }
}
