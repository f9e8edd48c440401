//! Bounds for texts that are read and shown.

use std::io::{self, Read};

/// Reads everything, if it is at most `most` bytes; otherwise `None`. Reads at most one byte more.
pub(super) fn whole(from: impl Read, most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut read = Vec::new();
    from.take(most as u64 + 1).read_to_end(&mut read)?;
    Ok((read.len() <= most).then_some(read))
}

/// The beginning of a text, of at most so many bytes.
pub(super) fn beginning(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// The end of a text, of at most so many bytes.
#[cfg(all(unix, feature = "shell"))]
pub(super) fn ending(text: &str, most: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(most))..]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An endless stream that counts the bytes read from it.
    struct Endless(usize);

    impl Read for &mut Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.fill(b'x');
            self.0 += buffer.len();
            Ok(buffer.len())
        }
    }

    #[test]
    fn no_more_is_read_than_one_byte_above_the_bound() {
        let mut endless = Endless(0);
        assert_eq!(whole(&mut endless, 100_000).unwrap(), None);
        assert_eq!(endless.0, 100_001);
        assert_eq!(whole(&b"abc"[..], 3).unwrap().unwrap(), b"abc");
        assert_eq!(whole(&b"abc"[..], 2).unwrap(), None);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(beginning("aäöü", 4), "aä");
        assert_eq!(beginning("aäöü", 100), "aäöü");
        #[cfg(all(unix, feature = "shell"))]
        assert_eq!((ending("aäöü", 3), ending("aäöü", 100)), ("ü", "aäöü"));
    }
}
