//! Words of command lines that are printed to be copied.

use crate::visible;

/// A word as a shell reads it, whatever its bytes are. Characters that a terminal does not show, and bytes that are not UTF-8, are written as
/// `$'…'`, which bash, zsh and ksh read.
///
/// ```
/// use callboard_text::shell_word;
/// assert_eq!(shell_word(b"notes.txt"), "notes.txt");
/// assert_eq!(shell_word(b"a; touch it's"), r"'a; touch it'\''s'");
/// ```
#[must_use]
pub fn shell_word(bytes: &[u8]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@".contains(c);
    match std::str::from_utf8(bytes) {
        Ok(word) if !word.is_empty() && word.chars().all(is_plain) => word.to_owned(),
        Ok(word) if visible(word) == word => format!("'{}'", word.replace('\'', r"'\''")),
        Ok(_) | Err(_) => {
            let hexadecimal = |bytes: &[u8]| bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
            let mut quoted = String::from("$'");
            for chunk in bytes.utf8_chunks() {
                for c in chunk.valid().chars() {
                    let shown = c.to_string();
                    match c {
                        '\'' | '\\' => quoted.extend(['\\', c]),
                        _ if visible(&shown) == shown => quoted.push(c),
                        _ => quoted.push_str(&hexadecimal(shown.as_bytes())),
                    }
                }
                quoted.push_str(&hexadecimal(chunk.invalid()));
            }
            quoted + "'"
        }
    }
}
