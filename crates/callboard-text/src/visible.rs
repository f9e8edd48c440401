//! Untrusted text, such as that of agents, made fit to be shown to people.

use std::fmt::Write as _;

use unicode_width::UnicodeWidthChar as _;

/// The longest untrusted text within an error, in characters.
const MAX_CUT: usize = 80;

/// The text as one line, with everything that could deceive a reader, or give a terminal orders, made visible: control
/// characters, line breaks among them, and those that are not shown or change how others are shown become `\u{…}`. Marks that are
/// drawn over the character before them stay as far as languages need them: up to three on a letter, none that strikes it out or
/// encloses it.
///
/// Everything of the library that implements `Display` has the texts of agents go through this, or through
/// [`visible_lines`]. Front ends that show a text by themselves, such as a channel for approvals, do it themselves.
///
/// ```
/// use callboard_text::visible;
/// assert_eq!(visible("gr\u{fc}n\u{1b}[31m \u{202e}dlog\n"), "gr\u{fc}n\\u{1b}[31m \\u{202e}dlog\\u{a}");
/// ```
#[must_use]
pub fn visible(text: &str) -> String {
    escaped(text, |c| c.is_control() || is_unseen(c))
}

/// As [`visible`], for text of several lines: line feeds and tabs stay.
#[must_use]
pub fn visible_lines(text: &str) -> String {
    escaped(text, |c| (c.is_control() && c != '\n' && c != '\t') || is_unseen(c))
}

/// As [`visible`], for a line of what a person approves: blanks other than U+0020, one at the end, and what has no picture of its
/// own are escapes too. Texts for reading keep them, because languages are written with some.
pub fn exact(text: &str) -> String {
    let mut shown = escaped(text, |c| c.is_control() || is_unseen(c) || is_blank(c) || is_without_picture(c));
    if shown.ends_with(' ') {
        shown.pop();
        shown.push_str("\\u{20}");
    }
    shown
}

/// Whether it looks like a space (U+0020) but is another character.
fn is_blank(c: char) -> bool {
    c != ' ' && c.is_whitespace()
}

/// Whether it has no glyph, or a different one in each font: object replacement, private use, and noncharacters.
fn is_without_picture(c: char) -> bool {
    let is_private = matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}');
    let is_no_character = matches!(c, '\u{fdd0}'..='\u{fdef}') || (c as u32) & 0xfffe == 0xfffe;
    c == '\u{fffc}' || is_private || is_no_character
}

/// As [`visible`], in quotes and no longer than an error can hold: what is cut is said.
pub fn quoted(text: &str) -> String {
    let (shown, rest) = beginning(text);
    format!("\"{}\"{rest}", shown.replace('"', "\\\""))
}

/// As [`visible`], no longer than an error can hold: what is cut is said.
pub fn cut(text: &str) -> String {
    let (shown, rest) = beginning(text);
    shown + &rest
}

fn beginning(text: &str) -> (String, String) {
    match text.char_indices().nth(MAX_CUT) {
        None => (visible(text), String::new()),
        Some((end, _)) => (visible(&text[..end]) + "…", format!(" ({} characters)", text.chars().count())),
    }
}

fn escaped(text: &str, is_hidden: impl Fn(char) -> bool) -> String {
    let (mut before, mut marks) = (None, Marks::default());
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        // Both are evaluated for every character, because they keep state.
        let is_lost = is_lost_selector(before.replace(c), c);
        let is_hidden = is_hidden(c);
        if !marks.permits(c, is_hidden || is_lost) || is_hidden || is_lost {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\u{{{:x}}}", c as u32);
        } else {
            shown.push(c);
        }
        shown
    })
}

/// The most marks on a letter: a vowel of several parts, or a tone mark on one. More would reach into other lines.
const MAX_MARKS: usize = 3;

/// The number of marks on the last drawn character; `None` if it cannot have any.
#[derive(Default)]
struct Marks(Option<usize>);

impl Marks {
    /// Whether it is no mark, or a mark that is allowed here. A character shown as an escape cannot have marks.
    fn permits(&mut self, c: char, is_escaped: bool) -> bool {
        let is_mark = c.width() == Some(0) && !matches!(c, '\u{fe00}'..='\u{fe0f}');
        match self.0 {
            _ if is_escaped => self.0 = None,
            _ if !is_mark => self.0 = c.is_alphabetic().then_some(0),
            Some(count) if count < MAX_MARKS && !is_drawn_over(c) => self.0 = Some(count + 1),
            Some(_) | None => {
                self.0 = None;
                return false;
            }
        }
        true
    }
}

/// Marks that strike through or enclose their character.
fn is_drawn_over(c: char) -> bool {
    matches!(c, '\u{334}'..='\u{338}' | '\u{488}' | '\u{489}' | '\u{20d0}'..='\u{20ff}')
}

/// Whether it invisibly selects how the character before it is drawn: it is a variation selector for text or emoji style after a
/// character that has no such styles.
fn is_lost_selector(before: Option<char>, c: char) -> bool {
    let has_picture = |before: char| {
        matches!(before, '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}'
            | '\u{2194}'..='\u{2bff}' | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}' | '\u{1f000}'..='\u{1faff}')
    };
    match c {
        '\u{fe0e}' | '\u{fe0f}' => !before.is_some_and(has_picture),
        '\u{fe00}'..='\u{fe0d}' => true,
        _ => false,
    }
}

/// Whether it is not shown, or changes how other characters are shown.
pub fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{2800}'
        | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{13430}'..='\u{1343f}' | '\u{16fe4}' | '\u{1d159}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_deceives_is_made_visible_and_the_rest_stays() {
        assert_eq!(visible("a\u{202e}b\u{200b}c\u{1b}[31m\n"), "a\\u{202e}b\\u{200b}c\\u{1b}[31m\\u{a}");
        assert_eq!(visible("Grüße 你好 ❤\u{fe0f} e\u{301}"), "Grüße 你好 ❤\u{fe0f} e\u{301}");
        assert_eq!(
            visible("a\u{fe0f}b\u{fe01} \u{2764}\u{fe0f}\u{fe0f}"),
            "a\\u{fe0f}b\\u{fe01} \u{2764}\u{fe0f}\\u{fe0f}"
        );
        assert_eq!(visible_lines("a\n\tb\r\u{9b}31m"), "a\n\tb\\u{d}\\u{9b}31m");
    }

    #[test]
    fn marks_stay_on_letters_as_languages_have_them_and_are_escapes_elsewhere() {
        for kept in ["e\u{301}", "Vie\u{302}\u{323}t", "हिन्दी", "ภาษาไทยที่", "שָׁלוֹם", "مُحَمَّد", "\u{1112}\u{1161}\u{11ab}"]
        {
            assert_eq!(visible(kept), kept);
        }
        let escaped = [
            ("\u{301}a", "\\u{301}a"),
            ("1\u{301}", "1\\u{301}"),
            ("  \u{332}\u{332}", "  \\u{332}\\u{332}"),
            ("rm\u{336}", "rm\\u{336}"),
            ("a\u{20dd}\u{301}", "a\\u{20dd}\\u{301}"),
            ("e\u{301}\u{302}\u{303}\u{304}\u{305}", "e\u{301}\u{302}\u{303}\\u{304}\\u{305}"),
            ("e\u{202e}\u{301}", "e\\u{202e}\\u{301}"),
        ];
        for (text, expected) in escaped {
            assert_eq!((visible(text), visible_lines(text)), (expected.to_owned(), expected.to_owned()));
        }
    }

    #[test]
    fn what_is_cut_has_its_length() {
        assert_eq!(quoted("a \"b\"\u{7}"), r#""a \"b\"\u{7}""#);
        assert_eq!(quoted(&"é".repeat(100_000)), format!("\"{}…\" (100000 characters)", "é".repeat(80)));
        assert_eq!(cut(&"x".repeat(80)), "x".repeat(80));
    }

    proptest! {
        #[test]
        fn nothing_that_is_shown_can_deceive(text in any::<String>()) {
            let (line, lines) = (visible(&text), visible_lines(&text));
            prop_assert!(!line.chars().any(|c| c.is_control() || is_unseen(c)));
            prop_assert!(!lines.chars().any(|c| (c.is_control() && c != '\n' && c != '\t') || is_unseen(c)));
            prop_assert_eq!((visible(&line), visible_lines(&lines)), (line.clone(), lines));
            let exactly = exact(&text);
            prop_assert!(!exactly.chars().any(|c| is_blank(c) || is_without_picture(c)) && !exactly.ends_with(' '));
            prop_assert_eq!(exact(&exactly), exactly);
            prop_assert!(quoted(&text).chars().count() <= 10 * MAX_CUT + 40);
        }
    }
}
