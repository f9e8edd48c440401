//! Names of streams and values, and their bytes.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

/// The name of a stream or value: a list of segments. Segments may hold any characters; they are kept apart by
/// the encoding and never joined with a separator, so `["x", "a/b"]` and `["x/a", "b"]` are different keys.
///
/// ```
/// use callboard::storage::Key;
/// let key = Key::new(["context", "codebase", "auth"]);
/// assert!(key.starts_with(&Key::new(["context", "codebase"]).children()));
/// assert!(!key.starts_with(&Key::new(["context", "code"]).children()));
/// assert!(key.starts_with(&Key::new(["context"]).children_beginning_with("code")));
/// assert_eq!(key.segments(), ["context", "codebase", "auth"]);
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<[u8]>);

/// The beginning of a [`Key`], made by [`Key::children`] or [`Key::children_beginning_with`].
#[derive(Clone, PartialEq, Eq)]
pub struct KeyPrefix(Arc<[u8]>);

/// Ends a segment. A zero byte inside a segment is followed by `ZERO_INSIDE`, so byte order is segment order.
const END: [u8; 2] = [0, 1];
const ZERO_INSIDE: u8 = 0xff;

fn push_segment(bytes: &mut Vec<u8>, segment: &str) {
    if !segment.as_bytes().contains(&0) {
        return bytes.extend_from_slice(segment.as_bytes());
    }
    for &byte in segment.as_bytes() {
        bytes.push(byte);
        if byte == 0 {
            bytes.push(ZERO_INSIDE);
        }
    }
}

/// The segments in encoded bytes, borrowed where no character is encoded.
fn segments_in(mut rest: &[u8]) -> impl Iterator<Item = Cow<'_, str>> {
    std::iter::from_fn(move || {
        let mut before = Vec::new();
        loop {
            let zero = rest.iter().position(|byte| *byte == 0)?;
            let (text, tag) = (&rest[..zero], rest.get(zero + 1));
            rest = rest.get(zero + END.len()..).unwrap_or_default();
            let ends = tag == Some(&END[1]);
            if ends && before.is_empty() {
                return Some(String::from_utf8_lossy(text));
            }
            before.extend_from_slice(text);
            if ends {
                return Some(Cow::Owned(String::from_utf8_lossy(&before).into_owned()));
            }
            before.push(0);
        }
    })
}

impl Key {
    /// The longest key that a store takes, in encoded bytes.
    pub const MAX: usize = 1024;

    /// Creates a key from its segments. The length is not checked here: a store refuses to write a key longer than
    /// [`Key::MAX`].
    #[must_use]
    pub fn new<'a>(segments: impl IntoIterator<Item = &'a str>) -> Self {
        thread_local! {
            static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        // Taken out, not borrowed: an iterator that makes a key finds an empty scratch.
        let mut bytes = SCRATCH.take();
        bytes.clear();
        for segment in segments {
            push_segment(&mut bytes, segment);
            bytes.extend_from_slice(&END);
        }
        let key = Self(bytes.as_slice().into());
        if bytes.capacity() <= Self::MAX {
            SCRATCH.with_borrow_mut(|scratch| *scratch = bytes);
        }
        key
    }

    /// Returns this key with `segment` added at its end.
    #[must_use]
    pub fn child(&self, segment: &str) -> Self {
        let mut bytes = self.0.to_vec();
        push_segment(&mut bytes, segment);
        bytes.extend_from_slice(&END);
        Self(bytes.into())
    }

    /// This key, and all keys that have its segments and more.
    #[must_use]
    pub fn children(&self) -> KeyPrefix {
        KeyPrefix(Arc::clone(&self.0))
    }

    /// All keys that have this one's segments and then one that begins with `start`, every character taken literally.
    #[must_use]
    pub fn children_beginning_with(&self, start: &str) -> KeyPrefix {
        let mut bytes = self.0.to_vec();
        push_segment(&mut bytes, start);
        KeyPrefix(bytes.into())
    }

    /// Returns whether this key lies under `prefix`. A key also lies under its own [`Key::children`].
    #[must_use]
    pub fn starts_with(&self, prefix: &KeyPrefix) -> bool {
        self.0.starts_with(&prefix.0)
    }

    /// Returns the segments in order, decoded.
    #[must_use]
    pub fn segments(&self) -> Vec<String> {
        self.each_segment().map(Cow::into_owned).collect()
    }

    /// The segments, borrowed where no character is encoded.
    pub(crate) fn each_segment(&self) -> impl Iterator<Item = Cow<'_, str>> {
        segments_in(&self.0)
    }

    /// One of the segments, without decoding those before it.
    pub(crate) fn segment(&self, index: usize) -> Option<Cow<'_, str>> {
        let mut rest = &*self.0;
        for _ in 0..index {
            let ends = rest.windows(END.len()).position(|bytes| bytes == END)?;
            rest = &rest[ends + END.len()..];
        }
        segments_in(rest).next()
    }

    /// A position in the order of keys, for bounds of ranges, or a key whose bytes have a checksum.
    pub(crate) fn unchecked(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// The first segment in the rest of a key's encoded bytes, after other segments.
    pub(crate) fn first_segment_of(rest: &[u8]) -> Option<Cow<'_, str>> {
        segments_in(rest).next()
    }

    /// The encoded bytes; their order is the order of the segments.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A key from its encoded bytes; `None` if they are not a key's.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        // Without a zero inside a segment, it is text as a whole, in which zeros end segments.
        if std::str::from_utf8(bytes).is_ok() {
            let is_end = |bytes: &[u8]| bytes[0] != END[0] || bytes[1] == END[1];
            let is_key = bytes.is_empty() || (bytes.ends_with(&END) && bytes.windows(END.len()).all(is_end));
            return is_key.then(|| Self(bytes.into()));
        }
        // Text, and after every zero a tag and more text.
        let is_text = |text: &[u8]| std::str::from_utf8(text).is_ok();
        let mut pieces = bytes.split(|byte| *byte == 0);
        let is_whole = bytes.is_empty() || bytes.ends_with(&END);
        let is_key = is_whole
            && pieces.next().is_some_and(is_text)
            && pieces
                .all(|piece| matches!(piece, [tag, text @ ..] if [END[1], ZERO_INSIDE].contains(tag) && is_text(text)));
        is_key.then(|| Self(bytes.into()))
    }
}

impl KeyPrefix {
    /// Returns the prefix of all keys whose encoded bytes begin with these.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Returns the encoded bytes that every key under the prefix begins with.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.segments()).finish()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Debug for KeyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_segments_apart_and_in_order() {
        let hostile = ["", "a", "a/b", "b", "a\0b", "a\0", "\0", "\u{1}", "ä", "a\0\u{1}b"];
        for left in hostile {
            for right in hostile {
                let key = Key::new([left, right]);
                assert_eq!(key.segments(), [left, right]);
                assert_eq!([0, 1, 2].map(|index| key.segment(index)), [Some(left.into()), Some(right.into()), None]);
                assert_eq!(Key::from_bytes(key.as_bytes()), Some(key.clone()));
                for other in hostile {
                    let other_key = Key::new([other, right]);
                    assert_eq!(key.cmp(&other_key), left.cmp(other), "{left:?} {other:?}");
                    assert_eq!(key.starts_with(&Key::new([other]).children()), left == other);
                }
            }
        }
        let wrong: [&[u8]; 7] =
            [b"half", b"a\0", b"\x01", b"a\0\x02\0\x01", b"a\0\0\x01", b"a\0\xff\x01", b"\xc3\0\x01"];
        for bytes in wrong {
            assert_eq!(Key::from_bytes(bytes), None, "{bytes:?}");
        }
    }
}
