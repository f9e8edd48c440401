//! Where a text that is longer than a passage is cut. Pure.

use unicode_normalization::char::is_combining_mark;

/// The fewest characters that a passage may be limited to: a word longer than two thirds of this is cut, and words that are longer than
/// [`MAX_WORD`](crate::words::MAX_WORD) are equal if they begin alike.
const FEWEST: usize = 200;

/// Returns the ends of the pieces of a text, each of at most `limit` characters. They are at ends of paragraphs, else of lines, else of
/// words, as far as that leaves a piece of at least a third of the limit; a word that is longer than that is cut.
pub(super) fn ends(text: &str, limit: usize) -> impl Iterator<Item = usize> {
    let limit = limit.max(FEWEST);
    let mut start = 0;
    std::iter::from_fn(move || {
        if start == text.len() {
            return None;
        }
        start += piece(&text[start..], limit);
        Some(start)
    })
}

/// The length of the first piece in bytes.
fn piece(text: &str, limit: usize) -> usize {
    let Some((end, _)) = text.char_indices().nth(limit) else {
        return text.len();
    };
    let window = &text[..end];
    let least = window.char_indices().nth(limit / 3).map_or(0, |(least, _)| least);
    [
        window.rfind("\n\n").map(|at| at + 2),
        end_after(window, |c| c == '\n'),
        end_after(window, char::is_whitespace),
        end_after(window, ends_word),
    ]
    .into_iter()
    .flatten()
    .find(|&end| end > least)
    .unwrap_or(end)
}

fn end_after(window: &str, ends: impl Fn(char) -> bool) -> Option<usize> {
    window.char_indices().rev().find(|&(_, c)| ends(c)).map(|(at, c)| at + c.len_utf8())
}

/// Whether no word continues after this character.
fn ends_word(c: char) -> bool {
    !(c.is_alphanumeric() || c == '_' || is_combining_mark(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Vec<&str> {
        let mut start = 0;
        ends(text, 200).map(|end| &text[std::mem::replace(&mut start, end)..end]).collect()
    }

    #[test]
    fn a_short_text_is_one_piece() {
        assert_eq!(pieces("short"), ["short"]);
        assert_eq!(pieces(""), [""; 0]);
    }

    #[test]
    fn the_end_of_a_paragraph_comes_before_that_of_a_line_and_of_a_word() {
        let (paragraph, line, word) = ("a ".repeat(50) + "\n\n", "b ".repeat(20) + "\n", "c ".repeat(100));
        let text = format!("{paragraph}{line}{word}");
        assert_eq!(pieces(&text), [&text[..102], &text[102..301], &text[301..]]);
        let text = format!("{line}{line}{word}");
        assert_eq!(pieces(&text)[0], format!("{line}{line}"));
        let text = "ä ".repeat(101);
        assert_eq!(pieces(&text), ["ä ".repeat(100), "ä ".to_owned()]);
    }

    #[test]
    fn text_without_spaces_is_cut_at_punctuation() {
        let text = "one-two,".repeat(30);
        assert_eq!(pieces(&text), ["one-two,".repeat(25), "one-two,".repeat(5)]);
    }

    #[test]
    fn text_without_spaces_is_cut_at_any_character_that_is_of_no_word() {
        for sign in ["\u{1f600}", "\u{202e}", "。"] {
            let text = format!("{}{sign}{}", "a".repeat(190), "bä".repeat(90));
            assert_eq!(pieces(&text), [&text[..190 + sign.len()], &text[190 + sign.len()..]], "{sign}");
        }
    }

    #[test]
    fn a_mark_on_a_letter_is_no_end_of_a_word() {
        let text = format!("{}\u{301}{}", "a".repeat(150), "b".repeat(100));
        assert_eq!(pieces(&text)[0].chars().count(), 200);
    }

    #[test]
    fn a_word_that_is_too_long_is_cut_after_its_beginning() {
        let text = format!("{} {}", "a".repeat(60), "ö".repeat(300));
        assert_eq!(pieces(&text), [&text[..61 + 139 * 2], &text[61 + 139 * 2..]]);
    }
}
