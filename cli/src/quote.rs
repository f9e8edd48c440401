//! Quotes words and paths for a shell, in command lines that are printed to be copied.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use callboard_text::shell_word;

/// A path, quoted for a shell, whatever its bytes are.
pub(crate) fn quoted_path(path: &Path) -> String {
    shell_word(path.as_os_str().as_bytes())
}

/// A word, quoted for a shell.
pub(crate) fn quoted(word: &str) -> String {
    shell_word(word.as_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use callboard::messages::visible;

    use super::*;

    #[test]
    fn a_shell_reads_a_quoted_word_unchanged() {
        let words = ["store", "*=cat", "it's", "", "a b"].map(quoted);
        assert_eq!(words, ["store", "'*=cat'", r"'it'\''s'", "''", "'a b'"]);
    }

    #[test]
    fn bash_reads_a_quoted_path_of_any_bytes() {
        let paths: [&[u8]; 5] = [b"st\xffore", b"it's\xfe a", b"line\nfeed", b"back\\slash", "\u{202e}x".as_bytes()];
        let quoted = paths.map(|bytes| quoted_path(Path::new(std::ffi::OsStr::from_bytes(bytes))));
        let expected = [r"$'st\xffore'", r"$'it\'s\xfe a'", r"$'line\x0afeed'", r"'back\slash'", r"$'\xe2\x80\xaex'"];
        assert_eq!(quoted, expected);
        for (quoted, bytes) in quoted.iter().zip(paths) {
            // The quoted path must be shown unchanged.
            assert_eq!(visible(quoted), *quoted);
            let output = std::process::Command::new("bash").args(["-c", &format!("printf %s {quoted}")]).output();
            assert_eq!(output.unwrap().stdout, bytes, "{quoted}");
        }
    }
}
