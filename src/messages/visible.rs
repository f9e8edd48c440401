//! Text of agents, made fit to be shown.

use std::fmt::Write as _;

/// The text with everything that could deceive a reader, or give a terminal orders, made visible: control, bidirectional
/// and invisible characters become escapes.
pub(crate) fn visible(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if c.is_control() || is_deceptive(c) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\u{{{:x}}}", c as u32);
        } else {
            shown.push(c);
        }
        shown
    })
}

/// What is not shown, or changes how other characters are shown.
fn is_deceptive(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{3164}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_alikes_are_made_visible() {
        assert_eq!(visible("a\u{202e}b\u{200b}c\u{1b}[31m\n"), "a\\u{202e}b\\u{200b}c\\u{1b}[31m\\u{a}");
        assert_eq!(visible("Grüße 你好 ❤\u{fe0f} e\u{301}"), "Grüße 你好 ❤\u{fe0f} e\u{301}");
    }
}
