//! From the bytes of a file to its text.

use std::borrow::Cow;

use super::left_out::LeftOut;

/// A file is left out if it has more than one invalid sequence for this many characters.
const CHARS_PER_INVALID: usize = 20;

/// How many bytes are searched for the pattern of UTF-16 without byte order mark.
const SEARCHED_FOR_UTF16: usize = 1 << 10;

/// The text of a file: without byte order mark, with line feeds as ends of lines, so its lines are those of the file.
#[derive(Debug)]
pub(super) struct Decoded<'b> {
    pub(super) text: Cow<'b, str>,
    /// Bytes that were replaced, if any.
    pub(super) replaced: Option<LeftOut>,
}

/// Decodes UTF-8. A carriage return that no line feed follows stays, as white space within its line.
pub(super) fn decode(bytes: &[u8]) -> Result<Decoded<'_>, LeftOut> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) || bytes.starts_with(&[0, 0, 0xfe, 0xff]) {
        return Err(LeftOut::Utf16);
    }
    if let Some(at) = bytes.iter().position(|&byte| byte == 0) {
        return Err(if is_utf16(bytes) { LeftOut::Utf16 } else { LeftOut::Binary { at } });
    }
    let (text, replaced) = utf8(bytes)?;
    let text = match text {
        Cow::Borrowed(text) => unix_lines(text.strip_prefix('\u{feff}').unwrap_or(text)),
        Cow::Owned(text) => Cow::Owned(unix_lines(text.strip_prefix('\u{feff}').unwrap_or(&text)).into_owned()),
    };
    if text.trim().is_empty() {
        return Err(LeftOut::Empty);
    }
    Ok(Decoded { text, replaced })
}

fn unix_lines(text: &str) -> Cow<'_, str> {
    if text.contains("\r\n") { Cow::Owned(text.replace("\r\n", "\n")) } else { Cow::Borrowed(text) }
}

fn utf8(bytes: &[u8]) -> Result<(Cow<'_, str>, Option<LeftOut>), LeftOut> {
    let Err(error) = std::str::from_utf8(bytes) else {
        return Ok((String::from_utf8_lossy(bytes), None));
    };
    let text = String::from_utf8_lossy(bytes);
    let sequences = bytes.utf8_chunks().filter(|chunk| !chunk.invalid().is_empty()).count();
    let at = error.valid_up_to();
    if sequences.saturating_mul(CHARS_PER_INVALID) > text.chars().count() {
        return Err(LeftOut::NotUtf8 { at, sequences });
    }
    Ok((text, Some(LeftOut::SomeNotUtf8 { at, sequences })))
}

/// Whether at least nine of ten bytes in either even or odd places are NUL, as in UTF-16 of languages with the Latin alphabet.
fn is_utf16(bytes: &[u8]) -> bool {
    let searched = &bytes[..bytes.len().min(SEARCHED_FOR_UTF16)];
    let nuls = |parity| searched.iter().skip(parity).step_by(2).filter(|&&byte| byte == 0).count();
    [(nuls(0), nuls(1)), (nuls(1), nuls(0))]
        .into_iter()
        .any(|(most, few)| most * 20 >= searched.len() * 9 && few < most / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> Result<String, LeftOut> {
        decode(bytes).map(|decoded| decoded.text.into_owned())
    }

    #[test]
    fn a_byte_order_mark_and_carriage_returns_are_no_text() {
        assert_eq!(text(b"\xef\xbb\xbfone\r\ntwo\rthree\n").unwrap(), "one\ntwo\rthree\n");
    }

    #[test]
    fn utf16_is_left_out_with_and_without_mark() {
        let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>();
        assert_eq!(text(&wide("\u{feff}one two")), Err(LeftOut::Utf16));
        assert_eq!(text(&wide("one two three")), Err(LeftOut::Utf16));
        assert_eq!(text(&"one".encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<_>>()), Err(LeftOut::Utf16));
    }

    #[test]
    fn a_nul_makes_a_file_binary() {
        assert_eq!(text(b"some text, then\0more"), Err(LeftOut::Binary { at: 15 }));
    }

    #[test]
    fn few_invalid_bytes_are_replaced_and_reported() {
        let bytes = [b"a text in Latin-1 with one caf\xe9".as_slice(), &[b'.'; 9]].concat();
        let decoded = decode(&bytes).unwrap();
        assert!(decoded.text.contains("caf\u{fffd}"));
        assert_eq!(decoded.replaced, Some(LeftOut::SomeNotUtf8 { at: 30, sequences: 1 }));
    }

    #[test]
    fn a_file_of_many_invalid_bytes_is_left_out() {
        assert_eq!(text(b"\xcf\xf0\xe8\xe2\xe5\xf2"), Err(LeftOut::NotUtf8 { at: 0, sequences: 6 }));
    }

    #[test]
    fn white_space_is_no_text() {
        for bytes in [&b""[..], b" \n\t\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"] {
            assert_eq!(text(bytes), Err(LeftOut::Empty), "{bytes:?}");
        }
    }
}
