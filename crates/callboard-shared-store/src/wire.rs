//! The bytes of what processes exchange: little-endian numbers, byte strings with their length, and frames with theirs. Every length
//! is checked against what has arrived before anything is allocated.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use callboard::messages::{Durability, Timestamp};
use callboard::storage::{
    Append, Change, Delete, Entry, Expected, Key, KeyPrefix, NewSession, Put, Record, Rider, SessionId, SessionInfo,
    StorageError,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The longest frame: the longest record, and room for keys and numbers.
pub(crate) const MAX_FRAME: usize = Record::MAX + 64 * 1024;

/// A value that is sent to another process.
pub(crate) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    /// `None` if the input is no such value.
    fn take(input: &mut &[u8]) -> Option<Self>;

    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }

    /// The value that these bytes are, all of them.
    fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let value = Self::take(&mut bytes)?;
        bytes.is_empty().then_some(value)
    }
}

/// Reads the next frame; `None` at the end of the stream.
pub(crate) async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_FRAME {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes")));
    }
    // Grows with what arrives, and not with what was announced.
    let mut frame = Vec::new();
    stream.take(length as u64).read_to_end(&mut frame).await?;
    if frame.len() == length { Ok(Some(frame)) } else { Ok(None) }
}

/// Writes a frame: the bytes that `put` adds to it.
pub(crate) async fn write_frame(
    stream: &mut (impl AsyncWrite + Unpin),
    put: impl FnOnce(&mut Vec<u8>),
) -> io::Result<()> {
    let mut frame = vec![0; 4];
    put(&mut frame);
    let length = u32::try_from(frame.len() - 4).map_err(io::Error::other)?;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    stream.write_all(&frame).await
}

fn split<'a>(input: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(taken)
}

macro_rules! numbers {
    ($($number:ty)*) => { $(
        impl Wire for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn take(input: &mut &[u8]) -> Option<Self> {
                split(input, size_of::<Self>())?.try_into().ok().map(Self::from_le_bytes)
            }
        }
    )* };
}
numbers! { u8 u32 u64 }

/// Values that are sent as others.
macro_rules! sent_as {
    ($($type:ty as $other:ty { $into:expr, $from:expr })*) => { $(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                let into: fn(&Self) -> $other = $into;
                into(self).put(out);
            }

            fn take(input: &mut &[u8]) -> Option<Self> {
                let from: fn($other) -> Option<Self> = $from;
                from(<$other>::take(input)?)
            }
        }
    )* };
}
sent_as! {
    bool as u8 { |it| u8::from(*it), |byte| Some(byte != 0) }
    usize as u64 { |it| *it as u64, |number| number.try_into().ok() }
    SessionId as u64 { |it| it.0, |number| Some(Self(number)) }
    Duration as u64 {
        |it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX), |nanos| Some(Self::from_nanos(nanos))
    }
    Timestamp as u64 { |it| it.as_millis(), |millis| Some(Self::from_millis(millis)) }
    Durability as u8 {
        |it| match it { Self::Memory => 0, Self::Buffered => 1, Self::Sync => 2 },
        |byte| match byte { 0 => Some(Self::Memory), 1 => Some(Self::Buffered), 2 => Some(Self::Sync), _ => None }
    }
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    bytes.len().put(out);
    out.extend_from_slice(bytes);
}

fn take_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::take(input)?;
    split(input, length)
}

/// Values that are byte strings.
macro_rules! byte_strings {
    ($($type:ty { $bytes:expr, $from:expr })*) => { $(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                let bytes: fn(&Self) -> &[u8] = $bytes;
                put_bytes(bytes(self), out);
            }

            fn take(input: &mut &[u8]) -> Option<Self> {
                let from: fn(&[u8]) -> Option<Self> = $from;
                from(take_bytes(input)?)
            }
        }
    )* };
}
byte_strings! {
    String { |it| it.as_bytes(), |bytes| std::str::from_utf8(bytes).ok().map(str::to_owned) }
    Arc<str> { |it| it.as_bytes(), |bytes| std::str::from_utf8(bytes).ok().map(Self::from) }
    Arc<[u8]> { |it| it, |bytes| Some(bytes.into()) }
    Key { Key::as_bytes, Key::from_bytes }
    KeyPrefix { KeyPrefix::as_bytes, |bytes| Some(KeyPrefix::from_bytes(bytes)) }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(input: &mut &[u8]) -> Option<Self> {
        if bool::take(input)? { T::take(input).map(Some) } else { Some(None) }
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.len().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(input: &mut &[u8]) -> Option<Self> {
        let length = usize::take(input)?;
        // Each has at least a byte, so more are not there.
        (length <= input.len()).then(|| (0..length).map(|_| T::take(input)).collect())?
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(input: &mut &[u8]) -> Option<Self> {
        Some((A::take(input)?, B::take(input)?))
    }
}

impl<T: Wire, E: Wire> Wire for Result<T, E> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_ok().put(out);
        match self {
            Ok(value) => value.put(out),
            Err(error) => error.put(out),
        }
    }

    fn take(input: &mut &[u8]) -> Option<Self> {
        if bool::take(input)? { T::take(input).map(Ok) } else { E::take(input).map(Err) }
    }
}

/// Structs, field by field.
macro_rules! structs {
    ($($name:ident { $($field:ident),* })*) => { $(
        impl $crate::wire::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn take(input: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: $crate::wire::Wire::take(input)?),* })
            }
        }
    )* };
}
pub(crate) use structs;

structs! {
    Append { stream, expected, payload, durability, session, riders }
    Put { key, value, expected, ttl_secs, durability, session }
    Delete { key, revision, durability, session }
    Record { sequence, payload }
    Entry { value, revision, expires_at }
    NewSession { name, about, lease }
    SessionInfo { id, name, about, left }
}

/// Enums: the number of the variant, and its fields. What a newer build has added is sent as `other` makes of it.
macro_rules! enums {
    ($($name:ident { $($tag:literal $variant:ident { $($field:ident $(: $place:tt)?),* }),* $(, _ => $other:expr)? })*) => { $(
        impl $crate::wire::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant { $($($place:)? $field),* } => {
                        out.push($tag);
                        $($field.put(out);)*
                    })*
                    $(other => {
                        let replaced: fn(&Self) -> Self = $other;
                        replaced(other).put(out);
                    })?
                }
            }

            fn take(input: &mut &[u8]) -> Option<Self> {
                Some(match u8::take(input)? {
                    $($tag => {
                        $(let $field = $crate::wire::Wire::take(input)?;)*
                        Self::$variant { $($($place:)? $field),* }
                    })*
                    _ => return None,
                })
            }
        }
    )* };
}
pub(crate) use enums;

enums! {
    Expected { 0 Any {}, 1 Absent {}, 2 Revision { revision: 0 } }
    Rider { 0 Put { key, value, ttl_secs }, 1 Delete { key } }
    Change { 0 Put { key: 0, entry: 1 }, 1 Deleted { key: 0 }, 2 Missed { count: 0 } }
    StorageError {
        0 WrongSequence { stream, expected, actual },
        1 WrongRevision { key, expected, actual },
        4 Corrupt { key, detail },
        5 TooLarge { what, size, max },
        6 Unavailable { detail },
        7 Open { path, detail },
        8 InUse { path, holder },
        9 Stopped { detail },
        10 Closed {},
        11 NameTaken { name, about, left },
        12 SessionLives { left },
        _ => |other| Self::Unavailable { detail: other.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_is_not_there_is_refused_without_room_for_it() {
        let mut bytes = u64::MAX.to_bytes();
        bytes.push(1);
        assert_eq!(Vec::<u64>::from_bytes(&bytes), None);
        assert_eq!(String::from_bytes(&bytes), None);
        assert_eq!(Option::<u64>::from_bytes(&[1, 2, 3]), None);
        assert_eq!(bool::from_bytes(&[1, 0]), None, "more than the value");
    }

    #[test]
    fn every_error_is_the_same_on_the_other_side() {
        let key = || Key::new(["run", "a\0b"]);
        let errors = [
            StorageError::WrongSequence { stream: key(), expected: 1, actual: 2 },
            StorageError::WrongRevision { key: key(), expected: Expected::Revision(3), actual: Some(4) },
            StorageError::Corrupt { key: key(), detail: "x".to_owned() },
            StorageError::TooLarge { what: "a key".to_owned(), size: 7, max: 8 },
            StorageError::Unavailable { detail: "x".to_owned() },
            StorageError::Open { path: "/x".to_owned(), detail: "x".to_owned() },
            StorageError::InUse { path: "/x".to_owned(), holder: Some(9) },
            StorageError::Stopped { detail: "x".to_owned() },
            StorageError::Closed,
            StorageError::NameTaken {
                name: "b".to_owned(),
                about: [0xff].as_slice().into(),
                left: Duration::from_nanos(10),
            },
            StorageError::SessionLives { left: Duration::from_secs(11) },
        ];
        for error in errors {
            let bytes = error.to_bytes();
            assert_eq!(StorageError::from_bytes(&bytes), Some(error));
            for end in 0..bytes.len() {
                assert_eq!(StorageError::from_bytes(&bytes[..end]), None, "cut after {end}");
            }
        }
    }
}
